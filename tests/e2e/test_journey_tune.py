"""One run of Tune, by the keyboard alone and live; a run that others wait for; and a result gone back to."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import FloatRect, Locator, Page, Route, expect

from benchmarks.flows import FLOWS, Hand, why
from core.process.machine_queue import MachineQueue
from core.spec import spec_from_yaml
from dashboard.widgets import uploads
from tests import tiny_models
from tests.e2e.conftest import (
    JOB_MS,
    Open,
    Site,
    at_page,
    button,
    finished,
    keyed,
    named,
    number,
    recorded,
    reset,
    result_shown,
    run_button,
    set_number,
    show,
    started,
    until,
    upload,
    visit,
)

MOST_TABS = 250
SHIFT_PX = 4  # that a control may move


def box(one: Locator) -> FloatRect:
    found = one.bounding_box()
    assert found is not None
    return found


def ends(*controls: Locator) -> list[float]:
    """The right end of each control, and its middle."""
    found = map(box, controls)
    return [at for one in found for at in (one["x"] + one["width"], one["y"] + one["height"] / 2)]


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the focus is within `selector`."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate("one => !!document.activeElement.closest(one)", selector):
            return
    raise AssertionError(f"{selector} is not reached by Tab")


def p50(page: Page) -> Locator:
    """The number by its key: while the page is drawn, another may be there before it."""
    return keyed(page, "numbers.p50_s").get_by_test_id("stMetricValue")


def is_live(page: Page) -> None:
    """Wait for the box of a running job: it is visible from the queue to the last round."""
    expect(page.locator(".st-key-live").get_by_role("progressbar")).to_be_visible(timeout=JOB_MS)
    expect(button(page, "cancel")).to_be_visible()


STREAM = re.compile(r"/ortune/live/[^&]*$")  # a question has one more part


def break_streams_off(page: Page, asked_for: Counter[str]) -> None:
    """Break each stream off once, before its first event; counts how often each is asked for."""

    def answer(asked: Route) -> None:
        asked_for[asked.request.url] += 1
        if asked_for[asked.request.url] > 1:
            asked.continue_()
        else:
            asked.fulfill(content_type="text/event-stream", body="retry: 100\n\n")

    page.route(STREAM, answer)


def test_the_keyboard_alone_goes_from_a_live_slider_to_a_verdict_and_its_yaml(
    open_browser: Open, site: Site, tmp_path: Path
) -> None:
    page = open_browser()
    reset(page)  # a new visitor sees the newest result with its settings
    expect(number(page, "batch_size")).to_have_value("1")
    set_number(page, "budget_s", 30)  # it ends when it is decided
    tab_to(page, ".st-key-tune-live")
    page.keyboard.press("Space")
    expect(page.locator(".st-key-glimpse")).to_be_visible()
    finished(page)
    slider = keyed(page, "slide.knob.intra_op_num_threads")
    width = box(slider)["width"]
    tab_to(page, ".st-key-slide-knob-intra_op_num_threads input[type=range]")
    page.keyboard.press("ArrowRight")
    expect(number(page, "intra_op_num_threads")).to_have_value("1")
    finished(page)
    assert box(slider)["width"] == pytest.approx(width, abs=SHIFT_PX), "the slider keeps its width"
    tab_to(page, ".st-key-slide-knob-batch_size input[type=range]")
    for wanted in ("2", "4"):
        page.keyboard.press("ArrowRight")
        expect(number(page, "batch_size")).to_have_value(wanted)
    expect(page.locator(".st-key-glimpse .ol-picture:not(.ol-wide)")).to_be_visible(timeout=JOB_MS)
    expect(page.locator(".st-key-bar-ratio .ol-badge")).to_be_visible()

    before = named(page.url)
    streams: Counter[str] = Counter()
    with MachineQueue(site.home / "queue").turn("a test", "nothing"):  # the run waits until both follow it
        page.keyboard.press("Control+Enter")
        page.wait_for_url(lambda url: named(url) != before, wait_until="commit")
        [trial] = named(page.url)["trial"]
        follow = partial(break_streams_off, asked_for=streams)
        other = open_browser(f"/?trial={trial}", scheme="dark", before=follow)  # somebody else, to its end
        until(other, lambda: len(streams) > 0)
    for one in (page, other):
        result_shown(one)
        expect(one.locator(".st-key-verdict h2")).to_be_visible()
    assert page.locator(".st-key-verdict h2").inner_text() == other.locator(".st-key-verdict h2").inner_text()
    assert min(streams.values()) > 1  # what broke off came back by itself
    stored = site.store.trial(trial)
    assert stored.state == "COMPLETE"
    assert stored.spec["session"] == {"intra_op_num_threads": 1}

    name, text = exported(page)
    assert trial[:8] in name
    assert spec_from_yaml(text).to_dict() == stored.spec


def exported(page: Page) -> tuple[str, str]:
    """Name and text of the file that the keyboard alone downloads from a result on Tune."""
    tab_to(page, '.st-key-pane-result a[href*="export"]')
    page.keyboard.press("Enter")
    at_page(page, "Export")
    tab_to(page, '[data-testid="stDownloadButton"]')
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    return download.value.suggested_filename, Path(download.value.path()).read_text()


def workers(home: Path) -> list[psutil.Process]:
    """Worker processes that the server of this home started."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "core.worker" in (process.info["cmdline"] or []):  # what it forks keeps its command line
            try:
                if process.environ().get("ORTUNE_HOME") == str(home):
                    found.append(process)
            except psutil.Error:
                continue
    return found


