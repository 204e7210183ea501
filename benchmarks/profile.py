"""Time and memory of ORTune's profile reader: `python benchmarks/profile.py [--events N]`.

The reference is the usual code: `json.load`, then a pandas groupby. Its code here is the lightest that gives
the same per-operator table (three columns, nested arguments left as they are). The generated profile has no
If, Loop or Scan, whose bodies that code would count twice. ORTune's reader also computes nesting, per-node
medians and a timeline in its time. A second reference, with Python's garbage collector off, is for
information.

The generated lines are those that ORT 1.31.1 writes with one intra-op thread and the CPU arena off (about 420
bytes each), in the sizes of a 232-node image classifier. Each side runs in a fresh process; the clock starts
after the imports, the peak is the process's VmHWM, imports included. Exit code 1: a target is missed or the
tables differ.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

# This file's name is that of a module of the standard library; its folder must not be searched.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

SPEED_TARGET = 3.0  # times faster
MEMORY_TARGET = 0.5  # of the reference's peak
SKIP_RUNS = 1
OPERATORS = {  # operator: nodes in one run, typical µs
    "Conv": (81, 120),
    "QuickGelu": (49, 15),
    "ReorderOutput": (34, 9),
    "ReorderInput": (34, 8),
    "Mul": (16, 14),
    "GlobalAveragePool": (9, 11),
    "Add": (6, 7),
    "Sigmoid": (1, 4),
    "Flatten": (1, 2),
    "Gemm": (1, 33),
}

Table = dict[str, tuple[int, float]]  # operator -> calls and seconds of self time, over all kept runs


def line(cat: str, name: str, ts: int, dur: int, args: str = "{}") -> str:
    text = f'{{"cat" : "{cat}","pid" :4711,"tid" :4711,"dur" :{dur},"ts" :{ts},"ph" : "X","name" :"{name}",'
    return f'{text}"args" : {args}}},\n'


def node_arguments(rng: random.Random, op_type: str, index: int) -> str:
    """Arguments as ORT writes them: all text, in an order that differs between events."""
    channels, side = rng.choice([(16, 112), (24, 56), (80, 28), (192, 14), (320, 7)])
    weights = f',{{"float":[{channels},{channels},3,3]}}' if op_type == "Conv" else ""
    tensor = f'{{"float":[1,{channels},{side},{side}]}}'
    size = 4 * channels * side * side
    pairs = [
        ("op_name", f'"{op_type}"'),
        ("provider", '"CPUExecutionProvider"'),
        ("node_index", f'"{index}"'),
        ("parameter_size", f'"{36 * channels * channels if weights else 0}"'),
        ("activation_size", f'"{size}"'),
        ("output_size", f'"{size}"'),
        ("input_type_shape", f"[{tensor}{weights}]"),
        ("output_type_shape", f"[{tensor}]"),
        ("thread_scheduling_stats", '""'),
    ]
    rng.shuffle(pairs)
    return "{" + ",".join(f'"{key}" : {value}' for key, value in pairs) + "}"


def graph(rng: random.Random) -> list[tuple[str, str, int]]:
    """The nodes of one run, in order: name, arguments, typical µs."""
    kinds = [(op_type, typical) for op_type, (nodes, typical) in OPERATORS.items() for _ in range(nodes)]
    rng.shuffle(kinds)
    return [
        (f"node_{op_type.lower()}_{index}_nchwc_kernel_time", node_arguments(rng, op_type, index), typical)
        for index, (op_type, typical) in enumerate(kinds)
    ]


def lines() -> Iterator[str]:
    """The lines of a profile without end, in the order in which the events end."""
    rng = random.Random(0)
    yield line("Session", "model_loading_uri", 6, 451)
    yield line("Session", "session_initialization", 499, 70_000)
    nodes = graph(rng)
    now = 75_000
    while True:
        start = now
        now += 12
        for name, arguments, typical in nodes:
            duration = int(typical * rng.uniform(0.9, 1.3))
            yield line("Node", name, now, duration, arguments)
            now += duration + 3
        yield line("Session", "SequentialExecutor::Execute", start + 9, now - start - 9)
        yield line("Session", "model_run", start, now - start + 4)
        now += 20


def write_profile(path: Path, events: int) -> None:
    with path.open("w") as file:
        file.write("[\n")
        for number, text in zip(count(1), lines(), strict=False):
            file.write(text if number < events else text.rstrip(",\n"))
            if number == events:
                break
        file.write("\n]\n")


def ours(path: Path) -> Callable[[], Table]:
    from core.worker.measure.profile_parser import parse_profile

    def read() -> Table:
        profile = parse_profile(path, skip_runs=SKIP_RUNS)
        table: dict[str, tuple[int, float]] = {}
        for node in profile.nodes:
            calls, seconds = table.get(node.op_type, (0, 0.0))
            table[node.op_type] = (calls + node.calls, seconds + node.total_s)
        return table

    return read


def rival(path: Path) -> Callable[[], Table]:
    import pandas as pd

    def read() -> Table:
        with path.open() as file:
            events = json.load(file)
        runs = [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == "model_run"]
        rows = [
            (event["args"]["op_name"], event["ts"], event["dur"])
            for event in events
            if event["cat"] == "Node"
        ]
        frame = pd.DataFrame(rows, columns=["op_name", "ts", "dur"])
        frame = frame[(frame["ts"] >= runs[SKIP_RUNS][0]) & (frame["ts"] < runs[-1][1])]
        grouped = frame.groupby("op_name")["dur"]
        calls, total = grouped.count(), grouped.sum()
        return {str(op_name): (int(calls[op_name]), int(total[op_name]) / 1e6) for op_name in calls.index}

    return read


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    import resource  # here VmHWM does not exist; this peak may include that of the parent before exec

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


SIDES = {"ORTune": ours, "json.load + pandas": rival, "the same, gc off": rival}


def run_side(side: str, path: Path) -> dict[str, Any]:
    """In the fresh process: one reading."""
    read = SIDES[side](path)
    if "gc off" in side:
        gc.disable()
    started = time.perf_counter()
    table = read()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_bytes": peak_bytes(), "table": table}


def start_side(side: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--side", side, "--file", str(path)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    reply: dict[str, Any] = json.loads(answer.stdout)
    return reply


def machine() -> str:
    try:
        found = [
            text for text in Path("/proc/cpuinfo").read_text().splitlines() if text.startswith("model name")
        ]
        cpu = found[0].split(":")[1].strip()
    except (OSError, IndexError):
        cpu = platform.processor()
    versions = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "pandas"))
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{cpu}, {os.cpu_count()} cores, {system}, {versions}"


def same(one: Table, other: Table) -> bool:
    return one.keys() == other.keys() and all(
        one[key][0] == other[key][0] and math.isclose(one[key][1], other[key][1], rel_tol=1e-9) for key in one
    )


def compare(events: int, rounds: int) -> bool:
    """Measure and print; true when both targets are met and the tables agree."""
    replies: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        write_profile(path, events)
        print(machine())
        print(
            f"{events:,} events, {path.stat().st_size / 1e6:.0f} MB; medians of {rounds} alternating rounds"
        )
        for turn in range(rounds):
            for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                replies[side].append(start_side(side, path))
    seconds = {side: statistics.median(reply["seconds"] for reply in got) for side, got in replies.items()}
    peaks = {side: statistics.median(reply["peak_bytes"] for reply in got) for side, got in replies.items()}
    for side, got in replies.items():
        spread = " ".join(f"{reply['seconds']:.2f}" for reply in got)
        print(f"{side:20} {seconds[side]:7.2f} s  ({spread})  peak {peaks[side] / 1e6:7.0f} MB")
    mine, theirs = list(SIDES)[:2]
    tables = [reply["table"] for got in replies.values() for reply in got]
    agree = all(same(tables[0], table) for table in tables)
    faster, memory = seconds[theirs] / seconds[mine], peaks[mine] / peaks[theirs]
    print(f"{mine} is {faster:.1f}× as fast (target {SPEED_TARGET:g}×)")
    print(f"{mine} needs {memory:.1%} of the peak memory (target {MEMORY_TARGET:.0%})")
    print(f"the same table: {'yes' if agree else 'NO'} ({len(tables[0])} operators)")
    return agree and faster >= SPEED_TARGET and memory <= MEMORY_TARGET


def main() -> int:
    parser = argparse.ArgumentParser(description="Time ORTune's profile reader against json.load + pandas.")
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options.side, options.file)))
        return 0
    return 0 if compare(options.events, options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
