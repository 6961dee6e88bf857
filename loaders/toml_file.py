"""Jobs written as TOML: the file, and its values, each of the type it must have."""

from __future__ import annotations

import glob
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from seqstore.loaders.jobs.rows_spec import RowsSpec, lower_names
from seqstore.store.errors import InvalidInputError, NotFoundError

_NAMES: Final = {"assignments": "set"}


def spec_names(kind: type[RowsSpec]) -> set[str]:
    """Returns the names that a specification has in TOML."""
    return {_NAMES.get(field.name, field.name) for field in fields(kind)}


class TomlFile:
    """A job file.

    Args:
        what: the kind of job, for errors: "a load job".

    Attributes:
        values: the parsed file.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: not TOML.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.values: dict[str, Any] = tomllib.load(file)
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such file; name {what} in TOML", path=str(path)) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{path}: not TOML: {error}", kind="bad_load") from error

    def check_names(self, given: Mapping[str, Any], known: Iterable[str], where: str = "") -> None:
        """Raises InvalidInputError for an unknown name.

        Args:
            where: " in [[load]]", or nothing for the file itself.
        """
        names = sorted(known)
        for name in given:
            if name not in names:
                raise self.bad(f"unknown name {name!r}{where}; expected some of {', '.join(names)}")

    def text(self, given: Mapping[str, Any], name: str) -> str:
        """Returns a text, empty when the file lacks it."""
        value = given.get(name, "")
        if not isinstance(value, str):
            raise self.bad(f"{name}: expected a text, found {value!r}")
        return value

    def texts(self, given: Mapping[str, Any], name: str, where: str = "") -> tuple[str, ...]:
        """Returns a list of texts, empty when the file lacks it."""
        value = given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.bad(f"{name}{where}: expected a list of texts, found {value!r}")
        return tuple(value)

    def properties(self, given: Mapping[str, Any], name: str = "properties") -> dict[str, str]:
        """Returns a table as properties: its values as texts, empty when the file lacks it."""
        found = given.get(name, {})
        if not isinstance(found, dict):
            raise self.bad(f"{name}: expected a table, found {found!r}")
        return {
            each: str(value).lower() if isinstance(value, bool) else str(value)
            for each, value in found.items()
        }

    def spec_fields(self, given: Mapping[str, Any], kind: type[RowsSpec], where: str = "") -> dict[str, Any]:
        """Returns the fields of a specification that a table has; `set` has the assignments."""
        values: dict[str, Any] = {}
        for field in fields(kind):
            name = _NAMES.get(field.name, field.name)
            if name == "properties":
                values[name] = lower_names(self.properties(given))
            elif name in given:
                is_list = field.type == "tuple[str, ...]"
                values[field.name] = self.texts(given, name, where) if is_list else self.text(given, name)
        values["merge_type"] = values.get("merge_type", "APPEND").upper()
        return values

    def beside(self, name: str) -> str:
        """Returns a path that is relative to the file; an address stays as it is. The file's own folder is no
        pattern, whatever its name."""
        if "://" in name:
            return name
        folder = glob.escape(str(self.path.parent.resolve())).replace("{", "[{]")
        return os.path.join(folder, name)

    def bad(self, message: str) -> InvalidInputError:
        """Returns the error for something in this file."""
        return InvalidInputError(f"{self.path}: {message}", kind="bad_load")
