"""Overhead of ORTune's worker against a loop written by hand.

A bare loop in one fresh process is compared with a process of a configuration as `bench` starts it, with a
new memory layout in each launch. They alternate A B B A with the same settings, for plain `run` and for I/O
binding, on a six-element Mul and on MobileNetV3-Small, one thread. Two processes of the same program differ
by some percent on a shared machine, so MobileNetV3-Small is measured a second time with both loops on one
session, in alternating blocks of 20 runs. Prints the medians and the median difference with its 95 % interval
over the pairs. Exit code 1: a target (+0.5 us on the Mul, 1 % on MobileNetV3-Small) is missed, or the Mul's
processes and MobileNetV3-Small's blocks do not show that it is met.

    python benchmarks/harness.py [--repeats 16] [--runs 20000] [--model FILE.onnx] [--skip-model]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from core import wire  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402 - the script also runs from a checkout that is not installed
from tests.builders import feed_plan, one_input  # noqa: E402

TARGET_NS = 500.0
TARGET_SHARE = 0.01

BARE = """
import os
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import json, statistics, sys, time
import numpy as np
import onnxruntime as ort

path, name, shape, bound, warmups, runs = json.loads(sys.argv[1])
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
x = np.random.default_rng(0).random(shape, dtype=np.float32)
if bound:
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(x))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    for _ in range(warmups):
        session.run_with_iobinding(binding)
    latencies = []
    for _ in range(runs):
        began = time.perf_counter_ns()
        session.run_with_iobinding(binding)
        latencies.append(time.perf_counter_ns() - began)
else:
    feeds = {name: x}
    for _ in range(warmups):
        session.run(None, feeds)
    latencies = []
    for _ in range(runs):
        began = time.perf_counter_ns()
        session.run(None, feeds)
        latencies.append(time.perf_counter_ns() - began)
print(statistics.median(latencies))
"""

OURS = """
import json, statistics, sys
from core.worker.measure.contestant import Contestant

plan, runs = json.loads(sys.argv[1])
contestant = Contestant()
contestant.load(plan)
contestant.warm()
print(statistics.median(contestant.block(block_ns=0, min_runs=runs, max_runs=runs)["latencies_ns"]))
"""

ALTERNATE = """
import gc, json, statistics, sys, time
from core.worker.measure.inference import prepare
from core.worker.measure.timing import time_block
from core.worker.session import build_session

plan, block, pairs = json.loads(sys.argv[1])
inference = prepare(build_session(plan["model_path"], plan["session"]), plan)
session = inference.built.session
if plan["use_io_binding"]:
    import onnxruntime as ort
    from core.worker.session.feeds import make_feeds

    binding = session.io_binding()
    for name, array in make_feeds(plan["feeds"], session.get_inputs()).arrays.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    run, argument = session.run_with_iobinding, (binding,)
else:
    from core.worker.session.feeds import make_feeds

    run, argument = session.run, (None, make_feeds(plan["feeds"], session.get_inputs()).arrays)


def bare():
    gc.collect()
    run(*argument)
    latencies = []
    for _ in range(block):
        began = time.perf_counter_ns()
        run(*argument)
        latencies.append(time.perf_counter_ns() - began)
    return statistics.median(latencies)


def ours():
    gc.collect()  # as a contestant does once before each block
    timed = time_block(inference.call, block_ns=0, min_runs=block, max_runs=block)
    return statistics.median(timed.latencies_ns)


for _ in range(3):
    bare(), ours()
found = []
for number in range(pairs):
    if number % 2:
        second = ours()
        found.append((bare(), second))
    else:
        found.append((bare(), ours()))
