"""A server of the MySQL protocol over SQL sessions: `MysqlServer(store).start()`.

wire.py          packets on a socket; integers and strings as the protocol writes them
rows.py          answers: column definitions, and rows encoded a batch at a time
prepared.py      prepared statements: parameters in, their values put into the text
refusal.py       which error number and state an error of the store has
caching_sha2.py  logins by caching_sha2_password
connection.py    one client: handshake, password, commands
admission.py     the places of connections: logins in progress, users
server.py        accepts clients, a thread for each
"""

from seqstore.cli.mysql.server import MysqlServer

__all__ = ["MysqlServer"]
