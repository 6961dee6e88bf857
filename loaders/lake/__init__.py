"""Tables of other formats as sources of rows: the log of Delta, the metadata of Iceberg, the import."""
