"""Change streams of other databases: the messages of Debezium, Canal and Maxwell as rows."""
