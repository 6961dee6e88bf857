"""`seqstore replay`: dead letters of a table are loaded again, and those that succeed are removed (DL5).

Rows, whose texts a user may have mended by UPDATE, are read by the headers of their own load. What is loaded
and what is removed is one commit. A row that fails again stays.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from seqstore.loaders.begin import begin
from seqstore.loaders.csv.open_field import LEFT_OPEN, left_open
from seqstore.loaders.dead_letters.letters import SUFFIX
from seqstore.loaders.headers import StreamLoadOptions, parse_headers
from seqstore.loaders.row_buffer import RowBuffer
from seqstore.loaders.row_source import Target, moment_in, open_rows
from seqstore.loaders.source import BadRow, keeping_bad_rows
from seqstore.store.errors import InvalidInputError, NotFoundError
from seqstore.store.sql.session.session import Session
from seqstore.store.store import Store
from seqstore.store.table import Table
from seqstore.store.transaction.transaction import Transaction

OPERATION: Final = "REPLAY"
_RARE: Final = "\\x0001"  # a line end that no row has


@dataclass
class Replayed:
    """The outcome.

    Attributes:
        loaded: rows that were loaded, and removed from the dead letters.
        left: ids and reasons of those that failed again.
    """

    loaded: int = 0
    left: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Body:
    """Some letters that are read together: one a line, or a single one."""

    ids: tuple[str, ...]
    lines: tuple[str, ...]
    headers: str

    def options(self) -> StreamLoadOptions:
        """Returns how the rows are read.

        Raises:
            InvalidInputError: a user has changed the options to what no load has.
        """
        try:
            given = json.loads(self.headers)
        except (TypeError, ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise InvalidInputError(
                f"options: expected an object of texts, as the load has stored it, found "
                f"{str(self.headers)[:200]}",
                kind="bad_header",
            )
        if self._is_of_many_lines:
            given["line_delimiter"] = _RARE
        return parse_headers(given)

    @property
    def _is_of_many_lines(self) -> bool:
        return len(self.lines) == 1 and "\n" in self.lines[0]

    @property
    def data(self) -> bytes:
        """The text of the rows."""
        if self._is_of_many_lines:
            return self.lines[0].encode("utf-8", "surrogatepass")
        return "".join(f"{line}\n" for line in self.lines).encode("utf-8", "surrogatepass")

    def left_open(self) -> tuple[list[int], str]:
        """Returns the lines that leave an enclosed field open, counted from 0, and the reason of each."""
        options = self.options()
        if not options.is_csv:
            return [], ""
        texts = [line.encode("utf-8", "surrogatepass") for line in self.lines]
        reason = LEFT_OPEN.format(options.csv.enclose.decode("latin-1"))
        return left_open(pa.array(texts, pa.large_binary()), options.csv), reason

    def without(self, lines: set[int]) -> _Body:
        """Returns the body without some of its lines."""
        kept = [number for number in range(len(self.ids)) if number not in lines]
        return replace(self, ids=tuple(self.ids[n] for n in kept), lines=tuple(self.lines[n] for n in kept))

    def halves(self) -> tuple[_Body, _Body]:
        """Returns the first and the second half of the body's letters."""
        middle = len(self.ids) // 2
        return (
            replace(self, ids=self.ids[:middle], lines=self.lines[:middle]),
            replace(self, ids=self.ids[middle:], lines=self.lines[middle:]),
        )


def replay(store: Store, name: str, where: str = "", *, user: str | None = None) -> Replayed:
    """Loads the dead letters of a table again.

    Args:
        name: `db.table`, of the target.
        where: a condition in SQL on the columns of the dead letters; empty for all of them.
        user: of the condition, None for all privileges.

    Raises:
        NotFoundError: there are no dead letters of such a table.
        InvalidInputError: the condition is none.
        ConflictError: another replay of the same rows was faster.
    """
    table, letters = store.table(name), f"{name}{SUFFIX}"
    try:
        store.table(letters)
    except NotFoundError as error:
        raise NotFoundError(f"{name} has no dead letters: {error.message}", kind="unknown_table") from error
    ids = _chosen(store, letters, where, user)
    done = Replayed()
    with store.transaction(operation=OPERATION, reads_own_writes=False) as transaction:
        found = transaction.table(letters).get(pa.table({"id": pa.array(ids, pa.string())}))
        removed: list[str] = []
        done.left += [(row["id"], "the text is empty") for row in found.to_pylist() if _is_empty(row)]
        for body in _bodies(found, ids):
            removed += _load(transaction, table, body, done)
        done.loaded = len(removed)
        if removed:
            transaction.table(letters).delete(pa.table({"id": removed}))
    return done


