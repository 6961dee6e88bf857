"""REORG TABLE ... APPLY: (PURGE) drops dead rows, (UPGRADE UNIFORM(...)) writes metadata of Iceberg."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from seqstore.store.iceberg.uniform import upgrade_uniform
from seqstore.store.sql.parse.statement_values import TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.statements.maintenance import compacted


@dataclass(frozen=True)
class Reorg:
    """`iceberg_compatibility` is None for PURGE."""

    table: TableName
    iceberg_compatibility: int | None = None


def _parse(stream: TokenStream) -> Reorg:
    table = parse_table_name(stream)
    stream.need("APPLY", "(")
    if not stream.take("UPGRADE"):
        stream.need("PURGE", ")")
        return Reorg(table)
    stream.need("UNIFORM", "(", "ICEBERG_COMPAT_VERSION", "=")
    compatibility = stream.integer("a version")
    stream.need(")", ")")
    return Reorg(table, compatibility)


def _reorg(statement: Reorg, session: Session) -> Result:
    table = session.table(statement.table)
    if statement.iceberg_compatibility is None:
        return compacted(table.purge())
    written = upgrade_uniform(table, statement.iceberg_compatibility)
    metrics = {name: [getattr(written, name)] for name in ("version", "files", "rows", "bytes")}
    return Result(pa.table({**metrics, "metadata": [str(written.metadata)]}))


KINDS: Final = (StatementKind(("REORG TABLE",), Reorg, _parse, _reorg),)
