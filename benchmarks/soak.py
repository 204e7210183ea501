"""Growth of a dashboard under load: `python benchmarks/soak.py [--minutes 120] [--sessions 20]`.

A real server on recorded results, and visitors without a browser: each opens pages one after the other, and
after every few pages a session of its own ends and another begins. One more measures a small model, as often
as jobs are wanted, waits for each result and deletes it. In Chromium, followers see what a presenter opens,
and a visitor uploads models and deletes them. After the first part, `--warm`, the server is sampled: memory,
file descriptors, threads, files of its data folder, and bytes of the database. Worker processes and temporary
folders come and go with each job: those count that are left when all visitors have gone.

Growth is a slope over the rest of the time, from means of ten blocks, as a share of the mean, with its 95 %
interval. Afterwards a new server starts beside the loaded one, on the same recorded results, and a single
visitor opens all pages of one, then of the other, in turns: what the loaded one takes more has grown in it,
whatever the machine does meanwhile. Targets: growth ≤ 5 %; p95 of a page ≤ 2 × that of a single visitor
before; no error in the log or on a page; nothing left; no more audit and form files than their bounds. Exit
code 1: a target was missed, the interval considered; 3: too few samples to tell, too few jobs (90 %), or a
kind of visitor did nothing.
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

from benchmarks import experiment as lab  # noqa: E402
from benchmarks import soak_visitors as visitors  # noqa: E402
from benchmarks.soak_visitors import Seen  # noqa: E402
from core.evidence.statistics import t_quantile  # noqa: E402
from core.store import STORE_NAME, Store, audit  # noqa: E402
from dashboard import form_state  # noqa: E402
from tests import tiny_models  # noqa: E402
from tests.e2e.conftest import recorded_home  # noqa: E402
from tests.serving import LOG, serving  # noqa: E402

MOST_GROWTH = 0.05
MOST_SLOWER = 2.0
BLOCKS = 10
FOLLOWERS = 2
# folders of the data folder that remove their oldest files themselves, and their largest number of files
LIMITED = {"audit": audit.FILES + 2, "forms": form_state.MOST + form_state.EVERY}  # and its lock and `last`
PASSING = ("processes", "temporary folders")  # of a job
LEAST_JOBS = 0.9  # of those that were wanted
ALONE_S = 60.0  # of a single visitor, before
TELL_S = 300.0  # between two lines of progress
SETTLE_S = 60.0  # for what ends after the last visitor has gone
EXPLAINED = 60  # lines of the log from an error on: a traceback of Streamlit shows the source of each call


def sample(server: psutil.Process, home: Path) -> dict[str, float]:
    """Return what the server holds now."""
    temporary = Path(tempfile.gettempdir()).glob("ortune*")
    files = 0
    for folder, below, names in os.walk(home):  # ignores folders that are removed meanwhile
        files += len(names)
        if Path(folder) == home:
            below[:] = [name for name in below if name not in LIMITED]
    return {
        "memory": server.memory_info().rss,
        "file descriptors": server.num_fds(),
        "threads": server.num_threads(),
        "processes": 1 + len(server.children(recursive=True)),
        "temporary folders": sum(1 for _ in temporary),
        "files of the data folder": files,
        "bytes of the database": _size(home / STORE_NAME) + _size(home / f"{STORE_NAME}-wal"),
        **{name: sum(1 for _ in (home / name).glob("*")) for name in LIMITED},
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # the last connection removes the log of a database
        return 0


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


def slower(fresh: Sequence[float], worn: Sequence[float]) -> tuple[float, float, float] | None:
    """Return how much longer a page takes as a share, and its 95 % interval; None: too few.

    Each turn opens the same pages on both servers, one after the other. The interval is Student's of the
    logarithms of the ratios of turns.
    """
    turn = len(visitors.SHOWN)
    turns = [slice(at, at + turn) for at in range(0, min(len(fresh), len(worn)) - turn + 1, turn)]
    ratios = [math.log(math.fsum(worn[one]) / math.fsum(fresh[one])) for one in turns]
    if len(ratios) < 3:
        return None
    middle = statistics.fmean(ratios)
    half = t_quantile(0.975, len(ratios) - 1) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    return tuple(math.expm1(one) for one in (middle, middle - half, middle + half))  # type: ignore[return-value]


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile by nearest rank."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


@dataclass
class Outcome:
    """What a soak has seen."""

    samples: list[dict[str, float]] = field(default_factory=list)
    alone: Seen = field(default_factory=Seen)  # a single visitor, before
    loaded: Seen = field(default_factory=Seen)
    worn: Seen = field(default_factory=Seen)  # a single visitor again, when all others have gone
    fresh: Seen = field(default_factory=Seen)  # the same of a new server, in turns
    seconds: float = 0.0  # from the first sample to the last
    left: dict[str, float] = field(default_factory=dict)  # by each of PASSING: more than before the load


@dataclass(frozen=True)
class Load:
    """How much is done, and for how long."""

    seconds: float
    warm_s: float
    sessions: int
    jobs: int


async def soak(url: str, server: psutil.Process, home: Path, load: Load) -> Outcome:
    """Load a server, and return what was seen after the first part."""
    found = Outcome()
    store = Store(home / STORE_NAME)
    await visitors.read(url, time.monotonic() + 1, 0, Seen(), look_s=0)  # what the server reads once
    alone_s = min(ALONE_S, load.seconds / 10)
    await visitors.read(url, time.monotonic() + alone_s, 0, found.alone, look_s=0)
    before = sample(server, home)
    seen = found.loaded
    async with visitors.chromium(seen) as browser, asyncio.TaskGroup() as group:
        until = time.monotonic() + load.seconds
        work = {f"reader {at}": visitors.read(url, until, at, seen) for at in range(load.sessions)}
        work["jobs"] = visitors.measure(url, store, until, load.jobs, seen)
        if browser is not None:
            model = tiny_models.mlp(Path(tempfile.mkdtemp(prefix="soak-")) / "model.onnx")
            work["presenter"] = visitors.present(url, browser, until, FOLLOWERS, seen)
            work["uploads"] = visitors.upload(url, browser, until, model, store, seen)
        for name, one in work.items():
            group.create_task(visitors.record_errors(name, one, seen))
        await _watch(found, server, home, load, until)
    settled = time.monotonic() + SETTLE_S
    while True:
        after = sample(server, home)
        found.left = {name: max(after[name] - before[name], 0.0) for name in PASSING}
        if not any(found.left.values()) or time.monotonic() > settled:
            break
        await asyncio.sleep(1)
    return found


async def side_by_side(url: str, fresh: str, found: Outcome, seconds: float) -> None:
    """Let a visitor open the pages of the loaded server and of a fresh one; a first turn does not count."""
    await visitors.turn(fresh, Seen())
    await visitors.turn(url, Seen())
    until = time.monotonic() + seconds
    sides = [(url, found.worn), (fresh, found.fresh)]
    while time.monotonic() < until:
        for address, seen in sides:
            await visitors.turn(address, seen)
        sides.reverse()


async def _watch(found: Outcome, server: psutil.Process, home: Path, load: Load, until: float) -> None:
    """Sample the server after the first part."""
    await asyncio.sleep(min(load.warm_s, load.seconds / 2))
    began = time.monotonic()
    every_s = min(10.0, (until - began) / (3 * BLOCKS))
    told_s, pages = 0.0, len(found.loaded.took)
    while time.monotonic() < until:
        found.samples.append(await asyncio.to_thread(sample, server, home))
        found.seconds = time.monotonic() - began
        if found.seconds >= told_s + TELL_S:
            wrong = len(found.loaded.failed) + len(errors(home))
            print(_progress(found, found.loaded.took[pages:], wrong), file=sys.stderr, flush=True)
            told_s, pages = found.seconds, len(found.loaded.took)
        await asyncio.sleep(every_s)


def _progress(found: Outcome, took: Sequence[float], wrong: int) -> str:
    """Describe the last minutes in a line; `took`: seconds of their pages, `wrong`: errors so far."""
    last, seen = found.samples[-1], found.loaded
    held = ", ".join(f"{name} {value:,.0f}" for name, value in last.items())
    pages = f"{len(took)} pages, p95 {p95(took):.2f} s" if took else "no page"
    return f"{found.seconds / 60:.0f} min: {pages}; {held}; {seen.jobs} jobs, {wrong} errors"


def errors(home: Path) -> list[str]:
    """Return the errors that the server's log tells, each with the lines that explain it."""
    lines = (home / LOG).read_text(errors="replace").splitlines()
    found: list[str] = []
    explained = 0  # lines up to here belong to the last error
    for at, line in enumerate(lines):
        if at >= explained and any(word in line for word in ("Traceback", "ERROR", "Exception")):
            explained = at + EXPLAINED
            found.append("\n".join(lines[at:explained]))
    return found


