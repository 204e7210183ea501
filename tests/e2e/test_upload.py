"""A wrong file ends with its error beside the upload area, on the screen, and never with "Reading…"."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.e2e.conftest import JOB_MS, Open, at_page, button, keyed


def upload(page: Page, path: Path) -> None:
    keyed(page, "models.upload").locator("input[type=file]").set_input_files(path)


def test_a_wrong_model_is_refused_beside_the_area(open_browser: Open, tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    path.write_text("This is no model.")
    page = open_browser("/models")
    at_page(page, "Models")
    button(page, "models.add.open").click()
    page.get_by_role("tab", name="Upload").click()
    area = keyed(page, "models.upload")
    upload(page, path)
    error = page.get_by_test_id("stAlert").filter(has_text="not added")
    expect(error).to_be_in_viewport(timeout=JOB_MS)
    expect(area).not_to_contain_text("Reading")
    expect(area).to_be_in_viewport()
    upload(page, path)  # once more: the area still works
    expect(error).to_be_in_viewport(timeout=JOB_MS)
    expect(area).not_to_contain_text("Reading")


def test_a_file_of_another_kind_is_refused_before_it_is_sent(look: Open, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    page = look("/accuracy")
    at_page(page, "Accuracy")
    page.locator(".st-key-dataset-upload button").first.click()
    area = keyed(page, "dataset.uploader")
    area.locator("input[type=file]").set_input_files(path)
    expect(area).to_contain_text("notes.txt is none of .npz")
    expect(area).not_to_contain_text("Reading")
