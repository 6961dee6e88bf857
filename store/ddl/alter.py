"""Changes of a table's schema and properties: a new revision, which touches no file if the change is light
(SC1).

Changes of columns are in ddl.column_changes. Ids identify columns, so files written under earlier revisions
are read through the newest: a column younger than a file has its default, a dropped one is not read, a
renamed one is found, a widened one is cast. Ids are never reused. A change that is not light becomes a job
(ddl.schema_changes), and until its end the table admits no other change.

Every change makes a version without rows. A transaction that began before and commits after it fails: with
`MetadataChangedException`, or `ProtocolChangedException` when table features were added or removed.

A function decorated with `schema_change` is called without its schema; the `Change` that it returns takes it,
so that every change of a statement applies to the revision that the one before has made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

import pyarrow.compute as pc

from seqstore.store.catalog import catalog as records
from seqstore.store.catalog.version_record import CommitInfo
from seqstore.store.conflict.conflict_errors import schema_error
from seqstore.store.conflict.isolation import Isolation
from seqstore.store.conflict.read_set import Predicate
from seqstore.store.errors import AlreadyExistsError, InvalidInputError, bad_property
from seqstore.store.maintenance.schema_change_job import refuse_during_change
from seqstore.store.open_table.open_table import require_openable
from seqstore.store.publish import evolution
from seqstore.store.publish.publish import TableWrite
from seqstore.store.read.snapshot import Snapshot
from seqstore.store.schema import properties as props
from seqstore.store.schema.column_groups import group_properties
from seqstore.store.schema.constraints import Constraint
from seqstore.store.schema.declaration import check_sequence, refuse_unique_properties
from seqstore.store.schema.features import DUPLICATE_KEY, KNOWN_FEATURES, require_writable
from seqstore.store.schema.table_schema import TableSchema

if TYPE_CHECKING:
    from seqstore.store.read.versioned_table import VersionedTable

ALTER_TABLE: Final = "ALTER TABLE"
FEATURE_PREFIX: Final = "delta.feature."
SEQUENCE_LOAD: Final = "SEQUENCE_LOAD"
PROPERTY_OF: Final = {"appendOnly": props.APPEND_ONLY, "deletionVectors": props.ROW_LEVEL}
_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True)
class Altered:
    """A new revision, and its description for later conflicts.

    Attributes:
        changes: the changes, in words.
        features: table features that were added (`+name`) or removed (`-name`).
        rewrites: rows must be written anew, because they cannot be read through the new revision.
    """

    schema: TableSchema
    changes: tuple[str, ...]
    features: tuple[str, ...] = ()
    rewrites: bool = False

    def then(self, change: Change) -> Altered:
        """Applies one more change."""
        more = change(self.schema)
        return Altered(
            more.schema,
            (*self.changes, *more.changes),
            (*self.features, *more.features),
            self.rewrites or more.rewrites,
        )


Change = Callable[[TableSchema], Altered]
Submit = Callable[[records.CatalogTransaction, TableSchema, Altered], None]
Note = Callable[[records.CatalogTransaction, TableSchema, Altered, int], None]


def schema_change(
    step: Callable[Concatenate[TableSchema, _Arguments], Altered],
) -> Callable[_Arguments, Change]:
    """Makes a function of a schema and arguments one of the arguments that returns a `Change`."""

    @wraps(step)
    def bound(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Change:
        return lambda schema: step(schema, *args, **kwargs)

    return bound


def alter(
    table: VersionedTable,
    changes: Sequence[Change],
    *,
    expected_revision: int | None = None,
    check: Callable[[records.CatalogTransaction], None] | None = None,
    operation: str = ALTER_TABLE,
    submit: Submit | None = None,
    note: Note | None = None,
) -> int:
    """Applies changes one after another, all or none; returns the version that they made.

    Args:
        expected_revision: the revision that the changes were made for; None means the newest.
        check: inspects the table within the transaction; its error undoes everything.
        operation: its name in the history.
        submit: stores a job for changes that need rows to be written anew; the version stays.
        note: called within the transaction with changes that are made at once.

    Raises:
        InvalidInputError: a change that is not possible, or another one is under way.
        ConflictError: the table has another revision by now.
    """
    with table.catalog.write() as tx:
        if check is not None:
            check(tx)
        version, revision = records.head(tx, table.id, table.name)
        if expected_revision not in (None, revision):
            raise schema_error(
                tx, table.id, name=table.name, operation=operation, revision=expected_revision or 0
            )
        schema = table.loader.schema(tx, revision)
        require_writable(schema.features)
        altered = reduce(Altered.then, changes, Altered(schema, ()))
        require_openable(altered.schema, table.loader.disk)
        if altered.rewrites and submit is not None:
            refuse_during_change(tx, table.id, table.name)
            submit(tx, schema, altered)
            return version
        commit_info = CommitInfo(
            is_blind=True, changes=list(altered.changes), features=list(altered.features)
        )
        write = TableWrite(table.id, table.name, revision + 1, version, commit_info=commit_info)
        made = put_revision(tx, table, altered.schema, write, operation)
        if note is not None:
            note(tx, schema, altered, made)
    table.published(altered.schema if altered.schema.open_formats else schema)
    return made


def put_revision(
    tx: records.CatalogTransaction,
    table: VersionedTable,
    schema: TableSchema,
    write: TableWrite,
    operation: str,
) -> int:
    """Stores a schema as the revision that a write names, and the version; returns the version.

    Raises:
        InvalidInputError: a job changes the schema.
    """
    refuse_during_change(tx, table.id, table.name)
    return evolution.put_revision(tx, table, schema, write, operation)


def add_constraint(
    table: VersionedTable,
    name: str,
    sql: str,
    expression: pc.Expression,
    *,
    validated: Callable[[], None] | None = None,
) -> int:
    """Adds a CHECK constraint that every row satisfies; returns the version that it made.

    Args:
        sql: the condition as written, for display.
        validated: called between reading the rows and publishing.

    Raises:
        InvalidInputError: a row breaks it, or the name is taken.
        ConcurrentAppendException: another transaction added a row that breaks it meanwhile.
    """
    state, lease = table.hold()
    constraint = Constraint.of(name, sql, expression)
    isolation = Isolation(table, state, state.schema.isolation_level, changes_metadata=True)
    isolation.reads.read_where(Predicate(~expression), constraint.columns(state.schema.names))
    with Snapshot(state, lease).scan(filter=~expression) as reader:
        broken = reader.read_all()
    if len(broken):
        key = ", ".join(f"{part}={broken.column(part)[0].as_py()}" for part in state.schema.key)
        raise InvalidInputError(
            f"{len(broken)} rows of {table.name!r} break the CHECK constraint {name} ({sql}), first ({key})",
            kind="check_constraint",
        )
    if validated is not None:
        validated()

    def check(tx: records.CatalogTransaction) -> None:
        isolation.check(tx, records.head(tx, table.id, table.name)[0], (), ALTER_TABLE)

    changes = [_add_constraint(constraint)]
    return alter(table, changes, expected_revision=state.schema.revision, check=check)


@schema_change
def _add_constraint(schema: TableSchema, constraint: Constraint) -> Altered:
    if any(known.name.lower() == constraint.name.lower() for known in schema.constraints):
        raise AlreadyExistsError(f"constraint {constraint.name!r} exists")
    changed = replace(schema, constraints=(*schema.constraints, constraint))
    return Altered(changed, (f"constraint {constraint.name}",))


@schema_change
def drop_constraint(schema: TableSchema, name: str) -> Altered:
    """Removes a CHECK constraint."""
    kept = tuple(known for known in schema.constraints if known.name.lower() != name.lower())
    if len(kept) == len(schema.constraints):
        raise InvalidInputError(f"the table has no constraint {name!r}", kind="unknown_constraint")
    return Altered(replace(schema, constraints=kept), (f"constraint {name} (dropped)",))


@schema_change
def set_comment(schema: TableSchema, comment: str) -> Altered:
    """Changes the comment of the table."""
    return Altered(replace(schema, comment=comment), ("the comment",))


@schema_change
def set_properties(schema: TableSchema, given: Mapping[str, str]) -> Altered:
    """Sets properties.

    `delta.feature.<name>` = `supported` lists a table feature, and so does the property that switches a
    feature on.
    """
    features = [name.removeprefix(FEATURE_PREFIX) for name in given if name.startswith(FEATURE_PREFIX)]
    for name in features:
        if given[FEATURE_PREFIX + name] != "supported":
            raise bad_property(f"property {FEATURE_PREFIX + name!r}: expected supported")
    features += [
        feature
        for feature, name in PROPERTY_OF.items()
        if given.get(name, "").lower() == "true" and feature not in (*schema.features, *features)
    ]
    plain = {name: value for name, value in given.items() if not name.startswith(FEATURE_PREFIX)}
    if schema.is_duplicate:
        refuse_unique_properties(plain)
    _refuse_fixed(
        [name for name in plain if name.startswith(("function_column.", "sequence_mapping."))]
        or [
            name for name in plain if name in (props.STORAGE_FORMAT, props.MERGE_ON_WRITE, props.WITHOUT_KEYS)
        ]
    )
    parsed = props.parse_properties(plain)
    changed = replace(schema, properties={**schema.properties, **parsed})
    _ = changed.partition_columns  # the columns it names exist
    altered = Altered(changed, tuple(f"property {name}" for name in parsed))
    return reduce(Altered.then, map(add_feature, features), altered)


@schema_change
def unset_properties(schema: TableSchema, names: Sequence[str]) -> Altered:
    """Resets properties to their defaults."""
    missing = [name for name in names if name not in schema.properties]
    if missing:
        raise bad_property(f"property {missing[0]!r} is not set")
    fixed = {*group_properties(schema.groups), props.MERGE_ON_WRITE}
    _refuse_fixed([name for name in names if name in fixed])
    kept = {name: value for name, value in schema.properties.items() if name not in names}
    return Altered(replace(schema, properties=kept), tuple(f"property {name}" for name in names))


def _refuse_fixed(names: Sequence[str]) -> None:
    if names:
        raise bad_property(f"property {names[0]!r} can only be set by CREATE TABLE")


@schema_change
def add_feature(schema: TableSchema, name: str) -> Altered:
    """Lists a table feature: programs that do not know it must not write the table."""
    if name not in KNOWN_FEATURES:
        raise InvalidInputError(
            f"table feature {name!r} is not known; there are {', '.join(KNOWN_FEATURES)}",
            kind="unknown_feature",
        )
    if name in schema.features:
        return Altered(schema, ())
    if name == DUPLICATE_KEY:
        raise InvalidInputError(
            f"table feature {name!r} is declared by CREATE TABLE with DUPLICATE KEY", kind="feature_needed"
        )
    return Altered(replace(schema, features=(*schema.features, name)), (), (f"+{name}",))


@schema_change
def enable_sequence_load(schema: TableSchema, properties: Mapping[str, str]) -> Altered:
    """Adds a hidden sequence to a table; existing rows have NULL, the smallest (SD8-SD10)."""
    declared = properties.get(props.SEQUENCE_TYPE)
    if schema.is_duplicate:
        refuse_unique_properties([props.SEQUENCE_TYPE])
    if declared is None or len(properties) > 1:
        raise bad_property("unknown sequence column type")
    if schema.has_sequence or schema.groups:
        raise bad_property(f"the table has a sequence already; {SEQUENCE_LOAD} is for tables without")
    _, sequence_type = check_sequence(schema.columns, schema.key, {props.SEQUENCE_TYPE: declared})
    changed = replace(
        schema,
        sequence_type=sequence_type,
        properties={**schema.properties, props.SEQUENCE_TYPE: declared},
        features=(*schema.features, "sequenceLoad"),
    )
    return Altered(changed, ("the sequence",), ("+sequenceLoad",))


@schema_change
def enable_flexible_updates(schema: TableSchema) -> Altered:
    """Enables flexible updates by loads (F3); existing rows need no change."""
    if schema.is_merge_on_read or schema.is_duplicate:
        raise bad_property(
            "Update flexible columns feature is only supported on merge-on-write unique tables."
        )
    if schema.properties.get(props.SKIP_BITMAP) == "true":
        raise bad_property("the table has enabled update flexible columns feature already.")
    changed = replace(schema, properties={**schema.properties, props.SKIP_BITMAP: "true"})
    return Altered(changed, ("the properties",))
