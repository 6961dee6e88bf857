"""The public surface: the names `seqstore` exports, and the objects it takes from other libraries."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seqstore as package
from seqstore import InvalidInputError, Store, Table
from seqstore.store import errors
from seqstore.store.runtime.internal import is_internal
from tests.support.rows import MakeTable, rows_of, schema_of

ROOT = Path(__file__).parents[2]


def test_exported_names_are_sorted_and_there() -> None:
    assert package.__all__ == sorted(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


def test_every_error_is_exported() -> None:
    names = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    assert set(names) <= set(package.__all__)


@pytest.mark.maintenance  # which other tests replace
def test_public_functions_are_documented_and_name_real_errors() -> None:
    for cls in (getattr(package, name) for name in package.__all__):
        assert cls.__doc__, cls
        for name, member in vars(cls).items() if inspect.isclass(cls) else ():
            if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
                continue
            assert inspect.getdoc(member), f"{cls.__name__}.{name}"
            raises = (inspect.getdoc(member) or "").partition("Raises:")[2]
            for error in re.findall(r"^\s+(\w+Error):", raises, re.MULTILINE):
                assert hasattr(errors, error), f"{cls.__name__}.{name} raises {error}"


# Values that only this package makes and reads: a step of a loader's transaction, the parts of a server.
_FOR_THIS_PACKAGE = {
    "Load.commit": {"CatalogTransaction"},
    "ServerContext.load_jobs": {"LoadJobs"},
    "ServerContext.ports": {"Ports"},
    "ServerContext.processes": {"Processes"},
    "ServerContext.queues": {"WorkloadQueues"},
    "Transaction.commit": {"CatalogTransaction"},
    "WriteArguments.evolution": {"Evolution"},
    "WriteOptions.evolution": {"Evolution"},
}


def _names_in(module: Any) -> dict[str, Any]:
    """Names of a module, with those that it imports for type checkers alone."""
    names = dict(vars(module))
    for block in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and line.module is not None:
                    imported = import_module(line.module)
                    names |= {alias.name: getattr(imported, alias.name) for alias in line.names}
    return names


def _hints(documented: Any) -> dict[str, Any]:
    return typing.get_type_hints(documented, _names_in(sys.modules[documented.__module__]))


def _types_in(hint: Any) -> Iterator[type]:
    """Every class that a type hint mentions."""
    if isinstance(hint, list):
        for part in hint:
            yield from _types_in(part)
    elif isinstance(hint, type):
        yield hint
    for part in typing.get_args(hint):
        yield from _types_in(part)


def _public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class and its bases in this package that users may call."""
    for base in cls.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("seqstore.") else ():
            is_generated = name == "__init__" and "__dataclass_fields__" in vars(base)
            if is_internal(member) or is_generated or (name.startswith("_") and name != "__init__"):
                continue
            for attribute in ("fget", "__func__", "_compute"):
                member = getattr(member, attribute, None) or member
            if inspect.isfunction(member):
                yield name, member


def _unexported(cls: type, exported: set[Any]) -> Iterator[str]:
    for name, member in _public_members(cls):
        where = f"{cls.__name__}.{name}"
        found = {part for hint in _hints(member).values() for part in _types_in(hint)} - exported
        ours = {part.__name__ for part in found if _is_ours(part)}
        yield from (f"{where}: {part}" for part in sorted(ours - _FOR_THIS_PACKAGE.get(where, set())))
    for base in cls.__mro__:
        for name, hint in _hints(base).items() if base.__module__.startswith("seqstore.") else ():
            found = set() if name.startswith("_") else set(_types_in(hint)) - exported
            where = f"{cls.__name__}.{name}"
            ours = {part.__name__ for part in found if _is_ours(part)} - _FOR_THIS_PACKAGE.get(where, set())
            yield from (f"{where}: {part}" for part in sorted(ours))


def _is_ours(part: type) -> bool:
    return part.__module__.startswith("seqstore.")


@pytest.mark.maintenance  # which other tests replace
def test_types_in_public_signatures_are_exported() -> None:
    exported = {getattr(package, name) for name in package.__all__}
    classes = [value for value in exported if inspect.isclass(value)]
    assert sorted(missing for cls in classes for missing in _unexported(cls, exported)) == []


def test_a_type_that_is_not_exported_is_found_unless_its_method_is_internal() -> None:
    exported = {getattr(package, name) for name in package.__all__} - {package.LoadResult}
    found = list(_unexported(Table, exported))
    assert "Table.upsert: LoadResult" in found
    assert all(line.endswith(": LoadResult") for line in found), "Table.state is internal"


def test_the_engine_imports_nothing_above_it() -> None:
    """The engine knows nothing of loaders, the command line, SQL, Spark or HTTP."""
    above = ["seqstore.loaders", "seqstore.cli", "seqstore.store.sql", "pyspark", "aiohttp"]
    code = f"import sys, seqstore.store; print([name for name in {above} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_name_seqstore_imports_nothing_before_it_is_used() -> None:
    """The command line shows its help without the engine."""
    code = "import sys, seqstore; print([name for name in sys.modules if name.startswith('seqstore.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("db.t", schema_of("k BIGINT NOT NULL", "name VARCHAR(20)", "x DOUBLE"))


