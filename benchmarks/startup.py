"""What one more configuration costs before it runs: `python benchmarks/startup.py [--workers N]`.

From the request for a worker to its first run done, and from there to its process gone, less what ONNX
Runtime takes to create the session and run it once in a plain Python process. Both alternate. The fork server
is started once for all configurations, and told apart; so is the fresh process that a GPU provider needs.
Exit code 1: the median fixed cost is above 0.15 s.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from core.race.record import Entry  # noqa: E402
from core.race.workers import Workers  # noqa: E402

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
print(time.perf_counter() - began)
"""


def bare(path: Path) -> float:
    """Seconds that ONNX Runtime takes for itself."""
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(path)], check=True, capture_output=True, text=True, timeout=120
    )
    return float(done.stdout)


def started(workers: Workers, entry: Entry, *, fresh: bool) -> float:
    """Seconds from the request to the first run done, and from there until the process is gone."""
    began = time.monotonic()
    worker = workers.start(entry.label, fresh_process=fresh)
    worker.ask("load", entry.plan, timeout_s=lab.TIMEOUT_S)
    worker.freeze()
    worker.kill()
    return time.monotonic() - began


class Starts:
    """One configuration after the other, in the ways in which it can start."""

    def __init__(self, path: Path, entry: Entry, workers: Workers) -> None:
        self.path, self.entry, self.workers = path, entry, workers

    def server(self, _: int) -> dict[str, Any]:
        """What the first configuration of a race pays beyond the others: a fork server of its own."""
        with Workers(threading.Event()) as fresh:
            first = started(fresh, self.entry, fresh=False)
            return {"seconds": first - started(fresh, self.entry, fresh=False)}

    def once(self, number: int) -> dict[str, Any]:
        """Every way to start, and ONNX Runtime alone."""
        order = (self._bare, self._forked, self._fresh)
        found: dict[str, Any] = {}
        for step in order if number % 2 else order[::-1]:
            found |= step()
        return found

    def _bare(self) -> dict[str, float]:
        return {"bare_s": bare(self.path)}

    def _forked(self) -> dict[str, float]:
        return {"forked_s": started(self.workers, self.entry, fresh=False)}

    def _fresh(self) -> dict[str, float]:
        return {"fresh_s": started(self.workers, self.entry, fresh=True)}


def fixed(rows: Sequence[dict[str, Any]], way: str) -> tuple[float, str]:
    """The median fixed cost in seconds, and its text."""

    def cost(chosen: Sequence[dict[str, Any]]) -> float:
        return statistics.median(row[way] - row["bare_s"] for row in chosen)

    low, high = lab.bootstrap(rows, cost)
    largest = max(row[way] - row["bare_s"] for row in rows)
    text = f"{cost(rows):.3f} s, 95 % [{low:.3f}, {high:.3f}], largest {largest:.3f} s, n = {len(rows)}"
    return cost(rows), text


def report(rows: Sequence[dict[str, Any]], servers: Sequence[dict[str, Any]]) -> bool:
    alone = statistics.median(row["bare_s"] for row in rows)
    print(f"ONNX Runtime's own load and first run: median {alone:.3f} s")
    once = statistics.median(row["seconds"] for row in servers)
    print(f"the fork server, once for a race: median {once:.3f} s, n = {len(servers)}\n")
    cost, text = fixed(rows, "forked_s")
    against = "session creation and first run in a plain process"
    lab.row("fixed cost of one more configuration, forked", against, text, f"≤ {TARGET_S} s")
    lab.row(
        "the same in a fresh process, as GPU providers need it",
        against,
        fixed(rows, "fresh_s")[1],
        "for contrast",
    )
    return cost <= TARGET_S


def main() -> int:
    parser = lab.options(__doc__)
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--servers", type=int, default=10, help="starts of the fork server")
    given = parser.parse_args()
    machine = lab.this_machine()
    journal = lab.Journal(given.json, script="startup", options={}, machine=machine)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab.turn("benchmarks/startup.py"),
        Workers(threading.Event()) as workers,
    ):
        path = lab.conv_net(Path(folder) / "conv.onnx")
        starts = Starts(path, lab.contestant("ORT default", path), workers)
        started(workers, starts.entry, fresh=False)  # the fork server, and all files in memory
        servers = lab.until(journal, "server", given.servers, starts.server)
        rows = lab.until(journal, "start", given.workers, starts.once)
    lab.head(machine)
    return 0 if report(rows, servers) else 1


if __name__ == "__main__":
    sys.exit(main())
