"""What experiments on races share: models, contestants, a duel, a neighbour, a record that survives a stop.

The experiments call `core.race` and `core.evidence`, as the scheduler does; nothing of a race is done again
here. Every experiment waits for its turn on this machine before it measures.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from core import wire
from core.comparison import Contestant
from core.contrast import PRECISIONS, Precision
from core.evidence import Entrant, Evidence
from core.machine_queue import MachineQueue
from core.plan import feed_plan, session_plan
from core.race import race
from core.race.record import Entry, RaceRecord, Settings
from core.runner import run_job
from core.spec import WorkloadSpec, session_from_dict
from core.statistics import beta_quantile
from tests import tiny_models

MARGIN = 0.02
TIMEOUT_S = 120.0
BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:  # a killed experiment must not leave it burning
    for _ in range(1_000_000):
        pass
"""
SETTLE_S = 2.0  # a neighbour that has just started, or ended, is not yet what it will be


# --- models and contestants -------------------------------------------------------------------------------


def conv_net(path: Path, *, size: int = 64, channels: int = 24, extra: int = 0) -> Path:
    """Write a small conv net, image [1, 3, size, size] to logits [1, 10]; about half a millisecond.

    `extra` is a fixed piece of work beside it: the mean of erf over `extra` numbers of the image, multiplied
    by 0 and added to the logits, so that the outputs stay the same.
    """
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], "conv3", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"], "relu3"),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w4"], ["logits" if not extra else "plain"], "fc"),
    ]
    parameters = [
        tiny_models.weights("w1", [channels, 3, 3, 3], 1),
        tiny_models.weights("w2", [channels, channels, 3, 3], 2),
        tiny_models.weights("w3", [channels, channels, 3, 3], 3),
        tiny_models.weights("w4", [channels, 10], 4),
    ]
    if extra:
        nodes += [
            helper.make_node("Reshape", ["image", "flat"], ["x"], "extra_flatten"),
            helper.make_node("Slice", ["x", "start", "end"], ["s"], "extra_part"),
            helper.make_node("Erf", ["s"], ["e"], "extra_work"),
            helper.make_node("ReduceMean", ["e"], ["m"], "extra_mean", keepdims=0),
            helper.make_node("Mul", ["m", "zero"], ["z"], "extra_nothing"),
            helper.make_node("Add", ["plain", "z"], ["logits"], "extra_add"),
        ]
        parameters += [
            tiny_models.constant("flat", np.array([-1], np.int64)),
            tiny_models.constant("start", np.array([0], np.int64)),
            tiny_models.constant("end", np.array([extra], np.int64)),
            tiny_models.constant("zero", np.array(0, np.float32)),
        ]
    image = tiny_models.value("image", [1, 3, size, size])
    return tiny_models.save(path, nodes, [image], [tiny_models.value("logits", [1, 10])], parameters)


def contestant(label: str, path: Path, **session: Any) -> Entry:
    """ONNX Runtime's default session on the model at `path`, but for the settings given."""
    info = run_job("inspect", {"path": str(path)})
    plan: wire.ContestantPlan = {
        "engine": "onnxruntime",
        "model_path": str(path),
        "torch": None,
        "session": session_plan(session_from_dict(session)),
        "feeds": feed_plan(WorkloadSpec(batch_size=1), info),  # type: ignore[arg-type]
        "use_io_binding": False,
        "warmup_runs": None,
        "cpus": [],
    }
    return Entry(label=label, plan=plan)


# --- a duel -----------------------------------------------------------------------------------------------


def duel(
    baseline: Entry, candidate: Entry, *, precision: Precision, budget_s: float, seed: int
) -> dict[str, Any]:
    """Race two contestants as the product does, and return what it would say, as plain data."""
    began = time.monotonic()
    record = race(
        [baseline, candidate],
        Settings(
            precision=precision,
            budget_s=budget_s,
            margin=MARGIN,
            seed=seed,
            timeout_s=TIMEOUT_S,
            baseline=0,
            anchor=0,
        ),
        cancel=threading.Event(),
        on_progress=lambda progress: None,
        on_live=lambda live: None,
    )
    wall_s = time.monotonic() - began
    for entry, ran in zip((baseline, candidate), record.ran, strict=True):
        if ran.error is not None:
            raise SystemExit(f"{entry.label}: {ran.error.message} {ran.error.hint}")
    evidence = _evidence((baseline, candidate), record, looks=len(precision.looks))
    if not evidence.contrasts:
        raise SystemExit(
            f"No round of this duel counts: {record.outcome}. Run it again on a quieter machine."
        )
    (found,) = evidence.contrasts
    kept = (
        "ratio",
        "ratio_low",
        "ratio_high",
        "verdict",
        "rounds",
        "sigma",
        "half_width",
        "drifting",
        "notes",
    )
    return {
        **{name: found[name] for name in kept},
        "grade": evidence.grade.grade,
        "grade_reason": evidence.grade.reason,
        "outcome": record.outcome,
        "frozen": record.frozen,
        "wall_s": wall_s,
        "at": time.time(),
        "log_ratios": log_ratios(record),
    }


def log_ratios(record: RaceRecord) -> list[float]:
    """ln(baseline's median / candidate's median) of each round that both have, in order."""
    medians: dict[int, dict[int, float]] = {0: {}, 1: {}}
    for block in record.blocks:
        medians[block.contestant][block.round] = statistics.median(block.latencies_s)
    own, other = medians[1], medians[0]
    return [round(math.log(other[number] / own[number]), 6) for number in own if number in other]


