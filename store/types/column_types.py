"""Column types: Doris spellings, their Arrow types, their limits, their zero values.

`_SCALARS` has one row per scalar type. DECIMAL, CHAR, VARCHAR and DATETIME take parameters; ARRAY, MAP and
STRUCT take types. The Doris names DECIMALV3, DATEV2, DATETIMEV2, JSONB and TEXT parse to the plain names.
LARGEINT is `decimal256(39, 0)`: the narrowest Arrow type that holds every 128-bit integer.
The NOT NULL cells of a tombstone hold zero values (D10): 0, false, the epoch, an empty string, list or map, a
struct of NULLs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.lazy import cached_property

_SCALARS: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "LARGEINT": pa.decimal256(39, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us"),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "JSON": pa.string(),
}
_ALIASES: Final = {
    "BOOL": "BOOLEAN",
    "INTEGER": "INT",
    "DECIMALV2": "DECIMAL",
    "DECIMALV3": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "DATEV2": "DATE",
    "DATEV1": "DATE",
    "DATETIMEV2": "DATETIME",
    "DATETIMEV1": "DATETIME",
    "TIMESTAMP": "DATETIME",
    "TEXT": "STRING",
    "JSONB": "JSON",
}
_REFUSED: Final = frozenset(
    [
        "VARIANT",
        "BITMAP",
        "HLL",
        "QUANTILE_STATE",
        "AGG_STATE",
        "IPV4",
        "IPV6",
        "TIME",
        "UUID",
        "TIMESTAMPTZ",
        "VARBINARY",
    ]
)

INTEGER_RANGES: Final[dict[str, tuple[int, int]]] = {
    "TINYINT": (-(2**7), 2**7 - 1),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "LARGEINT": (-(2**127), 2**127 - 1),
}
_SEQUENCE_TYPES: Final = frozenset([*INTEGER_RANGES, "DATE", "DATETIME"])
_KEYLESS_TYPES: Final = frozenset(["FLOAT", "DOUBLE", "STRING", "JSON", "ARRAY", "MAP", "STRUCT"])
_VARCHAR_BYTES_MAX: Final = 65533
_CHAR_BYTES_MAX: Final = 255


@dataclass(frozen=True)
class ColumnType:
    """A Doris column type.

    Attributes:
        name: canonical Doris name without parameters, upper case.
        params: `(precision, scale)` of DECIMAL, `(bytes,)` of CHAR and VARCHAR, `(fraction digits,)` of
            DATETIME.
        children: `(element,)` of ARRAY, `(key, value)` of MAP, field types of STRUCT.
        names: field names of STRUCT.
    """

    name: str
    params: tuple[int, ...] = ()
    children: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type that stores this type exactly."""
        if self.name == "DECIMAL":
            precision, scale = self.params
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        if self.name == "ARRAY":
            return pa.list_(self.children[0].arrow)
        if self.name == "MAP":
            return pa.map_(self.children[0].arrow, self.children[1].arrow)
        if self.name == "STRUCT":
            return pa.struct([pa.field(n, t.arrow) for n, t in zip(self.names, self.children, strict=True)])
        return _SCALARS[self.name]

    @cached_property
    def is_checked_by_arrow(self) -> bool:
        """Whether every array of the Arrow type holds values of the type."""
        return (
            self.name in ("BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL", *INTEGER_RANGES)
            and self.name != "LARGEINT"
        )

    @property
    def sql(self) -> str:
        """The type as Doris prints it, such as `DECIMAL(9,2)`, `DATETIME(3)`, `ARRAY<INT>`."""
        if self.name == "STRUCT":
            fields = ",".join(f"{n}:{t.sql}" for n, t in zip(self.names, self.children, strict=True))
            return f"STRUCT<{fields}>"
        if self.children:
            return f"{self.name}<{','.join(t.sql for t in self.children)}>"
        params = () if self.name == "DATETIME" and self.params == (0,) else self.params
        return self.name + (f"({','.join(map(str, params))})" if params else "")

    @property
    def can_be_key(self) -> bool:
        """Whether a key column may be of the type."""
        return self.name not in _KEYLESS_TYPES

    @property
    def can_be_sequence(self) -> bool:
        """SD4: integers, DATE and DATETIME can order rows; other types cannot."""
        return self.name in _SEQUENCE_TYPES

    @cached_property
    def byte_length_max(self) -> int | None:
        """The longest value of CHAR and VARCHAR in UTF-8 bytes (Y5), None for other types."""
        return self.params[0] if self.name in ("CHAR", "VARCHAR") else None

    @cached_property
    def is_nested(self) -> bool:
        """Whether the type is ARRAY, MAP or STRUCT."""
        return bool(self.children)

    def __str__(self) -> str:
        return self.sql