print(json.dumps(found))
"""

EXPORT = """
import sys, torch, torchvision
torch.manual_seed(0)
model = torchvision.models.mobilenet_v3_small(weights=None).eval()
torch.onnx.export(model, (torch.zeros(1, 3, 224, 224),), sys.argv[1], external_data=False, verbose=False)
"""

UNDECIDED = "undecided at this noise"
BLOCK = 20

KINDS = ((True, "I/O binding"), (False, "plain run"))

Pairs = list[tuple[float, float]]
Target = Callable[[float], float]  # median of the bare loop -> largest difference allowed, nanoseconds
Case = tuple[Path, str, list[int], int, int]  # model, name and shape of its input, warm-up runs, runs


def bare(case: Case, bound: bool) -> float:
    path, name, shape, warmups, runs = case
    argument = json.dumps([str(path), name, shape, bound, warmups, runs])
    done = subprocess.run(
        [sys.executable, "-c", BARE, argument], check=True, capture_output=True, text=True, timeout=600
    )
    return float(done.stdout)


def ortune(case: Case, bound: bool) -> float:
    """The median of a fresh process of a configuration, with its own memory layout."""
    load = {**plan(case, bound), "layout_seed": random.randrange(2**31)}
    done = subprocess.run(
        [sys.executable, "-c", OURS, json.dumps([load, case[-1]])],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    return float(done.stdout)


def plan(case: Case, bound: bool) -> dict[str, Any]:
    path, name, shape, warmups, _ = case
    return {
        "model_path": str(path),
        "session": {**wire.default_session_plan(), "attributes": {"intra_op_num_threads": 1}},
        "feeds": feed_plan(one_input(name, shape=tuple(shape))),
        "engine": "onnxruntime",
        "torch": None,
        "cpus": [],
        "use_io_binding": bound,
        "warmup_runs": warmups,
    }


def processes(case: Case, bound: bool, repeats: int) -> Pairs:
    """Medians in nanoseconds (bare, ours) of two fresh processes each, in the order A B B A."""
    pairs: Pairs = []
    for number in range(repeats):
        if number % 2:
            ours = ortune(case, bound)
            pairs.append((bare(case, bound), ours))
        else:
            theirs = bare(case, bound)
            pairs.append((theirs, ortune(case, bound)))
    return pairs


def blocks(case: Case, bound: bool, repeats: int) -> Pairs:
    """Medians in nanoseconds (bare, ours) of alternating blocks on one session of one process."""
    argument = json.dumps([plan(case, bound), BLOCK, repeats])
    done = subprocess.run(
        [sys.executable, "-c", ALTERNATE, argument],
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    return [(float(theirs), float(ours)) for theirs, ours in json.loads(done.stdout)]


def verdict(pairs: Pairs, target: Target) -> str:
    low, _, high = interval([ours - theirs for theirs, ours in pairs])
    limit = target(statistics.median(theirs for theirs, _ in pairs))
    return "reached" if high <= limit else "MISSED" if low > limit else UNDECIDED


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median with its 95 % interval by order statistics (the binomial sign interval)."""
    ordered, n, rank, tail = sorted(values), len(values), 0, 0.0
    while (tail := tail + math.comb(n, rank) / 2**n) <= 0.025:
        rank += 1
    if rank == 0:  # fewer than six values support no interval
        return -math.inf, statistics.median(values), math.inf
    return ordered[rank - 1], statistics.median(values), ordered[n - rank]


def report(title: str, pairs: Pairs, target: Target) -> str:
    """Print one row and return its verdict."""
    base = statistics.median(theirs for theirs, _ in pairs)
    ours = statistics.median(ours for _, ours in pairs)
    low, middle, high = interval([ours - theirs for theirs, ours in pairs])
    result = verdict(pairs, target)
    print(
        f"{title:42} bare {base / 1e3:8.2f} µs, ORTune {ours / 1e3:8.2f} µs, "
        f"difference {middle / 1e3:+.2f} µs = {middle / base:+.2%} "
        f"(95 %: {low / 1e3:+.2f} to {high / 1e3:+.2f}, {len(pairs)} pairs), "
        f"target {target(base) / 1e3:+.2f} µs: {result}",
        flush=True,
    )
    return result


def mul(folder: Path) -> Path:
    from tests.tiny_models import mul as write

    return write(folder / "mul.onnx")


def mobilenet(folder: Path, given: str | None) -> Path:
    if given:
        return Path(given)
    path = folder / "mobilenet_v3_small.onnx"
    print("Exporting MobileNetV3-Small (random weights) ...", file=sys.stderr)
    subprocess.run(
        [sys.executable, "-c", EXPORT, str(path)],
        check=True,
        capture_output=True,
        timeout=600,
    )
    return path


def input_of(path: Path) -> tuple[str, list[int]]:
    """The one input's name and shape, free dimensions as 1, read by a worker."""
    one = run_job(wire.INSPECT, {"path": str(path)})["inputs"][0]
    return one["name"], [size if isinstance(size, int) else 1 for size in one["shape"] or ()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=16, help="pairs of processes on the Mul")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--model", help="an ONNX file of MobileNetV3-Small; made on the spot when not given")
    parser.add_argument("--model-repeats", type=int, default=20, help="pairs of processes on the model")
    parser.add_argument("--model-runs", type=int, default=300)
    parser.add_argument("--blocks", type=int, default=400, help="pairs of blocks on the model")
    parser.add_argument("--skip-model", action="store_true")
    arguments = parser.parse_args()
    print(f"{machine()}, one thread", flush=True)
    decisive, others = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        small: Case = (mul(folder), "x", [3, 2], 100, arguments.runs)
        for bound, name in KINDS:
            pairs = processes(small, bound, arguments.repeats)
            decisive.append(report(f"Mul, {name}, processes", pairs, lambda base: TARGET_NS))
        if not arguments.skip_model:
            path = mobilenet(folder, arguments.model)
            large: Case = (path, *input_of(path), 10, arguments.model_runs)
            for bound, name in KINDS:
                title = f"MobileNetV3-Small, {name}"
                pairs = processes(large, bound, arguments.model_repeats)
                others.append(report(f"{title}, processes", pairs, share))
                pairs = blocks(large, bound, arguments.blocks)
                decisive.append(report(f"{title}, blocks", pairs, share))
    return 0 if set(decisive) == {"reached"} and "MISSED" not in others else 1


def share(base: float) -> float:
    return TARGET_SHARE * base


def machine() -> str:
    """The machine and versions of the numbers, in one line."""
    facts = run_job(wire.ENVIRONMENT, {})
    versions = facts["libraries"]
    ort = versions.get("onnxruntime-gpu") or versions.get("onnxruntime")
    cpu = facts["cpu"]
    return f"{cpu['model']}, {cpu['usable']} cores, Python {facts['python']}, ONNX Runtime {ort}"


if __name__ == "__main__":
    sys.exit(main())
