"""The declaration of a table: columns, key, properties, features, partitions, column groups, constraints."""
