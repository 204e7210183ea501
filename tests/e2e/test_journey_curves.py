"""From the page to the sweet spot: a sweep over the batch size, a latency line, the best point named."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from core.store import Store
from tests.e2e.conftest import visit

pytestmark = pytest.mark.e2e
BUDGET_S = "8"  # starting alone takes four on a machine that does other things as well
MEASURED_MS = 180_000  # three points on a machine that does other things as well


def type_into(page: Page, key: str, text: str) -> None:
    field = page.locator(f".st-key-{key} input")
    field.fill(text)
    field.press("Enter")


def click_point(page: Page, point: Locator) -> None:
    """Click where a point is drawn; Plotly's own layer above it takes the click."""
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    expect(page.locator(".st-key-curves-latency .hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(x, y)


def shows_line(page: Page, text: str) -> None:
    """A chart that changed is drawn anew beside the old one for a moment."""
    expect(page.locator(".st-key-curves-latency").filter(has_text=text).first).to_be_visible()
    expect(page.locator(".st-key-curves-latency")).to_have_count(1)


def measure(page: Page, values: str, count: int) -> Locator:
    """Start a sweep over these batch sizes, with a small budget, and return its button."""
    page.locator(".st-key-knob-budget_s input").fill(BUDGET_S)
    page.locator(".st-key-knob-budget_s input").press("Enter")
    visit(page, "Curves")
    type_into(page, "curves-values-batch_size", values)
    return start(page, count)


def start(page: Page, count: int) -> Locator:
    """Start the sweep that the page asks for, and return its button."""
    run = page.locator(".st-key-curves-run").get_by_role("button").first
    expect(run).to_contain_text(f"Measure {count} point")
    run.click()
    expect(page).to_have_url(re.compile("study="))
    return run


def until_done(page: Page, home: Path, chart: str = "latency") -> None:
    """Wait for the race; then let it count, whatever else this machine did meanwhile."""
    drawn = page.locator(f".st-key-curves-{chart} .main-svg").first
    expect(drawn).to_be_visible(timeout=MEASURED_MS)
    expect(page.locator(".st-key-curves-cancel")).to_have_count(0)
    store = Store(home / "ortune.db")
    (race,) = store.comparisons(study=parse_qs(urlsplit(page.url).query)["study"][0])
    assert (race.state, race.error) == ("COMPLETE", None)
    store.update_comparison(race.id, result={**(race.result or {}), "grade": "B"})
    for trial in store.trials_of(race.id):
        full = store.trial(trial.id)
        store.update_trial(trial.id, result={**(full.result or {}), "grade": "B"})
    page.reload()
    expect(drawn).to_be_visible()


def test_a_sweep_shows_its_best_point_under_a_line_and_can_be_linked(
    page: Page, home: Path, tmp_path: Path
) -> None:
    visit(page, "Curves")
    expect(page.locator(".st-key-curves-values-batch_size input")).to_have_value("1, 2, 4, 8, 16, 32")
    expect(page.get_by_text("No points yet")).to_be_visible()
    visit(page, "Tune")
    run = measure(page, "5, 21, 37", 3)
    expect(page.locator(".st-key-curves-cancel button").first).to_be_visible()
    expect(run).to_be_disabled()
    expect(page.get_by_text("Points appear above while they are measured")).to_be_visible()
    until_done(page, home)
    expect(run).to_contain_text("All points are measured")
    expect(page.locator(".st-key-curves-throughput .main-svg").first).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+ rounds of all points"))).to_be_visible()

    type_into(page, "curves-line-number", "100000")
    verdict = page.get_by_test_id("stAlert").filter(has_text="Best under the line")
    expect(verdict).to_contain_text(re.compile(r"batch (5|21|37): [\d,.]+ rows/s \(.*\) at p\d\d [\d,.]+ ms"))
    shows_line(page, "latency line 100,000 ms")
    type_into(page, "curves-line-number", "0.000001")
    expect(page.get_by_text("No point has a p")).to_be_visible()

    shows_line(page, "latency line 0.000001 ms")
    click_point(page, page.locator(".st-key-curves-latency .scatterlayer .points path").first)
    expect(page.locator(".st-key-curves-use")).to_contain_text(re.compile("Use batch (5|21|37) in Tune"))
    page.locator(".st-key-curves-line_here").get_by_role("button").first.click()
    expect(page.get_by_test_id("stAlert").filter(has_text="Best under the line")).to_be_visible()
    expect(page.locator(".st-key-curves-line-number input")).not_to_have_value("1e-06")

    with page.expect_download() as download:
        page.locator(".st-key-curves-csv").get_by_role("button").first.click()
    path = tmp_path / "curve.csv"
    download.value.save_as(path)
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["batch_size"] for row in rows] == ["5", "21", "37"]
    assert all(float(row["p50_ms"]) > 0 and float(row["rows_per_s"]) > 0 for row in rows)
    assert all(row["against_default"] for row in rows)

    assert "study=" in page.url
    linked = page.context.new_page()
    linked.goto(page.url)
    values = linked.locator(".st-key-curves-values-batch_size input")
    expect(values).to_have_value("5, 21, 37")
    expect(linked.locator(".st-key-curves-run")).to_contain_text("All points are measured")


def test_a_sweep_can_be_cancelled_and_started_again(page: Page, home: Path) -> None:
    run = measure(page, "6, 512, 1024, 2048, 4096", 5)
    live = page.locator(".st-key-curves-live")
    expect(live).to_contain_text("so far", timeout=MEASURED_MS)
    page.locator(".st-key-curves-cancel button").first.click()
    expect(run).to_be_enabled()
    expect(run).to_contain_text("Measure 5 points")
    (race,) = Store(home / "ortune.db").comparisons(study=parse_qs(urlsplit(page.url).query)["study"][0])
    assert race.state == "CANCELLED"


def test_the_best_point_is_taken_to_tune(page: Page, home: Path) -> None:
    measure(page, "7", 1)
    until_done(page, home)
    type_into(page, "curves-line-number", "100000")
    use = page.locator(".st-key-curves-use").get_by_role("button").first
    expect(use).to_contain_text("Use batch 7 in Tune")
    use.click()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("7")


def choose(page: Page, key: str, label: str) -> None:
    page.locator(f".st-key-{key} input").first.click()
    page.get_by_role("option", name=label, exact=True).click()


def test_a_cell_of_a_heat_map_is_taken_to_tune(page: Page, home: Path) -> None:
    visit(page, "Tune")
    page.locator(".st-key-knob-budget_s input").fill(BUDGET_S)
    page.locator(".st-key-knob-budget_s input").press("Enter")
    visit(page, "Curves")
    choose(page, "curves-axis", "Intra-op threads")
    type_into(page, "curves-values-intra_op_num_threads", "1, 2")
    choose(page, "curves-second", "Batch size")
    type_into(page, "curves-values-batch_size", "3, 11")
    start(page, 4)
    until_done(page, home, "plane")
    expect(page.locator(".st-key-curves-plane")).to_contain_text("Intra-op threads")
    cells = page.locator(".st-key-curves-plane .scatterlayer .trace:last-child .points path")
    expect(cells).to_have_count(4)
    cells.nth(3).scroll_into_view_if_needed()
    box = cells.nth(3).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(".st-key-curves-plane .hoverlayer .hovertext").first).to_contain_text(
        "threads 2, batch 11"
    )
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    use = page.locator(".st-key-curves-use").get_by_role("button").first
    expect(use).to_contain_text("Use threads 2, batch 11 in Tune")
    expect(page.locator(".st-key-curves-details")).to_contain_text("rows/s")
    use.click()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("11")
    expect(page.locator(".st-key-knob-intra_op_num_threads input").first).to_have_value("2")
