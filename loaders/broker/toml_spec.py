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
from pathlib import Path
from typing import Any, Final

from seqstore.loaders.broker.spec import DataDescription, LoadSpec
from seqstore.loaders.jobs.rows_spec import lower_names
from seqstore.loaders.toml_file import TomlFile, spec_names

_JOB: Final = frozenset(["database", "label", "properties", "comment", "load"])
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
    properties = lower_names(file.properties(given))
    spec = LoadSpec(database, name, descriptions, properties, file.text(given, "comment"))
    spec.check()
    return spec


def _description(file: TomlFile, given: Mapping[str, Any]) -> DataDescription:
    file.check_names(given, spec_names(DataDescription), _WHERE)
    values = file.spec_fields(given, DataDescription, _WHERE)
    for name in ("table", "paths"):
        if not values.get(name):
            raise file.bad(f"{name} is missing{_WHERE}")
    if values.get("partitions") == ():
        raise file.bad(f"partitions is empty{_WHERE}: name some, or leave it out for all")
    values["paths"] = tuple(file.beside(each) for each in values["paths"])
    return DataDescription(**values)
