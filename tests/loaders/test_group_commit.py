"""Group commit: what is grouped, what the replies say, and that many loads become few transactions
(G6-G11)."""

from __future__ import annotations

import io
import random
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from seqstore import Session, Store, UnavailableError
from seqstore.loaders import joined_bodies, row_source
from seqstore.loaders.reply import StreamLoadReply
from seqstore.loaders.stream_load import stream_load
from seqstore.store.load import group_commit
from seqstore.store.load.load import Load
from tests import weight
from tests.support.statements import last_result

TABLES = """
CREATE TABLE t (k INT NOT NULL, v VARCHAR(5) NULL, n INT NOT NULL DEFAULT '7')
    UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE alone (k INT NOT NULL, v VARCHAR(5) NULL, n INT NOT NULL DEFAULT '7')
    UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1;
CREATE TABLE s (k INT NOT NULL, v INT NULL, seq INT NULL)
    UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('function_column.sequence_col'='seq');
CREATE TABLE h (k INT NOT NULL, v INT NULL)
    UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('function_column.sequence_type'='int');
"""
pytestmark = pytest.mark.sql(TABLES)


def load(store: Store, body: str | bytes, table: str = "t", **headers: str) -> StreamLoadReply:
    given = {"column_separator": ",", "group_commit": "sync_mode"}
    given |= {name.replace("__", ".", 1): value for name, value in headers.items()}
    return stream_load(
        store, "db", table, io.BytesIO(body.encode() if isinstance(body, str) else body), given
    )


def rows(store: Store, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in store.scan(f"db.{table}").read_all().to_pylist())


class Held:
    """Holds the first publish of a group until `members` more loads wait behind it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, members: int) -> None:
        self.publishes: list[int] = []
        self.members = members
        self.holds = False
        self._publish = group_commit._publish

        def publish(found: Any) -> None:
            if not self.holds:
                self.holds = True
                while _waiting() < self.members:
                    time.sleep(0.001)
            self.publishes.append(sum(member.loads for member in found))
            self._publish(found)

        monkeypatch.setattr(group_commit, "_publish", publish)


def _waiting() -> int:
    """Returns how many loads wait for the publish of others, before or after their rows are read."""
    members = [member for group in group_commit._groups.values() for member in group._waiting]
    queues = [queue for queues in joined_bodies._queues.values() for queue in queues.values()]
    return sum(member.loads for member in members) + sum(len(queue._waiting) for queue in queues)


@pytest.mark.parametrize("mode", ["sync_mode", "async_mode", "SYNC_MODE"])
def test_a_grouped_load_says_so_and_leaves_out_what_is_not_its_own(store: Store, mode: str) -> None:
    """G6, G7: visible when it is answered, LH25."""
    reply = load(store, "1,a,1\n", group_commit=mode)
    assert (reply["Status"], reply["GroupCommit"]) == ("Success", True)
    assert reply["Label"].startswith("group_commit_")
    assert reply["TxnId"] > 0
    assert not {"TwoPhaseCommit", "BeginTxnTimeMs", "CommitAndPublishTimeMs"} & set(reply)
    assert (reply["NumberTotalRows"], reply["NumberLoadedRows"]) == (1, 1)
    assert rows(store) == [(1, "a", 1)]
    found = store.find_transaction("db", reply["Label"])
    assert found is not None
    assert (found.id, found.status) == (reply["TxnId"], "VISIBLE")


@pytest.mark.parametrize(
    "headers",
    [
        {"label": "own"},
        {"two_phase_commit": "true"},
        {"partial_columns": "true"},
        {"group_commit": "off_mode"},
    ],
)
def test_what_has_an_outcome_of_its_own_is_not_grouped(store: Store, headers: dict[str, str]) -> None:
    """G8."""
    reply = load(store, "1,a,1\n", **headers)
    assert reply["Status"] == "Success"
    assert "GroupCommit" not in reply
    assert "TwoPhaseCommit" in reply


def test_a_table_has_a_mode_for_loads_that_name_none(store: Store, session: Session) -> None:
    """G12."""
    last_result(session, "ALTER TABLE t SET ('group_commit_mode' = 'sync_mode')")
    assert load(store, "1,a,1\n", group_commit="")["GroupCommit"] is True
    assert "GroupCommit" not in load(store, "2,a,1\n", group_commit="off_mode")
    assert "GroupCommit" not in load(store, "3,a,1\n", group_commit="", label="own")
    assert "GroupCommit" not in load(store, "4,a,1\n", "alone", group_commit="")
    assert len(rows(store)) == 3


def test_an_unknown_mode_is_refused(store: Store) -> None:
    """LH25."""
    assert "group_commit can only be" in load(store, "1,a,1\n", group_commit="on")["Message"]


def test_loads_that_come_together_are_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: the first publishes alone, all that came meanwhile share the second."""
    held = Held(monkeypatch, 19)
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(lambda k: load(store, f"{k},a,{k}\n"), range(20)))
    assert held.publishes == [1, 19]
    assert len({reply["TxnId"] for reply in replies}) == 2
    assert len({reply["Label"] for reply in replies}) == 2
    assert all(reply["NumberLoadedRows"] == 1 for reply in replies)
    assert [row[0] for row in rows(store)] == list(range(20))
    assert store.table("db.t").version == 3
    assert store.table("db.t").check() == []


