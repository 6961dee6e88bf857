"""Maintenance: compaction, vacuum, recovery, restore and the full check."""
