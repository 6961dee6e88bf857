"""Values in messages: whatever users send has to be told back to them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def format_value(value: pa.Scalar) -> Any:
    """A value as Python has it; a text where Python has none, as for what is no UTF-8, times beyond the year
    9999 and time zones nobody knows.

    What pyarrow raises for those is of many types, and none must hide what the message is about.
    """
    try:
        return value.as_py()
    except Exception:
        if isinstance(value, pa.StringScalar):
            return value.as_buffer().to_pybytes().decode(errors="backslashreplace")
        return " ".join(pa.repeat(value, 1).to_string().split()).removeprefix("[ ").removesuffix(" ]")


def has_python_form(value: pa.Scalar) -> bool:
    """Whether Python has such a value."""
    try:
        value.as_py()
    except Exception:
        return False
    return True
