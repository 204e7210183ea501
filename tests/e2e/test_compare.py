"""Races in a browser: three to their table, a reload in the middle, and a second visitor who waits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from core.store import Store
from tests.e2e.conftest import started, visit

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]
RACED_MS = (
    180_000  # three workers, their rounds and what follows them, on a machine that does other things too
)


def race_button(page: Page) -> Locator:
    return page.locator(".st-key-compare-run button").first


def add_preset(page: Page, name: str, count: int) -> None:
    """Add a preset to the list, which has `count` configurations then."""
    page.get_by_role("button", name="Presets").first.click()
    page.get_by_role("button", name=name).first.click()
    expect(race_button(page)).to_contain_text(f"Race {count} configurations")
    page.keyboard.press("Escape")


def limit_to(page: Page, seconds: int) -> None:
    field = page.locator(".st-key-compare-budget input")
    field.fill(str(seconds))
    field.press("Enter")
    expect(page.get_by_text(f"at most {seconds} s of rounds")).to_be_visible()


def begin(page: Page) -> str:
    """Press Race and return the id that stands in the address from now on."""
    before = parse_qs(urlsplit(page.url).query).get("comparison", ["none"])[0]  # the newest opens by itself
    started(page, race_button(page))
    expect(page).to_have_url(re.compile(f"comparison=(?!{before})"))
    return parse_qs(urlsplit(page.url).query)["comparison"][0]


def is_running(page: Page) -> None:
    expect(page.locator(".st-key-compare-live")).to_contain_text("so far", timeout=RACED_MS)


def test_a_race_of_three_to_its_table(open_browser: Open, home: Path) -> None:
    page = open_browser()
    visit(page, "Compare")
    expect(race_button(page)).to_be_disabled()
    add_preset(page, "Mobile / edge", 2)
    add_preset(page, "Latency on CPU", 3)
    limit_to(page, 6)
    race = begin(page)
    expect(race_button(page)).to_be_disabled()
    expect(page.locator(".st-key-compare-live canvas").first).to_be_visible(timeout=RACED_MS)
    expect(page.locator(".st-key-compare-table")).to_be_visible(timeout=RACED_MS)
    expect(page.locator(".st-key-compare-live")).to_have_count(0)

    stored = Store(home / "ortune.db").comparison(race)
    assert (stored.state, stored.error) == ("COMPLETE", None)
    assert stored.result is not None
    assert len(stored.contestants) == 3
    table = page.locator(".st-key-compare-table")
    for one in stored.contestants:
        expect(table).to_contain_text(one.label)
    expect(table).to_contain_text("baseline")
    grade = stored.result["grade"]
    expect(page.get_by_text(re.compile(f"Grade {grade}: ")).first).to_be_visible()
    expect(page.locator(".st-key-compare-forest .main-svg").first).to_be_visible()
    expect(page.locator(".st-key-compare-timeline .main-svg").first).to_be_visible()
    page.get_by_role("tab", name="Distribution").click()
    expect(page.locator(".st-key-compare-ecdf .main-svg").first).to_be_visible()
    expect(page.locator("[class*=st-key-compare-past-]")).to_be_visible()

    other = open_browser(f"/compare?comparison={race}", scheme="dark")
    expect(other.locator(".st-key-compare-table")).to_be_visible()
    expect(race_button(other)).to_contain_text("Race 3 configurations")  # its list came with the link


def test_a_reload_in_the_middle_of_a_race_finds_it_again(open_browser: Open, home: Path) -> None:
    page = open_browser()
    visit(page, "Compare")
    add_preset(page, "Mobile / edge", 2)
    page.locator(".st-key-compare-precision").get_by_text("publish").click()
    expect(page.get_by_text("at most 600 s")).to_be_visible()
    race = begin(page)
    is_running(page)
    page.reload()
    is_running(page)
    assert race in page.url
    visit(page, "History")
    visit(page, "Compare")
    is_running(page)
    page.locator(".st-key-compare-cancel button").first.click()
    expect(page.get_by_text("This race was cancelled")).to_be_visible()
    assert Store(home / "ortune.db").comparison(race).state == "CANCELLED"


def test_a_second_browser_waits_and_sees_its_place(open_browser: Open) -> None:
    first, second = open_browser(), open_browser()
    for page in (first, second):
        visit(page, "Compare")
        add_preset(page, "Mobile / edge", 2)
    first.locator(".st-key-compare-precision").get_by_text("publish").click()
    expect(first.get_by_text("at most 600 s")).to_be_visible()
    begin(first)
    is_running(first)
    begin(second)
    live = second.locator(".st-key-compare-live")
    expect(live).to_contain_text("has the machine; this race is next")
    expect(second.get_by_test_id("stSidebar")).to_contain_text("race of 2 configurations")
    second.locator(".st-key-compare-cancel button").first.click()
    expect(second.get_by_text("This race was cancelled")).to_be_visible()
    first.locator(".st-key-compare-cancel button").first.click()
    expect(first.get_by_text("This race was cancelled")).to_be_visible()