def _chosen(store: Store, letters: str, where: str, user: str | None) -> list[str]:
    database, table = letters.split(".", 1)
    condition = f" WHERE {where}" if where else ""
    with Session(store, database, user=user) as session:
        (result,) = session.execute(f"SELECT id FROM `{table}`{condition} ORDER BY time, position, id")
    assert result.rows is not None
    return [str(each) for each in result.rows.column(0).to_pylist()]


def _bodies(found: pa.Table, order: Sequence[str]) -> Iterator[_Body]:
    """Yields the letters in order, those with the same headers together where each is one line."""
    rows = {row["id"]: row for row in found.to_pylist()}
    together: dict[str, list[tuple[str, str]]] = {}
    for each in order:
        row = rows.get(each)
        if row is None or _is_empty(row):
            continue
        if "\n" in row["raw"]:
            yield _Body((each,), (row["raw"],), row["options"])
        else:
            together.setdefault(row["options"], []).append((each, row["raw"]))
    for headers, pairs in together.items():
        yield _Body(tuple(key for key, _ in pairs), tuple(raw for _, raw in pairs), headers)


def _is_empty(row: Mapping[str, Any]) -> bool:
    return not (row["raw"] or "").strip()


def _load(transaction: Transaction, table: Table, body: _Body, done: Replayed) -> tuple[str, ...]:
    """Loads the letters of a body that can be loaded now; returns their ids."""
    try:
        unclosed, reason = body.left_open()  # they would take in the lines behind them
        done.left += [(body.ids[line], reason) for line in unclosed]
        body = body.without(set(unclosed))
        bad = _tried(table, body) if body.ids else {}
    except (InvalidInputError, pa.ArrowException) as error:
        if len(body.ids) > 1 and _takes_rows(table, body):
            first, second = body.halves()  # one of their texts is none of its format
            return _load(transaction, table, first, done) + _load(transaction, table, second, done)
        done.left += [(each, str(error)) for each in body.ids]
        return ()
    done.left += [(body.ids[line], reason) for line, reason in sorted(bad.items())]
    good = body.without(set(bad))
    if not good.ids:
        return ()
    options = good.options()
    moment = moment_in(options.time_zone)
    target = transaction.table(table.name)
    with begin(target, options, moment.local, operation=OPERATION, label=None) as load:
        for buffer, _ in _read(table, good, options):
            if len(buffer):
                load.write(buffer.rows(), supplied=buffer.supplied())
        load.commit(max_filter_ratio=0.0)
    return good.ids


def _takes_rows(table: Table, body: _Body) -> bool:
    """Returns whether the table takes rows that are read as those of a body, whatever their texts are."""
    try:
        _tried(table, body.without(set(range(len(body.ids)))))
    except InvalidInputError:
        return False
    return True


def _tried(table: Table, body: _Body) -> dict[int, str]:
    """Returns the lines of a body that cannot be loaded, counted from 0, with their reasons."""
    options = body.options()
    moment = moment_in(options.time_zone)
    task = table.write_task(
        merge_type="DELETE" if options.merge_type == "DELETE" else "APPEND",
        now=moment.local,
        mode=options.update_mode,
        ignore_null=options.ignore_null,
        partitions=options.partitions if table.schema.partitioning is not None else (),
    )
    bad: list[BadRow] = []
    with keeping_bad_rows():
        for buffer, rejected in _read(table, body, options):
            bad += rejected
            if len(buffer):
                bad += buffer.sources_of(task.rejected(buffer.rows(), buffer.supplied()))
    is_single = len(body.lines) == 1
    return {0 if is_single else row.place.line - 1: row.reason for row in bad}


def _read(table: Table, body: _Body, options: StreamLoadOptions) -> Iterator[tuple[RowBuffer, list[BadRow]]]:
    moment = moment_in(options.time_zone)
    with ExitStack() as opened:
        target = Target(table.schema, table.name)
        reader, mapping = open_rows(io.BytesIO(body.data), options, target, moment, opened)
        for batch in reader.batches():
            mapped = mapping(batch, moment.local)
            buffer = RowBuffer()
            buffer.add(batch.places, mapped, batch.held_bytes)
            yield buffer, [*batch.bad, *batch.located(mapped.bad)]
