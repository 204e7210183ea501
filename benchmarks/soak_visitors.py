"""Visitors of a dashboard, for `benchmarks/soak.py`: sessions without a browser, and pages in Chromium.

Sessions without a browser speak Streamlit's WebSocket protocol. One of them measures and deletes its results,
another presents. Chromium follows the presenter, uploads models and deletes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.async_api import Browser, Error, Page, async_playwright, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from core.store import Store
from dashboard import messages, presenting
from dashboard.pages import PAGES
from tests.e2e.conftest import ARGUMENTS, HOW_TO_GET_IT, PATIENCE_MS, _executable

SHOWN = ("", "compare", "search", "sweep", "profile", "graph", "models", "history", "machine", "explain")
PRESENTED = ("history", "machine", "compare", "profile")
PAGES_PER_SESSION = 5
LOOK_S = 10.0  # for which a visitor looks at a page, in the mean; exponential
PRESENT_S = 15.0  # for which a presenter stays on a page
UPLOAD_S = 60.0  # between two uploads
PAGE_S = 120.0  # a page that is not drawn by then is an error
JOB_S = 300.0  # so is a job that has not ended
BUDGET_S = 15  # of a comparison, which includes the start of its processes
RUN, BUDGET, PRESENT = "-run", "-knob.budget_s", "-follow.present"  # ends of the ids of widgets
ENDED = ("COMPLETE", "FAIL", "CANCELLED", "DAMAGED")


expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Seen:
    """What all visitors have seen and done."""

    took: list[float] = field(default_factory=list)  # seconds of each page without a browser
    failed: list[str] = field(default_factory=list)  # unexpected errors of pages, and what did not happen
    jobs: int = 0  # that ended with a result, which was deleted
    followed: int = 0  # pages that a follower has shown after its presenter
    uploads: int = 0  # models that came to the library and were deleted
    missing: str = ""  # why there were no pages in Chromium


@dataclass
class Visit:
    """One session: its connection, and what its last page offered."""

    socket: ClientConnection
    widgets: list[str] = field(default_factory=list)  # ids of buttons and of fields for numbers
    codes: list[str] = field(default_factory=list)  # texts to copy
    failed: list[str] = field(default_factory=list)  # unexpected errors that pages showed

    async def draw(self, page: str, pressed: str = "", set_to: Mapping[str, int] | None = None) -> float:
        """Ask for a page, set numbers and press a button first; return the seconds until it is drawn.

        Args:
            page: address of the page.
            pressed: end of the id of a button of the last page.
            set_to: the same of fields, and their numbers.
        """
        message = BackMsg()
        state = message.rerun_script
        state.page_name = page
        for name, number in (set_to or {}).items():
            field_of_number = state.widget_states.widgets.add()
            field_of_number.id, field_of_number.int_value = self.widget(name), number
        if pressed:
            trigger = state.widget_states.widgets.add()
            trigger.id, trigger.trigger_value = self.widget(pressed), True
        began = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        for drawn in (self.widgets, self.codes):
            drawn.clear()
        async with asyncio.timeout(PAGE_S):
            while not self._done(ForwardMsg.FromString(await self._bytes())):
                pass
        return time.perf_counter() - began

    def widget(self, end: str) -> str:
        """Return the id of a widget of the last page.

        Raises:
            LookupError: the page has none.
        """
        found = next((name for name in self.widgets if name.endswith(end)), "")
        if not found:
            raise LookupError(f"The page has no widget `{end}`.")
        return found

    async def _bytes(self) -> bytes:
        found = await self.socket.recv()
        return found if isinstance(found, bytes) else found.encode()

    def _done(self, message: ForwardMsg) -> bool:
        kind = message.WhichOneof("type")
        if kind == "delta":
            element = message.delta.new_element
            match element.WhichOneof("type"):
                case "button":
                    self.widgets.append(element.button.id)
                case "number_input":
                    self.widgets.append(element.number_input.id)
                case "code":
                    self.codes.append(element.code.code_text)
                case "alert" if element.alert.title == messages.UNEXPECTED:
                    self.failed.append(element.alert.body)
        finished = kind == "script_finished"
        return finished and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY


def visit(url: str) -> connect:
    """Return the connection of a new session."""
    address = url.replace("http://", "ws://") + "/_stcore/stream"
    return connect(address, origin=url, subprotocols=["streamlit"], max_size=None)  # type: ignore[arg-type,list-item]


async def record_errors(name: str, work: Awaitable[None], seen: Seen) -> None:
    """Let a visitor work; what ends it early is an error that was seen."""
    try:
        await work
    except (AssertionError, Error, LookupError, OSError, TimeoutError, WebSocketException) as error:
        first = str(error).partition("\n")[0]
        seen.failed.append(f"The visitor `{name}` ended early: {type(error).__name__}: {first}")


async def pause(seconds: float, until: float) -> None:
    """Wait, but not beyond a time."""
    await asyncio.sleep(max(min(seconds, until - time.monotonic()), 0.0))


async def read(url: str, until: float, offset: int, seen: Seen, look_s: float = LOOK_S) -> None:
    """Open sessions, and pages in each, until a time; the first page of every visitor is another one."""
    number = offset
    await _look(look_s, until)  # so that visitors do not all come at once
    while time.monotonic() < until:
        await _session(url, number, seen, look_s, until)
        number += PAGES_PER_SESSION


async def turn(url: str, seen: Seen) -> None:
    """Open every page once."""
    for number in range(0, len(SHOWN), PAGES_PER_SESSION):
        await _session(url, number, seen)


async def _session(url: str, number: int, seen: Seen, look_s: float = 0.0, until: float = math.inf) -> None:
    """Open a session and some pages in it, the first of which has this number; look at each."""
    async with visit(url) as socket:
        one = Visit(socket)
        for at in range(number, number + PAGES_PER_SESSION):
            seen.took.append(await one.draw(SHOWN[at % len(SHOWN)]))
            seen.failed += one.failed
            one.failed.clear()
            await _look(look_s, until)


async def _look(mean_s: float, until: float) -> None:
    await pause(random.expovariate(1 / mean_s) if mean_s else 0.0, until)


async def measure(url: str, store: Store, until: float, most: int, seen: Seen) -> None:
    """Press Run so many times, spread over the time; wait for each result, and delete it."""
    every_s = max((until - time.monotonic()) / max(most, 1), 0.0)
    while seen.jobs < most and time.monotonic() < until:
        began = time.monotonic()
        async with visit(url) as socket:
            one = Visit(socket)
            await one.draw("")
            before = await asyncio.to_thread(_trials, store)
            await one.draw("", RUN, {BUDGET: BUDGET_S})
            states = await _ended(store, set(before))
            await one.draw("")
            seen.failed += one.failed
        wrong = {name: state for name, state in states.items() if state != "COMPLETE"}
        if wrong or not states:
            why = [str(store.trial(name).error) for name in wrong]
            seen.failed.append(f"A job ended without a result: {wrong or 'Run started nothing'} {why}.")
        else:
            seen.jobs += 1
        await asyncio.to_thread(store.delete_finished, list(states))
        await asyncio.sleep(max(every_s - (time.monotonic() - began), 0.0))


def _trials(store: Store) -> dict[str, str]:
    return {trial.id: trial.state for trial in store.trials(limit=100_000)}


async def _ended(store: Store, before: set[str]) -> dict[str, str]:
    """Return the states of the new trials as soon as they have ended; nothing: none came."""
    found: dict[str, str] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(JOB_S):
            while not found or not all(state in ENDED for state in found.values()):
                await asyncio.sleep(0.5)
                all_of_them = await asyncio.to_thread(_trials, store)
                found = {name: state for name, state in all_of_them.items() if name not in before}
    return found


# --- pages in Chromium


@contextlib.asynccontextmanager
async def chromium(seen: Seen) -> AsyncIterator[Browser | None]:
    """Start a browser; None, with the reason in `missing`: there is none."""
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
        except Error as error:
            seen.missing = f"{HOW_TO_GET_IT} ({error.message.splitlines()[0]})"
            yield None
            return
        yield browser
        await browser.close()


@contextlib.asynccontextmanager
async def opened(browser: Browser, address: str) -> AsyncIterator[Page]:
    """Open an address as a new visitor."""
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = await context.new_page()
        await page.goto(address)
        yield page
    finally:
        await context.close()


async def present(url: str, browser: Browser, until: float, followers: int, seen: Seen) -> None:
    """Present pages to followers until a time; each must show them all. Every presentation has a new link."""
    while time.monotonic() < until:
        async with visit(url) as socket, contextlib.AsyncExitStack() as stack:
            one = Visit(socket)
            await one.draw(PRESENTED[-1])
            await one.draw(PRESENTED[-1], PRESENT)
            (token,) = parse_qs(urlsplit(one.codes[-1]).query)[presenting.PARAM]
            link = f"{url}/?{presenting.PARAM}={token}"
            pages = [await stack.enter_async_context(opened(browser, link)) for _ in range(followers)]
            for name in PRESENTED:
                await one.draw(name)
                await asyncio.gather(*(_shows(page, PAGES[name].title) for page in pages))
                seen.followed += followers
                await pause(PRESENT_S, until)
            seen.failed += one.failed


async def _shows(page: Page, title: str) -> None:
    await expect(page.get_by_role("heading", name=title, level=1, exact=True)).to_be_visible()
    await page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]')


async def upload(url: str, browser: Browser, until: float, model: Path, store: Store, seen: Seen) -> None:
    """Upload a model, and delete it, until a time; a new session each time."""
    while time.monotonic() < until:
        file = model.with_name(f"soak_{seen.uploads}.onnx")
        shutil.copyfile(model, file)
        async with opened(browser, f"{url}/models") as page:
            await page.locator(".st-key-models-add-open button").first.click()
            await page.get_by_role("tab", name="Upload").click()
            await page.locator(".st-key-models-upload input[type=file]").set_input_files(file)
            card = page.locator(".st-key-models-card")
            await expect(card.get_by_role("heading", name=file.stem)).to_be_visible()
            await card.locator(".st-key-models-delete button").first.click()
            await page.locator(".st-key-models-confirm button").first.click()
            await expect(card.get_by_role("heading", name=file.stem)).to_have_count(0)
        file.unlink()
        left = [one.name for one in await asyncio.to_thread(store.models) if one.name == file.stem]
        seen.failed += [f"The model `{name}` is still in the library." for name in left]
        seen.uploads += not left
        await pause(UPLOAD_S, until)
