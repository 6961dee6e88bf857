"""Changes of a table's declaration: columns, properties, partitions, features."""
