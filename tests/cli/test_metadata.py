"""What a user without a grant learns of databases: of one that exists as much as of one that does not."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from seqstore import Settings, Store
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from seqstore.store.sql.evaluate.table_functions import _FUNCTIONS
from seqstore.store.sql.session.statement_kind import all_kinds, parse
from seqstore.store.sql.session.system_tables import system_table_names
from tests.cli.mysql_client import ask, dial, log_in, read_packet, send_packet
from tests.support.http_server import Client, serving

# Of each kind of statement that only reads: {db} is the database, and every name in it holds `cloak`.
STATEMENTS = {
    "Describe": "DESC {db}.cloak_t",
    "DescribeHistory": "DESC HISTORY {db}.cloak_t",
    "Explain": "EXPLAIN SELECT * FROM {db}.cloak_t",
    "Query": "SELECT * FROM {db}.cloak_t",
    "IntoOutfile": "SELECT * FROM {db}.cloak_t INTO OUTFILE 'file:///cloak/x'",
    "ShowAlterTable": "SHOW ALTER TABLE COLUMN FROM {db}",
    "ShowBackup": "SHOW BACKUP FROM {db}",
    "ShowColumns": "SHOW FULL COLUMNS FROM {db}.cloak_t",
    "ShowCreateDatabase": "SHOW CREATE DATABASE {db}",
    "ShowCreateTable": "SHOW CREATE TABLE {db}.cloak_t",
    "ShowCreateView": "SHOW CREATE VIEW {db}.cloak_t",
    "ShowDatabases": "SHOW DATABASES",
    "ShowExport": "SHOW EXPORT FROM {db}",
    "ShowGrants": "SHOW GRANTS FOR cloak_u",
    "ShowIndex": "SHOW INDEX FROM {db}.cloak_t",
    "ShowList": "SHOW STATUS",
    "ShowLoad": "SHOW LOAD FROM {db}",
    "ShowPartitions": "SHOW PARTITIONS FROM {db}.cloak_t",
    "ShowProcesses": "SHOW FULL PROCESSLIST",
    "ShowProperty": "SHOW PROPERTY FOR cloak_u",
    "ShowRestore": "SHOW BRIEF RESTORE FROM {db}",
    "ShowRoles": "SHOW ROLES",
    "ShowShipping": "SHOW SHIPPING",
    "ShowRoutineLoad": "SHOW ALL ROUTINE LOAD FOR {db}.cloak_j",
    "ShowSnapshot": "SHOW SNAPSHOT ON '/cloak' WHERE SNAPSHOT = '{db}'",
    "ShowStreamLoad": "SHOW STREAM LOAD FROM {db}",
    "ShowTableStatus": "SHOW TABLE STATUS FROM {db}",
    "ShowTables": "SHOW FULL TABLES FROM {db}",
    "ShowTransaction": "SHOW TRANSACTION FROM {db} WHERE label = 'cloak_l'",
    "ShowVariables": "SHOW VARIABLES",
    "ShowViews": "SHOW VIEWS FROM {db}",
    "ShowWarnings": "SHOW WARNINGS",
    "FilteredShow": "SHOW TABLES FROM {db} WHERE 1 = 1",
    "AdminShowConfig": "SHOW FRONTEND CONFIG",
    "ShowWorkloadGroups": "SHOW WORKLOAD GROUPS",
    "UseDatabase": "USE {db}",
}
# Others that name a table or a database, or end something of another user.
MORE = [
    "SHOW CREATE ROUTINE LOAD FOR {db}.cloak_j",
    "SHOW ROUTINE LOAD TASK WHERE JobName = 'cloak_j'",
    "SHOW ALL GRANTS",
    "SHOW GLOBAL VARIABLES",
    "EXPLAIN INSERT INTO {db}.cloak_t SELECT 1",
    "EXPLAIN DELETE FROM {db}.cloak_t WHERE cloak_c = 1",
    "CREATE TABLE mine.copy LIKE {db}.cloak_t",
    "CREATE TABLE mine.copy UNIQUE KEY(cloak_c) AS SELECT * FROM {db}.cloak_t",
    "INSERT INTO mine.own SELECT cloak_c FROM {db}.cloak_t",
    "INSERT INTO {db}.cloak_t VALUES (1)",
    "UPDATE {db}.cloak_t SET cloak_c = 1 WHERE cloak_c = 1",
    "DELETE FROM {db}.cloak_t WHERE cloak_c = 1",
    "MERGE INTO mine.own USING {db}.cloak_t s ON own.k = s.cloak_c WHEN MATCHED THEN DELETE",
    "SELECT * FROM {db}.cloak_t FOR VERSION AS OF 1",
    "TRUNCATE TABLE {db}.cloak_t",
    "ALTER TABLE {db}.cloak_t ADD COLUMN x INT",
    "DROP TABLE {db}.cloak_t",
    "DROP DATABASE {db}",
    "OPTIMIZE {db}.cloak_t",
    "VACUUM {db}.cloak_t DRY RUN",
    "REORG TABLE {db}.cloak_t APPLY (PURGE)",
    "RESTORE TABLE {db}.cloak_t TO VERSION 1",
    "CANCEL LOAD FROM {db} WHERE LABEL = 'cloak_l'",
    "CANCEL ALTER TABLE COLUMN FROM {db}.cloak_t",
    "CANCEL BACKUP FROM {db}",
    "CANCEL EXPORT FROM {db} WHERE LABEL = 'cloak_l'",
    "EXPORT TABLE {db}.cloak_t TO 'file:///cloak/x'",
    "CANCEL RESTORE FROM {db}",
    "BACKUP SNAPSHOT {db}.cloak TO '/cloak'",
    "RESTORE SNAPSHOT {db}.cloak FROM '/cloak'",
    "ALTER TABLE {db}.cloak_t MODIFY COLUMN cloak_c BIGINT KEY",
    "PAUSE ROUTINE LOAD FOR {db}.cloak_j",
    "STOP ROUTINE LOAD FOR {db}.cloak_j",
    "ALTER ROUTINE LOAD FOR {db}.cloak_j PROPERTIES ('max_batch_rows' = '300000')",
]
READING = ("SHOW", "DESC", "DESCRIBE", "EXPLAIN", "SELECT", "WITH", "USE")


def settings_of(folder: Path) -> Settings:
    """With a lock that is waited for as long as the tests of this module take."""
    return Settings(load_paths=(str(folder),), update_lock_seconds=86_400)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("metadata")
    with Store.open(folder / "data", settings=settings_of(folder)) as store:
        store.accounts.create("eve")
        store.accounts.create("cloak_u")
        for name in ("mine", "secret", "empty", "part"):
            store.create_database(name)
        store.accounts.grant("eve", ["SELECT", "LOAD", "ALTER", "CREATE"], "mine")
        store.accounts.create("tess")
        store.accounts.grant("tess", ["ALL", "GRANT", "SHOW_VIEW"], "mine")
        store.accounts.grant("tess", ["ALL", "GRANT", "SHOW_VIEW"], "part.own_t")
        yield store


@pytest.fixture(scope="module")
def http(store: Store) -> Iterator[Client]:
    with serving(store) as client:
        yield client


@pytest.fixture(scope="module")
def port(store: Store, http: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a server with a database `secret` that eve may not see, full of names with `cloak`."""
    with MysqlServer(store) as server:
        root = connect(server.port, "root")
        for text in (
            "CREATE TABLE mine.own (k INT) UNIQUE KEY(k)",
            "CREATE TABLE secret.cloak_t (cloak_c INT COMMENT 'cloak_n') UNIQUE KEY(cloak_c)",
            "CREATE TABLE secret.cloak_w (k INT, v INT) UNIQUE KEY(k)",
            "INSERT INTO secret.cloak_w VALUES (1, 1)",
            "GRANT LOAD_PRIV ON secret.* TO cloak_u",
            f"CREATE ROUTINE LOAD secret.cloak_j ON cloak_t FROM FILES ('path' = '{store.path.parent}/*')",
            "USE secret",
            "BEGIN WITH LABEL cloak_l",
            "INSERT INTO cloak_t VALUES (7)",
            "COMMIT",
        ):
            ask(root, text)
        make_part(root, http, f"{store.path.parent}/*")
        http.load("secret.cloak_t", "8\n", label="cloak_s")
        ask(root, "ALTER TABLE secret.cloak_t ADD COLUMN cloak_d INT")
        ask(root, "SET query_timeout = 86400")
        with waiting(server.port, root):
            yield server.port


