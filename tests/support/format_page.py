"""docs/format.md as data: fields of each record type, keys of each database, patterns of file names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_HEADING: Final = re.compile(r"^### `(?P<name>\w+)`\n(?P<body>.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_KEY: Final = re.compile(r"^Key: (?P<parts>.*)$", re.MULTILINE)
_ROW: Final = re.compile(
    r"^\| (?P<name>`[^`]+`|\(value\)) \| (?P<type>[\w ]+) \| (?P<meaning>.*) \|$", re.MULTILINE
)
_FILE: Final = re.compile(r"^\| `(?P<pattern>[^`]+)` \|", re.MULTILINE)
_DIRECTORY: Final = re.compile(r"^\| file \| content \|\n(?:\|.*\n)+", re.MULTILINE)
_VALUE: Final = "(value)"
_TYPES: Final[dict[type, str]] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "text",
    bytes: "bytes",
    list: "list",
    dict: "map",
    type(None): "nil",
}


@dataclass(frozen=True)
class Field:
    """A row of a table: `types` are the words of its type."""

    types: tuple[str, ...]
    is_optional: bool


@dataclass
class RecordType:
    """A section: fields by path, in the notation of the page, and the parts of a database's keys."""

    fields: dict[str, Field] = field(default_factory=dict)
    key: tuple[str, ...] = ()


@dataclass
class FormatPage:
    """The page.

    Attributes:
        types: databases and shared types, by name.
        files: patterns of file names below the data directory.
        used: fields that records had so far, as (type, path).
    """

    types: dict[str, RecordType]
    files: tuple[str, ...]
    used: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def read(cls, text: str) -> FormatPage:
        types = {}
        for section in _HEADING.finditer(text + "\n##"):
            found = types[section["name"]] = RecordType()
            for row in _ROW.finditer(section["body"]):
                is_optional = row["meaning"].startswith("optional")
                found.fields[row["name"].strip("`")] = Field(tuple(row["type"].split(" or ")), is_optional)
            key = _KEY.search(section["body"])
            found.key = tuple(re.findall(r"`(u64|text)`", key["parts"])) if key else ()
        directory = _DIRECTORY.search(text)
        return cls(types, tuple(_FILE.findall(directory[0]) if directory else ()))

    def faults(self, name: str, record: Any) -> Iterator[str]:
        """Yields each difference of a record from its description: unknown, missing and mistyped fields."""
        yield from self._faults(name, "", record if isinstance(record, dict) else {_VALUE: record})

    def key_faults(self, name: str, key: bytes) -> Iterator[str]:
        """Yields the difference of a key from the description of its database."""
        parts = self.types[name].key
        fixed = 8 * parts.count("u64")
        if not parts or len(key) < fixed or (parts[-1] == "u64" and len(key) != fixed):
            yield f"{name}: key {key.hex()} is not {parts}"

    def describes(self, file: str) -> str | None:
        """Returns the pattern that a file name matches, None without one."""
        for pattern in self.files:
            parts = re.split(r"<\w+>", pattern)
            if re.fullmatch("[^/]+".join(map(re.escape, parts)), file):
                return pattern
        return None

    def unused(self) -> list[tuple[str, str]]:
        """Lists the fields that no record had."""
        described = [(name, path) for name, found in self.types.items() for path in found.fields]
        return [each for each in described if each not in self.used]

    def _faults(self, name: str, prefix: str, record: Mapping[str, Any]) -> Iterator[str]:
        known = self.types[name].fields
        for key, value in record.items():
            path = f"{prefix}{key}" if f"{prefix}{key}" in known else f"{prefix}*"
            if path not in known:
                # A map whose keys are data: its fields stand behind the star.
                if isinstance(value, dict) and any(other.startswith(f"{path}.") for other in known):
                    yield from self._faults(name, f"{path}.", value)
                else:
                    yield f"{name}: no field {prefix}{key}"
                continue
            self.used.add((name, path))
            yield from self._value_faults(name, path, value)
        for path, described in known.items():
            is_here = path.startswith(prefix) and re.fullmatch(r"\w+|\(value\)", path[len(prefix) :])
            if is_here and not described.is_optional and path[len(prefix) :] not in record:
                yield f"{name}: {path} is missing"

    def _value_faults(self, name: str, path: str, value: Any) -> Iterator[str]:
        types = self.types[name].fields[path].types
        shared = [other for other in types if other in self.types]
        if shared and isinstance(value, dict):
            yield from min((self._as_shared(other, value) for other in shared), key=len)
        elif _TYPES[type(value)] not in types:
            yield f"{name}: {path} is {_TYPES[type(value)]}, expected {' or '.join(types)}"
        elif isinstance(value, dict):
            yield from self._faults(name, f"{path}.", value)
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    yield from self._faults(name, f"{path}[].", element)

    def _as_shared(self, name: str, record: Mapping[str, Any]) -> list[str]:
        """Lists the faults of a record of a shared type; its fields count as used if there are none."""
        before = set(self.used)
        found = list(self._faults(name, "", record))
        if found:
            self.used = before
        return found
