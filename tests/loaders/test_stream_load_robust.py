"""Whatever is sent, a stream load answers Success, or Fail with a message, and the table stays sound."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqstore import Store
from seqstore.loaders.stream_load import stream_load
from seqstore.store.sql.session.session import Session
from tests.support.rows import schema_of
from tests.weight import by_form

_TEXT = st.text(alphabet="abk1v,;='\"()$.[]{}\\x01 \n-*@`", max_size=20)
_HEADERS = {
    "format": ["csv", "json", "csv_with_names", "parquet", "orc", "arrow"],
    "column_separator": [",", "||", "\\x01", "\\t", "a"],
    "line_delimiter": ["\\n", "\\r\\n", "$$$", "b"],
    "enclose": ["'", '"'],
    "escape": ["\\", "^"],
    "trim_double_quotes": ["true"],
    "columns": ["k,v", "k", "v,k,tmp", "k,v=k+1", "k=v,v", "k,v=upper(x),x", "a,b,c"],
    "where": ["k > 1", "v = 'a'", "k is null", "k / 0 = 1", "v + 1 > 0"],
    "merge_type": ["APPEND", "DELETE", "MERGE"],
    "delete": ["k = 1", "v = 1"],
    "strict_mode": ["true", "false"],
    "max_filter_ratio": ["0", "0.5", "1"],
    "jsonpaths": ['["$.k","$.v"]', '["$.v"]', '["$"]', '["$.a[*].b"]'],
    "json_root": ["$.d", "$", "$.a[0]"],
    "strip_outer_array": ["true", "false"],
    "read_json_by_line": ["true", "false"],
    "num_as_string": ["true"],
    "compress_type": ["gz", "bz2", "lz4", "zstd", "deflate", "lz4_block", "snappy_block"],
    "hidden_columns": ["__DORIS_DELETE_SIGN__", "__DORIS_SEQUENCE_COL__"],
    "skip_lines": ["0", "1", "5"],
    "timezone": ["UTC", "+08:00", "America/New_York"],
}

_PIECES = [
    *[
        b"1",
        b"2",
        b"a",
        b",",
        b",",
        b"\n",
        b"\n",
        b"\t",
        b"'",
        b'"',
        b"\\",
        b"\\N",
        b"\xff",
        b"|",
        b"\x01",
        b"$$$",
    ],
    *[b'{"k":1,"v":"a"}', b'{"k":', b"}", b"[", b"]", b"null", b'"v"', b"1e999", b"PAR1", b"ARROW1", b"-"],
]


@st.composite
def requests(draw: st.DrawFn) -> tuple[dict[str, str], bytes]:
    names = draw(st.lists(st.sampled_from(sorted(_HEADERS)), unique=True, max_size=5))
    headers = {name: draw(st.sampled_from(_HEADERS[name]) | _TEXT) for name in names}
    pieces = st.sampled_from(_PIECES)
    body = b"".join(draw(st.lists(pieces, max_size=30))) or draw(st.binary(max_size=50))
    return headers, gzip.compress(body) if headers.get("compress_type") == "gz" else body


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path: Path = tmp_path_factory.mktemp("store")
    with Store.open(path) as made, Session(made) as session:
        list(
            session.execute(
                "CREATE DATABASE db; CREATE TABLE db.t (k INT NOT NULL, v VARCHAR(5) NULL) UNIQUE KEY(k) "
                "DISTRIBUTED BY HASH(k) BUCKETS 1"
            )
        )
        yield made


@given(requests())
@settings(
    max_examples=by_form(250, 800), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_request_is_answered(store: Store, case: tuple[dict[str, str], bytes]) -> None:
    """LR2, LS2, LS7."""
    headers, body = case
    version = store.table("db.t").version
    reply = stream_load(store, "db", "t", io.BytesIO(body), headers)
    total = reply["NumberLoadedRows"] + reply["NumberFilteredRows"] + reply["NumberUnselectedRows"]
    assert reply["NumberTotalRows"] == total
    if reply["Status"] == "Success":
        assert reply["Message"] == "OK"
    else:
        assert reply["Status"] == "Fail"
        assert reply["Message"].startswith("[")
        assert len(reply["Message"]) > 15
        assert store.table("db.t").version == version


@given(st.lists(requests(), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_table_is_sound_after_any_requests(
    store: Store, cases: list[tuple[dict[str, str], bytes]]
) -> None:
    store.drop_table("db.some", if_exists=True)
    table = store.create_table("db.some", schema_of("k INT NOT NULL", "v VARCHAR(5)"))
    good = [({"column_separator": ","}, b"1,a\n2,b\n")]
    replies = [stream_load(store, "db", "some", io.BytesIO(body), given) for given, body in [*good, *cases]]
    assert 1 < table.version <= 1 + sum(reply["Status"] == "Success" for reply in replies)
    assert table.check() == []
