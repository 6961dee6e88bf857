"""Queries on snapshots: by a scan alone, or through DuckDB."""