def parse_type(text: str) -> ColumnType:
    """Parses a Doris type, nested types included.

    Raises:
        InvalidInputError: unknown or refused type, parameter out of range; the message quotes the text.
    """
    parser = _TypeParser(text)
    parsed = parser.type()
    if parser.peek():
        raise parser.error(f"unexpected {parser.peek()!r} after the type")
    return parsed


def type_from_arrow(arrow: pa.DataType) -> ColumnType:
    """Returns the Doris type for an Arrow type, for tables made from a frame.

    Raises:
        InvalidInputError: Doris has no type for it.
    """
    for name, known in _SCALARS.items():
        if arrow.equals(known) and name not in ("CHAR", "VARCHAR", "JSON"):
            return ColumnType(name, (6,)) if name == "DATETIME" else ColumnType(name)
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return ColumnType("STRING")
    if pa.types.is_timestamp(arrow) and arrow.tz is None:
        return ColumnType("DATETIME", ({"s": 0, "ms": 3}.get(arrow.unit, 6),))
    if pa.types.is_decimal(arrow):
        return _decimal(arrow.precision, arrow.scale, str(arrow))
    if pa.types.is_unsigned_integer(arrow):
        return ColumnType({8: "SMALLINT", 16: "INT", 32: "BIGINT", 64: "LARGEINT"}[arrow.bit_width])
    if pa.types.is_dictionary(arrow):
        return type_from_arrow(arrow.value_type)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return ColumnType("ARRAY", children=(type_from_arrow(arrow.value_type),))
    if pa.types.is_map(arrow):
        return ColumnType("MAP", children=(type_from_arrow(arrow.key_type), type_from_arrow(arrow.item_type)))
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        children = tuple(type_from_arrow(f.type) for f in fields)
        return ColumnType("STRUCT", children=children, names=tuple(f.name for f in fields))
    raise InvalidInputError(f"no column type for Arrow type {arrow}; cast it first", kind="unknown_type")


def _decimal(precision: int, scale: int, text: str) -> ColumnType:
    if not 1 <= precision <= 76 or not 0 <= scale <= precision:
        raise InvalidInputError(
            f"type {text!r}: DECIMAL needs precision 1 to 76 and scale 0 to precision, "
            f"found ({precision},{scale})",
            kind="bad_type",
        )
    return ColumnType("DECIMAL", (precision, scale))


_Item = TypeVar("_Item")


class _TypeParser:
    """Parses `NAME [ ( int, .. ) ] [ < type, .. > ]` by recursive descent."""

    _TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*|`[^`]+`|\d+|[<>(),:*])|(?P<strange>\S.*))", re.DOTALL)

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        for match in self._TOKEN.finditer(text.rstrip()):
            if match["strange"]:
                raise self.error(f"unexpected {match['strange'][:10]!r}")
            self.tokens.append(match[1])
        self.at = 0

    def error(self, detail: str) -> InvalidInputError:
        return InvalidInputError(f"type {self.text!r}: {detail}", kind="bad_type")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, wanted: str) -> None:
        found = self.take()
        if found != wanted:
            raise self.error(f"expected {wanted!r}, found {found or 'the end'!r}")

    def listed(self, item: Callable[[], _Item], end: str) -> list[_Item]:
        found = [item()]
        while self.peek() == ",":
            self.take()
            found.append(item())
        self.expect(end)
        return found

    def type(self) -> ColumnType:
        name = self.take().upper()
        name = _ALIASES.get(name, name)
        if name in _REFUSED:
            raise self.error(f"{name} columns are not supported")
        if name in ("ARRAY", "MAP", "STRUCT"):
            return self.nested(name)
        if name != "DECIMAL" and name not in _SCALARS:
            raise self.error("no such type" if name else "a type is missing")
        return self.scalar(name, self.params())

    def params(self) -> list[int]:
        if self.peek() != "(":
            return []
        self.take()
        return self.listed(self.number, ")")

    def number(self) -> int:
        token = self.take()
        if token == "*":
            return _VARCHAR_BYTES_MAX  # VARCHAR(*) is Doris for "the longest"
        if not token.isdigit():
            raise self.error(f"expected a number, found {token or 'the end'!r}")
        return int(token)

    def scalar(self, name: str, params: list[int]) -> ColumnType:
        if name == "DECIMAL":
            if len(params) > 2:
                raise self.error("DECIMAL takes precision and scale")
            precision, scale = [*params, 0][:2] if params else (38, 9)
            return _decimal(precision, scale, self.text)
        if name == "DATETIME":
            digits = params[0] if params else 0
            if len(params) > 1 or digits > 6:
                raise self.error("DATETIME takes 0 to 6 fraction digits")
            return ColumnType(name, (digits,))
        if name in ("CHAR", "VARCHAR"):
            limit = _CHAR_BYTES_MAX if name == "CHAR" else _VARCHAR_BYTES_MAX
            length = params[0] if params else (1 if name == "CHAR" else limit)
            if len(params) > 1 or not 1 <= length <= limit:
                raise self.error(f"{name} takes a length of 1 to {limit} bytes")
            return ColumnType(name, (length,))
        if params and name not in INTEGER_RANGES:  # INT(11) is MySQL's display width: parsed and ignored
            raise self.error(f"{name} takes no parameters")
        return ColumnType(name)

    def nested(self, name: str) -> ColumnType:
        names: list[str] = []

        def field() -> ColumnType:
            names.append(self.take().strip("`"))
            self.expect(":")
            return self.type()

        self.expect("<")
        children = self.listed(field if name == "STRUCT" else self.type, ">")
        if len(children) != {"ARRAY": 1, "MAP": 2}.get(name, len(children)):
            raise self.error(f"{name} takes {'one type' if name == 'ARRAY' else 'two types'}")
        if len(set(names)) != len(names):
            raise self.error("duplicate field name in STRUCT")
        return ColumnType(name, children=tuple(children), names=tuple(names))


