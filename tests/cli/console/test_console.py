"""The console in a browser, against a real server whose loads run."""

from __future__ import annotations

import csv
import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from seqstore import Store
from tests.seeds import new_seed
from tests.support.console.browser import (
    VIEWS,
    WIDTHS,
    browser,
    log_in,
    logged_in,
    page_of,
    reason_without,
    show,
    statement,
    type_statement,
)
from tests.support.console.shop import PASSWORD, console_server
from tests.support.http_server import Answer, Client
from tests.weight import by_form

pytestmark = pytest.mark.skipif(bool(reason_without()), reason=reason_without() or "there is a browser")
SCHEMES = ("light", "dark")
# The short form draws one look for all views.
LOOKS = list(itertools.product(WIDTHS, SCHEMES))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Store]]:
    with console_server(tmp_path_factory.mktemp("pages")) as served:
        yield served


@pytest.fixture
def client(shop: tuple[Client, Store]) -> Client:
    return shop[0]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def login(chromium: Any, shop: tuple[Client, Store]) -> Any:
    return logged_in(chromium, shop[0])


@pytest.fixture
def page(chromium: Any, client: Client, login: Any) -> Iterator[Any]:
    """Logged in, and ready."""
    with page_of(chromium, client, state=login) as opened:
        opened.wait_for_selector("main[data-ready]")
        yield opened


@contextmanager
def loading(client: Client) -> Iterator[None]:
    """Loads run, one after the other, as long as the block."""
    ending = threading.Event()

    def load() -> None:
        number = 0
        while not ending.is_set():
            number += 1
            client.load("shop.clicks", f"{number},live\n", f"root:{PASSWORD}", label=f"live-{number}")
            ending.wait(0.05)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("number", range(by_form(1, len(LOOKS))))
def test_axe_finds_nothing_and_nothing_is_wider_than_the_page(
    chromium: Any, client: Client, number: int
) -> None:
    """A page that is logged in once shows all views: a login takes longer than a view."""
    from axe_playwright_python.sync_playwright import Axe

    width, scheme = LOOKS[number] if by_form(0, 1) else LOOKS[new_seed(len(LOOKS))]
    with page_of(chromium, client, width=width, scheme=scheme) as opened:
        for view in ("login", *VIEWS):
            if view != "login":
                show(opened, view)
            found = Axe().run(opened)
            faults = [(each["id"], each["nodes"][0]["html"]) for each in found.response["violations"]]
            assert faults == [], f"{view}, {width} wide, {scheme}"
            assert opened.evaluate("document.documentElement.scrollWidth") <= width, f"{view}, {scheme}"
            if view == "login":
                log_in(opened)


def test_a_wrong_password_is_refused_and_a_logout_ends_the_login(chromium: Any, client: Client) -> None:
    with page_of(chromium, client) as opened:
        opened.get_by_label("User").fill("ann")
        opened.get_by_label("Password").fill("wrong")
        opened.get_by_role("button", name="Log in").click()
        opened.get_by_role("alert").filter(has_text="Access denied").wait_for()
        log_in(opened, "ann")
        opened.get_by_role("button", name="Log out").click()
        opened.get_by_role("button", name="Log in").wait_for()
        opened.reload()
        opened.get_by_role("button", name="Log in").wait_for()


def test_a_login_outlives_a_reload_of_the_page(page: Any) -> None:
    page.reload()
    page.get_by_role("heading", name="Overview").wait_for()
    assert page.evaluate("document.cookie") == ""


def test_a_user_sees_what_it_may_see(chromium: Any, client: Client) -> None:
    with page_of(chromium, client) as opened:
        log_in(opened, "ann")
        assert "shop.orders" in opened.content()
        assert "salaries" not in opened.content()
        show(opened, "server")
        opened.get_by_text("need the ADMIN privilege").wait_for()


