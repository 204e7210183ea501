"""From the table of trials: star and label one, put two against each other, brush a plot, and save it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from core.store import Marks, Store
from core.store.library import import_file
from tests.e2e.conftest import PATIENCE_MS, POLICY, ROOT, finished, serving
from tests.views import invented

TRIALS = 6
HEAD_PX, ROW_PX = 35, 35


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Six trials of a sample model, one of which failed; never run."""
    made = Store(tmp_path_factory.mktemp("history") / "ortune.db")
    path = ROOT / "sample_models" / "digits_cnn.onnx"
    record = import_file(made, path, name="digits_cnn", source="sample")
    for number in range(TRIALS - 1):
        invented.put_run(
            made,
            record,
            fingerprint="f",
            intra_op_num_threads=1 + number,
            latency_s=0.001 * (1 + number),
            created_at=1_790_000_000.0 + 3600 * number,
        )
    spec = invented.spec_for(record, batch_size=2)
    invented.put_failed(made, record, spec, message="Out of memory.", created_at=1_790_100_000.0)
    return made


@pytest.fixture
def page(browser: Browser, store: Store) -> Iterator[Page]:
    """The History page of a server of its own."""
    with serving(store.folder) as (url, _):
        context = browser.new_context(viewport={"width": 1440, "height": 1400}, accept_downloads=True)
        context.set_default_timeout(PATIENCE_MS)
        refused: list[str] = []
        opened = context.new_page()
        opened.on("console", lambda said: refused.append(said.text) if POLICY in said.text else None)
        opened.goto(f"{url}/history")
        expect(table(opened)).to_be_visible()
        finished(opened)
        yield opened
        assert opened.get_by_test_id("stException").count() == 0
        context.close()
        assert not refused
    assert "Traceback" not in (store.folder / "server.log").read_text()


def table(page: Page) -> Locator:
    return page.get_by_test_id("stDataFrame").first


def tick(page: Page, row: int) -> None:
    """The table is one picture: its boxes are where the rows are."""
    box = table(page).bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 18, box["y"] + HEAD_PX + ROW_PX * row + ROW_PX // 2)


def button(page: Page, key: str) -> Locator:
    return page.locator(f".st-key-{key} button").first


def saved(page: Page, name: str) -> tuple[str, bytes]:
    """Name and content of what a button under the scatter saves."""
    box = page.locator(".st-key-history-scatter-0-plot")
    with page.expect_download() as download:
        box.get_by_role("button", name=name, exact=True).last.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_star_label_compare_brush_and_save(page: Page, store: Store) -> None:
    newest, second = (one.id for one in store.trials(limit=2))
    mark(page)
    assert store.marks([newest]) == {newest: Marks(starred=True, labels=("ship",), note="for the demo")}
    page.reload()  # what is marked stays marked
    finished(page)
    expect(page.get_by_text(f"{TRIALS} trials, newest first")).to_be_visible()
    page.get_by_text("Stars only").click()
    expect(page.get_by_text("1 trial, newest first")).to_be_visible()
    page.get_by_text("Stars only").click()
    expect(page.get_by_text(f"{TRIALS} trials, newest first")).to_be_visible()

    page.get_by_text("Plots of all trials of a model").click()
    points = page.locator(".st-key-history-scatter-0 .nsewdrag.drag").first
    expect(points).to_be_visible()
    brush(page, points)
    expect(page.get_by_text(re.compile(r"[2-5] trials, brushed in the plot"))).to_be_visible()
    check_saved(page)
    button(page, "history-let_go").click()
    expect(page.get_by_text(f"{TRIALS} trials, newest first")).to_be_visible()

    tick(page, 1)
    expect(button(page, "history-reopen")).to_be_visible()
    tick(page, 2)
    page.locator(".st-key-history-actions").get_by_role("link", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare", level=1)).to_be_visible()
    expect(page.get_by_text("The list: 2 configurations")).to_be_visible()
    expect(page.get_by_text(f"trial {second[:8]}").first).to_be_visible()


def mark(page: Page) -> None:
    """Star the newest trial, and give it a label and a note."""
    tick(page, 0)
    button(page, "history-star").click()
    expect(button(page, "history-star")).to_contain_text("Unstar")
    button(page, "history-edit").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".st-key-history-edit-labels input").fill("ship")
    page.keyboard.press("Enter")
    dialog.locator(".st-key-history-edit-note textarea").fill("for the demo")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)


def check_saved(page: Page) -> None:
    """The scatter as a drawing, as a picture and as a table."""
    name, picture = saved(page, "SVG")
    assert name == "ortune-p50-latency-over-time.svg"
    assert picture.startswith(b"<svg")
    assert b"p50 latency over time" in picture
    assert b"fill: rgb(255, 255, 255)" in picture[:600]  # the page's colour lies behind it
    assert saved(page, "PNG")[1].startswith(b"\x89PNG")
    name, content = saved(page, "CSV")
    assert name == "ortune-p50-latency-over-time.csv"
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(rows) == TRIALS
    assert {row["series"] for row in rows} == {"complete", "failed or cancelled"}
    assert "p50 latency (ms)" in rows[0]


def brush(page: Page, points: Locator) -> None:
    """Drag a box over most of the plot."""
    page.locator(".st-key-history-scatter-0 .modebar-btn[data-title='Box Select']").click(force=True)
    box = points.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.97 * box["width"], box["y"] + 0.97 * box["height"], steps=8)
    page.mouse.up()
