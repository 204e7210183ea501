"""A result taken along as a bundle and verified: in the browser, after a reload, and on the command line."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.command_line import CommandLine
from tests.e2e.conftest import RACE_MS, run, set_number

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]


def test_a_result_is_bundled_and_verified(
    open_browser: Open, tmp_path: Path, acquainted_line: CommandLine
) -> None:
    page = open_browser()
    set_number(page, "intra_op_num_threads", 1)
    run(page)
    page.get_by_role("link", name="Export YAML").click()
    expect(page.get_by_role("heading", name="Export", level=1)).to_be_visible()
    page.get_by_role("button", name="Make the bundle").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"Download .*\.zip")).click(timeout=RACE_MS)
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    with zipfile.ZipFile(path) as archive:
        assert "config.yaml" in archive.namelist()

    page.get_by_role("tab", name="Verify").click()
    expect(page.get_by_text("Nothing was verified yet")).to_be_visible()
    page.locator(".st-key-verify-file input[type=file]").set_input_files(path)
    expect(page.get_by_role("button", name=f"Remove {path.name}")).to_be_visible()
    page.get_by_role("button", name="Verify", exact=True).click()
    answer = page.get_by_role("heading", name=re.compile(rf"{path.name}: it "))
    expect(answer).to_be_visible(timeout=RACE_MS)
    expect(page.locator(".st-key-verify-runs")).to_contain_text("yes")
    expect(page.locator(".st-key-verify-same")).to_contain_text("yes")
    expect(page.locator(".st-key-verify-fast")).to_contain_text(re.compile("HOLDS|DIFFERS|UNDECIDED"))
    page.reload()
    expect(answer).to_be_visible()
    expect(page.locator(".st-key-verify-same")).to_contain_text("yes")

    done = acquainted_line.run_alone("verify", str(path), "--no-measure", "--json", "--quiet")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["runs"]["state"], found["same"]["state"], found["differences"]) == ("YES", "YES", [])


@pytest.fixture
def acquainted_line(tmp_path: Path) -> CommandLine:
    """A command line with nothing in its store: somebody else, to whom the bundle was sent."""
    return CommandLine(tmp_path)
