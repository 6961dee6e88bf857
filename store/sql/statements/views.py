"""Views: CREATE, ALTER, DROP and SHOW."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from seqstore.store.ddl.views import View, ViewColumn
from seqstore.store.errors import InvalidInputError
from seqstore.store.schema.declaration import check_name
from seqstore.store.sql.evaluate.select import query_columns
from seqstore.store.sql.parse.query_parser import parse_query
from seqstore.store.sql.parse.statement_values import Query, TableName
from seqstore.store.sql.parse.table_parser import parse_table_name
from seqstore.store.sql.parse.tokens import TokenStream
from seqstore.store.sql.result import Result, text_rows
from seqstore.store.sql.session.session import Session
from seqstore.store.sql.session.show_output import (
    create_view_result,
    matching,
    parse_database,
    parse_like,
)
from seqstore.store.sql.session.statement_kind import StatementKind
from seqstore.store.sql.session.system_tables import DATABASE
from seqstore.store.sql.translate.views import expand_views, qualified_text


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW.

    Attributes:
        text: of the query, as written.
        columns: names and comments, None where the query names the columns.
    """

    table: TableName
    query: Query
    text: str
    columns: tuple[tuple[str, str], ...] | None = None
    comment: str = ""
    if_not_exists: bool = False
    is_replace: bool = False

    @property
    def more_privileges(self) -> tuple[str, ...]:
        """The privileges beside CREATE that the statement needs."""
        return ("ALTER",) if self.is_replace else ()


@dataclass(frozen=True)
class AlterView:
    """ALTER VIEW v [(columns)] [COMMENT ..] AS query."""

    created: CreateView

    @property
    def table(self) -> TableName:
        """The view, for the check of privileges."""
        return self.created.table


@dataclass(frozen=True)
class CommentView:
    """ALTER VIEW v MODIFY COMMENT text."""

    table: TableName
    comment: str


@dataclass(frozen=True)
class DropView:
    """DROP VIEW [IF EXISTS] v."""

    table: TableName
    if_exists: bool = False


@dataclass(frozen=True)
class ShowCreateView:
    """SHOW CREATE VIEW v."""

    table: TableName


@dataclass(frozen=True)
class ShowViews:
    """SHOW VIEWS [FROM db] [LIKE pattern]."""

    database: str | None
    like: str | None


def _parse_create(stream: TokenStream) -> CreateView:
    is_replace = stream.word(-2) == "REPLACE"
    if_not_exists = stream.take("IF", "NOT", "EXISTS")
    if is_replace and if_not_exists:
        stream.refuse("a view is replaced, or kept IF it EXISTS, not both", "syntax")
    return replace(_parse_view(stream), if_not_exists=if_not_exists, is_replace=is_replace)


def _parse_view(stream: TokenStream) -> CreateView:
    table = parse_table_name(stream)
    columns = tuple(stream.enclosed(_parse_column)) if stream.word() == "(" else None
    comment = stream.string("a comment") if stream.take("COMMENT") else ""
    stream.need("AS")
    start = stream.offset
    query = parse_query(stream)
    text = stream.text[start : stream.tokens[-1].end + 1]
    return CreateView(table, query, text, columns, comment)


def _parse_column(stream: TokenStream) -> tuple[str, str]:
    name = stream.name("a column name")
    return name, stream.string("a comment") if stream.take("COMMENT") else ""


def _parse_alter(stream: TokenStream) -> AlterView:
    return AlterView(_parse_view(stream))


def _parse_comment(stream: TokenStream) -> CommentView:
    table = parse_table_name(stream)
    stream.need("MODIFY", "COMMENT")
    return CommentView(table, stream.string("a comment"))


def _parse_drop(stream: TokenStream) -> DropView:
    return DropView(if_exists=stream.take("IF", "EXISTS"), table=parse_table_name(stream))


