"""Statements of Doris that are not supported: each is refused by name, with an alternative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.statement_kind import StatementKind

_NO_VIEWS: Final = "materialized views are not kept up to date here: use a view, or CREATE TABLE ... AS"
_NO_INDEXES: Final = "indexes are not made by hand: the key is indexed, zone maps prune by every column"
_NO_STATISTICS: Final = "there are no statistics to gather: zone maps are written with the rows"
_REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("CREATE MATERIALIZED VIEW", "DROP MATERIALIZED VIEW", "REFRESH MATERIALIZED VIEW"), _NO_VIEWS),
    **dict.fromkeys(("CREATE INDEX", "DROP INDEX", "BUILD INDEX"), _NO_INDEXES),
    **dict.fromkeys(("ANALYZE", "SHOW COLUMN STATS", "SHOW TABLE STATS"), _NO_STATISTICS),
    **dict.fromkeys(("PREPARE", "EXECUTE", "DEALLOCATE"),
                    "prepared statements are supported in the client's protocol, not as SQL text"),
    **dict.fromkeys(("CREATE CATALOG", "DROP CATALOG", "SWITCH"), "there is one catalog, internal"),
    **dict.fromkeys(("CREATE FUNCTION", "DROP FUNCTION"), "functions cannot be added"),
    **dict.fromkeys(("CREATE REPOSITORY", "DROP REPOSITORY", "SHOW REPOSITORIES", "ALTER REPOSITORY",
                     "CREATE READ ONLY REPOSITORY"),
                    "there are no repositories: BACKUP SNAPSHOT .. TO 'place' names a directory or a URI"),
    "BACKUP GLOBAL": "users, roles and settings are not backed up; BACKUP SNAPSHOT has tables and views",
    "RESTORE GLOBAL": "users, roles and settings are not backed up; RESTORE SNAPSHOT has tables and views",
    "RECOVER": "a dropped table is gone; RESTORE SNAPSHOT has the tables of a backup",
    **dict.fromkeys(("SHOW DATA", "SHOW TABLETS", "SHOW REPLICA"),
                    "sizes and rows are in information_schema.tables; there are no tablets"),
    **dict.fromkeys(("SET ROLE", "SET DEFAULT ROLE"), "all roles of a user are always active; use REVOKE"),
    "CREATE TEMPORARY TABLE": "tables are shared and stay; CREATE TABLE makes one, a CTE lives for one query",
    **dict.fromkeys(("CREATE TRIGGER", "DROP TRIGGER"), "there are no triggers; a table has a change feed"),
    **dict.fromkeys(("CREATE PROCEDURE", "DROP PROCEDURE", "CALL"), "there are no stored procedures"),
    **dict.fromkeys(("CREATE EVENT", "DROP EVENT"), "a scheduler of the system can run statements"),
    **dict.fromkeys(("CHECK TABLE", "REPAIR TABLE"), "see the commands seqstore check and repair"),
    **dict.fromkeys(("HANDLER", "XA"), "use SELECT, or BEGIN and COMMIT"),
    **dict.fromkeys(("TABLE", "VALUES"), "use SELECT"),
    **dict.fromkeys(("SHOW BINARY LOGS", "SHOW MASTER LOGS", "SHOW BINLOG EVENTS"),
                    "there is no binary log; the change feed of a table has its changes"),
    "ALTER DATABASE": "a database keeps its name and has no quotas",
    "ALTER TABLE * RENAME PARTITION": "a partition keeps its name",
    "CREATE OR REPLACE TABLE": "use DROP TABLE and CREATE TABLE, or INSERT OVERWRITE for rows alone",
}  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """The class of a kind whose parser always refuses."""


def _parse(stream: TokenStream) -> NoReturn:
    written = " ".join(token.text.upper() for token in stream.tokens[: max(stream.at, 1)])
    reason = next(
        (why for words, why in _REASONS.items() if words.startswith(written)), "it is not supported"
    )
    stream.at = 0
    stream.refuse(f"{written} is not supported: {reason}")


def _run(_statement: Refused, _session: Session) -> Result:
    return Result()


KINDS: Final = (StatementKind(tuple(_REASONS), Refused, _parse, _run, is_refused=True),)