def test_a_stranger_finds_out_why_a_row_is_not_there(page: Any) -> None:
    """A late row: from the overview to the table, its key history, and the reason."""
    page.get_by_role("link", name="shop.orders").click()
    page.get_by_role("link", name="Key history").click()
    page.get_by_label("id", exact=True).fill("3")
    page.keyboard.press("Enter")
    history = page.get_by_role("region", name="History of the key")
    late = history.get_by_role("row").filter(has_text="late item").first
    text = late.inner_text()
    assert "late: sequence" in text
    assert "is smaller than" in text
    assert "orders-04" in text
    page.get_by_label("id", exact=True).fill("987654321")
    page.keyboard.press("Enter")
    page.get_by_text("No load that can be read wrote this key").wait_for()


def test_a_rejected_row_has_its_reason(page: Any) -> None:
    show(page, "loads")
    page.get_by_label("Label or table contains").fill("orders-10")
    page.get_by_role("button", name="orders-10").click()
    rejected = page.get_by_role("region", name="Rejected rows")
    rejected.wait_for()
    assert "not a number" in rejected.inner_text()


def test_the_time_line_reads_a_version_and_compares_two(page: Any) -> None:
    show(page, "versions")
    rows = page.get_by_role("region", name="Versions").get_by_role("row")
    rows.filter(has_text="orders-00").click()
    page.get_by_role("heading", name="Rows at version 2").wait_for()
    rows.filter(has_text="orders-01").focus()
    page.keyboard.press("Enter")
    changes = page.get_by_role("region", name="Changes from version 2 to 3")
    changes.wait_for()
    assert "+I" in changes.inner_text()
    assert "_commit_version" in changes.inner_text()


def test_a_load_appears_without_a_reload(page: Any, client: Client) -> None:
    show(page, "loads")
    with loading(client):
        page.get_by_role("button", name=re.compile("live-")).first.wait_for()


def test_a_routine_load_is_resumed_and_paused(page: Any) -> None:
    show(page, "loads")
    page.get_by_role("button", name="Resume load_refunds").click()
    page.get_by_role("button", name="Pause load_refunds").click()
    page.get_by_role("button", name="Resume load_refunds").wait_for()


def test_a_paused_routine_load_is_altered_by_a_statement_that_is_written_already(page: Any) -> None:
    show(page, "loads")
    job = page.get_by_role("button", name="Alter load_refunds")
    if not job.is_visible():
        page.get_by_role("button", name="Pause load_refunds").click()
    job.click()
    page.locator("main[data-ready=sql]").wait_for()
    assert statement(page).startswith("ALTER ROUTINE LOAD FOR `shop`.`load_refunds`\nPROPERTIES (")
    page.get_by_role("button", name="Run").click()
    page.get_by_text("0 rows affected").wait_for()


def test_a_file_is_dropped_mapped_and_loaded(page: Any, client: Client) -> None:
    show(page, "loads")
    page.get_by_label("Table", exact=True).fill("shop.orders")
    page.evaluate(
        """() => {
            const text = "amount;Id;surplus;UPDATED\\n5.5;700001;x;2026-01-01\\n7;700002;y;2026-01-01\\n";
            const moved = new DataTransfer();
            moved.items.add(new File([text], "new orders.csv"));
            document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: moved}));
        }"""
    )
    button = page.get_by_role("button", name="into shop.orders")
    button.wait_for()
    targets = [page.get_by_label(f"Column {n} of the file").input_value() for n in (1, 2, 3, 4)]
    assert targets == ["amount", "id", "", "updated"]
    shown = page.locator("pre").filter(has_text="curl").inner_text()
    for part in (
        "column_separator: ;",
        "format: csv_with_names",
        "/api/shop/orders/_stream_load",
        "-u 'root'",
    ):
        assert part in shown
    assert PASSWORD not in shown
    page.get_by_label("Label", exact=True).fill("dropped")
    page.get_by_role("button", name="into shop.orders").click()
    page.get_by_text("2 rows loaded").wait_for()


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_a_file_with_a_footer_is_previewed_mapped_by_name_and_type_and_loaded(
    page: Any, tmp_path: Path, form: str
) -> None:
    """The file of Parquet is too large to be sent whole; its columns have other names than the table's."""
    count = by_form(100_000, 1_000_000) if form == "parquet" else 500
    first = 900_000 if form == "parquet" else 2_900_000
    ids = np.arange(first, first + count)
    columns = {
        "ID": ids,
        "what": pa.array([f"thing {n}" for n in range(count)]),
        "surplus": pa.array([b"x"] * count),
        "Updated": pa.array([0] * count, pa.timestamp("ms")),
    }
    path = tmp_path / f"rows.{form}"
    (pq if form == "parquet" else orc).write_table(pa.table(columns), path)
    show(page, "loads")
    page.get_by_label("Table", exact=True).fill("shop.orders")
    page.get_by_label("File", exact=True).set_input_files(path)
    sample = page.get_by_role("region", name="First rows")
    sample.get_by_role("cell", name="thing 11").wait_for()
    page.get_by_text(f"{count:,} rows, the first 12 of them").wait_for()
    targets = [page.get_by_label(f"Column {n} of the file").input_value() for n in (1, 2, 3, 4)]
    assert targets == ["id", "item", "", "updated"]
    shown = page.locator("pre").filter(has_text="curl").inner_text()
    assert "columns: `ID`,`what`,`Updated`,`item`=`what`" in shown
    page.get_by_role("button", name="into shop.orders").click()
    page.get_by_text(f"{count:,} rows loaded").wait_for()


