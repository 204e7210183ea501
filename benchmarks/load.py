"""Load tests against the truth: `python benchmarks/load.py all|harness|omission|passes|limit [--busy]`.

`harness`: the latency that the harness adds to the ideal queue with the same arrivals and the measured
service times, at 50, 200 and 1,000 requests per second. The models are digits_cnn with one thread and with
ORT's default threads, tiny_transformer, and a null model (a product of six numbers). Each run has fresh
processes. `--busy`: beside a process that keeps one CPU busy. Target: p50 at most 150 µs and p99 at most
500 µs on the idle machine. ORTune itself rejects a run in which more than 10 % of p50 is its own.

`omission`: the server stalls for 250 ms every 10 s (SIGSTOP and SIGCONT) at half of its capacity. One
caller in a closed loop times its requests; the open loop times them from their scheduled arrival. The truth
is the ideal queue with the arrivals of the open loop, its service times without the stalls, and the times
of the signals. Target: the open loop's p99 is within 5 % of the truth.

`passes`: the rule for limits, at the true limit. The limit of a long run, at 50 and 70 % of capacity, is
its own p99, so 1 % of its requests is slower. The run is cut into segments of 1,000 and 3,000 requests, and
each segment is judged as a run of its own. Beside it: the rule of MLPerf's LoadGen, which assumes
independent requests, at the same 95 %. Target: at most 7 % of the segments pass. `load_bounds.py` does the
same for simulated queues.

`limit`: the command `load --find-max`, asked five times for the highest rate of tiny_transformer with p99
<= 10 ms. Target: no answer confirms a rate above one at which another answer failed.

How: each run is a line of benchmarks/records/load.jsonl; a later call continues the record. A run that was
meant to be idle but was not is kept and repeated, at most as often as there should be runs. `all` runs
everything, also `harness --busy`: 8 minutes. `--short` tries everything out in a record of its own.
`--report` only prints. Exit code 1: a target is missed. 3: not missed, record not full.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import load_figures, queues, tables  # noqa: E402
from benchmarks.filling import NOT_QUIET  # noqa: E402
from benchmarks.journal import EXIT_NOT_FULL, Clock, Journal, merged, recorded, say_head, tell  # noqa: E402
from benchmarks.models import DIGITS  # noqa: E402
from benchmarks.states import ROOT, SETTLE_S, background_load, own  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.background_load import FOREIGN_CPUS, STEAL_SHARE, summarize  # noqa: E402
from core.evidence.load.load_types import Arrivals, Kind, RawRun  # noqa: E402
from core.evidence.load.queueing import ideal  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.process.contestant_workers import Worker, Workers  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402
from core.run.load.serving import Schedule, Service, serve  # noqa: E402
from core.run.plan import feed_plan, session_plan  # noqa: E402
from core.spec import WorkloadSpec, session_from_dict  # noqa: E402
from core.wire.errors import TunerError  # noqa: E402
from core.wire.limits import CpuTime, parse_cpu_time  # noqa: E402
from tests import tiny_models  # noqa: E402

NULL = "null model"
MILLISECOND = "tiny_transformer, 1 thread"  # serves too few requests for the highest rate of the harness
TOKENS = 128  # of it
LONG = "tiny_transformer of 16 tokens, 1 thread"  # of 0.15 ms: many requests in little time
TRANSFORMER = ROOT / "sample_models" / "tiny_transformer.onnx"
ONE_THREAD: Mapping[str, Any] = {"intra_op_num_threads": 1}
WARMUP_S = 2.0  # of every run, as in a load test; not counted
HARNESS_WARMUP_S = 1.0  # the harness needs none: it is the same from the first request
BUSY_RATE = 200.0  # requests/s, beside a busy process
MOST_CLOSED = 400_000  # requests of a closed loop: more than a run of 20 s completes
COMMAND_S = 600.0  # for one answer of the command


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of everything is measured."""

    runs: int  # of the harness, for each model and rate
    seconds: Mapping[float, float]  # requests/s -> counted seconds of a run of the harness
    stalled_runs: int
    closed_s: float  # counted
    stalled_s: float  # of the open loop
    passes_s: float  # counted, of each utilization
    answers: int
    budget_s: float  # of each answer


