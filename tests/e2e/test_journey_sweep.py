"""A recorded sweep: a latency limit typed and moved, a point clicked, numbers downloaded, sent to Tune."""

from __future__ import annotations

import csv
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Open, at_page, at_rest, button, field, finished, number, saved, type_into

BATCHES = ["1", "2", "4", "8", "16", "32"]


def point_at(page: Page, point: Locator) -> None:
    """Click where a point is drawn; Plotly's own layer above it takes the click."""
    finished(page)
    point.scroll_into_view_if_needed()
    at_rest(page, point)
    box = point.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    expect(page.locator(".st-key-sweep-latency .hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(x, y)


def test_a_sweep_gives_its_best_point_under_a_line_its_numbers_and_settings_for_tune(
    look: Open, tmp_path: Path
) -> None:
    page = look("/curves")  # the old address
    line = field(page, "sweep.line.number")
    curves = page.locator(".st-key-sweep-latency")
    expect(curves.locator(".main-svg").first).to_be_visible()
    type_into(page, "sweep.line.number", "100000")
    expect(curves.filter(has_text="100,000 ms").first).to_be_visible()
    type_into(page, "sweep.line.number", "0.000001")
    expect(curves.filter(has_text="0.000001 ms").first).to_be_visible()
    expect(curves).to_have_count(1)  # what was drawn before is gone

    point_at(page, curves.locator(".scatterlayer .points path").last)
    expect(button(page, "sweep.use")).to_be_enabled()
    button(page, "sweep.line_here").click()
    expect(line).not_to_have_value("1e-06")
    finished(page)

    written = saved(page, button(page, "sweep.csv"), tmp_path)
    rows = list(csv.DictReader(written.read_text().splitlines()))
    assert [row["batch_size"] for row in rows] == BATCHES
    assert all(float(row["p50_ms"]) > 0 and float(row["rows_per_s"]) > 0 for row in rows)

    linked = page.context.new_page()
    linked.goto(page.url)
    expect(linked.locator(".st-key-sweep-latency .main-svg").first).to_be_visible()
    expect(field(linked, "sweep.values.batch_size")).to_have_value(", ".join(BATCHES))

    button(page, "sweep.use").click()
    at_page(page, "Tune")
    expect(number(page, "batch_size")).to_have_value("32")
