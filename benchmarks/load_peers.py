"""Load generators side by side: `python benchmarks/load_peers.py [latency] [lateness] [--json OUT]`.

`latency`: what each generator reports against the truth. All load the same session (tiny_transformer, 16
samples, one thread) at 30, 60 and 90 % of its capacity, and at 50 % while it stalls for 250 ms every 10 s.
perf_analyzer, aiperf, Locust and a small client of this script send HTTP to `benchmarks/load_server.py`.
LoadGen and ORTune call the session in their own process. The session records by itself when each inference
started and ended, the server also when the first byte of each request arrived and when it was answered.

Truth: from the scheduled arrival to the end in that record. The schedules of perf_analyzer, aiperf and Locust
are unknown; theirs is from the first byte to the answer, so their error contains the transport. That of the
small client, whose schedule is known, shows how little that is.

Ideal queue: the same schedule (or the arrivals at the server) and the recorded service times, without any
delay between them (Lindley). What a generator reports beyond it, the generator and the server have added.

Unhindered: p99 of 200 simulated Poisson schedules that do not wait for the server, with the same service
times and stalls. A generator that reports less than their range hides a part of the queue.

`lateness`: how late inferences start at 50, 200 and 1,000 requests per second, when the model takes no time.
Of LoadGen also how late it issues them, by its own trace; ORTune starts them itself. Of the HTTP clients it
is unknown.

perf_analyzer needs no Triton; its package `perf-analyzer` needs glibc 2.38. A generator that is not installed
is skipped, and the table says so. Takes six minutes. Exit code 1: ORTune's error against the truth is not the
smallest (a difference below 0.1 percentage points does not count), or a generator is missing.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.journal import tell  # noqa: E402
from benchmarks.load_inside import percentiles, poisson  # noqa: E402
from benchmarks.load_server import NAME, ROOT, Server, running  # noqa: E402
from core import __version__, wire  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402
from core.run.plan import feed_plan, session_plan  # noqa: E402
from core.spec import WorkloadSpec, session_from_dict  # noqa: E402
from core.worker.measure.traffic import set_timer_slack  # noqa: E402

MODEL = ROOT / "sample_models" / "tiny_transformer.onnx"
SAMPLES, SEQUENCE = 16, 32  # a few milliseconds, so that HTTP is small beside it
SHARES = (0.3, 0.6, 0.9)
STALL_SHARE, STALL = 0.5, {"stall_s": 0.25, "every_s": 10.0}
RATE_S, STALL_S = 6.0, 18.0  # of one run
LATE_RATES, LATE_S = (50, 200, 1000), 4.0
SIMULATIONS = 200
CALLS = 300  # back to back, for the capacity
GRACE_S = 60.0
ORTUNE, CLIENT = "ORTune", "client of this script"
TIE = 0.001  # a difference of errors that does not count

Asked = Mapping[str, Any]  # rate, seconds, seed, stall
Found = dict[str, Any]  # reported, truth: p50 and p99 in seconds


def plan() -> Any:
    """The configuration that all generators load."""
    info = run_job(wire.INSPECT, {"path": str(MODEL)})
    workload = WorkloadSpec(batch_size=SAMPLES, dims={"sequence": SEQUENCE})
    return {
        "engine": "onnxruntime",
        "model_path": str(MODEL),
        "torch": None,
        "session": session_plan(session_from_dict({"intra_op_num_threads": 1})),
        "feeds": feed_plan(workload, info),
        "use_io_binding": False,
        "warmup_runs": None,
        "cpus": [],
    }


# --- generators that send HTTP ----------------------------------------------------------------------------


def by_client(server: Server, asked: Asked) -> Found:
    """This script's own open loop: Poisson, latency from the scheduled arrival."""
    set_timer_slack()
    arrivals = poisson(asked["rate"], asked["seconds"], asked["seed"])
    host, port = server.address.split(":")
    request = f"POST /infer HTTP/1.1\r\nHost: {server.address}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    free: list[socket.socket] = []
    busy: dict[socket.socket, float] = {}
    latencies, begin, index = [], time.monotonic() + 0.1, 0
    while index < len(arrivals) or busy:
        due = arrivals[index] + begin if index < len(arrivals) else None
        wait_s = 1.0 if due is None else max(0.0, due - time.monotonic())
        for one in select.select(list(busy), [], [], wait_s)[0]:
            if one.recv(65536):
                latencies.append(time.monotonic() - busy.pop(one))
                free.append(one)
        if due is not None and time.monotonic() >= due:
            connection = free.pop() if free else socket.create_connection((host, int(port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request)
            busy[connection] = due
            index += 1
    for one in free:
        one.close()
    return {"reported": percentiles(latencies), "schedule": [begin + at for at in arrivals]}


def by_perf_analyzer(server: Server, asked: Asked, program: str) -> Found:
    """The mode with a request rate and the distribution `poisson`."""
    count = str(max(10, round(asked["rate"] * asked["seconds"])))
    return _perf_analyzer(
        server,
        program,
        *("--request-rate-range", f"{asked['rate']:.3f}", "--request-distribution", "poisson"),
        *("--request-count", count, "--async"),
    )


def by_perf_analyzer_closed(server: Server, asked: Asked, program: str) -> Found:
    """The default mode: one request after another."""
    count = str(round(asked["seconds"] / asked["service_s"]))
    return _perf_analyzer(server, program, "--concurrency-range", "1", "--request-count", count)


def _perf_analyzer(server: Server, program: str, *options: str) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.csv"
        where = ("-m", NAME, "-u", server.address, "-i", "http", "--percentile", "99", "-f", str(path))
        _run([program, *where, *options])
        names, values = (line.split(",") for line in path.read_text().splitlines()[:2])
    row = dict(zip(names, values, strict=True))
    return {"reported": {name: float(row[f"{name} latency"]) / 1e6 for name in ("p50", "p99")}}


TOKENIZER = """
import sys
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
words = Tokenizer(models.WordLevel({"?": 0, "a": 1}, unk_token="?"))
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(sys.argv[1])
"""


def by_aiperf(server: Server, asked: Asked, program: str) -> Found:
    """The mode with a request rate and Poisson arrivals, to the endpoint for embeddings."""
    with tempfile.TemporaryDirectory() as folder:
        # it loads a tokenizer from the internet unless it is given one
        _run([str(Path(program).with_name("python")), "-c", TOKENIZER, f"{folder}/tokenizer"])
        _run(
            [
                *(program, "profile", "-m", NAME, "--url", server.address, "--endpoint-type", "embeddings"),
                *("--tokenizer", f"{folder}/tokenizer", "--synthetic-input-tokens-mean", "1", "--ui", "none"),
                *("--request-rate", f"{asked['rate']:.3f}", "--arrival-pattern", "poisson"),
                *("--benchmark-duration", str(asked["seconds"]), "--random-seed", str(asked["seed"])),
                *("--output-artifact-dir", f"{folder}/artifacts"),
            ]
        )
        found = json.loads(Path(folder, "artifacts", "profile_export_aiperf.json").read_text())
    latency = found["request_latency"]
    return {"reported": {name: latency[name] / 1e3 for name in ("p50", "p99")}}


LOCUSTFILE = """
import random

import gevent
from locust import FastHttpUser, task


def pause(*_):
    return random.expovariate(1 / 2.0)


class Caller(FastHttpUser):
    wait_time = pause

    def on_start(self):
        gevent.sleep(pause())

    @task
    def infer(self):
        self.client.post("/infer", data=b"{}")
"""
PAUSE_S = 2.0  # mean pause of a user, as in the file


def by_locust(server: Server, asked: Asked, program: str) -> Found:
    """Users who pause for an exponential time between two requests: many together are nearly Poisson."""
    users = str(max(1, round(asked["rate"] * PAUSE_S)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "locustfile.py"
        path.write_text(LOCUSTFILE)
        said = _run(
            [
                *(program, "-f", str(path), "--headless", "--only-summary", "--host"),
                *(f"http://{server.address}", "-u", users, "-r", users, "-t", f"{asked['seconds']:.0f}s"),
            ]
        )
    table = said[said.index("Response time percentiles") :]
    found = re.search(r"^ +Aggregated +(.*)$", table, re.MULTILINE)
    assert found is not None, table
    milliseconds = found[1].split()  # 50 66 75 80 90 95 98 99 …, rounded by Locust
    return {"reported": {"p50": int(milliseconds[0]) / 1e3, "p99": int(milliseconds[7]) / 1e3}}


def _run(command: Sequence[str]) -> str:
    """Run a generator to its end and return what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=STALL_S + GRACE_S,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def over_http(generate: Callable[[Server, Asked], Found], asked: Asked) -> Found:
    """Run a generator against a new server, and take the truth from the server's record."""
    with running(asked["plan"]) as server:
        server.reset(**asked["stall"])
        found = generate(server, asked)
        record = server.record()
    # first come first served: the k-th arrival is the k-th answer
    return {
        "schedule": record["arrived"],
        **found,
        "started": record["started"],
        "ended": record["answered"],
        "service_s": _lengths(record["started"], record["ended"]),
    }


def _lengths(begins: Sequence[float], ends: Sequence[float]) -> list[float]:
    return [end - begin for begin, end in zip(begins, ends, strict=True)]


# --- generators that call the session ---------------------------------------------------------------------


def inside(generator: str, asked: Asked) -> Found:
    """Run a generator of `load_inside` in a process of its own."""
    argument = json.dumps({**asked, "generator": generator})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_inside", argument],
        capture_output=True,
        text=True,
        check=False,
        timeout=STALL_S + GRACE_S,
        cwd=ROOT,
    )
    if done.returncode:
        raise SystemExit(f"{generator} failed:\n{done.stderr[-2000:]}")
    found: Found = json.loads(done.stdout)
    return {**found, "service_s": _lengths(found["started"], found["ended"])}


# --- queues -----------------------------------------------------------------------------------------------


def ideal(schedule: Sequence[float], service_s: Sequence[float]) -> list[float]:
    """Return the latencies of the ideal queue: first come first served, one at a time, no other delay."""
    free, latencies = -math.inf, []
    for at, taken in zip(schedule, service_s, strict=True):
        free = max(at, free) + taken
        latencies.append(free - at)
    return latencies


def unhindered(service_s: Sequence[float], asked: Asked, n: int) -> list[float]:
    """Return p99 of `n` Poisson arrivals that do not wait: the median and the range of 95 % of simulations.

    Service times are drawn from those of the run; stalls have the same length and distance, and begin at a
    random time.
    """
    stall_s, every_s = asked["stall"].get("stall_s", 0.0), asked["stall"].get("every_s", 10.0)
    plain = [one for one in service_s if one < stall_s / 2] if stall_s else list(service_s)
    source = random.Random(0)
    found = sorted(
        percentiles(_queue(plain, asked["rate"], n, stall_s, every_s, source))["p99"]
        for _ in range(SIMULATIONS)
    )
    return [found[round(share * (len(found) - 1))] for share in (0.025, 0.5, 0.975)]


def _queue(
    service_s: Sequence[float], rate: float, n: int, stall_s: float, every_s: float, source: random.Random
) -> list[float]:
    now = free = 0.0
    stall = source.uniform(0, every_s)
    latencies = []
    for _ in range(n):
        now += source.expovariate(rate)
        start = max(now, free)
        while stall_s and start >= stall:
            start = max(start, stall + stall_s)
            stall += every_s
        free = start + source.choice(service_s)
        latencies.append(free - now)
    return latencies


# --- all generators ---------------------------------------------------------------------------------------

Generator = Callable[[Asked], Found]


def generators(given: Any) -> dict[str, Generator | None]:
    """All generators by name; None: it is not installed."""
    found: dict[str, Generator | None] = {
        ORTUNE: lambda asked: inside("ortune", asked),
        "LoadGen, Server": lambda asked: inside("loadgen", asked),
        CLIENT: lambda asked: over_http(by_client, asked),
    }
    programs = {
        "perf_analyzer, Poisson": (given.perf_analyzer, by_perf_analyzer),
        "perf_analyzer, concurrency 1": (given.perf_analyzer, by_perf_analyzer_closed),
        "aiperf, Poisson": (given.aiperf, by_aiperf),
        "Locust, exponential pauses": (given.locust, by_locust),
    }
    for name, (program, generate) in programs.items():
        found[name] = None if program is None else _with(generate, program)
    return found


def _with(generate: Callable[[Server, Asked, str], Found], program: str) -> Generator:
    return lambda asked: over_http(lambda server, given: generate(server, given, program), asked)


def capacity(configuration: Any) -> tuple[float, float]:
    """Requests per second of one caller without HTTP, and seconds of a service: the median."""
    with running(configuration) as server:
        server.reset()
        for _ in range(CALLS):
            server.infer()
        record = server.record()
    service_s = statistics.median(
        end - start for start, end in zip(record["started"], record["ended"], strict=True)
    )
    return 1 / service_s, service_s


def conditions(rate: float, given: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and requests of all conditions."""
    for share in SHARES:
        asked = {"rate": share * rate, "seconds": given.seconds, "stall": {}}
        yield f"{100 * share:.0f} % of capacity", asked
    asked = {"rate": STALL_SHARE * rate, "seconds": given.stall_seconds, "stall": STALL}
    yield f"{100 * STALL_SHARE:.0f} %, stalls of 250 ms every 10 s", asked


def measured(given: Any) -> Iterator[dict[str, Any]]:
    """Run every generator under every condition."""
    configuration = plan()
    rate, service_s = capacity(configuration)
    yield {"kind": "capacity", "rate": rate, "service_s": service_s}
    for number, (condition, asked) in enumerate(conditions(rate, given)):
        for name, generate in generators(given).items():
            if "concurrency" in name and not asked["stall"]:
                continue
            whole = {**asked, "plan": configuration, "seed": number, "service_s": service_s}
            row = {"kind": "latency", "condition": condition, "generator": name, "asked_rate": asked["rate"]}
            if generate is None:
                yield {**row, "missing": True}
                continue
            with _watched() as machine:
                found = generate(whole)
            yield {**row, **lab.compact(summary(found, asked)), **machine.facts}


def summary(found: Found, asked: Asked) -> dict[str, Any]:
    """The percentiles of one run: reported, true, of the ideal queue and of an unhindered schedule."""
    schedule, service_s = found["schedule"], found["service_s"]
    return {
        "n": len(schedule),
        "rate": len(schedule) / (schedule[-1] - schedule[0]),
        "reported": found["reported"],
        "truth": percentiles(_lengths(schedule, found["ended"])),
        "ideal": percentiles(ideal(schedule, service_s)),
        "unhindered_p99": unhindered(service_s, asked, len(schedule)),
        "service": percentiles(service_s),
    }


class _watched:
    """Steal and load of the machine while the block ran."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> _watched:
        self._before = _ticks()
        return self

    def __exit__(self, *_: object) -> None:
        before, after = self._before, _ticks()
        whole = max(1, sum(after) - sum(before))
        self.facts = {
            "steal": lab.compact((after[7] - before[7]) / whole),
            "load": os.getloadavg()[0],
            "at": round(time.time()),
        }


def _ticks() -> list[int]:
    """Kernel ticks of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal."""
    return [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]


def late(given: Any) -> Iterator[dict[str, Any]]:
    """Lateness of the issue with a model that takes no time."""
    for rate in LATE_RATES:
        for name, generator in ((ORTUNE, "ortune"), ("LoadGen, Server", "loadgen")):
            asked = {"rate": float(rate), "seconds": LATE_S, "stall": {}, "plan": None, "seed": rate}
            with _watched() as machine:
                found = inside(generator, asked)
            row = {"kind": "lateness", "generator": name, "asked_rate": rate, "n": len(found["schedule"])}
            late = lateness(found["schedule"], found["started"], found["ended"])
            yield {**row, **lab.compact({"late": late, "issue_late": found["issue_late"]}), **machine.facts}


def lateness(schedule: Sequence[float], started: Sequence[float], ended: Sequence[float]) -> dict[str, float]:
    """Return how much later than possible inferences started: after arrival and the end of the one before."""
    before = [-math.inf, *ended]
    return percentiles(
        [start - max(at, end) for at, start, end in zip(schedule, started, before, strict=False)]
    )


# --- the report -------------------------------------------------------------------------------------------


def errors(row: Mapping[str, Any], against: str = "truth") -> dict[str, float]:
    """Relative errors of the reported p50 and p99."""
    return {name: row["reported"][name] / row[against][name] - 1 for name in ("p50", "p99")}


def hides(row: Mapping[str, Any]) -> bool:
    """Whether the reported p99 is below what a schedule gives that does not wait for the server."""
    return bool(row["reported"]["p99"] < row["unhindered_p99"][0])


def smaller(rows: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """The generators of one condition whose error is smaller than ORTune's by more than `TIE`."""
    size = {row["generator"]: abs(errors(row)[name]) for row in rows}
    return [one for one in size if one != CLIENT and size[one] < size[ORTUNE] - TIE]


def latency_table(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Print the table, and return whether ORTune's errors are the smallest."""
    titles = ("reported p50, p99 (ms)", "truth (ms)", "error", "beyond the ideal queue")
    print(f"| Condition | Generator | n | requests/s | {' | '.join(titles)} |")
    print("|---|---|--:|--:|---|---|---|---|")
    for row in rows:
        begin = f"| {row['condition']} | {row['generator']} |"
        if row.get("missing"):
            print(f"{begin} | | not installed | | | |")
            continue
        rates = f"{row['rate']:.1f} of {row['asked_rate']:.1f}"
        said = (
            _ms(row["reported"]),
            _ms(row["truth"]),
            _percent(errors(row)),
            _percent(errors(row, "ideal")),
        )
        print(f"{begin} {row['n']} | {rates} | {' | '.join(said)} |")
    print()
    return _smallest(rows)


def _smallest(rows: Sequence[Mapping[str, Any]]) -> bool:
    met = not any(row.get("missing") for row in rows)
    for condition in dict.fromkeys(row["condition"] for row in rows):
        own = [row for row in rows if row["condition"] == condition and not row.get("missing")]
        for name in ("p50", "p99"):
            for one in smaller(own, name):
                met = False
                print(f"{condition}: the error of {name} of {one} is smaller than ORTune's.")
    return met


def queue_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the reported p99 beside that of a schedule that does not wait."""
    print("\n| Condition | Generator | reported p99 (ms) | unhindered p99 (ms) | |\n|---|---|--:|---|---|")
    for row in rows:
        if not row.get("missing"):
            low, middle, high = (1e3 * one for one in row["unhindered_p99"])
            told = "**hides a part of the queue**" if hides(row) else ""
            print(
                f"| {row['condition']} | {row['generator']} | {1e3 * row['reported']['p99']:.1f} "
                f"| {middle:.1f} ({low:.1f}–{high:.1f}) | {told} |"
            )


def lateness_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how late the generators issue."""
    print(
        "\n| requests/s | Generator | n | start late p50, p99 (µs) | issue late (µs) |\n|--:|---|--:|---|---|"
    )
    for row in rows:
        issue = "" if row["issue_late"] is None else _us(row["issue_late"])
        print(f"| {row['asked_rate']} | {row['generator']} | {row['n']} | {_us(row['late'])} | {issue} |")


def _us(value: Mapping[str, float]) -> str:
    return f"{1e6 * value['p50']:.0f}, {1e6 * value['p99']:.0f}"


def _percent(value: Mapping[str, float]) -> str:
    return f"{100 * value['p50']:+.1f} %, {100 * value['p99']:+.1f} %"


def _ms(value: Mapping[str, float]) -> str:
    return f"{1e3 * value['p50']:.2f}, {1e3 * value['p99']:.2f}"


def versions(given: Any) -> dict[str, str]:
    """Versions of the generators that are installed."""
    found = {}
    for name, program in (
        ("perf_analyzer", given.perf_analyzer),
        ("aiperf", given.aiperf),
        ("Locust", given.locust),
    ):
        if program is not None:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
            found[name] = (done.stdout + done.stderr).strip().splitlines()[-1].split(" from ")[0]
    return found


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("what", nargs="*", help="latency, lateness; default: both")
    parser.add_argument("--seconds", type=float, default=RATE_S, help="of a run without stalls")
    parser.add_argument("--stall-seconds", type=float, default=STALL_S, help="of a run with stalls")
    for name in ("perf_analyzer", "aiperf", "locust"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option, default=shutil.which(name), metavar="PROGRAM", help="default: on the PATH"
        )
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing: print a kept record")
    given = parser.parse_args()
    if given.report is not None:
        first, *kept = map(json.loads, given.report.read_text().splitlines())
        return report(first["head"], kept)
    what = given.what or ["latency", "lateness"]
    if unknown := set(what) - {"latency", "lateness"}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    machine = lab.this_machine()
    head = {
        "script": "load_peers",
        "machine": machine.text,
        "fingerprint": machine.fingerprint,
        "version": __version__,
        "day": lab.today(),
        "versions": versions(given),
    }
    rows: list[dict[str, Any]] = []
    with lab.turn("benchmarks/load_peers.py"):
        for name, make in (("latency", measured), ("lateness", late)):
            for row in make(given) if name in what else ():
                rows.append(row)
                tell(f"{row['kind']}: {row.get('condition', '')} {row.get('generator', '')}")
    if given.json is not None:
        given.json.write_text("".join(f"{json.dumps(one)}\n" for one in ({"head": head}, *rows)))
    return report(head, rows)


def report(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> int:
    """Print all tables; return the exit code."""
    print(f"{head['day']}, ORTune {head['version']}, {head['machine']}\nfingerprint {head['fingerprint']}\n")
    for name, version in head["versions"].items():
        print(f"{name}: {version}")
    busiest = max((row["steal"] for row in rows if "steal" in row), default=0.0)
    print(f"Largest steal of a run: {100 * busiest:.2g} %\n")
    kinds: dict[str, list[Any]] = {}
    for row in rows:
        kinds.setdefault(row["kind"], []).append(row)
    met = True
    if "latency" in kinds:
        (of,) = kinds["capacity"]
        print(f"Capacity {of['rate']:.0f} requests/s, {1e3 * of['service_s']:.2f} ms each\n")
        met = latency_table(kinds["latency"])
        queue_table(kinds["latency"])
    if "lateness" in kinds:
        lateness_table(kinds["lateness"])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
