"""Files that clients have sent: each is in a directory of its own, for as long as its client holds it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from seqstore.store import InvalidInputError, UnavailableError

UPLOAD_BYTES_MAX: Final = 10 << 30  # as the setting upload_bytes_max is at first
_NAME_BYTES_MAX: Final = 200
_PARTS_MAX: Final = 40
_FREE_BYTES_MIN: Final = 256 << 20


class Upload:
    """One file, in the directory for temporary files of this host.

    Args:
        path: its name at the client.

    Attributes:
        directory: that has nothing else.
        path: of the file; below the directory as it was below the client's root.
    """

    def __init__(self, path: str) -> None:
        parts = [part for part in path.split("/") if part not in ("", ".")]
        bad = not parts or len(parts) > _PARTS_MAX or ".." in parts or "\0" in path
        if bad or any(len(part.encode()) > _NAME_BYTES_MAX for part in parts):
            raise InvalidInputError(f"upload: {path[:100]!r} is no path of a file", kind="bad_path")
        self.directory = Path(tempfile.mkdtemp(prefix="seqstore-upload-"))
        self.path = self.directory.joinpath(*parts)
        self._bytes = 0
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
        except OSError as error:
            self.close()
            raise _no_place(error) from error

    def write(self, data: pa.Table) -> int:
        """Appends a part, one value of bytes; returns the size of the file.

        Raises:
            InvalidInputError: it is no part, or the file grows too large.
            UnavailableError: there is no place for it.
        """
        if data.num_columns != 1 or data.schema[0].type != pa.large_binary() or data.column(0).null_count:
            raise InvalidInputError("upload: expected parts of a file", kind="bad_message")
        with self._lock:
            size = self._bytes + data.nbytes
            if size > UPLOAD_BYTES_MAX:
                raise InvalidInputError(
                    f"{self.path.name}: larger than {UPLOAD_BYTES_MAX >> 30} GiB; load it in parts",
                    kind="too_large",
                )
            if shutil.disk_usage(self.directory).free < data.nbytes + _FREE_BYTES_MIN:
                raise _no_place("the disk is full")
            try:
                with self.path.open("ab") as file:
                    for part in data.column(0):
                        file.write(part.as_buffer())
                    self._bytes = file.tell()
            except OSError as error:
                raise _no_place(error) from error
            return self._bytes

    def opened(self) -> BinaryIO:
        """Opens the file to read it."""
        return self.path.open("rb")

    def close(self) -> None:
        """Removes the file."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _no_place(why: Any) -> UnavailableError:
    return UnavailableError(
        f"the server has no place for the file in {tempfile.gettempdir()}: {why}; make room there, or name "
        "another directory by TMPDIR where it starts",
        kind="disk_full",
    )
