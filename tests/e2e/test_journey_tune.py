"""From opening the page to the downloaded YAML, and what else a visitor meets on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from playwright.sync_api import Locator, Page, expect

from core.show import words
from core.spec import spec_from_yaml
from core.store import Store
from tests import tiny_models
from tests.e2e.conftest import named, number, run, run_button, set_number, started, visit

pytestmark = pytest.mark.e2e
Open = Callable[..., Page]


def shown_trial(page: Page) -> str:
    expect(page).to_have_url(re.compile("trial="))
    return parse_qs(urlsplit(page.url).query)["trial"][0]


def p50(page: Page) -> str:
    metric = page.get_by_test_id("stMetric").filter(has_text="p50 latency")
    return metric.get_by_test_id("stMetricValue").inner_text()


def headline(page: Page) -> Locator:
    """The big words of the verdict card."""
    return page.locator(".st-key-verdict h2")


def workers(home: Path) -> list[psutil.Process]:
    """Worker processes that this test's server started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "core.worker" in (process.info["cmdline"] or []):  # what it forks keeps its command line
            try:
                if process.environ().get("ORTUNE_HOME") == str(home):
                    found.append(process)
            except psutil.Error:
                continue
    return found


def test_from_the_page_to_the_yaml(open_browser: Open, home: Path, tmp_path: Path) -> None:
    page = open_browser()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()

    set_number(page, "intra_op_num_threads", 1)
    set_number(page, "batch_size", 4)
    run(page)
    trial = Store(home / "ortune.db").trial(shown_trial(page))
    assert trial.state == "COMPLETE"
    assert trial.result is not None
    assert (trial.spec["session"], trial.result["batch_size"]) == ({"intra_op_num_threads": 1}, 4)
    assert p50(page).endswith("ms")
    page.get_by_role("tab", name="What really ran").click()
    expect(page.get_by_text("Nodes and times come from a short pass")).to_be_visible()

    page.get_by_role("link", name="Export YAML").click()
    expect(page.get_by_role("heading", name="Export", level=1)).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"Download .*\.yaml")).first.click()
    target = tmp_path / download.value.suggested_filename
    download.value.save_as(target)
    assert trial.id[:8] in target.name
    text = target.read_text()
    assert spec_from_yaml(text).to_dict() == trial.spec
    assert f"{trial.result['latency']['p50_s']}" in text

    page.get_by_role("combobox", name="Format").click()
    page.get_by_role("option", name="Python (.py)").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"Download .*\.py")).first.click()
    download.value.save_as(tmp_path / "session.py")
    compile((tmp_path / "session.py").read_text(), "session.py", "exec")


def test_a_link_shows_the_same_trial_in_another_browser_and_after_a_reload(open_browser: Open) -> None:
    first = open_browser()
    set_number(first, "batch_size", 2)
    run(first)
    trial, value = shown_trial(first), p50(first)
    first.reload()
    expect(first.locator(".st-key-numbers")).to_be_visible()
    assert p50(first) == value
    other = open_browser(f"/?trial={trial}", scheme="dark")
    expect(other.locator(".st-key-numbers")).to_be_visible()
    assert p50(other) == value
    expect(number(other, "batch_size")).to_have_value("2")
    visit(other, "History")
    visit(other, "Tune")
    expect(number(other, "batch_size")).to_have_value("2")
    expect(other.locator(".st-key-numbers")).to_be_visible()


def test_the_keyboard_starts_a_run(page: Page) -> None:
    expect(run_button(page)).to_be_enabled()
    set_number(page, "budget_s", 2)
    page.wait_for_timeout(1000)  # the browser takes up shortcuts a moment after it drew the button
    page.get_by_role("heading", name="Tune", level=1).click()
    before = named(page.url)
    page.keyboard.press("Control+Enter")
    page.wait_for_url(lambda url: named(url) != before, wait_until="commit")
    expect(page.locator(".st-key-numbers")).to_be_visible()


def test_a_duel_to_its_verdict_with_a_reload_on_the_way(open_browser: Open, home: Path) -> None:
    page = open_browser()
    set_number(page, "budget_s", 8)
    set_number(page, "intra_op_num_threads", 1)
    expect(page.locator(".st-key-runbar")).to_contain_text("against ORT default")
    started(page, run_button(page))
    expect(page.locator(".st-key-live")).to_contain_text(
        re.compile(
            "(faster|slower) than ORT default so far|so far against ORT default|from ORT default so far"
        )
    )
    expect(page.locator(".st-key-live")).to_contain_text(re.compile(r"generation \d+ · .* · p50 [\d.,]+ ms"))
    expect(page.locator(".st-key-live canvas")).to_be_visible()
    page.reload()
    expect(page.locator(".st-key-live").or_(page.locator(".st-key-verdict"))).to_be_visible()
    expect(headline(page)).to_be_visible()
    trial = Store(home / "ortune.db").trial(shown_trial(page))
    assert trial.result is not None
    expect(headline(page)).to_contain_text(words.verdict(trial.result["contrasts"][0])[1:])
    expect(page.locator(".st-key-verdict")).to_contain_text(f"Grade {trial.result['grade']}")
    expect(page.locator(".st-key-cold_start")).to_contain_text("Break-even")
    expect(page.locator(".st-key-cost")).to_contain_text("CPU while idle")
    expect(page.get_by_text("Time since the first block (s)")).to_be_visible()
    page.get_by_role("tab", name="Distribution").click()
    expect(page.get_by_text("Percentile of the runs")).to_be_visible()


