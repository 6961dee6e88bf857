"""Options of the data source that contradict each other, or mean nothing where they are given."""

from __future__ import annotations

import pytest

from loaders.spark.options import STREAM_READ, STREAM_WRITE, LoadOptions, SourceOptions
from store import InvalidInputError

PLACE = {"path": "/data", "table": "db.t"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "id, v,ID"}, "option columns: 'id' is named 2 times"),
        ({"version": "3", "versionAsOf": "3"}, "version and versionAsOf are the same"),
        ({"txnAppId": "nightly"}, "txnVersion is missing"),
        ({"txnVersion": "1"}, "txnAppId is missing"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        SourceOptions.parse({**PLACE, **options})


@pytest.mark.parametrize("name", ["filter", "version", "versionAsOf", "hidden", "pushdown", "label"])
def test_what_the_change_feed_has_no_use_for_is_refused(name: str) -> None:
    value = "1" if name.startswith("version") else "true"
    asked = SourceOptions.parse({**PLACE, "changes": "true", name: value})
    with pytest.raises(InvalidInputError, match=f"option '{name.lower()}' means nothing to readStream"):
        asked.refuse_others(STREAM_READ, "readStream")


@pytest.mark.parametrize("given", [{"label": "l"}, {"txnAppId": "a", "txnVersion": "1"}, {"columns": "k"}])
def test_what_a_written_stream_has_no_use_for_is_refused(given: dict[str, str]) -> None:
    asked = SourceOptions.parse({**PLACE, **given})
    with pytest.raises(InvalidInputError, match=f"option '{next(iter(given)).lower()}' means nothing"):
        asked.refuse_others(STREAM_WRITE, "writeStream")


def test_spark_s_own_options_of_a_stream_are_passed_over() -> None:
    asked = SourceOptions.parse({**PLACE, "checkpointLocation": "/c", "partitions": "p1"})
    asked.refuse_others(STREAM_WRITE, "writeStream")


def test_a_partial_update_cannot_overwrite() -> None:
    with pytest.raises(InvalidInputError, match="a partial update cannot overwrite"):
        LoadOptions.named({"partial_columns": True}).refuse_overwriting("db.t")
