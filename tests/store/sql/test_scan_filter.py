"""What a condition may say where a scan alone decides it, and what it is told when it says something else."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError
from seqstore.store.sql.parse.tokens import parse_tree
from seqstore.store.sql.translate.predicates import scan_filter
from tests.support.rows import schema_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope = 1", "unknown column 'nope'; there are k, f"),
        ("f >= 1.5", r"f is DOUBLE, of which only IS \[NOT\] NULL can be asked here, because of NaN"),
        ("k + 1 = 2", "expected comparisons of a column with constants, and AND"),
    ],
)
def test_what_a_scan_cannot_decide_is_named(text: str, message: str) -> None:
    schema = schema_of("k INT NOT NULL", "f DOUBLE")
    with pytest.raises(InvalidInputError, match=message):
        scan_filter(schema, parse_tree(text, 0, len(text)), "option filter:")
