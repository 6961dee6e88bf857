"""INSERT, UPDATE, DELETE and MERGE: queries that compute rows, and the write of those rows."""
