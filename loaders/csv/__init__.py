"""CSV bodies: the reader, its special bytes, short blocks, typed fields and the first line."""
