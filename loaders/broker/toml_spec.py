"""Broker loads written as TOML, such as those in conf/loads.

database = "shop"
label = "orders-2024-05-01"

[properties]
max_filter_ratio = 0.01

[[load]]
table = "orders"
paths = ["orders/2024-05-01/*.csv"]       # relative to this file
columns = ["id", "price_text"]
set = ["price = cast(price_text as decimal(9,2))"]
order_by = "updated_at"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from loaders.broker.spec import DataDescription, LoadSpec
from store.errors import InvalidInputError, NotFoundError

_JOB: Final = frozenset(["database", "label", "properties", "comment", "load"])
_RENAMED: Final = {"set": "assignments"}
_LISTS: Final = frozenset(["paths", "partitions", "columns", "columns_from_path", "set"])
_DESCRIPTION: Final = frozenset(
    [field.name for field in fields(DataDescription) if field.name != "assignments"] + ["set"]
)


def read_spec(path: Path, *, label: str | None = None) -> LoadSpec:
    """Reads a job file.

    Args:
        label: instead of the file's own, so that one file serves many runs.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: not TOML, an unknown or missing name, or a value of the wrong type.
    """
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file; name a load job in TOML", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: not TOML: {error}", kind="bad_load") from error
    for name in given.keys() - _JOB:
        raise _bad(path, f"unknown name {name!r}; expected some of {', '.join(sorted(_JOB))}")
    database = _text(path, given, "database", "")
    if not database:
        raise _bad(path, "database is missing")
    name = label or _text(path, given, "label", "")
    if not name:
        raise _bad(path, "label is missing; it makes the job idempotent")
    loads = given.get("load", [])
    if not isinstance(loads, list) or not all(isinstance(each, dict) for each in loads):
        raise _bad(path, "expected [[load]] tables")
    descriptions = tuple(_description(path, each) for each in loads)
    spec = LoadSpec(database, name, descriptions, _properties(path, given), _text(path, given, "comment", ""))
    spec.check()
    return spec


def _description(path: Path, given: Mapping[str, Any]) -> DataDescription:
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _DESCRIPTION:
            raise _bad(
                path, f"unknown name {name!r} in [[load]]; expected some of {', '.join(sorted(_DESCRIPTION))}"
            )
        if name == "properties":
            values[name] = _properties(path, given)
        elif name in _LISTS:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise _bad(path, f"{name} in [[load]]: expected a list of texts, found {value!r}")
            values[_RENAMED.get(name, name)] = tuple(value)
        else:
            values[name] = _text(path, given, name, "")
    for name in ("table", "paths"):
        if not values.get(name):
            raise _bad(path, f"{name} is missing in [[load]]")
    values["paths"] = tuple(_absolute(path, each) for each in values["paths"])
    values["merge_type"] = values.get("merge_type", "APPEND").upper()
    return DataDescription(**values)


def _absolute(path: Path, name: str) -> str:
    return name if "://" in name else str(path.parent.resolve() / name)


def _properties(path: Path, given: Mapping[str, Any]) -> dict[str, str]:
    found = given.get("properties", {})
    if not isinstance(found, dict):
        raise _bad(path, f"properties: expected a table, found {found!r}")
    return {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in found.items()
    }


def _text(path: Path, given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise _bad(path, f"{name}: expected a text, found {value!r}")
    return value


def _bad(path: Path, message: str) -> InvalidInputError:
    return InvalidInputError(f"{path}: {message}", kind="bad_load")
