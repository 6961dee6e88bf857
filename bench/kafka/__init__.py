"""A routine load from Kafka beside Spark's own stream: `python -m bench.kafka`."""
