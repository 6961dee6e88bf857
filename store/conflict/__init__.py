"""Conflicts: the reads of a transaction against the commits of others since its snapshot."""
