"""A real browser on a real server over the recorded results; no request leaves this machine.

A test that changes what is stored, or measures, uses `open_browser`: the server is its own. One that only
reads uses `look`: all tests of a process share that server. Elements are found by role, key and state.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    Error,
    FloatRect,
    Locator,
    Page,
    ViewportSize,
    expect,
    sync_playwright,
)

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.process.machine_queue import MachineQueue
from core.run.explanation import explanations
from core.store import STORE_NAME, Store, StudyRecord
from core.store.recorded import MARK_FILE
from dashboard import demo
from dashboard.widgets import uploads
from tests.serving import LOG, serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    # the first is a process with the browser's menus for every window; Playwright's own list is replaced
    "--disable-features=PreloadTopChromeWebUI,Translate,MediaRouter,OptimizationHints,PaintHolding,HttpsUpgrades",
    "--no-first-run",
)
HOW_TO_GET_IT = (
    "No browser for the browser tests: install chromium, run `python -m playwright install chromium`, "
    "or set ORTUNE_CHROMIUM to one."
)
POLICY = "Content Security Policy"  # as Chromium says what it refused
PATIENCE_MS = 120_000.0  # a machine of two cores with much else to do
JOB_MS = 2 * PATIENCE_MS  # what a worker has to do
TEST_S = 900.0
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}

Open = Callable[..., Page]

expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TEST_S))


said_by: dict[Page, list[str]] = {}  # by the pages of this test: errors in their console


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what its pages show and what the server said."""
    report = yield
    if report.when == "call" and report.failed:
        report.sections += [(f"page {page.url}", shown(page, said)) for page, said in said_by.items()]
        site = getattr(item, "funcargs", {}).get("site")
        if isinstance(site, Site):
            report.sections.append(("server", site.last_words()))
    return report


def shown(page: Page, errors: list[str]) -> str:
    """The state of a page in words: how far it is drawn, dialogs and messages, errors in its console."""
    try:
        app = page.get_by_test_id("stApp")
        state = app.get_attribute("data-test-script-state", timeout=1000)
        texts = page.locator('[role="dialog"], [data-testid="stAlert"], h1').all_inner_texts()
    except Error as error:
        return f"{error.message}\n{errors}"
    return "\n".join([f"state: {state}", *texts, *errors])


# --- the browser

# Marks the document from a press until the server has answered it: Streamlit shows only then that it runs.
MARK_UNANSWERED = """
{
  const send = WebSocket.prototype.send
  let sent = 0
  function answered() {
    const before = sent
    setTimeout(() => { if (sent === before) delete document.documentElement.dataset.unanswered }, 100)
  }
  WebSocket.prototype.send = function (data) {
    for (const one of ["message", "close"]) this.addEventListener(one, answered, { once: true })
    sent += 1
    document.documentElement.dataset.unanswered = ""
    return send.call(this, data)
  }
}
"""


def _executable() -> str | None:
    """The browser to start; None: the one that Playwright brought, if it did."""
    if named := os.environ.get("ORTUNE_CHROMIUM"):
        return named
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
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


@dataclass(frozen=True)
class Site:
    """A running server and the folder where it keeps everything."""

    url: str
    home: Path
    server: subprocess.Popen[bytes] | None = None  # of one test alone

    @property
    def store(self) -> Store:
        return Store(self.home / STORE_NAME)

    def last_words(self) -> str:
        """What the server said; the server of one test alone ends with what each of its threads does."""
        if self.server is not None:
            self.server.send_signal(signal.SIGABRT)
            self.server.wait(20)
        return (self.home / LOG).read_text(errors="replace")[-20_000:]


@contextlib.contextmanager
def recorded_home() -> Iterator[Path]:
    """Unpack the recorded results without the demonstration marker: everything may be done with them."""
    folder = demo.unpack()
    try:
        (folder / MARK_FILE).unlink()
        yield folder
    finally:
        demo.remove(folder)


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The home of a test's own server: recorded results; with the mark `empty`, nothing."""
    if request.node.get_closest_marker("empty"):
        (tmp_path / "home").mkdir()
        yield tmp_path / "home"
        return
    with recorded_home() as folder:
        yield folder


@pytest.fixture
def site(home: Path) -> Iterator[Site]:
    """A server of this test alone."""
    with serving(home) as (url, server):
        yield Site(url, home, server)


