"""The `seqstore` command: thin over `store` and `loaders`. Nothing heavy is imported before it is needed."""
