"""The properties of a routine load: their names, limits and defaults (R17-R22)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from seqstore.loaders.headers import UPDATE_MODES
from seqstore.store.errors import InvalidInputError

CONCURRENCY_MAX: Final = 256  # R9
UNLIMITED: Final = sys.maxsize  # bad rows of a job that keeps them, unless it has a limit of its own (DL2)
_MIB: Final = 1 << 20
EXEC_MEM_LIMIT: Final = 2048 * _MIB  # R18; shown as the default
# Properties that mean what the header of a stream load with this name means.
HEADERS: Final = (
    "strict_mode",
    "timezone",
    "partial_columns",
    "unique_key_update_mode",
    "partial_update_new_key_behavior",
    "format",
    "jsonpaths",
    "json_root",
    "strip_outer_array",
    "num_as_string",
    "fuzzy_parse",
    "enclose",
    "escape",
    "empty_field_as_null",
    "change_table",
    "change_position",
    "change_time_unit",
    "schema_registry",
    "exec_mem_limit",
    "schema_evolution",
    "auto_create",
    "dead_letters",
)
LIMITS: Final = (
    "desired_concurrent_number",
    "max_error_number",
    "max_filter_ratio",
    "max_batch_interval",
    "max_batch_rows",
    "max_batch_size",
)
# Known to Doris and of no meaning here: there are no backends whose tablets and groups to divide.
_WITHOUT_EFFECT: Final = (
    "send_batch_parallelism",
    "load_to_single_tablet",
    "workload_group",
)
KNOWN: Final = frozenset([*HEADERS, *LIMITS, *_WITHOUT_EFFECT])  # R21
ALTERABLE: Final = frozenset(  # R29
    [
        *LIMITS,
        "jsonpaths",
        "json_root",
        "strip_outer_array",
        "strict_mode",
        "timezone",
        "num_as_string",
        "fuzzy_parse",
        "partial_columns",
        "unique_key_update_mode",
    ]
)


@dataclass(frozen=True)
class Limits:
    """When a task ends, how many run at once, and how many bad rows a job bears.

    Attributes:
        concurrency: tasks at once, at most.
        errors_max, error_ratio_max: bad rows, and their share, that the error window bears (R16).
        seconds, rows, bytes: a task ends when it reaches one of them (R10).
    """

    concurrency: int = CONCURRENCY_MAX  # R19, the newest
    errors_max: int = 0
    error_ratio_max: float = 1.0  # R17
    seconds: int = 60  # R18, the newest
    rows: int = 20_000_000
    bytes: int = 1024 * _MIB


def limits_of(properties: Mapping[str, str]) -> Limits:
    """Returns the limits that properties set.

    Raises:
        InvalidInputError: in the words of R20.
    """
    default = Limits()
    whole = _whole
    errors_max = UNLIMITED if _is_true(properties, "dead_letters") else default.errors_max  # DL2
    return Limits(
        concurrency=whole(
            properties,
            "desired_concurrent_number",
            default.concurrency,
            lambda n: n > 0,
            "must be greater than 0",
        ),
        errors_max=whole(properties, "max_error_number", errors_max, lambda n: n >= 0, "should >= 0"),
        error_ratio_max=_ratio(properties, default.error_ratio_max),
        seconds=whole(properties, "max_batch_interval", default.seconds, lambda n: n >= 1, "should >= 1"),
        rows=whole(properties, "max_batch_rows", default.rows, lambda n: n >= 200_000, "should > 200000"),
        bytes=whole(
            properties,
            "max_batch_size",
            default.bytes,
            lambda n: 100 * _MIB <= n <= 10_240 * _MIB,
            "should between 100MB and 10GB",
        ),
    )


def check_properties(properties: Mapping[str, str]) -> str:
    """Checks the properties that are no headers of a stream load (R20-R22, P12, P13).

    Returns:
        Their update mode.

    Raises:
        InvalidInputError: names the property.
    """
    for name in properties:
        if name not in KNOWN:
            raise _bad(f"{name} is invalid property")
    limits_of(properties)
    for name in ("strict_mode", "load_to_single_tablet"):
        if properties.get(name, "true").lower() not in ("true", "false"):
            raise _bad(f"{name} should be a boolean")
    for name in ("exec_mem_limit", "send_batch_parallelism"):
        _whole(properties, name, 1, lambda n: n > 0, "must be greater than 0")
    mode = properties.get("unique_key_update_mode")
    if mode is not None and mode.upper() not in UPDATE_MODES:
        listed = ", ".join(f"'{name}'" for name in UPDATE_MODES)
        raise _bad(f"unique_key_update_mode should be one of {{{listed}}}, but found {mode}")
    if mode is None:
        mode = "UPDATE_FIXED_COLUMNS" if _is_true(properties, "partial_columns") else "UPSERT"
    behavior = properties.get("partial_update_new_key_behavior")
    if behavior is not None and mode.upper() == "UPSERT":
        raise _bad("partial_update_new_key_behavior can only be set when partial update is enabled")
    if behavior is not None and behavior.upper() not in ("APPEND", "ERROR"):
        raise _bad(
            "partial_update_new_key_behavior should be one of {'APPEND', 'ERROR'}, but found "
            f"{behavior.upper()}"
        )
    return mode.upper()


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").lower() == "true"


def _whole(
    properties: Mapping[str, str], name: str, default: int, fits: Callable[[int], bool], rule: str
) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()) or not fits(int(text)):
        raise _bad(f"{name} {rule}")
    return int(text)


def _ratio(properties: Mapping[str, str], default: float) -> float:
    text = properties.get("max_filter_ratio")
    if text is None:
        return default
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise _bad("max_filter_ratio should between 0 and 1")
    return ratio


def _bad(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="bad_property")
