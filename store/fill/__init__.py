"""Filling: partial updates and column groups become whole rows, completed from history."""
