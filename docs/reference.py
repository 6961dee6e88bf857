"""The reference pages of the manual, written from the tables that the code itself uses.

Every page is a function that returns Markdown. Names, defaults and error numbers are those of the code;
`descriptions.toml` adds one sentence for each name. A name without a sentence, or a sentence without a name,
is a `LookupError`, so the pages cannot drift from the code. `mkdocs.yml` names this file as a hook.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.testing import CliRunner

import seqstore
from seqstore.cli.clients.refusal import number_and_state
from seqstore.cli.main import app, conf_directory, exit_code
from seqstore.cli.server.http import HttpService
from seqstore.loaders import headers
from seqstore.loaders.headers import combinations, parse, values
from seqstore.loaders.spark import options
from seqstore.store.errors import StoreError
from seqstore.store.runtime.internal import is_internal
from seqstore.store.schema import properties
from seqstore.store.sql.evaluate import table_functions
from seqstore.store.sql.session import client_variables, variables
from seqstore.store.sql.session.statement_kind import all_kinds
from seqstore.store.sql.session.system_tables import system_table_names
from seqstore.store.sql.session.variables import Variables
from seqstore.store.sql.statements import refused
from seqstore.store.sql.translate.functions import function_names

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT: Final = Path(__file__).parents[1]
TEXTS: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "descriptions.toml").read_text()
)
_FIELD: Final = re.compile(r"^(\w+) = (.+)$")
# Calls in the modules of the headers whose text argument is the name of a header.
_HEADER_MAPS: Final = frozenset(["given", "raw"])


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages to the site; mkdocs calls it."""
    from mkdocs.structure.files import File  # the pages are tested without mkdocs

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> dict[str, str]:
    """Every generated page by its path below docs/."""
    return {f"reference/{name}.md": page() for name, page in _PAGES.items()} | {"api.md": _api()}


def described(section: str, names: Iterable[str]) -> dict[str, Any]:
    """The texts of a section, by name in the order of the texts.

    Raises:
        LookupError: names and texts are not the same.
    """
    wanted, texts = set(names), TEXTS[section]
    missing, unknown = sorted(wanted - set(texts)), sorted(set(texts) - wanted)
    if missing or unknown:
        raise LookupError(f"descriptions.toml [{section}]: missing {missing}, not in the code {unknown}")
    return texts


def _table_of(module: ModuleType, name: str) -> Any:
    """A table of a module, public or not."""
    members = vars(module)
    return members[name] if name in members else members[f"_{name}"]


