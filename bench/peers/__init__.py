"""Stores that run a script, each set up as its makers advise for speed; all behind `KeyedPeer`.

base.py        what a peer is
ours.py        this project
duck.py        DuckDB, with a primary key and appending
rows.py        row stores in the process: LMDB, SQLite
lake.py        table formats and files: delta-rs, Polars, Lance, Iceberg by pyiceberg
clickhouse.py  ClickHouse in the process, by chdb
catalog.py     all of them, by name
"""
