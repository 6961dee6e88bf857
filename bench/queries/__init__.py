"""Queries of analysis, beside engines on their own tables."""
