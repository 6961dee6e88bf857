"""Errors between client and server: the classes, messages, kinds and fields of `store.errors`.

An error of another class keeps its class when it is one of a few of Python and Arrow; else it is internal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from seqstore.store import errors
from seqstore.store.errors import InvalidInputError, StoreError, UnavailableError
from seqstore.store.remote.wire import packed, unpacked

_CLASSES: Final[dict[str, type[StoreError]]] = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, StoreError)
}
_OTHERS: Final[dict[str, type[Exception]]] = {
    each.__name__: each
    for each in (
        KeyError,
        NotImplementedError,
        OverflowError,
        TypeError,
        ValueError,
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
    )
}


def failure(error: BaseException, fields_max: int = 1 << 20) -> dict[str, Any]:
    """Returns an error as a message.

    Args:
        fields_max: bytes; the largest fields are left out of a message that would have more.
    """
    name = type(error).__name__
    if isinstance(error, StoreError):
        fields = {key: data for key, value in error.fields.items() if (data := _packed(value)) is not None}
        while sum(map(len, fields.values())) > fields_max:
            del fields[max(fields, key=lambda key: len(fields[key]))]
        return {"class": name, "message": error.message, "kind": error.kind, "fields": fields}
    return {"class": name if type(error) is _OTHERS.get(name) else "", "message": str(error)}


def _packed(value: Any) -> bytes | None:
    """Packs a field; values that do not travel are sent as their text, and so are those within a sequence."""
    try:
        return packed(value)
    except InvalidInputError:
        if isinstance(value, (list, tuple)):
            return packed(type(value)(str(each) for each in value))
        return packed(str(value))


def error_of(message: Mapping[str, Any]) -> Exception:
    """Restores the error of a message."""
    name, text = str(message.get("class", "")), str(message.get("message", ""))
    if name in _OTHERS:
        return _OTHERS[name](text)
    found = _CLASSES.get(name)
    if found is None:
        return UnavailableError(f"the server met an internal error: {text}", kind="internal")
    fields = {key: unpacked(data) for key, data in message.get("fields", {}).items()}
    return found(text, kind=str(message.get("kind", "")), **fields)
