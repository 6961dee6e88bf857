"""Kinds of statements, a family a module. `sql.session.statement_kind` says what a module here must have."""
