"""Places outside of the store that statements name: whether the user of a session may."""

from __future__ import annotations

from seqstore.store.backup.allowed_places import require_allowed
from seqstore.store.backup.target import Target
from seqstore.store.sql.session.session import Session


def require_place(session: Session, uri: str) -> None:
    """Checks that a statement may write and read files below a place.

    A session without a user is a program of the host, which needs no statement for that.

    Raises:
        AccessDeniedError: it is not below a place of the setting `output_paths`.
        InvalidInputError: it is no place, or in the data directory.
    """
    if session.user is not None:
        require_allowed(uri, session.store.settings.output_paths)
    Target(uri).refuse_within(session.store.path)
