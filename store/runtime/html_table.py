"""Tables of HTML for notebooks, which call `_repr_html_`; every value is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

_ROWS_MAX: Final = 100


def html_table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table with the first rows; numbers are to the right."""
    iterator = iter(rows)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in islice(iterator, _ROWS_MAX))
    more = sum(1 for _ in iterator)
    head = "".join(f"<th>{escape(name)}</th>" for name in headings)
    foot = f"<p>and {more:,} more</p>" if more else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{foot}"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "<td><i>NULL</i></td>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
