"""Arrow reads over the network: as Doris's backends serve their connectors, and as Arrow Flight SQL."""
