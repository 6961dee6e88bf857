"""Tests of one module that run in another one, whose folder has fixtures of its own."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def same_tests(module: ModuleType, without: dict[str, str]) -> dict[str, Any]:
    """Returns the tests of a module and its fixtures.

    Args:
        without: tests that need what the other fixtures do not have, with the reason.
    """
    found = {
        name: value
        for name, value in vars(module).items()
        if name == "pytestmark"
        or name.startswith("test_")
        or type(value).__name__ == "FixtureFunctionDefinition"
    }
    assert without.keys() <= found.keys(), f"no such tests: {without.keys() - found.keys()}"
    return {name: value for name, value in found.items() if name not in without}