def report(found: Outcome, log: Sequence[str], jobs: int) -> int:
    """Print what was seen beside the targets, and return the exit code; `jobs`: how many were wanted."""
    seen = found.loaded
    missed = unknown = False
    over = f"growth in {found.seconds / 60:.1f} min, {len(found.samples)} samples"
    grown = []
    bounded = (*PASSING, *LIMITED)
    for name in [one for one in found.samples[0] if one not in bounded] if found.samples else ():
        values = [one[name] for one in found.samples]
        grown.append((name, over, growth(values), f", {min(values):,.0f} to {max(values):,.0f}"))
    worn = found.worn.took
    visit = f"growth over a fresh server beside it, {len(worn)} pages of each"
    grown.append(("seconds of a page", visit, slower(found.fresh.took, worn), ""))
    for name, what, estimate, more in grown:
        if estimate is None:
            unknown = True
            lab.row(name, what, "too few", f"≤ {MOST_GROWTH:.0%}")
            continue
        share, low, high = estimate
        missed |= low > MOST_GROWTH
        unknown |= low <= MOST_GROWTH < high
        lab.row(name, what, f"{share:+.1%} [{low:+.1%}, {high:+.1%}]{more}", f"≤ {MOST_GROWTH:.0%}")
    for name, most in LIMITED.items() if found.samples else ():
        many = max(one[name] for one in found.samples)
        missed |= many > most
        lab.row(f"files of {name}", "largest number", f"{many:g}", f"≤ {most}")
    for name, many in found.left.items():
        missed |= many > 0
        lab.row(name, "left when all visitors have gone", f"{many:g}", "0")
    alone = found.alone.took
    quiet, loaded = p95(alone), p95(seen.took)
    missed |= loaded > MOST_SLOWER * quiet
    pages = f"{len(seen.took)} pages; alone {quiet:.2f} s, {len(alone)} pages"
    lab.row("p95 of a page", pages, f"{loaded / quiet:.1f} ×", f"≤ {MOST_SLOWER:g} ×")
    done = {
        "jobs": ("measured and deleted", seen.jobs, max(1, math.ceil(LEAST_JOBS * jobs))),
        "pages": ("of a presenter, shown by followers", seen.followed, 1),
        "models": ("uploaded and deleted", seen.uploads, 1),
    }
    for name, (kind, many, least) in done.items():
        unknown |= many < least
        lab.row(name, kind, f"{many}", f"≥ {least}")
    wrong = [*log, *found.alone.failed, *seen.failed, *found.worn.failed, *found.fresh.failed]
    lab.row("errors", "in the log and on pages", f"{len(wrong)}", "0")
    for line in [*filter(None, [seen.missing]), *wrong[:20]]:
        print(line)
    return 1 if missed or wrong else 3 if unknown or not found.samples else 0


def main() -> int:
    """Load a server of its own, and print the growth."""
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
    return report(found, log, given.jobs)


def _served(home: Path, given: argparse.Namespace) -> tuple[Outcome, list[str]]:
    with serving(home) as (url, process):
        server = psutil.Process(process.pid)
        load = Load(60 * given.minutes, 60 * given.warm, given.sessions, given.jobs)
        found = asyncio.run(soak(url, server, home, load))
        with recorded_home() as other, serving(other) as (fresh, _):
            compared = side_by_side(url, fresh, found, min(2 * ALONE_S, load.seconds / 5))
            asyncio.run(visitors.record_errors("side by side", compared, found.worn))
            return found, errors(home) + errors(other)


if __name__ == "__main__":
    sys.exit(main())
