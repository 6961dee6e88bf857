"""Where segment files are kept: in the data directory, or at a URI that the catalog remembers."""

from __future__ import annotations

from pathlib import Path

from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import InvalidInputError


def segment_place(catalog: Catalog, path: Path, wanted: str | None) -> str | None:
    """Returns the URI of a store's segment files, None for its own directory.

    Args:
        path: the data directory, for the message.
        wanted: remembered while the store has no tables; None takes what is remembered.

    Raises:
        InvalidInputError: the segments of this store are elsewhere.
    """
    with catalog.read() as tx:
        known: str | None = tx.get("meta", b"segments")
    if wanted in (None, known):
        return known
    with catalog.write() as tx:
        known = tx.get("meta", b"segments")
        if known is None and not list(tx.items("tables")):
            tx.put("meta", b"segments", wanted)
            return wanted
    if known == wanted:
        return known
    raise InvalidInputError(
        f"{path}: its segments are in {known or 'its own directory'}, not in {wanted}; "
        "the place is chosen when the store is made",
        kind="bad_uri",
    )
