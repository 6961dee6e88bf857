"""The records of one table in a damaged catalog: which versions are whole, and which segments are known.

A version is whole when its record, its schema revision, its segments with their bytes, and the delete bitmap
records that it needs are there, as it states them (catalog.version_chain).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from seqstore.store.catalog import catalog
from seqstore.store.catalog.catalog import DATABASES, unpack
from seqstore.store.catalog.kept_versions import whole_of
from seqstore.store.catalog.version_record import EMPTY, VersionState, state_of
from seqstore.store.errors import FormatError
from seqstore.store.repair.inline_segments import described_payload
from seqstore.store.repair.salvage import Salvage
from seqstore.store.schema.table_schema import TableSchema
from seqstore.store.segment.delete_bitmap import chain
from seqstore.store.segment.segment import INLINE, SegmentMeta

# Databases whose keys begin with the id of a table.
OF_ONE_TABLE: Final = (
    *("tables", "heads", "schemas", "versions", "segments", "inline", "bitmaps", "counters", "readers"),
    *("apps", "horizons", "trash"),
)
_CHECKSUM: Final = 8


@dataclass
class TableRecords:
    """The records of a table.

    Attributes:
        packed: by database and key.
        backed_up_at: Unix time in seconds of the backup that has the records, 0 for those of a catalog. They
            do not name the segments that were dropped before.
    """

    id: int
    salvage: Salvage
    packed: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    backed_up_at: float = 0.0

    @property
    def prefix(self) -> bytes:
        return catalog.table_key(self.id)

    def _by_number(self, database: str) -> dict[int, Any]:
        return {int.from_bytes(key[8:]): value for key, value in self.values(database)}

    def values(self, database: str) -> Iterator[tuple[bytes, Any]]:
        """Yields keys and values of a database, ascending."""
        for key, data in sorted(self.packed.get(database, {}).items()):
            yield key, unpack(database, key, data)

    @cached_property
    def info(self) -> dict[str, Any] | None:
        return next((value for _, value in self.values("tables")), None)

    @cached_property
    def horizon(self) -> dict[str, Any]:
        return next((value for _, value in self.values("horizons")), {})

    @cached_property
    def versions(self) -> dict[int, Any]:
        return self._by_number("versions")

    @cached_property
    def schemas(self) -> dict[int, TableSchema]:
        """The schema revisions that this program can read."""
        found = {}
        for number, record in self._by_number("schemas").items():
            try:
                found[number] = TableSchema.from_record(record)
            except (FormatError, KeyError):
                continue
        return found

    @cached_property
    def segments(self) -> dict[str, dict[str, Any]]:
        """Records of segments. A version knows which segments it dropped, should an older record be found.

        A lost record of an inline segment is made again from its rows and the version that added it.
        """
        found = {key[8:].decode(): dict(value) for key, value in self.values("segments")}
        for version, record in self.versions.items():
            for name in record["added"]:
                if name not in found and name in self.payloads:
                    meta = described_payload(name, self.payloads[name], record, self.schemas)
                    if meta is not None:
                        found[name] = {"meta": meta.to_record(), "created": version, "dropped": 0}
        for version, record in self.versions.items():
            for name in record["dropped"]:
                if name in found:
                    found[name]["dropped"] = found[name]["dropped"] or version
        return found

    @property
    def remade(self) -> list[str]:
        """The ids of the segments whose record was made again."""
        packed = self.packed.get("segments", {})
        return [name for name in self.segments if catalog.segment_key(self.id, name) not in packed]

    @property
    def may_lack_newest(self) -> bool:
        """Whether versions after the newest known one may be lost."""
        after = catalog.version_key(self.id, self.head + 1)
        return not self.packed.get("heads") and self.salvage.may_lack("versions", after)

    @cached_property
    def payloads(self) -> dict[str, bytes]:
        return {key[8:].decode(): value for key, value in self.values("inline")}

    @property
    def oldest(self) -> int:
        """The first version that was readable."""
        return int(self.horizon.get("oldest", 1))

    @cached_property
    def head(self) -> int:
        """The newest version that any record names, 0 for none."""
        heads = [int(value[0]) for _, value in self.values("heads")]
        changed = [max(record["created"], record["dropped"]) for record in self.segments.values()]
        newest: int = max(0, *heads, *self.versions, *changed, 0)
        return newest

    def live(self, version: int) -> list[str]:
        """Returns the ids of the segments that records show as live at a version."""
        return [name for name, record in self.segments.items() if _is_live(record, version)]

    @cached_property
    def added_by(self) -> dict[str, int]:
        """The version that added a segment, for those that a known version names."""
        return {name: version for version, record in self.versions.items() for name in record["added"]}

    @cached_property
    def proved_live(self) -> frozenset[str] | None:
        """The ids of the segments of the newest version, None where its record does not prove them."""
        stated = self.versions.get(self.head, {}).get("state")
        if stated is None:
            return None
        names = set(self.added_by)
        names -= {name for record in self.versions.values() for name in record["dropped"]}
        names -= {name for name, record in self.segments.items() if record["dropped"]}
        names |= set(self.live(self.head))
        wanted, found = VersionState.from_record(stated), state_of(names)
        is_proved = (wanted.segments, wanted.total) == (found.segments, found.total)
        return frozenset(names) if is_proved else None

    @cached_property
    def _states(self) -> dict[int, VersionState]:
        """The segments that records show as live after each version that changed them."""
        changes: dict[int, tuple[list[str], list[str]]] = {}
        for name, record in self.segments.items():
            changes.setdefault(record["created"], ([], []))[0].append(name)
            if record["dropped"]:
                changes.setdefault(record["dropped"], ([], []))[1].append(name)
        state, states = EMPTY, {0: EMPTY}
        for version in sorted(changes):
            state = states[version] = state.followed_by(*changes[version])
        return states

    @cached_property
    def _changed(self) -> list[int]:
        return sorted(self._states)

    @cached_property
    def _unreadable(self) -> list[dict[str, Any]]:
        """Records of segments whose schema or bytes are lost."""
        return [
            record
            for record in self.segments.values()
            if not self._is_readable(SegmentMeta.from_record(record["meta"]))
        ]

    def has_all_segments(self, version: int) -> bool:
        """Returns whether the records of the segments of a version are complete."""
        stated = self.versions.get(version, {}).get("state")
        if stated is None:
            return not self.salvage.may_lack_below("segments", self.prefix)
        state = VersionState.from_record(stated)
        found = self._states[self._changed[bisect_right(self._changed, version) - 1]]
        return (state.segments, state.total) == (found.segments, found.total)

    def is_whole(self, version: int) -> bool:
        record = self.versions.get(version)
        if record is None or record["revision"] not in self.schemas or not self.has_all_segments(version):
            return False
        is_readable = not any(_is_live(segment, version) for segment in self._unreadable)
        return is_readable and all(self._has_bitmap(number) for number in chain(version))

    def _is_readable(self, meta: SegmentMeta) -> bool:
        return meta.revision in self.schemas and (meta.home != INLINE or meta.id in self.payloads)

    def _has_bitmap(self, version: int) -> bool:
        """Looks for the delete bitmap record that a version states; takes the right one of several."""
        key = catalog.version_key(self.id, version)
        known, bitmaps = (
            self.packed.get("bitmaps", {}).get(key),
            dict(map(tuple, self.horizon.get("bitmaps", ()))),
        )
        record = self.versions.get(version, {})
        if version <= self.oldest and "bitmaps" in self.horizon:
            stated = bitmaps.get(version)
        elif "state" in record:
            stated = record["state"].get("bitmap")
        else:
            return known is not None or not self.salvage.may_lack("bitmaps", key)
        if stated is None:
            self.packed.get("bitmaps", {}).pop(key, None)
            return True
        for each in (known, *self.salvage.others.get(key, ())):
            if each is not None and each[:_CHECKSUM] == stated:
                self.packed.setdefault("bitmaps", {})[key] = each
                return True
        return False

    def first_whole(self) -> int:
        """Returns the first of the versions up to the newest one that are whole, 0 if the newest is not."""
        first = 0
        for version in range(self.head, max(self.oldest, 1) - 1, -1):
            if not self.is_whole(version):
                break
            first = version
        return first

    @property
    def has_all_whole(self) -> bool:
        """Whether all versions are whole that should be: those that were not thinned out."""
        whole = whole_of(self.horizon)
        return 0 < self.first_whole() <= whole.every and all(map(self.is_whole, whole.some))

    def history(self, first: int) -> list[int]:
        """Returns the versions up to the newest one whose records follow each other."""
        kept = list(range(first, self.head + 1))
        packed = self.packed.get("versions", {})
        while (before := kept[0] - 1) in self.versions:
            stated = self.versions[kept[0]].get("state", {}).get("before")
            if stated not in (None, packed[catalog.version_key(self.id, before)][:_CHECKSUM]):
                break
            kept.insert(0, before)
        return kept

    def hidden(self) -> list[dict[str, bytes]]:
        """Returns all delete bitmap records; a row that one of them hides is hidden in all later versions."""
        found = [value for _, value in self.values("bitmaps")]
        for key, others in self.salvage.others.items():
            if key.startswith(self.prefix):
                found += [unpack("bitmaps", key, each) for each in others]
        return found

    @property
    def may_lack_bitmaps(self) -> bool:
        return self.salvage.may_lack_below("bitmaps", self.prefix)

    def newest_schema(self) -> TableSchema | None:
        """Returns the revision that the newest known version has."""
        known = [value[1] for _, value in self.values("heads")]
        known += [record["revision"] for _, record in sorted(self.versions.items())][-1:]
        for revision in (*known, max(self.schemas, default=0)):
            if revision in self.schemas:
                return self.schemas[revision]
        return None


def _is_live(segment: dict[str, Any], version: int) -> bool:
    return bool(segment["created"] <= version and not 0 < segment["dropped"] <= version)


def records_of_tables(salvage: Salvage) -> dict[int, TableRecords]:
    """Returns the records of all tables that a catalog knows by a record of their own."""
    found: dict[int, TableRecords] = {}
    for database in OF_ONE_TABLE:
        for key, data in salvage.records[database].items():
            table_id = int.from_bytes(key[:8])
            if len(key) >= 8 and table_id:
                table = found.setdefault(table_id, TableRecords(table_id, salvage))
                table.packed.setdefault(database, {})[key] = data
    return found


def add_copy(damaged: Salvage, copy: Salvage, databases: Sequence[str] = DATABASES) -> set[tuple[str, bytes]]:
    """Adds the records of a copy that a damaged catalog may have lost; returns their databases and keys.

    Args:
        databases: whose records are added.
    """
    return {
        (database, key)
        for database, records in copy.records.items()
        if database in databases
        for key, data in records.items()
        if damaged.may_lack(database, key) and damaged.keep(database, key, data)
    }
