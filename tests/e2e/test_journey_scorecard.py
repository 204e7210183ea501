"""Targets: shown as they were judged, one typed, taken away as YAML, removed, and loaded again."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import Open, at_rest, button, finished, saved


def unfold(page: Page, group: str) -> None:
    page.locator(f".st-key-scorecard-{group} summary").click()
    expect(page.locator(f".st-key-scorecard-{group} details")).to_have_attribute("open", "")
    finished(page)


def lines(page: Page) -> Locator:
    return page.locator('[class*="st-key-scorecard-line-"]')


def open_targets(page: Page) -> None:
    unfold(page, "what")
    expect(lines(page)).not_to_have_count(0)
    finished(page)
    at_rest(page, button(page, "scorecard.add"))


def limit_of_newest(page: Page) -> Locator:
    return page.locator('[class*="st-key-scorecard-target-"][class*="-limit"] input').last


def test_targets_are_typed_taken_away_survive_a_reload_and_come_back_from_their_file(
    open_browser: Open, tmp_path: Path
) -> None:
    page = open_browser("/scorecard")
    unfold(page, "what")
    button(page, "scorecard.example").click()
    result = page.locator(".st-key-scorecard-result")
    expect(result).to_be_visible()
    finished(page)
    expect(lines(page)).to_have_count(0)  # the answer comes first
    open_targets(page)
    before = lines(page).count()
    button(page, "scorecard.add").click()
    expect(lines(page)).to_have_count(before + 1)
    limit_of_newest(page).fill("9 s")
    limit_of_newest(page).press("Enter")
    expect(result).to_contain_text("9,000 ms")
    finished(page)  # the file is drawn after the result

    path = saved(page, button(page, "scorecard.download"), tmp_path)
    spec = spec_from_yaml(path.read_text())
    assert {one.metric for one in spec.targets} >= {"latency_p99", "throughput", "sensitivity", "accuracy"}
    assert [one.limit for one in spec.targets if one.metric == "latency_p99"] == [0.003, 9.0]
    assert spec.dataset is not None
    assert spec.dataset.path == "sample_models/digits_test.npz"

    page.reload()
    expect(result).to_contain_text("9,000 ms")
    finished(page)
    unfold(page, "what")
    expect(limit_of_newest(page)).to_have_value("9 s")
    finished(page)
    drop = page.locator('[class*="st-key-scorecard-drop-"] button')
    while left := drop.count():  # the file brings them back
        drop.first.click()
        expect(drop).to_have_count(left - 1)
        finished(page)  # while lines are drawn anew, old ones are counted, too
    expect(result).to_have_count(0)
    button(page, "scorecard.yaml").click()
    page.locator("textarea").last.fill(path.read_text())
    page.locator("textarea").last.press("Control+Enter")
    button(page, "scorecard.load").click()
    expect(result).to_contain_text("9,000 ms")
