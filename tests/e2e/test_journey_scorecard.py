"""From targets to a file: the scorecard is filled, measured, and taken away with its targets."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from core.spec import spec_from_yaml
from tests.e2e.conftest import finished, visit

MEASURED_MS = 180_000  # two short races and 360 rows


def field(page: Page, name: str) -> Locator:
    """The field of the newest line."""
    return page.locator(f'[class*="st-key-scorecard-target-"][class*="-{name}"] input').last


def add_target(page: Page, limit: str) -> None:
    before = page.locator('[class*="st-key-scorecard-line-"]').count()
    page.locator(".st-key-scorecard-add button").first.click()
    expect(page.locator('[class*="st-key-scorecard-line-"]')).to_have_count(before + 1)
    field(page, "limit").fill(limit)
    field(page, "limit").press("Enter")


def test_fill_the_scorecard_and_take_the_targets_away(page: Page, tmp_path: Path) -> None:
    visit(page, "Scorecard")
    expect(page.get_by_text("No targets yet")).to_be_visible()
    page.locator(".st-key-scorecard-example button").first.click()
    result = page.locator(".st-key-scorecard-result")
    expect(result).to_contain_text("Not yet known")
    add_target(page, "9 s")  # p99 latency at the configuration's own batch
    expect(result).to_contain_text("p99 latency ≤ 9,000 ms")

    run = page.locator(".st-key-scorecard-run button").first
    expect(run).to_be_enabled()
    run.click()
    expect(page.locator(".st-key-scorecard-live")).to_contain_text("so far")
    expect(run).to_contain_text("Measure what is missing", timeout=MEASURED_MS)
    expect(result).to_contain_text("Met · 99.4")  # accuracy needs no quiet machine

    with page.expect_download() as download:
        page.locator(".st-key-scorecard-download button").first.click()
    path = tmp_path / "card.yaml"
    download.value.save_as(path)
    spec = spec_from_yaml(path.read_text())
    assert {one.metric for one in spec.targets} >= {"latency_p99", "throughput", "sensitivity", "accuracy"}
    assert [one.limit for one in spec.targets if one.metric == "latency_p99"] == [0.003, 9.0]
    assert spec.dataset is not None
    assert spec.dataset.path == "sample_models/digits_test.npz"

    page.reload()
    expect(result).to_contain_text("p99 latency ≤ 9,000 ms")
    expect(result).to_contain_text("Met · 99.4")
    expect(field(page, "limit")).to_have_value("9 s")
    finished(page)
    drop = page.locator('[class*="st-key-scorecard-drop-"] button')
    while lines := drop.count():  # the file brings them back
        drop.first.click()
        expect(drop).to_have_count(lines - 1)
        finished(page)  # while lines are drawn anew, old ones are counted, too
    expect(page.get_by_text("No targets yet")).to_be_visible()
    page.locator(".st-key-scorecard-what").get_by_role("button", name="From YAML").click()
    page.locator("textarea").last.fill(path.read_text())
    page.locator("textarea").last.press("Control+Enter")
    page.locator(".st-key-scorecard-load button").first.click()
    expect(result).to_contain_text("Met · 99.4")  # what was measured is still known
