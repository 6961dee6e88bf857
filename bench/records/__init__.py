"""Stores that answer single requests of many clients, for YCSB.

base.py        what such a store is
ours.py        this project, in process and over the MySQL protocol
embedded.py    DuckDB, SQLite and LMDB in process
postgres.py    PostgreSQL over the network
catalog.py     all of them, by name
"""
