"""`seqstore backup`, `restore` and `backups`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from seqstore import Store
from seqstore.cli.main import app
from tests.support.rows import rows_of, schema_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with Store.open(path) as store:
        store.create_database("db")
        table = store.create_table("db.t", schema_of("k BIGINT NOT NULL", "v STRING"))
        table.upsert(pa.table({"k": list(range(200_000)), "v": ["a"] * 200_000}))
    return path


def seqstore(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_a_backup_is_restored_on_a_new_host(data: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "b")
    made = seqstore("--data-dir", str(data), "backup", "db", place)
    assert made.exit_code == 0, made.output
    assert ": 2 files of" in made.output.splitlines()[-1], made.output
    assert "FINISHED 2/2 files" in made.output
    again = seqstore("--data-dir", str(data), "backup", "db", place, "--table", "t", "--verify")
    assert again.output.splitlines()[-1].endswith(", 0 of 0.0 MiB copied")
    new = tmp_path / "new"
    done = seqstore("--data-dir", str(new), "restore", "db", place, "--table", "t=copy")
    assert done.output.splitlines()[-1].endswith(": copy restored"), done.output
    with Store.open(data) as store, Store.open(new) as restored:
        assert rows_of(restored.table("db.copy")) == rows_of(store.table("db.t"))
    assert seqstore("--data-dir", str(new), "restore", "db", place, "--table", "t=copy").exit_code == 1
    assert seqstore("--data-dir", str(new), "restore", "db", place, "--replace").exit_code == 0
    for name in ("x.y", "a/b", " ", "a" * 600):  # a table of such a name could not be dropped
        refused = seqstore("--data-dir", str(new), "restore", "db", place, "--table", f"t={name}")
        assert (refused.exit_code, "expected 1 to 64 letters" in refused.output) == (1, True), refused.output


def test_damage_ends_with_code_5(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "b"
    seqstore("--data-dir", str(data), "backup", "db", str(place))
    sound = seqstore("backups", str(place), "--verify")
    for nowhere in (place / "gone", data):
        missing = seqstore("backups", str(nowhere), "--verify")
        assert (missing.exit_code, missing.stdout) == (1, "")
        assert "no backups here; check the path, or that it is mounted" in missing.stderr
    assert (sound.exit_code, sound.output.splitlines()[-1]) == (0, "every file is as it was written")
    victim = next(place.glob("files/*.keys"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")
    assert seqstore("backups", str(place)).exit_code == 0
    damaged = seqstore("backups", str(place), "--verify")
    assert damaged.exit_code == 5
    assert victim.name in damaged.output
