"""A recorded profile: its views, a search, a trace for another viewer, and an imported one."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from dashboard.charts.profile_charts import NOT_FOUND
from tests.e2e.conftest import Open, Site, button, field, finished, named, recorded, saved, until

DATA = Path(__file__).parents[1] / "data"


def see(page: Page, view: str) -> None:
    page.locator(".st-key-profile-view").get_by_role("radio", name=view).click()
    expect(page.locator(f".st-key-profile-{view.lower()} .main-svg").first).to_be_visible()
    finished(page)


def test_a_profile_is_looked_through_taken_away_and_one_from_elsewhere_brought(
    open_browser: Open, site: Site, tmp_path: Path
) -> None:
    own = recorded(site.store).profile
    page = open_browser("/profile")
    expect(page.locator(".st-key-profile-operators .main-svg").first).to_be_visible()
    table = page.get_by_test_id("stDataFrame").first
    table.scroll_into_view_if_needed()
    expect(table.locator("canvas").first).to_be_visible()
    expect(table.locator("table")).to_contain_text("Conv")
    see(page, "Timeline")
    search = field(page, "profile.search.timeline")
    search.fill("conv")
    search.press("Enter")
    timeline = page.locator(".st-key-profile-timeline")
    expect(timeline.filter(has_text=NOT_FOUND).first).to_be_visible()  # others are pale
    expect(timeline).to_have_count(1)  # what was drawn before is gone
    finished(page)
    page.locator(".st-key-profile-zoom-timeline label").first.click()
    finished(page)
    for view in ("Nodes", "Providers", "Treemap", "Roofline"):
        see(page, view)

    button(page, "profile.more").click()
    trace = saved(page, button(page, "profile.download"), tmp_path)
    events = json.loads(trace.read_text())
    assert {"model_run", "session_initialization"} <= {event["name"] for event in events}
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
    assert named(page.url)["trial"] == [own.id]

    held: list[Route] = []
    page.route("**/api/upload/**", lambda asked: held.append(asked))
    page.locator(".st-key-profile-bring input[type=file]").set_input_files(DATA / "profile_1.31.1_chain.json")
    until(page, lambda: bool(held))
    page.emulate_media(color_scheme="dark")  # for its plots the page is loaded again
    page.wait_for_timeout(1500)  # but not before the file is sent
    with page.expect_event("load"):
        held[0].continue_()
    page.wait_for_url(lambda url: "imported" in named(url), wait_until="commit")
    expect(button(page, "profile.import.remove")).to_be_visible()
    see(page, "Treemap")
    button(page, "profile.import.remove").click()
    expect(button(page, "profile.import.remove")).to_have_count(0)
    finished(page)
    assert site.store.shelf.all("profile") == []
