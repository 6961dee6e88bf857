"""Doris SQL to DuckDB SQL: names, functions, types, and the conditions a scan can decide."""
