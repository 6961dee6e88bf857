"""Jobs that outlive a call: their records, owners, store and statements."""
