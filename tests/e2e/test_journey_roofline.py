"""From a profile to what binds it: the peaks are measured, the roof is drawn, an operator is found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import finished, started, visit

pytestmark = pytest.mark.e2e
PROFILED_MS = 120_000
DATA = Path(__file__).parents[1] / "data"


def show(page: Page, view: str, key: str) -> None:
    page.locator(".st-key-profile-view").get_by_role("radio", name=view).click()
    expect(page.locator(f".st-key-profile-{key} .main-svg").first).to_be_visible()


def test_a_profile_is_held_against_the_peaks_of_the_machine(page: Page) -> None:
    visit(page, "Profile")
    started(page, page.locator(".st-key-profile-run").get_by_role("button").first)
    expect(page.locator(".st-key-profile-cancel")).to_have_count(0, timeout=PROFILED_MS)
    expect(page.locator(".st-key-profile-sentence")).to_contain_text("of the time in nodes")

    show(page, "Roofline", "roofline")
    roofline = page.locator(".st-key-profile-roofline")
    expect(roofline).not_to_contain_text("peak of this machine")
    measure = page.locator(".st-key-profile-peaks").get_by_role("button", name="Measure the peaks")
    measure.click()
    expect(page.get_by_text("The roof: ", exact=False)).to_be_visible(timeout=PROFILED_MS)
    expect(roofline).to_contain_text("peak of this machine, ", timeout=PROFILED_MS)
    expect(roofline).to_contain_text("Operations per byte")
    expect(measure).to_have_count(0)

    show(page, "Timeline", "timeline")
    search = page.locator(".st-key-profile-search-timeline input")
    search.fill("conv")
    search.press("Enter")
    expect(page.get_by_text("executions found")).to_be_visible()
    expect(page.locator(".st-key-profile-timeline")).to_contain_text("not found")
    finished(page)
    page.locator(".st-key-profile-zoom-timeline label").first.click()
    finished(page)

    show(page, "Nodes", "nodes")
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    for column in ("Type", "Output shape", "Mop/run", "Op/byte", "Gop/s"):
        expect(table.locator("table")).to_contain_text(column)

    visit(page, "Machine")
    expect(page.get_by_role("button", name="Measure the peaks again")).to_be_visible()
    expect(page.get_by_text("A product of two float32 matrices", exact=False)).to_be_visible()


def test_a_profile_made_elsewhere_opens_with_its_mark(page: Page) -> None:
    visit(page, "Profile")
    finished(page)
    page.locator(".st-key-profile-bring summary").click()
    page.locator(".st-key-profile-bring input[type=file]").set_input_files(DATA / "profile_1.31.1_chain.json")
    expect(page.get_by_text("Imported: profile_1.31.1_chain.json")).to_be_visible()
    expect(page.get_by_text("No verdict rests on it", exact=False)).to_be_visible()
    page.wait_for_url(lambda url: "imported=" in url, wait_until="commit")
    finished(page)
    page.reload()
    expect(page.get_by_text("Imported: profile_1.31.1_chain.json")).to_be_visible()
    show(page, "Treemap", "treemap")
