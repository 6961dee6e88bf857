"""MySQL's executable comments: `/*!40101 SET x = 1 */` is a statement for servers from version 4.1.1 on.

mysqldump writes most of its settings so, and Connector/J a part of its. `/*M!` is for MariaDB alone.
"""

from __future__ import annotations

import re
from typing import Final

# The server's version (translate.functions.SERVER_VERSION), as these comments write it.
VERSION: Final = 50799
OPENING: Final = "/*!"
_PARTS: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|#[^\n]*"
    r"|(?P<open>/\*!(?P<version>\d{5,6})?)|/\*.*?\*/|(?P<close>\*/)",
    re.DOTALL,
)


def uncommented(text: str) -> str:
    """Replaces the marks of the comments that this server executes by blanks of the same length."""
    parts: list[str] = []
    end = at = 0
    is_open = False
    while (match := _PARTS.search(text, at)) is not None:
        at = match.end()
        if match["open"] and int(match["version"] or 0) > VERSION:
            closed = text.find("*/", at)
            at = closed + 2 if closed >= 0 else len(text)
        elif match["open"] or (match["close"] and is_open):
            is_open = bool(match["open"])
            parts += [text[end : match.start()], " " * len(match[0])]
            end = at
    return "".join([*parts, text[end:]])
