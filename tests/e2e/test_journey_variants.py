"""A chain built by hand, made into an INT8 variant, and found in the tree by everybody."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from core.run.variants import steps_of, variant_of
from dashboard.views.variants.create import DATA
from tests.e2e.conftest import JOB_MS, Open, Site, button, finished, keyed


def add_int8_static_on_the_sample(page: Page) -> None:
    """Build the chain: INT8 static, calibrated on the digits."""
    button(page, "step.add").click()
    button(page, "step.add.int8_static").click()
    page.keyboard.press("Escape")
    finished(page)  # a control that is drawn anew may lose a click
    keyed(page, "variants.calibration").get_by_role("radio", name=DATA).click()
    finished(page)
    button(page, "calibration.sample").click()
    finished(page)


def test_int8_is_made_of_the_sample_and_stands_in_the_tree(open_browser: Open, site: Site) -> None:
    before = {one.content_sha256 for one in site.store.models()}
    page = open_browser("/variants")
    expect(button(page, "variants.make")).to_be_disabled()
    add_int8_static_on_the_sample(page)
    expect(button(page, "variants.make")).to_be_enabled()
    button(page, "variants.make").click()
    expect(keyed(page, "variants.detail")).to_be_visible(timeout=JOB_MS)
    [made] = [one for one in site.store.models() if variant_of(one) and one.content_sha256 not in before]
    in_the_tree = keyed(page, f"variants.show.{made.content_sha256[:12]}")
    expect(in_the_tree).to_be_visible()
    assert [step.kind for step in steps_of(made)] == ["int8_static"]
    page.reload()  # the family is the server's, not the session's
    expect(in_the_tree).to_be_visible()
