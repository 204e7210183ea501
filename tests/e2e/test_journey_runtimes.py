"""Another runtime chosen on Tune and measured; a reload keeps it; and two runtimes in one comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.wire.runtime import OWN
from tests import other_runtimes
from tests.e2e.conftest import (
    JOB_MS,
    Open,
    Site,
    button,
    finished,
    keyed,
    opened,
    reset,
    result_shown,
    run_button,
    set_number,
    started,
    visit,
)

NAME = "same"
RUNS = 200  # of each configuration: the run ends soon


@pytest.fixture
def home(home: Path) -> Path:
    """The recorded results, on a machine with a second runtime."""
    other_runtimes.add(home, NAME)
    return home


def test_a_runtime_is_chosen_and_compared_with_ortunes_own(open_browser: Open, site: Site) -> None:
    page = open_browser()
    reset(page)  # a new visitor sees the newest result with its settings
    choice = keyed(page, "knob.runtime").get_by_role("combobox")
    choice.click()
    page.get_by_role("option").filter(has_text=NAME).click()
    expect(keyed(page, "chip.runtime")).to_contain_text(NAME)
    finished(page)
    keyed(page, "group.advanced").locator("summary").click()
    set_number(page, "runs", RUNS)
    trial = started(page, run_button(page))
    result_shown(page)
    expect(keyed(page, "verdict")).to_contain_text(f"({OWN})")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_text(f"runtime {NAME}: onnxruntime").first).to_be_visible()
    assert site.store.trial(trial).spec["runtime"].startswith(f"{NAME}@sha256:")
    page.reload()
    opened(page)
    expect(keyed(page, "chip.runtime")).to_contain_text(NAME)

    visit(page, "Compare")
    page.locator(".st-key-compare-adders").get_by_role("button", name="Runtimes").click()
    asked = keyed(page, "compare.runtimes").locator(".react-aria-ComboBox input")
    for name in (OWN, NAME):
        asked.fill(name)
        asked.press("ArrowDown")
        asked.press("Enter")
        expect(keyed(page, "compare.runtimes").get_by_text(f"{name} ·")).to_be_visible()
        finished(page)
    asked.press("Tab")
    button(page, "compare.add.runtimes").click()
    expect(page.locator('[class*="st-key-compare-entry-"]').filter(has_text=f"({OWN})")).to_be_visible()
    expect(page.locator('[class*="st-key-compare-entry-"]').filter(has_text=f"({NAME})")).to_be_visible()
    page.keyboard.press("Escape")
    finished(page)
    comparison = started(page, button(page, "compare.run"))
    for name in (OWN, NAME):  # not what is seen meanwhile: so few runs may be over before the page is drawn
        expect(page.locator(".st-key-compare-table")).to_contain_text(f"({name})", timeout=JOB_MS)
    found = site.store.comparison(comparison)
    assert found.state == "COMPLETE"
    named = {one.label for one in found.contestants}
    assert {f"({OWN})", f"({NAME})"} <= {f"({label.rpartition('(')[2]}" for label in named}
