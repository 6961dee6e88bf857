"""Makes the pictures of docs/console.md: `python -m tests.support.console.pictures docs/pictures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.console.browser import VIEWS, WIDTHS, browser, log_in, page_of, reason_without, show
from tests.support.console.shop import console_server

# Views of the manual; the others are as wide as their tables.
SHOWN = {"overview", "versions", "segments", "key", "lateness", "loads", "sql", "server"}
HEIGHTS = {390: 844, 820: 1000, 1280: 860}


def main(folder: Path) -> None:
    """Writes a picture of each view at each width, the widest ones in dark too for the overview."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        console_server(Path(data)) as (client, _),
        browser() as started,
    ):
        for width in WIDTHS:
            with page_of(started, client, width=width) as page:
                log_in(page)
                page.set_viewport_size({"width": width, "height": HEIGHTS[width]})
                for view in [each for each in VIEWS if each in SHOWN]:
                    show(page, view)
                    if view == "sql":
                        page.get_by_role("button", name="Chart").click()
                    page.wait_for_timeout(300)  # the charts are drawn when their boxes have a width
                    page.evaluate("scrollTo(0, 0)")
                    page.screenshot(path=folder / f"console-{view}-{width}.png")


if __name__ == "__main__":
    if reason := reason_without():
        sys.exit(f"no pictures: {reason}")
    main(Path(sys.argv[1]))
