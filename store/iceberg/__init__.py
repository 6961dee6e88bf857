"""A version of a table as an Iceberg table beside it."""
