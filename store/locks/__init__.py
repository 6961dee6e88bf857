"""Locks of threads and processes: with a time limit, in order of arrival, and before a commit."""
