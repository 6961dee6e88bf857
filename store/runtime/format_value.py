"""Values of users in messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def format_value(value: pa.Scalar) -> Any:
    """Returns a value as Python has it, or a text where Python has none.

    Python has no value for bytes that are not UTF-8, for times beyond the year 9999 and for unknown time
    zones. pyarrow raises errors of many types for them; none may hide the message itself.
    """
    try:
        return value.as_py()
    except Exception:
        if isinstance(value, pa.StringScalar):
            return value.as_buffer().to_pybytes().decode(errors="backslashreplace")
        return " ".join(pa.repeat(value, 1).to_string().split()).removeprefix("[ ").removesuffix(" ]")


def has_python_form(value: pa.Scalar) -> bool:
    """Returns whether Python has such a value."""
    try:
        value.as_py()
    except Exception:
        return False
    return True
