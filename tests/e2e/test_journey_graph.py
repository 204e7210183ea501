"""From the picture to the table and back, and from the model to what ONNX Runtime makes of it."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import JOB_MS, Open, at_rest, button, finished

FIRST_ROW_PX, ROW_PX, TICK_PX = 52, 35, 15  # of the table: a row's middle, and the box that ticks it


def chart(page: Page, side: str = "model") -> Locator:
    """The chart of this run of the page: that of the run before stays visible until this ends."""
    return page.locator(f'.st-key-graph-chart-{side}[data-stale="false"]')


def nodes(page: Page, side: str = "model") -> Locator:
    return chart(page, side).locator(".scatterlayer .points path.point")


def tick(page: Page, row: int) -> None:
    """Tick a row of the table, which is drawn on a canvas."""
    table = page.get_by_test_id("stDataFrame").last
    table.scroll_into_view_if_needed()
    finished(page)
    at_rest(page, table)
    box = table.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + TICK_PX, box["y"] + FIRST_ROW_PX + row * ROW_PX)
    finished(page)


def ticked(page: Page) -> Locator:
    """The row that is ticked, as a screen reader finds it."""
    table = page.get_by_test_id("stDataFrame").last
    return table.locator('table [role="row"][aria-selected="true"]')


def test_a_node_leads_to_its_row_a_row_to_its_node_and_both_to_the_optimized_graph(look: Open) -> None:
    page = look("/graph")
    expect(nodes(page)).to_have_count(7, timeout=JOB_MS)
    details = page.locator(".st-key-graph-details")
    chosen = details.locator("strong").first

    nodes(page).first.click(force=True)  # of the first series, which is the most frequent operator
    expect(ticked(page)).to_have_count(1)
    expect(chosen).to_be_visible()
    name = chosen.inner_text()
    expect(ticked(page)).to_contain_text(name)

    tick(page, 1)
    expect(chosen).not_to_have_text(name)
    expect(ticked(page)).to_contain_text(chosen.inner_text())

    page.get_by_test_id("stMain").get_by_role("radio", name="Side by side", exact=True).click()
    button(page, "graph.optimize").click()
    expect(nodes(page, "after").first).to_be_visible(timeout=JOB_MS)
    before = chosen.inner_text()
    nodes(page, "after").first.click(force=True)
    expect(chosen).not_to_have_text(before)
