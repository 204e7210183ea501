"""Load generators that call the session in their own process, which `benchmarks/load_peers.py` starts.

`python -m benchmarks.load_inside JSON` runs one of them around the session of `benchmarks/load_server.py`,
which records by itself when each inference started and ended. It prints as JSON what the generator reports,
its schedule and that record, in seconds from the same instant. `ortune` is the loop of ORTune's worker with a
Poisson schedule. `loadgen` is LoadGen's scenario Server.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load_server import Service, session
from core import wire
from core.wire import traffic_record

LEAD_S = 0.05
SAMPLE = '{"name":"Sample","cat":"default","ph":"b",'


def quiet(stage: str, done: int, total: int, text: str = "") -> None:
    """No progress."""


def percentiles(latencies_s: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 as observed: the smallest latency that this share does not exceed."""
    ordered = sorted(latencies_s)
    last = len(ordered) - 1
    return {f"p{p}": ordered[min(last, max(0, -(-len(ordered) * p // 100) - 1))] for p in (50, 99)}


def poisson(rate: float, seconds: float, seed: int) -> list[float]:
    """Return the arrivals of a Poisson process, in seconds from its start."""
    source, now, found = random.Random(seed), 0.0, []
    while (now := now + source.expovariate(rate)) < seconds:
        found.append(now)
    return found


# --- ORTune -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """What ORTune's loop needs of a configuration, around the recorded session."""

    call: Callable[[], object]
    built: None = None

    def with_inputs(self, feeds: wire.FeedPlan) -> Contender:
        """The inputs are those of the plan."""
        return self

    @property
    def inputs(self) -> list[wire.TensorInfo]:
        """One sample."""
        return [{"name": "x", "dtype": "float32", "shape": [1]}]


FEEDS: Any = {"batch_size": 1, "batch_axes": {"x": 0}}


def by_ortune(service: Service, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Serve a Poisson schedule as a worker of ORTune does."""
    from core.worker.measure.traffic import Traffic

    arrivals = poisson(asked["rate"], asked["seconds"], asked["seed"])
    at_ns = array("q", (round(1e9 * one) for one in arrivals))
    with tempfile.TemporaryDirectory() as name:
        path = traffic_record.folder(len(at_ns), Path(name)) / f"{Path(name).name}-traffic"
        record = traffic_record.create(path, at_ns, [0] * len(at_ns))
        plan: wire.TrafficPlan = {
            "record": str(path),
            "requests": len(at_ns),
            "kinds": [FEEDS],
            "streams": 1,
            "first_stream": 0,
            "shared": False,
            "batching": None,
            "drop_ns": 0,
            "until_ns": 0,
            "spin_ns": 0,
        }
        traffic = Traffic(Contender(service), plan)  # type: ignore[arg-type]
        path.unlink()
        begin_ns = time.monotonic_ns() + round(1e9 * LEAD_S)
        service.reset(**asked["stall"])
        traffic.serve(begin_ns)
        reported = [(end - at) / 1e9 for at, end in zip(record.at_ns, record.end_ns, strict=True)]
        traffic.close()
        record.close()
    begin_s = begin_ns / 1e9
    return {
        "reported": percentiles(reported),
        "issue_late": None,
        "schedule": arrivals,
        "started": [one - begin_s for one in service.started],
        "ended": [one - begin_s for one in service.ended],
    }


# --- LoadGen ----------------------------------------------------------------------------------------------


def by_loadgen(service: Service, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let LoadGen issue the queries of its scenario Server; its trace tells the schedule."""
    from core.worker.measure import loadgen

    called: list[float] = []

    class Target(loadgen.Target):
        def issue(self, samples: Sequence[Any]) -> None:
            called.append(time.monotonic())
            super().issue(samples)

    loadgen.Target = Target  # type: ignore[misc]
    plan: Any = {
        **{"plan": None, "scenario": "Server", "duration_s": asked["seconds"], "min_queries": 1},
        **{"rate": asked["rate"], "limit_s": 10.0, "percentile": 0.99, "samples_per_query": 1, "streams": 1},
        **{"seed": asked["seed"], "timeout_s": 60 + 4 * asked["seconds"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        service.reset(**asked["stall"])
        test = loadgen.run_test(plan, [service], 0.001, quiet, trace=path)
        samples = sorted(_samples(path))
    issued = [at + delay for at, delay in samples]
    # both clocks run alike: the callback that came soonest after its issue gives their offset
    offset = min(at - own for own, at in zip(issued, called, strict=True))
    latency = test.judged["latency_s"]
    return {
        "reported": {name: latency[name] for name in ("p50", "p99")},
        "issue_late": percentiles([delay for _, delay in samples]),
        "schedule": [at for at, _ in samples],
        "started": [one - offset for one in service.started],
        "ended": [one - offset for one in service.ended],
    }


def _samples(path: Path) -> Iterator[tuple[float, float]]:
    """Scheduled time of each sample and how much later it was issued, in seconds."""
    with path.open() as lines:
        for line in lines:
            if line.startswith(SAMPLE):
                found = json.loads(line.rstrip().rstrip(","))
                yield found["ts"] / 1e6, found["args"]["issue_start_ns"] / 1e9


GENERATORS: Mapping[str, Callable[[Service, Mapping[str, Any]], dict[str, Any]]] = {
    "ortune": by_ortune,
    "loadgen": by_loadgen,
}


def main() -> None:
    asked = json.loads(sys.argv[1])
    service = session(asked["plan"])
    gc.collect()
    gc.freeze()
    gc.disable()
    print(json.dumps(GENERATORS[asked["generator"]](service, asked)))


if __name__ == "__main__":
    main()
