"""ALTER TABLE ADD, DROP, RENAME and MODIFY COLUMN: what else of a table names the column (SC1, SD7)."""

from __future__ import annotations

import pytest

from seqstore import InvalidInputError, Table
from seqstore.store.sql import Session
from tests.support.statements import run

TABLE = """
CREATE TABLE t (k INT NOT NULL, day INT NOT NULL, grp INT NULL, n INT NOT NULL DEFAULT "7")
UNIQUE KEY(k, day) DISTRIBUTED BY HASH(k) BUCKETS 1;
INSERT INTO t VALUES (1, 1, 10, 1), (2, 1, 20, 2);
"""


pytestmark = pytest.mark.sql(TABLE)


def table(session: Session) -> Table:
    return session.store.table("db.t")


def test_a_renamed_partition_column_is_named_anew_in_the_property(session: Session) -> None:
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('partition_columns' = 'Day, grp')")
    run(session, "ALTER TABLE t RENAME COLUMN grp TO g")
    assert table(session).schema.properties["partition_columns"] == "day,g"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET n = 1 WHERE n > 1",
        "DELETE FROM t WHERE n > 1",
        "BEGIN; SELECT * FROM t WHERE n = 1",
        "ALTER TABLE t SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')",
    ],
)
def test_a_table_whose_partition_column_was_renamed_works(session: Session, statement: str) -> None:
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('partition_columns' = 'grp')")
    run(session, "ALTER TABLE t RENAME COLUMN grp TO g")
    run(session, statement)


def test_a_partition_column_cannot_be_dropped(session: Session) -> None:
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('partition_columns' = 'grp')")
    with pytest.raises(InvalidInputError, match="'grp' is named by the property partition_columns"):
        run(session, "ALTER TABLE t DROP COLUMN grp")


def test_a_column_that_is_no_partition_column_any_more_can_be_dropped(session: Session) -> None:
    run(session, "ALTER TABLE t SET TBLPROPERTIES ('partition_columns' = 'grp')")
    run(session, "ALTER TABLE t UNSET TBLPROPERTIES ('partition_columns'), DROP COLUMN grp")
    assert table(session).schema.names == ["k", "day", "n"]


def test_what_show_create_table_prints_after_a_rename_can_be_run(session: Session) -> None:
    run(session, "ALTER TABLE t RENAME COLUMN k TO id")
    printed = run(session, "SHOW CREATE TABLE t")[0][1]
    run(session, f"DROP TABLE t; {printed}")
    assert table(session).schema.distribution == "HASH(`id`) BUCKETS 1"


@pytest.mark.parametrize("change", ["ADD COLUMN w INT", "ADD COLUMN (w INT)", "ADD COLUMN w INT DEFAULT '5'"])
def test_a_column_added_without_not_null_may_be_null(session: Session, change: str) -> None:
    run(session, f"ALTER TABLE t {change}")
    assert table(session).schema.column("w").nullable


def test_a_column_added_as_not_null_stays_it(session: Session) -> None:
    run(session, "ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT '5'")
    assert not table(session).schema.column("w").nullable


@pytest.mark.parametrize("column", ["grp", "n"])
def test_a_value_column_modified_without_not_null_may_be_null(session: Session, column: str) -> None:
    run(session, f"ALTER TABLE t MODIFY COLUMN {column} BIGINT")
    assert table(session).schema.column(column).nullable


def test_a_key_column_modified_without_not_null_keeps_its_nulls_out(session: Session) -> None:
    run(session, "ALTER TABLE t MODIFY COLUMN k INT COMMENT 'the key'")
    assert not table(session).schema.column("k").nullable


@pytest.mark.parametrize(
    "column",
    [
        "n BIGINT NOT NULL DEFAULT '8'",
        "n BIGINT NULL DEFAULT NULL",
        "grp BIGINT NULL DEFAULT '8'",
        "grp INT NULL DEFAULT '8' COMMENT 'x'",
    ],
)
def test_sc1_another_default_is_refused(session: Session, column: str) -> None:
    before = table(session).version
    with pytest.raises(InvalidInputError, match="Can not change default value"):
        run(session, f"ALTER TABLE t MODIFY COLUMN {column}")
    assert table(session).version == before


@pytest.mark.parametrize("column", ["n BIGINT NOT NULL DEFAULT 7", "n BIGINT NOT NULL"])
def test_sc1_a_widened_column_keeps_its_default(session: Session, column: str) -> None:
    run(session, f"ALTER TABLE t MODIFY COLUMN {column}; INSERT INTO t (k, day, grp) VALUES (3, 1, 30)")
    assert run(session, "SELECT n FROM t WHERE k = 3") == [(7,)]


def test_a_nullable_column_without_a_default_has_the_default_null(session: Session) -> None:
    run(session, "ALTER TABLE t MODIFY COLUMN grp BIGINT NULL DEFAULT NULL")
    assert str(table(session).schema.column("grp").type) == "BIGINT"


def test_a_modified_column_takes_its_new_comment(session: Session) -> None:
    run(session, "ALTER TABLE t MODIFY COLUMN grp BIGINT NULL COMMENT 'the group'")
    assert table(session).schema.column("grp").comment == "the group"


@pytest.mark.parametrize("clause", ["grp INT NULL AUTO_INCREMENT", "at DATETIME ON UPDATE CURRENT_TIMESTAMP"])
def test_what_a_column_takes_by_itself_cannot_be_changed(session: Session, clause: str) -> None:
    run(session, "ALTER TABLE t ADD COLUMN at DATETIME")
    with pytest.raises(InvalidInputError, match="Can not change"):
        run(session, f"ALTER TABLE t MODIFY COLUMN {clause}")
