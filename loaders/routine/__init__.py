"""Routine load: jobs that keep bringing rows from a source into a table, each row exactly once."""
