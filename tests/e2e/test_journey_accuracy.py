"""Labelled data in a browser: evaluate, move the threshold by the keyboard, and take the choice away."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from core.spec import spec_from_yaml
from dashboard.views.accuracy.results import THRESHOLD
from tests.e2e.conftest import JOB_MS, Open, button, finished, keyed, saved


@pytest.mark.empty
def test_a_model_is_evaluated_and_its_threshold_chosen_and_taken_away(
    open_browser: Open, tmp_path: Path
) -> None:
    page = open_browser("/accuracy")
    button(page, "dataset.sample").click()
    button(page, "accuracy.run").click()
    expect(keyed(page, "accuracy.cards")).to_be_visible(timeout=JOB_MS)
    expect(page.locator(".st-key-accuracy-confusion .main-svg").first).to_be_visible()

    page.locator(".st-key-accuracy-view").get_by_role("radio", name=THRESHOLD).click()
    keyed(page, "dataset.positive_class").get_by_role("combobox").click()
    page.get_by_role("option", name="8", exact=True).click()
    curves = page.locator(".st-key-accuracy-tradeoff").first  # while it is drawn anew, old ones stay
    expect(curves).to_contain_text("0.5")
    finished(page)
    slider = page.locator(".st-key-dataset-threshold input[type=range]")
    slider.focus()
    for _ in range(20):  # steps of 0.005
        slider.press("ArrowRight")
    expect(button(page, "accuracy.yaml")).to_contain_text("0.600")
    chosen = spec_from_yaml(saved(page, button(page, "accuracy.yaml"), tmp_path).read_text()).dataset
    assert chosen is not None
    assert (chosen.path, chosen.positive_class) == ("sample_models/digits_test.npz", "8")
    assert chosen.threshold == pytest.approx(0.6)

    again = open_browser("/accuracy")  # somebody else: what was evaluated is kept
    expect(keyed(again, "accuracy.cards")).to_be_visible()
