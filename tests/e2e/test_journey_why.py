"""From a result to why it is faster or slower, in a browser; and a server that is ended in mid-race."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import PATIENCE_MS, run, run_button, serving

Open = Callable[..., Page]
EXPLAINED_MS = 180_000  # ten short passes of two configurations


def test_why_two_results_differ(open_browser: Open) -> None:
    page = open_browser()
    page.get_by_role("button", name="Mobile / edge").first.click()
    expect(page.get_by_text("4 changed from default")).to_be_visible()
    run(page)
    page.get_by_role("link", name="Why?").first.click()
    expect(page.get_by_role("heading", name="Why", level=1)).to_be_visible()
    expect(page).to_have_url(re.compile(r"[?&]a=.*&b="))
    explain = page.locator(".st-key-why\\.run button, .st-key-why-run button").first
    expect(explain).to_be_enabled()
    explain.click()
    sentence = page.locator(".st-key-why\\.sentence, .st-key-why-sentence")
    expect(sentence).to_be_visible(timeout=EXPLAINED_MS)
    assert len(sentence.inner_text()) > 20
    expect(page.get_by_text("Conv").first).to_be_attached()
    page.reload()  # the passes are kept: nothing is measured again
    expect(sentence).to_be_visible()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_ends_in_a_race_leaves_nobody_behind(
    browser: Browser, tmp_path: Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as (url, server):
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(url)
        threads = page.locator(".st-key-knob-intra_op_num_threads input")
        threads.fill("1")  # two contestants: one of them is frozen at any moment of the rounds
        threads.press("Enter")
        expect(page.get_by_text("1 changed from default")).to_be_visible()
        publish = page.locator(".st-key-knob-protocol-precision").get_by_text("publish")
        publish.click()
        run_button(page).click()
        expect(page.locator(".st-key-live")).to_contain_text("rounds · ", timeout=EXPLAINED_MS)
        family = _frozen_family(server)
        server.send_signal(number)
        server.wait(20)
        context.close()
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []


def _frozen_family(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The server's processes, one of them frozen; between two blocks there may be none for a moment."""
    for _ in range(200):
        family = psutil.Process(server.pid).children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(one.status() == psutil.STATUS_STOPPED for one in family):
                return family
        time.sleep(0.05)
    raise AssertionError("no contestant was ever frozen")
