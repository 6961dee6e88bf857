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

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.toml_file import TomlFile

_JOB: Final = frozenset(["database", "label", "properties", "comment", "load"])
_RENAMED: Final = {"set": "assignments"}
_LISTS: Final = frozenset(["paths", "partitions", "columns", "columns_from_path", "set"])
_DESCRIPTION: Final = frozenset(
    [field.name for field in fields(DataDescription) if field.name != "assignments"] + ["set"]
)
_WHERE: Final = " in [[load]]"


def read_spec(path: Path, *, label: str | None = None) -> LoadSpec:
    """Reads a job file.

    Args:
        label: instead of the file's own, so that one file serves many runs.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: not TOML, an unknown or missing name, or a value of the wrong type.
    """
    file = TomlFile(path, "a load job")
    given = file.values
    file.check_names(given, _JOB)
    database = file.text(given, "database")
    if not database:
        raise file.bad("database is missing")
    name = label or file.text(given, "label")
    if not name:
        raise file.bad("label is missing; it makes the job idempotent")
    loads = given.get("load", [])
    if not isinstance(loads, list) or not all(isinstance(each, dict) for each in loads):
        raise file.bad("expected [[load]] tables")
    descriptions = tuple(_description(file, each) for each in loads)
    spec = LoadSpec(database, name, descriptions, _properties(file, given), file.text(given, "comment"))
    spec.check()
    return spec


def _description(file: TomlFile, given: Mapping[str, Any]) -> DataDescription:
    file.check_names(given, _DESCRIPTION, _WHERE)
    values: dict[str, Any] = {}
    for name in given:
        if name == "properties":
            values[name] = _properties(file, given)
        elif name in _LISTS:
            values[_RENAMED.get(name, name)] = file.texts(given, name, _WHERE)
        else:
            values[name] = file.text(given, name)
    for name in ("table", "paths"):
        if not values.get(name):
            raise file.bad(f"{name} is missing{_WHERE}")
    if values.get("partitions") == ():
        raise file.bad(f"partitions is empty{_WHERE}: name some, or leave it out for all")
    values["paths"] = tuple(file.beside(each) for each in values["paths"])
    values["merge_type"] = values.get("merge_type", "APPEND").upper()
    return DataDescription(**values)


def _properties(file: TomlFile, given: Mapping[str, Any]) -> dict[str, str]:
    return {name.lower(): value for name, value in file.properties(given).items()}