# ------------------------------------------------------------------------------------------ the editor


def rest_of(page: Any, before: str) -> None:
    """Presses Tab until the chosen name is taken: a list that has just opened takes none."""
    while statement(page) == before:
        page.keyboard.press("Tab")


@pytest.mark.parametrize(
    ("typed", "offered", "kept"),
    [
        ("SELECT count(*) FROM shop.ord", "shop.orders", "SELECT count(*) FROM shop.orders"),
        ("SELECT 1 FROM shop.orders o WHERE o.u", "o.updated", "SELECT 1 FROM shop.orders o WHERE o.updated"),
        ("PAU", "PAUSE", "PAUSE"),
        ("SELECT date_tr", "date_trunc", "SELECT date_trunc("),
    ],
)  # fmt: skip
def test_names_complete_by_the_keyboard(page: Any, typed: str, offered: str, kept: str) -> None:
    page.evaluate("location.hash = '#/sql'")
    editor = page.get_by_label("Statement")
    editor.fill("")
    editor.press_sequentially(typed)
    page.get_by_role("option", name=offered).first.wait_for()
    rest_of(page, typed)
    assert statement(page) == kept
    if kept.startswith("SELECT count"):
        page.keyboard.press("Control+Enter")
        page.get_by_role("heading", name="Result").wait_for()


def test_the_selection_runs_alone(page: Any) -> None:
    show(page, "sql")
    type_statement(page, "SELECT 1 AS one;\nSELECT 2 AS two")
    page.keyboard.press("Shift+Home")
    page.keyboard.press("Control+Enter")
    page.get_by_role("columnheader", name="two").wait_for()
    assert page.get_by_role("columnheader", name="one").count() == 0
    assert page.get_by_label("History").locator("option").nth(1).inner_text().startswith("SELECT 1 AS one")


@pytest.mark.parametrize("button", ["Run", "Explain"])
def test_the_place_of_a_fault_is_marked_where_the_editor_has_it(page: Any, button: str) -> None:
    """The characters before it need two halves of a word each, and the text that was sent begins later."""
    page.evaluate("location.hash = '#/sql'")
    type_statement(page, "\n  SELECT '\U0001f600', 1\n  FROM shop.orders WHERE WHERE id = 1")
    page.get_by_role("button", name=button).click()
    page.get_by_role("alert").filter(has_text="Line 3, column 26: expected").wait_for()
    assert page.locator(".cm-fault").all_inner_texts() == ["WHERE"]
    page.get_by_role("button", name="Go to the place").click()
    page.keyboard.press("Control+Delete")
    type_statement(page, "SELECT 1")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("heading", name="Result").wait_for()
    assert page.locator(".cm-fault").count() == 0


