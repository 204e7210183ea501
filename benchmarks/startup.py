"""Cost of one more process of a launch: `python benchmarks/startup.py [--workers N]`.

What: every launch of a comparison starts a fresh process for each configuration. Measured is the time from
the request to the end of its warm-up, and its end, less ONNX Runtime's own time in a plain Python process: to
create the session, to run it once and to run it for 10 ms, the least warm-up of a later launch. Both
alternate. The process of the first launch, whose warm-up continues until the latency is steady, is reported
separately. So are the fork server, which starts once per comparison, and the fresh process that a GPU
provider needs.

Target: the median fixed cost of a forked process of a later launch is at most 0.15 s. Exit code 1: it is
above.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.intervals import bootstrap  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.process.contestant_workers import Workers  # noqa: E402
from core.run.launches.blocks import park, start_loaded  # noqa: E402
from core.worker.measure.warmup import KNOWN_MIN_NS  # noqa: E402

TARGET_S = 0.15

BARE = """
import os
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import sys, time
import numpy as np
import onnxruntime as ort

x = np.random.default_rng(0).random((1, 3, 64, 64), dtype=np.float32)
began = time.perf_counter()
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, {"image": x})
warm = time.perf_counter()
while time.perf_counter() - warm < float(sys.argv[2]):
    session.run(None, {"image": x})
print(time.perf_counter() - began)
"""


def bare(path: Path) -> float:
    """Seconds that ONNX Runtime takes for itself."""
    command = [sys.executable, "-c", BARE, str(path), str(KNOWN_MIN_NS / 1e9)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(done.stdout)


def started(workers: Workers, entry: Entry, known_ns: int | None, *, seed: int) -> tuple[float, int]:
    """Seconds of a process from the request to its end, without rounds; and its typical run.

    Args:
        workers: of the comparison.
        entry: what it loads.
        known_ns: typical run of earlier processes; None: it is of the first launch.
        seed: of its memory layout.
    """
    began = time.monotonic()
    worker, _ = start_loaded(workers, entry, lab.TIMEOUT_S, layout_seed=seed, again=known_ns is not None)
    warm = worker.ask(wire.WARM, {"known_ns": known_ns, "cap_s": None}, timeout_s=lab.TIMEOUT_S)
    park(worker)
    worker.kill()
    return time.monotonic() - began, warm["median_ns"]


class Starts:
    """Start one process after the other, in each of the ways."""

    def __init__(self, path: Path, entry: Entry, workers: Workers) -> None:
        """Start the fork server, and read all files into memory."""
        self.path, self.entry, self.workers = path, entry, workers
        self.known_ns = started(workers, entry, None, seed=0)[1]

    def server(self, number: int) -> dict[str, Any]:
        """The extra cost of the first process of a comparison: its fork server."""
        with Workers(threading.Event()) as fresh:
            first, _ = started(fresh, self.entry, self.known_ns, seed=number)
            return {"seconds": first - started(fresh, self.entry, self.known_ns, seed=number)[0]}

    def once(self, number: int) -> dict[str, Any]:
        """Every way to start, and ONNX Runtime alone."""
        fresh = replace(self.entry, fresh_process=True)
        ways: list[tuple[str, Callable[[], float]]] = [
            ("bare_s", lambda: bare(self.path)),
            ("forked_s", lambda: started(self.workers, self.entry, self.known_ns, seed=number)[0]),
            ("first_s", lambda: started(self.workers, self.entry, None, seed=number)[0]),
            ("fresh_s", lambda: started(self.workers, fresh, self.known_ns, seed=number)[0]),
        ]
        return {name: way() for name, way in (ways if number % 2 else ways[::-1])}


def fixed(rows: Sequence[dict[str, Any]], way: str) -> tuple[float, str]:
    """The median fixed cost in seconds, and its text."""

    def cost(chosen: Sequence[dict[str, Any]]) -> float:
        return float(statistics.median(row[way] - row["bare_s"] for row in chosen))

    low, high = bootstrap(rows, cost)
    largest = max(row[way] - row["bare_s"] for row in rows)
    text = f"{cost(rows):.3f} s, 95 % CI [{low:.3f}, {high:.3f}], largest {largest:.3f} s, n = {len(rows)}"
    return cost(rows), text


def report(rows: Sequence[dict[str, Any]], servers: Sequence[dict[str, Any]]) -> bool:
    alone = statistics.median(row["bare_s"] for row in rows)
    print(f"ONNX Runtime's own load, first run and warm-up: median {alone:.3f} s")
    once = statistics.median(row["seconds"] for row in servers)
    print(f"the fork server, once per comparison: median {once:.3f} s, n = {len(servers)}\n")
    cost, text = fixed(rows, "forked_s")
    against = "session creation, first run and 10 ms of runs in a plain process"
    lab.row("fixed cost of one more process of a launch, forked", against, text, f"≤ {TARGET_S} s")
    others = {
        "the same in the first launch, until the latency is steady": "first_s",
        "the same in a fresh process, as GPU providers and PyTorch need it": "fresh_s",
    }
    for what, way in others.items():
        lab.row(what, against, fixed(rows, way)[1], "for contrast")
    return cost <= TARGET_S


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--servers", type=int, default=10, help="starts of the fork server")
    given = parser.parse_args()
    machine = lab.this_machine()
    journal = Journal(given.json, script="startup", options={}, machine=machine)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.turn("benchmarks/startup.py"),
        Workers(threading.Event()) as workers,
    ):
        path = models.conv_net(Path(folder) / "conv.onnx")
        starts = Starts(path, lab.contestant("ORT default", path), workers)
        servers = until(journal, "server", given.servers, starts.server)
        rows = until(journal, "start", given.workers, starts.once)
    lab.head(machine)
    return 0 if report(rows, servers) else 1


if __name__ == "__main__":
    sys.exit(main())