def test_a_finished_race_goes_on_and_a_reload_finds_it(page: Page, home: Path) -> None:
    set_number(page, "intra_op_num_threads", 1)
    run(page, budget_s=20)  # what goes on has as much, and must outlast a reload
    first = shown_trial(page)
    go_on = page.locator(".st-key-tune-go_on button")
    started(page, go_on.first)
    expect(page.locator(".st-key-live")).to_contain_text("so far")
    expect(go_on).to_have_count(0)
    page.reload()
    expect(page.locator(".st-key-live")).to_contain_text("so far")
    more = shown_trial(page)
    page.get_by_role("button", name="Cancel").first.click()
    expect(page.get_by_text("This trial was cancelled")).to_be_visible()
    store = Store(home / "ortune.db")
    races = [store.comparison(store.trial(one).comparison) for one in (first, more)]
    assert races[1].protocol["continues"] == races[0].id
    assert races[0].state == "COMPLETE"


def test_a_pinned_baseline_races_in_the_next_run_and_the_way_back_leads_to_it(page: Page, home: Path) -> None:
    set_number(page, "intra_op_num_threads", 1)
    run(page)
    first = shown_trial(page)
    page.get_by_role("button", name="Pin as baseline").first.click()
    expect(page.get_by_role("button", name="Unpin baseline").first).to_be_visible()
    page.get_by_role("button", name="Mobile / edge").first.click()
    expect(page.get_by_text("Settings differ from this result").first).to_be_visible()
    expect(page.locator(".st-key-runbar")).to_contain_text("against pinned baseline")
    run(page)
    expect(page.locator(".st-key-verdict")).to_contain_text("against pinned baseline: intra_op_num_threads 1")
    page.get_by_role("tab", name="Beside the baseline").click()
    expect(page.get_by_text("measured in the same rounds.")).to_be_visible()
    trial = Store(home / "ortune.db").trial(shown_trial(page))
    comparison = Store(home / "ortune.db").comparison(trial.comparison)
    assert {one.role for one in comparison.contestants} == {"candidate", "baseline", "anchor"}
    page.go_back()
    expect(page.get_by_text(f"Trial {first[:12]}")).to_be_visible()


def test_a_mistake_is_a_red_box_that_stops_run_and_goes_with_it(page: Page) -> None:
    page.get_by_text("Advanced", exact=True).click()
    field = page.locator(".st-key-knob-session_config_entries textarea")
    field.fill("session.nonsense=1")
    field.press("Control+Enter")
    # The newest race is shown below, with an alert of its own where it was rejected.
    told = page.get_by_test_id("stAlert").filter(has_text="Unknown session config entry")
    expect(told.first).to_be_visible()
    expect(run_button(page)).to_be_disabled()
    expect(page.locator(".st-key-live")).to_have_count(0)  # the same keys must not start a run
    page.get_by_role("button", name="Reset all").first.click()
    expect(told).to_have_count(0)
    expect(run_button(page)).to_be_enabled()


def test_upload_run_cancel_and_a_second_visitor_in_the_queue(
    open_browser: Open, home: Path, tmp_path: Path
) -> None:
    page = open_browser()
    visit(page, "Models")
    page.get_by_role("tab", name="Upload").click()
    slow = tiny_models.slow(tmp_path / "slow.onnx")
    page.locator(".st-key-models-upload input[type=file]").set_input_files(slow)
    expect(page.get_by_role("heading", name="slow", level=3)).to_be_visible()
    assert not list((home / "uploads").iterdir())
    page.get_by_role("tab", name="Upload").click()
    page.locator(".st-key-models-upload input[type=file]").set_input_files(slow)
    expect(page.get_by_test_id("stToast")).to_contain_text("Already in the library as slow")
    page.get_by_role("button", name="Use in Tune").first.click()
    expect(page.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    run_button(page).click()
    expect(page.locator(".st-key-live")).to_contain_text("so far")

    other = open_browser()
    run_button(other).click()
    expect(other.locator(".st-key-live")).to_contain_text("has the machine; this one is next")
    expect(other.get_by_test_id("stSidebar")).to_contain_text("measure slow")
    other.get_by_role("button", name="Cancel").first.click()
    expect(other.get_by_text("This trial was cancelled")).to_be_visible()

    page.reload()
    expect(page.locator(".st-key-live")).to_contain_text("so far")
    page.get_by_role("button", name="Cancel").first.click()
    expect(page.get_by_text("This trial was cancelled")).to_be_visible()
    assert workers(home) == []


def test_an_upload_of_something_else_is_refused(open_browser: Open, home: Path, tmp_path: Path) -> None:
    page = open_browser()
    visit(page, "Models")
    page.get_by_role("tab", name="Upload").click()
    page.locator(".st-key-models-upload input[type=file]").set_input_files(
        tiny_models.not_onnx(tmp_path / "photo.onnx")
    )
    expect(page.get_by_test_id("stAlert").first).to_contain_text("What to do")
    assert not list((home / "uploads").iterdir())


def test_a_deleted_trial_is_gone_after_the_question(page: Page, home: Path) -> None:
    run(page)
    trial = shown_trial(page)
    visit(page, "History")
    page.goto(f"{page.url.split('?')[0]}?trial={trial}")
    expect(page.locator(".st-key-history-detail")).to_be_visible()
    page.get_by_role("button", name="Delete it").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_test_id("stToast")).to_contain_text("Deleted 1 trial")
    assert trial not in {one.id for one in Store(home / "ortune.db").trials()}
