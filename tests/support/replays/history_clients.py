"""Clients of a store that take part in histories: by Python, over the MySQL protocol, over HTTP.

Each does transactions of a few kinds on the cells of a history and notes what it knows of them (see
`checked_history`). It tells a transaction before it may commit and when its outcome is known.

As a program it is a client by Python in a process of its own: directory, concurrency. It reads the numbers of
history, client, first number and transactions per line, with a seed, and prints what it does as lines of JSON
and an empty line at the end.
"""

from __future__ import annotations

import json
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seqstore import CommitUnknownError, Session, Settings, Store, StoreError
from tests.support.replays.checked_history import (
    ABORTED,
    LISTS,
    OK,
    OPEN,
    SETS,
    Cell,
    Contents,
    Transaction,
)
from tests.support.rows import schema_of

if TYPE_CHECKING:
    from tests.support.http_server import Client

KEYS: Final = 2  # of a history, in each table
SETTINGS: Final = Settings(catalog_bytes_max=2**28)
Tell = Callable[[Transaction], None]
_LOST_CONNECTION: Final = (0, 2006, 2013, 2014, 2055)  # pymysql's numbers
_RETRIES_MAX: Final = 5


def make_store(path: Path, histories: int) -> None:
    """Makes the tables, and the rows of the lists: nothing is in them.

    Statements of single rows join others in the first table of lists, and in that of sets.
    """
    keys = list(range(histories * KEYS))
    with Store.open(path, settings=SETTINGS) as store:
        store.create_database("db")
        for name in LISTS:
            table = store.create_table(f"db.{name}", schema_of("k INT NOT NULL", "v STRING"))
            table.upsert(pa.table({"k": pa.array(keys, pa.int32()), "v": [""] * len(keys)}))
        for name in SETS:
            store.create_table(f"db.{name}", schema_of("k INT NOT NULL", "n INT NOT NULL", key=("k", "n")))
        with Session(store, "db") as session:
            for name in (LISTS[0], SETS[0]):
                list(session.execute(f"ALTER TABLE {name} SET ('group_commit_mode' = 'sync_mode')"))


@dataclass(frozen=True)
class Cells:
    """The cells of one history: keys of their own in all tables."""

    history: int

    def key(self, cell: Cell) -> int:
        return self.history * KEYS + int(cell[1:]) - 1

    @property
    def lists(self) -> list[Cell]:
        return [f"{name}{number}" for name in LISTS for number in range(1, KEYS + 1)]

    @property
    def sets(self) -> list[Cell]:
        return [f"{name}{number}" for name in SETS for number in range(1, KEYS + 1)]

    @property
    def condition(self) -> str:
        return f"BETWEEN {self.history * KEYS} AND {self.history * KEYS + KEYS - 1}"

    def contents(self, rows: Iterable[tuple[str, Any, Any]]) -> Contents:
        """Returns all cells, from rows of table, key, and list or number."""
        found = {cell: list[int]() for cell in (*self.lists, *self.sets)}
        for table, key, value in rows:
            found[f"{table}{int(key) - self.history * KEYS + 1}"] += numbers(str(value))
        return {cell: sorted(read) if cell[0] in SETS else read for cell, read in found.items()}

    def union(self, tables: Iterable[str] = (*LISTS, *SETS)) -> str:
        """Returns a statement that reads all cells of some tables."""
        values = dict.fromkeys(LISTS, "v") | dict.fromkeys(SETS, "CAST(n AS STRING)")
        return " UNION ALL ".join(
            f"SELECT '{name}' AS t, k, {values[name]} AS v FROM {name} WHERE k {self.condition}"
            for name in tables
        )

    def join(self) -> str:
        """Returns a statement that reads the lists of a table beside those of another."""
        return f"SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k WHERE a.k {self.condition}"

    def of_join(self, rows: Iterable[tuple[Any, Any, Any]]) -> Contents:
        both = [row for k, a, b in rows for row in (("a", k, a), ("b", k, b))]
        return {cell: read for cell, read in self.contents(both).items() if cell[0] in LISTS}


def numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