@contextmanager
def waiting(port: int, root: Any) -> Iterator[None]:
    """A statement that runs as long as the block: it waits for the lock of another transaction."""
    holder = connect(port, "root")
    for text in ("BEGIN", "UPDATE secret.cloak_w SET v = 2 WHERE k = 1"):
        ask(holder, text)
    update = "UPDATE secret.cloak_w SET v = 3 WHERE k = 1"
    running = threading.Thread(target=try_to, args=(root, update))
    running.start()
    while "secret.cloak_w" not in try_to(holder, "SHOW FULL PROCESSLIST"):
        assert running.is_alive()
    yield
    try_to(holder, f"KILL {root.thread_id()}")  # on a slow machine its wait may have ended
    running.join()
    holder.close()


def make_part(root: Any, http: Client, files: str) -> None:
    """Fills the database `part`: of its tables and jobs tess may see one, with all privileges but ADMIN."""
    for name in ("cloak", "own"):
        for text in (
            f"CREATE TABLE part.{name}_t ({name}_c INT COMMENT '{name}_n') UNIQUE KEY({name}_c)",
            f"CREATE VIEW part.{name}_v AS SELECT {name}_c FROM part.{name}_t",
            f"CREATE ROUTINE LOAD part.{name}_j ON {name}_t FROM FILES ('path' = '{files}')",
            f"LOAD LABEL part.{name}_b (DATA INFILE('{files}/none') INTO TABLE {name}_t)",
            "USE part",
            f"BEGIN WITH LABEL {name}_l",
            f"INSERT INTO {name}_t VALUES (7)",
            "COMMIT",
        ):
            ask(root, text)
        http.load(f"part.{name}_t", "8\n", label=f"{name}_s")
        http.load(f"part.{name}_t", "9\n", label=f"{name}_p", two_phase_commit="true")


