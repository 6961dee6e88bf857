"""The console in a Chromium of this machine, without a display."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.console.shop import PASSWORD
from tests.support.http_server import Client

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# What Chromium does without; the list of playwright does not count beside this one. The two of the omnibox
# load a page of the browser's own for each window, three fifths of all its processor time.
_WITHOUT: Final = (
    "AimEnabled", "DestroyProfileOnBrowserClose", "HttpsUpgrades", "LensOverlay", "MediaRouter",
    "OptimizationHints", "PaintHolding", "WebUIOmniboxAimPopup", "WebUIOmniboxPopup",
)  # fmt: skip
WIDTHS: Final = (390, 820, 1280)
WAIT_MS: Final = 60_000
# View -> its address; a key of the history and a statement are typed by `show`.
VIEWS: Final = {
    "overview": "#/",
    "versions": "#/table/shop/orders/versions",
    "columns": "#/table/shop/orders/columns",
    "segments": "#/table/shop/orders/segments",
    "key": "#/table/shop/orders/key",
    "lateness": "#/table/shop/orders/lateness",
    "loads": "#/loads",
    "sql": "#/sql",
    "server": "#/server",
}
KEY: Final = "24"
STATEMENT: Final = (
    "SELECT date_trunc(updated, 'hour') AS hour, count(*) AS orders, sum(amount) AS amount\n"
    "FROM shop.orders GROUP BY hour ORDER BY hour"
)


def reason_without() -> str:
    """Why no browser can be driven here; empty where one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs the package playwright"
    if not any(map(shutil.which, NAMES)):
        return f"needs a Chromium: one of {', '.join(NAMES)} on the PATH"
    return ""


@contextmanager
def browser() -> Iterator[Any]:
    """Yields a browser of playwright."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, NAMES)))
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(_WITHOUT)}"],
        )
        try:
            yield started
        finally:
            started.close()


@contextmanager
def page_of(
    started: Any, client: Client, *, width: int = 1280, scheme: str = "light", state: Any = None
) -> Iterator[Any]:
    """Yields a page that no other shares anything with; at its end it has had no error.

    Requests to other places than the server fail the test, and so do errors of scripts and of the policy.

    Args:
        state: the cookies of a login, as `logged_in` returns them.
    """
    look = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    context = started.new_context(**look, storage_state=state)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if _is_fault(line) else None)
    page.on("request", lambda sent: faults.append(sent.url) if not _is_own(sent.url, client) else None)
    try:
        page.goto(f"{client.address}/")
        yield page
    finally:
        context.close()
    assert faults == [], faults


def _is_fault(line: Any) -> bool:
    """A refusal is no fault: the browser logs each answer from 400 on."""
    return line.type == "error" and "status of 4" not in line.text


def _is_own(url: str, client: Client) -> bool:
    return url.startswith((f"{client.address}/", f"blob:{client.address}/"))


def logged_in(started: Any, client: Client) -> Any:
    """Returns the cookies of a login, for pages that begin with it: a login takes longer than a view."""
    with page_of(started, client) as page:
        log_in(page)
        return page.context.storage_state()


def log_in(page: Any, user: str = "root", password: str = PASSWORD) -> None:
    """Logs in and waits for the overview."""
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_selector("main[data-ready]")


def show(page: Any, view: str) -> None:
    """Opens a view and waits until all of it is there."""
    page.evaluate(
        """address => {
            document.querySelector("main").removeAttribute("data-ready");
            if (location.hash === address) dispatchEvent(new Event("hashchange"));
            location.hash = address;
        }""",
        VIEWS[view],
    )
    page.wait_for_selector("main[data-ready]")
    if view == "key":
        page.get_by_label("id", exact=True).fill(KEY)
        page.get_by_role("button", name="Show its history").click()
        page.get_by_role("region", name="History of the key").wait_for()
    if view == "sql":
        type_statement(page, STATEMENT)
        page.get_by_role("button", name="Run").click()
        page.get_by_role("heading", name="Result").wait_for()


def type_statement(page: Any, text: str) -> None:
    """Replaces the statement of the editor, and closes the list of names."""
    page.get_by_label("Statement").fill(text)
    page.keyboard.press("Escape")


def statement(page: Any) -> str:
    """Returns the text of the editor, which has an element for each line."""
    lines: list[str] = page.get_by_label("Statement").locator(".cm-line").all_text_contents()
    return "\n".join(lines)
