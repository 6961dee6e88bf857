"""Secrets that statements and properties hold, and what of them is shown."""

from __future__ import annotations

import pytest

from seqstore.store.runtime.secrets.statements import masked_statement
from seqstore.store.runtime.secrets.words import is_secret, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        "property.sasl.password",
        "property.sasl.jaas.config",
        "property.ssl.key.password",
        "property.ssl.keystore.key",
        "property.ssl.truststore.certificates",
        "property.schema.registry.basic.auth.user.info",
        "basic.auth.user.info",
        "property.sasl.oauthbearer.client.secret",
        "property.sasl.oauthbearer.assertion.private.key.passphrase",
        "s3.access_key",
        "AWS_SECRET_KEY",
        "s3.secret_key",
        "s3.session_token",
        "azure.account_key",
        "fs.azure.sas.token",
        "gs.credential",
    ],
)
def test_secrets_are_masked(name: str) -> None:
    """`basic.auth.user.info`, user and password of a schema registry, was shown."""
    assert is_secret(name)
    assert without_secrets({name: "x", "kafka_topic": "t"}) == {name: "******", "kafka_topic": "t"}


@pytest.mark.parametrize(
    "name",
    ["kafka_topic", "property.group.id", "property.security.protocol", "property.ssl.keystore.location",
     "property.sasl.mechanism", "property.sasl.username", "s3.endpoint", "s3.region", "path", "format"],
)  # fmt: skip
def test_other_properties_are_shown(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE USER ann IDENTIFIED BY 'hidden'",
        "ALTER USER 'ann'@'%' IDENTIFIED BY  \"hid'den\"",
        "SET PASSWORD FOR 'ann' = PASSWORD('hidden')",
        "SET PASSWORD = 'hidden'",
        'LOAD LABEL l (DATA INFILE("s3://b/x") INTO TABLE t) WITH S3 ("s3.secret_key"  =  "hidden")',
        "CREATE ROUTINE LOAD j ON t FROM KAFKA ('property.basic.auth.user.info' = 'u:hid\\'den')",
        "SET PASSWORD = 'hidden",
    ],
)
def test_a_statement_is_shown_without_its_secrets(text: str) -> None:
    """SHOW PROCESSLIST had the whole text."""
    assert "hid" not in masked_statement(text)
    assert masked_statement(text).startswith(text[:10])


def test_other_statements_are_shown_as_they_are() -> None:
    text = "SELECT 'password' = 'x', \"a\" = \"b\" FROM t WHERE v = 'it''s' AND w = 'IDENTIFIED BY'"
    assert masked_statement(text).replace("******", "x") == text


@pytest.mark.parametrize("part", ["'", "\\", "\"'", "PASSWORD ", "'a' = ", "IDENTIFIED BY "])
def test_any_text_is_masked_in_bounded_time(part: str) -> None:
    assert masked_statement(part * 1_000_000)
