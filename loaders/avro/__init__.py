"""Avro: messages of a Confluent schema registry, and object container files, as lines of JSON.

- `registry`: asks a registry for schemas;
- `writer_schema`: a schema as messages are decoded by it, and as Kafka Connect's schema of its rows;
- `messages`: messages as lines;
- `body`: bodies of loads as lines.
"""
