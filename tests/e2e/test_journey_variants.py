"""From a model to its INT8 variant, its verdict, the operators that cost accuracy, and the next variant."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from core.run.variants import steps_of, variant_of
from core.store import Store
from tests.e2e.conftest import visit

Open = Callable[..., Page]
MADE_MS = 180_000  # a few worker starts on a machine that does other things too
RACED_MS = 240_000


def keyed(page: Page, key: str) -> Locator:
    """An element by its key, which Streamlit writes into its class."""
    return page.locator(f".st-key-{key.replace('.', '-')}").first


def button(page: Page, key: str) -> Locator:
    return keyed(page, key).locator("button").first


def add_int8_static_on_the_sample(page: Page) -> None:
    """Build the chain: INT8 static, calibrated on the digits."""
    button(page, "step.add").click()
    button(page, "step.add.int8_static").click()
    page.keyboard.press("Escape")
    keyed(page, "variants.calibration").get_by_text("My data").click()
    button(page, "calibration.sample").click()
    expect(page.get_by_text("but not the accuracy")).to_have_count(0)


def race_the_family(page: Page) -> None:
    """Race on Compare to the end and come back."""
    button(page, "variants.race").click()
    button(page, "variants.race.start").click()
    expect(page).to_have_url(re.compile("comparison="))
    expect(keyed(page, "compare.race")).to_be_visible()
    expect(keyed(page, "compare.again")).to_be_visible(timeout=RACED_MS)  # it is over
    visit(page, "Variants")


def shows(tree: Locator) -> Locator:
    """The buttons of the tree, one for each variant."""
    return tree.get_by_role("button", name=re.compile("^Show"))


def test_int8_its_verdict_and_the_next_variant_from_the_error_curve(open_browser: Open, home: Path) -> None:
    page = open_browser()
    visit(page, "Variants")
    expect(page.get_by_text("No variant of digits_cnn yet")).to_be_visible()
    expect(button(page, "variants.make")).to_be_disabled()
    add_int8_static_on_the_sample(page)
    make = button(page, "variants.make")
    expect(make).to_be_enabled()
    make.click()
    detail, tree = keyed(page, "variants.detail"), keyed(page, "variants.tree")
    expect(detail).to_contain_text("Largest error", timeout=MADE_MS)
    expect(tree).to_contain_text("INT8")
    expect(tree).to_contain_text("not raced yet")

    race_the_family(page)
    expect(tree).to_contain_text(re.compile("faster|slower|no difference|undecided|rejected"))
    expect(tree).not_to_contain_text("not raced yet")

    keyed(page, "variants.view").get_by_text("Where the error comes from").click()
    button(page, "variants.errors.run").click()
    expect(keyed(page, "variants.errors.bars")).to_be_visible(timeout=MADE_MS)
    expect(keyed(page, "variants.errors.curve")).to_be_visible()
    following = button(page, "variants.errors.next")
    expect(following).to_be_enabled()
    expect(following).to_contain_text(re.compile(r"Make the next variant with [1-9]\d* in float"))
    following.click()
    expect(shows(tree)).to_have_count(2, timeout=MADE_MS)
    expect(tree).to_contain_text("exclude")

    made = [one for one in Store(home / "ortune.db").models() if variant_of(one)]
    assert sorted(bool(steps_of(one)[-1].options["exclude_nodes"]) for one in made) == [False, True]
    page.reload()  # the family is the server's, not the session's
    expect(shows(tree)).to_have_count(2)
