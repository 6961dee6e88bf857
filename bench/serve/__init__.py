"""Stream load over HTTP: `python -m bench.serve`."""
