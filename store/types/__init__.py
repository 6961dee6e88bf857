"""Column types: Doris spellings, Arrow types, limits, and casts from any Arrow type."""
