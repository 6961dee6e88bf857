"""The contents of a store as plain values, so that two stores can be compared and one be kept as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from tests.golden.package import sql


def plain(value: Any) -> Any:
    """The value as JSON gives it back: dates, decimals and bytes as texts."""
    return json.loads(json.dumps(value, default=str))


def tables_of(store: Any) -> dict[str, Any]:
    """Every table of the store by its `db.table`."""
    with sql.Session(store) as session:
        return {
            f"{database}.{name}": _table(store.table(f"{database}.{name}"), session)
            for database in store.databases()
            for name in store.tables(database)
        }


def _table(table: Any, session: Any) -> dict[str, Any]:
    (created,) = session.execute(f"SHOW CREATE TABLE {table.name}")
    readable = range(table.oldest_version, table.version + 1)
    return {
        "create": created.rows.column(1).to_pylist()[0],
        "history": [_line(info) for info in table.history()],
        "versions": {str(version): version_rows(table, version) for version in readable},
        "changes": _changes(table),
    }


def _line(info: Any) -> str:
    rows = "rows" if info.has_data_change else "rows moved"
    metrics = info.metrics if hasattr(info, "metrics") else info.figures  # its name before 0.2.0
    return f"{info.version} {info.operation}: {metrics.rows_loaded} {rows}"


def version_rows(table: Any, version: int) -> list[str]:
    """The rows of a version with their hidden columns, tombstones included."""
    with table.snapshot(version) as snapshot:
        return _lines(snapshot.scan(hidden=True, deleted=True).read_all())


def _changes(table: Any) -> list[str]:
    """The rows that every readable version changed."""
    if table.oldest_version == table.version:
        return []
    rows = table.changes(table.oldest_version + 1).read_all()
    return _lines(rows.drop_columns(["_commit_timestamp"]))


def _lines(rows: pa.Table) -> list[str]:
    """Each row as a line of JSON, in the order of the lines."""
    values = (list(row.values()) for row in rows.to_pylist())
    return sorted(json.dumps(row, default=str, ensure_ascii=False) for row in values)


def transactions_of(store: Any, database: str, labels: Iterable[str]) -> dict[str, Any]:
    """Status, version and tables of the transactions that the labels name."""
    found = {label: store.find_transaction(database, label) for label in labels}
    return {
        label: None if record is None else [record.status, record.version, dict(record.versions)]
        for label, record in found.items()
    }


def shown(session: Any, statement: str, columns: Iterable[str]) -> list[dict[str, Any]]:
    """Some columns of the rows that a SHOW statement answers with."""
    (result,) = session.execute(statement)
    return [plain(row) for row in result.rows.select(list(columns)).to_pylist()]
