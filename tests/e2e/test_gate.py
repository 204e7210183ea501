"""The way in and the way out: a visitor gives the token, and a page reaches nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dashboard.server.gate import TOKEN_VARIABLE
from tests.e2e.conftest import PATIENCE_MS, POLICY, Site
from tests.serving import serving

TOKEN = "a token that visitors share"


def test_a_visitor_gives_the_token_once(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with serving(tmp_path) as (url, _):
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(f"{url}/models")
        page.locator("input[name=token]").fill("a guess of sixteen")
        page.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_be_visible()
        page.locator("input[name=token]").fill(TOKEN)
        page.get_by_role("button").click()
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible()
        context.close()


def test_a_page_cannot_talk_to_others(browser: Browser, shared: Site) -> None:
    """What `visitors` counts is really said by this browser, for requests and for scripts."""
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if POLICY in message.text else None)
    page.goto(shared.url)
    expect(page.get_by_test_id("stHeading").first).to_be_visible()
    assert not said
    assert page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', error => 'kept')") == "kept"
    assert said
    before = len(said)  # Chromium says it once or twice
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.x = 1'}))"
    )
    assert page.evaluate("window.x") is None
    assert len(said) > before
    context.close()