def test_loads_with_other_columns_separators_and_deletes_share_a_group(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G11: the delete sign is honoured; a column left out takes its default."""
    load(store, "1,old,1\n2,old,2\n", group_commit="off_mode")
    held = Held(monkeypatch, 3)
    bodies = [
        ("3,c,3\n", {}),
        ("1\n", {"merge_type": "DELETE", "columns": "k"}),
        ("4|d\n", {"column_separator": "|", "columns": "k,v"}),
        ('{"k": 2, "v": "new", "n": 9}\n', {"format": "json"}),
    ]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda each: load(store, each[0], **each[1]), bodies))
    assert [reply["Message"] for reply in replies] == ["OK"] * 4
    assert held.publishes == [1, 3]
    assert rows(store) == [(2, "new", 9), (3, "c", 3), (4, "d", 7)]


@pytest.mark.parametrize(
    ("table", "headers"), [("s", {}), ("h", {"columns": "k,v,q", "function_column__sequence_col": "q"})]
)
def test_the_sequence_decides_within_a_group(
    store: Store, monkeypatch: pytest.MonkeyPatch, table: str, headers: dict[str, str]
) -> None:
    """G9, G11."""
    Held(monkeypatch, 9)
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda i: load(store, f"1,{i},{(i * 7) % 10}\n", table, **headers), range(10)))
    assert rows(store, table)[0][1] == 7  # 7 * 7 % 10 == 9


def test_a_load_with_bad_rows_fails_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, 2)
    bodies = ["1,a,1\n", "2,a,2\nx,b\n", "3,a,3\n", "4,toolong,4\n"]
    with ThreadPoolExecutor(4) as pool:
        replies = list(
            pool.map(
                lambda body: load(store, body, strict_mode="true"),
                bodies[:1] + bodies[2:3] + ["5,a,5\n", bodies[1], bodies[3]],
            )
        )
    assert [reply["Status"] for reply in replies] == ["Success", "Success", "Success", "Fail", "Fail"]
    assert sum(held.publishes) == 3
    assert [row[0] for row in rows(store)] == [1, 3, 5]
    for reply in replies[3:]:
        assert reply["Message"].startswith("[DATA_QUALITY_ERROR]too many filtered rows")
        assert (reply["TxnId"], "ErrorURL" in reply) == (-1, True)


def test_within_the_ratio_the_good_rows_load(store: Store) -> None:
    reply = load(store, "1,a,1\nx,a\n", max_filter_ratio="0.5")
    assert (reply["Status"], reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == ("Success", 1, 1)


@pytest.mark.parametrize(("good", "status"), [(9_999, "Fail"), (10_000, "Success")])
def test_the_ratio_counts_up_to_ten_thousand_rows(store: Store, good: int, status: str) -> None:
    """G10."""
    body = "".join(f"{k},a,1\n" for k in range(good)) + "bad\n"
    assert load(store, body)["Status"] == status
    assert len(rows(store)) == (good if status == "Success" else 0)


def test_a_large_load_is_a_transaction_of_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "_MEMBER_BYTES_MAX", 100)
    reply = load(store, "".join(f"{k},a,1\n" for k in range(100)))
    assert reply["Status"] == "Success"
    assert "GroupCommit" not in reply
    assert reply["TxnId"] > 0
    assert len(rows(store)) == 100


def test_a_publish_that_fails_fails_all_of_its_members_and_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Held(monkeypatch, 4)
    commit, calls, lock = Load.commit, iter([False, True]), threading.Lock()

    def fail_second(self: Load, **options: Any) -> Any:
        with lock:
            fails = next(calls, False)
        if fails:
            raise UnavailableError("the disk is full", kind="disk")
        return commit(self, **options)

    monkeypatch.setattr(Load, "commit", fail_second)
    with ThreadPoolExecutor(5) as pool:
        replies = list(pool.map(lambda k: load(store, f"{k},a,{k}\n"), range(5)))
    failed = [reply for reply in replies if reply["Status"] == "Fail"]
    assert [reply["Message"] for reply in failed] == ["[UNAVAILABLE]the disk is full"] * 4
    assert len(rows(store)) == 1
    assert load(store, "9,a,9\n")["Status"] == "Success"


def test_an_empty_body_is_an_empty_load(store: Store) -> None:
    """V12."""
    reply = load(store, "")
    assert (reply["Status"], reply["NumberTotalRows"], reply["GroupCommit"]) == ("Success", 0, True)


_FIELDS = (
    "1",
    "22",
    " 3",
    "x",
    "",
    "\\N",
    "a",
    "é",
    "toolong",
    "7\r",
    "\ufeff",
    '"q"',
    "0x1F",
    "k",
    "v",
    "n",
)


def _hostile_body(first: int, rng: random.Random) -> bytes:
    """Returns lines of mostly good rows; some are empty, short, long, or named as the columns."""
    lines = []
    for number in range(rng.randrange(4)):
        line = f"{first + number},a{number},{number}"
        if rng.random() < 0.15:
            line = ",".join(rng.choices(_FIELDS, k=rng.choice([1, 2, 3, 3, 3, 4])))
        lines.append(line.encode() if rng.random() > 0.03 else b"1,\xff,2")
    if rng.random() < 0.06:
        lines.insert(0, b"k,v,n")
    body = rng.choice([b"\n", b"\n", b"\n", b"\r\n", b"\n\n"]).join(lines)
    begin = rng.choice([b"", b"", b"", b"", b"\xef\xbb\xbf"])
    return begin + body + rng.choice([b"\n", b"\n", b"", b"\r\n", b"\r"])


def _own_part(reply: StreamLoadReply) -> dict[str, Any]:
    """Returns the fields of a reply that no other load has an effect on."""
    names = (
        "Status",
        "NumberTotalRows",
        "NumberLoadedRows",
        "NumberFilteredRows",
        "LoadBytes",
        "GroupCommit",
    )
    message = re.sub(r"error_log_\S+", "", str(reply["Message"]))
    return {name: reply.get(name) for name in names} | {"Message": message, "log": "ErrorURL" in reply}


@pytest.mark.parametrize("seed", range(weight.by_form(6, 30)))
def test_loads_that_are_read_together_have_the_replies_of_loads_that_are_read_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Counts, errors, warnings and stored keys."""
    rng = random.Random(seed)
    headers = {"max_filter_ratio": rng.choice(["0", "0.5"]), "strict_mode": rng.choice(["true", "false"])}
    share = rng.choice([0.0, 0.5, 1.0])  # of the bodies that may have faults
    bodies = [
        _hostile_body(k, rng) if rng.random() < share else f"{k},a,1\n{k + 1},b,2\n".encode()
        for k in range(100, 220, 10)
    ]
    alone = [_own_part(load(store, body, "alone", **headers)) for body in bodies]
    held = Held(monkeypatch, len(bodies))
    with ThreadPoolExecutor(len(bodies) + 1) as pool:
        first = pool.submit(load, store, "1000,a,1\n", **headers)
        while not held.holds:
            time.sleep(0.001)
        queued = []
        for body in bodies:
            count = _waiting()
            queued.append(pool.submit(load, store, body, **headers))
            while _waiting() == count and not queued[-1].done():
                time.sleep(0.001)
            held.members -= queued[-1].done()
        together = [_own_part(each.result(30)) for each in queued]
    assert first.result()["Status"] == "Success", seed
    assert together == alone, (seed, bodies)
    keys = [row[0] for row in rows(store)]
    assert keys == [*(row[0] for row in rows(store, "alone")), 1000], (seed, bodies)


def test_loads_of_one_header_set_are_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """G6: the first is read alone, the others as one body; others of the table are read by themselves."""
    read, open_rows = [0], row_source.open_rows

    def count(*arguments: Any, **options: Any) -> Any:
        read[0] += 1
        return open_rows(*arguments, **options)

    monkeypatch.setattr("seqstore.loaders.stream_load.open_rows", count)
    held = Held(monkeypatch, 24)
    with ThreadPoolExecutor(25) as pool:
        queued = [pool.submit(load, store, f"{k},a,{k}\n" * (k + 1)) for k in range(20)]
        queued += [pool.submit(load, store, f"{k},a\n", columns="k,v") for k in range(20, 25)]
        replies = [each.result(30) for each in queued]
    assert [reply["NumberLoadedRows"] for reply in replies] == [*range(1, 21), *[1] * 5]
    assert [reply["LoadBytes"] for reply in replies[1:3]] == [12, 18]
    assert {reply["Status"] for reply in replies} == {"Success"}
    assert sum(held.publishes) == 25
    assert read[0] <= 4, "the first load of each header set is read alone, the others as one body"
    assert store.table("db.t").version <= 1 + 4