def pandas_rows() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"k": [1, 2], "name": ["a", None], "x": [0.5, None]})


def polars_rows() -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"k": [1, 2], "name": ["a", None], "x": [0.5, None]})


def duckdb_rows() -> Any:
    query = "SELECT * FROM (VALUES (1::BIGINT, 'a', 0.5::DOUBLE), (2, NULL, NULL)) AS t(k, name, x)"
    return duckdb.sql(query)


def arrow_table() -> pa.Table:
    return pa.table({"k": [1, 2], "name": ["a", None], "x": [0.5, None]})


class OnlyCapsule:
    """Nothing but the PyCapsule interface, as an unknown library has it."""

    def __init__(self, rows: Any, kind: str) -> None:
        self.rows = rows
        if kind == "stream":
            self.__class__ = type(
                "Stream", (), {"__arrow_c_stream__": lambda _, s=None: rows.__arrow_c_stream__(s)}
            )
        else:
            batch = rows.to_batches()[0]
            self.__class__ = type(
                "Array", (), {"__arrow_c_array__": lambda _, s=None: batch.__arrow_c_array__(s)}
            )


SOURCES: dict[str, Any] = {
    "pandas": pandas_rows,
    "polars": polars_rows,
    "duckdb": duckdb_rows,
    "table": arrow_table,
    "batch": lambda: arrow_table().to_batches()[0],
    "reader": lambda: arrow_table().to_reader(1),
    "stream capsule": lambda: OnlyCapsule(arrow_table(), "stream"),
    "array capsule": lambda: OnlyCapsule(arrow_table(), "array"),
    "views": lambda: arrow_table().cast(
        pa.schema([("k", pa.int64()), ("name", pa.string_view()), ("x", pa.float64())])
    ),
    "large": lambda: arrow_table().cast(
        pa.schema([("k", pa.int32()), ("name", pa.large_string()), ("x", pa.float32())])
    ),
    "dictionary": lambda: pa.table(
        {**arrow_table().to_pydict(), "name": pa.array(["a", None]).dictionary_encode()}
    ),
    "slices": lambda: pa.concat_tables(
        [arrow_table().slice(0, 1), arrow_table().slice(1), arrow_table().slice(2)]
    ),
}


@pytest.mark.parametrize("source", sorted(SOURCES))
def test_rows_come_from_any_arrow_speaking_library(table: Table, source: str) -> None:
    result = table.upsert(SOURCES[source]())
    assert (result.rows_total, result.rows_loaded) == (2, 2)
    assert rows_of(table) == [(1, "a", 0.5), (2, None, None)]


@pytest.mark.parametrize("source", ["pandas", "polars", "duckdb", "batch", "stream capsule", "array capsule"])
def test_keys_come_from_any_arrow_speaking_library(table: Table, source: str) -> None:
    table.upsert(arrow_table())
    assert table.get(SOURCES[source](), ["k"]).column("k").to_pylist() == [1, 2]
    assert table.delete(SOURCES[source]()).rows_deleted == 2


def test_a_scan_goes_into_any_arrow_speaking_library(table: Table) -> None:
    table.upsert(arrow_table())
    assert duckdb.from_arrow(table.scan(["k", "x"])).sum("k").fetchall() == [(3,)]
    assert sorted(table.scan(["k"]).read_pandas()["k"]) == [1, 2]


def test_numpy_backed_columns_are_copied_before_the_caller_changes_them(table: Table) -> None:
    """What a load has taken is the load's: a snapshot may not change with the caller's array."""
    keys = np.arange(1000)
    with table.begin_load() as load:
        load.write(pa.table({"k": keys}))
        keys[:] = -1
        load.commit()
    assert table.count() == 1000
    assert sorted(row[0] for row in rows_of(table)) == list(range(1000))
    assert table.check() == []


def test_an_update_assigns_integers_of_any_size(make_table: MakeTable) -> None:
    table = make_table("k INT NOT NULL", "i INT", "l LARGEINT")
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    table.update({"l": 2**100})
    table.update({"l": pc.field("l"), "i": -(2**31)})
    assert rows_of(table) == [(1, -(2**31), 2**100)]
    for name, value in (("i", 2**70), ("i", -(2**63) - 1), ("l", 10**60), ("l", 10**80)):
        with pytest.raises(errors.StoreError, match=f"column.{name}.*"):
            table.update({name: value})


@pytest.mark.parametrize("value", [object(), 10**80, [1, "x"]], ids=["object", "int", "list"])
def test_an_update_refuses_values_that_are_none_of_arrows(make_table: MakeTable, value: Any) -> None:
    table = make_table("k INT NOT NULL", "i INT")
    table.upsert(pa.table({"k": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidInputError, match=r"column i: .* of type \w+ cannot be assigned"):
        table.update({"i": value})
