"""The Spark path beside other table formats: `python -m bench.spark`."""
