"""`python -m seqstore`: the command line."""

from seqstore.cli.main import run

run("seqstore")
