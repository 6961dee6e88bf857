"""The families of statements that the first words of frequent statements import."""

from __future__ import annotations

from seqstore.store.sql import statements
from seqstore.store.sql.session.statement_kind import all_kinds, kind_of, kinds_by_class


def test_the_families_of_a_word_hold_all_of_its_kinds_and_wrappers() -> None:
    """A kind in another module would not be found by a session that has imported no other family."""
    found: dict[str, set[str]] = {}
    for name in {kind.run.__module__ for kind in all_kinds()} | {f"{statements.__name__}.around"}:
        module = __import__(name, fromlist=["KINDS"])
        words = {start.split()[0] for kind in module.KINDS for start in kind.starts if not kind.is_around}
        for word in words | set(getattr(module, "WRAPPERS", ())):
            found.setdefault(word, set()).add(name.rpartition(".")[2])
    for word, families in statements.HOMES.items():
        assert found[word] <= set(families), word


def test_every_kind_is_found_by_the_class_of_its_statements() -> None:
    assert {statement: kind_of(statement) for statement in kinds_by_class()} == kinds_by_class()
    assert kind_of(str) is None