def test_the_keyboard_leaves_the_editor_and_keys_of_views_stay_text(page: Any) -> None:
    page.evaluate("location.hash = '#/sql'")
    editor = page.get_by_label("Statement")
    assert "Tab leaves the editor" in page.locator("#hint").inner_text()
    assert editor.get_attribute("aria-describedby") == "hint"
    editor.fill("")
    editor.press_sequentially("gvd?")
    page.keyboard.press("Escape")
    assert statement(page) == "gvd?"
    page.keyboard.press("Tab")
    focused = "document.activeElement.textContent"
    assert page.evaluate(focused) == "Run"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"


def test_words_of_this_server_are_coloured(page: Any) -> None:
    page.evaluate("location.hash = '#/sql'")
    type_statement(page, "PAUSE ROUTINE LOAD FOR a; VACUUM t; -- date_trunc")
    colours = (
        page.get_by_label("Statement")
        .locator("span")
        .evaluate_all(
            "all => Object.fromEntries(all.map(each => [each.textContent, getComputedStyle(each).color]))"
        )
    )
    assert colours["PAUSE"] == colours["ROUTINE"] == colours["VACUUM"]
    assert colours["-- date_trunc"] != colours["PAUSE"]


def test_what_was_typed_outlives_another_view(page: Any) -> None:
    page.evaluate("location.hash = '#/sql'")
    type_statement(page, "SELECT 'half a stat")
    show(page, "server")
    page.get_by_role("button", name="Dark or light").click()
    page.get_by_role("link", name="SQL").click()
    page.locator("main[data-ready=sql]").wait_for()
    assert statement(page) == "SELECT 'half a stat"


def test_a_result_is_a_grid_a_chart_an_error_and_a_file(page: Any, tmp_path: Path) -> None:
    show(page, "sql")
    page.get_by_role("button", name="Chart").click()
    page.get_by_role("img", name=re.compile("orders, amount over hour")).wait_for()
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("SCAN shop.orders").wait_for()
    type_statement(page, "SELECT nothing FROM shop.orders")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").filter(has_text="nothing").wait_for()
    show(page, "sql")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV").click()
    saved.value.save_as(tmp_path / "result.csv")
    rows = list(csv.reader((tmp_path / "result.csv").read_text().splitlines()))
    assert rows[0] == ["hour", "orders", "amount"]
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download Parquet").click()
    saved.value.save_as(tmp_path / "result.parquet")
    assert (tmp_path / "result.parquet").read_bytes()[:4] == b"PAR1"


def test_a_statement_is_listed_and_killed(page: Any, client: Client) -> None:
    days = ", ".join(f"(SELECT 1 a UNION ALL SELECT 2) x{number}" for number in range(60))
    body = json.dumps({"sql": f"SELECT count(*) FROM {days}"})
    answers: list[Answer] = []

    def ask() -> None:
        answers.append(client.request("POST", "/api/console/query", body, user=f"ann:{PASSWORD}"))

    running = threading.Thread(target=ask)
    running.start()
    show(page, "server")
    page.get_by_role("button", name=re.compile("Kill ")).first.click()
    running.join(60)
    assert "interrupted" in answers[0].json["error"]


def test_keys_change_the_view(page: Any) -> None:
    for keys, title in (("gs", "SQL"), ("gv", "Server"), ("gl", "Loads and jobs"), ("go", "Overview")):
        page.evaluate("document.activeElement.blur()")
        for key in keys:
            page.keyboard.press(key)
        page.get_by_role("heading", name=title, exact=True).wait_for()
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()


def test_a_value_of_a_table_is_never_an_element(page: Any, client: Client) -> None:
    evil = "<img src=x onerror=alert(1)>"
    client.load("shop.clicks", f"777,{evil}\n", f"root:{PASSWORD}", label="evil")
    show(page, "sql")
    type_statement(page, "SELECT * FROM shop.clicks WHERE id = 777")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("cell", name=evil).wait_for()
