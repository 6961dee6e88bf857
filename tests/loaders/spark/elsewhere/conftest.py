"""The tests of Spark with the store behind a server, `url` in the place of `path`.

Those that are not `telling` are `long`: the executors do the same there, and start as slowly.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.spark.places import elsewhere


@pytest.fixture(autouse=True)
def behind_a_server() -> Iterator[None]:
    """Stores are elsewhere."""
    with elsewhere():
        yield


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what the short form leaves out."""
    if not item.get_closest_marker("telling"):
        item.add_marker(pytest.mark.long)
