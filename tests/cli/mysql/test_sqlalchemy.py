"""SQLAlchemy as a client, with a Doris dialect and with its own for MySQL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
import sqlalchemy.orm
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


MYSQL_STYLE = {"init_command": "SET show_create_table_style = 'mysql'"}


@pytest.fixture
def mysql_engine(server: MysqlServer) -> Any:
    """SQLAlchemy's own dialect of MySQL, which reflects tables by the text of SHOW CREATE TABLE."""
    url = f"mysql+pymysql://root:@127.0.0.1:{server.port}/db"
    engine = sa.create_engine(url, connect_args=MYSQL_STYLE)
    yield engine
    engine.dispose()


def test_the_mysql_dialect_reflects_keys_and_every_type(mysql_engine: Any) -> None:
    """It warned of every clause and found neither the key nor LARGEINT, STRING and nested types."""
    with mysql_engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE kinds (k1 INT NOT NULL, k2 VARCHAR(20) NOT NULL, li LARGEINT, s STRING, b BOOLEAN,"
            " n DECIMAL(27,9), ts DATETIME(6), j JSON, a ARRAY<INT>, m MAP<STRING,INT>,"
            " df INT NOT NULL DEFAULT '7' COMMENT 'it''s') UNIQUE KEY(k1, k2) COMMENT 'every kind'"
            " DISTRIBUTED BY HASH(k1) BUCKETS 1"
        )
    inspector = sa.inspect(mysql_engine)
    assert inspector.get_pk_constraint("kinds")["constrained_columns"] == ["k1", "k2"]
    assert inspector.get_table_comment("kinds") == {"text": "every kind"}
    assert inspector.get_unique_constraints("kinds") == []
    assert inspector.get_foreign_keys("kinds") == []
    columns = {column["name"]: column for column in inspector.get_columns("kinds")}
    assert {name: str(column["type"]) for name, column in columns.items()} == {
        "k1": "INTEGER", "k2": "VARCHAR(20)", "li": "DECIMAL(39, 0)", "s": "LONGTEXT", "b": "TINYINT",
        "n": "DECIMAL(27, 9)", "ts": "DATETIME", "j": "JSON", "a": "JSON", "m": "JSON", "df": "INTEGER",
    }  # fmt: skip
    assert (columns["df"]["default"], columns["df"]["comment"]) == ("'7'", "it's")
    assert not columns["k1"]["nullable"]
    assert columns["li"]["nullable"]
    reflected = sa.Table("kinds", sa.MetaData(), autoload_with=mysql_engine)
    assert [column.name for column in reflected.primary_key] == ["k1", "k2"]
    with mysql_engine.begin() as connection:  # the text makes a table again
        text = connection.exec_driver_sql("SHOW CREATE TABLE kinds").one()[1]
        connection.exec_driver_sql(text.replace("`kinds`", "`again`"))
    assert sa.inspect(mysql_engine).get_pk_constraint("again")["constrained_columns"] == ["k1", "k2"]


def test_generated_keys_are_returned(mysql_engine: Any) -> None:
    """A session of the ORM could not find the rows that it had inserted."""
    metadata = sa.MetaData()
    users = sa.Table("users", metadata, sa.Column("id", sa.BigInteger, primary_key=True),
                     sa.Column("name", sa.String(20)))  # fmt: skip

    class User:
        id: int

        def __init__(self, name: str) -> None:
            self.name = name

    sa.orm.registry().map_imperatively(User, users)
    metadata.create_all(mysql_engine)
    with mysql_engine.begin() as connection:
        assert connection.execute(sa.insert(users).values(name="a")).inserted_primary_key == (1,)
    with sa.orm.Session(mysql_engine) as session:
        made = [User("b"), User("c")]
        session.add_all(made)
        session.commit()
        assert sorted(session.execute(sa.select(users.c.id, users.c.name)).all()) == [
            (1, "a"),
            *((user.id, user.name) for user in made),
        ]
    metadata.drop_all(mysql_engine)


def test_create_all_and_orm_statements(mysql_engine: Any) -> None:
    """create_all was refused for PRIMARY KEY behind the columns."""
    metadata = sa.MetaData()
    made = sa.Table(
        "made", metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("name", sa.String(50)),
        sa.Column("ok", sa.Boolean), sa.Column("f", sa.Float), sa.Column("n", sa.Numeric(10, 2)),
        sa.Column("ts", sa.DateTime), sa.Column("x", sa.Text), sa.Column("big", sa.BigInteger),
    )  # fmt: skip
    metadata.create_all(mysql_engine)
    metadata.create_all(mysql_engine)
    with mysql_engine.begin() as connection:
        rows = [{"id": 1, "name": "a", "ok": True, "f": 1.5}, {"id": 2, "name": "b", "ok": False, "f": None}]
        connection.execute(sa.insert(made), rows)
        connection.execute(sa.update(made).where(made.c.id == 2).values(n=Decimal("1.20")))
    with mysql_engine.connect() as connection:
        found = connection.execute(sa.select(made.c.id, made.c.ok, made.c.n).order_by(made.c.id)).all()
    assert found == [(1, True, None), (2, False, Decimal("1.20"))]
    metadata.drop_all(mysql_engine)
    assert not sa.inspect(mysql_engine).has_table("made")


def test_pandas_writes_and_reads(mysql_engine: Any) -> None:
    frame = pd.DataFrame({"k": [7, 8], "v": ["x", None], "d": [1.5, None], "b": [True, False]})
    assert frame.to_sql("t", mysql_engine, if_exists="append", index=False) == 2
    with pytest.raises(ValueError, match="already exists"):
        frame.to_sql("t", mysql_engine, index=False)
    read = pd.read_sql("SELECT k, v, d FROM t WHERE k > 2 ORDER BY k", mysql_engine)
    assert read["k"].tolist() == [7, 8]
    assert read["d"].tolist()[0] == 1.5
    assert sorted(pd.read_sql_table("t", mysql_engine)["k"]) == [1, 2, 7, 8]


def test_pandas_makes_and_replaces_a_table_without_a_key(mysql_engine: Any) -> None:
    frame = pd.DataFrame({"k": [1, 2, 2], "v": ["a", "b", "b"], "d": pd.to_datetime(["2024-01-01"] * 3)})
    for way, rows in (("fail", 3), ("append", 6), ("replace", 3)):
        assert frame.to_sql("made", mysql_engine, if_exists=way, index=False) == 3
        assert pd.read_sql("SELECT k FROM made", mysql_engine)["k"].tolist().count(2) == rows // 3 * 2
    assert pd.read_sql_table("made", mysql_engine)["d"].tolist() == [pd.Timestamp("2024-01-01")] * 3


def test_the_style_of_show_create_table_is_checked(mysql_engine: Any) -> None:
    with (
        mysql_engine.connect() as connection,
        pytest.raises(sa.exc.DatabaseError, match="expected doris or mysql"),
    ):
        connection.exec_driver_sql("SET show_create_table_style = 'oracle'")
