"""A real browser on a real server, each on a home of its own; nothing outside of this machine is reached."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Error, Locator, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
HOW_TO_GET_IT = (
    "No browser for the browser tests: install chromium, run `python -m playwright install chromium`, "
    "or set ORTUNE_CHROMIUM to one."
)
START_S = 60.0
POLICY = "Content Security Policy"  # as Chromium says what it refused
PATIENCE_MS = 60_000.0  # a busy machine of two cores
RACE_MS = 2 * PATIENCE_MS

expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


def _executable() -> str | None:
    """The browser to start; None: the one that Playwright brought, if it did."""
    if named := os.environ.get("ORTUNE_CHROMIUM"):
        return named
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
        except Error as error:
            if os.environ.get("CI"):
                pytest.fail(f"{HOW_TO_GET_IT} ({error.message.splitlines()[0]})", pytrace=False)
            pytest.skip(HOW_TO_GET_IT)
        yield started
        started.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="package")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server of this session keeps everything."""
    return tmp_path_factory.mktemp("ortune")


@pytest.fixture(scope="package")
def app_url(home: Path) -> Iterator[str]:
    """`python -m dashboard`, as a user starts it."""
    with serving(home) as (url, _):
        yield url


@contextlib.contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server of its own, with its address."""
    port = free_port()
    environment = {**os.environ, "ORTUNE_HOME": str(home), "ORTUNE_QUEUE": str(home / "queue")}
    log = (home / "server.log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "dashboard", "--port", str(port), *options],
        cwd=ROOT,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _await(url, server, home / "server.log")
        yield url, server
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(20)
        log.close()


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"The server did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture
def open_browser(browser: Browser, app_url: str, home: Path) -> Iterator[Callable[..., Page]]:
    """Open the app as a new visitor; afterwards, nothing foreign was asked for and nothing had crashed."""
    contexts, requests, refused = [], [], []
    log = home / "server.log"
    begun_at = log.stat().st_size

    def open_it(path: str = "/", *, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": 1440, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("websocket", lambda socket_: requests.append(socket_.url))
        page.on("console", lambda said: refused.append(said.text) if POLICY in said.text else None)
        page.goto(app_url + path)
        expect(page.get_by_test_id("stHeading").first).to_be_visible()
        finished(page)
        return page

    yield open_it
    crashed = [
        page for context in contexts for page in context.pages if page.get_by_test_id("stException").count()
    ]
    for context in contexts:
        context.close()
    assert not crashed
    assert not refused  # by the content security policy: something of a page does not work
    hosts = {
        urlsplit(url).netloc for url in requests if urlsplit(url).scheme not in ("data", "blob", "about")
    }
    assert hosts <= {urlsplit(app_url).netloc}
    assert b"Traceback" not in log.read_bytes()[begun_at:]


@pytest.fixture
def page(open_browser: Callable[..., Page]) -> Page:
    """The app, just opened by somebody new."""
    return open_browser()


def visit(page: Page, name: str) -> None:
    """Go to another page by the navigation."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def finished(page: Page) -> None:
    """Wait until the page is drawn to its end: what opens before is closed by what is still to come."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


def run_button(page: Page) -> Locator:
    """The one primary button of Tune; other buttons have "run" in their names too."""
    return page.locator(".st-key-run button").first


def started(page: Page, button: Locator) -> None:
    """Press `button` and wait for its trial in the address: a short run may be over before it is seen."""
    before = named(page.url)
    expect(button).to_be_enabled()
    button.click()
    page.wait_for_url(lambda url: named(url) != before, wait_until="commit")


def named(url: str) -> dict[str, list[str]]:
    """The results that an address names; the form beside them changes with everything that is typed."""
    return {name: found for name, found in parse_qs(urlsplit(url).query).items() if name != "form"}


def presented(page: Page) -> str:
    """Begin a presentation on `page`; the address that others open to follow it."""
    page.get_by_role("button", name="Present").click()
    link = page.get_by_test_id("stSidebar").get_by_test_id("stCode")
    expect(link).to_contain_text("follow=")
    return re.sub(r"\s", "", link.inner_text())


def number(page: Page, name: str) -> Locator:
    """The field of a setting, by its ORT name."""
    return page.locator(f".st-key-knob-{name} input")


def set_number(page: Page, name: str, value: int) -> None:
    number(page, name).fill(str(value))
    number(page, name).press("Enter")
    expect(page.get_by_text("changed from default")).to_be_visible()


def raced(page: Page) -> None:
    """Wait for the result of the race that the address names."""
    finished(page)  # until then the result of before stands there, piece by piece
    expect(page.get_by_text(f"Trial {named(page.url)['trial'][0][:12]}")).to_be_visible()
    expect(page.get_by_text(re.compile(r"complete$")).first).to_be_visible(timeout=RACE_MS)
    expect(page.locator(".st-key-live")).to_have_count(0)
    expect(page.locator(".st-key-cancel")).to_have_count(0)
    expect(run_button(page)).to_be_enabled()
    finished(page)
    expect(page.locator(".st-key-numbers")).to_be_visible()


def run(page: Page, budget_s: int = 4) -> None:
    """Press Run and wait for the result of a short race: what is seen matters here, not the answer."""
    set_number(page, "budget_s", budget_s)
    started(page, run_button(page))
    raced(page)
