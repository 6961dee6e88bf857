"""Segments: immutable files of rows with their key index, zone maps and delete bitmaps."""