def connect(port: int, user: str) -> Any:
    return pymysql.connect(host="127.0.0.1", port=port, user=user, read_timeout=120)


def try_to(connection: Any, text: str) -> str:
    """The rows or the error, as text."""
    try:
        return repr(ask(connection, text))
    except pymysql.MySQLError as error:
        return repr(error)


def learnt(found: str, database: str) -> str:
    """An answer without the name of the database that was asked for, times and numbers."""
    named = re.sub(rf"(?<![A-Za-z_]){database}(?![a-z])", "{db}", found)  # no function such as .._if_absent
    return re.sub(r"\d+", "0", named)


@pytest.mark.family(8)
@pytest.mark.parametrize("text", [*STATEMENTS.values(), *MORE])
def test_a_hidden_database_reads_as_one_that_does_not_exist(port: int, text: str) -> None:
    answers = []
    for database in ("secret", "absent"):
        eve = connect(port, "eve")
        answers.append(learnt(try_to(eve, text.format(db=database)), database))
        eve.close()
    assert answers[0] == answers[1]
    unknown = (
        answers[0].replace("cloak_t", "").replace("cloak_u", "") if "Error" in answers[0] else answers[0]
    )
    assert "cloak" not in unknown or "syntax" in unknown, unknown


def test_every_statement_that_reads_is_tried() -> None:
    kinds = {kind.statement.__name__ for kind in all_kinds() if kind.starts[0].split()[0] in READING}
    assert kinds | {"AdminShowConfig"} == set(STATEMENTS)
    for name, text in STATEMENTS.items():
        assert type(parse(text.format(db="x"))[0]).__name__ == name


