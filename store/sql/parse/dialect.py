"""The SQL dialect handed to sqlglot: its Doris, with the corrections this project needs.

It knows the Doris spellings of types, and no word makes the rest of a statement plain text. The functions of
`PLAIN_FUNCTIONS` stay plain calls, for sqlglot's own classes lose or change their arguments;
`sql.translate.functions` translates them.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from seqstore.store.sql.parse.sqlglot_adapter import (
    Doris,
    DorisParser,
    DorisTokenizer,
    TokenType,
    exp,
    version_keywords,
)

PLAIN_FUNCTIONS: Final = frozenset(
    re.findall(
        r"\w+",
        """
        ADDDATE ADD_MONTHS ARRAYS_OVERLAP ARRAY_AGG ARRAY_COMPACT ARRAY_CONCAT ARRAY_CONTAINS
        ARRAY_CONTAINS_ALL ARRAY_DISTINCT ARRAY_EXCEPT ARRAY_FILTER ARRAY_FIRST ARRAY_INTERSECT
        ARRAY_JOIN ARRAY_LAST ARRAY_MAP ARRAY_POSITION ARRAY_REMOVE ARRAY_REVERSE ARRAY_SIZE
        ARRAY_SLICE ARRAY_SORT ARRAY_UNION BIN BIT_COUNT BOOL_AND BOOL_OR CARDINALITY
        CHARACTER_LENGTH CHAR_LENGTH COLLECT_LIST COLLECT_SET CONCAT_WS CONVERT_TIMEZONE CONVERT_TZ
        COSEC COVAR CSC CURDATE CURRENT_CATALOG CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURTIME DATABASE
        DATE DATEDIFF DATE_ADD DATE_FORMAT DATE_SUB DATE_TRUNC DAY DAYNAME DAYOFMONTH DAYOFWEEK
        DAYOFYEAR DAYS_ADD DAYS_SUB DAY_OF_WEEK DAY_OF_YEAR ELEMENT_AT ELT EVEN FORMAT FROM_UNIXTIME GCD
        GET_JSON_STRING GROUP_CONCAT HEX HOUR INITCAP INSERT INSTR JSONB_EXTRACT JSON_ARRAY JSON_EXTRACT
        JSON_KEYS JSON_LENGTH JSON_OBJECT JSON_TYPE JSON_UNQUOTE JSON_VALID JSON_VALUE KURTOSIS
        LAST_DAY LAST_INSERT_ID LCASE LCM LEFT LENGTH LOCALTIME LOCALTIMESTAMP LOCATE LOG LPAD MAKETIME MAP
        MAP_CONCAT MAP_CONTAINS_KEY MAP_ENTRIES MAP_KEYS MAP_SIZE MAP_VALUES MICROSECOND MID MINUTE
        MOD MONTH MONTHNAME MONTHS_ADD MONTHS_BETWEEN NAMED_STRUCT NEGATIVE NEXT_DAY NOW OCTET_LENGTH OVERLAY
        PARSE_URL
        PERCENTILE PERCENTILE_APPROX PREVIOUS_DAY QUARTER RAND RANDOM REGEXP_COUNT REGEXP_EXTRACT
        REGEXP_REPLACE REGR_INTERCEPT REGR_SLOPE RIGHT RPAD SCHEMA SEC SECOND SEC_TO_TIME SHA2 SIZE
        SPACE SPLIT_BY_STRING SPLIT_PART STD STDDEV STRUCT_ELEMENT STR_TO_DATE STR_TO_MAP SUBDATE SUBSTR
        SUBSTRING
        SUBSTRING_INDEX SYSDATE TIMEDIFF TIMESTAMP TIMESTAMPADD TIMESTAMPDIFF TIME_TO_SEC TO_DATE TO_DAYS
        TO_JSON TRUNC TRUNCATE UCASE UNHEX UNIX_TIMESTAMP URL_DECODE URL_ENCODE USER UTC_DATE UTC_TIME
        UTC_TIMESTAMP
        VARIANCE VERSION WEEK WEEKDAY WEEKOFYEAR WEEKS_ADD WEEK_OF_YEAR WIDTH_BUCKET YEAR YEARS_ADD
        YEARWEEK YEAR_OF_WEEK
        """,
    )
)
# MySQL's escapes. sqlglot knows all of them since 30.22; older ones keep some backslashes.
_ESCAPES: Final = {f"\\{char}": char for char in map(chr, range(32, 127))} | {
    "\\0": "\0",
    "\\b": "\b",
    "\\n": "\n",
    "\\r": "\r",
    "\\t": "\t",
    "\\Z": "\x1a",
    "\\%": "\\%",
    "\\_": "\\_",
}
UTF8_INTRODUCERS: Final = ("_utf8mb4", "_utf8mb3", "_utf8", "_binary", "_ascii")  # of texts as they are
TABLETS: Final = "tablets"  # of a partition's `meta`: the ids in TABLET (..)
_VERSION_PHRASES: Final[dict[tuple[str, ...], str]] = {("FOR", "TIME"): "TIMESTAMP"}
_TYPE_WORDS: Final = {"DATETIMEV1": TokenType.DATETIME, "DATETIMEV2": TokenType.DATETIME,
                      "DATEV1": TokenType.DATE, "DATEV2": TokenType.DATE, "DECIMALV2": TokenType.DECIMAL,
                      "DECIMALV3": TokenType.DECIMAL, "LARGEINT": TokenType.INT128,
                      "TIMESTAMP": TokenType.DATETIME}  # fmt: skip


def is_utf8(introducer: str) -> bool:
    """Returns whether a text behind a character set is what it is without."""
    return introducer.lower() in UTF8_INTRODUCERS


def _without_plain(functions: dict[str, Any]) -> dict[str, Any]:
    return {name: build for name, build in functions.items() if name not in PLAIN_FUNCTIONS}


class SqlParser(DorisParser):
    """sqlglot's parser of expressions and queries."""

    def _parse_plain_concat(self) -> exp.Expr | None:
        """Parses the arguments of `group_concat`; the separator becomes the second of a plain call."""
        arguments = self._parse_csv(self._parse_lambda)
        if self._match(TokenType.SEPARATOR):
            separator = self._parse_field()
            if separator is None:
                self.raise_error("Expected a separator in quotes")
                return None
            last = arguments[-1] if arguments else None
            if isinstance(last, exp.Order):
                arguments.insert(-1, last.this)
                last.set("this", separator)
            else:
                arguments.append(separator)
        return exp.Anonymous(this="group_concat", expressions=arguments)

    def _parse_distinct_concat(self) -> exp.Expr | None:
        parsed = self._parse_plain_concat()
        arguments = parsed.expressions if parsed is not None else []
        if parsed is not None and arguments and not isinstance(arguments[0], (exp.Distinct, exp.Order)):
            parsed.set("expressions", [exp.Distinct(expressions=[arguments[0]]), *arguments[1:]])
        return parsed

    def _parse_plain_substring(self) -> exp.Expr:
        """Parses `substring(text, place, length)` and `substring(text FROM place FOR length)`."""
        arguments = self._parse_csv(self._parse_bitwise)
        for word in (TokenType.FROM, TokenType.FOR):
            argument = self._parse_bitwise() if self._match(word) else None
            if argument is not None:
                arguments.append(argument)
        return exp.Anonymous(this="substring", expressions=arguments)

    def _parse_moment(self, text: exp.Expr, kind: exp.DataType) -> exp.Expr:
        """Parses `TIMESTAMP '..'`, which has the digits behind the second of its text."""
        fraction = re.search(r"\.(\d+)", text.name)
        if fraction is not None and not kind.expressions:
            kind = exp.DataType.build(f"DATETIME({min(len(fraction[1]), 6)})")
        return self.expression(exp.Cast(this=text, to=kind))

    VERSION_PHRASES: ClassVar = {**DorisParser.VERSION_PHRASES, **_VERSION_PHRASES}
    FUNCTIONS = _without_plain(DorisParser.FUNCTIONS)
    FUNCTION_PARSERS: ClassVar = {
        **_without_plain(DorisParser.FUNCTION_PARSERS),
        "GROUP_CONCAT": _parse_plain_concat,
        "MULTI_DISTINCT_GROUP_CONCAT": _parse_distinct_concat,
        **dict.fromkeys(("MID", "SUBSTR", "SUBSTRING"), _parse_plain_substring),
    }
    TYPE_LITERAL_PARSERS: ClassVar = {
        **DorisParser.TYPE_LITERAL_PARSERS,
        exp.DataType.Type.DATETIME: _parse_moment,
    }
    PARTITION_KEYWORDS: ClassVar = {*DorisParser.PARTITION_KEYWORDS, "PARTITIONS"}
    NO_PAREN_FUNCTIONS = DorisParser.NO_PAREN_FUNCTIONS | {TokenType.CURRENT_DATE: exp.CurrentDate}

    def _parse_types(self, *arguments: Any, **named: Any) -> Any:
        """Parses a type; DECIMAL without digits is DECIMAL(38, 9), as in the declaration of a column."""
        found = super()._parse_types(*arguments, **named)
        if isinstance(found, exp.DataType) and found.is_type("DECIMAL") and not found.expressions:
            found.set("expressions", exp.DataType.build("DECIMAL(38, 9)").expressions)
        return found

    def _parse_introducer(self, token: Any) -> Any:
        """Parses a text behind its character set, as drivers write bytes: `_binary'..'`, `_utf8mb4'..'`."""
        found = super()._parse_introducer(token)
        if not isinstance(found, exp.Introducer):
            return found
        if not is_utf8(token.text):
            self.raise_error(f"Expected {', '.join(UTF8_INTRODUCERS)}, as texts are UTF-8")
        return found.expression

    def _parse_table_parts(self, *arguments: Any, **named: Any) -> Any:
        """Parses a table's name, and `TABLET (id, ..)` behind it: the shares of its rows to read."""
        table = super()._parse_table_parts(*arguments, **named)
        if isinstance(table, exp.Table) and (tablets := self._parse_tablets()):
            table.set("partition", exp.Partition(expressions=[]))
            table.args["partition"].meta[TABLETS] = tablets
        return table

    def _parse_partition(self) -> exp.Partition | None:
        """Parses `PARTITION ..`, and `TABLET (id, ..)` behind it."""
        found = self._parse_named_partitions()
        if found is not None and (tablets := self._parse_tablets()):
            found.meta[TABLETS] = tablets
        return found

    def _parse_tablets(self) -> tuple[str, ...]:
        following = self._next.token_type if self._next else None
        if following is not TokenType.L_PAREN or not self._match_text_seq("TABLET"):
            return ()
        return tuple(item.name if item else "" for item in self._parse_wrapped_csv(self._parse_primary))

    def _parse_named_partitions(self) -> exp.Partition | None:
        """Parses `PARTITION[S] (name, ..)`, and Doris's `PARTITION name` (D15)."""
        following = self._next.token_type if self._next else None
        if following is TokenType.L_PAREN or not self._match_texts(self.PARTITION_KEYWORDS):
            return super()._parse_partition()
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error("Expected a partition name or (")
        return exp.Partition(expressions=[exp.Column(this=name)])

    def _parse_group(self, *arguments: Any, **named: Any) -> Any:
        """Parses GROUP BY; `a, b WITH ROLLUP` becomes `ROLLUP (a, b)`, and CUBE likewise."""
        group = super()._parse_group(*arguments, **named)
        if group is None:
            return None
        for name in ("rollup", "cube"):
            suffix = next((each for each in group.args.get(name) or () if not each.expressions), None)
            if suffix is not None:
                suffix.set("expressions", group.expressions)
                group.set("expressions", [suffix])
                group.set(name, None)
        return group

    def _parse_update_assignment(self) -> exp.Expr | None:
        """Refuses an empty assignment, which sqlglot accepts, and so a comma behind the last."""
        found = super()._parse_update_assignment()
        if found is None:
            self.raise_error("Expected an assignment")
        return found


class SqlDialect(Doris):
    """The dialect for `read` of sqlglot's `parse_one`."""

    UNESCAPED_SEQUENCES = _ESCAPES

    class Tokenizer(DorisTokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        # Without a token of its own PARTITIONS (p) is an alias with columns, and selects every partition.
        KEYWORDS: ClassVar = {
            **DorisTokenizer.KEYWORDS,
            **_TYPE_WORDS,
            **version_keywords(_VERSION_PHRASES),
            "PARTITIONS": TokenType.PARTITION,
        }

    Parser = SqlParser
