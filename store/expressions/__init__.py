"""Arrow expressions: conditions, predicates and their evaluation on rows in memory."""