@pytest.mark.family(6)
@pytest.mark.parametrize("table", system_table_names())
def test_no_system_table_tells_a_hidden_name(port: int, table: str) -> None:
    """processlist, user_privileges and schema_privileges had the rows of all users."""
    root, eve = connect(port, "root"), connect(port, "eve")
    tess = connect(port, "tess")
    for each in (eve, tess):
        assert "cloak" not in try_to(each, f"SELECT * FROM information_schema.{table}")
        assert "Error" not in try_to(each, f"SELECT * FROM information_schema.{table}")
    if table in ("tables", "columns", "processlist", "schema_privileges", "partitions"):
        assert "cloak" in try_to(root, f"SELECT * FROM information_schema.{table}")


@pytest.mark.parametrize("function", sorted(_FUNCTIONS))
def test_no_table_function_tells_a_hidden_name(port: int, function: str) -> None:
    eve = connect(port, "eve")
    rest = {"table_changes": "0", "key_history": "7"}[function]
    answers = [
        learnt(try_to(eve, f"SELECT * FROM {function}('{database}.cloak_t', {rest})"), database)
        for database in ("secret", "absent")
    ]
    assert answers[0] == answers[1]
    assert "Error" in answers[0]


def test_the_field_list_needs_select(port: int) -> None:
    """COM_FIELD_LIST was answered without a check of privileges."""
    client, _ = dial(port)
    with client:
        log_in(client, "eve")
        for database in ("secret", "absent"):
            send_packet(client, b"\2" + database.encode())
            assert b"Unknown database" in read_packet(client)
        send_packet(client, b"\4cloak_t\0%")
        assert b"No database selected" in read_packet(client)


VIEWS = [
    "SHOW CREATE TABLE {db}.cloak_v",
    "SHOW CREATE VIEW {db}.cloak_v",
    "SELECT * FROM {db}.cloak_v",
    "DROP VIEW {db}.cloak_v",
    "ALTER VIEW {db}.cloak_v AS SELECT 1 AS x",
    "ALTER TABLE {db}.own_t REPLACE WITH TABLE cloak_t",
    "ALTER TABLE {db}.own_t RENAME cloak_t",
    "ALTER TABLE {db}.own_t RENAME cloak_v",
    "SHOW LOAD FROM {db} WHERE LABEL = 'cloak_b'",
    "CANCEL LOAD FROM {db} WHERE LABEL = 'cloak_b'",
]


@pytest.mark.family(12)
@pytest.mark.parametrize("text", [*STATEMENTS.values(), *MORE, *VIEWS])
def test_a_hidden_table_reads_as_one_that_does_not_exist(port: int, text: str) -> None:
    """Tables, views, loads and jobs of a database in which the user may see another table."""
    answers = []
    for name in ("cloak_", "absent_"):
        tess = connect(port, "tess")
        asked = text.format(db="part").replace("cloak_", name)
        answers.append(re.sub(r"\d+", "0", try_to(tess, asked)).replace("absent_", "cloak_"))
        tess.close()
    assert answers[0] == answers[1]
    asked_for = "Error" in answers[0] or "Tables_in" in answers[0]
    assert asked_for or "cloak" not in answers[0], answers[0]


