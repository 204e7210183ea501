"""From a result to why it is faster or slower, in a browser; and a server that is ended in mid-race."""

from __future__ import annotations

import re
import signal
import subprocess
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
        publish = page.locator(".st-key-knob-protocol-precision").get_by_text("publish")
        publish.click()
        run_button(page).click()
        expect(page.locator(".st-key-live")).to_contain_text("rounds · ", timeout=EXPLAINED_MS)
        family = _family(server)
        assert any(one.status() == psutil.STATUS_STOPPED for one in family)  # the twin of the self-tests
        server.send_signal(number)
        server.wait(20)
        context.close()
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []


def _family(server: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)
