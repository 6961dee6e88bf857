"""The past of a table: its change feed, and the history of one key."""
