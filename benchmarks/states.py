"""Background load while an experiment measures: none, busy processes, a browser on the dashboard.

The load is started on purpose, given time to settle, and ended when the `with` ends or the experiment is
killed. Whether the idle state was idle is judged afterwards, by the counters (`experiment.duel`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks import models
from tests.serving import end, serving

ROOT = Path(__file__).resolve().parent.parent
STATES = ("quiet", "burner", "burners", "browser")
WORDS = {
    "quiet": "idle",
    "burner": "one background process",
    "burners": "two background processes",
    "browser": "a browser on the dashboard",
    "not quiet": "meant to be idle, but was not",
}
SETTLE_S = 2.0  # a background process that has just started, or ended, has not settled
RELOAD_S = 3.0  # between two loads of the page

BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:  # a killed experiment must not leave it burning
    for _ in range(1_000_000):
        pass
"""

VISIT = """
import select, sys
from playwright.sync_api import sync_playwright
from tests.e2e.conftest import ARGUMENTS, _executable

url, reload_s = sys.argv[1], float(sys.argv[2])
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=_executable(), args=list(ARGUMENTS))
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(url)
    page.get_by_test_id("stHeading").first.wait_for()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], reload_s)[0]:  # its end says that the experiment is over
        page.reload()
    browser.close()
"""


Check = Callable[[], None]


class States:
    """The states of this machine; `enter` one at a time."""

    def __init__(self, folder: Path) -> None:
        """Keep what the dashboard of state "browser" shows in `folder`."""
        self._home = folder / "dashboard"

    @contextlib.contextmanager
    def enter(self, state: str) -> Iterator[Check]:
        """Be in `state` while the body runs; the yielded call ends the script if the load has ended."""
        with contextlib.ExitStack() as stack:
            background: list[subprocess.Popen[bytes]] = []
            match state:
                case "quiet":
                    pass
                case "burner" | "burners":
                    count = 1 if state == "burner" else 2
                    background += [stack.enter_context(busy_process()) for _ in range(count)]
                case "browser":
                    background += stack.enter_context(self._browser())
                case _:
                    raise SystemExit(f"`{state}` is no state of this machine: {', '.join(STATES)}.")
            time.sleep(SETTLE_S)
            yield lambda: _still_there(background)

    @contextlib.contextmanager
    def _browser(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """A visitor of a finished comparison: the page polls, and reloads every few seconds."""
        trial = self._furnished()
        with serving(self._home) as (url, server), _visitor(f"{url}/?trial={trial}") as visitor:
            yield [server, visitor]

    def _furnished(self) -> str:
        """The id of a finished trial in the dashboard's folder; it is measured if there is none."""
        note = self._home / "trial"
        if not note.is_file():
            self._home.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "core", "tune", str(models.DIGITS), "--json"]
            command += ["--runs", "200", "--intra-op-num-threads", "1"]
            done = subprocess.run(
                command, cwd=ROOT, env=own(self._home), capture_output=True, text=True, timeout=300
            )
            if not done.stdout:
                raise SystemExit(f"The comparison for the dashboard failed: {done.stderr[-500:]}")
            note.write_text(_trial(done.stdout))
        return note.read_text()


def _still_there(background: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the script where a neighbour has gone: what was just measured was not measured beside it."""
    if any(one.poll() is not None for one in background):
        raise SystemExit("A neighbour was gone before the duel beside it was over; that one is not kept.")


def _trial(document: str) -> str:
    found: dict[str, Any] = json.loads(document)
    return str(found["trial"])


def own(home: Path) -> dict[str, str]:
    """The environment of an ORTune that keeps everything in `home`, its queue of this machine included."""
    return {**os.environ, "ORTUNE_HOME": str(home), "ORTUNE_QUEUE": str(home / "queue")}


@contextlib.contextmanager
def busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that burns one core for as long as the body runs."""
    process = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def background_load(wanted: bool) -> Iterator[None]:
    """One burner, settled; nothing when it is not wanted."""
    if not wanted:
        yield
        return
    with busy_process():
        time.sleep(SETTLE_S)
        yield


@contextlib.contextmanager
def _visitor(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A headless Chromium that shows `url`."""
    visitor = subprocess.Popen(
        [sys.executable, "-c", VISIT, url, str(RELOAD_S)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert visitor.stdin is not None
    assert visitor.stdout is not None
    try:
        if not _said_ready(visitor.stdout):
            raise SystemExit("The browser did not open the dashboard; see above. It needs chromium.")
        yield visitor
    finally:
        visitor.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            visitor.wait(20)
        visitor.stdout.close()
        end(visitor)


def _said_ready(output: IO[bytes]) -> bool:
    return output.readline() == b"ready\n"
