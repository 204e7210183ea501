"""Without a mouse from a slider to a file, and five browsers that look at one race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import PATIENCE_MS, named, raced, run_button, set_number, started

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]
MOST_TABS = 250


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is within `selector`."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("one => !!document.activeElement.closest(one)", selector):
            return
    raise AssertionError(f"{selector} is not reached by Tab")


def test_the_keyboard_alone_goes_from_a_slider_to_the_yaml(open_browser: Open, tmp_path: Path) -> None:
    page = open_browser()
    tab_to(page, ".st-key-tune-live")
    page.keyboard.press("Space")
    tab_to(page, ".st-key-slide-knob-intra_op_num_threads input[type=range]")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".st-key-changes")).to_contain_text("Intra-op threads: 1")
    expect(page.locator(".st-key-glimpse")).to_contain_text("Glimpse: ")
    expect(page.locator(".st-key-runbar")).to_contain_text("glimpse: ")
    before = named(page.url)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(lambda url: named(url) != before, wait_until="commit")
    raced(page)
    tab_to(page, '.st-key-pane-result a[href*="export"]')
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Export", level=1)).to_be_visible()
    tab_to(page, '[data-testid="stDownloadButton"]')
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    target = tmp_path / download.value.suggested_filename
    download.value.save_as(target)
    assert spec_from_yaml(target.read_text()).session.intra_op_num_threads == 1


def test_five_browsers_follow_one_race_to_its_verdict(open_browser: Open) -> None:
    first = open_browser()
    set_number(first, "intra_op_num_threads", 1)
    started(first, run_button(first))
    [trial] = named(first.url)["trial"]
    others = [open_browser(f"/?trial={trial}") for _ in range(4)]
    said = set()
    for page in (first, *others):
        expect(page.locator(".st-key-verdict h2")).to_be_visible(timeout=3 * PATIENCE_MS)
        said.add(page.locator(".st-key-verdict h2").inner_text())
    assert len(said) == 1
    others[0].reload()
    expect(others[0].locator(".st-key-verdict h2")).to_have_text(said.pop())
