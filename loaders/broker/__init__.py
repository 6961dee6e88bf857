"""Broker load: asynchronous jobs that load files, several tables at once, all or nothing."""
