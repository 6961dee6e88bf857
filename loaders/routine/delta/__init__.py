"""FROM DELTA: the properties of such a job, and the commits of a Delta table as its source."""
