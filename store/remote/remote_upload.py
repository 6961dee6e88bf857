"""A file of a client that is on its way to the server, in parts.

A part whose reply is lost is asked for, or sent again, as every call is: a connection that breaks costs one
part, not the file. The server removes the file when its client has released it, or has ended.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import pyarrow as pa

from seqstore.store.remote.handles import Handle

PART_BYTES: Final = 4 << 20


class RemoteUpload(Handle):
    """A file at the server.

    Args:
        store: a store elsewhere.
        database: on which the user may load.
        path: the name of the file here; the server reads fields and suffixes of it.

    Attributes:
        address: its number, by which calls name it.
    """

    kind = "Upload"

    def __init__(self, store: Any, database: str, path: str) -> None:
        self.bind(store.connection, store.made_by("upload", {"database": database, "path": path}))

    def send(self, body: BinaryIO) -> None:
        """Sends a body to its end.

        Raises:
            StoreError: the server has no place for it, or cannot be reached.
        """
        while data := body.read(PART_BYTES):
            rows = pa.table({"part": pa.array([data], pa.large_binary())})
            self.connection.run(self.request("write", rows=rows))

    def release(self) -> None:
        """Has the server remove the file with the next message."""
        if self.link is not None:
            self.link.release(self.address)
