"""A field of whole numbers says what it made of another number."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.conftest import Open, at_page


def test_a_field_of_whole_numbers_says_what_it_made_of_one_and_a_half(look: Open) -> None:
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
