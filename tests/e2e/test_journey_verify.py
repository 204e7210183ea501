"""A recorded result downloaded as a bundle, uploaded again and verified; a reload finds the answer."""

from __future__ import annotations

import zipfile
from pathlib import Path

from playwright.sync_api import expect

from tests.e2e.conftest import JOB_MS, Open, Site, button, finished, keyed, named, recorded, saved


def test_a_result_is_bundled_downloaded_uploaded_and_verified(
    open_browser: Open, site: Site, tmp_path: Path
) -> None:
    page = open_browser(f"/export?trial={recorded(site.store).slower.id}")
    button(page, "export.bundle.make").click()
    download = button(page, "export.download_bundle")
    expect(download).to_be_visible(timeout=JOB_MS)
    path = saved(page, download, tmp_path)
    with zipfile.ZipFile(path) as archive:
        assert "config.yaml" in archive.namelist()

    page.get_by_role("tab", name="Verify").click()
    keyed(page, "verify.file").locator("input[type=file]").set_input_files(path)
    expect(page.get_by_role("button", name=f"Remove {path.name}")).to_be_visible()
    keyed(page, "verify.race").locator("label").first.click()  # the outputs alone, without a comparison
    finished(page)
    button(page, "verify.start").click()
    page.wait_for_url(lambda url: "verify" in named(url), wait_until="commit")
    for part in ("runs", "same"):
        expect(keyed(page, f"verify.{part}")).to_be_visible(timeout=JOB_MS)
    finished(page)
    said = keyed(page, "verify.same").inner_text()
    page.reload()
    expect(keyed(page, "verify.same")).to_have_text(said, use_inner_text=True)
