"""Requests of web pages, and logins of administrators without a password from other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import AccessDeniedError, Store
from seqstore.cli.clients.login_guard import check_reachable
from seqstore.cli.mysql import MysqlServer
from seqstore.cli.server.browsers import check_browser
from seqstore.cli.server.settings import ServerSettings
from tests.cli.mysql_client import dial, log_in
from tests.support.http_server import ServerProcess, serving

PATHS = ("/health", "/metrics", "/api/bootstrap", "/api/backends", "/api/db/_load_info?label=l")


@pytest.mark.parametrize("path", PATHS)
def test_a_request_with_the_name_of_a_web_site_is_refused_on_loopback(store: Store, path: str) -> None:
    """DNS rebinding: a site whose name resolves to 127.0.0.1 read every answer, as root without password."""
    with serving(store) as http:
        for host in ("evil.example", "evil.example:8030", "127.0.0.1.evil.example", "localhost.evil.example"):
            assert http.request("GET", path, headers={"Host": host}).status == 403, host
        for host in ("localhost:8030", "127.0.0.1", "127.8.8.8:1", "[::1]:8030", "LOCALHOST."):
            assert http.request("GET", path, headers={"Host": host}).status != 403, host


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
     {"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://[bad"}],
)  # fmt: skip
def test_a_request_of_a_page_of_another_origin_is_refused(store: Store, headers: dict[str, str]) -> None:
    with serving(store) as http:
        for path in PATHS:
            assert http.request("GET", path, headers=headers).status == 403
        own = f"http://{http.host}:{http.port}"
        assert (
            http.request("GET", "/health", headers={"Origin": own, "Sec-Fetch-Site": "same-origin"}).status
            == 200
        )


def test_a_proxy_on_this_machine_may_pass_a_name_of_the_settings() -> None:
    for settings in (
        ServerSettings(http_hosts=("shop.example",)),
        ServerSettings(advertised_address="shop.example:443"),
        ServerSettings(host="0.0.0.0"),  # root has a password there
    ):
        check_browser({"Host": "Shop.example:443"}, settings)
    check_browser({}, ServerSettings())  # HTTP/1.0
    with pytest.raises(AccessDeniedError, match="http_hosts"):
        check_browser({"Host": "shop.example"}, ServerSettings())


def test_an_administrator_without_password_logs_in_from_this_machine_only(store: Store) -> None:
    """A password that was emptied while the server listened on all addresses opened it to the network."""
    store.accounts.create("ann")
    ann, root = store.accounts.find("ann"), store.accounts.find("root")
    assert ann is not None
    assert root is not None
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        check_reachable(root, address)
    with pytest.raises(AccessDeniedError, match=r"'root'@'10\.0\.0\.7'"):
        check_reachable(root, "10.0.0.7")
    check_reachable(ann, "10.0.0.7")  # without ADMIN
    store.accounts.set_password("root", "x")
    with_password = store.accounts.find("root")
    assert with_password is not None
    check_reachable(with_password, "10.0.0.7")


def test_both_protocols_ask_whether_the_login_may_come_from_its_address(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    for module in ("clients.login_guard", "server.http", "mysql.server"):
        monkeypatch.setattr(
            f"seqstore.cli.{module}.check_reachable", lambda account, _address: seen.append(account.name)
        )
    with serving(store) as http:
        http.request("GET", "/api/backends")
        store.accounts.set_password("root", "x")
        http.request("GET", "/api/backends", user="root:x")
        http.request("GET", "/api/backends", user="root:x")  # by the cache of known passwords
    assert seen == ["root"] * 3
    store.accounts.set_password("root", "")
    with MysqlServer(store) as server:
        client, _ = dial(server.port)
        with client:
            assert log_in(client, "root")[0] == 0
    assert seen == ["root"] * 4


def test_every_start_tells_that_root_has_no_password(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store:
        for password, expected in (("", True), ("x", False)):
            store.accounts.set_password("root", password)
            server = ServerProcess(tmp_path / "data")
            server.kill()
            told = [line for line in server.lines if "root has an empty password" in line]
            assert bool(told) == expected, server.lines
