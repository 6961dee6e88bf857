"""The endpoints of the console without a browser: grants, logins, pages of long lists, uploads, files."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqstore import Store
from seqstore.cli.clients.audit_log import FILE, AuditLog
from seqstore.cli.clients.login_guard import FAILURES_AT_ONCE_MAX, LoginGuard
from seqstore.cli.clients.sessions import ServerSessions
from seqstore.cli.console import server_view, static_files
from seqstore.cli.console.audit_tail import newest_events
from seqstore.cli.server.http import HttpService
from seqstore.cli.server.settings import ServerSettings
from seqstore.store.settings import Settings as StoreSettings
from tests.support.console.shop import LOADS, PASSWORD, console_server
from tests.support.http_server import Answer, Client, serving
from tests.support.rows import schema_of

API = "/api/console"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Store]]:
    with console_server(tmp_path_factory.mktemp("console")) as served:
        yield served


@pytest.fixture
def client(shop: tuple[Client, Store]) -> Client:
    return shop[0]


def ask(client: Client, path: str, user: str = "root", body: Any = None, method: str = "") -> Answer:
    data = json.dumps(body).encode() if body is not None else None
    method = method or ("POST" if data else "GET")
    return client.request(method, f"{API}/{path}", data, user=f"{user}:{PASSWORD}")


def log_in(client: Client, user: str = "root", password: str = PASSWORD, origin: str = "") -> Answer:
    body = json.dumps({"user": user, "password": password})
    headers = {"Origin": origin or client.address}
    return client.request("POST", f"{API}/login", body, headers, user=None)


def by_cookie(client: Client, cookie: str, method: str, path: str, **headers: str) -> Answer:
    body = b'{"sql": "SELECT 1"}' if method == "POST" else None
    return client.request(method, path, body, {"Cookie": cookie, **headers}, user=None)


# ------------------------------------------------------------------------------------------ grants


def readings(store: Store) -> list[str]:
    """Every path of the console that a GET asks for, with the names of tables of each database in it."""
    routes = HttpService(ServerSessions(store), ServerSettings(), 0).all_routes()
    paths = ["/".join(each.path) for each in routes if each.method == "GET"]
    found = [path.removeprefix("api/console/") for path in paths if path.startswith("api/console/")]
    assert len(found) >= 10
    named = ("shop/orders", "secret/salaries", "secret/absent")
    return [
        re.sub(r"\{\}/\{\}", name, path).replace("{}", "1")
        for path in found
        for name in (named if "{}/{}" in path else named[:1])
    ]


@pytest.mark.parametrize(
    ("user", "hidden"),
    [("eve", ("salaries", "secret", "orders", "shop", "clicks")), ("ann", ("salaries", "secret"))],
)
def test_no_endpoint_tells_a_user_of_what_it_may_not_see(
    shop: tuple[Client, Store], user: str, hidden: tuple[str, ...]
) -> None:
    client, store = shop
    for path in readings(store):
        answer = ask(client, path, user)
        asked_for = path.split("/")[1:] if path.startswith("table/") else []
        text = answer.body.decode()
        for word in asked_for:  # a refusal repeats the names of the request
            text = text.replace(word, "")
        assert [word for word in hidden if word in text] == [], (path, answer.body)


def test_a_hidden_table_reads_as_one_that_does_not_exist(client: Client) -> None:
    for part in ("", "/versions", "/segments", "/lateness"):
        hidden = ask(client, f"table/secret/salaries{part}", "ann")
        absent = ask(client, f"table/secret/absent{part}", "ann")
        assert hidden.status == absent.status == 403
        assert hidden.body.replace(b"salaries", b"absent") == absent.body


def test_an_administrator_sees_what_others_do_not(client: Client) -> None:
    for path in ("audit", "settings"):
        assert ask(client, path, "ann").status == 403
        assert ask(client, path).status == 200
    assert "memory_bytes" in ask(client, "server").json
    assert "memory_bytes" not in ask(client, "server", "ann").json


def test_rejected_rows_of_a_load_are_for_users_that_may_load_its_table(client: Client) -> None:
    found = ask(client, "loads?like=orders-03", "ann").json["loads"]
    [load] = found
    shown = ask(client, f"rejected/{load['txn_id']}", "ann")
    assert [row["line"] for row in shown.json["rows"]] == list(range(61, 69))
    assert "not a number" in shown.json["rows"][0]["row"]
    assert ask(client, f"rejected/{load['txn_id']}", "eve").status == 404


# ------------------------------------------------------------------------------------------ logins


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(client: Client) -> None:
    answer = log_in(client)
    cookie = answer.headers["Set-Cookie"]
    assert answer.status == 200
    for part in ("HttpOnly", "SameSite=Strict", "Path=/api/console/"):
        assert part in cookie
    assert PASSWORD not in cookie


def test_the_cookie_opens_the_console_and_nothing_else(client: Client) -> None:
    cookie = log_in(client).headers["Set-Cookie"].partition(";")[0]
    assert by_cookie(client, cookie, "GET", f"{API}/session").json["user"] == "root"
    for method, path in (
        ("GET", "/api/backends"),
        ("POST", "/api/query/internal/shop"),
        ("GET", "/rest/v1/system"),
    ):
        assert by_cookie(client, cookie, method, path, Origin=client.address).status == 401


def test_what_changes_state_needs_the_origin_of_the_server(shop: tuple[Client, Store]) -> None:
    client, store = shop
    cookie = log_in(client).headers["Set-Cookie"].partition(";")[0]
    routes = HttpService(ServerSessions(store), ServerSettings(), 0).all_routes()
    changing = [each for each in routes if each.path[:2] == ("api", "console") and each.method != "GET"]
    assert len(changing) >= 4
    for each in changing:
        path = "/" + "/".join(each.path).replace("{}", "shop", 1).replace("{}", "orders")
        for headers in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert by_cookie(client, cookie, each.method, path, **headers).status == 403, (path, headers)
    assert by_cookie(client, cookie, "POST", f"{API}/query", Origin=client.address).status == 200


def test_logging_out_ends_the_cookie(client: Client) -> None:
    cookie = log_in(client, "ann").headers["Set-Cookie"].partition(";")[0]
    assert by_cookie(client, cookie, "POST", f"{API}/logout", Origin=client.address).status == 200
    answer = by_cookie(client, cookie, "GET", f"{API}/session")
    assert answer.status == 401
    assert "WWW-Authenticate" not in answer.headers  # a browser would open a window of its own


def test_another_password_ends_the_cookie(shop: tuple[Client, Store]) -> None:
    client, store = shop
    store.accounts.create("bob", PASSWORD)
    cookie = log_in(client, "bob").headers["Set-Cookie"].partition(";")[0]
    store.accounts.set_password("bob", "another")
    assert by_cookie(client, cookie, "GET", f"{API}/session").status == 401


def test_failed_logins_are_counted_and_recorded(store: Store, tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "log")
    audit.start()
    with serving(store, LoginGuard(lambda: 0.0), audit) as client:
        statuses = [log_in(client, "nobody", f"wrong {number}").status for number in range(12)]
    audit.stop()
    assert statuses == [401] * FAILURES_AT_ONCE_MAX + [429] * 2
    events = newest_events(tmp_path / "log", limit=50)["events"]
    assert [(event["event"], event["user"]) for event in events] == [("login", "nobody")] * 12
    assert "wrong" not in json.dumps(events)


# ------------------------------------------------------------------------------------------ long lists


def test_versions_come_in_pages(client: Client) -> None:
    newest = ask(client, "table/shop/orders/versions?limit=10").json
    last = newest["version"]
    assert [each["version"] for each in newest["versions"]] == list(range(last, last - 10, -1))
    seen, before = [], last + 1
    while before:
        page = ask(client, f"table/shop/orders/versions?limit=7&before={before}").json
        seen += [each["version"] for each in page["versions"]]
        before = seen[-1] if page["has_more"] else 0
    assert seen == list(range(last, 0, -1))


def test_loads_come_in_pages_and_have_their_figures(client: Client) -> None:
    seen: list[dict[str, Any]] = []
    before = ""
    while True:
        page = ask(client, f"loads?limit=5&like=orders-&before={before}").json
        seen += page["loads"]
        if page["before"] is None:
            break
        before = page["before"]
    assert [each["label"] for each in seen] == [f"orders-{n:02}" for n in reversed(range(LOADS))]
    assert seen[0]["metrics"]["rows_loaded"] == 60
    [failed] = ask(client, "loads?status=ABORTED&like=broken").json["loads"]
    assert "too many filtered rows" in failed["reason"]


def test_a_page_of_many_tables_reads_the_figures_of_its_tables_only(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        store.create_table(f"db.t{number:03}", schema_of("k INT NOT NULL"))
    opened: list[str] = []
    table = Store.table
    monkeypatch.setattr(Store, "table", lambda self, name: opened.append(name) or table(self, name))  # type: ignore[func-returns-value]
    with serving(store) as client:
        page = client.request("GET", f"{API}/tables?like=T1&offset=40&limit=3").json
    assert page["total"] == 100
    assert [each["name"] for each in page["tables"]] == ["t140", "t141", "t142"]
    assert opened == ["db.t140", "db.t141", "db.t142"]


def test_the_newest_events_are_read_from_the_end_of_the_log(tmp_path: Path) -> None:
    def lines(first: int, last: int) -> str:
        events = [
            {"event": "load", "statement": f"number {n} {'é' * n}", "ms": n} for n in range(first, last)
        ]
        return "".join(f"{json.dumps(event, ensure_ascii=False)}\n" for event in events)

    (tmp_path / "audit-20260101T000000.log").write_text(lines(0, 300))
    (tmp_path / FILE).write_text(lines(300, 600) + '{"event": "half')
    found = newest_events(tmp_path, limit=450)["events"]
    assert [event["ms"] for event in found] == list(range(599, 149, -1))
    slow = newest_events(tmp_path, limit=5, ms_min=590, like="NUMBER")["events"]
    assert [event["ms"] for event in slow] == [599, 598, 597, 596, 595]


# ------------------------------------------------------------------------------------------ views


def test_segments_have_their_key_range_and_what_compaction_does_next(client: Client) -> None:
    found = ask(client, "table/shop/orders/segments").json
    assert (found["key"], found["total"]) == ("id", LOADS + 1)
    first = found["segments"][0]
    assert (first["low"], first["high"], first["rows"]) == ("0", "59", 60)
    assert 0 < first["dead"] < 60
    assert {each["next"] for each in found["segments"]} == {"merge"}
    assert "off for this table" in found["plan"]


def test_the_time_line_counts_rejected_rows(client: Client) -> None:
    """A version of a stream load had none: its rows are rejected before they are written."""
    found = ask(client, "table/shop/orders/versions").json["versions"]
    by_label = {each["label"]: each for each in found}
    assert [by_label[label]["rows_filtered"] for label in ("orders-02", "orders-03")] == [0, 8]
    assert by_label["orders-03"]["rows_total"] - by_label["orders-03"]["rows_loaded"] == 8


def test_lateness_counts_rows_that_lost_too(client: Client) -> None:
    found = ask(client, "table/shop/orders/lateness").json
    assert (found["column"], found["is_cut"]) == ("updated", False)
    days = found["bars"].index("< 7 d")
    assert (found["counted"][days], found["lost"][days]) == (0, 25 * len(range(4, LOADS, 5)))
    assert found["rows"] == sum(found["counted"]) + sum(found["lost"])
    assert "no sequence column" in ask(client, "table/shop/clicks/lateness").json["reason"]


def test_the_overview_says_what_is_wrong_and_what_to_do(client: Client) -> None:
    found = ask(client, "overview").json["findings"]
    paused = next(each for each in found if "load_refunds" in each["what"])
    assert paused["severity"] == "error"
    assert "resume" in paused["advice"]
    assert any("1 load failed" in each["what"] for each in found)
    assert "refunds" not in json.dumps(ask(client, "overview", "eve").json)


def test_settings_have_reasons(client: Client) -> None:
    found = ask(client, "settings").json["settings"]
    assert len(found) > 40
    assert [each["name"] for each in found if not each["reason"]] == []
    changed = {each["name"] for each in found if each["is_changed"]}
    assert changed == {"load_paths", "auto_compaction"}


def test_settings_have_no_keys_of_uris() -> None:
    """The login of a schema registry, which is a part of its address, was shown."""
    settings = StoreSettings(schema_registries=("https://user:hush@registry:8081?token=hush",))
    [found] = [e for e in server_view.settings({"store": settings}) if e["name"] == "schema_registries"]
    assert found["value"] == ["https://******@registry:8081?token=******"]


def test_names_complete_a_word(client: Client) -> None:
    def names(query: str, user: str = "ann") -> list[str]:
        return [each["name"] for each in ask(client, f"names?{query}", user).json["names"]]

    assert names("db=shop&word=or") == ["orders"]
    assert names("word=shop.c") == ["shop.clicks"]
    assert names("db=shop&word=upd&tables=orders") == ["updated"]
    assert names("db=secret&word=") == ["shop"]
    assert names("db=secret&word=p&tables=salaries") == []


# ------------------------------------------------------------------------------------------ statements


def test_a_query_returns_texts_that_lose_no_digit(client: Client) -> None:
    text = "SELECT 9223372036854775807 a, CAST(NULL AS INT) b, 'x' c; SELECT 2"
    first, second = ask(client, "query", body={"sql": text}).json["results"]
    assert first["rows"] == [["9223372036854775807", None, "x"]]
    assert [each["type"] for each in first["columns"]] == ["number", "number", "text"]
    assert second["rows"] == [["2"]]
    cut = ask(client, "query", body={"sql": "SELECT id FROM shop.orders ORDER BY id", "limit": 3}).json
    assert (cut["results"][0]["rows"], cut["results"][0]["is_cut"]) == ([["0"], ["1"], ["2"]], True)


@pytest.mark.parametrize(
    ("body", "expected"),
    [({"sql": ""}, "sql"), ({"sql": "SELECT 1", "limit": -1}, "limit"), ({"sql": "SELEC"}, "SELEC"),
     ({"sql": ";".join(["SELECT 1"] * 51)}, "50"),
     ({"sql": "SELECT * FROM secret.salaries"}, "SELECT privilege")],
)  # fmt: skip
def test_a_wrong_query_is_refused_with_its_reason(
    client: Client, body: dict[str, Any], expected: str
) -> None:
    answer = ask(client, "query", "ann", body)
    assert answer.status in (400, 403, 404)
    assert expected.lower() in answer.json["error"].lower()


def test_a_fault_of_syntax_has_its_place(client: Client) -> None:
    answer = ask(client, "query", body={"sql": "SELECT 1;\n SELECT 2 +"})
    assert answer.json["place"] == {"line": 2, "column": 11, "offset": 20}
    assert ask(client, "query", body={"sql": "SELECT * FROM shop.absent"}).json["place"] is None


def test_words_and_functions_are_those_that_statements_may_have(client: Client) -> None:
    session = ask(client, "session", "eve").json
    assert {"SELECT", "ROUTINE", "VACUUM", "OPTIMIZE"} <= set(session["words"])
    assert {"key_history", "date_trunc", "sum"} <= set(session["functions"])


def test_all_rows_of_a_query_are_a_file(client: Client) -> None:
    text = "SELECT id, IF(id = 3, NULL, item) item FROM shop.orders ORDER BY id"
    found = ask(client, "download", body={"sql": text, "format": "csv"})
    rows = list(csv.reader(io.StringIO(found.body.decode())))
    assert rows[0] == ["id", "item"]
    assert rows[4] == ["3", "\\N"]  # as stream load reads it
    table = pq.read_table(
        pa.BufferReader(ask(client, "download", body={"sql": text, "format": "parquet"}).body)
    )
    assert table.column("id").to_pylist() == [int(row[0]) for row in rows[1:]]
    assert ask(client, "download", body={"sql": "SELECT 1; SELECT 2"}).status == 400
    assert ask(client, "download", body={"sql": "SELECT 1", "format": "xls"}).status == 400


def test_an_upload_is_a_stream_load_of_the_user(client: Client) -> None:
    path = f"{API}/load/shop/refunds?redirected=1"
    cookie = log_in(client, "ann").headers["Set-Cookie"].partition(";")[0]
    headers = {"column_separator": ",", "label": "upload", "Cookie": cookie, "Origin": client.address}
    answer = client.request("PUT", path, b"1,5\n", headers, user=None)
    assert (answer.json["Status"], answer.json["NumberLoadedRows"]) == ("Success", 1)
    refused = client.request("PUT", f"{API}/load/secret/salaries", b"a,5\n", headers, user=None)
    assert "LOAD privilege" in refused.json["Message"]


def test_a_preview_names_the_ranges_that_it_needs(client: Client) -> None:
    """A file of 8 MB costs its end and the first page of each column, none of its other row groups."""
    count = 500_000
    table = pa.table({"Id": range(count), "note": [f"{n} {n * n}" for n in range(count)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=50_000, compression="none")
    data = sink.getvalue().to_pybytes()
    parts, rounds = [[len(data) - 65_536, len(data)]], 0
    found: dict[str, Any] = {"needs": parts}
    while found.get("needs"):
        body = b"".join(data[first:behind] for first, behind in parts)
        listed = ",".join(f"{first}-{behind}" for first, behind in parts)
        path = f"{API}/preview/shop/clicks?format=parquet&size={len(data)}&parts={listed}"
        found = client.request("POST", path, body, user=f"ann:{PASSWORD}").json
        parts, rounds = found.get("needs") or parts, rounds + 1
    assert rounds < 12
    assert len(body) < len(data) / 2
    assert found["rows_total"] == count
    assert found["rows"][:2] == [["0", "0 0"], ["1", "1 1"]]
    assert [each["target"] for each in found["columns"]] == ["id", "page"]


@pytest.mark.parametrize(
    ("query", "body", "expected"),
    [("format=csv&size=4&parts=0-4", b"PAR1", "format"),
     ("format=parquet&size=4&parts=0-9", b"PAR1", "parts"),
     ("format=parquet&size=4&parts=2-4,0-2", b"PAR1", "parts"),
     ("format=orc&size=4&parts=0-3", b"PAR1", "parts"),
     ("format=parquet&size=4&parts=0-4", b"PAR1", "cannot be read as parquet"),
     ("format=orc&size=4&parts=0-4", b"PAR1", "cannot be read as orc"),
     ("format=orc&size=99999999&parts=0-4", b"PAR1", "8 MiB"),
     ("format=orc&size=99999999&parts=0-8388609", b"x" * 8388609, "8388608 bytes")],
)  # fmt: skip
def test_a_preview_that_cannot_be_is_refused_with_its_reason(
    client: Client, query: str, body: bytes, expected: str
) -> None:
    answer = client.request("POST", f"{API}/preview/shop/clicks?{query}", body, user=f"ann:{PASSWORD}")
    assert (answer.status, expected in answer.json["error"]) == (400, True), answer.json


# ------------------------------------------------------------------------------------------ pages


def test_pages_may_load_nothing_from_elsewhere(client: Client) -> None:
    for path in ("/", "/console/app.js", "/console/style.css"):
        answer = client.request("GET", path, user=None)
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status == 200
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
    folder = Path(static_files.__file__).parent / "static"
    for file in folder.iterdir():
        addresses = re.findall(r"https?://[^\s\"'`)]+", file.read_text())
        known = ("http://www.w3.org/", "https://github.com/leeoniy/uPlot", "https://")
        assert [each for each in addresses if not each.startswith(known[:2])] == [] or file.name == "uplot.js"
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", file.read_text()) or (
            file.name == "uplot.js"
        ), file


def test_the_vendored_editor_is_the_one_that_its_packages_make() -> None:
    """`make editor` writes it; what it is made of stands in it, and its licences beside it."""
    static = Path(static_files.__file__).parent / "static"
    locked = json.loads((static.parent / "codemirror" / "package-lock.json").read_text())["packages"]
    wanted = json.loads((static.parent / "codemirror" / "package.json").read_text())["dependencies"]
    bundle = (static / "codemirror.js").read_text()
    made_of = dict(re.findall(r"^ \* (\S+) ([\d.]+)$", bundle.partition("*/")[0], re.MULTILINE))
    licences = (static / "codemirror-license.txt").read_text()
    assert wanted.items() <= made_of.items()
    for name, version in made_of.items():
        assert locked[f"node_modules/{name}"]["version"] == version
        assert f"{name} {version}" in licences
    assert len(bundle) < 450_000
    assert "http" not in (static.parent / "codemirror" / "package-lock.json").read_text()


def test_a_page_that_a_browser_knows_is_not_sent_again(client: Client) -> None:
    tag = client.request("GET", "/console/app.js", user=None).headers["ETag"]
    again = client.request("GET", "/console/app.js", headers={"If-None-Match": tag}, user=None)
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["..%2Fconsole_api.py", "nothing.js", "%2e%2e", "static"])
def test_a_name_of_a_page_is_no_path(client: Client, name: str) -> None:
    assert client.request("GET", f"/console/{name}", user=None).status == 404


# ------------------------------------------------------------------------------------------ health


def test_a_server_without_room_is_alive_and_not_ready(store: Store) -> None:
    with serving(store, disk_free_bytes_min=2**62) as client:
        assert client.request("GET", "/health/live", user=None).status == 200
        answer = client.request("GET", "/health/ready", user=None)
        assert answer.status == 503
        assert "disk_free_bytes_min" in answer.json["reason"]


def test_a_server_whose_catalog_cannot_be_read_is_not_ready(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data")
    with serving(store) as client:
        assert client.request("GET", "/health/ready", user=None).status == 200
        store.close()
        answer = client.request("GET", "/health/ready", user=None)
        assert (answer.status, str(tmp_path).encode() in answer.body) == (503, False)
