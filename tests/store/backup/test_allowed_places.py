"""The setting `output_paths`: what users of a server may name as a place of backups and exports."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqstore import AccessDeniedError, InvalidInputError, Session, Settings, Store
from seqstore.store.backup.allowed_places import require_allowed
from tests.support.statements import run

TABLE = "CREATE DATABASE db; CREATE TABLE db.t (k INT) UNIQUE KEY(k)"
STATEMENTS = (
    "BACKUP SNAPSHOT db.one TO '{place}'",
    "SHOW SNAPSHOT ON '{place}'",
    "RESTORE SNAPSHOT db.one FROM '{place}' ON (t AS copy)",
    "SELECT 1 INTO OUTFILE 'file://{place}/x'",
    "EXPORT TABLE db.t TO 'file://{place}/x'",
)


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    path = tmp_path / "allowed"
    path.mkdir()
    return path


def test_every_statement_that_names_a_place_is_confined(tmp_path: Path, allowed: Path) -> None:
    """Also for an administrator; a program of the host is not."""
    (allowed / "link").symlink_to(tmp_path)
    outside = (tmp_path / "b", allowed / "link" / "b", Path(f"{allowed}-b"))
    with Store.open(tmp_path / "data", settings=Settings(output_paths=(str(allowed),))) as store:
        with Session(store) as program, Session(store, user="root") as root:
            run(program, TABLE)
            for text in STATEMENTS:
                for place in outside:
                    with pytest.raises(AccessDeniedError, match="output_paths"):
                        run(root, text.format(place=place))
                run(root, text.format(place=allowed / "b"))
            run(program, f"DROP TABLE db.copy; {'; '.join(STATEMENTS).format(place=tmp_path / 'c')}")
        assert not outside[0].exists()


def test_without_the_setting_no_place_is_allowed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "data") as store, Session(store, user="root") as root:
        run(root, TABLE)
        for text in STATEMENTS:
            with pytest.raises(AccessDeniedError, match="there is none"):
                run(root, text.format(place=tmp_path))


ROOTS = ("s3://bucket/backups", "s3://other/?endpoint_override=host:1", "/backups")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/backups",
        "s3://key:secret@bucket/backups/x?region=r",
        "S3://bucket/backups/",
        "s3://other/x?endpoint_override=host:1&scheme=http",
        "/backups/x",
        "file:///backups/x",
        "/backups/y/../x",
    ],
)
def test_places_below_an_allowed_one(uri: str) -> None:
    require_allowed(uri, ROOTS)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/backups-of-others",
        "s3://bucket",
        "s3://bucket/backups?endpoint_override=elsewhere",
        "s3://other/x",
        "s3://other/x?endpoint_override=host:2",
        "gs://bucket/backups",
        "/backups/../etc",
        "file:///etc",
        "file:/backups/%2e%2e/etc",
    ],
)
def test_places_beside_the_allowed_ones(uri: str) -> None:
    with pytest.raises(AccessDeniedError):
        require_allowed(uri, ROOTS)


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/backups/../x",
        "s3://bucket/backups/%2e%2e/x",
        "s3://bucket/backups#/x",
        "s3://a@b@bucket/backups",
        "s3://bucket/backups?a=1&a=2",
        "s3://bucket/backups?endpoint_override=host:1&endpoint_override=x",
    ],
)
def test_uris_that_libraries_read_differently(uri: str) -> None:
    with pytest.raises(InvalidInputError, match="expected scheme"):
        require_allowed(uri, ROOTS)
