"""From the picture to the table and back, and from the model to what ONNX Runtime makes of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import finished, visit

pytestmark = pytest.mark.e2e
JOB_MS = 120_000
FIRST_ROW_PX, ROW_PX, TICK_PX = 52, 35, 15  # of the table: a row's middle, and the box that ticks it


def chart(page: Page, side: str = "model") -> Locator:
    """The chart of this run of the page: what the run before drew elsewhere stands until this ends."""
    return page.locator(f'.st-key-graph-chart-{side}[data-stale="false"]')


def nodes(page: Page, side: str = "model") -> Locator:
    return chart(page, side).locator(".scatterlayer .points path.point")


def tick(page: Page, row: int) -> None:
    """Tick a row of the table, which is drawn on a canvas."""
    table = page.get_by_test_id("stDataFrame").last
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + TICK_PX, box["y"] + FIRST_ROW_PX + row * ROW_PX)
    finished(page)


def ticked(page: Page) -> Locator:
    """The row that is ticked, as a screen reader finds it."""
    table = page.get_by_test_id("stDataFrame").last
    return table.locator('table [role="row"][aria-selected="true"]')


def test_a_node_leads_to_its_row_and_a_row_to_its_node(page: Page) -> None:
    visit(page, "Graph")
    expect(chart(page).locator(".main-svg").first).to_be_visible()
    expect(nodes(page)).to_have_count(7)
    details = page.locator(".st-key-graph-details")

    nodes(page).first.click(force=True)  # of the first series, which is the most frequent operator
    expect(details).to_contain_text("kernel_shape = [3, 3]")
    expect(ticked(page)).to_contain_text("node_Conv_19")

    tick(page, 1)
    expect(details).not_to_contain_text("kernel_shape")
    expect(chart(page)).to_contain_text("selected (1)")
    name = details.locator("strong").first.inner_text()
    expect(ticked(page)).to_contain_text(name)

    page.get_by_role("radio", name="Time", exact=True).click()
    page.locator(".st-key-graph-profile").get_by_role("button").first.click()
    expect(chart(page)).to_contain_text("ms per run", timeout=JOB_MS)
    expect(page.locator(".st-key-graph-profile")).to_have_count(0)

    page.get_by_role("radio", name="Side by side", exact=True).click()
    page.locator(".st-key-graph-optimize").get_by_role("button").first.click()
    expect(chart(page, "after").locator(".main-svg").first).to_be_visible(timeout=JOB_MS)
    expect(chart(page, "after")).to_contain_text("does the work of several nodes")
    expect(chart(page, "after")).to_contain_text("inserted by ONNX Runtime")
    expect(chart(page, "after")).to_contain_text("selected (1)")  # what does the work of the chosen node

    nodes(page, "after").first.click(force=True)
    expect(details).to_contain_text("After optimization")
    expect(details).to_contain_text("per run")