def _create(statement: CreateView, session: Session) -> None:
    database, _, name = session.full_name(statement.table).partition(".")
    if session.is_system(statement.table):
        raise InvalidInputError(f"{DATABASE} holds no views of users", kind="not_supported")
    check_name(name, "view")
    if statement.if_not_exists and session.store.views.find(database, name) is not None:
        return
    session.store.views.put(
        database,
        _view(statement, session),
        if_not_exists=statement.if_not_exists,
        replace=statement.is_replace,
    )


def _alter(statement: AlterView, session: Session) -> None:
    database, _, name = session.full_name(statement.table).partition(".")
    session.store.views.require(database, name)
    session.store.views.alter(database, _view(statement.created, session))


def _view(statement: CreateView, session: Session) -> View:
    """Builds the view of a statement; its query must run, with the privileges of its creator."""
    full = session.full_name(statement.table)
    text = qualified_text(statement.text, statement.query.tree, session.current_database)
    with session.query_context() as context:
        if full in expand_views(statement.query.tree.copy(), context.find_view):
            raise InvalidInputError(
                f"View '{full}' would read itself, through the views of its query; name another table",
                kind="invalid_view",
            )
        found = query_columns(statement.query, context)
    named = statement.columns or tuple((column.name, "") for column in found)
    if len(named) != len(found):
        raise InvalidInputError(
            f"View '{full}': expected {len(found)} column names, as many as the query has, "
            f"found {len(named)}",
            kind="column_count",
        )
    seen: set[str] = set()
    for (name, _), column in zip(named, found, strict=True):
        for each in {name.lower(), column.name.lower() + "\0"}:
            if each in seen:
                raise InvalidInputError(
                    f"Duplicate column name '{each.strip(chr(0))}' in view '{full}'; give each column of its "
                    "query an alias",
                    kind="duplicate_column",
                )
            seen.add(each)
    columns = tuple(
        ViewColumn(name, column.name, column.type.sql, column.nullable, comment)
        for (name, comment), column in zip(named, found, strict=True)
    )
    name = full.partition(".")[2]
    return View(name, text, columns, statement.columns is not None, statement.comment)


def _comment(statement: CommentView, session: Session) -> None:
    database, _, name = session.full_name(statement.table).partition(".")
    view = session.store.views.require(database, name)
    session.store.views.alter(database, replace(view, comment=statement.comment))


def _drop(statement: DropView, session: Session) -> None:
    database, _, name = session.full_name(statement.table).partition(".")
    session.store.views.drop(database, name, if_exists=statement.if_exists)


def _show_create(statement: ShowCreateView, session: Session) -> Result:
    database, _, name = session.full_name(statement.table).partition(".")
    return create_view_result(session.store.views.require(database, name))


def _show(statement: ShowViews, session: Session) -> Result:
    database = statement.database or session.current_database()
    is_system = database.lower() == DATABASE
    sees = session.table_filter()
    found = [] if is_system else session.store.views.of(database)
    names = [view.name for view in found if sees(database, view.name)]
    return text_rows([f"Tables_in_{database}"], [(name,) for name in matching(names, statement.like)])


KINDS: Final = (
    StatementKind(("CREATE VIEW", "CREATE OR REPLACE VIEW"), CreateView, _parse_create, _create),
    StatementKind(("ALTER VIEW",), AlterView, _parse_alter, _alter),
    StatementKind(("ALTER VIEW * MODIFY",), CommentView, _parse_comment, _comment),
    StatementKind(("DROP VIEW",), DropView, _parse_drop, _drop),
    StatementKind(
        ("SHOW CREATE VIEW",),
        ShowCreateView,
        lambda stream: ShowCreateView(parse_table_name(stream)),
        _show_create,
    ),
    StatementKind(
        ("SHOW VIEWS",),
        ShowViews,
        lambda stream: ShowViews(parse_database(stream), parse_like(stream)),
        _show,
    ),
)
