"""What was typed and not yet run: the same on every page, refused at once, kept over a reload, and linked."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import (
    Open,
    Site,
    button,
    field,
    finished,
    number,
    reset,
    run_button,
    set_number,
    type_into,
    until,
    visit,
)
from tests.e2e.test_journey_scorecard import lines, open_targets, unfold


def is_kept(home: Path, page: Page, batch_size: int) -> bool:
    """Whether the server has heard what was typed: a reload before that is faster than the typing."""
    name = parse_qs(urlsplit(page.url).query).get("form", [""])[0]
    form = home / "forms" / f"{name}.json"
    return form.exists() and json.loads(form.read_text())["values"].get("knob.batch_size") == batch_size


def limit_of(page: Page) -> Locator:
    return page.locator('[class*="st-key-scorecard-target-"][class*="-limit"] input').last


def test_what_is_typed_outlives_a_reload_and_can_be_linked(open_browser: Open, site: Site) -> None:
    page = open_browser("/variants")
    minutes = field(page, "protocol.wait_minutes")
    expect(number(page, "batch_size")).to_have_value("1")  # nothing was typed: no value came from the browser
    visit(page, "Compare")
    expect(minutes).to_have_value("5")
    visit(page, "Tune")
    expect(minutes).to_have_value("5")
    reset(page)  # of the newest result, which came with its settings
    expect(number(page, "batch_size")).to_have_value("1")

    type_into(page, "knob-batch_size", "99999999")
    expect(run_button(page)).to_be_disabled()
    set_number(page, "batch_size", 7)
    expect(run_button(page)).to_be_enabled()

    visit(page, "Scorecard")
    open_targets(page)
    before = lines(page).count()
    button(page, "scorecard.add").click()
    expect(lines(page)).to_have_count(before + 1)
    limit_of(page).fill("3 ms")
    limit_of(page).press("Enter")
    finished(page)
    visit(page, "Tune")
    until(page, lambda: is_kept(site.home, page, 7))
    page.reload()
    expect(number(page, "batch_size")).to_have_value("7")

    button(page, "draft.link").click()
    link = page.get_by_role("dialog").locator("code").inner_text()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    set_number(page, "batch_size", 9)
    until(page, lambda: is_kept(site.home, page, 9))
    page.reload()
    expect(number(page, "batch_size")).to_have_value("9")
    visit(page, "Scorecard")
    if not limit_of(page).count():
        unfold(page, "what")
    expect(limit_of(page)).to_have_value("3 ms")
    other = open_browser("/" + link.split("://")[1].partition("/")[2])
    expect(number(other, "batch_size")).to_have_value("7")
