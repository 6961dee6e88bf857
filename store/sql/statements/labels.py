"""CLEAN LABEL: the labels of ended loads can be used again at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind


@dataclass(frozen=True)
class CleanLabel:
    """CLEAN LABEL [label] FROM db; without a label all of them."""

    label: str | None
    name: str


def _parse(stream: TokenStream) -> CleanLabel:
    label = None if stream.word() in ("FROM", "IN") else stream.word_or_string("a label or FROM")
    if not stream.take_one_of("FROM", "IN"):
        stream.fail("FROM and a database")
    return CleanLabel(label, stream.name("a database name"))


def _run(statement: CleanLabel, session: Session) -> None:
    session.store.clean_labels(statement.name, statement.label)


KINDS: Final = (StatementKind(("CLEAN LABEL",), CleanLabel, _parse, _run),)
