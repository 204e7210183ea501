"""Growth of a dashboard under load: `python benchmarks/soak.py [--minutes 120] [--sessions 20]`.

A real server on recorded results, and visitors that speak Streamlit's WebSocket protocol without a browser.
Each opens pages one after the other, and after every few pages a session of its own ends and another begins.
One more presses Run as often as jobs are wanted, and cancels each job when it draws its page again. After the
first part, `--warm`, the server is sampled: memory, file descriptors, threads, processes, temporary folders,
and bytes of the database per kept result.

Growth is a slope over the rest of the time, from means of ten blocks, as a share of the mean, with its 95 %
interval. Targets: growth ≤ 5 %; p95 of a page ≤ 2 × that of a single visitor before; no error in the log or
on a page. Exit code 1: a target was missed, the interval considered; 3: too few samples to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

import psutil  # noqa: E402
from streamlit.proto.BackMsg_pb2 import BackMsg  # noqa: E402
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg  # noqa: E402
from websockets.asyncio.client import ClientConnection, connect  # noqa: E402

from benchmarks import experiment as lab  # noqa: E402
from core.evidence.statistics import t_quantile  # noqa: E402
from core.store import STORE_NAME, Store  # noqa: E402
from tests.serving import LOG, serving  # noqa: E402

PAGES = ("", "compare", "search", "sweep", "profile", "graph", "models", "history", "machine", "explain")
PAGES_PER_SESSION = 5
THINK_S = 1.0  # between two pages of one visitor
PAGE_S = 120.0  # a page that is not drawn by then is an error
MOST_GROWTH = 0.05
MOST_SLOWER = 2.0
BLOCKS = 10
RUN = "-run"  # end of the id of Tune's button


@dataclass
class Visit:
    """One session: its connection, and what its last page offered."""

    socket: ClientConnection
    buttons: list[str] = field(default_factory=list)  # ids of the buttons of the last page
    failed: list[str] = field(default_factory=list)  # exceptions that pages showed

    async def draw(self, page: str, pressed: str = "") -> float:
        """Ask for a page, press a named button of it first; return the seconds until it is drawn."""
        message = BackMsg()
        state = message.rerun_script
        state.page_name = page
        if pressed:
            trigger = state.widget_states.widgets.add()
            trigger.id, trigger.trigger_value = pressed, True
        began = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        self.buttons.clear()
        async with asyncio.timeout(PAGE_S):
            while not self._done(ForwardMsg.FromString(await self._bytes())):
                pass
        return time.perf_counter() - began

    async def _bytes(self) -> bytes:
        found = await self.socket.recv()
        return found if isinstance(found, bytes) else found.encode()

    def _done(self, message: ForwardMsg) -> bool:
        kind = message.WhichOneof("type")
        if kind == "delta":
            element = message.delta.new_element
            if element.WhichOneof("type") == "button":
                self.buttons.append(element.button.id)
            elif element.WhichOneof("type") == "exception":
                self.failed.append(element.exception.message)
        finished = kind == "script_finished"
        return finished and message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY


def visit(url: str) -> connect:
    """Return the connection of a new session."""
    address = url.replace("http://", "ws://") + "/_stcore/stream"
    return connect(address, origin=url, subprotocols=["streamlit"], max_size=None)  # type: ignore[arg-type,list-item]


async def visitor(url: str, until: float, offset: int, took: list[float], failed: list[str]) -> None:
    """Open sessions, and pages in each, until a time; the first page of every visitor is another one."""
    number = offset
    while time.monotonic() < until:
        async with visit(url) as socket:
            one = Visit(socket)
            for _ in range(PAGES_PER_SESSION):
                took.append(await one.draw(PAGES[number % len(PAGES)]))
                number += 1
                failed += one.failed
                one.failed.clear()
                await asyncio.sleep(THINK_S)


async def jobs(url: str, store: Store, until: float, many: int, failed: list[str]) -> int:
    """Press Run so many times, spread over the time; cancel each job. Return how many were started."""
    started = 0
    pause = max((until - time.monotonic()) / max(many, 1), 0.0)
    while started < many and time.monotonic() < until:
        async with visit(url) as socket:
            one = Visit(socket)
            await one.draw("")
            run = next((name for name in one.buttons if name.endswith(RUN)), "")
            if not run:
                failed.append("Tune has no Run button.")
                return started
            before = {trial.id for trial in store.trials(limit=1000)}
            await one.draw("", run)
            started += bool({trial.id for trial in store.trials(limit=1000)} - before)
            await asyncio.sleep(pause)
            await one.draw("")
            cancel = next((name for name in one.buttons if name.endswith("-cancel")), "")
            if cancel:
                await one.draw("", cancel)
            failed += one.failed
    return started


def sample(server: psutil.Process, home: Path) -> dict[str, float]:
    """Return what the server holds now."""
    children = server.children(recursive=True)
    temporary = Path(tempfile.gettempdir()).glob("ortune*")
    results = len(Store(home / STORE_NAME).trials(limit=100_000))
    return {
        "memory": server.memory_info().rss,
        "file descriptors": server.num_fds(),
        "threads": server.num_threads(),
        "processes": 1 + len(children),
        "temporary folders": sum(1 for _ in temporary),
        "bytes per result": (home / STORE_NAME).stat().st_size / max(results, 1),
    }


def growth(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Return the growth over all samples as a share of their mean, and its 95 % interval; None: too few.

    Samples are correlated in time, so the line is fitted to the means of ten blocks.
    """
    if len(values) < 2 * BLOCKS:
        return None
    size = len(values) // BLOCKS
    means = [statistics.fmean(values[at * size : (at + 1) * size]) for at in range(BLOCKS)]
    middle = statistics.fmean(means)
    if not middle:
        return (0.0, 0.0, 0.0)
    slope, intercept = statistics.linear_regression(range(BLOCKS), means)
    rest = math.fsum((mean - intercept - slope * at) ** 2 for at, mean in enumerate(means)) / (BLOCKS - 2)
    spread = math.fsum((at - (BLOCKS - 1) / 2) ** 2 for at in range(BLOCKS))
    half = t_quantile(0.975, BLOCKS - 2) * math.sqrt(rest / spread)
    return tuple((BLOCKS - 1) * one / middle for one in (slope, slope - half, slope + half))  # type: ignore[return-value]


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile by nearest rank."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@dataclass
class Outcome:
    """What a soak has seen."""

    samples: list[dict[str, float]] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)  # seconds of a page with one visitor
    loaded: list[float] = field(default_factory=list)  # seconds of a page under load
    failed: list[str] = field(default_factory=list)  # exceptions that pages showed
    started: int = 0  # jobs


