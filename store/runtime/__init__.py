"""The process around the engine: threads, forks, interrupts, retries, failpoints, checksummed records."""
