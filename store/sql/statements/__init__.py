"""Kinds of statements, one family a module; `sql.session.statement_kind` specifies their contents."""
