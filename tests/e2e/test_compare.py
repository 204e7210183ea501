"""A comparison from its list to the rounds, found again after a reload, and cancelled."""

from __future__ import annotations

import contextlib

from playwright.sync_api import Page, TimeoutError, expect

from tests.e2e.conftest import JOB_MS, Open, Site, button, finished, recorded, started, visit

MENU_TRIES, MENU_MS = 6, 15_000


def entries(page: Page) -> int:
    return page.locator('[class*="st-key-compare-entry-"]').count()


def add_preset(page: Page, name: str) -> None:
    """Add a preset to the list."""
    before, menu = entries(page), button(page, "compare.add.presets")
    preset = button(page, f"compare.add.preset.{name}")
    for _ in range(MENU_TRIES):  # a page that is drawn anew closes a menu that was just opened
        if not preset.is_visible():
            menu.click()
        with contextlib.suppress(TimeoutError):
            preset.click(timeout=MENU_MS)
            break
    expect(page.locator('[class*="st-key-compare-entry-"]')).to_have_count(before + 1)
    page.keyboard.press("Escape")
    finished(page)


def is_running(page: Page) -> None:
    expect(page.locator(".st-key-compare-live [data-ortune=picture]").first).to_be_visible(timeout=JOB_MS)


def test_a_comparison_is_found_again_and_cancelled_and_a_finished_one_opens_by_its_link(
    open_browser: Open, site: Site
) -> None:
    done = recorded(site.store).comparison
    page = open_browser(f"/compare?comparison={done.id}", scheme="dark")
    table = page.locator(".st-key-compare-table")
    for one in done.contestants:
        expect(table).to_contain_text(one.label)
    expect(page.locator(".st-key-compare-forest .main-svg").first).to_be_visible()

    page = open_browser("/compare")
    page.locator(".st-key-compare-more button").first.click()
    button(page, "compare.close").click()
    expect(page.locator(".st-key-compare-race")).to_have_count(0)
    finished(page)
    add_preset(page, "edge")
    add_preset(page, "cpu-latency")
    page.locator(".st-key-compare-precision").get_by_role("radio", name="publish").click()
    finished(page)
    comparison = started(page, button(page, "compare.run"))
    is_running(page)
    expect(button(page, "compare.run")).to_be_disabled()
    page.reload()
    is_running(page)
    assert comparison in page.url
    visit(page, "History")
    visit(page, "Compare")
    is_running(page)
    button(page, "compare.cancel").click()
    expect(page.locator(".st-key-compare-live [data-ortune=picture]")).to_have_count(0)
    finished(page)
    stored = site.store.comparison(comparison)
    assert (stored.state, len(stored.contestants)) == ("CANCELLED", entries(page))