FULL = Size(
    runs=3,
    seconds={50.0: 4.0, 200.0: 2.5, 1000.0: 1.5},
    stalled_runs=3,
    closed_s=10.0,
    stalled_s=20.0,
    passes_s=32.0,
    answers=5,
    budget_s=12.0,
)
SHORT = Size(
    runs=1,
    seconds={50.0: 2.0, 200.0: 1.0, 1000.0: 1.0},
    stalled_runs=1,
    closed_s=10.0,
    stalled_s=10.0,
    passes_s=5.0,
    answers=2,
    budget_s=5.0,
)
STALL_S, EVERY_S, FIRST_STALL_S = 0.25, 10.0, WARMUP_S + 5.0
STALLED_LOAD, LOADS = 0.5, (0.5, 0.7)  # shares of capacity: in front of stalls, and of the long runs
CAPACITY_S = 1.0
MOST_MILLISECOND = 200.0  # requests/s
LIMIT = "p99<=10ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What every experiment needs."""

    size: Size
    clock: Clock
    entries: Mapping[str, Entry]
    ask: Callable[[int], dict[str, Any]]
    state: str  # "quiet" or "burner"


# --- one run ------------------------------------------------------------------------------------------------


def entry_of(label: str, path: Path, session: Mapping[str, Any], dims: Mapping[str, int]) -> Entry:
    """A configuration of one sample for each request."""
    info = run_job(wire.INSPECT, {"path": str(path)})
    plan: wire.ContestantPlan = {
        "engine": "onnxruntime",
        "model_path": str(path),
        "torch": None,
        "session": session_plan(session_from_dict(dict(session))),
        "feeds": feed_plan(WorkloadSpec(dims=dict(dims)), info),
        "use_io_binding": False,
        "warmup_runs": None,
        "cpus": [],
    }
    return Entry(label=label, plan=plan)


def subjects(folder: Path) -> dict[str, Entry]:
    """The configurations by name."""
    found = {
        name: entry_of("tiny_transformer", TRANSFORMER, ONE_THREAD, {"sequence": tokens})
        for name, tokens in ((MILLISECOND, TOKENS), (LONG, 16))
    }
    return {
        "digits_cnn, 1 thread": entry_of("digits_cnn", DIGITS, ONE_THREAD, {}),
        "digits_cnn, default threads": entry_of("digits_cnn", DIGITS, {}, {}),
        **found,
        NULL: entry_of(NULL, tiny_models.mul(folder / "null.onnx"), ONE_THREAD, {}),
    }


class _Watched(Workers):
    """Workers whose last one can be stopped from outside."""

    worker: Worker | None = None

    def start(self, label: str, **how: Any) -> Worker:
        self.worker = super().start(label, **how)
        return self.worker


