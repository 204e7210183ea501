"""The way in and the way out: a visitor gives the token, and a page reaches nobody else."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Response, expect

from dashboard.server.gate import TOKEN_VARIABLE
from tests import tiny_models
from tests.e2e.conftest import (
    PATIENCE_MS,
    POLICY,
    VIEWPORT,
    Site,
    at_page,
    button,
    held,
    keyed,
    presented,
    run_button,
    set_number,
    started,
    until,
    upload,
)
from tests.proxying import proxied
from tests.serving import serving

TOKEN = "a token that visitors share"
BASE = "/ortune"


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


def test_below_a_base_path_behind_a_proxy_with_tls_everything_works_and_nothing_is_asked_outside(
    browser: Browser, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with (
        held(home),  # the run waits
        serving(home, base=BASE) as (url, _),
        proxied(tmp_path, {BASE: urlsplit(url).port or 0}) as proxy,
    ):
        context = browser.new_context(ignore_https_errors=True, viewport=VIEWPORT)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        answers: list[Response] = []
        asked: list[str] = []
        page.on("response", lambda answer: answers.append(answer))
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        page.goto(f"{proxy}{BASE}/models")
        page.locator("input[name=token]").fill(TOKEN)
        page.get_by_role("button").click()
        at_page(page, "Models")
        for cookie in context.cookies():
            assert cookie["path"] == BASE, cookie
        upload(page, tiny_models.mlp(tmp_path / "small.onnx"))
        expect(page.get_by_role("heading", name="small", level=3)).to_be_visible()
        button(page, "models.use").click()
        at_page(page, "Tune")
        set_number(page, "intra_op_num_threads", 1)
        started(page, run_button(page))
        expect(page.locator(".st-key-live .ol-live")).to_have_attribute("data-state", "waiting")
        until(page, lambda: any("/live/" in one.url and one.status == 200 for one in answers))
        assert presented(page).startswith(f"{proxy}{BASE}/?")
        button(page, "cancel").click()
        expect(run_button(page)).to_be_enabled()
        page.goto(f"{proxy}{BASE}/curves")  # an old address
        at_page(page, "Sweep")
        with page.expect_download() as download:
            button(page, "sweep.csv").click()
        # Chromium itself cancels a download over a certificate that is not trusted
        answer = context.request.get(download.value.url)
        assert answer.status == 200
        assert answer.headers["content-disposition"].startswith("attachment")
        keyed(page, "account").locator("button").first.click()
        button(page, "log_out").click()
        expect(page.locator("input[name=token]")).to_be_visible()
        context.close()
    outside = [one for one in asked if not urlsplit(one).path.startswith(f"{BASE}/")]
    assert [one for one in outside if urlsplit(one).scheme not in ("data", "blob")] == []


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
