"""The catalog: every fact outside the segment files, in one LMDB environment."""