def hold_events_back(page: Page) -> None:
    """As a proxy does that buffers: a stream never begins, a question is answered."""
    page.route(STREAM, lambda asked: asked.abort())


def test_uploads_are_refused_or_taken_and_a_run_that_others_wait_for_is_found_again_and_cancelled(
    open_browser: Open, site: Site, tmp_path: Path
) -> None:
    page = open_browser("/models")
    upload(page, tiny_models.not_onnx(tmp_path / "photo.onnx"))
    said = page.get_by_test_id("stTabPanel").or_(page.get_by_role("tabpanel")).get_by_test_id("stAlert").first
    expect(said).to_be_in_viewport()
    expect(page.get_by_role("tab", name=uploads.TAB)).to_have_attribute("aria-selected", "true")
    here, there = box(page.locator(".drop").first), box(said)
    assert 0 < there["y"] - here["y"] < 250

    had = len(site.store.models())
    slow = tiny_models.slow(tmp_path / "slow.onnx")
    upload(page, slow)
    expect(page.get_by_role("heading", name="slow", level=3)).to_be_visible()
    assert len(site.store.models()) == had + 1
    upload(page, slow)
    assert len(site.store.models()) == had + 1
    assert not list((site.home / "uploads").iterdir())
    button(page, "models.use").click()
    at_page(page, "Tune")
    set_number(page, "intra_op_num_threads", 1)  # else there is nothing to compare with
    before = ends(run_button(page), keyed(page, "tune.live"))
    first = started(page, run_button(page))
    is_live(page)
    assert ends(button(page, "cancel"), keyed(page, "tune.live")) == pytest.approx(before, abs=SHIFT_PX)
    until(page, lambda: site.store.trial(first).state == "RUNNING")

    other = open_browser(before=hold_events_back)
    second = started(other, run_button(other))
    expect(other.locator(".st-key-live .ol-how")).to_be_visible()  # it polls instead, and says so
    expect(other.locator(".st-key-live .ol-live")).to_have_attribute("data-state", "waiting")
    assert site.store.trial(second).state == "WAITING"
    button(other, "cancel").click()
    expect(run_button(other)).to_be_enabled()

    page.reload()
    is_live(page)
    visit(page, "History")
    visit(page, "Tune")
    is_live(page)
    button(page, "cancel").click()
    expect(run_button(page)).to_be_enabled()
    assert [site.store.trial(one).state for one in (first, second)] == ["CANCELLED", "CANCELLED"]
    assert workers(site.home) == []


def headings(page: Page) -> Locator:
    return page.locator(".st-key-explain-sentence")


def test_a_result_survives_reload_link_and_back_and_leads_to_explain(open_browser: Open, site: Site) -> None:
    results = recorded(site.store)
    page = open_browser(f"/?trial={results.slower.id}")
    value = p50(page).inner_text()
    expect(number(page, "intra_op_num_threads")).to_have_value("1")
    page.reload()
    expect(p50(page)).to_have_text(value)
    other = open_browser(f"/?trial={results.slower.id}", scheme="dark")
    expect(p50(other)).to_have_text(value)
    visit(other, "History")
    visit(other, "Tune")
    expect(number(other, "intra_op_num_threads")).to_have_value("1")
    expect(p50(other)).to_have_text(value)

    visit(page, "History")
    while urlsplit(page.url).path != "/":  # the form of a page has an entry of its own
        page.go_back()
        finished(page)
    at_page(page, "Tune")
    expect(p50(page)).to_have_text(value)

    show(page, results.explained)
    hand = Hand(page, site.home)
    why(hand)
    assert hand.clicks <= FLOWS["d"][3]
    expect(headings(page)).to_be_visible()
    page.wait_for_url(lambda url: {"a", "b"} <= named(url).keys(), wait_until="commit")
    page.reload()  # the explanation is kept: nothing is measured again
    expect(headings(page)).to_be_visible()
