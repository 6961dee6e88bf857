"""Stream loads, measured in process."""