def test_a_table_that_may_be_seen_is_shown_with_its_loads_and_jobs(port: int) -> None:
    tess = connect(port, "tess")
    shown = {
        "SHOW TABLES FROM part": "own_t",
        "SHOW FULL COLUMNS FROM part.own_t": "own_c",
        "SHOW ALL ROUTINE LOAD FOR part.own_j": "own_j",
        "SHOW STREAM LOAD FROM part": "own_s",
        "SHOW LOAD FROM part": "own_b",
        "SHOW TRANSACTION FROM part WHERE label = 'own_l'": "own_l",
        "SELECT * FROM information_schema.tables": "own_t",
        "SELECT * FROM information_schema.table_privileges": "own_t",
        "SHOW GRANTS": "own_t",
        "SELECT own_c FROM part.own_t": "8",
    }
    for text, found in shown.items():
        answer = try_to(tess, text)
        assert found in answer, text
        assert "cloak" not in answer, text
    ask(tess, "USE part")
    ask(tess, "PAUSE ALL ROUTINE LOAD")
    assert "'PAUSED'" in try_to(tess, "SHOW ROUTINE LOAD FOR part.own_j")
    assert "PAUSED" not in try_to(connect(port, "root"), "SHOW ROUTINE LOAD FOR part.cloak_j")


