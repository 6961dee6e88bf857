"""The first line of a CSV body that does not fit: the likely cause, for the message.

1. The bytes are those of a compressed file, or of another format.
2. The fields are names of the load's columns: the line is a header row.
3. Another separator cuts the line into the expected number of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from seqstore.loaders.headers import CsvOptions

HEADER_ROW: Final = "the line looks like a header row; set format to csv_with_names"
_BEGINNINGS: Final = {
    b"\x1f\x8b": "the body looks compressed; set compress_type to gz",
    b"\x28\xb5\x2f\xfd": "the body looks compressed; set compress_type to zstd",
    b"\x04\x22\x4d\x18": "the body looks compressed; set compress_type to lz4",
    b"BZh": "the body looks compressed; set compress_type to bz2",
    b"PAR1": "the body looks like a Parquet file; set format to parquet",
    b"ORC": "the body looks like an ORC file; set format to orc",
    b"ARROW1": "the body looks like an Arrow file; set format to arrow",
    b"{": "the body looks like JSON; set format to json",
    b"[": "the body looks like JSON; set format to json",
}
_SEPARATORS: Final = (b"\t", b",", b";", b"|", b"\x01", b" ")
_CALLED: Final = {b"\t": "a tab", b" ": "a blank"}


def likely_cause(line: bytes, names: Sequence[str], options: CsvOptions) -> str:
    """Returns the likely cause why a first line does not fit, empty where none is seen.

    Args:
        line: as it stands in the body, without its end.
        names: of the expected fields.
    """
    for beginning, cause in _BEGINNINGS.items():
        if line.startswith(beginning):
            return cause
    separator = _separator(line, len(names), options)
    if separator is None:
        return ""
    causes = []
    fields = [field.strip(b" \"'`").lower() for field in line.rstrip(b"\r").split(separator)]
    expected = {name.lower().encode() for name in names}
    if expected.issuperset(fields):
        causes.append(HEADER_ROW)
    if separator != options.separator:
        known = "a tab by default" if options.separator == b"\t" else _called(options.separator)
        count = f"{len(fields)} field{'s' * (len(fields) > 1)}"
        causes.append(f"column_separator is {known}, and {_called(separator)} cuts the line into {count}")
    return ", ".join(causes)


def is_header_row(rows: pa.Table) -> bool:
    """Returns whether every value of the first row is the name of its column, which only text is."""
    if not len(rows) or not all(pa.types.is_string(kind) for kind in rows.schema.types):
        return False
    return all(
        (value.as_py() or "").strip(" \"'`").lower() == name.lower()
        for name, value in zip(rows.schema.names, (column[0] for column in rows.columns), strict=True)
    )


def _separator(line: bytes, count: int, options: CsvOptions) -> bytes | None:
    """Returns the separator that cuts a line into the expected number of fields; the given one is first."""
    candidates = (options.separator, *_SEPARATORS)
    return next((each for each in candidates if line.count(each) + 1 == count), None)


def _called(separator: bytes) -> str:
    return _CALLED.get(separator, repr(separator.decode("utf-8", "backslashreplace")))
