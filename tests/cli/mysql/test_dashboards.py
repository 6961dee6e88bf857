"""The statements that DBeaver, Metabase, Superset and Grafana send, in our own words."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

import pytest

IN_SCHEMA: Final = "information_schema"
DBEAVER: Final = [
    "SELECT @@GLOBAL.character_set_server, @@GLOBAL.collation_server",
    "SELECT DATABASE()", "SHOW PLUGINS", "SHOW ENGINES", "SHOW CHARSET", "SHOW COLLATION", "SHOW DATABASES",
    "SHOW VARIABLES", "SHOW GLOBAL VARIABLES", "SHOW GLOBAL STATUS", "SHOW STATUS", "SHOW FULL PROCESSLIST",
    "SHOW FULL TABLES FROM `db`", "SHOW TABLE STATUS FROM `db`", "SHOW CREATE TABLE `db`.`t`",
    "SHOW TRIGGERS FROM `db`", "SHOW GRANTS FOR 'root'@'%'",
    f"SELECT * FROM {IN_SCHEMA}.TABLES t WHERE t.TABLE_SCHEMA = '{IN_SCHEMA}'"
    " AND t.TABLE_NAME = 'CHECK_CONSTRAINTS'",
    f"SELECT * FROM {IN_SCHEMA}.COLUMNS WHERE TABLE_SCHEMA = 'db' AND TABLE_NAME = 't' ORDER BY"
    f" ORDINAL_POSITION",
    f"SELECT * FROM {IN_SCHEMA}.STATISTICS WHERE TABLE_SCHEMA = 'db' AND TABLE_NAME = 't'"
    " ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
    f"SELECT kc.CONSTRAINT_NAME, kc.COLUMN_NAME, tc.CONSTRAINT_TYPE FROM {IN_SCHEMA}.KEY_COLUMN_USAGE kc"
    f" JOIN {IN_SCHEMA}.TABLE_CONSTRAINTS tc ON tc.CONSTRAINT_NAME = kc.CONSTRAINT_NAME"
    " AND tc.TABLE_NAME = kc.TABLE_NAME WHERE kc.TABLE_SCHEMA = 'db' AND kc.REFERENCED_TABLE_NAME IS NULL"
    " ORDER BY kc.CONSTRAINT_NAME, kc.ORDINAL_POSITION",
    f"SELECT a.REFERENCED_TABLE_NAME, r.UPDATE_RULE FROM {IN_SCHEMA}.KEY_COLUMN_USAGE a"
    f" JOIN {IN_SCHEMA}.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_NAME = a.CONSTRAINT_NAME"
    " WHERE a.TABLE_SCHEMA = 'db' AND a.REFERENCED_TABLE_NAME IS NOT NULL",
    f"SELECT cc.CONSTRAINT_NAME, cc.CHECK_CLAUSE, tc.TABLE_NAME FROM {IN_SCHEMA}.CHECK_CONSTRAINTS cc,"
    f" {IN_SCHEMA}.TABLE_CONSTRAINTS tc WHERE cc.CONSTRAINT_NAME = tc.CONSTRAINT_NAME",
    f"SELECT * FROM {IN_SCHEMA}.EVENTS WHERE EVENT_SCHEMA = 'db' ORDER BY EVENT_NAME",
    f"SELECT * FROM {IN_SCHEMA}.ROUTINES WHERE ROUTINE_SCHEMA = 'db' AND ROUTINE_TYPE IN ('PROCEDURE',"
    f" 'FUNCTION')"
    " ORDER BY ROUTINE_NAME",
    f"SELECT * FROM {IN_SCHEMA}.PARTITIONS WHERE TABLE_SCHEMA = 'db' AND TABLE_NAME = 't'"
    " ORDER BY PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION",
    f"SELECT TABLE_SCHEMA, sum(DATA_LENGTH + INDEX_LENGTH) FROM {IN_SCHEMA}.TABLES GROUP BY TABLE_SCHEMA",
    "SELECT x.* FROM db.t x LIMIT 0, 200", "EXPLAIN SELECT * FROM t",
]  # fmt: skip
METABASE: Final = [
    "SELECT 1", "SELECT CURRENT_USER()", "SHOW GRANTS FOR CURRENT_USER", "SELECT @@GLOBAL.time_zone,"
    " @@system_time_zone",
    "SELECT time_format(timediff(now(), convert_tz(now(), @@session.time_zone, '+00:00')), '%H:%i') AS diff",
    f"SELECT c.column_name AS name, c.data_type AS kind, c.ordinal_position - 1 AS place, c.column_key ="
    f" 'UNI' AS pk,"
    f" nullif(c.column_comment, '') AS remark FROM {IN_SCHEMA}.columns c"
    " WHERE c.table_schema NOT IN ('information_schema', 'mysql') AND c.table_name IN ('t') ORDER BY place",
    "SELECT SUBSTRING(`t`.`v`, 1, 1234) AS `s`, `t`.`ts` AS `ts` FROM `t` LIMIT 10000",
    "SELECT count(DISTINCT `t`.`v`) AS `count` FROM `t` WHERE (`t`.`v` IS NOT NULL AND `t`.`v` <> '')",
]  # fmt: skip
SUPERSET: Final = [
    "SELECT VERSION()", "SELECT CONNECTION_ID()", "SHOW FULL TABLES FROM `db`", "SHOW CREATE TABLE `t`",
    "SELECT * FROM (SELECT k, v FROM t) AS virtual_table LIMIT 1001",
    "SELECT v AS v, count(*) AS `count`, sum(k) AS `SUM(k)` FROM t GROUP BY v ORDER BY `count` DESC LIMIT"
    " 1000",
]  # fmt: skip
GRAFANA: Final = [
    f"SELECT DISTINCT TABLE_SCHEMA FROM {IN_SCHEMA}.TABLES WHERE TABLE_TYPE <> 'SYSTEM VIEW' ORDER BY"
    f" TABLE_SCHEMA",
    f"SELECT table_name FROM {IN_SCHEMA}.tables WHERE table_schema = 'db' ORDER BY table_name",
    f"SELECT column_name, data_type FROM {IN_SCHEMA}.columns WHERE table_schema = 'db' AND table_name = 't'",
]  # fmt: skip
TOOLS: Final = {"dbeaver": DBEAVER, "metabase": METABASE, "superset": SUPERSET, "grafana": GRAFANA}
# `ts` is 2024-01-02 03:04:05, a Tuesday.
TIMES: Final = {
    # Metabase
    "DATE(ts)": date(2024, 1, 2),
    "STR_TO_DATE(CONCAT(DATE_FORMAT(ts, '%Y-%m'), '-01'), '%Y-%m-%d')": date(2024, 1, 1),
    "STR_TO_DATE(CONCAT(YEARWEEK(ts), ' Sunday'), '%X%V %W')": date(2023, 12, 31),
    "STR_TO_DATE(DATE_FORMAT(ts, '%Y-%m-%d %H'), '%Y-%m-%d %H')": datetime(2024, 1, 2, 3),
    "STR_TO_DATE(DATE_FORMAT(ts, '%Y-%m-%d %H:%i'), '%Y-%m-%d %H:%i')": datetime(2024, 1, 2, 3, 4),
    "MAKEDATE(YEAR(ts), 1)": date(2024, 1, 1),
    "CAST(ts AS DATE) + INTERVAL 1 DAY": date(2024, 1, 3),
    "WEEK(ts, 6)": 1,
    "DAYOFWEEK(ts) * 10000 + WEEK(ts, 3) * 100 + QUARTER(ts)": 30101,
    # Superset
    "DATE_ADD(DATE(ts), INTERVAL (HOUR(ts)*60*60 + MINUTE(ts)*60 + SECOND(ts)) SECOND)": datetime(
        2024, 1, 2, 3, 4, 5
    ),
    "DATE_ADD(DATE(ts), INTERVAL HOUR(ts) HOUR)": datetime(2024, 1, 2, 3),
    "DATE(DATE_SUB(ts, INTERVAL DAYOFWEEK(ts)-1 DAY))": date(2023, 12, 31),
    "DATE(DATE_SUB(ts, INTERVAL DAYOFMONTH(ts)-1 DAY))": date(2024, 1, 1),
    "DATE(DATE_SUB(ts, INTERVAL DAYOFYEAR(ts)-1 DAY))": date(2024, 1, 1),
    "MAKEDATE(YEAR(ts), 1) + INTERVAL QUARTER(ts) QUARTER - INTERVAL 1 QUARTER": date(2024, 1, 1),
    "ts >= STR_TO_DATE('2024-01-01 00:00:00.000000', '%Y-%m-%d %H:%i:%s.%f')": 1,
    # Grafana: $__timeFilter, $__timeGroup, $__timeEpoch
    "ts BETWEEN FROM_UNIXTIME(1704067200) AND FROM_UNIXTIME(1704240000)": 1,
    "ts BETWEEN FROM_UNIXTIME(1704240000) AND FROM_UNIXTIME(1704250000)": 0,
    "ts >= FROM_UNIXTIME(1704067200) AND ts <= FROM_UNIXTIME(1704240000)": 1,
    "UNIX_TIMESTAMP(ts) DIV 3600 * 3600": 1704164400,
    "UNIX_TIMESTAMP(ts)": 1704164645,
}


@pytest.mark.parametrize("tool", TOOLS)
def test_every_statement_of_a_tool_is_answered(connect: Any, tool: str) -> None:
    cursor = connect(autocommit=True).cursor()
    cursor.execute("SET time_zone = '+00:00'")
    for text in TOOLS[tool]:
        cursor.execute(text)
        assert cursor.description, text
        cursor.fetchall()


@pytest.mark.family(8)
@pytest.mark.parametrize("expression", TIMES)
def test_a_grain_of_time_has_its_value(connect: Any, expression: str) -> None:
    cursor = connect().cursor()
    cursor.execute("SET time_zone = '+00:00'")
    cursor.execute(f"SELECT {expression} AS x, count(*) AS n FROM t WHERE k = 1 GROUP BY x ORDER BY x")
    ((found, count),) = cursor.fetchall()
    if isinstance(found, datetime) and not isinstance(TIMES[expression], datetime):
        found = found.date()
    assert (found, count) == (TIMES[expression], 1)
