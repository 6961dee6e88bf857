"""`seqstore doctor`: the checks and the command."""
