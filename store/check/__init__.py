"""Checks: rows of a caller become typed rows that satisfy the table's rules."""
