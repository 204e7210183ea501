"""Sliders live, by the keyboard alone: three values, their trail, Run, and the YAML of the last."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import PATIENCE_MS, finished, number, run, set_number

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]

SHOWN = re.compile(r"Glimpse: .*(so far|not known yet)")
DEFAULTS = "nothing to compare"


def slider(page: Page, name: str) -> Locator:
    """The slider of a setting, by its ORT name; it is read out by the label of its field."""
    return page.locator(f".st-key-slide-knob-{name}").get_by_role("slider")


def glimpse(page: Page) -> Locator:
    return page.locator(".st-key-glimpse")


def move(page: Page, name: str, key: str, wanted: str) -> None:
    """Press a key on a slider, and wait for the glimpse of where it stands then."""
    one = slider(page, name)
    one.focus()
    one.press(key)
    expect(number(page, name)).to_have_value(wanted)
    finished(page)
    expect(glimpse(page)).to_contain_text(SHOWN)


def test_a_slider_moved_by_the_keyboard_is_answered_run_and_exported(
    open_browser: Open, tmp_path: Path
) -> None:
    page = open_browser()
    switch = page.get_by_role("switch", name="Live").or_(page.get_by_role("checkbox", name="Live"))
    switch.first.focus()
    page.keyboard.press("Space")
    set_number(page, "intra_op_num_threads", 1)
    expect(glimpse(page)).to_contain_text(SHOWN)
    for wanted in ("2", "4", "8"):
        move(page, "batch_size", "ArrowRight", wanted)
    expect(page.locator(".st-key-glimpse-trail canvas").first).to_be_visible()
    expect(glimpse(page)).to_contain_text("Run confirms it")
    run(page)  # the live race lets it go first
    page.get_by_role("link", name="Export YAML").click()
    expect(page.get_by_role("heading", name="Export", level=1)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"Download .*\.yaml")).first.click()
    target = tmp_path / "best.yaml"
    download.value.save_as(target)
    assert spec_from_yaml(target.read_text()).workload.batch_size == 8


def test_live_off_gives_the_machine_back(open_browser: Open) -> None:
    page = open_browser()
    toggle = page.locator(".st-key-tune-live label").first
    toggle.click()
    expect(glimpse(page)).to_contain_text(DEFAULTS)
    expect(page.get_by_text("live sliders on")).to_be_visible()
    toggle.click()
    expect(glimpse(page)).to_have_count(0)
    # at once where nobody else looks on; a browser that was closed counts for a minute
    expect(page.get_by_text("Nothing is being measured")).to_be_visible(timeout=1.5 * PATIENCE_MS)


def test_on_a_narrow_screen_the_settings_are_a_drawer_and_run_is_at_the_bottom(open_browser: Open) -> None:
    page = open_browser()
    settings, result = (page.locator(f".st-key-pane-{one}") for one in ("settings", "result"))
    expect(settings).to_have_css("overflow-y", "auto")  # the style has arrived
    wide, beside = settings.bounding_box(), result.bounding_box()
    assert wide is not None
    assert beside is not None
    assert wide["x"] + wide["width"] <= beside["x"]
    assert wide["y"] + wide["height"] <= 900
    page.set_viewport_size({"width": 400, "height": 800})
    expect(settings).to_be_hidden()
    expect(result).to_be_visible()
    foot = page.locator(".st-key-foot").bounding_box()
    assert foot is not None
    assert foot["y"] + foot["height"] == pytest.approx(800, abs=1)
    page.get_by_role("button", name="Settings").click()
    set_number(page, "intra_op_num_threads", 1)
    page.get_by_role("button", name="Close").click()
    expect(settings).to_be_hidden()
    expect(page.locator(".st-key-changes")).to_contain_text("Intra-op threads: 1")
    page.locator(".st-key-run-foot button:visible").click()
    page.locator(".st-key-cancel-foot button:visible").click()
    expect(page.get_by_text("This trial was cancelled")).to_be_visible()
    box = page.evaluate("document.documentElement.scrollWidth")
    assert box <= 400  # nothing reaches beyond the screen
