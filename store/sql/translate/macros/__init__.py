"""DuckDB macros with the meaning of Doris functions."""
