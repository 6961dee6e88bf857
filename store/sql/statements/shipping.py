"""SHOW SHIPPING: how far the catalog was shipped to its other place, or how old a follower's copy is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seqstore.store.failover.shipping import loss_window_seconds
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind

_HEADINGS: Final = (
    "Target",
    "State",
    "Epoch",
    "Position",
    "Commit",
    "WaitingCommits",
    "LossWindowSeconds",
    "Error",
)


@dataclass(frozen=True)
class ShowShipping:
    """SHOW SHIPPING."""


def _parse(stream: TokenStream) -> ShowShipping:
    return ShowShipping()


def _show(statement: ShowShipping, session: Session) -> Result:
    follower = session.store.follower
    if follower is not None:
        applied = follower.applied
        done = (applied.epoch, applied.position, applied.commit)
        state = "FAILING" if follower.error else "FOLLOWING"
        row = (follower.shown, state, *map(str, done), "", f"{follower.age_seconds:.3f}", follower.error)
        return text_rows(_HEADINGS, [row])
    status = session.store.shipping.status()
    if status is None:
        return text_rows(_HEADINGS, [])
    shipped = status.state
    state = "FENCED" if shipped.fenced else "FAILING" if status.error else "SHIPPING"
    numbers = (shipped.epoch, shipped.position, shipped.commit, status.waiting)
    window = f"{loss_window_seconds(status):.3f}"
    return text_rows(_HEADINGS, [(status.place, state, *map(str, numbers), window, status.error)])


KINDS: Final = (StatementKind(("SHOW SHIPPING",), ShowShipping, _parse, _show),)
