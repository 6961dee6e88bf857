"""The privileges that a load needs, by its headers and by its specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.headers import evolution_in


def more_privileges(headers: Mapping[str, str], target: tuple[str, str]) -> list[tuple[str, ...]]:
    """Returns the privileges that a load needs beside LOAD, each with what it is on (EV8, EV10).

    Args:
        headers: by lower-case name.
        target: database and table.
    """
    found: list[tuple[str, ...]] = []
    if evolution_in(headers) != "off":
        found.append(("ALTER", *target))
    if headers.get("auto_create", "").strip().lower() == "true":
        found.append(("CREATE", target[0]))
    return found


def spec_privileges(spec: LoadSpec) -> Iterator[tuple[str, str, str]]:
    """Yields the privileges that a broker load needs, each with database and table."""
    for each in spec.descriptions:
        yield "LOAD", spec.database, each.table
        if evolution_in({**spec.properties, **each.properties}) != "off":
            yield "ALTER", spec.database, each.table
