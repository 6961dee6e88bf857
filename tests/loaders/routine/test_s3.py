"""Routine load from a bucket of a real server."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyarrow.fs as pafs
import pytest

from seqstore import Settings, Store
from seqstore.loaders.load_jobs import StoreLoadJobs
from seqstore.loaders.routine.runner import RoutineRunner
from seqstore.store.sql import ServerContext, Session
from tests.support.object_store import WEED, object_store

pytestmark = pytest.mark.skipif(not WEED.exists(), reason="needs the object store of the extra test")


@pytest.mark.long
def test_objects_are_loaded_once_and_no_key_is_shown(tmp_path: Path) -> None:
    """R4, R38: bad rows are told with the object's name, without what opens it."""
    (tmp_path / "weed").mkdir()
    with object_store(tmp_path / "weed") as uri:
        bucket = uri.format("in")
        filesystem, root = pafs.FileSystem.from_uri(bucket)
        server = parse_qs(urlsplit(bucket).query)["endpoint_override"][0]
        settings = Settings(load_paths=(f"s3://tests/in?endpoint_override={server}",))
        with Store.open(tmp_path / "data", settings=settings) as store:
            session = Session(store, server=ServerContext(load_jobs=StoreLoadJobs(store)))
            parameters = f"endpoint_override={server}&region=us-east-1&scheme=http"
            list(
                session.execute(
                    "CREATE DATABASE db; USE db; CREATE TABLE t (k BIGINT NOT NULL, v STRING) UNIQUE KEY (k) "
                    "DISTRIBUTED BY HASH (k); CREATE ROUTINE LOAD job ON t "
                    "PROPERTIES ('max_error_number' = '1') "
                    f"FROM FILES ('path' = 's3://any:any@tests/in/*.json?{parameters}')"
                )
            )
            for name, text in (("1", '{"k": 1, "v": "a"}\n{"k": "bad"}\n'), ("2", '{"k": 2, "v": "b"}\n')):
                with filesystem.open_output_stream(f"{root}/{name}.json") as file:
                    file.write(text.encode())
                (job,) = RoutineRunner(store).drain().values()
            assert (job.statistic.loaded_rows, job.statistic.error_rows) == (2, 1)
            (result,) = session.execute("SELECT k, v FROM t ORDER BY k")
            assert result.rows is not None
            assert result.rows.to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
            for statement in ("SHOW ROUTINE LOAD FOR job", "SHOW CREATE ROUTINE LOAD FOR job"):
                (result,) = session.execute(statement)
                assert result.rows is not None
                assert "any:any" not in str(result.rows.to_pylist())
        log = Path(job.error_urls[0]).read_text()
        assert "s3://tests/in/1.json: " in log
        assert "any:any" not in log
