"""What the protocols share about their clients: connections, logins, sessions, limits and the audit log."""
