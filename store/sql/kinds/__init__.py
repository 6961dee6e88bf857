"""Kinds of statements, a family a module. `store.sql.statement_kind` says what a module here must have."""
