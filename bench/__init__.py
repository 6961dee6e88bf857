"""Measurements: named, seeded workloads, each beside yardsticks that run in turn with it; see README.md."""
