"""Secrets: what counts as one, where they are kept encrypted, and how texts are shown without them."""
