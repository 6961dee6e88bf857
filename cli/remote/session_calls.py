"""SQL of a client: the statements of a text, one for each call."""

from __future__ import annotations

from typing import Any

from seqstore.store import InvalidInputError
from seqstore.store.remote.remote_session import STATE
from seqstore.store.sql import Session


def session_call(session: Session, name: str, text: str, number: Any) -> Any:
    """Counts the statements of a text (`parse`), or runs one of them (`execute`).

    Args:
        number: of the statement, from 0.

    Returns:
        The count; or the result, with the state of the session behind it.

    Raises:
        StoreError: as `Session.execute` raises it.
    """
    statements = session.parse(text)
    if name == "parse":
        return len(statements)
    if not isinstance(number, int) or not 0 <= number < len(statements):
        raise InvalidInputError(
            f"a text of {len(statements)} statements has no number {number}", kind="bad_message"
        )
    result = session.run(statements[number])
    return {"result": result, **{each: getattr(session, each) for each in STATE}}
