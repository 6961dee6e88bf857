"""The headers of a stream load, read and checked into one value before anything else happens.

Names are matched without regard to case. A bad value is refused with the text Doris answers where it is known
(LR, LH). A header that is not known is ignored, as HTTP clients send many of their own; `unknown_headers`
finds those that were meant for the load.

- `options`: what they ask for;
- `parse`: from texts to options;
- `values`, `combinations`: values that several share, and headers that do not go together;
- `known`: the names of all.
"""

from seqstore.loaders.headers.known import KNOWN_HEADERS, unknown_headers
from seqstore.loaders.headers.options import (
    AVRO_FORMATS,
    CHANGE_FORMATS,
    EVOLUTIONS,
    UPDATE_MODES,
    AvroOptions,
    ChangeOptions,
    CsvOptions,
    JsonOptions,
    Registry,
    StreamLoadOptions,
    text_format,
)
from seqstore.loaders.headers.parse import parse_headers, takes_fields
from seqstore.loaders.headers.values import by_plain_names, evolution_in

__all__ = [
    "AVRO_FORMATS",
    "CHANGE_FORMATS",
    "EVOLUTIONS",
    "KNOWN_HEADERS",
    "UPDATE_MODES",
    "AvroOptions",
    "ChangeOptions",
    "CsvOptions",
    "JsonOptions",
    "Registry",
    "StreamLoadOptions",
    "by_plain_names",
    "evolution_in",
    "parse_headers",
    "takes_fields",
    "text_format",
    "unknown_headers",
]
