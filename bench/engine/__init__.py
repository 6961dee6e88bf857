"""The workloads of our own, each beside the yardsticks that bound it."""
