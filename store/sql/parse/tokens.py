"""The tokens of a text of statements, and errors that name line, column and the expected words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, TypeVar

from seqstore.store.errors import InvalidInputError
from seqstore.store.sql.parse.dialect import SqlDialect
from seqstore.store.sql.parse.executable_comments import OPENING, uncommented
from seqstore.store.sql.parse.sqlglot_adapter import (
    ParseError,
    SqlglotError,
    Token,
    TokenError,
    TokenType,
    TooManyStepsError,
    exp,
    parse_one,
)

T = TypeVar("T")
_FOUND_LENGTH_MAX: Final = 40
_DIGITS_MAX: Final = 40  # of a whole number; a LARGEINT has 39
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_NAME_WORD: Final = re.compile(r"[^\W\d][\w$-]*|\d+[^\W\d][\w$-]*")
# Whole strings, quoted names and comments; `open` matches an opener that nothing closes.
_QUOTED: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|#[^\n]*|/\*.*?\*/|(?P<open>/\*|['\"`])|[^'\"`\-#/]+|.",
    re.DOTALL,
)
_MODIFIERS: Final = (
    "SQL_NO_CACHE",
    "SQL_CACHE",
    "SQL_SMALL_RESULT",
    "SQL_BIG_RESULT",
    "SQL_BUFFER_RESULT",
    "HIGH_PRIORITY",
)
_TOKENIZER: Final = SqlDialect()


def syntax_error(text: str, offset: int, expected: str, found: str) -> InvalidInputError:
    """Makes the error for a text that leaves its grammar at a character offset."""
    line, column = position(text, offset)
    return InvalidInputError(
        f"line {line}, column {column}: expected {expected}, found {found}",
        kind="syntax",
        line=line,
        column=column,
        offset=offset,
    )


def position(text: str, offset: int) -> tuple[int, int]:
    """Returns line and column of a character, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def split_statements(text: str) -> list[TokenStream]:
    """Splits a text into one token stream per statement; empty statements are left out.

    Raises:
        InvalidInputError: a string, quoted name or comment is not closed.
    """
    if OPENING in text:
        text = uncommented(text)
    streams: list[TokenStream] = []
    start = 0
    tokens = _tokenize(text)
    for i, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            if i > start:
                streams.append(_stream(text, tokens[start:i], token.start))
            start = i + 1
    if start < len(tokens):
        streams.append(_stream(text, tokens[start:], len(text)))
    return streams


def _stream(text: str, tokens: list[Token], end: int) -> TokenStream:
    """Returns the stream of one statement, without the modifiers of a SELECT that concern MySQL's caches."""
    while tokens[0].text.upper() == "SELECT" and len(tokens) > 2 and tokens[1].text.upper() in _MODIFIERS:
        text = text[: tokens[1].start] + " " * len(tokens[1].text) + text[tokens[1].end + 1 :]
        tokens = [tokens[0], *tokens[2:]]
    return TokenStream(text, tokens, end)


def is_complete(text: str) -> bool:
    """Returns whether a semicolon closes the last statement of a text, or the text has no statement."""
    if _first_open(text) is not None:
        return False
    try:
        tokens = _tokenize(text)
    except InvalidInputError:
        return True
    return not tokens or tokens[-1].token_type is TokenType.SEMICOLON


def is_unicode(text: str) -> bool:
    """Returns whether a text consists of whole characters: no half of one, as JSON and Python can hold."""
    return text.isascii() or _SURROGATE.search(text) is None


def unquoted(literal: str) -> str:
    """Returns the text of a string literal, without its quotes and escapes."""
    [token] = _TOKENIZER.tokenize(literal)
    return token.text


def _tokenize(text: str) -> list[Token]:
    if not is_unicode(text):
        raise InvalidInputError(
            "the statement is not valid Unicode: it holds half a character", kind="syntax"
        )
    try:
        tokens = _TOKENIZER.tokenize(text)
    except TokenError as error:
        offset = _first_open(text)
        if offset is None:
            raise InvalidInputError(f"the statement cannot be read: {error}", kind="syntax") from error
        opener = text[offset : offset + 2] if text[offset] == "/" else text[offset]
        opened = {"/*": "comment", "`": "quoted name"}.get(opener, "string")
        raise syntax_error(
            text, offset, f"the end of the {opened} that starts here", "the end of the text"
        ) from error
    return [part for token in tokens for part in _words(token)]


def _words(token: Token) -> list[Token]:
    """Splits tokens of several words, which sqlglot makes of `ORDER BY` and its like."""
    if " " not in token.text or token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return [token]
    words = token.text.split()
    if not all(word.isalpha() for word in words):
        return [token]
    return [Token(TokenType.VAR, word, start=token.start, end=token.end) for word in words]


