"""Rows that cannot be loaded, kept beside their table: their table, how a load writes it, replays."""
