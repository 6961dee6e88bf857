"""Publishing: the winner test, the table writer, the commit, two-phase commit."""
