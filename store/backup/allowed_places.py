"""Whether users of a server may name a place: one of the setting `output_paths`, or below one.

A local path is compared as links resolve it. Of a URI scheme, bucket, path and endpoint count; a bucket
belongs to one endpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from seqstore.store.errors import AccessDeniedError, InvalidInputError
from seqstore.store.runtime.secrets.words import masked_uri

# Only characters with one meaning in every library that opens the URI: a `#` would end it in some.
_ADDRESS: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?:[\w.~%!$&'()*+,;=:-]*@)?(?P<bucket>[\w.~:-]*)(?P<path>/[^?#@]*)?"
    r"(?:\?(?P<query>[^#?]*))?",
    re.ASCII | re.IGNORECASE,
)
_ENDPOINT: Final = "endpoint_override"


def require_allowed(uri: str, allowed: Sequence[str]) -> None:
    """Checks that files may be written and read below a place.

    Raises:
        AccessDeniedError: it is not below any of the allowed ones.
        InvalidInputError: a URI that libraries read in different ways.
    """
    place, endpoint = _place(uri)
    for root in allowed:
        base, its_endpoint = _place(root)
        if endpoint == its_endpoint and f"{place}/".startswith(f"{base}/"):
            return
    told = ", ".join(masked_uri(root) for root in allowed) or "there is none"
    raise AccessDeniedError(
        f"{masked_uri(uri)}: not below a place that the setting output_paths lists ({told}); add it in the "
        "configuration of the server, or use a command on its host",
        kind="path_not_allowed",
    )


def _place(uri: str) -> tuple[str, str]:
    """Returns the resolved place of a path without a slash at its end, and its endpoint."""
    if uri.lower().startswith("file:"):
        uri = unquote(urlsplit(uri).path)
    if "://" not in uri:
        return os.path.realpath(uri).rstrip("/"), ""
    found = _ADDRESS.fullmatch(uri)
    query = parse_qsl(found["query"] or "", keep_blank_values=True) if found is not None else []
    path = found["path"] or "" if found is not None else ".."
    if found is None or ".." in unquote(path).split("/") or len(dict(query)) < len(query):
        raise InvalidInputError(
            f"{masked_uri(uri)}: expected scheme://bucket/path without '..', '#' and '@' in the path, and "
            "each parameter once",
            kind="bad_uri",
        )
    return f"{found['scheme'].lower()}://{found['bucket']}{path.rstrip('/')}", dict(query).get(_ENDPOINT, "")
