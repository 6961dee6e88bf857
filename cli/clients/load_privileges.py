"""The privileges that a load needs, by its headers and by its specification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from seqstore.loaders.broker.spec import LoadSpec
from seqstore.loaders.headers import by_plain_names, evolution_in


def more_privileges(headers: Mapping[str, str], target: tuple[str, str]) -> list[tuple[str, ...]]:
    """Returns the privileges that a load needs beside LOAD, each with what it is on (EV8, EV10).

    Args:
        headers: as the load has them.
        target: database and table.
    """
    given = by_plain_names(headers)
    is_creating = given.get("auto_create", "").strip().lower() == "true"
    return _more(target, is_evolving=evolution_in(given) != "off", is_creating=is_creating)


def spec_privileges(spec: LoadSpec) -> Iterator[tuple[str, ...]]:
    """Yields the privileges that a broker load needs, each with what it is on (EV8, EV10)."""
    for each in spec.descriptions:
        options = spec.options(each)
        target = (spec.database, each.table)
        yield "LOAD", *target
        yield from _more(target, is_evolving=options.evolves, is_creating=options.auto_create)


def _more(target: tuple[str, str], *, is_evolving: bool, is_creating: bool) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    if is_evolving:
        found.append(("ALTER", *target))
    if is_creating:
        found.append(("CREATE", target[0]))
    return found
