"""Reading: the state of a table at one version, scans, look-ups, aggregates, snapshots."""
