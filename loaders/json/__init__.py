"""JSON bodies: the reader of documents and lines, and the paths that name their parts."""
