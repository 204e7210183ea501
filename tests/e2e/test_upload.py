"""A wrong file ends with its error beside the upload area, on the screen, and never with "Reading…"."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dashboard.widgets import uploads
from tests.e2e.conftest import JOB_MS, Open, at_page, button, keyed, visit


def upload(page: Page, path: Path) -> None:
    keyed(page, "models.upload").locator("input[type=file]").set_input_files(path)


@pytest.mark.empty
def test_wrong_files_are_refused_beside_the_area_of_another_kind_before_they_are_sent(
    open_browser: Open, tmp_path: Path
) -> None:
    path, notes = tmp_path / "wrong.onnx", tmp_path / "notes.txt"
    for one in (path, notes):
        one.write_text("This is no model.")
    page = open_browser("/models")
    at_page(page, "Models")
    page.get_by_test_id("stDataFrame").first.hover()
    expect(page.get_by_test_id("stElementToolbar").first).to_have_css("opacity", "1")  # and covers no button
    button(page, "models.add.open").click()
    page.get_by_role("tab", name=uploads.TAB).click()
    area = keyed(page, "models.upload")
    error = page.get_by_role("tabpanel").get_by_test_id("stAlert")
    for _ in range(2):  # once more: the area still works
        upload(page, path)
        expect(error).to_be_in_viewport(timeout=JOB_MS)
        expect(area.locator(".drop")).to_have_attribute("aria-busy", "false")
        expect(area).to_be_in_viewport()

    visit(page, "Accuracy")
    page.locator(".st-key-dataset-upload button").first.click()
    area = keyed(page, "dataset.uploader")
    area.locator("input[type=file]").set_input_files(notes)
    expect(area).to_contain_text(notes.name)
    expect(area.locator(".drop")).not_to_have_attribute("aria-busy", "true")
