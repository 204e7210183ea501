"""From the page to the operator that costs the most, and to a trace that another viewer can open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import finished, named, started, visit

pytestmark = pytest.mark.e2e
PROFILED_MS = 120_000
SHOWN = (
    "[class*=st-key-profile-shown][data-stale=false]"  # the list before it may still stand, while a run ends
)


def show(page: Page, view: str) -> None:
    page.locator(".st-key-profile-view").get_by_role("radio", name=view).click()
    expect(page.locator(f".st-key-profile-{view.lower()} .main-svg").first).to_be_visible()


def test_a_profile_shows_operators_nodes_timeline_and_gives_a_trace(page: Page, tmp_path: Path) -> None:
    visit(page, "Profile")
    started(page, page.locator(".st-key-profile-run").get_by_role("button").first)
    expect(page.locator(".st-key-profile-cancel")).to_have_count(0, timeout=PROFILED_MS)

    expect(page.locator(".st-key-profile-operators .main-svg").first).to_be_visible()
    finished(page)  # the table that was drawn while the run ended is another one by then
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    expect(table.locator("canvas").first).to_be_visible()
    expect(table.locator("table")).to_contain_text("Conv")
    expect(page.get_by_text("by the profiler", exact=False)).to_be_visible()
    expect(page.get_by_text("are the instrument's own noise")).to_be_visible()

    show(page, "Nodes")
    search = page.locator(".st-key-profile-search-nodes input")
    search.fill("conv")
    search.press("Enter")
    expect(page.get_by_text("rows; ")).to_be_visible()
    show(page, "Providers")
    expect(page.locator(".st-key-profile-providers")).to_contain_text("between the nodes")
    show(page, "Timeline")
    expect(page.locator(".st-key-profile-timeline")).to_contain_text("thread 1")

    with page.expect_download() as download:
        page.locator(".st-key-profile-download").get_by_role("button").first.click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    events = json.loads(path.read_text())
    assert path.suffix == ".json"
    assert {"model_run", "session_initialization"} <= {event["name"] for event in events}
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
    assert "Conv" in {event["args"].get("op_name") for event in events if event["cat"] == "Node"}

    assert "trial=" in page.url
    linked = page.context.new_page()
    linked.goto(page.url)
    expect(linked.get_by_text("Run, profiler on (p50)")).to_be_visible()
    show(linked, "Operators")
    expect(linked.locator(".st-key-profile-operators .main-svg").first).to_be_visible()


def test_a_second_profile_runs_and_the_first_stays_selectable(page: Page) -> None:
    visit(page, "Profile")
    run = page.locator(".st-key-profile-run").get_by_role("button").first
    for _ in range(2):
        started(page, run)
        expect(page.locator(".st-key-profile-cancel")).to_have_count(0, timeout=PROFILED_MS)
    expect(page.locator(SHOWN)).to_be_visible()
    newest = named(page.url)
    expect(page.locator(".st-key-profile-operators .main-svg").first).to_be_visible()
    finished(page)
    while named(page.url) == newest:  # a page that is drawn anew closes the list
        page.keyboard.press("Escape")
        page.locator(f"{SHOWN} input").first.click()
        page.get_by_role("option").nth(1).click()
        page.wait_for_timeout(1000)
    expect(page.locator(".st-key-profile-operators .main-svg").first).to_be_visible()
    [shown] = named(page.url)["trial"]
    assert len(shown) == 16  # an id, nothing else
