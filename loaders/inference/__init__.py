"""Declarations of tables from the files that are to be loaded."""
