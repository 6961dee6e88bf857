"""The clauses of MySQL's CREATE TABLE that Doris does not have, as ORMs, pandas and Spark write them.

1. PRIMARY KEY, in the column list or at a column, is UNIQUE KEY; its columns are NOT NULL, and an
   AUTO_INCREMENT column of a smaller type becomes BIGINT.
2. Types of MySQL become the narrowest type of Doris that holds their values.
3. Engine, character set and row format have no effect: text is UTF-8, and compares by bytes.

Other keys and foreign keys are refused by name, because nothing would keep them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from seqstore.store.schema.column import Column
from seqstore.store.sql.parse.sqlglot_adapter import TokenType
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.types.column_types import parse_type

_BIGINT: Final = parse_type("BIGINT")
_SMALLER: Final = ("TINYINT", "SMALLINT", "INT")
_TEXTS: Final = ("TINYTEXT", "MEDIUMTEXT", "LONGTEXT")
_UNSIGNED: Final = {
    "TINYINT": "SMALLINT",
    "SMALLINT": "INT",
    "MEDIUMINT": "INT",
    "INT": "BIGINT",
    "INTEGER": "BIGINT",
    "BIGINT": "LARGEINT",
}
ENGINES: Final = ("INNODB", "MYISAM", "ARIA", "MEMORY")
_FLOAT: Final = re.compile(r"(?i)(?:FLOAT|DOUBLE) ?\( ?(\d{1,3}) ?(?:, ?\d{1,3} ?)?\)")
_NO_KEY: Final = "is not kept here: the primary key alone is unique, leave the clause out"
_NO_INDEX: Final = "is not supported; the key is always indexed, leave the index out"
_OPTION_WORDS: Final = (
    "AUTO_INCREMENT",
    "AVG_ROW_LENGTH",
    "CHARSET",
    "CHECKSUM",
    "COLLATE",
    "DELAY_KEY_WRITE",
    "KEY_BLOCK_SIZE",
    "MAX_ROWS",
    "MIN_ROWS",
    "PACK_KEYS",
    "ROW_FORMAT",
    "STATS_AUTO_RECALC",
    "STATS_PERSISTENT",
)


def takes_key(stream: TokenStream, key: list[str]) -> bool:
    """Reads `[CONSTRAINT [name]] PRIMARY KEY [USING BTREE] (columns)` from a column list into `key`.

    Returns whether a key stood there, and no column.

    Raises:
        InvalidInputError: a key that the store does not keep.
    """
    start = stream.at
    is_named = stream.take("CONSTRAINT")
    if is_named and stream.word() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
        stream.name("a constraint name")
    if stream.take("PRIMARY", "KEY"):
        if stream.take("USING"):
            stream.take_one_of("BTREE", "HASH") or stream.fail("BTREE or HASH")
        if key:
            stream.refuse("a table has one PRIMARY KEY")
        key += stream.names("a key column")
        return True
    word, after = stream.word(), stream.word(1)
    if word == "UNIQUE" and (after in ("KEY", "INDEX", "(") or stream.word(2) == "("):
        stream.refuse(f"UNIQUE {_NO_KEY}")
    if word == "FOREIGN" and after == "KEY":
        stream.refuse("FOREIGN KEY is not kept here: nothing checks references, leave the clause out")
    if word in ("FULLTEXT", "SPATIAL") and after in ("KEY", "INDEX"):
        stream.refuse(f"{word} {after} {_NO_INDEX}")
    if word in ("INDEX", "KEY") and stream.kind(1) is not None and stream.word(2) in ("(", "USING"):
        stream.refuse(f"{word} {_NO_INDEX}")
    if is_named:
        stream.fail("PRIMARY KEY (columns); add CHECK by ALTER TABLE .. ADD CONSTRAINT")
    stream.at = start
    return False


def takes_attribute(stream: TokenStream) -> bool:
    """Reads CHARACTER SET, COLLATE or BINARY behind the type of a column."""
    if stream.take("CHARACTER", "SET") or stream.take("CHARSET"):
        stream.word_or_string("a character set")
    elif stream.take("COLLATE"):
        stream.word_or_string("a collation")
    elif not stream.take("BINARY"):
        return False
    return True


def takes_option(stream: TokenStream) -> bool:
    """Reads an option of a MySQL table without effect, such as `DEFAULT CHARSET=utf8mb4`."""
    start = stream.at
    stream.take("DEFAULT")
    if stream.take("CHARACTER", "SET") or stream.take_one_of(*_OPTION_WORDS):
        stream.take("=")
        if stream.kind() is TokenType.NUMBER:
            stream.integer("a number")
        else:
            stream.word_or_string("the value of the option")
        return True
    stream.at = start
    return False


def type_text(stream: TokenStream, text: str) -> str:
    """Returns the type of Doris for a type of MySQL, of which `text` was read already; others stay."""
    name = re.split(r"\W", text, maxsplit=1)[0].upper()
    if name == "DOUBLE" and stream.take("PRECISION"):
        return "DOUBLE"
    digits = _FLOAT.fullmatch(text)
    if digits is not None:  # FLOAT(25) and above has eight bytes in MySQL
        return "DOUBLE" if name == "DOUBLE" or ("," not in text and int(digits[1]) > 24) else "FLOAT"
    if name in _TEXTS:
        return "STRING"
    if name == "BIT":
        return "BOOLEAN" if "".join(text.split()).upper() in ("BIT", "BIT(1)") else text
    if name == "YEAR":
        return "SMALLINT"
    if name == "REAL":
        return "DOUBLE"
    is_unsigned = name in _UNSIGNED and stream.take("UNSIGNED")
    if name in _UNSIGNED:
        stream.take("SIGNED")
        stream.take("ZEROFILL")
    if is_unsigned:
        return _UNSIGNED[name]
    return re.sub("(?i)^MEDIUMINT", "INT", text)


def keyed(declared: list[tuple[Column, bool | None]], key: list[str]) -> list[tuple[Column, bool | None]]:
    """Returns the columns of a table with a PRIMARY KEY, as step 1 of the module declares them."""
    names = {name.lower() for name in key}
    found = []
    for column, nullable in declared:
        if column.auto_increment is not None and column.type.name in _SMALLER:
            column = replace(column, type=_BIGINT)
        found.append((column, False if column.name.lower() in names else nullable))
    return found