def _page(title: str, lead: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", lead, *parts]) + "\n"


def _rows(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def _statements() -> str:
    kinds = {kind.starts[0]: kind for kind in all_kinds() if not kind.is_refused}
    sentences = described("statements", kinds)
    rows = [[_code(form), effect] for _, (form, effect) in sorted(sentences.items())]
    reasons: dict[str, list[str]] = {}
    for words, reason in _table_of(refused, "REASONS").items():
        reasons.setdefault(reason, []).append(words)
    refusals = [[", ".join(map(_code, words)), reason] for reason, words in reasons.items()]
    return _page(
        "SQL statements",
        "The dialect is that of Apache Doris. A statement in neither table is a syntax error.",
        _rows(["statement", "effect"], rows),
        "## Statements that are refused",
        "The parser knows these statements and refuses them with a hint.",
        _rows(["statement", "hint"], refusals),
        "## Functions in FROM",
        _list(described("table_functions", _table_of(table_functions, "FUNCTIONS")).values()),
        "## Tables of information_schema",
        ", ".join(_code(name) for name in system_table_names()) + ".",
    )


def _spark_options() -> str:
    names = _table_of(options, "KNOWN") - _table_of(options, "SPARK")
    sentences = described("spark_options", names)
    return _page(
        "Spark options",
        'Options of `format("seqstore")`. Names are compared without regard to case. An option without '
        "meaning for a read or a write is refused by name. [Spark](../spark.md) shows them at work.",
        _rows(["option", "for", "effect"], [[_code(name), *texts] for name, texts in sentences.items()]),
    )


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _functions() -> str:
    by_letter: dict[str, list[str]] = {}
    for name in function_names():
        by_letter.setdefault(name[0].upper(), []).append(_code(name))
    return _page(
        "Functions",
        "These functions of Doris have an entry of their own here. Functions of standard SQL with a grammar "
        "of their own (`count`, `sum`, `coalesce`, `lower`, `CASE`, `CAST` and others) are known as well. "
        "Any other name is refused, so a query cannot reach DuckDB's functions for files, settings or its "
        "catalog.",
        _rows(["", "functions"], [[letter, ", ".join(names)] for letter, names in by_letter.items()]),
    )


def _variables() -> str:
    values = {name: default for name, _, default in Variables().items()}
    fixed = _table_of(client_variables, "FIXED")
    without = _table_of(client_variables, "WITHOUT_EFFECT")
    read = {*_table_of(client_variables, "FACTS"), *_table_of(variables, "OLD_NAMES"), "interactive_timeout"}
    read |= {name for name in values if name.startswith(("character_set_", "collation_"))}
    sentences = described("variables", values.keys() - fixed.keys() - without.keys() - read)
    return _page(
        "Session variables",
        "`SET name = value` changes a variable of the session, `SET GLOBAL` the one of later sessions. "
        "An unknown name is an error that names the nearest known one.",
        _rows(
            ["variable", "default", "effect"],
            [[_code(name), _code(values[name]), text] for name, text in sentences.items()],
        ),
        "## Variables that have one value",
        "The store has made these choices of Doris and MySQL. SET takes that value and refuses any other.",
        _rows(
            ["variable", "value", "because, or instead"],
            [[_code(name), _code(only), why] for name, (only, why) in sorted(fixed.items())],
        ),
        "## Variables without effect",
        "They tune planners, buffers, caches, replicas or parallel parts, which have no counterpart here, or "
        "ask for what is so anyway: there are no foreign keys, and results of any length. What a slow client "
        "may take is a setting of the [server](../server.md). Any value is kept and read back.",
        ", ".join(_code(name) for name in sorted(without)) + ".",
        "## Variables for clients",
        "Clients read these variables. Of character sets and collations those of UTF-8 can be set, and "
        "`binary`; texts are compared by their bytes all the same.",
        _rows(["variable", "value"], [[_code(name), _code(values[name])] for name in sorted(read)]),
    )


def _properties() -> str:
    sentences = described("properties", _table_of(properties, "OURS"))
    refusals = [[_code(f"{name}*"), why] for name, why in _table_of(properties, "REFUSED").items()]
    return _page(
        "Table properties",
        "`PROPERTIES (...)` of CREATE TABLE sets them, `ALTER TABLE t SET (...)` changes most of them. "
        '`"sequence_mapping.s" = "a, b"` declares a [column group](../column-groups.md). '
        "An unknown name is an error that lists the nearest known one.",
        _rows(["property", "values", "effect"], [[_code(n), v, text] for n, (v, text) in sentences.items()]),
        "## Properties without effect",
        "A store on one host has no replicas and no buckets in memory. It keeps these properties of Doris "
        "and prints them in SHOW CREATE TABLE.",
        ", ".join(_code(name) for name in sorted(_table_of(properties, "CARRIED"))) + ".",
        "## Properties that are refused",
        _rows(["property", "hint"], refusals),
    )


def header_names() -> list[str]:
    """Names that the modules of the headers look up, lower case, in the order of their texts."""
    found: dict[str, None] = {}
    for module in (parse, values, combinations):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            found.update(dict.fromkeys(_names_in(node)))
    return list(found)


def _names_in(node: ast.AST) -> list[str]:
    """Header names that one expression looks up: `given.get("x")`, `flag(given, "x")`, `"x" in given`."""
    if isinstance(node, ast.Call):
        target = (
            node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        )
        texts = node.args[:1] if isinstance(node.func, ast.Attribute) else node.args[1:2]
    elif isinstance(node, ast.Compare):
        target, texts = node.comparators[0], [node.left]
    else:
        return []
    if not (isinstance(target, ast.Name) and target.id in _HEADER_MAPS):
        return []
    return [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]


def _headers() -> str:
    sentences = described("headers", header_names())
    defaults = headers.StreamLoadOptions()
    rows = [
        [_code(name), values, _default(defaults, attribute) if attribute else "", text]
        for name, (values, text, attribute) in sentences.items()
    ]
    requests = described("requests", _requests())
    return _page(
        "Stream-load headers",
        "Names are compared without regard to case. An unknown header is ignored and named in the "
        "message of the reply, a bad value is refused before the body is read. "
        "[Stream load](../stream-load.md) shows them at work.",
        _rows(["header", "values", "default", "effect"], rows),
        "## Requests of the HTTP server",
        "`{}` stands for a database or a table. All requests except health, metrics, tokens and error logs "
        "need a user and a password by HTTP Basic.",
        _rows(["request", "effect"], [[_code(name), text] for name, text in requests.items()]),
    )


def _default(options: headers.StreamLoadOptions, attribute: str) -> str:
    value: Any = options
    for name in attribute.split("."):
        value = getattr(value, name)
    if isinstance(value, bytes):
        return _code(value.decode().encode("unicode_escape").decode())
    if isinstance(value, bool):
        return _code(str(value).lower())
    return _code(value) if value not in (None, "", ()) else ""


def _requests() -> list[str]:
    """Method and path of every route, read from the calls of `route` in the HTTP service."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(HttpService) or HttpService))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    routes = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "route"]
    return [" ".join(ast.literal_eval(argument) for argument in call.args[:2]) for call in routes]


def _settings() -> str:
    """conf/default.toml, each setting with the comment above it."""
    parts: list[str] = []
    rows: list[list[str]] = []
    comment: list[str] = []
    for line in (ROOT / "conf" / "default.toml").read_text().splitlines():
        if line.startswith("["):
            parts += [f"## {line}", _rows(["setting", "default", "meaning"], rows := [])]
            parts[-1] = ""
        elif line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        elif found := _FIELD.match(line):
            rows.append([_code(found[1]), _code(found[2]), " ".join(comment)])
            parts[-1] = _rows(["setting", "default", "meaning"], rows)
        if not line.startswith("#"):
            comment = []
    return _page(
        "Settings",
        "`conf/default.toml` holds every setting with its default. The last word of a name is its unit. "
        "`Settings.load(path)` and `seqstore serve --config FILE` read such a file; settings that it does "
        "not name keep their default.",
        *parts,
    )


def _errors() -> str:
    rows = [_error_row(name, kind) for name, kind in _error_classes().items()]
    return _page(
        "Errors",
        "All errors of the store have the base `StoreError`. `.kind` is a stable word for programs, "
        "`.fields` holds the facts of the message; a field is an attribute, too. All errors pickle.",
        "```text\n" + _tree(StoreError) + "\n```",
        _rows(["class", "meaning", "MySQL error", "SQL state", "exit code"], rows),
        "The MySQL error is that of an error without a more specific `kind`.",
    )


def _error_classes() -> dict[str, type[StoreError]]:
    exported = {name: getattr(seqstore, name) for name in seqstore.__all__}
    return {n: e for n, e in exported.items() if isinstance(e, type) and issubclass(e, StoreError)}


def _error_row(name: str, kind: type[StoreError]) -> list[str]:
    error = kind("")
    number, state = number_and_state(error)
    return [_code(name), " ".join((kind.__doc__ or "").split()), str(number), state, str(exit_code(error))]


def _tree(kind: type[Exception], depth: int = 0) -> str:
    lines = ["    " * depth + kind.__name__]
    children = [child for child in kind.__subclasses__() if child.__name__ in seqstore.__all__]
    return "\n".join([*lines, *(_tree(child, depth + 1) for child in children)])


def _commands() -> str:
    paths = [[], *_command_paths(typer.main.get_command(app))]
    return _page(
        "Command line",
        "`seqstore` and `python -m seqstore` are the same program. Exit codes: 0 done, 1 failed, 2 usage, 3 "
        "conflict, 4 data rejected, 5 corruption, 130 interrupted. `--debug` before the command prints the "
        "trace of an error.",
        *(f"## {' '.join(['seqstore', *path])}\n\n```text\n{_help(path)}\n```" for path in paths),
    )


def _command_paths(group: Any) -> Iterable[list[str]]:
    """The words of every command, groups before their commands."""
    for name, command in getattr(group, "commands", {}).items():
        yield [name]
        yield from ([name, *path] for path in _command_paths(command))


def _help(path: list[str]) -> str:
    shown = CliRunner().invoke(app, [*path, "--help"], prog_name="seqstore", terminal_width=100)
    return shown.output.strip().replace(conf_directory(), "SITE_PACKAGES/seqstore/conf")


def _api() -> str:
    """An entry for every name that `seqstore` exports, grouped by what it is."""
    exported = {name: getattr(seqstore, name) for name in seqstore.__all__}
    parts: list[str] = []
    for title, belongs in _GROUPS.items():
        names = [name for name, value in exported.items() if belongs(name, value)]
        parts += [f"## {title}", *(_entry(name, exported[name]) for name in names)] if names else []
        exported = {name: value for name, value in exported.items() if name not in names}
    return _page(
        "Python API", "Every name below is imported from `seqstore`: `from seqstore import Store`.", *parts
    )


def _entry(name: str, value: Any) -> str:
    """The directive for an exported name; members that only the engine may call are left out."""
    members = inspect.getmembers(value) if isinstance(value, type) else []
    hidden = sorted(member for member, found in members if is_internal(found))
    if not hidden:
        return f"::: seqstore.{name}"
    filters = "".join(f'\n        - "!^{member}$"' for member in hidden)
    return f'::: seqstore.{name}\n    options:\n      filters:\n        - "!^_[^_]"{filters}'


def _is_one_of(names: Collection[str]) -> Callable[[str, Any], bool]:
    return lambda name, _: name in names


_GROUPS: Final[Mapping[str, Callable[[str, Any], bool]]] = {
    "Stores and tables": _is_one_of(["Store", "Table", "Snapshot", "Settings"]),
    "Writing": _is_one_of(["Load", "MergeBuilder", "Transaction", "TransactionTable"]),
    "SQL": _is_one_of(["Session", "ServerContext", "Result"]),
    "Options": lambda name, _: name.endswith(("Options", "Arguments")),
    "Schemas": _is_one_of(
        [
            "TableSchema",
            "Column",
            "ColumnGroup",
            "ColumnType",
            "Constraint",
            "Default",
            "Partition",
            "Partitioning",
            "parse_type",
        ]
    ),
    "Errors": lambda _, value: isinstance(value, type) and issubclass(value, Exception),
    "Results": lambda name, _: name.endswith(("Result", "Info", "Event", "Metrics", "Rows", "Row", "Record")),
    "Other names": lambda *_: True,
}
_PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "statements": _statements,
    "functions": _functions,
    "variables": _variables,
    "properties": _properties,
    "headers": _headers,
    "spark-options": _spark_options,
    "settings": _settings,
    "errors": _errors,
    "command-line": _commands,
}
