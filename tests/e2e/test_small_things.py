"""Small things that only a browser shows: whole numbers that were not, and texts that have room."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.conftest import Open, at_page


def test_a_whole_number_that_was_none_is_told_and_a_hash_has_room_beside_free_space(look: Open) -> None:
    page = look()
    at_page(page, "Tune")
    field = page.get_by_role("spinbutton", name="Batch size, exactly")
    field.fill("1.5")
    field.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="Whole numbers only: 1.5 became 1.")).to_be_visible()
    expect(field).to_have_value("1")
    field.fill("4")
    field.press("Enter")
    expect(field).to_have_value("4")

    page = look("models")
    at_page(page, "Models")
    box = page.locator('[data-testid="stDataFrame"]').first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 16, box["y"] + 50)  # the first row's tick
    cell = page.locator('[data-testid="stTable"] tr', has_text="Sha256").locator("td p")
    expect(cell).to_be_visible()
    assert cell.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
