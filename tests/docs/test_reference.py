"""The generated reference pages: they name everything that the code's tables name, and refuse gaps."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import fields
from types import ModuleType

import pytest

import seqstore
from seqstore import Settings
from seqstore.cli.server.settings import ServerSettings
from seqstore.loaders.headers import KNOWN_HEADERS, StreamLoadOptions, parse_headers
from seqstore.store.sql.session.statement_kind import all_kinds
from seqstore.store.sql.translate.functions import function_names
from tests.support.documents import ROOT


def _load(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return _load("reference")


@pytest.fixture(scope="module")
def pages(reference: ModuleType) -> dict[str, str]:
    generated: dict[str, str] = reference.pages()
    return generated


def test_every_statement_and_function_is_named(pages: dict[str, str]) -> None:
    for kind in all_kinds():
        assert kind.starts[0].partition(" *")[0].split()[0] in pages["reference/statements.md"]
    for name in function_names():
        assert f"`{name}`" in pages["reference/functions.md"]


def test_every_setting_is_named_with_its_reason(pages: dict[str, str]) -> None:
    rows = [line for line in pages["reference/settings.md"].splitlines() if line.startswith("| `")]
    names = [field.name for settings in (Settings, ServerSettings) for field in fields(settings)]
    assert [row.split("`")[1] for row in rows] == names
    assert all(len(row.split(" | ")[2]) > 20 for row in rows)


def test_headers_found_are_those_that_have_an_effect(reference: ModuleType) -> None:
    names = reference.header_names()
    assert set(names) == KNOWN_HEADERS
    assert len(names) > 35
    assert len(set(names)) == len(names)
    with pytest.raises(seqstore.InvalidInputError):
        parse_headers({"enclose": "ab"})
    assert {"label", "enclose", "sql", "txnversion", "temporary_partitions", "column_separator"} <= set(names)


def test_defaults_of_headers_are_those_of_the_options() -> None:
    texts = tomllib.loads((ROOT / "docs" / "descriptions.toml").read_text())["headers"]
    attributes = [attribute for _, _, attribute in texts.values() if attribute]
    of_parts = {attribute.partition(".")[0] for attribute in attributes}
    not_headers = {"preceding_filter"}  # broker and routine loads have it
    assert of_parts == {field.name for field in fields(StreamLoadOptions)} - not_headers


def test_every_export_is_in_the_python_reference(pages: dict[str, str]) -> None:
    for name in seqstore.__all__:
        assert pages["api.md"].count(f"::: seqstore.{name}\n") == 1, name


def test_every_error_has_a_row(pages: dict[str, str]) -> None:
    errors = [name for name in seqstore.__all__ if name.endswith(("Error", "Exception"))]
    assert errors
    for name in errors:
        assert f"| `{name}` |" in pages["reference/errors.md"]


def test_a_name_without_a_sentence_is_an_error(reference: ModuleType) -> None:
    with pytest.raises(LookupError, match=r"missing \['new'\]"):
        reference.described("variables", [*reference.TEXTS["variables"], "new"])


def test_a_sentence_without_a_name_is_an_error(reference: ModuleType) -> None:
    with pytest.raises(LookupError, match=r"not in the code \['time_zone'\]"):
        reference.described("variables", set(reference.TEXTS["variables"]) - {"time_zone"})


def test_pages_of_the_site_are_those_of_its_navigation(pages: dict[str, str]) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    written = {path.name for path in (ROOT / "docs").glob("*.md")}
    listed = {line.rpartition(": ")[2] for line in navigation.splitlines() if line.endswith(".md")}
    assert listed == written | set(pages)
