"""Throughput of the best streams × threads over ONNX Runtime's default, on this machine.

For each of four models every combination of streams, threads and stream type with streams × threads within
the CPUs is compared with the default (one stream, ONNX Runtime's threads) in interleaved rounds. The one with
the highest throughput is then compared with the default again, in fresh processes: the reported ratio comes
from that confirmation alone, so that the choice does not inflate it. Each row has the interval, the launches
and rounds, the load of other programs and the steal. No target; exit code 0.

    python benchmarks/streams.py [--budget-s 20] [--times 1] [--models NAME …] [--json FILE]
"""

from __future__ import annotations

import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import models  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from core.evidence.comparison import Contestant  # noqa: E402
from core.evidence.record import Entry, Settings  # noqa: E402
from core.evidence.result import Evidence, MeasuredConfiguration  # noqa: E402
from core.run.launches import run_launches  # noqa: E402
from core.spec.settings.search_values import doubling  # noqa: E402
from core.wire import StreamType  # noqa: E402
from core.wire.limits import allowed_cpus, cpu_quota, most_processes  # noqa: E402

SAMPLES = Path(__file__).resolve().parent.parent / "sample_models"
MODELS: Mapping[str, Callable[[Path], Path]] = {
    "digits_cnn": lambda _: SAMPLES / "digits_cnn.onnx",
    "tiny_transformer": lambda _: SAMPLES / "tiny_transformer.onnx",
    "conv net, 64 px": lambda folder: models.conv_net(folder / "conv64.onnx"),
    "conv net, 224 px": lambda folder: models.conv_net(folder / "conv224.onnx", size=224),
}
DIMS = {"tiny_transformer": {"sequence": 64}}
Way = tuple[int, int, StreamType]  # streams, threads (0: ONNX Runtime's choice), type


def ways(cpus: int) -> list[Way]:
    """Return every combination of streams and threads within the CPUs."""
    found: list[Way] = [(1, threads, "threads") for threads in doubling(1, cpus)]
    for streams in doubling(2, cpus):
        for threads in (0, *doubling(1, cpus // streams)):
            found += [(streams, threads, "threads"), (streams, threads, "processes")]
    return found


def name_of(way: Way) -> str:
    """Return a combination in words."""
    streams, threads, kind = way
    told = f"{threads} thread{'s' * (threads != 1)}" if threads else "default threads"
    return f"{streams} {kind} × {told}" if streams > 1 else f"1 stream × {told}"


def entry(path: Path, way: Way, dims: Mapping[str, int]) -> Entry:
    """Return a configuration of the model at `path`."""
    streams, threads, kind = way
    session = {"intra_op_num_threads": threads} if threads else {}
    found = lab.contestant(name_of(way), path, dims=dims, **session)
    if streams > 1:
        found = replace(found, plan={**found.plan, "streams": streams, "stream_type": kind})
    return found


def compare(entries: Sequence[Entry], *, budget_s: float, seed: int) -> Evidence:
    """Compare configurations with the default, which is the first."""
    record = run_launches(
        entries,
        Settings(
            effort=lab.QUICK,
            budget_s=budget_s,
            margin=lab.MARGIN,
            seed=seed,
            timeout_s=lab.TIMEOUT_S,
            baseline=0,
            anchor=0,
        ),
        cancel=threading.Event(),
        on_progress=lambda progress: None,
        on_live=lambda live: None,
    )
    for one, ran in zip(entries, record.ran, strict=True):
        if ran.error is not None:
            raise SystemExit(f"{one.label}: {ran.error.message} {ran.error.hint}")
    record.by_throughput = True  # also where the best has one stream
    configurations = [
        MeasuredConfiguration(
            contestant=Contestant(
                trial=str(index), label=one.label, role="candidate" if index else "baseline"
            ),
            precision="fp32",
            feeds=one.plan["feeds"],
        )
        for index, one in enumerate(entries)
    ]
    return Evidence(
        record=record,
        configurations=configurations,
        looks=len(lab.QUICK.looks),
        margin=lab.MARGIN,
        baseline=0,
        anchor=0,
        environment=None,
    )


def one_model(name: str, cpus: int, budget_s: float, seed: int) -> dict[str, Any]:
    """Choose the best combination of a model, and confirm it against the default."""
    with tempfile.TemporaryDirectory() as folder:
        path, dims = MODELS[name](Path(folder)), DIMS.get(name, {})
        default = lab.contestant("ORT default", path, dims=dims)
        candidates = ways(cpus)
        first = compare(
            [default, *(entry(path, one, dims) for one in candidates)], budget_s=budget_s, seed=seed
        )
        best = max(first.contrasts, key=lambda one: one["ratio"])
        way = candidates[int(best["candidate"]) - 1]
        found = compare([default, entry(path, way, dims)], budget_s=budget_s, seed=seed + 1)
    contrast, own, other = found.contrasts[0], found.trial_result(1), found.trial_result(0)
    assert own is not None
    assert other is not None
    keys = ("ratio", "ratio_low", "ratio_high", "verdict", "holds", "generations", "rounds")
    around, summary = found.record.other_processes, found.interference
    return lab.compact(  # type: ignore[no-any-return]
        {
            "model": name,
            "best": name_of(way),
            **{key: contrast[key] for key in keys},  # type: ignore[literal-required]
            "rate_per_s": own["throughput_per_s"],
            "rate_low": own["throughput_per_s_low"],
            "rate_high": own["throughput_per_s_high"],
            "default_per_s": other["throughput_per_s"],
            "fairness": own.get("streams", {}).get("fairness"),
            "chosen": {
                name_of(candidates[int(one["candidate"]) - 1]): one["ratio"] for one in first.contrasts
            },
            "steal": summary["steal_share"],
            "others": None if around is None else lab.others_of(around),
            "at": round(time.time()),
        }
    )


def report(rows: Sequence[dict[str, Any]]) -> None:
    """Print one row per measurement."""
    print("| model | best | samples/s over the default | launches, rounds | other programs, steal |")
    print("|---|---|---|---|---|")
    for one in rows:
        low, high = one["ratio_low"], one["ratio_high"]
        bounds = f", 95 % CI [{low:.2f}, {high:.2f}]" if low and high else " (no interval)"
        holds = "" if one["holds"] else "; rejected by the A/A control"
        others = "?" if one["others"] is None else f"{one['others']:.2f} CPUs"
        steal = "?" if one["steal"] is None else f"{one['steal']:.1%}"
        print(
            f"| {one['model']} | {one['best']} | {one['ratio']:.2f}×{bounds}{holds} "
            f"| {one['generations']}, {one['rounds']} | {others}, {steal} |",
            flush=True,
        )
    logs = [math.log(one["ratio"]) for one in rows]
    print(f"\ngeometric mean of {len(rows)} results: {math.exp(math.fsum(logs) / len(logs)):.2f}×")


def main() -> int:
    """Run the experiment."""
    parser = lab.options(__doc__)
    parser.add_argument("--budget-s", type=float, default=20.0, help="of each comparison; two per model")
    parser.add_argument("--times", type=int, default=1, help="measurements of each model")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    machine, cpus = lab.this_machine(), most_processes(allowed_cpus(), cpu_quota())
    options = {"budget_s": given.budget_s, "models": given.models}
    journal = Journal(given.json, script="streams", options=options, machine=machine)
    with lab.turn("benchmarks/streams.py"):
        rows = until(
            journal,
            "model",
            given.times * len(given.models),
            lambda i: one_model(given.models[i % len(given.models)], cpus, given.budget_s, seed=i),
        )
    lab.head(machine)
    report(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