ROUTES = [
    ("PUT", "/api/{}/{}/_stream_load"),
    ("PUT", "/api/_http_stream"),
    ("PUT", "/api/{}/_stream_load_2pc"),
    ("PUT", "/api/{}/{}/_stream_load_2pc"),
    ("GET", "/api/{}/_load_info"),
    ("GET", "/api/{}/get_load_state"),
    ("GET", "/api/_load_error_log"),
    ("GET", "/health"),
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/api/health"),
    ("GET", "/metrics"),
    ("GET", "/api/bootstrap"),
    ("GET", "/api/fe_version_info"),
    ("GET", "/api/{}/{}/_schema"),
    ("GET", "/api/{}/{}/{}/_schema"),
    ("GET", "/api/{}/{}/_count"),
    ("POST", "/api/{}/{}/_query_plan"),
    ("GET", "/api/{}/{}/_query_plan"),
    ("GET", "/api/backends"),
    ("GET", "/rest/v1/system"),
    ("POST", "/rest/v1/login"),
    ("GET", "/rest/v2/manager/node/backends"),
    ("GET", "/rest/v2/manager/node/frontends"),
    ("POST", "/api/query/{}/{}"),
    ("GET", "/api/enable_light_schema_change/{}/{}"),
    ("GET", "/api/_get_ddl"),
    ("GET", "/api/tso"),
    ("POST", "/api/ingestion_load/{}/{}/_create"),
    ("POST", "/api/ingestion_load/{}/{}/_update"),
    ("GET", "/iceberg/v1/config"),
    ("POST", "/iceberg/v1/oauth/tokens"),
    ("GET", "/iceberg/v1/namespaces"),
    ("GET", "/iceberg/v1/namespaces/{}"),
    ("HEAD", "/iceberg/v1/namespaces/{}"),
    ("GET", "/iceberg/v1/namespaces/{}/tables"),
    ("GET", "/iceberg/v1/namespaces/{}/tables/{}"),
    ("HEAD", "/iceberg/v1/namespaces/{}/tables/{}"),
    ("POST", "/iceberg/v1/namespaces"),
    ("DELETE", "/iceberg/v1/namespaces/{}"),
    ("POST", "/iceberg/v1/namespaces/{}/properties"),
    ("POST", "/iceberg/v1/namespaces/{}/tables"),
    ("POST", "/iceberg/v1/namespaces/{}/register"),
    ("POST", "/iceberg/v1/namespaces/{}/tables/{}"),
    ("DELETE", "/iceberg/v1/namespaces/{}/tables/{}"),
    ("POST", "/iceberg/v1/tables/rename"),
    ("POST", "/iceberg/v1/transactions/commit"),
    ("GET", "/"),
    ("GET", "/console/{}"),
    ("POST", "/api/console/login"),
    ("POST", "/api/console/logout"),
    ("GET", "/api/console/session"),
    ("GET", "/api/console/overview"),
    ("GET", "/api/console/tables"),
    ("GET", "/api/console/table/{}/{}"),
    ("GET", "/api/console/table/{}/{}/versions"),
    ("GET", "/api/console/table/{}/{}/segments"),
    ("GET", "/api/console/table/{}/{}/lateness"),
    ("GET", "/api/console/loads"),
    ("GET", "/api/console/jobs"),
    ("GET", "/api/console/rejected/{}"),
    ("PUT", "/api/console/load/{}/{}"),
    ("POST", "/api/console/preview/{}/{}"),
    ("POST", "/api/console/query"),
    ("POST", "/api/console/download"),
    ("GET", "/api/console/names"),
    ("GET", "/api/console/server"),
    ("GET", "/api/console/audit"),
    ("GET", "/api/console/settings"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("user", ["eve:", None])
def test_no_route_tells_a_hidden_name(
    port: int, http: Client, method: str, path: str, user: str | None
) -> None:
    """/metrics told the names of databases and jobs to anybody."""
    answers = []
    for database in ("secret", "absent"):
        full = path.replace("{}", database, 1).replace("{}", "cloak_t")
        headers = {"label": "cloak_s", "sql": f"INSERT INTO {database}.cloak_t SELECT * FROM http_stream()",
                   "txn_operation": "commit", "txn_id": "1"}  # fmt: skip
        answer = http.request(method, f"{full}?label=cloak_s&file=cloak&redirected=1", b"1\n", headers, user)
        asked_for = re.compile("cloak_s|'cloak'|'cloak_t'")
        answers.append(learnt(asked_for.sub("", answer.body.decode()), database))
    if path != "/metrics":
        assert answers[0] == answers[1]
    assert "cloak" not in answers[0]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_route_tells_a_hidden_table_or_ends_its_load(
    port: int, http: Client, method: str, path: str
) -> None:
    answers = []
    for name in ("cloak_", "absent_"):
        full = path.replace("{}", "part", 1).replace("{}", f"{name}t")
        label = f"{name}p" if "2pc" in path else f"{name}s"
        headers = {"label": label, "sql": f"INSERT INTO part.{name}t SELECT * FROM http_stream()",
                   "txn_operation": "commit"}  # fmt: skip
        answer = http.request(
            method, f"{full}?label={label}&file=cloak&redirected=1", b"1\n", headers, "tess:"
        )
        answers.append(re.sub(r"\d+", "0", answer.body.decode().replace(label, "").replace(f"{name}t", "")))
    if path != "/metrics":
        assert answers[0] == answers[1]
    assert "cloak" not in answers[0].replace("'cloak'", "")


def test_a_grant_on_a_table_is_enough_for_its_loads(port: int, http: Client) -> None:
    answer = http.request("PUT", "/api/part/own_t/_stream_load?redirected=1", b"1\n", {"label": "x"}, "tess:")
    assert json.loads(answer.body)["Status"] == "Success"
    headers = {"label": "own_p", "txn_operation": "abort"}
    answer = http.request("PUT", "/api/part/_stream_load_2pc", b"", headers, "tess:")
    assert json.loads(answer.body)["status"] == "Success"
    metrics = http.request("GET", "/metrics", user="tess:").body
    assert b"own_j" in metrics
    assert b"cloak_j" not in metrics


def test_every_route_is_tried(store: Store) -> None:
    service = HttpService(ServerSessions(store), ServerSettings(), 0)
    assert [(each.method, "/" + "/".join(each.path)) for each in service._routes] == ROUTES


def test_metrics_tell_jobs_to_users_that_see_their_database(port: int, http: Client) -> None:
    assert b"cloak_j" in http.request("GET", "/metrics").body
    assert http.request("GET", "/metrics", user="eve:wrong").status == 401


def test_load_states_are_in_json(port: int, http: Client) -> None:
    """For root, so that the answers above are no accident of the requests."""
    found = json.loads(http.request("GET", "/api/secret/_load_info?label=cloak_s").body)
    assert found["jobInfo"]["state"] == "FINISHED"
