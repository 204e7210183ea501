"""Small things that only a browser shows: whole numbers that were not, and texts that have room."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.conftest import Open, at_page, number


def test_a_whole_number_that_was_none_is_told_and_a_hash_has_room_beside_free_space(look: Open) -> None:
    page = look()
    at_page(page, "Tune")
    field = number(page, "batch_size")
    field.fill("1.5")
    field.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="1.5")).to_be_visible()
    expect(field).to_have_value("1")
    field.fill("4")
    field.press("Enter")
    expect(field).to_have_value("4")

    page = look("models")
    at_page(page, "Models")
    cell = page.get_by_test_id("stTable").locator("td p", has_text=re.compile("[0-9a-f]{64}"))
    expect(cell).to_be_visible()
    assert cell.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
