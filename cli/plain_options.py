"""Values of options that need no library to convert.

Newer versions of typer build a validator for each option, and the first one imports pydantic: a tenth of the
processor time of `seqstore sql -e 'select 1'`. Texts, absent values, names of choices and paths that can be
read mean the same with and without it. Any other value, every value of an older typer, and every error goes
the way of typer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_origin

_NOT_PLAIN: Final = object()
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
_CHECKS: Final = ("exists", "writable", "resolve_path", "allow_dash", "path_type", "parser")


def convert_plainly(parameters: Iterable[Any]) -> None:
    """Has parameters of a command convert their plain values themselves; they may come more than once."""
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is not None and "process_value" not in vars(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value, descriptor)


def _process(
    parameter: Any, convert: Callable[[Any, Any], Any], descriptor: Any, context: Any, value: Any
) -> Any:
    if value is None:
        is_many = parameter.multiple or parameter.nargs == -1
        plain = _NOT_PLAIN if parameter.required else () if is_many else None
    else:
        plain = _converted(descriptor.annotation, descriptor.parameter_info, value)
    if plain is _NOT_PLAIN:
        return convert(context, value)
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _converted(annotation: Any, checks: Any, value: Any) -> Any:
    """Returns a value as its annotation has it, `_NOT_PLAIN` when that takes more than a call of the type."""
    if any(getattr(checks, name, None) for name in _CHECKS):
        return _NOT_PLAIN
    if annotation in (bool, str) and isinstance(value, annotation):
        return value
    if annotation is bool and isinstance(value, str):  # of a variable of the environment
        return _FLAGS.get(value, _NOT_PLAIN)
    if get_origin(annotation) is list and get_args(annotation) == (str,) and isinstance(value, (list, tuple)):
        return list(value) if value and all(isinstance(item, str) for item in value) else _NOT_PLAIN
    if annotation is Path and isinstance(value, str):
        is_any_kind = checks.file_okay and checks.dir_okay
        return Path(value) if is_any_kind and os.access(value, os.R_OK) else _NOT_PLAIN
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next((item for item in annotation if item is value or item.value == value), _NOT_PLAIN)
    return _NOT_PLAIN
