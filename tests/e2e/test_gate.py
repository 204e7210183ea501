"""Every page under the content security policy, and what the running server answers to strangers."""

from __future__ import annotations

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import POLICY, finished, run, serving, visit

PAGES = (
    *("Tune", "Search", "Compare", "Curves", "Profile", "Why", "Variants", "Accuracy", "Scorecard"),
    *("Models", "History", "Export", "Machine"),
)


def test_every_page_works_under_the_policy(page: Page, tmp_path: Path) -> None:
    """The browser's complaints are counted when the page is closed."""
    run(page)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.locator(".js-plotly-plot").first.hover()
    with page.expect_download() as saved:  # Plotly draws the figure as an image by way of a blob
        page.locator('.js-plotly-plot [data-title^="Download"]').first.click()
    assert Path(saved.value.path()).stat().st_size > 1000
    for name in PAGES:
        visit(page, name)
        finished(page)
        expect(page.get_by_test_id("stException")).to_have_count(0)


def ask(url: str, path: str = "/", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("GET", path, headers={name.replace("_", "-"): text for name, text in headers.items()})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
}


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://127.0.0.1:1"}, {"Origin": "http://["}]
)
@pytest.mark.parametrize(("path", "more"), [("/", {}), ("/_stcore/stream", SOCKET), ("/_stcore/health", {})])
def test_strangers_are_refused_on_every_route(
    app_url: str, path: str, more: dict[str, str], headers: dict[str, str]
) -> None:
    assert ask(app_url, path, **more, **headers).status == 403


def test_our_own_page_may_open_the_socket(app_url: str) -> None:
    assert ask(app_url, "/_stcore/stream", **SOCKET, Origin=app_url).status == 101


def test_no_page_may_frame_ours(app_url: str) -> None:
    answer = ask(app_url)
    assert answer.status == 200
    assert answer.getheader("X-Frame-Options") == "DENY"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert "frame-ancestors 'none'" in (answer.getheader("Content-Security-Policy") or "")


def test_a_visitor_gives_the_token_once(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_TOKEN", "a token that visitors share")
    with serving(tmp_path) as (url, _):
        assert ask(url, "/_stcore/stream", **SOCKET, Origin=url).status == 403
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/models")
        page.get_by_label("Token").fill("a guess of sixteen")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("That is not the token.")
        page.get_by_label("Token").fill("a token that visitors share")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Models", level=1)).to_be_visible(timeout=60_000)
        context.close()


def test_a_page_cannot_talk_to_others(browser: Browser, app_url: str) -> None:
    """What `open_browser` counts is really said by this browser, for requests and for scripts."""
    context = browser.new_context()
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if POLICY in message.text else None)
    page.goto(app_url)
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