async def soak(
    url: str,
    server: psutil.Process,
    home: Path,
    *,
    seconds: float,
    warm_s: float,
    sessions: int,
    many_jobs: int,
) -> Outcome:
    """Load a server, and return what was seen after the first part."""
    found = Outcome()
    store = Store(home / STORE_NAME)
    await visitor(url, time.monotonic() + 1, 0, [], found.failed)  # what the server reads once
    for offset in range(0, len(PAGES), PAGES_PER_SESSION):
        await visitor(url, time.monotonic() + 1, offset, found.quiet, found.failed)
    until = time.monotonic() + seconds
    load = [
        asyncio.create_task(visitor(url, until, offset, found.loaded, found.failed))
        for offset in range(sessions)
    ]
    pressing = asyncio.create_task(jobs(url, store, until, many_jobs, found.failed))
    await asyncio.sleep(min(warm_s, seconds / 2))
    every_s = min(10.0, (until - time.monotonic()) / (3 * BLOCKS))
    while time.monotonic() < until:
        found.samples.append(await asyncio.to_thread(sample, server, home))
        await asyncio.sleep(every_s)
    await asyncio.gather(*load)
    found.started = await pressing
    return found


def errors(home: Path) -> list[str]:
    """Return the lines of the server's log that tell an error."""
    lines = (home / LOG).read_text(errors="replace").splitlines()
    return [line for line in lines if "Traceback" in line or "ERROR" in line or "Exception" in line]


def report(found: Outcome, log: Sequence[str]) -> int:
    """Print what was seen beside the targets, and return the exit code."""
    missed = unknown = False
    for name in found.samples[0]:
        seen = growth([one[name] for one in found.samples])
        if seen is None:
            unknown = True
            lab.row(name, f"{len(found.samples)} samples", "too few samples", f"≤ {MOST_GROWTH:.0%}")
            continue
        share, low, high = seen
        missed |= low > MOST_GROWTH
        unknown |= low <= MOST_GROWTH < high
        last = found.samples[-1][name]
        text = f"{share:+.1%} [{low:+.1%}, {high:+.1%}], at the end {last:,.0f}"
        lab.row(name, "growth after the first part", text, f"≤ {MOST_GROWTH:.0%}")
    quiet, loaded = p95(found.quiet), p95(found.loaded)
    missed |= loaded > MOST_SLOWER * quiet
    pages = f"{len(found.loaded)} pages; alone {quiet:.2f} s"
    lab.row("p95 of a page", pages, f"{loaded / quiet:.1f} ×", f"≤ {MOST_SLOWER:g} ×")
    lab.row("jobs", "started and cancelled", f"{found.started}", "")
    lab.row("errors", "in the log and on pages", f"{len(log) + len(found.failed)}", "0")
    for line in [*log, *found.failed][:20]:
        print(line)
    return 1 if missed or log or found.failed else 3 if unknown else 0


def main() -> int:
    """Load a server of its own, and print the growth."""
    from tests.e2e.conftest import recorded_home

    parser = lab.options(__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--warm", type=float, default=10.0, metavar="MINUTES", help="before the first sample")
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=300)
    given = parser.parse_args()
    lab.head(lab.this_machine())
    with tempfile.TemporaryDirectory() as own, recorded_home() as home:
        os.environ["TMPDIR"] = tempfile.tempdir = own  # of this server alone
        found, log = _served(home, given)
    return report(found, log)


def _served(home: Path, given: argparse.Namespace) -> tuple[Outcome, list[str]]:
    with serving(home) as (url, process):
        server = psutil.Process(process.pid)
        load = soak(
            url,
            server,
            home,
            seconds=60 * given.minutes,
            warm_s=60 * given.warm,
            sessions=given.sessions,
            many_jobs=given.jobs,
        )
        found = asyncio.run(load)
        return found, errors(home)


if __name__ == "__main__":
    sys.exit(main())
