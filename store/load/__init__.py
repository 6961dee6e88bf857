"""Loads: one write transaction on one table, and its shares staged by other processes."""
