"""Rows of queries as files for other programs: CSV, JSON, Parquet, in a directory or on an object store."""
