"""What was typed and not yet run outlives a reload, and a link shows it in another browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import PATIENCE_MS, run_button, visit

Open = Callable[..., Page]


def type_into(page: Page, key: str, text: str) -> Locator:
    field = page.locator(f".st-key-{key} input").first
    field.fill(text)
    field.press("Enter")
    return field


def wait_until_kept(home: Path, page: Page, batch_size: int) -> None:
    """Wait until the server has heard what was typed: a reload before that is faster than the typing."""
    for _ in range(int(PATIENCE_MS / 100)):
        name = parse_qs(urlsplit(page.url).query)["form"][0]
        values = json.loads((home / "forms" / f"{name}.json").read_text())["values"]
        if values.get("knob.batch_size") == batch_size:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"The form never held a batch size of {batch_size}.")


def limit_of(page: Page) -> Locator:
    return page.locator('[class*="st-key-scorecard-target-"][class*="-limit"] input').last


def test_settings_and_targets_outlive_a_reload_and_can_be_linked(open_browser: Open, home: Path) -> None:
    page = open_browser()
    type_into(page, "knob-batch_size", "7")
    expect(page.get_by_text(re.compile("changed from default"))).to_be_visible()
    visit(page, "Scorecard")
    if not limit_of(page).count():  # others on this server may have stated some before
        page.locator(".st-key-scorecard-add button").first.click()
    limit_of(page).fill("3")
    limit_of(page).press("Enter")
    expect(page.get_by_text("needs a unit")).to_be_visible()
    limit_of(page).fill("3 ms")
    limit_of(page).press("Enter")
    expect(page.get_by_text("needs a unit")).to_have_count(0)
    expect(page).to_have_url(re.compile("form="))

    page.reload()
    expect(limit_of(page)).to_have_value("3 ms")
    visit(page, "Tune")
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("7")

    page.locator(".st-key-draft-link button").first.click()
    link = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    type_into(page, "knob-batch_size", "9")
    wait_until_kept(home, page, 9)
    page.reload()
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("9")
    path = "/" + link.split("://")[1].partition("/")[2]
    other = open_browser(path)
    expect(other.locator(".st-key-knob-batch_size input")).to_have_value("7")
    page.go_back()  # an address from before changes nothing that was typed since
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("9")


def test_a_setting_that_nobody_touched_is_the_same_on_every_page(open_browser: Open) -> None:
    page = open_browser()
    minutes = page.locator(".st-key-protocol-wait_minutes input")
    expect(minutes).to_have_value("5")
    visit(page, "Compare")  # nothing was done before: no value has come from the browser
    expect(minutes).to_have_value("5")
    visit(page, "Variants")
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("1")
    visit(page, "Tune")
    expect(minutes).to_have_value("5")
    expect(page.locator(".st-key-knob-batch_size input")).to_have_value("1")


def test_a_number_on_the_screen_is_measured_or_refused(page: Page) -> None:
    type_into(page, "knob-intra_op_num_threads", "1000000")
    expect(page.get_by_text("must hold, but got 1000000").first).to_be_visible()
    expect(run_button(page)).to_be_disabled()
    type_into(page, "knob-intra_op_num_threads", "1")
    expect(page.get_by_text("must hold")).to_have_count(0)  # a result may have an alert of its own
    type_into(page, "knob-batch_size", "99999999")
    expect(page.get_by_text("must hold, but got 99999999").first).to_be_visible()
    expect(run_button(page)).to_be_disabled()