class HistoryClient(ABC):
    """A client.

    Args:
        name: of its transactions and labels, no other's.
        tell: gets each transaction before it may commit, and when its outcome is known.
    """

    works: Mapping[str, int]  # names of methods, and how often they are chosen

    def __init__(self, name: str, tell: Tell) -> None:
        self.name = name
        self.tell = tell

    def run(self, cells: Cells, chosen: random.Random, first: int, count: int) -> None:
        """Runs transactions, which write the numbers from `first` on."""
        for number in range(first, first + count):
            (work,) = chosen.choices(list(self.works), list(self.works.values()))
            done = Transaction(f"{self.name}-{cells.history}-{number}", begun=time.monotonic())
            self.attempt(work, done, cells, chosen)
            if done.status != OPEN:
                done.ended = time.monotonic()
            self.tell(done)

    @abstractmethod
    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Does one kind of work, which may return a status, and sets it; makes a lost connection anew."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Ends it."""

    def read(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Reads the cells of all tables, or those of two, in one statement."""
        if chosen.random() < 0.3:
            done.reads = cells.of_join(self.rows(cells.join()))
            return
        tables = [*LISTS, *SETS]
        tables = chosen.sample(tables, chosen.choice((2, 2, len(tables))))
        found = cells.contents(self.rows(cells.union(tables)))
        done.reads = {cell: read for cell, read in found.items() if cell[0] in tables}

    @abstractmethod
    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        """Returns the rows of a query."""

    @staticmethod
    def appending(done: Transaction, cells: list[Cell]) -> None:
        done.appends = dict.fromkeys(cells, int(done.name.rpartition("-")[2]))


class PythonClient(HistoryClient):
    """A client by the Python API, which has the store open."""

    works: Mapping[str, int] = {"read": 2, "moment": 6, "append": 8, "add": 3, "two_phase": 2}

    def __init__(self, name: str, tell: Tell, store: Store, concurrency: str = "optimistic") -> None:
        super().__init__(name, tell)
        self._store = store
        self._session = Session(store, "db")
        self._concurrency = concurrency

    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        try:
            done.status = getattr(self, work)(done, cells, chosen) or OK
        except CommitUnknownError:
            pass
        except StoreError:
            done.status = ABORTED

    def close(self) -> None:
        self._session.close()

    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        (result,) = self._session.execute(text)
        assert result.rows is not None
        return zip(*(column.to_pylist() for column in result.rows.columns), strict=True)

    def moment(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Reads all tables by the Python API, in any order."""
        with self._store.snapshot() as moment:
            low, high = cells.key("a1"), cells.key(f"a{KEYS}")
            within = (pc.field("k") >= low) & (pc.field("k") <= high)
            names = [*LISTS, *SETS]
            rows = []
            for name in chosen.sample(names, len(names)):
                found = moment.table(f"db.{name}").scan(filter=within).read_all().to_pylist()
                rows += [(name, row["k"], row["v" if name in LISTS else "n"]) for row in found]
        done.reads = cells.contents(rows)

    def append(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        read, written = _chosen_lists(cells, chosen)
        added = chosen.sample(cells.sets, chosen.choice((0, 0, 1)))
        done.label = done.name
        options: dict[str, Any] = {"concurrency": self._concurrency, "isolation": "Serializable"}
        with self._store.transaction(label=done.label, **options) as transaction:

            def look(cell: Cell) -> list[int]:
                rows = transaction.table(f"db.{cell[0]}").get(_keys(cells.key(cell)), ["v"])
                return numbers(rows.column("v").to_pylist()[0])

            done.reads = {cell: look(cell) for cell in read}
            self.appending(done, [*written, *added])
            for cell in written:
                value = ",".join(map(str, [*done.reads[cell], done.appends[cell]]))
                row = _keys(cells.key(cell)).append_column("v", pa.array([value]))
                transaction.table(f"db.{cell[0]}").upsert(row)
            for cell in added:
                transaction.table(f"db.{cell[0]}").upsert(_members(cells, done, [cell]))
            if chosen.random() < 0.5:
                done.own = {written[0]: look(written[0])}
            self.tell(done)
            transaction.commit()

    def add(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        table = chosen.choice(SETS)
        self.appending(done, members_of(cells, table, chosen))
        done.label = done.name
        self.tell(done)
        self._store.table(f"db.{table}").upsert(_members(cells, done, list(done.appends)), label=done.label)

    def two_phase(self, done: Transaction, cells: Cells, chosen: random.Random) -> str:
        table = chosen.choice(SETS)
        self.appending(done, members_of(cells, table, chosen))
        done.label = done.name
        self.tell(done)
        with self._store.table(f"db.{table}").begin_load(label=done.label) as load:
            load.write(_members(cells, done, list(done.appends)))
            load.precommit()
        is_committed = chosen.random() < 0.7
        end = self._store.commit_transaction if is_committed else self._store.abort_transaction
        try:
            end("db", label=done.label)
        except StoreError:  # it stays pre-committed
            return OPEN
        return OK if is_committed else ABORTED


def _keys(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int32())})


def _members(cells: Cells, done: Transaction, added: list[Cell]) -> pa.Table:
    keys = [cells.key(cell) for cell in added]
    return _keys(*keys).append_column("n", pa.array([done.appends[cell] for cell in added], pa.int32()))


def members_of(cells: Cells, table: str, chosen: random.Random) -> list[Cell]:
    of_table = [cell for cell in cells.sets if cell[0] == table]
    return chosen.sample(of_table, chosen.randint(1, len(of_table)))


def _chosen_lists(cells: Cells, chosen: random.Random) -> tuple[list[Cell], list[Cell]]:
    """Returns lists to read, and those of them to write."""
    read = chosen.sample(cells.lists, chosen.choice((1, 2, 2)))
    return read, read[: chosen.choice((1, len(read)))]


@dataclass
class Address:
    """Where a server listens; `wait` returns when one does, which may be another one."""

    http: Callable[[], Client]
    mysql_port: Callable[[], int]
    wait: Callable[[], None]


class MysqlClient(HistoryClient):
    """A client over the MySQL protocol: BEGIN and COMMIT, or without autocommit."""

    works: Mapping[str, int] = {"read": 7, "append": 8, "concat": 3, "add": 2, "add_both": 2}

    def __init__(self, name: str, tell: Tell, address: Address, *, autocommit: bool) -> None:
        super().__init__(name, tell)
        self._address = address
        self._autocommit = autocommit
        self._ending = False  # a statement that may commit was sent
        self._connection: Any = None
        self._connect()

    def _connect(self) -> None:
        import pymysql

        for attempt in range(_RETRIES_MAX):
            self._address.wait()
            try:
                self._connection = pymysql.connect(
                    host="127.0.0.1",
                    port=self._address.mysql_port(),
                    user="root",
                    database="db",
                    autocommit=self._autocommit,
                    init_command="SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                    read_timeout=300,
                )
            except (pymysql.err.MySQLError, OSError):  # it was killed again
                if attempt == _RETRIES_MAX - 1:
                    raise
            else:
                return

    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        import pymysql

        self._ending = False
        try:
            getattr(self, work)(done, cells, chosen)
            done.status = OK
        except (pymysql.err.MySQLError, OSError) as error:
            is_lost = isinstance(error, OSError) or error.args[0] in _LOST_CONNECTION
            is_unknown = is_lost or "unknown" in str(error)
            done.status = OPEN if self._ending and is_unknown else ABORTED
            if not is_lost:
                try:
                    self._connection.rollback()
                except (pymysql.err.MySQLError, OSError):  # the server was killed meanwhile
                    is_lost = True
            if is_lost:
                with suppress(pymysql.err.MySQLError, OSError):
                    self._connection.close()
                self._connect()

    def close(self) -> None:
        self._connection.close()

    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    def read(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        super().read(done, cells, chosen)
        if not self._autocommit:
            self._connection.rollback()  # of its snapshot

    def _begin(self, done: Transaction) -> None:
        if self._autocommit:
            done.label = done.name
            self.rows(f"BEGIN WITH LABEL `{done.label}`")

    def _commit(self, done: Transaction) -> None:
        self.tell(done)
        self._ending = True
        self._connection.commit()

    def append(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        read, written = _chosen_lists(cells, chosen)
        added = chosen.sample(cells.sets, chosen.choice((0, 0, 1)))
        self._begin(done)
        done.reads = self._look(cells, read, in_one=chosen.random() < 0.5)
        self.appending(done, [*written, *added])
        for cell in written:
            value, key = ",".join(map(str, [*done.reads[cell], done.appends[cell]])), cells.key(cell)
            if chosen.random() < 0.5:
                self.rows(f"UPDATE {cell[0]} SET v = '{value}' WHERE k = {key}")
            else:
                self.rows(f"INSERT INTO {cell[0]} VALUES ({key}, '{value}')")
        for cell in added:
            self._insert(done, cells, [cell])
        if chosen.random() < 0.5:
            done.own = self._look(cells, written, in_one=chosen.random() < 0.5)
        self._commit(done)

    def _look(self, cells: Cells, read: list[Cell], *, in_one: bool) -> Contents:
        texts = [f"SELECT '{cell}', v FROM {cell[0]} WHERE k = {cells.key(cell)}" for cell in read]
        found = self.rows(" UNION ALL ".join(texts)) if in_one else [self._row(text) for text in texts]
        return {cell: numbers(text) for cell, text in found}

    def _row(self, text: str) -> tuple[Any, ...]:
        (found,) = self.rows(text)
        return found

    def _insert(self, done: Transaction, cells: Cells, added: list[Cell]) -> None:
        rows = ", ".join(f"({cells.key(cell)}, {done.appends[cell]})" for cell in added)
        self.rows(f"INSERT INTO {added[0][0]} VALUES {rows}")

    def concat(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Appends by an expression: the client reads nothing."""
        cell = chosen.choice(cells.lists)
        self.appending(done, [cell])
        self.tell(done)
        self._ending = self._autocommit
        self.rows(concatenation(done, cells, cell))
        if not self._autocommit:
            self._commit(done)

    def add(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Adds to the sets of one table."""
        self.appending(done, members_of(cells, chosen.choice(SETS), chosen))
        self.tell(done)
        self._ending = self._autocommit
        self._insert(done, cells, list(done.appends))
        if not self._autocommit:
            self._commit(done)

    def add_both(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        """Adds to the sets of both tables in one transaction."""
        self._begin(done)
        self.appending(done, [chosen.choice(members_of(cells, name, chosen)) for name in SETS])
        for cell in done.appends:
            self._insert(done, cells, [cell])
        self._commit(done)


def concatenation(done: Transaction, cells: Cells, cell: Cell) -> str:
    """Returns a statement that appends to a list."""
    value = f"CONCAT(v, ',{done.appends[cell]}')"
    return f"UPDATE {cell[0]} SET v = {value} WHERE k = {cells.key(cell)}"


class HttpClient(HistoryClient):
    """A client over HTTP: stream loads, loads of two phases, statements."""

    works: Mapping[str, int] = {"read": 7, "add": 5, "two_phase": 4, "concat": 4}

    def __init__(self, name: str, tell: Tell, address: Address) -> None:
        super().__init__(name, tell)
        self._address = address

    def attempt(self, work: str, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        try:
            done.status = getattr(self, work)(done, cells, chosen) or OK
        except _RefusedError as error:
            done.status = OPEN if "unknown" in str(error) else ABORTED
        except (HTTPException, OSError, ValueError):  # lost, or an answer that is cut off
            if not done.appends:
                done.status = ABORTED
            self._address.wait()

    def rows(self, text: str) -> Iterable[tuple[Any, ...]]:
        answer = self._address.http().request("POST", "/api/query/internal/db", json.dumps({"stmt": text}))
        told = answer.json
        if told["code"] != 0:
            raise _RefusedError(f"{told['msg']} {told['data']}")
        return [tuple(row) for row in told["data"].get("data", [])]

    def concat(self, done: Transaction, cells: Cells, chosen: random.Random) -> None:
        cell = chosen.choice(cells.lists)
        self.appending(done, [cell])
        self.tell(done)
        self.rows(concatenation(done, cells, cell))

    def add(self, done: Transaction, cells: Cells, chosen: random.Random, **headers: str) -> None:
        table = chosen.choice(SETS)
        self.appending(done, members_of(cells, table, chosen))
        done.label = done.name
        self.tell(done)
        body = "".join(f"{cells.key(cell)},{number}\n" for cell, number in done.appends.items())
        told = self._address.http().load(table, body, label=done.label, **headers)
        if told["Status"] != "Success":
            raise _RefusedError(told["Message"])

    def two_phase(self, done: Transaction, cells: Cells, chosen: random.Random) -> str:
        self.add(done, cells, chosen, two_phase_commit="true")
        operation = "commit" if chosen.random() < 0.7 else "abort"
        headers = {"label": done.label, "txn_operation": operation}
        told = self._address.http().request("PUT", "/api/db/_stream_load_2pc", None, headers).json
        if told["status"] != "Success":  # it stays pre-committed
            return OPEN
        return OK if operation == "commit" else ABORTED


class _RefusedError(Exception):
    """The server has answered that it did not do it."""


def main(path: Path, concurrency: str) -> None:
    """Runs the program."""

    def tell(done: Transaction) -> None:
        print(json.dumps(done.__dict__), flush=True)

    with Store.open(path, settings=SETTINGS) as store:
        print(flush=True)
        for line in sys.stdin:
            history, name, first, count, seed = line.split()
            client = PythonClient(name, tell, store, concurrency)
            client.run(Cells(int(history)), random.Random(seed), int(first), int(count))
            client.close()
            print(flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
