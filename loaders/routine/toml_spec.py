"""Routine loads written as TOML, such as those in conf/routine.

database = "shop"
name = "clicks"
table = "clicks"
columns = ["id", "at_text"]
set = ["at = cast(at_text as datetime)"]
order_by = "at"

[properties]
max_batch_interval = 5

[files]                        # or [kafka] with kafka_broker_list, kafka_topic and so on
path = "clicks/*.json"         # relative to this file
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from loaders.routine.spec import FILES, KAFKA, RoutineSpec
from store.errors import InvalidInputError, NotFoundError

_TEXTS: Final = frozenset(
    [
        "database",
        "name",
        "table",
        "merge_type",
        "column_separator",
        "line_delimiter",
        "preceding_filter",
        "where",
        "delete_on",
        "order_by",
        "comment",
    ]
)
_LISTS: Final = {"partitions": "partitions", "columns": "columns", "set": "assignments"}
_TABLES: Final = {"files": FILES, "kafka": KAFKA}


def read_spec(path: Path, *, name: str | None = None) -> RoutineSpec:
    """Reads a job file.

    Args:
        name: instead of the file's own.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: not TOML, an unknown or missing name, or a value of the wrong type.
    """
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file; name a routine load in TOML", path=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: not TOML: {error}", kind="bad_load") from error
    if name is not None:
        given["name"] = name
    known = {*_TEXTS, *_LISTS, *_TABLES, "properties"}
    for each in given.keys() - known:
        raise _bad(path, f"unknown name {each!r}; expected some of {', '.join(sorted(known))}")
    for each in ("database", "name", "table"):
        if not given.get(each):
            raise _bad(path, f"{each} is missing")
    sources = [each for each in _TABLES if each in given]
    if len(sources) != 1:
        raise _bad(path, "expected one of the tables [files] and [kafka]")
    values: dict[str, Any] = {each: _text(path, given, each) for each in _TEXTS & given.keys()}
    values |= {field: _list(path, given, each) for each, field in _LISTS.items() if each in given}
    values["merge_type"] = values.get("merge_type", "APPEND").upper()
    properties = {each.lower(): value for each, value in _properties(path, given, "properties").items()}
    source = _properties(path, given, sources[0])
    if sources[0] == "files" and "path" in source and "://" not in source["path"]:
        source["path"] = str(path.parent.resolve() / source["path"])
    return RoutineSpec(**values, properties=properties, source=_TABLES[sources[0]], source_properties=source)


def _text(path: Path, given: Mapping[str, Any], name: str) -> str:
    value = given[name]
    if not isinstance(value, str):
        raise _bad(path, f"{name}: expected a text, found {value!r}")
    return value


def _list(path: Path, given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = given[name]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _bad(path, f"{name}: expected a list of texts, found {value!r}")
    return tuple(value)


def _properties(path: Path, given: Mapping[str, Any], name: str) -> dict[str, str]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise _bad(path, f"{name}: expected a table, found {found!r}")
    return {
        each: str(value).lower() if isinstance(value, bool) else str(value) for each, value in found.items()
    }


def _bad(path: Path, message: str) -> InvalidInputError:
    return InvalidInputError(f"{path}: {message}", kind="bad_load")
