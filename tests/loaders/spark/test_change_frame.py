"""The options of a sink that reads change streams. Frames are another test's business."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError
from seqstore.loaders.spark.change_frame import FrameOptions, split_options
from seqstore.loaders.spark.options import LoadOptions


def test_options_of_messages_are_told_from_those_of_the_load() -> None:
    asked, others = split_options({"format": "canal_json", "max_filter_ratio": 0.5})
    options = asked.changes
    assert options is not None
    assert asked.growth is None
    assert (options.format, options.max_filter_ratio, others) == (
        "canal_json",
        0.5,
        {"max_filter_ratio": 0.5},
    )


@pytest.mark.parametrize("file_format", [{}, {"format": "debezium_json"}])
def test_what_may_change_beside_the_rows_is_that_of_other_loads(file_format: dict[str, str]) -> None:
    given = {"auto_create": True, "auto_create_key": ["a", "b"], "dead_letters": True, "sequence": None}
    asked, others = split_options({**given, "schema_evolution": "add", **file_format})
    growth = asked.growth
    assert growth is not None
    assert (growth.auto_create, growth.auto_create_key, growth.dead_letters) == (True, ("a", "b"), True)
    assert (growth.schema_evolution, growth.max_filter_ratio, others) == ("add", 1.0, {"sequence": None})
    assert (asked.changes is None) == (not file_format)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"auto_create_key": "k"}, "auto_create: true"),
        ({"schema_evolution": "grow"}, "schema_evolution"),
        ({"auto_create": True, "sequence": "s"}, "auto_create_sequence"),
        ({"dead_letters": True, "partial_columns": True}, "whole rows"),
        ({"dead_letters": True, "merge_type": "MERGE"}, "merge_type MERGE"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(options: dict[str, object], found: str) -> None:
    with pytest.raises(InvalidInputError, match=found):
        split_options(options)


def test_options_that_are_off_change_nothing() -> None:
    asked, _ = split_options({"auto_create": False, "schema_evolution": "off", "dead_letters": None})
    assert asked == FrameOptions()


@pytest.mark.parametrize("file_format", ["json", "csv", "avro"])
def test_a_format_of_rows_is_refused_by_name(file_format: str) -> None:
    with pytest.raises(InvalidInputError, match="option format: expected one of debezium_json"):
        split_options({"format": file_format})


def test_a_frame_of_rows_has_no_format() -> None:
    assert split_options({"sequence": "s"}) == (FrameOptions(), {"sequence": "s"})
    assert LoadOptions.named({"sequence": "s"}).sequence == "s"
