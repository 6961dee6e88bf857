"""The options of a sink that reads change streams. Frames are another test's business."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError
from seqstore.loaders.headers import KNOWN_HEADERS
from seqstore.loaders.spark.change_frame import split_options
from seqstore.loaders.spark.options import LoadOptions

OTHERS = sorted(
    name for name in KNOWN_HEADERS if name.startswith(("auto_create", "dead_", "schema_evolution"))
)


def test_options_of_messages_are_told_from_those_of_the_load() -> None:
    options, others = split_options({"format": "canal_json", "max_filter_ratio": 0.5})
    assert options is not None
    assert (options.format, options.max_filter_ratio, others) == (
        "canal_json",
        0.5,
        {"max_filter_ratio": 0.5},
    )


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("file_format", [{}, {"format": "debezium_json"}])
def test_what_only_other_loads_have_is_refused_by_name(name: str, file_format: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=f"^option {name}: the sink of PySpark does not have it"):
        split_options({name: "true", **file_format})


@pytest.mark.parametrize("file_format", ["json", "csv", "avro"])
def test_a_format_of_rows_is_refused_by_name(file_format: str) -> None:
    with pytest.raises(InvalidInputError, match="option format: expected one of debezium_json"):
        split_options({"format": file_format})


def test_a_frame_of_rows_has_no_format() -> None:
    assert split_options({"sequence": "s"}) == (None, {"sequence": "s"})
    assert LoadOptions.named({"sequence": "s"}).sequence == "s"