@pytest.fixture(scope="session")
def shared() -> Iterator[Site]:
    """The server of all tests that only read."""
    with recorded_home() as folder, serving(folder) as (url, _):
        yield Site(url, folder)


@pytest.fixture
def open_browser(browser: Browser, site: Site) -> Iterator[Open]:
    """Open the server of this test, each time as a new visitor."""
    with visitors(browser, site) as open_it:
        yield open_it


@pytest.fixture
def look(browser: Browser, shared: Site) -> Iterator[Open]:
    """Open the shared server, each time as a new visitor."""
    with visitors(browser, shared) as open_it:
        yield open_it


@contextlib.contextmanager
def visitors(browser: Browser, site: Site) -> Iterator[Open]:
    """Open pages; afterwards check that no request left the machine or was refused, and nothing crashed."""
    contexts, requests, refused = [], [], []
    log = site.home / LOG
    begun_at = log.stat().st_size
    said_by.clear()

    def open_it(
        path: str = "/",
        *,
        scheme: str = "light",
        width: int = VIEWPORT["width"],
        before: Callable[[Page], None] = lambda page: None,
    ) -> Page:
        context = browser.new_context(
            viewport={**VIEWPORT, "width": width},
            color_scheme=scheme,  # type: ignore[arg-type]
            reduced_motion="reduce",
            accept_downloads=True,
        )
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(MARK_UNANSWERED)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("websocket", lambda socket_: requests.append(socket_.url))
        page.on("console", lambda said: refused.append(said.text) if POLICY in said.text else None)
        errors = said_by[page] = []  # a closed page may still tell something
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        before(page)
        page.goto(urljoin(site.url, path))
        opened(page)
        return page

    yield open_it
    crashed = [
        page.url
        for context in contexts
        for page in context.pages
        if page.get_by_test_id("stException").count()
    ]
    for context in contexts:
        context.close()
    assert not crashed
    assert not refused  # by the content security policy: something of a page does not work
    hosts = {
        urlsplit(url).netloc for url in requests if urlsplit(url).scheme not in ("data", "blob", "about")
    }
    assert hosts <= {urlsplit(site.url).netloc}
    assert b"Traceback" not in log.read_bytes()[begun_at:]


@contextlib.contextmanager
def held(home: Path) -> Iterator[None]:
    """Hold the machine with a job of another process that takes an hour."""
    queue = MachineQueue(home / "queue")
    place = queue.enter("command line", "night run", person="night run", predicted_s=3600.0)
    assert queue.take([place]) is place
    try:
        yield
    finally:
        queue.leave(place)


# --- the recorded results


@dataclass(frozen=True)
class Recorded:
    """Results of the recording, by kind."""

    slower: Trial  # against ONNX Runtime's default, of the sample model
    explained: Trial  # faster, the winner of `search`, with an explanation; the newest of the sample model
    comparison: Comparison  # of several configurations
    curve: Comparison  # over the batch size
    profile: Trial
    search: StudyRecord  # of the sample model, with an answer


def recorded(store: Store) -> Recorded:
    """Find the results of the recording that tests open; all are of the sample model `digits_cnn`."""
    comparisons = [one for one in store.comparisons(limit=1000) if one.model_name == "digits_cnn"]
    (search,) = (one for one in store.studies() if one.model_name == "digits_cnn")
    trials = [one for one in store.trials(limit=1000, kind="measure") if one.model_name == "digits_cnn"]
    return Recorded(
        slower=next(one for one in trials if one.spec.get("session") == {"intra_op_num_threads": 1}),
        explained=next(one for one in trials if list(explanations(store, [one.id]))),
        comparison=max((one for one in comparisons if not one.study), key=lambda one: len(one.contestants)),
        curve=next(one for one in comparisons if one.study.startswith("curve")),
        profile=next(one for one in store.trials(kind="profile") if one.model_name == "digits_cnn"),
        search=store.study(search.id),
    )


def show(page: Page, trial: Trial, path: str = "/") -> None:
    """Open a result by its address, and wait until it is drawn."""
    parts = urlsplit(page.url)
    page.goto(f"{parts.scheme}://{parts.netloc}{path}?trial={trial.id}")
    expect(page.locator(".st-key-numbers")).to_be_visible()
    finished(page)


# --- what a person does


def opened(page: Page) -> None:
    """Wait until an address that was just opened is drawn to its end."""
    expect(page.get_by_test_id("stHeading").first).to_be_visible()
    finished(page)


