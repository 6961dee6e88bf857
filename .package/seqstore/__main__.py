"""`python -m seqstore`: the command line."""

from seqstore.cli.main import app

app(prog_name="seqstore")
