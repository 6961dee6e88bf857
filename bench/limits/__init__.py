"""What the machine itself can do."""
