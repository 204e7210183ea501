"""A load test: the highest rate is found, becomes a target of the scorecard, and the command checks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Page, expect

from core.show.load_text import load_of
from core.spec import spec_from_yaml
from core.wire.files import ROOT
from tests.e2e.conftest import (
    JOB_MS,
    Open,
    Site,
    button,
    field,
    finished,
    keyed,
    saved,
    set_number,
    started,
    type_into,
    visit,
)

ATTEMPTS = 3  # the machine may be too busy for a measurement, which the answer then says


def find_highest(page: Page, site: Site) -> float | None:
    """Run the load test, watch it, and return the confirmed rate."""
    trial_id = started(page, button(page, "load.run"))
    expect(page.locator('.st-key-load-live .ol-picture[role="img"]').first).to_be_visible(timeout=JOB_MS)
    expect(keyed(page, "load.cancel")).to_be_visible()
    expect(page.locator(".st-key-load-cancel")).to_have_count(0, timeout=JOB_MS)
    finished(page)
    result = load_of(site.store.trial(trial_id))
    assert result is not None
    return result["highest"][0]["confirmed_per_s"]


def test_the_highest_rate_is_found_saved_to_the_scorecard_and_checked_from_the_command_line(
    open_browser: Open, site: Site, tmp_path: Path
) -> None:
    page = open_browser()
    # Calls of tens of milliseconds: what a busy machine adds to them is little, so they are a measurement.
    set_number(page, "batch_size", 1024)
    visit(page, "Load")
    keyed(page, "load.question").get_by_role("radio", name="Highest rate").click()
    expect(field(page, "load.budget_s")).to_be_visible()
    finished(page)
    type_into(page, "load.limits", "p50<=500ms")
    type_into(page, "load.budget_s", "6")
    confirmed = next(filter(None, (find_highest(page, site) for _ in range(ATTEMPTS))), None)
    assert confirmed is not None, page.locator(".st-key-load-answer").inner_text()
    expect(page.locator(".st-key-load-answer h3").first).to_contain_text("p50 ≤ 500 ms")
    expect(page.locator(".st-key-load-chart-rates .main-svg").first).to_be_visible()

    button(page, "load.to_scorecard").click()
    finished(page)
    visit(page, "Scorecard")
    expect(page.locator(".st-key-scorecard-result")).to_contain_text("≤ 500 ms")
    path = saved(page, button(page, "scorecard.download"), tmp_path)
    [target] = spec_from_yaml(path.read_text()).targets
    assert target.load is not None
    assert 0.98 * confirmed <= target.load.rate <= confirmed

    done = subprocess.run(
        [sys.executable, "-m", "core", "scorecard", str(path), "--reuse", "--json", "--quiet"],
        cwd=ROOT,
        env={**os.environ, "ORTUNE_HOME": str(site.home), "ORTUNE_QUEUE": str(site.home / "queue")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [judged] = json.loads(done.stdout)["targets"]
    assert judged["state"] == "MET"
