"""Several processes as one server: a hub that watches them, and what they share through it."""
