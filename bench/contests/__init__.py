"""Work that others defined, and ours, by every store that can do it.

scripted.py    a script of `bench.inputs` by the peers of `bench.peers`
ycsb.py        YCSB A, B, E and F in process and over the network
sustained.py   small loads without end by 1, 8 and 64 clients
tpch.py        TPC-H with both refresh streams, queries between them
machine.py     what the machine itself can do
catalog.py     all of them, by name
"""
