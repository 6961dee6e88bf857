"""Sessions: texts of statements in, results out; variables, privileges, processes."""
