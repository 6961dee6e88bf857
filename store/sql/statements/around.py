"""What stands around a statement: WHERE behind SHOW, and the hint SET_VAR behind INSERT, UPDATE or DELETE."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from seqstore.store.sql.evaluate.result_filter import filter_result
from seqstore.store.sql.parse.query_parser import hinted_variables
from seqstore.store.sql.parse.sqlglot_adapter import TokenType, exp
from seqstore.store.sql.parse.statement_values import HintedChange
from seqstore.store.sql.parse.tokens import TokenStream, parse_tree
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind, parse_plain_statement

# SHOW statements whose WHERE is a part of their own grammar.
_OWN_WHERE: Final = frozenset(["LOAD", "PARTITIONS", "TRANSACTION", "ROUTINE", "STREAM", "ALTER", "SNAPSHOT"])


@dataclass(frozen=True)
class FilteredShow:
    """SHOW .. WHERE condition; `statement` is the one without it."""

    statement: Any
    condition: exp.Expr


def _parse_show(stream: TokenStream) -> FilteredShow | None:
    if stream.word(1) in _OWN_WHERE:
        return None
    place = next((i for i in range(len(stream.tokens)) if stream.word(i) == "WHERE"), None)
    if place is None:
        return None
    before = replace(stream, tokens=stream.tokens[:place], end=stream.tokens[place].start)
    statement = parse_plain_statement(before)
    start = stream.tokens[place].end + 1
    condition, end = stream.text[start : stream.tokens[-1].end + 1], len(stream.tokens)
    condition = re.sub(r"(?i)(?<![`'\"\w])charset(?![`'\"\w])", "`Charset`", condition)  # a word of sqlglot's
    stream.at = end
    return FilteredShow(statement, parse_tree(condition, 0, len(condition)))


def _run_show(filtered: FilteredShow, session: Session) -> Result:
    result = session.run(filtered.statement)
    if result.rows is None:
        return result
    with session.query_context() as context:
        return replace(result, rows=filter_result(result.rows, filtered.condition, context))


def _parse_hinted(stream: TokenStream) -> HintedChange | None:
    if len(stream.tokens) < 2 or stream.tokens[1].token_type is not TokenType.HINT:
        return None
    hint = stream.tokens[1]
    text = stream.text[hint.start : hint.end + 1]
    blank = " " * len(text)
    cleared = f"{stream.text[: hint.start]}{blank}{stream.text[hint.end + 1 :]}"
    inner = replace(stream, text=cleared, tokens=[stream.tokens[0], *stream.tokens[2:]])
    return HintedChange(parse_plain_statement(inner), hinted_variables(text))


def _run_hinted(hinted: HintedChange, session: Session) -> Result:
    return session.run(hinted.statement)  # the session has set the variables


def _refuse(stream: TokenStream) -> Any:
    """Stands for the parser of kinds that are read by `WRAPPERS`, never by their words."""
    stream.fail("a statement")


WRAPPERS: Final[dict[str, Callable[[TokenStream], Any]]] = {
    "SHOW": _parse_show,
    **dict.fromkeys(("INSERT", "UPDATE", "DELETE", "REPLACE"), _parse_hinted),
}
KINDS: Final = (
    StatementKind(("SHOW WHERE",), FilteredShow, _refuse, _run_show, is_around=True),
    StatementKind(("INSERT SET_VAR",), HintedChange, _refuse, _run_hinted, is_around=True),
)
