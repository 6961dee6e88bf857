"""Statements as they are shown: whatever the tokenizer reads as a password or a key is not in them."""

from __future__ import annotations

import random

import pytest

from seqstore.store.errors import InvalidInputError
from seqstore.store.runtime.secrets.statements import masked_statement
from seqstore.store.sql.parse.sqlglot_adapter import Token, TokenType
from seqstore.store.sql.parse.tokens import split_statements
from tests.seeds import new_seed
from tests.weight import by_form

SECRET = "hush-hush"
PARTS = [
    *"\"'`#/*\\;=(),@-%:1 \n\r\t\f\0\u2028", "--", "/*", "*/", "/*+", "/*!", "/*!99999 ", "{#", "#}", "{{",
    "{%", "''", "x", "b'1'", "x'41'", "N'", "_utf8'", "0x", "a.b", "PASSWORD", "IDENTIFIED BY", "FOR", "'a'",
    "\"it's\"", "`o'k`", "'s3.secret_key'", "secret_key", "'a\\'b'", "SELECT ", "REPLACE ",
]  # fmt: skip
ANNOUNCING = [
    "IDENTIFIED BY", "SET PASSWORD =", "SET PASSWORD FOR 'a'@'b' =", "'s3.secret_key' =", "`s3.secret_key`=",
    "s3.secret_key =", "s3 . `access_key` =",
]  # fmt: skip
BETWEEN = [" ", "", "\n", "/* it's */", "-- it's\n", "# x'\n", "/**/"]


def is_read_as_secret(text: str) -> bool:
    """Whether a token of the text is the secret, directly behind what announces it."""
    try:
        return any(_has_secret(stream.tokens) for stream in split_statements(text))
    except InvalidInputError:
        return False


def _has_secret(tokens: list[Token]) -> bool:
    words = [token.text.upper() for token in tokens]
    return any(
        token.token_type is TokenType.STRING
        and token.text == SECRET
        and (
            words[i - 2 : i] == ["IDENTIFIED", "BY"]
            or (words[i - 1] == "=" and ("PASSWORD" in words[max(i - 6, 0) : i] or "_KEY" in words[i - 2]))
        )
        for i, token in enumerate(tokens)
        if i > 1
    )


def test_no_literal_that_the_tokenizer_reads_as_a_secret_is_shown() -> None:
    """An apostrophe in a comment, among others, made the text before a literal read as the literal."""
    seed = new_seed()
    draw = random.Random(seed)
    count = 0
    for _ in range(by_form(3_000, 100_000)):
        head = "".join(draw.choices(PARTS, k=draw.randrange(8)))
        tail = "".join(draw.choices(PARTS, k=draw.randrange(4)))
        between = "".join(draw.choices(BETWEEN, k=2))
        quote = draw.choice("'\"")
        text = f"{head};{draw.choice(ANNOUNCING)}{between}{quote}{SECRET}{quote}{tail}"
        if is_read_as_secret(text):
            count += 1
            for is_parsed in (True, False):
                assert SECRET not in masked_statement(text, is_parsed=is_parsed), (seed, text)
    assert count > 500


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("SET PASSWORD FOR 'ann'@'%' = 'hush'", "SET PASSWORD FOR 'ann'@'%' = '******'"),
        ("SELECT 1; CREATE USER a IDENTIFIED BY 'hush'; SELECT 'x'",
         "SELECT 1; CREATE USER a IDENTIFIED BY '******'; SELECT 'x'"),
        ("S3 ('s3.secret_key' = 'hush', 'region' = 'r')", "S3 ('s3.secret_key' = '******', 'region' = 'r')"),
        ("S3 (s3.secret_key = 'hush', s3.region = 'r')", "S3 (s3.secret_key = '******', s3.region = 'r')"),
        ("SELECT 'x' /* a token */ FROM t", "SELECT 'x' /* ****** */ FROM t"),
        ("SELECT /*+ SET_VAR(a = 1) */ `key`, 'x' FROM t", "SELECT /*+ SET_VAR(a = 1) */ `key`, 'x' FROM t"),
        ("SELECT v FROM t WHERE k = 'x' -- it's", "SELECT v FROM t WHERE k = 'x' -- it's"),
    ],
)  # fmt: skip
def test_the_rest_of_a_statement_is_shown(text: str, shown: str) -> None:
    assert masked_statement(text) == shown


@pytest.mark.parametrize("part", ["key = 'a'", "a.", "secret = ", "/* key ", "key--'", "oauth", "\\'key"])
def test_statements_of_any_length_are_masked_in_bounded_time(part: str) -> None:
    assert masked_statement(part * 1_000_000)


def test_a_text_that_is_no_statement_keeps_its_literals_without_such_a_word() -> None:
    text = (
        """PUT /api/_http_stream sql: INSERT INTO t (monkey) SELECT c1 FROM http_stream("format" = "csv")"""
    )
    assert masked_statement(text, is_parsed=False) == text
    assert masked_statement(f"{text} -- token", is_parsed=False).count("'******'") == 2


def test_a_uri_that_is_cut_before_its_host_is_masked() -> None:
    text = "BACKUP TO 's3://key:hush-hush@bucket/path'"
    for length in range(len(text)):
        assert "hu" not in masked_statement(text, length=length), length
    assert masked_statement(text, length=len(text) - 3) == "BACKUP TO 's3://******@bucket/pa"
