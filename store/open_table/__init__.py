"""Open tables: versions that readers of other formats see in place, from the segments themselves.

1. `appearance`: the noun: one version as it is shown, with its files, their hidden rows and their statistics.
2. `open_table`: makes an appearance of the newest version, for every writer of a format.
3. `opener`: the thread of a store handle that does so in time.
4. `delta_*`: the writer for Delta: log, actions, deletion vectors, checkpoints.
5. `iceberg_*`: the writer for Iceberg: metadata, manifests (in `avro`), deletion vectors, snapshots.
"""
