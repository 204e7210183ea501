"""From the table of trials: star and label one, brush a plot, save it, put two against each other."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from core.store import Tags
from tests.e2e.conftest import (
    Open,
    Site,
    at_page,
    at_rest,
    button,
    finished,
    keyed,
    named,
    until,
)

HEAD_PX, ROW_PX = 35, 35


def table(page: Page) -> Locator:
    return page.get_by_test_id("stDataFrame").first


def tick(page: Page, row: int) -> None:
    """The table is one picture: its boxes are where the rows are."""
    finished(page)
    at_rest(page, table(page))
    box = table(page).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 18, box["y"] + HEAD_PX + ROW_PX * row + ROW_PX // 2)


def saved_as(page: Page, name: str) -> tuple[str, bytes]:
    """Name and content of what a button under the scatter saves."""
    box = page.locator(".st-key-history-scatter-0-plot")
    with page.expect_download() as download:
        box.get_by_role("button", name=name, exact=True).last.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def ticked(page: Page) -> str:
    """The id of the trial that a tick has put into the address."""
    page.wait_for_url(lambda url: "trial" in named(url), wait_until="commit")
    finished(page)
    return named(page.url)["trial"][0]


def rows(page: Page) -> int:
    """How many rows the table has, as a screen reader is told."""
    return int(table(page).locator("table").get_attribute("aria-rowcount") or 0) - 1


def test_star_label_brush_save_and_compare(open_browser: Open, site: Site) -> None:
    page = open_browser("/history")
    expect(table(page)).to_be_visible()
    keyed(page, "history.model").get_by_role("combobox").click()  # whose trials are drawn
    page.get_by_role("option", name="digits_cnn").click()
    finished(page)
    until(page, lambda: rows(page) < 17)  # those of the other model are gone
    all_rows = rows(page)
    newest = mark(page)
    until(
        page,
        lambda: (
            site.store.marks([newest]) == {newest: Tags(starred=True, labels=("ship",), note="for the demo")}
        ),
    )
    tick(page, 0)
    finished(page)
    page.locator(".st-key-history-filters button").click()
    stars = page.locator(".st-key-history-starred label").first
    stars.click()
    until(page, lambda: rows(page) == 1)
    stars.click()
    until(page, lambda: rows(page) == all_rows)
    page.keyboard.press("Escape")

    page.locator(".st-key-history-drawn summary, .st-key-history-drawn button").first.click()
    points = page.locator(".st-key-history-scatter-0 .nsewdrag.drag").first
    expect(points).to_be_visible()
    brush(page, points)
    expect(button(page, "history.let_go")).to_be_visible()
    check_saved(page)
    button(page, "history.let_go").click()
    expect(button(page, "history.let_go")).to_have_count(0)
    until(page, lambda: rows(page) == all_rows)

    tick(page, 1)
    expect(button(page, "history.reopen")).to_be_visible()
    tick(page, 2)
    page.locator('.st-key-history-actions a[href*="compare"]').first.click()
    at_page(page, "Compare")
    expect(page.locator('[class*="st-key-compare-entry-"]')).to_have_count(2)


def mark(page: Page) -> str:
    """Star the newest trial, give it a label and a note, and return its id."""
    tick(page, 0)
    newest = ticked(page)
    button(page, "history.star").click()
    finished(page)
    button(page, "history.edit").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".st-key-history-edit-labels input").fill("ship")
    page.keyboard.press("Enter")
    dialog.locator(".st-key-history-edit-note textarea").fill("for the demo")
    button(page, "history.save_marks").click()
    expect(dialog).to_have_count(0)
    return newest


def check_saved(page: Page) -> None:
    """The scatter as a drawing, as a picture and as a table."""
    name, picture = saved_as(page, "SVG")
    assert name == "ortune-p50-latency-over-time.svg"
    assert picture.startswith(b"<svg")
    assert b"p50 latency over time" in picture
    assert b"fill: rgb(255, 255, 255)" in picture[:600]  # the page's colour lies behind it
    assert saved_as(page, "PNG")[1].startswith(b"\x89PNG")
    name, content = saved_as(page, "CSV")
    assert name == "ortune-p50-latency-over-time.csv"
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(rows) > 5
    assert "p50 latency (ms)" in rows[0]


def brush(page: Page, points: Locator) -> None:
    """Drag a box over most of the plot."""
    page.locator(".st-key-history-scatter-0 .modebar-btn[data-title='Box Select']").click(force=True)
    finished(page)
    at_rest(page, points)
    box = points.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.97 * box["width"], box["y"] + 0.97 * box["height"], steps=8)
    page.mouse.up()
