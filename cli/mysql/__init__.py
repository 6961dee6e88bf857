"""A server of the MySQL protocol over SQL sessions: `MysqlServer(store).start()`.

wire.py          packets on a socket; integers and strings as the protocol writes them
rows.py          answers: column definitions, and rows encoded a batch at a time
prepared.py      prepared statements: parameters in, their values put into the text
caching_sha2.py  logins by caching_sha2_password
connection.py    one client: handshake, password, commands
server.py        connections, logins and sessions of the clients of one port
"""

from seqstore.cli.mysql.server import MysqlServer

__all__ = ["MysqlServer"]