def _evidence(entries: Sequence[Entry], record: RaceRecord, *, looks: int) -> Evidence:
    entrants = [
        Entrant(
            contestant=Contestant(
                trial=str(index), label=one.label, role="baseline" if index == 0 else "candidate"
            ),
            precision="fp32",
            feeds=one.plan["feeds"],
        )
        for index, one in enumerate(entries)
    ]
    return Evidence(
        record=record, entrants=entrants, looks=looks, margin=MARGIN, baseline=0, anchor=0, environment=None
    )


# --- the machine ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the numbers hold for."""

    text: str
    fingerprint: str


def this_machine() -> Machine:
    """Ask a worker, as the scheduler does."""
    facts = run_job("environment", {})
    cpu, versions = facts["cpu"], facts["libraries"]
    ort = versions.get("onnxruntime-gpu") or versions.get("onnxruntime")
    return Machine(
        text=f"{cpu['model']}, {cpu['usable']} usable of {cpu['logical']} CPUs, kernel {facts['kernel']}, "
        f"Python {facts['python']}, ONNX Runtime {ort}",
        fingerprint=facts["fingerprint"],
    )


@contextlib.contextmanager
def turn(what: str) -> Iterator[None]:
    """Wait until nothing else of ORTune measures on this machine."""
    with MachineQueue().turn("benchmarks", what, on_wait=_say_waiting()):
        yield


def _say_waiting() -> Callable[[int, str], None]:
    said: set[str] = set()

    def say(ahead: int, who: str) -> None:
        if who not in said:
            said.add(who)
            print(f"waiting for {who} ({ahead} ahead)", file=sys.stderr, flush=True)

    return say


@contextlib.contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """A process that burns one core for as long as the body runs; nothing when it is not wanted."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.wait()


# --- a record that survives a stop ------------------------------------------------------------------------


class Journal:
    """The raw results of an experiment; each is on disk before the next begins.

    A file of the same experiment on the same machine is continued, any other is refused.
    """

    def __init__(self, path: Path | None, *, script: str, options: dict[str, Any], machine: Machine) -> None:
        self.path = path
        self.head = {
            "script": script,
            "options": options,
            "machine": machine.text,
            "fingerprint": machine.fingerprint,
        }
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            different = [name for name, value in self.head.items() if found.get(name) != value]
            if different:
                raise SystemExit(
                    f"{path} holds another experiment: {', '.join(different)} differ. Name another file."
                )
            self.rows = found["rows"]
            print(f"continuing {path} after {len(self.rows)}", file=sys.stderr)

    def add(self, row: dict[str, Any]) -> None:
        """Keep one more result."""
        self.rows.append(row)
        if self.path is not None:
            fresh = self.path.with_name(self.path.name + ".new")
            fresh.write_text(json.dumps({**self.head, "rows": self.rows}, indent=1))
            fresh.replace(self.path)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The results of one kind, in order."""
        return [row for row in self.rows if row["kind"] == kind]


def until(
    journal: Journal, kind: str, count: int, make: Callable[[int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Fill `journal` up to `count` results of `kind`, telling how far it is; `make` is given their number."""
    began, before = time.monotonic(), len(journal.of(kind))
    for number in range(before, count):
        journal.add({"kind": kind, **make(number)})
        each_s = (time.monotonic() - began) / (number + 1 - before)
        left_s = each_s * (count - number - 1)
        text = f"{kind}: {number + 1} of {count}, {each_s:.1f} s each, {left_s:.0f} s left"
        print(text, file=sys.stderr, flush=True)
    return journal.of(kind)[:count]


# --- numbers and tables -----------------------------------------------------------------------------------


def share_text(count: int, n: int) -> str:
    """A share with its 95 % interval by Clopper and Pearson (1934)."""
    low, high = share_interval(count, n)
    return f"{count / n:.1%}, 95 % [{low:.1%}, {high:.1%}], n = {n}"


def share_interval(count: int, n: int) -> tuple[float, float]:
    low = beta_quantile(0.025, count, n - count + 1) if count else 0.0
    high = beta_quantile(0.975, count + 1, n - count) if count < n else 1.0
    return low, high


def bootstrap(
    rows: Sequence[Any], statistic: Callable[[Sequence[Any]], float], *, repeats: int = 2000
) -> tuple[float, float]:
    """A 95 % percentile interval of `statistic` over rows drawn again; the same for the same rows."""
    rng = random.Random(0)
    found = sorted(statistic(rng.choices(rows, k=len(rows))) for _ in range(repeats))
    return found[int(0.025 * repeats)], found[int(0.975 * repeats)]


def spread(ratios: Sequence[float]) -> float:
    """The standard deviation of reported ratios, as a share: that of their logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = math.fsum(logs) / len(logs)
    return math.sqrt(math.fsum((one - mean) ** 2 for one in logs) / max(1, len(logs) - 1))


def head(machine: Machine) -> None:
    """Print what the numbers hold for."""
    print(f"{today()}, {machine.text}")
    print(f"fingerprint {machine.fingerprint}\n", flush=True)


def row(what: str, against: str, measured: str, target: str) -> None:
    """Print one row of the README's table."""
    print(f"| {what} | {against} | {measured} | {target} |", flush=True)


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="keep the raw results; continues a stopped run"
    )
    return parser


QUICK = PRECISIONS["quick"]
