"""Texts to values: tokens, parsers of clauses, the statements as values."""
