"""The demonstration, a report taken from it and opened without a network, and somebody who follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from dashboard import demo, presenting
from tests.e2e.conftest import PATIENCE_MS, Open, button, finished, keyed, presented, saved, visit
from tests.serving import serving

pytestmark = pytest.mark.e2e


@pytest.fixture
def demo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`python -m dashboard --demo`; its home goes with it."""
    home = tmp_path_factory.mktemp("demo")
    temporary = home / "tmp"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        with serving(home, "--demo") as (url, _):
            assert [one.name.startswith(demo.PREFIX) for one in temporary.iterdir()].count(True) == 1
            yield url
    assert not [one for one in temporary.iterdir() if one.name.startswith(demo.PREFIX)]
    assert "Traceback" not in (home / "server.log").read_text()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def arrive(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.get_by_test_id("stHeading").first).to_be_visible()
    finished(page)


def test_a_report_of_a_result_opens_without_a_network(
    demo_url: str, visitor: Page, browser: Browser, tmp_path: Path
) -> None:
    arrive(visitor, demo_url)
    expect(keyed(visitor, "recorded")).to_be_visible()
    expect(keyed(visitor, "tune.live").locator("input")).to_be_disabled()  # nothing is measured
    heading = visitor.locator(".st-key-verdict h2").inner_text()
    said = re.sub(r"^[a-z_]+\s+", "", heading).strip()  # without the name of its icon
    visitor.locator('.st-key-pane-result [class*="-report"] button').first.click()
    price = visitor.get_by_role("dialog").get_by_role("spinbutton")
    price.fill("0.34")
    price.press("Enter")
    download = visitor.locator('[class*="-report-html"] button').first
    expect(download).to_be_visible()
    finished(visitor)
    path = saved(visitor, download, tmp_path)
    for scheme in ("light", "dark"):
        is_whole(browser, path, said, scheme)


def is_whole(browser: Browser, path: Path, said: str, scheme: str) -> None:
    """Open a report without a network, and check its verdict, its cost and its plots."""
    context = browser.new_context(color_scheme=scheme, offline=True)  # type: ignore[arg-type]
    asked: list[str] = []
    problems: list[str] = []
    context.route(
        "**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort()
    )
    report = context.new_page()
    report.on("request", lambda request: asked.append(request.url))
    report.on("pageerror", lambda error: problems.append(str(error)))
    report.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    report.goto(path.as_uri())
    expect(report.locator(".recorded")).to_be_visible()
    expect(report.locator(".verdict")).to_contain_text(said)
    figures = report.locator(".plot")
    expect(figures).to_have_count(3)
    for number in range(3):
        expect(figures.nth(number).locator("svg.main-svg").first).to_be_visible()
    figures.nth(0).locator(".scatterlayer .point").first.hover(force=True)  # it answers to the mouse
    expect(figures.nth(0).locator(".hoverlayer .hovertext").first).to_be_visible()
    paper, text = report.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector"
        "('.plot .xtick text')).fill]"
    )
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert text == ("rgb(15, 23, 42)" if scheme == "light" else "rgb(241, 245, 249)")
    assert [one for one in asked if not one.startswith(("file:", "data:", "blob:"))] == []
    assert problems == []
    context.close()


def lay_a_slow_line(page: Page, asked: list[str | bytes]) -> None:
    """Delay the server's answer until after the follower's next request, and record the page's requests."""

    def lay(line: WebSocketRoute) -> None:
        server = line.connect_to_server()

        def later(said: str | bytes) -> None:
            page.wait_for_timeout(3 * presenting.CHECK_EVERY_S * 1000)
            line.send(said)

        def ask(said: str | bytes) -> None:
            asked.append(said)
            server.send(said)

        server.on_message(later)
        line.on_message(ask)

    page.route_web_socket(re.compile("/_stcore/stream"), lay)


def asks_nothing(page: Page, asked: list[str | bytes]) -> bool:
    """Whether a page sends nothing for 3 s."""
    before = len(asked)
    page.wait_for_timeout(3000)
    return len(asked) == before


def test_a_follower_goes_where_the_presenter_goes_and_cannot_touch(look: Open) -> None:
    visitor = look()
    address = presented(visitor)
    asked: list[str | bytes] = []
    follower = look(address, before=lambda page: lay_a_slow_line(page, asked))
    expect(follower.get_by_role("heading", name="Tune", level=1)).to_be_visible()
    visit(visitor, "Search")
    expect(follower.get_by_role("heading", name="Search", level=1)).to_be_visible()
    finished(follower)
    assert any(asks_nothing(follower, asked) for _ in range(10)), "nothing is new, and it asks"
    expect(follower.get_by_role("heading", name="Search", level=1)).to_be_visible()
    presets = visitor.locator(".st-key-search-preset").get_by_role("radio", checked=False)
    name = presets.last.inner_text()
    visitor.locator(".st-key-search-preset").get_by_role("radio", name=name).click()
    followed = follower.locator(".st-key-search-preset").get_by_role("radio", name=name)
    expect(followed).to_have_attribute("aria-checked", "true")
    for _ in range(30):  # nothing that changes anything is reached by the keyboard
        follower.keyboard.press("Tab")
        held = (
            "document.activeElement.closest('.stMain [data-testid=stElementContainer]:has(input, textarea)')"
        )
        assert follower.evaluate(f"{held} === null")

    follower.goto(address.replace("/?", "/history?"))  # on another page than the presenter: back
    expect(follower.get_by_role("heading", name="Search", level=1)).to_be_visible()
    button(visitor, "follow.end").click()
    expect(button(visitor, "follow.present")).to_be_visible()
    expect(button(follower, "follow.present")).to_be_visible()  # the page is its own again
