"""The properties of a job FROM DELTA: the directory of the table, and where the job begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seqstore.loaders.lake.delta_log import DeltaState, last_commits, read_log
from seqstore.loaders.lake.places import Places
from seqstore.store.catalog.app_ids import find_app
from seqstore.store.catalog.environment import Catalog
from seqstore.store.errors import InvalidInputError

PATH: Final = "path"
TABLE_ID: Final = "delta_table_id"
STARTING_VERSION: Final = "starting_version"
_APP: Final = "delta"  # as `loaders/lake/new_table.py` names the version that an import read


def complete_properties(
    properties: Mapping[str, str], places: Places, catalog: Catalog, table_id: int
) -> dict[str, str]:
    """Returns the properties of a new job with all that they leave out.

    Without a starting version a job goes on behind the version that CREATE TABLE .. FROM DELTA read into the
    table, and begins with all rows where there is none.

    Raises:
        StoreError: a property is unknown or wrong, or there is no such Delta table or version.
    """
    for name in properties:
        if name not in (PATH, TABLE_ID, STARTING_VERSION):
            raise InvalidInputError(
                f'{name} is invalid property of FROM DELTA, which has "{PATH}" and "{STARTING_VERSION}"',
                kind="bad_property",
            )
    if not properties.get(PATH):
        raise InvalidInputError(
            f'FROM DELTA needs "{PATH}" = "the directory of a Delta table"', kind="bad_property"
        )
    root = places.directory(properties[PATH])
    state = read_log(root, places)
    identity = str(state.metadata.get("id", ""))
    if properties.get(TABLE_ID, identity) != identity:
        raise InvalidInputError(
            f"{TABLE_ID}: expected {identity}, the id of the table in {root}, found {properties[TABLE_ID]}",
            kind="bad_property",
        )
    complete = {PATH: root, TABLE_ID: identity}
    start = properties.get(STARTING_VERSION)
    if start is None:
        app = find_app(catalog, table_id, f"{_APP}:{identity}", 0)
        start = str(app.stored + 1) if app is not None and app.stored >= 0 else None
    if start is None:
        return complete
    return {**complete, STARTING_VERSION: _checked_start(start, root, state, places)}


def _checked_start(text: str, root: str, state: DeltaState, places: Places) -> str:
    commits = last_commits(root, places)
    if not text.isascii() or not text.isdigit() or not commits.start <= int(text) <= commits.stop:
        raise InvalidInputError(
            f"{STARTING_VERSION}: the log of {root} has the commits {commits.start} to {state.version}, "
            f"found {text[:30]}; leave it out of a job for another table, which begins with all rows",
            kind="bad_property",
        )
    return str(int(text))
