"""Session variables: a name that is accepted does something, is a fact, or is known to have no effect."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, Session, UnavailableError
from seqstore.store.sql.session import client_variables as others
from seqstore.store.sql.session.running_statement import TimeLimit
from seqstore.store.sql.session.variables import _NUMBERS, Variables
from tests.support.statements import run

# What clients send as they connect, or at the head of a dump.
_OF_CLIENTS = (
    # JDBC
    "SET character_set_results = NULL",
    "SET sql_mode='STRICT_TRANS_TABLES'",
    "SET SQL_SELECT_LIMIT=DEFAULT",
    "SET net_write_timeout=600",
    "SET SESSION TRANSACTION READ WRITE",
    # mysqldump, and the dumps that it makes
    "SET SESSION NET_READ_TIMEOUT= 86400, SESSION NET_WRITE_TIMEOUT= 86400",
    "SET SQL_QUOTE_SHOW_CREATE=1",
    "SET SESSION information_schema_stats_expiry=0",
    "SET @@SESSION.SQL_LOG_BIN= 0",
    "SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT",
    "SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0",
    "SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0",
    "SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO'",
    "SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0",
    "SET TIME_ZONE='+00:00'",
    "SET NAMES utf8mb4",
    "SET NAMES DEFAULT",
    "SET NAMES binary",
    # Workbench, DBeaver, the mysql command with --safe-updates
    "SET CHARACTER SET utf8",
    "SET SQL_SAFE_UPDATES=1",
    "SET sql_safe_updates=1, sql_select_limit=1000, max_join_size=1000000",
    # Django, Rails, connectors
    "SET SQL_AUTO_IS_NULL = 0",
    "SET @@SESSION.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), @@SESSION.sql_auto_is_null = 0, "
    "@@SESSION.wait_timeout = 2147483",
    "SET SESSION group_concat_max_len = 1000000",
    "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_0900_ai_ci'",
    "SET default_storage_engine=INNODB",
    # tools for Doris
    "SET enable_nereids_planner = true",
    "SET parallel_pipeline_task_num = 8",
    "SET GLOBAL enable_sql_cache = false",
    "SET delete_without_partition = true",
    "SET experimental_enable_nereids_planner = true",
    "SET enable_profile = false",
    # pools, phpMyAdmin, pt-tools, dumps of MySQL 8
    "SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 60, lc_messages = 'en_US'",
    "SET SESSION show_create_table_skip_secondary_engine = 1, completion_type = 0",
    "SET @@GLOBAL.GTID_PURGED = ''",
    "SET max_statement_time = 0.5",
    "SET collation_connection = NULL",
)


def test_clients_set_what_they_set(session: Session) -> None:
    for text in _OF_CLIENTS:
        run(session, text)


def test_a_fact_is_read_and_not_set(session: Session) -> None:
    for name, value in others.FACTS.items():
        assert session.variables.get(name) == value
        with pytest.raises(InvalidInputError, match=f"Variable '{name}' is a read only variable"):
            run(session, f"SET {name} = 'other'")


def test_a_choice_has_one_value(session: Session) -> None:
    for name, (only, instead) in others.FIXED.items():
        run(session, f"SET {name} = '{only}'")
        assert session.variables.get(name) == only
        with pytest.raises(InvalidInputError) as raised:
            run(session, f"SET {name} = 'other'")
        assert str(raised.value) == (
            f"Variable '{name}' can't be set to the value of 'other'; expected '{only}': {instead}"
        )


@pytest.mark.parametrize(
    ("name", "spellings"), [("dry_run_query", ("0", "OFF")), ("profiling", ("off", "FALSE"))]
)
def test_the_one_value_has_several_spellings(session: Session, name: str, spellings: tuple[str, ...]) -> None:
    for spelling in spellings:
        run(session, f"SET {name} = {spelling}")


def test_a_variable_without_effect_is_kept(session: Session) -> None:
    for name, default in others.WITHOUT_EFFECT.items():
        run(session, f"SET {name} = 17")
        assert session.variables.get(name) == "17", name
        run(session, f"SET {name} = DEFAULT")
        assert session.variables.get(name) == default, name


@pytest.mark.parametrize("value", ["\u00b2", "\u0661", "1" * 5000, "-", ""])
@pytest.mark.parametrize("name", sorted(_NUMBERS))
def test_a_number_is_one_of_64_bits(session: Session, name: str, value: str) -> None:
    """`²` was taken for a digit, and each later statement failed."""
    if name == "txn_version" and not value:
        return
    with pytest.raises(InvalidInputError, match=f"Variable '{name}' can't be set"):
        run(session, f"SET {'GLOBAL ' if name == 'max_allowed_packet' else ''}{name} = '{value}'")
    assert run(session, "SELECT 1") == [(1,)]


def test_innodb_lock_wait_timeout_is_that_of_updates(session: Session) -> None:
    run(session, "SET innodb_lock_wait_timeout = 3")
    assert session.variables.lock_seconds == 3


def test_the_kinds_of_variables_have_no_name_in_common() -> None:
    names = [*others.FACTS, *others.FIXED, *others.WITHOUT_EFFECT]
    assert len(names) == len({*names})


@pytest.mark.parametrize(
    "text",
    ["SET {} = 1", "SET GLOBAL {} = 1", "SET {} = DEFAULT", "SELECT @@{}", "SELECT @@global.{}",
     "SELECT /*+ SET_VAR({} = 1) */ 1"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("enable_unique_key_partial_updat", "did you mean 'enable_unique_key_partial_update'?"),
        ("zzz", "SHOW VARIABLES lists those there are"),
    ],
)
def test_an_unknown_variable_is_refused(session: Session, text: str, name: str, hint: str) -> None:
    """A misspelled name was kept: the INSERT after it replaced whole rows instead of one column."""
    with pytest.raises(InvalidInputError) as raised:
        run(session, text.format(name))
    assert str(raised.value) == f"Unknown system variable '{name}'; {hint}"
    assert raised.value.kind == "unknown_variable"


@pytest.mark.parametrize("name", ["character_set_results", "character_set_client", "collation_connection"])
def test_texts_are_in_utf_8(session: Session, name: str) -> None:
    with pytest.raises(InvalidInputError, match="'latin1'; texts are UTF-8"):
        run(session, f"SET {name} = latin1")


def test_names_of_another_character_set_are_refused(session: Session) -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown character set: 'latin1'; texts are UTF-8"):
        run(session, "SET NAMES latin1")
    assert session.variables.get("character_set_client") == "utf8mb4"


def test_show_variables_lists_each_once() -> None:
    names = [name for name, _, _ in Variables().items()]
    assert len(names) == len({*names})
    assert {*others.FACTS, *others.FIXED, *others.WITHOUT_EFFECT} < {*names}


@pytest.mark.sql("CREATE TABLE t (a INT, b VARCHAR(9), v INT) UNIQUE KEY(a, b)")
class TestSafeUpdates:
    @pytest.fixture(autouse=True)
    def _on(self, session: Session) -> None:
        run(session, "INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)")
        run(session, "SET sql_safe_updates = 1")

    @pytest.mark.parametrize(
        "text",
        [
            "UPDATE t SET v = 0",
            "DELETE FROM t WHERE v = 10",
            "DELETE FROM t WHERE a = 1 OR v = 10",
            "DELETE FROM t WHERE a + 1 = 2",
            "DELETE FROM t WHERE a = a",
            "DELETE FROM t WHERE a BETWEEN v AND 3",
            "UPDATE t SET v = 0 WHERE v = 10",
            "UPDATE t SET v = 0 WHERE a IS NOT NULL AND v = 10",
            "DELETE FROM t USING (SELECT 1 AS a) AS s WHERE s.a = 1 AND t.v = 10",
        ],
    )
    def test_a_statement_without_a_key_is_refused(self, session: Session, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"safe update mode .* compare one of a, b") as raised:
            run(session, text)
        assert raised.value.kind == "safe_updates"
        assert _values(session) == [10, 20]

    @pytest.mark.parametrize(
        ("text", "left"),
        [
            ("DELETE FROM t WHERE a = 1", [20]),
            ("DELETE FROM t WHERE v = 10 AND (b = 'x')", [20]),
            ("DELETE FROM t WHERE 'y' <= b", [10]),
            ("DELETE FROM t WHERE v = 10 LIMIT 1", [20]),
            ("UPDATE t SET v = 0 WHERE a BETWEEN 2 AND 3", [0, 10]),
            ("UPDATE t AS n SET v = 0 WHERE n.a IN (1)", [0, 20]),
            ("DELETE FROM t USING (SELECT 1 AS k) AS s WHERE t.a = s.k", [20]),
            ("DELETE t FROM t JOIN (SELECT 1 AS k) AS s ON t.a = s.k", [20]),
            ("TRUNCATE TABLE t", []),
        ],
    )
    def test_a_statement_with_a_key_runs(self, session: Session, text: str, left: list[int]) -> None:
        run(session, text)
        assert _values(session) == left

    @pytest.mark.parametrize(
        ("declared", "way"),
        [("DUPLICATE KEY(k)", "compare one of k,"), ("DUPLICATE KEY(k, v)", "compare one of k, v,")],
    )
    def test_the_key_of_a_duplicate_table_is_the_declared_one(
        self, session: Session, declared: str, way: str
    ) -> None:
        run(session, f"CREATE TABLE log (k INT, v INT, w INT) {declared}; INSERT INTO log VALUES (1, 2, 3)")
        with pytest.raises(InvalidInputError, match=way):
            run(session, "DELETE FROM log WHERE w = 3")
        assert run(session, "DELETE FROM log WHERE k = 1").affected_rows == 1


def _values(session: Session) -> list[int]:
    return [value for (value,) in run(session, "SELECT v FROM t ORDER BY v")]


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"query_timeout": "7", "max_execution_time": "0"}, "query_timeout = 7 seconds"),
        ({"query_timeout": "7", "max_execution_time": "50"}, "max_execution_time = 50 ms"),
        ({"query_timeout": "0", "max_execution_time": "50"}, "max_execution_time = 50 ms"),
        ({"query_timeout": "7", "max_execution_time": "7000"}, "query_timeout = 7 seconds"),
        ({"query_timeout": "7", "max_execution_time": "60000"}, "query_timeout = 7 seconds"),
        ({"query_timeout": "7", "max_statement_time": "0.5"}, "max_statement_time = 0.5 seconds"),
        ({"query_timeout": "0", "max_execution_time": "0"}, "query_timeout = 0 seconds"),
    ],
)
def test_a_query_has_the_shorter_limit(values: dict[str, str], limit: str) -> None:
    given = {"max_execution_time": "0", "max_statement_time": "0", **values}
    assert str(TimeLimit.of("SELECT", given)) == limit


def test_a_write_has_no_limit_of_queries() -> None:
    values = {
        "query_timeout": "7",
        "insert_timeout": "9",
        "max_execution_time": "50",
        "max_statement_time": "0",
    }
    assert str(TimeLimit.of("INSERT", values)) == "insert_timeout = 9 seconds"


def test_a_query_ends_at_max_execution_time(session: Session) -> None:
    run(session, "SET max_execution_time = 50")
    numbers = ", ".join(str(number) for number in range(1000))
    crossed = ", ".join(f"(SELECT explode(array({numbers})) AS n) AS t{i}" for i in range(5))
    with pytest.raises(
        UnavailableError, match="the statement ran longer than max_execution_time = 50 ms; SET max"
    ):
        run(session, f"SELECT count(*) FROM {crossed} WHERE t0.n + t1.n + t2.n + t3.n + t4.n = 7")
