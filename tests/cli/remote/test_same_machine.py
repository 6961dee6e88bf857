"""The state machine of tables, whose table is elsewhere: a server between it and the store.

Rules that reach into a load, and the settings of one store handle, stay with the machine itself. Everything
else, the model too, is that of `tests.stateful.test_table_machine`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from seqstore import Settings, Store
from tests.stateful.test_table_machine import FORMATS, SIZES, TableMachine, run_machine
from tests.support.remote.server import client, serving
from tests.support.shapes import EXACT_SHAPES, HASHED_SHAPES
from tests.weight import by_form


class RemoteMachine(TableMachine):
    """A table at a server in this process; a reopening is another server and another client."""

    shapes = (*EXACT_SHAPES, *HASHED_SHAPES)

    @initialize(data=st.data(), sizes=SIZES, layout=FORMATS)
    def make_table(self, data: st.DataObject, sizes: Settings, layout: tuple[str, str]) -> None:
        super().make_table(data, sizes, layout)
        self.served = ExitStack()
        self.go_elsewhere(self.store)

    def go_elsewhere(self, opened: Store) -> None:
        server = self.served.enter_context(serving(self.served.enter_context(opened)))
        self.store = self.served.enter_context(client(server))
        self.table = self.store.table(self.name)

    @rule(sizes=SIZES)
    def reopen(self, sizes: Settings) -> None:
        """The server ends; loads of its clients end with it."""
        self.served.close()
        self.open_loads = []
        self.sizes = sizes
        self.go_elsewhere(Store.open(self.path, create=False, settings=sizes))
        self.agree()

    def commit_overtaken(self, **_given: Any) -> None:
        """Is no rule here: it steps into the writer of a load."""

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            if hasattr(self, "served"):
                self.served.close()


def test_a_table_elsewhere_is_as_the_model_has_it() -> None:
    run_machine(RemoteMachine, by_form(2, 40), by_form(12, 30))