def visit(page: Page, name: str) -> None:
    """Go to another page by the navigation."""
    page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True).click()
    at_page(page, name)


def at_page(page: Page, name: str) -> None:
    """Wait until a page is drawn to its end."""
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    finished(page)


def finished(page: Page) -> None:
    """Wait until the page is drawn to its end, and styled: what opens before is closed by what comes."""
    page.wait_for_selector(
        'html:not([data-unanswered]) [data-testid="stApp"][data-test-script-state="notRunning"]'
    )
    expect(page.locator(":root")).to_have_css("--styled", "1")


def at_rest(page: Page, one: Locator) -> None:
    """Wait until an element stays where it is: a press on what still moves may be lost."""
    boxes: list[FloatRect | None] = []

    def rests() -> bool:
        boxes.append(one.bounding_box())
        return boxes[-1] is not None and boxes[-3:].count(boxes[-1]) == 3  # 200 ms

    until(page, rests)


def until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait for what only the server's side tells."""
    for _ in range(int(PATIENCE_MS / 100)):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError("It never came to that.")


def keyed(page: Page, key: str) -> Locator:
    """An element or container by its key, which Streamlit writes into its class."""
    return page.locator(f".st-key-{key.replace('.', '-')}").first


def button(page: Page, key: str) -> Locator:
    return keyed(page, key).locator("button").first


def field(page: Page, key: str) -> Locator:
    return keyed(page, key).locator("input").first


def type_into(page: Page, key: str, text: str) -> None:
    """Type into a field, and wait until the page has answered."""
    field(page, key).fill(text)
    field(page, key).press("Enter")
    expect(field(page, key)).to_have_value(text)
    finished(page)


def saved(page: Page, press: Locator, target: Path) -> Path:
    """Press a button that downloads; return where the file was put: in `target`, under its own name."""
    expect(press).to_be_enabled()
    with page.expect_download() as download:
        press.click()
    path = target / download.value.suggested_filename
    download.value.save_as(path)
    return path


def upload(page: Page, path: Path) -> None:
    """Bring a model, on Models, and wait until the server has said what became of it."""
    button(page, "models.add.open").click()
    page.get_by_role("tab", name=uploads.TAB).click()
    page.locator(".st-key-models-upload input[type=file]").set_input_files(path)
    page.wait_for_selector('.drop[aria-busy="false"]')  # it has none before the first file
    finished(page)


def run_button(page: Page) -> Locator:
    """The one primary button of Tune; other buttons have "run" in their names too."""
    return button(page, "run")


def started(page: Page, press: Locator) -> str:
    """Press a button that starts a job, and return the id that the address then contains."""
    before = named(page.url)
    expect(press).to_be_enabled()
    press.click()
    page.wait_for_url(lambda url: named(url) != before, wait_until="commit")
    return next(ids[0] for name, ids in named(page.url).items() if ids != before.get(name))


def named(url: str) -> dict[str, list[str]]:
    """The results that an address names; the form beside them changes with everything that is typed."""
    return {name: found for name, found in parse_qs(urlsplit(url).query).items() if name != "form"}


def presented(page: Page) -> str:
    """Begin a presentation on `page`; the address that others open to follow it."""
    button(page, "follow.present").click()
    dialog = page.get_by_role("dialog")
    link = dialog.get_by_test_id("stCode")
    expect(link).to_contain_text("follow=")
    address = re.sub(r"\s", "", link.inner_text())
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    return address


def reset(page: Page) -> None:
    """Reset all settings, and wait until they are: what is set or opened before is lost."""
    button(page, "reset.all").click()
    expect(page.locator(".st-key-reset-all")).to_have_count(0)
    finished(page)


def number(page: Page, name: str) -> Locator:
    """The field of a setting, by its ORT name."""
    return field(page, f"knob-{name}")


def set_number(page: Page, name: str, value: int) -> None:
    type_into(page, f"knob-{name}", str(value))


def result_shown(page: Page) -> None:
    """Wait for the result of the race that the address names."""
    expect(page.locator(".st-key-live")).to_have_count(0, timeout=JOB_MS)
    expect(page.locator(".st-key-cancel")).to_have_count(0)
    expect(run_button(page)).to_be_enabled()
    finished(page)
    expect(page.locator(".st-key-numbers")).to_be_visible()