_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19, "LARGEINT": 39}
_WIDER: Final[Mapping[str, tuple[str, ...]]] = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT"),
    "SMALLINT": ("INT", "BIGINT"),
    "INT": ("BIGINT",),
    "FLOAT": ("DOUBLE",),
    "CHAR": ("VARCHAR", "STRING"),
    "VARCHAR": ("STRING",),
}


def is_wider(old: ColumnType, new: ColumnType) -> bool:
    """Returns whether every value of the old type is a value of the new type."""
    if old.name != new.name and new.name not in _WIDER.get(old.name, ()):
        return False
    if old.byte_length_max is not None and new.byte_length_max is not None:
        return new.byte_length_max >= old.byte_length_max
    if old.name == "DATETIME":
        return new.params >= old.params
    return old.name != new.name or old.sql == new.sql


def takes_values_of(new: ColumnType, old: ColumnType) -> bool:
    """Returns whether each value of the old type, once it is cast, is a value of the new type.

    Unlike `is_wider`, a value of the old type may have to be computed: DATE becomes DATETIME, an integer
    LARGEINT or DECIMAL, one of at most 32 bits DOUBLE, a DECIMAL one with more digits.
    """
    if is_wider(old, new):
        return True
    if old.name == "DATE":
        return new.name == "DATETIME"
    if new.name == "DOUBLE":
        return old.name in ("TINYINT", "SMALLINT", "INT")
    if new.name == "LARGEINT":
        return old.name in INTEGER_RANGES
    digits, scale = old.params if old.name == "DECIMAL" else (_DIGITS.get(old.name, 0), 0)
    if new.name != "DECIMAL" or not digits:
        return False
    return new.params[1] >= scale and new.params[0] - new.params[1] >= digits - scale


def fill_zero_values(values: pa.Array, where: pa.BooleanArray) -> pa.Array:
    """Sets some cells to the zero value of their type."""
    return pc.if_else(where, zero_value(values.type), values)


def zero_value(arrow: pa.DataType) -> pa.Scalar:
    """Returns the zero value of an Arrow type."""
    if pa.types.is_nested(arrow):
        return pa.scalar({} if pa.types.is_struct(arrow) else [], arrow)
    if pa.types.is_string(arrow):
        return pa.scalar("")
    if pa.types.is_decimal(arrow):
        return pa.scalar(Decimal(0), arrow)
    return pa.scalar(0, pa.int64() if pa.types.is_timestamp(arrow) else pa.int32()).cast(arrow)


def empty_values(field: pa.Field, rows: int) -> pa.Array:
    """Returns cells without meaning: NULL, or the zero value where the column is NOT NULL."""
    return pa.nulls(rows, field.type) if field.nullable else pa.repeat(zero_value(field.type), rows)
