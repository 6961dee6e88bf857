"""SQLAlchemy as a client, with a Doris dialect and with its own for MySQL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

from seqstore.cli.mysql import MysqlServer

ROW = (1, "it's \\ ünï", 1.5, date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5), Decimal("12.30"), 1)


# The distribution's own entry point names a class that it no longer has.
registry.register("doris.pymysql", "doris_alchemy.core", "DorisDialect_pymysql")


@pytest.fixture
def engine(server: MysqlServer) -> Any:
    engine = sa.create_engine(f"doris+pymysql://root:@127.0.0.1:{server.port}/db")
    yield engine
    engine.dispose()


def test_sqlalchemy_with_a_doris_dialect_reflects_and_queries(engine: Any) -> None:
    inspector = sa.inspect(engine)
    assert inspector.get_table_names() == ["t"]
    assert "db" in inspector.get_schema_names()
    assert inspector.has_table("t")
    assert not inspector.has_table("nowhere")
    columns = {column["name"]: column for column in inspector.get_columns("t")}
    assert list(columns) == ["k", "v", "d", "dd", "ts", "n", "b"]
    assert columns["v"]["nullable"]
    assert not columns["k"]["nullable"]
    table = sa.table("t", *[sa.column(name) for name in columns])
    with engine.begin() as connection:
        rows = connection.execute(sa.select(table).order_by(table.c.k)).all()
        assert tuple(rows[0]) == ROW
        connection.execute(sa.insert(table), [{"k": 10, "v": "ten"}, {"k": 11, "v": None}])
        count = sa.select(sa.func.count()).select_from(table).where(table.c.k >= 10)
        assert connection.execute(count).scalar() == 2


def test_plain_mysql_dialect_connects_and_lists(server: MysqlServer) -> None:
    engine = sa.create_engine(f"mysql+pymysql://root:@127.0.0.1:{server.port}/db")
    assert sa.inspect(engine).get_table_names() == ["t"]
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT k FROM t WHERE v = :v"), {"v": ROW[1]}).scalar() == 1
    engine.dispose()
