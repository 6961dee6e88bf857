"""Routine loads written as TOML, such as those in conf/routine.

database = "shop"
name = "clicks"
table = "clicks"               # left out: the messages name their tables, as in table|data
columns = ["id", "at_text"]
set = ["at = cast(at_text as datetime)"]
order_by = "at"

[properties]
max_batch_interval = 5

[files]                        # or [kafka] with kafka_broker_list and so on, or [delta] with path
path = "clicks/*.json"         # relative to this file
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from seqstore.loaders.routine.spec import DELTA, FILES, KAFKA, RoutineSpec
from seqstore.loaders.toml_file import TomlFile, spec_names

_TABLES: Final = {"files": FILES, "kafka": KAFKA, "delta": DELTA}


def read_spec(path: Path, *, name: str | None = None) -> RoutineSpec:
    """Reads a job file.

    Args:
        name: instead of the file's own.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: not TOML, an unknown or missing name, or a value of the wrong type.
    """
    file = TomlFile(path, "a routine load")
    given = file.values
    if name is not None:
        given["name"] = name
    file.check_names(given, spec_names(RoutineSpec) - {"source", "source_properties"} | _TABLES.keys())
    for each in ("database", "name"):
        if not given.get(each):
            raise file.bad(f"{each} is missing")
    sources = [each for each in _TABLES if each in given]
    if len(sources) != 1:
        raise file.bad("expected one of the tables [files], [kafka] and [delta]")
    values = {"table": "", **file.spec_fields(given, RoutineSpec)}  # R3
    source = file.properties(given, sources[0])
    if sources[0] in ("files", "delta") and "path" in source:
        source["path"] = file.beside(source["path"])
    return RoutineSpec(**values, source=_TABLES[sources[0]], source_properties=source)
