"""Rows that travel within a ticket: those of a statement that has run already, such as a SHOW."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from seqstore.store import InvalidInputError

ROWS: Final = b"seqstore-rows:"
_BYTES_MAX: Final = 1 << 20


def ticket_of_rows(rows: pa.Table) -> bytes:
    """Returns a ticket that has some rows.

    Raises:
        InvalidInputError: they are too many.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data = sink.getvalue().to_pybytes()
    if len(data) > _BYTES_MAX:
        raise InvalidInputError(
            f"the statement has {rows.num_rows} rows of {len(data)} bytes, more than a ticket has; read "
            "them over the MySQL protocol, or from information_schema",
            kind="not_supported",
        )
    return ROWS + bytes(data)


def rows_of_ticket(ticket: bytes) -> pa.Table:
    """Returns the rows of a ticket.

    Raises:
        InvalidInputError: it has none.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(ticket[len(ROWS) :])) as reader:
            rows = reader.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"the ticket has no rows: {error}", kind="bad_command") from error
    return rows
