"""Bad clients and idle connections slow the others down little, and cost them no row."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from seqstore import Store
from seqstore.store.runtime.descriptors import raise_limit
from seqstore.store.sql import Session
from tests.seeds import new_seed
from tests.support.hostile.overload import Figures, Overload
from tests.support.http_server import ServerProcess
from tests.support.statements import run
from tests.weight import by_form, torture_minutes

# The promise: the slowest request in a hundred takes less than five times as long as on a quiet server.
TIMES_MAX = 5
# Beyond five times: a request of few clients on a quiet server takes milliseconds, and other programs on the
# machine of the tests use the processors for longer. With 900 clients it takes seconds (docs/server.md:
# 5.6 s, and 18.5 s beside bad clients), so the bound is five times that, and this second hardly counts.
NOISE_SECONDS = 1.0
CONFIG = """
[server]
http_connections_max = {http}
mysql_connections_max = {mysql}
mysql_user_connections_max = {mysql}
"""


def make(folder: Path, *, http: int, mysql: int) -> ServerProcess:
    with Store.open(folder / "data") as store, Session(store) as session:
        run(session, "CREATE DATABASE db")
        for name in ("overload", "t"):
            run(session, f"CREATE TABLE db.{name} (k INT NOT NULL, v STRING NULL, n INT NULL) UNIQUE KEY(k)")
        run(session, "ALTER TABLE db.overload DROP COLUMN n")
        for name in ("good", "bad"):
            run(session, f"CREATE USER {name}")
            run(session, f"GRANT LOAD_PRIV, SELECT_PRIV ON db.* TO {name}")
    (folder / "server.toml").write_text(CONFIG.format(http=http, mysql=mysql))
    return ServerProcess(folder / "data", "--config", str(folder / "server.toml"))


def load_over(folder: Path, *, good: int, bad: int, idle: int, seconds: float, pause: float) -> None:
    seed = new_seed()
    assert raise_limit() > good + bad + idle + 200
    server = make(folder, http=idle + good + bad + 200, mysql=max(good, 256))

    async def both() -> tuple[Figures, Figures]:
        overload = Overload(server, seed, good=good, pause=pause)
        quiet = await overload.run(seconds)
        return quiet, await overload.run(seconds, idle=idle, bad=bad)

    try:
        quiet, loaded = asyncio.run(both())
    finally:
        code = server.stop()
    told = (
        f"seed {seed}: {good} clients on a quiet server: {quiet}; "
        f"beside {bad} bad ones and {idle} idle connections: {loaded}"
    )
    print(told)
    assert (quiet.failures, loaded.failures) == ([], []), told
    assert code == 0
    with Store.open(folder / "data") as store:
        rows = store.scan("db.overload", columns=["k", "v"]).read_all().to_pylist()
        stored = {row["k"]: row["v"] for row in rows}
        lost = loaded.acknowledged - stored.keys()
        print(f"{len(loaded.acknowledged)} rows acknowledged, {len(lost)} lost")
        assert not lost, told
        assert all(stored[key] == str(key * 7) for key in loaded.acknowledged), told
        assert store.table("db.overload").check() == []
    assert loaded.p99 < TIMES_MAX * quiet.p99 + NOISE_SECONDS, told


@pytest.mark.long
def test_good_clients_see_no_error_beside_bad_and_idle_ones(tmp_path: Path) -> None:
    load_over(tmp_path, good=30, bad=12, idle=300, seconds=by_form(4, 10), pause=1.0)


@pytest.mark.torture
def test_nine_hundred_clients_beside_a_hundred_bad_ones_and_ten_thousand_idle_connections(
    tmp_path: Path,
) -> None:
    load_over(tmp_path, good=900, bad=100, idle=10_000, seconds=60 * min(torture_minutes(2), 10), pause=20.0)
