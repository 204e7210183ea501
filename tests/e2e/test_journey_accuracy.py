"""From labelled data to a verdict, in a browser: evaluate, look at classes, move the threshold, compare."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import PATIENCE_MS, ROOT, serving

EVALUATED_MS = 180_000
MADE_S = 300


@pytest.fixture
def home_with_variant(tmp_path: Path) -> Path:
    """A home whose library has the sample and a dynamic INT8 variant of it."""
    environment = {**os.environ, "ORTUNE_HOME": str(tmp_path), "ORTUNE_QUEUE": str(tmp_path / "queue")}
    command = [
        sys.executable,
        "-m",
        "core",
        "transform",
        "digits_cnn",
        "--int8-dynamic",
        "--name",
        "digits-int8",
    ]
    made = subprocess.run(
        [*command, "--name", "digits-int8"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MADE_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return tmp_path


def evaluate(page: Page) -> None:
    expect(page.get_by_role("heading", name="Accuracy", level=1)).to_be_visible()
    expect(page.locator(".st-key-accuracy-chosen")).to_contain_text("digits-int8 (int8)")
    page.locator(".st-key-dataset-sample button").first.click()
    button = page.locator(".st-key-accuracy-run button").first
    expect(button).to_be_enabled()
    button.click()
    cards = page.locator(".st-key-accuracy-cards")
    expect(cards).to_contain_text("digits-int8 (int8)", timeout=EVALUATED_MS)
    expect(cards).to_contain_text("of 360 rows right")
    expect(page.locator(".st-key-accuracy-confusion .main-svg").first).to_be_visible()


def move_threshold(page: Page, target: Path) -> None:
    """Choose a class, move the threshold from 0.5 to 0.6, and download what was chosen."""
    page.locator(".st-key-accuracy-view").get_by_text("Threshold").click()
    expect(page.locator(".st-key-accuracy-detail")).to_contain_text("Choose the class that matters")
    page.locator(".st-key-dataset-positive_class").get_by_role("combobox").click()
    page.get_by_role("option", name="8", exact=True).click()
    curves = page.locator(".st-key-accuracy-tradeoff").first  # while it is drawn anew, old ones stay
    expect(curves).to_contain_text("threshold 0.5")
    expect(page.locator(".st-key-accuracy-decided")).to_contain_text("Sensitivity")
    slider = page.locator(".st-key-dataset-threshold input[type=range]")
    slider.focus()
    for _ in range(20):  # steps of 0.005
        slider.press("ArrowRight")
    expect(curves).to_contain_text("threshold 0.6")
    expect(page.locator(".st-key-accuracy-yaml button").first).to_be_enabled()
    with page.expect_download() as download:
        page.locator(".st-key-accuracy-yaml button").first.click()
    download.value.save_as(target)


def test_two_models_are_evaluated_looked_into_and_compared(
    browser: Browser, home_with_variant: Path, tmp_path: Path
) -> None:
    with serving(home_with_variant) as (url, _):
        context = browser.new_context(
            viewport={"width": 1440, "height": 1000}, reduced_motion="reduce", accept_downloads=True
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(f"{url}/accuracy")
        evaluate(page)
        move_threshold(page, tmp_path / "chosen.yaml")
        chosen = spec_from_yaml((tmp_path / "chosen.yaml").read_text()).dataset
        assert chosen is not None
        assert (chosen.path, chosen.positive_class) == ("sample_models/digits_test.npz", "8")
        assert chosen.threshold == pytest.approx(0.6)

        page.locator(".st-key-accuracy-view").get_by_text("Not worse?").click()
        verdicts = page.locator(".st-key-accuracy-verdicts")
        expect(verdicts).to_contain_text("digits-int8 (int8)")
        expect(verdicts).to_contain_text("the accuracy differs by")
        expect(page.locator(".st-key-accuracy-differences .main-svg").first).to_be_visible()
        assert page.get_by_test_id("stException").count() == 0

        page.goto(f"{url}/accuracy")  # a new session: what was evaluated is kept
        page.locator(".st-key-dataset-sample button").first.click()
        expect(page.locator(".st-key-accuracy-cards")).to_contain_text("of 360 rows right")
        context.close()