class _Stalls:
    """Stops the server at the planned times of a run, and notes when."""

    def __init__(self, workers: _Watched, planned_s: Sequence[float]) -> None:
        self._workers, self._planned_s = workers, planned_s
        self._begin_s: float | None = None
        self._over = threading.Event()
        self._spans: list[queues.Span] = []
        self._thread = threading.Thread(target=self._work, daemon=True)

    def seen(self, elapsed_s: float) -> None:
        """Learn when the run began, and start with it; the earliest of several guesses is the best."""
        begin_s = time.monotonic() - elapsed_s
        if self._begin_s is None:
            self._begin_s = begin_s
            self._thread.start()
        self._begin_s = min(self._begin_s, begin_s)

    def end(self) -> list[queues.Span]:
        """The stalls, from the start of the run."""
        self._over.set()
        if self._begin_s is None:
            return []
        self._thread.join()
        return [(start - self._begin_s, end - self._begin_s) for start, end in self._spans]

    def _work(self) -> None:
        for planned_s in self._planned_s:
            assert self._begin_s is not None
            if self._over.wait(max(0.0, self._begin_s + planned_s - time.monotonic())):
                return
            worker = self._workers.worker
            if worker is None:
                return
            start = time.monotonic()
            worker.freeze()
            time.sleep(max(0.0, start + STALL_S - time.monotonic()))
            end = time.monotonic()
            worker.thaw()
            self._spans.append((start, end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A run, its stalls, and what it says about the machine."""

    run: RawRun
    stalls: Sequence[queues.Span]

    def counted(self) -> list[int]:
        """The served requests that arrived after the warm-up; of a closed loop, those that began after it."""
        run, first_ns = self.run, round(self.run.warmup_s * 1e9)
        closed = not run.arrivals.at_ns or run.arrivals.at_ns[-1] == 0
        since = run.start_ns if closed else run.arrivals.at_ns
        return [index for index, end in enumerate(run.end_ns) if end > 0 and since[index] >= first_ns]

    def served(self) -> int:
        """Requests that were served, from the first on without a gap: one stream serves them in order."""
        return next((index for index, end in enumerate(self.run.end_ns) if end <= 0), len(self.run.end_ns))

    def service_s(self) -> list[float]:
        """Service times of all served requests without the time in which the server was stalled."""
        run = self.run
        return [
            (run.end_ns[index] - run.start_ns[index]) / 1e9
            - queues.overlap((run.start_ns[index] / 1e9, run.end_ns[index] / 1e9), self.stalls)
            for index in range(self.served())
        ]

    def latency_s(self) -> list[float]:
        """Latency from the scheduled arrival of all served requests."""
        run = self.run
        return [(run.end_ns[index] - run.arrivals.at_ns[index]) / 1e9 for index in range(self.served())]

    def truth_s(self) -> list[float]:
        """Latency of the served requests in the ideal queue that stands still during the stalls."""
        at_s = [one / 1e9 for one in self.run.arrivals.at_ns[: self.served()]]
        return queues.replay(at_s, self.service_s(), self.stalls)

    def machine(self) -> dict[str, Any]:
        """Steal, other programs, and whether both were next to nothing."""
        counters, others = self.run.counters, self.run.other_processes
        steal = summarize(counters, [[]] * len(counters))["steal_share"] if counters else None
        cores = None if others is None else lab.others_of(others)
        return judged(steal, cores)


class Machine:
    """Steal and other programs since it was made, where the work itself was done by ended child processes."""

    def __init__(self) -> None:
        self._began, self._before, self._own_s = time.monotonic(), _cpu_time(), _own_cpu_s()

    def facts(self) -> dict[str, Any]:
        """As of `Ran.machine`."""
        after, steal, cores = _cpu_time(), None, None
        if self._before is not None and after is not None:
            busy_s, stolen_s = after.busy_s - self._before.busy_s, after.steal_s - self._before.steal_s
            steal = stolen_s / (busy_s + stolen_s) if busy_s + stolen_s > 0 else 0.0
            cores = max(0.0, (busy_s - _own_cpu_s() + self._own_s) / (time.monotonic() - self._began))
        return judged(steal, cores)


def _cpu_time() -> CpuTime | None:
    try:
        return parse_cpu_time(Path("/proc/stat").read_text(encoding="ascii"))
    except OSError:
        return None


def _own_cpu_s() -> float:
    """CPU time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def judged(steal: float | None, cores: float | None) -> dict[str, Any]:
    """Steal, cores that other programs used, and whether both were next to nothing."""
    quiet = steal is not None and steal < STEAL_SHARE and cores is not None and cores <= FOREIGN_CPUS
    return {"steal": steal, "others": cores, "load": os.getloadavg()[0], "quiet": quiet}


def one_run(
    entry: Entry,
    at_s: Sequence[float] | None,
    seconds: float,
    *,
    rate: float | None = None,
    stalls_s: Sequence[float] = (),
    warmup_s: float = WARMUP_S,
) -> Ran:
    """Let a fresh process serve a schedule, or a closed loop of one caller for `at_s` None.

    Raises:
        TunerError: it could not be started.
    """
    times = array("q", bytes(8 * MOST_CLOSED) if at_s is None else [round(1e9 * one) for one in at_s])
    schedule = Schedule(
        arrivals=Arrivals(at_ns=times, kind=array("H", bytes(2 * len(times)))),
        rate=rate,
        turn=0,
        warmup_s=warmup_s,
        duration_s=warmup_s + seconds,
        closed=at_s is None,
    )
    service = Service(
        index=0,
        entry=entry,
        kinds=[Kind(rows=1)],
        feeds=[entry.plan["feeds"]],
        streams=1,
        batching=None,
        timeout_s=None,
        limit_s=None,
        load_timeout_s=lab.TIMEOUT_S,
    )
    watched = _Watched(threading.Event())
    with watched as workers:
        stalls = _Stalls(watched, stalls_s)
        try:
            [run], _ = serve(workers, [(service, schedule)], lambda runs, elapsed_s: stalls.seen(elapsed_s))
        finally:
            spans = stalls.end()
    return Ran(run=run, stalls=spans)


def open_run(
    entry: Entry,
    rate: float,
    seconds: float,
    seed: int,
    *,
    stalls_s: Sequence[float] = (),
    warmup_s: float = WARMUP_S,
) -> Ran:
    """A run under Poisson arrivals; like `one_run`."""
    at_s = queues.poisson(rate, warmup_s + seconds, seed)
    return one_run(entry, at_s, seconds, rate=rate, stalls_s=stalls_s, warmup_s=warmup_s)


def capacity(entry: Entry, seconds: float, stalls_s: Sequence[float] = ()) -> tuple[float, Ran]:
    """Requests per second that one caller completes back to back, without the stalls; and the run.

    Raises:
        TunerError: it could not be started.
        ValueError: no request was served after the warm-up.
    """
    ran = one_run(entry, None, seconds, stalls_s=stalls_s)
    chosen, run = ran.counted(), ran.run
    if not chosen:
        raise ValueError(f"no request was served: {run.reason or run.outcome}")
    span = (run.start_ns[chosen[0]] / 1e9, run.end_ns[chosen[-1]] / 1e9)
    return len(chosen) / (span[1] - span[0] - queues.overlap(span, ran.stalls)), ran


# --- experiments --------------------------------------------------------------------------------------------

Make = Callable[[int], dict[str, Any]]  # number of the attempt -> what was found


def fill(
    journal: Journal, kind: str, cells: Sequence[tuple[dict[str, Any], Make]], count: int, given: Given
) -> None:
    """Measure every cell `count` times, interleaved; a run on a machine that was not idle is repeated.

    A failed run is kept with its error. Attempts end at twice the count.
    """
    for number in range(2 * count):
        for cell, make in cells:
            wanted = {**cell, "asked": given.state}
            rows = [row for row in journal.of(kind) if wanted.items() <= row.items()]
            valid = sum(row["state"] == given.state for row in rows)
            if valid >= count or len(rows) > number or given.clock.is_over():
                continue
            began = time.monotonic()
            try:
                found = lab.compact(make(len(rows)))
            except (TunerError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            state = given.state if given.state != "quiet" or found.get("quiet") else NOT_QUIET
            if "error" in found:
                state = load_figures.FAILED
            row = {"kind": kind, **wanted, "state": state, **found, "at": round(time.time())}
            journal.add(row)
            tell(f"{said(row)} ({time.monotonic() - began:.1f} s)")


def said(row: Mapping[str, Any]) -> str:
    """A line of progress."""
    shown = {name: value for name, value in row.items() if name not in ("at", "latencies", "stalls_s")}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def checked(ran: Ran) -> Ran:
    """The run, if it is complete.

    Raises:
        ValueError: it is not.
    """
    if ran.run.outcome != "complete":
        raise ValueError(f"{ran.run.outcome}: {ran.run.reason}")
    return ran


def both(name: str, values: Sequence[float]) -> dict[str, float]:
    """p50 and p99, with their keys."""
    return {
        f"{name}_p50_s": queues.percentile(values, 0.5),
        f"{name}_p99_s": queues.percentile(values, 0.99),
    }


def added(ran: Ran) -> dict[str, Any]:
    """The latency that the harness added, from the requests that count."""
    replayed, latency_s = ideal(ran.run), ran.latency_s()
    pairs = [(latency_s[index], one) for index in ran.counted() if (one := replayed[index]) is not None]
    return {
        "n": len(pairs),
        **both("extra", [latency - one for latency, one in pairs]),
        **both("latency", [latency for latency, _ in pairs]),
        **both("ideal", [one for _, one in pairs]),
        **ran.machine(),
    }


def harness(journal: Journal, given: Given) -> None:
    """What the harness adds, of every model at every rate."""

    def make(entry: Entry, rate: float, seconds: float) -> Make:
        def one(number: int) -> dict[str, Any]:
            seed = 10_000 * number + round(rate)
            return added(checked(open_run(entry, rate, seconds, seed, warmup_s=HARNESS_WARMUP_S)))

        return one

    cells = [
        ({"subject": name, "rate": rate}, make(entry, rate, seconds))
        for rate, seconds in given.size.seconds.items()
        for name, entry in given.entries.items()
        if name != LONG and (name != MILLISECOND or rate <= MOST_MILLISECOND)
        if given.state == "quiet" or rate == BUSY_RATE
    ]
    fill(journal, "harness", cells, given.size.runs, given)


def omission(journal: Journal, given: Given) -> None:
    """A closed and an open loop in front of a server that stalls."""
    seconds, entry = given.size.stalled_s, given.entries[MILLISECOND]
    stalls_s = [FIRST_STALL_S + EVERY_S * number for number in range(int(seconds / EVERY_S))]
    closed_stalls_s = [one for one in stalls_s if one < WARMUP_S + given.size.closed_s]

    def make(number: int) -> dict[str, Any]:
        rate, closed = capacity(entry, given.size.closed_s, closed_stalls_s)
        opened = checked(open_run(entry, STALLED_LOAD * rate, seconds, number, stalls_s=stalls_s))
        closed_s = [(closed.run.end_ns[i] - closed.run.start_ns[i]) / 1e9 for i in closed.counted()]
        latency_s, truth_s, chosen = opened.latency_s(), opened.truth_s(), opened.counted()
        return {
            "rate": STALLED_LOAD * rate,
            "stalls": len(opened.stalls),
            "stalls_s": [end - start for start, end in (*closed.stalls, *opened.stalls)],
            "closed_n": len(closed_s),
            "open_n": len(chosen),
            **both("closed", closed_s),
            **both("open", [latency_s[index] for index in chosen]),
            **both("truth", [truth_s[index] for index in chosen]),
            **opened.machine(),
        }

    fill(journal, "omission", [({"subject": MILLISECOND}, make)], given.size.stalled_runs, given)


def passes(journal: Journal, given: Given) -> None:
    """Long runs, of which the record keeps every latency."""
    entry = given.entries[LONG]

    def make(load: float) -> Make:
        def one(number: int) -> dict[str, Any]:
            asked = lab.compact(load * capacity(entry, CAPACITY_S)[0])  # as the record has it
            seed = 100 * number + round(10 * load)
            ran = checked(open_run(entry, asked, given.size.passes_s, seed))
            latency_s, chosen = ran.latency_s(), ran.counted()
            counted_s = [latency_s[index] for index in chosen]
            return {
                "rate": asked,
                "seconds": given.size.passes_s,
                "warmup_s": WARMUP_S,
                "seed": seed,
                "n": len(chosen),
                "service_s": statistics.median(ran.service_s()),
                "latencies": queues.packed(counted_s),
                **both("latency", counted_s),
                **ran.machine(),
            }

        return one

    cells = [({"subject": LONG, "utilization": load}, make(load)) for load in LOADS]
    fill(journal, "passes", cells, 1, given)


def limit(journal: Journal, given: Given) -> None:
    """The same question to the command line, several times."""
    fill(journal, "limit", [({"subject": MILLISECOND, "limit": LIMIT}, given.ask)], given.size.answers, given)


def ask(home: Path, budget_s: float) -> dict[str, Any]:
    """One answer of `load --find-max`.

    Raises:
        ValueError: the command failed.
    """
    command = [sys.executable, "-m", "core", "load", str(TRANSFORMER), "--dim", f"sequence={TOKENS}"]
    command += ["--intra-op-num-threads", "1", "--find-max", "--limit", LIMIT]
    command += ["--budget", f"{budget_s:g}s", "--json"]
    machine, began = Machine(), time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=own(home), capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    if not done.stdout.strip():
        raise ValueError(f"exit code {done.returncode}: {done.stderr[-400:]}")
    wall_s = time.monotonic() - began
    return {**answer(json.loads(done.stdout)), "wall_s": wall_s, "exit": done.returncode, **machine.facts()}


def answer(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the record keeps of a document of the command.

    Raises:
        ValueError: it has no result.
    """
    result = document.get("load")
    if not result or not result["highest"]:
        raise ValueError(f"no result: {str(document.get('error'))[:300]}")
    names = ("capacity_per_s", "confirmed_per_s", "failed_per_s", "undecided_per_s")
    highest = result["highest"][0]
    return {**{name: highest[name] for name in names}, "words": highest["words"]}


# --- the script ---------------------------------------------------------------------------------------------

PARTS: Mapping[str, Callable[[Journal, Given], None]] = {
    "harness": harness,
    "omission": omission,
    "passes": passes,
    "limit": limit,
}


def main() -> int:
    parser = recorded(__doc__, "load")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default="all", help="what to measure")
    parser.add_argument(
        "--busy", action="store_true", help="harness: beside a process that keeps one CPU busy"
    )
    parser.add_argument("--short", action="store_true", help="try everything out; kept as another record")
    given = parser.parse_args()
    if not given.report:
        measure(given)
    return report(given.record, short=given.short)


def measure(given: Any) -> None:
    """Fill the record with what is missing of the chosen parts."""
    names = list(PARTS) if "all" in given.parts else [name for name in PARTS if name in given.parts]
    size, clock = SHORT if given.short else FULL, Clock(given.minutes)
    options = {"short": given.short, **json.loads(json.dumps(asdict(size)))}  # with the keys of JSON
    journal = Journal(given.record, script="load", options=options, machine=lab.this_machine())
    with tempfile.TemporaryDirectory() as folder, lab.turn("benchmarks/load.py"):
        home = Path(folder) / "home"
        home.mkdir()
        common: dict[str, Any] = {"size": size, "clock": clock, "entries": subjects(Path(folder))}
        common["ask"] = lambda number: ask(home, size.budget_s)
        if not given.busy:
            time.sleep(SETTLE_S)
            for name in names:
                PARTS[name](journal, Given(state="quiet", **common))
        if given.busy or "all" in given.parts:
            with background_load(wanted=True):
                harness(journal, Given(state="burner", **common))


def report(record: Path, *, short: bool) -> int:
    """Print the record; the exit code says whether all targets are met."""
    judged_rows = []
    for head, rows in merged(record):
        if head["options"]["short"] == short:
            say_head(head, rows)
            found = list(load_figures.rows_of(head, rows))
            for question in dict.fromkeys(row.question for row in found):
                print(tables.long_form([row for row in found if row.question == question]) + "\n")
            judged_rows += [row for row in found if row.target]
    if any(row.met == "no" for row in judged_rows):
        return 1
    return 0 if len({row.question for row in judged_rows}) == len(PARTS) else EXIT_NOT_FULL


if __name__ == "__main__":
    sys.exit(main())
