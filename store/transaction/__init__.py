"""Transactions over several tables, and UPDATE, DELETE and MERGE by condition."""
