"""The REST catalog of Iceberg: pyiceberg attaches by URL and reads what we read, with the store's grants."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

from seqstore import Store, Table
from seqstore.cli.server import tokens
from tests.support.http_server import Client, serving
from tests.support.rows import schema_of

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

REFUSED = (NotImplementedError, RESTError)  # pyiceberg 0.10 has no class of its own for it

OPEN = {"delta.universalFormat.enabledFormats": "delta,iceberg", "open_every_seconds": "0"}
TABLES = "/iceberg/v1/namespaces/db/tables"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data") as opened:
        for database in ("db", "hidden"):
            opened.create_database(database)
            for name in ("t", "other"):
                table = opened.create_table(f"{database}.{name}", schema_of("k BIGINT NOT NULL", **OPEN))
                table.upsert(pa.table({"k": [1, 2, 3]}))
                table.delete(pa.table({"k": [2]}))
        opened.create_table("db.closed", schema_of("k INT NOT NULL"))
        opened.accounts.create("ann", "secret")
        opened.accounts.grant("ann", ["SELECT"], "db")
        opened.accounts.create("tess", "secret")
        opened.accounts.grant("tess", ["SELECT"], "db.t")
        yield opened


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    with serving(store) as running:
        yield running


def catalog(client: Client, credential: str = "ann:secret", **properties: Any) -> Catalog:
    uri = f"http://{client.host}:{client.port}/iceberg"
    given: dict[str, Any] = {"oauth2-server-uri": f"{uri}/v1/oauth/tokens", **properties}
    if credential:
        given["credential"] = credential
    return load_catalog("seqstore", type="rest", uri=uri, **given)


def by_basic(client: Client, user: str, password: str) -> Catalog:
    basic = {"type": "basic", "basic": {"username": user, "password": password}}
    return catalog(client, credential="", auth=basic)


def keys(attached: Catalog, name: str = "db.t") -> list[int]:
    return sorted(attached.load_table(name).scan().to_arrow().column("k").to_pylist())


def test_pyiceberg_attaches_by_url_and_sees_new_versions(client: Client, store: Store) -> None:
    attached = catalog(client)
    assert attached.list_namespaces() == [("db",)]
    assert attached.list_tables("db") == [("db", "other"), ("db", "t")]
    assert attached.namespace_exists("db")
    assert attached.table_exists("db.t")
    assert not attached.table_exists("db.closed")
    opened = attached.load_table("db.t")
    assert keys(attached) == [1, 3]
    store.table("db.t").upsert(pa.table({"k": [7]}))
    assert sorted(opened.refresh().scan().to_arrow().column("k").to_pylist()) == [1, 3, 7]
    assert opened.current_snapshot().snapshot_id == store.table("db.t").version


def test_basic_logins_and_tokens_have_the_grants_of_the_user(client: Client) -> None:
    for attached in (catalog(client, "tess:secret"), by_basic(client, "tess", "secret")):
        assert attached.list_namespaces() == [("db",)]
        assert attached.list_tables("db") == [("db", "t")]
        assert keys(attached) == [1, 3]
        for name in ("db.other", "hidden.t", "absent.t"):
            with pytest.raises(ForbiddenError, match="SELECT privilege"):
                attached.load_table(name)
        with pytest.raises(ForbiddenError):
            attached.list_tables("hidden")


def test_names_that_are_absent_have_icebergs_errors(client: Client) -> None:
    attached = catalog(client, "root:")
    with pytest.raises(NoSuchTableError):
        attached.load_table("db.absent")
    with pytest.raises(NoSuchTableError, match="enabledFormats"):
        attached.load_table("db.closed")
    for absent in (("absent", "t"), ("db", "t", "snapshots")):  # Spark looks for metadata tables so
        with pytest.raises(NoSuchTableError):
            attached.load_table(absent)
    with pytest.raises(NoSuchTableError):
        catalog(client, "tess:secret").load_table(("db", "t", "snapshots"))
    with pytest.raises(NoSuchNamespaceError, match="Unknown database 'absent'"):
        attached.list_tables("absent")


def test_wrong_logins_are_refused(client: Client) -> None:
    with pytest.raises(OAuthError, match="invalid_client"):
        catalog(client, "ann:guess")
    with pytest.raises(UnauthorizedError):
        by_basic(client, "ann", "guess")
    headers = {"Authorization": "Bearer guessed"}
    answer = client.request("GET", TABLES, headers=headers, user=None)
    assert (answer.status, answer.json["error"]["type"]) == (401, "NotAuthorizedException")


def token(client: Client) -> str:
    form = {"grant_type": "client_credentials", "client_id": "ann", "client_secret": "secret"}
    answer = client.request("POST", "/iceberg/v1/oauth/tokens", urlencode(form).encode(), user=None)
    assert answer.json["token_type"] == "bearer"
    return str(answer.json["access_token"])


@pytest.mark.parametrize("end", ["password", "dropped", "revoked", "time"])
def test_a_token_ends_with_its_login(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    headers = {"Authorization": f"Bearer {token(client)}"}

    def status() -> int:
        return client.request("GET", f"{TABLES}/t", headers=headers, user=None).status

    assert status() == 200
    if end == "password":
        store.accounts.set_password("ann", "another")
    elif end == "dropped":
        store.accounts.drop("ann")
    elif end == "revoked":
        store.accounts.revoke("ann", ["SELECT"], "db")
    else:
        later = time.monotonic() + tokens.SECONDS
        monkeypatch.setattr("seqstore.cli.server.tokens.time.monotonic", lambda: later)
    assert status() == (403 if end == "revoked" else 401)


def test_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_TOKENS_MAX", 3)
    issued = tokens.Tokens()
    given = [issued.issue("ann", str(number)) for number in range(5)]
    assert [issued.login(each)[1] for each in given] == [None, None, "2", "3", "4"]


def test_writes_are_refused(client: Client, store: Store) -> None:
    attached = catalog(client, "root:")
    versions = [table.version for table in every_table(store)]
    with pytest.raises(REFUSED, match=r"read only|does not support"):
        attached.create_namespace("made")
    with pytest.raises(REFUSED, match=r"read only|does not support"):
        attached.drop_table("db.t")
    answer = client.request("POST", f"{TABLES}/t", json.dumps({"requirements": [], "updates": []}).encode())
    assert (answer.status, answer.json["error"]["type"]) == (406, "UnsupportedOperationException")
    assert [table.version for table in every_table(store)] == versions
    assert store.databases() == ["db", "hidden"]


def every_table(store: Store) -> list[Table]:
    return [store.table(f"{name}.{each}") for name in store.databases() for each in store.tables(name)]
