"""Repair of a store whose catalog is damaged or lost."""