def _first_open(text: str) -> int | None:
    return next((match.start() for match in _QUOTED.finditer(text) if match["open"]), None)


@dataclass
class TokenStream:
    """A reader over the tokens of one statement.

    Attributes:
        text: the whole text, for positions and slices.
        tokens: of this statement only.
        end: offset just behind the statement.
        at: index of the next token.
        first_word: of the statement, as `word` returns it.
    """

    text: str
    tokens: list[Token]
    end: int
    at: int = 0
    first_word: str = field(init=False)

    def __post_init__(self) -> None:
        self.first_word = self.word(-self.at)

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.tokens)

    @property
    def offset(self) -> int:
        """Where the next token starts."""
        return self.tokens[self.at].start if self.at < len(self.tokens) else self.end

    @property
    def source(self) -> str:
        """The statement as written."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def word(self, ahead: int = 0) -> str:
        """Returns the next token in upper case; empty for strings, quoted names and behind the end."""
        i = self.at + ahead
        if i >= len(self.tokens):
            return ""
        token = self.tokens[i]
        return "" if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) else token.text.upper()

    def kind(self, ahead: int = 0) -> TokenType | None:
        i = self.at + ahead
        return self.tokens[i].token_type if i < len(self.tokens) else None

    def take(self, *words: str) -> bool:
        """Steps over the words if they are next, and returns whether they were."""
        if all(self.word(i) == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def take_one_of(self, *words: str) -> str:
        """Steps over the next word and returns it when it is one of these, else the empty string."""
        word = self.word()
        if word not in words:
            return ""
        self.at += 1
        return word

    def need(self, *words: str) -> None:
        """Steps over the words.

        Raises:
            InvalidInputError: another word is next.
        """
        for i, word in enumerate(words):
            if self.word() != word:
                self.fail(" ".join(words[i:]))
            self.at += 1

    def need_end(self) -> None:
        if self.at < len(self.tokens):
            self.fail("the end of the statement")

    def fail(self, expected: str) -> NoReturn:
        raise syntax_error(self.text, self.offset, expected, self.found())

    def refuse(self, message: str, kind: str = "not_supported") -> NoReturn:
        """Refuses Doris SQL that is not supported here, with its place and the reason."""
        line, column = position(self.text, self.offset)
        raise InvalidInputError(
            f"line {line}, column {column}: {message}", kind=kind, line=line, column=column
        )

    def found(self) -> str:
        if self.is_done:
            return "the end of the statement"
        token = self.tokens[self.at]
        shown = self.text[token.start : token.end + 1]
        return repr(shown if len(shown) <= _FOUND_LENGTH_MAX else shown[: _FOUND_LENGTH_MAX - 3] + "...")

    def name(self, expected: str) -> str:
        """Parses a name, quoted by backquotes or plain."""
        if self.is_done:
            self.fail(expected)
        token = self.tokens[self.at]
        is_plain = token.token_type not in (TokenType.STRING, TokenType.NUMBER) and _NAME_WORD.fullmatch(
            token.text
        )
        if token.token_type is not TokenType.IDENTIFIER and not is_plain:
            self.fail(expected)
        self.at += 1
        return token.text

    def dotted_name(self, expected: str) -> list[str]:
        parts = [self._hyphened_name(expected)]
        while self.take("."):
            parts.append(self._hyphened_name(f"the rest of the {expected}"))
        return parts

    def _hyphened_name(self, expected: str) -> str:
        """Parses a name; `table-name` without blanks is one too, for no subtraction can stand here."""
        name = self.name(expected)
        while self.word() == "-" and self._is_glued(0) and self._is_glued(1) and self.kind(1) is not None:
            self.at += 1
            name += "-" + self.name(expected)
        return name

    def _is_glued(self, ahead: int) -> bool:
        """Returns whether a token follows the one before it without a blank."""
        i = self.at + ahead
        return 0 < i < len(self.tokens) and self.tokens[i].start == self.tokens[i - 1].end + 1

    def listed(self, parse: Callable[[TokenStream], T]) -> list[T]:
        """Parses `item, ..`, at least one."""
        found = [parse(self)]
        while self.take(","):
            found.append(parse(self))
        return found

    def enclosed(self, parse: Callable[[TokenStream], T], where: str = "") -> list[T]:
        """Parses `( item, .. )`; `where` ends the message for another closing token."""
        self.need("(")
        found = self.listed(parse)
        if not self.take(")"):
            self.fail(f"',' or ')'{where}")
        return found

    def names(self, expected: str) -> list[str]:
        """Parses `( name, .. )`."""
        return self.enclosed(lambda stream: stream.name(expected))

    def string(self, expected: str) -> str:
        """Parses a quoted string and undoes its escapes."""
        if self.kind() is not TokenType.STRING:
            self.fail(f"{expected} in quotes")
        self.at += 1
        return self.tokens[self.at - 1].text

    def word_or_string(self, expected: str) -> str:
        """Parses a quoted string, or a name without quotes."""
        return self.string(expected) if self.kind() is TokenType.STRING else self.name(expected)

    def integer(self, expected: str) -> int:
        text = self.tokens[self.at].text if self.kind() is TokenType.NUMBER else ""
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
            self.fail(expected)
        self.at += 1
        return int(text)

    def properties(self) -> dict[str, str]:
        """Parses `( "name" = "value", .. [,] )`.

        Doris's documents print a comma behind the last pair, Delta's sometimes omit the quotes.
        """
        self.need("(")
        found: dict[str, str] = {}
        while not self.take(")"):
            is_quoted = self.kind() is TokenType.STRING
            name = (
                self.string("a property name") if is_quoted else ".".join(self.dotted_name("property name"))
            )
            self.need("=")
            if name in found:
                self.refuse(f"property {name!r} is given twice", "bad_property")
            found[name] = self._property_value()
            if not self.take(",") and self.word() != ")":
                self.fail("',' or ')'")
        return found

    def _property_value(self) -> str:
        """Parses a string, or `true` and numbers as they are."""
        is_number = self.kind() is TokenType.NUMBER
        if not is_number and self.word() not in ("TRUE", "FALSE"):
            return self.string("a property value")
        self.at += 1
        return self.tokens[self.at - 1].text

    def slice_to(self, *stops: str) -> tuple[int, int]:
        """Steps over an expression, up to an outermost `,`, `)` or stop, and returns its offsets.

        A stop is a word, or several separated by blanks; `''` among them stands for any string.
        """
        start, depth, first = self.offset, 0, self.at
        ends = [stop.split() for stop in stops]
        firsts = {each[0] for each in ends}
        while not self.is_done:
            word = self.word()
            if depth == 0 and (word == "," or word in _CLOSING):
                break
            if depth == 0 and word in firsts and any(map(self._stands, ends)):
                break
            depth += (word in _OPENING) - (word in _CLOSING)
            self.at += 1
        if self.at == first:
            self.fail("an expression")
        return start, self.tokens[self.at - 1].end + 1

    def _stands(self, words: list[str]) -> bool:
        return all(
            self.kind(i) is TokenType.STRING if word == "''" else self.word(i) == word
            for i, word in enumerate(words)
        )

    def expression(self, *stops: str) -> exp.Expr:
        """Parses an expression up to an outermost `,`, `)` or stop, as a tree."""
        start, end = self.slice_to(*stops)
        return parse_tree(self.text, start, end)

    def rest(self) -> exp.Expr:
        """Parses everything that is left, as one tree."""
        start = self.offset
        if self.is_done:
            self.fail("an expression")
        self.at = len(self.tokens)
        return parse_tree(self.text, start, self.tokens[-1].end + 1)


def parse_tree(text: str, start: int, end: int) -> exp.Expr:
    """Parses a piece of the text with sqlglot.

    Raises:
        InvalidInputError: with the position in the whole text.
    """
    try:
        return parse_one(text[start:end], read=SqlDialect)
    except ParseError as error:
        raise _translated(text, start, error) from error
    except TooManyStepsError as error:
        raise syntax_error(
            text, start, "a statement with one reading", "very many (joins without ON or USING?)"
        ) from error
    except RecursionError as error:
        raise syntax_error(text, start, "less deeply nested expressions", "too many levels") from error
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        # Some malformed calls trip sqlglot's builders before its own checks do.
        raise syntax_error(
            text, start, "a well-formed expression", repr(text[start:end][:_FOUND_LENGTH_MAX])
        ) from error


def _translated(text: str, start: int, error: ParseError) -> InvalidInputError:
    first = error.errors[0] if error.errors else {}
    found = str(first.get("highlight") or "")
    before = str(first.get("start_context") or "")
    offset = start
    line = first.get("line")
    if line is not None:
        line_start = start
        for _ in range(int(line) - 1):
            line_start = text.find("\n", line_start) + 1
        offset = max(line_start + int(first.get("col") or 1) - max(len(found), 1), start)
    description = str(first.get("description") or "")
    expected = _expected(description)
    shown = repr(found) if found else repr((before or text[start:])[-_FOUND_LENGTH_MAX:])
    return syntax_error(text, min(offset, len(text)), expected, shown)


def _expected(description: str) -> str:
    lowered = description.rstrip(". ")
    for prefix in ("Expecting ", "Expected "):
        if lowered.startswith(prefix):
            return lowered.removeprefix(prefix)
    if lowered.startswith("Required argument"):
        return f"all arguments ({lowered[0].lower()}{lowered[1:]})"
    return "an expression or the end of it"
