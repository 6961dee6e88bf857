"""Values in messages: whatever users send has to be told back to them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def shown_value(value: pa.Scalar) -> Any:
    """A value as Python has it; a text as Arrow shows it where Python has none.

    Texts that are no UTF-8, times beyond the year 9999, time zones nobody knows: what pyarrow raises for them
    is of many types, and none of them must hide what the message is about.
    """
    try:
        return value.as_py()
    except Exception:
        return " ".join(pa.repeat(value, 1).to_string().split()).removeprefix("[ ").removesuffix(" ]")


def has_python_form(value: pa.Scalar) -> bool:
    """Whether Python has such a value."""
    try:
        value.as_py()
    except Exception:
        return False
    return True
