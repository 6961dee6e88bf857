"""A Confluent schema registry: schemas by the ids that messages begin with (AV2).

Loads name a registry of the setting `schema_registries` and no other one, so a statement makes no connection
that the owner of the host did not allow. An entry is the URL of a registry, with what it takes to reach it:

| part of the URL | meaning |
| --- | --- |
| `https://user:password@host:8081` | basic authentication |
| `?token=...` | bearer authentication |
| `?ca=/path` | certificates that the server's must be signed by |
| `?certificate=/path&key=/path` | certificate and key of the client |

An entry may also be `env:NAME` or `file:/path`, which hold such a URL. Schemas of an id never change, so each
is asked for once by a process.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from seqstore.loaders.headers import Registry, StreamLoadOptions
from seqstore.store.errors import AccessDeniedError, InvalidInputError, NotFoundError, UnavailableError
from seqstore.store.runtime.secrets.references import is_reference, read_secret

SETTING: Final = "schema_registries"
_SECONDS: Final = 10.0
_BYTES_MAX: Final = 16 << 20
_PARAMETERS: Final = ("token", "ca", "certificate", "key")
_DEPTH_MAX: Final = 100  # of references


def with_registry(options: StreamLoadOptions, allowed: Sequence[str]) -> StreamLoadOptions:
    """Returns options of a load whose registry is that of the settings.

    Args:
        allowed: the setting `schema_registries`.

    Raises:
        AccessDeniedError: the load names a registry that is not among them.
        InvalidInputError: an entry is no URL of a registry, or its secret is missing.
    """
    avro = options.avro
    if avro is None:
        return options
    known = {found.url: found for found in map(_entry, allowed)}
    wanted = avro.url.rstrip("/")
    if wanted and wanted not in known:
        raise AccessDeniedError(
            f"schema_registry: {avro.url!r} is not among the registries that loads may ask; an administrator "
            f"of the host adds it to the setting {SETTING}",
            kind="not_allowed",
        )
    only = next(iter(known.values())) if len(known) == 1 else None
    return replace(options, avro=replace(avro, registry=known[wanted] if wanted else only))


def _entry(text: str) -> Registry:
    secret = read_secret(SETTING, text, [text]) if is_reference(text) else text
    try:
        parts = urlsplit(secret.strip())
        given = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        host = parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        host, given = None, {}
    if not host or parts.scheme not in ("http", "https") or any(name not in _PARAMETERS for name in given):
        raise InvalidInputError(
            f"setting {SETTING}: expected http(s)://[user:password@]host[:port], with "
            f"{', '.join(_PARAMETERS)} as parameters, found another text in entry {text[:4]}..",
            kind="bad_setting",
        )
    user = parts.username
    login = "" if user is None else f"{unquote(user)}:{unquote(parts.password or '')}"
    name = f"[{host}]" if ":" in host else host
    return Registry(f"{parts.scheme}://{name}{port}{parts.path.rstrip('/')}", login, **given)


class UnknownSchemaError(NotFoundError):
    """The registry has no such schema."""


class SchemaRegistry:
    """The client of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def schemas(self, number: int) -> list[Any]:
        """Returns the schema of an id as parsed JSON, behind those that it refers to.

        Raises:
            UnknownSchemaError: there is no such schema, or it is none of Avro.
            UnavailableError: the registry does not answer, or with an error.
            InvalidInputError: its certificates cannot be read.
        """
        found = self._get(f"/schemas/ids/{number}", f"schema {number}")
        return [*self._referenced(found, {}, 0), _parsed(found, f"schema {number}")]

    def _referenced(self, schema: Mapping[str, Any], seen: dict[str, None], depth: int) -> list[Any]:
        found = []
        for each in schema.get("references") or () if depth < _DEPTH_MAX else ():
            subject, version = str(each.get("subject")), each.get("version")
            name = f"version {version} of {subject}"
            if name in seen:
                continue
            seen[name] = None
            told = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", name)
            found += [*self._referenced(told, seen, depth + 1), _parsed(told, name)]
        return found

    def _get(self, path: str, what: str) -> Mapping[str, Any]:
        given = self._registry
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if given.login:
            headers["Authorization"] = f"Basic {base64.b64encode(given.login.encode()).decode()}"
        elif given.token:
            headers["Authorization"] = f"Bearer {given.token}"
        request = urllib.request.Request(f"{given.url}{path}", headers=headers)
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if given.url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=_tls(given)))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=_SECONDS) as answer:
                told = json.loads(answer.read(_BYTES_MAX))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise UnknownSchemaError(f"the registry {given.url} has no {what}", kind="schema") from error
            raise self._unavailable(what, f"answers {error.code} {error.reason}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise self._unavailable(what, str(getattr(error, "reason", error))) from error
        if not isinstance(told, dict):
            raise self._unavailable(what, "answers no JSON object")
        return told

    def _unavailable(self, what: str, reason: str) -> UnavailableError:
        return UnavailableError(
            f"schema registry {self._registry.url}, {what}: {reason}", kind="schema_registry"
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """No redirect is followed: it could lead to a server that the setting does not name."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _tls(given: Registry) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.ca or None)
        if given.certificate:
            context.load_cert_chain(given.certificate, given.key or None)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"setting {SETTING}: the certificates of {given.url} cannot be read: {error}", kind="bad_setting"
        ) from error
    return context


def _parsed(told: Mapping[str, Any], what: str) -> Any:
    kind = told.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise UnknownSchemaError(f"{what}: expected a schema of AVRO, found {kind}", kind="schema")
    try:
        return json.loads(told["schema"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnknownSchemaError(f"{what} is no JSON: {error}", kind="schema") from error
