"""Runtimes side by side: `python benchmarks/runtimes.py --home FOLDER [--json FILE]`.

What: three questions about runtimes, which the script expects in FOLDER as `ORTUNE_HOME`; without them it
prints the commands that create them.

versions  ONNX Runtime 1.22.1, 1.26, 1.31 and OpenVINO with their defaults, in the same rounds, against 1.31;
          a ratio above 1 is faster. All intervals of a model hold together with 95 % confidence.
same      two environments with the same version of everything, compared again and again at quick effort: the
          true ratio is 1. Target: at most 5 % are called FASTER or SLOWER.
start     one more process of a launch in another interpreter against one in ORTune's own, alternating: the
          extra seconds from the request to the end of its warm-up, and those of its fork server, which starts
          once per comparison.

Every row has the steal and the load of other programs. Exit code 1: the target of `same` is missed.
"""

from __future__ import annotations

import os
import statistics
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
from benchmarks import intervals, models  # noqa: E402
from benchmarks.fleet_client import Surroundings  # noqa: E402
from benchmarks.journal import Journal, until  # noqa: E402
from benchmarks.startup import started  # noqa: E402
from benchmarks.streams import compare  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry  # noqa: E402
from core.process import runtimes  # noqa: E402
from core.process.contestant_workers import Workers  # noqa: E402
from core.wire.runtime import OWN  # noqa: E402
from core.wire.variables import HOME  # noqa: E402

PACKAGES: Mapping[str, str] = {
    "ort122": "onnxruntime==1.22.1",
    "ort126": "onnxruntime==1.26.0",
    "ort131": "onnxruntime==1.31.1",
    "ort131-again": "onnxruntime==1.31.1",
    "openvino": "openvino==2026.4.1",
}
ENGINES: Mapping[str, str] = {"openvino": "openvino"}
REFERENCE, SAME = "ort131", "ort131-again"
MOST_CALLED = 0.05
SAMPLES = Path(__file__).resolve().parent.parent / "sample_models"
MODELS: Mapping[str, Callable[[Path], Path]] = {
    "digits_cnn": lambda _: SAMPLES / "digits_cnn.onnx",
    "tiny_transformer": lambda _: SAMPLES / "tiny_transformer.onnx",
    "conv net, 224 px": lambda folder: models.conv_net(folder / "conv224.onnx", size=224),
}
DIMS = {"tiny_transformer": {"sequence": 64}}
SAME_MODELS = ("digits_cnn", "conv net, 224 px")


def missing() -> list[str]:
    """Return the commands that create the runtimes which do not exist."""
    known = runtimes.names()
    return [
        f"ortune runtimes add {name} --package '{package}'"
        for name, package in PACKAGES.items()
        if name not in known
    ]


def entry(name: str, folder: Path, runtime: str) -> Entry:
    """Return the default configuration of a model in a runtime."""
    found = lab.contestant(runtime, MODELS[name](folder), dims=DIMS.get(name, {}))
    if runtime == OWN:
        return found
    plan: wire.ContestantPlan = {**found.plan, "runtime": runtimes.pinned(runtime)}
    if runtime in ENGINES:
        plan["engine"] = ENGINES[runtime]
        plan["openvino"] = {"device": "CPU", "properties": {}, "reshape": False}
    return replace(found, plan=plan)


def versions(name: str, folder: Path, budget_s: float, seed: int) -> dict[str, Any]:
    """Compare every runtime with the reference."""
    others = [one for one in PACKAGES if one not in (REFERENCE, SAME)]
    found = compare([entry(name, folder, one) for one in (REFERENCE, *others)], budget_s=budget_s, seed=seed)
    around, summary = found.record.other_processes, found.interference
    keys = ("ratio", "ratio_low", "ratio_high", "verdict", "holds", "generations", "rounds")
    contrasts = {
        others[int(one["candidate"]) - 1]: {key: one[key] for key in keys}  # type: ignore[literal-required]
        for one in found.contrasts
        if one["baseline"] == "0"
    }
    p50 = {runtime: _p50(found.trial_result(index)) for index, runtime in enumerate((REFERENCE, *others))}
    return lab.compact(  # type: ignore[no-any-return]
        {
            "model": name,
            "contrasts": contrasts,
            "p50_s": p50,
            "steal": summary["steal_share"],
            "others": None if around is None else lab.others_of(around),
            "at": round(time.time()),
        }
    )


def _p50(result: Any) -> float | None:
    return None if result is None else result["latency"]["p50_s"]


def same(name: str, folder: Path, budget_s: float, seed: int, history: Sequence[Any]) -> dict[str, Any]:
    """Compare two environments of equal content."""
    pair = [entry(name, folder, one) for one in (REFERENCE, SAME)]
    prior_at = lab.history(history)
    found = lab.compare(*pair, precision=lab.QUICK, budget_s=budget_s, seed=seed, prior_at=prior_at)
    return {"model": name, **found}


def start(workers: Workers, own: Entry, other: Entry, known_ns: int, number: int) -> dict[str, Any]:
    """Return seconds of a process in each interpreter, and of the first process with its fork server."""
    around = Surroundings()
    sides = [("own_s", own), ("other_s", other)][:: 1 if number % 2 else -1]
    found = {side: started(workers, one, known_ns, seed=number)[0] for side, one in sides}
    for side, one in sides:
        with Workers(threading.Event()) as fresh:
            first = started(fresh, one, known_ns, seed=number)[0]
            found[f"{side[:-2]}_server_s"] = first - started(fresh, one, known_ns, seed=number)[0]
    return lab.compact({**found, **around.facts()})  # type: ignore[no-any-return]


# --- the report ---------------------------------------------------------------------------------------------


def report(
    of_versions: Sequence[dict[str, Any]],
    of_same: Sequence[dict[str, Any]],
    starts: Sequence[dict[str, Any]],
) -> bool:
    """Print a table of each question; return whether the target is met."""
    print("| model | runtime | speed relative to 1.31.1 | p50 | launches, rounds | other programs, steal |")
    print("|---|---|---|---|---|---|")
    for one in of_versions:
        for runtime, found in one["contrasts"].items():
            print(_version_row(one, runtime, found), flush=True)
    print()
    called = sum(row["verdict"] in lab.CALLED for row in of_same)
    lab.row(
        "called FASTER or SLOWER",
        "two environments of the same version",
        f"{intervals.share_text(called, len(of_same))}; {lab.quiet_text(of_same)}",
        f"≤ {MOST_CALLED:.0%}",
    )
    for words, side in (("one more process of a launch", ""), ("its fork server", "_server")):
        extra = [row[f"other{side}_s"] - row[f"own{side}_s"] for row in starts]
        low, high = intervals.bootstrap(extra, lambda chosen: float(statistics.median(chosen)))
        text = f"{statistics.median(extra):+.4f} s, 95 % CI [{low:+.4f}, {high:+.4f}], n = {len(extra)}"
        lab.row(f"extra cost of another interpreter: {words}", "in ORTune's own", text, "no target")
    return called <= MOST_CALLED * len(of_same)


def _version_row(one: Mapping[str, Any], runtime: str, found: Mapping[str, Any]) -> str:
    low, high = found["ratio_low"], found["ratio_high"]
    bounds = f", 95 % CI [{low:.2f}, {high:.2f}]" if low and high else " (no interval)"
    holds = "" if found["holds"] else "; rejected by the A/A control"
    others = "?" if one["others"] is None else f"{one['others']:.2f} CPUs"
    steal = "?" if one["steal"] is None else f"{one['steal']:.1%}"
    p50 = one["p50_s"].get(runtime)
    return (
        f"| {one['model']} | {PACKAGES[runtime]} | {found['ratio']:.2f}×{bounds}{holds} "
        f"| {lab.milliseconds([p50])} ms | {found['generations']}, {found['rounds']} | {others}, {steal} |"
    )


def main() -> int:
    """Run the experiment."""
    parser = lab.options(__doc__)
    parser.add_argument("--home", type=Path, required=True, help="ORTUNE_HOME with the runtimes")
    parser.add_argument("--budget-s", type=float, default=30.0, help="of a comparison of versions")
    parser.add_argument("--same-s", type=float, default=20.0, help="of a comparison of equal environments")
    parser.add_argument("--times", type=int, default=1, help="measurements of each model")
    parser.add_argument("--same", type=int, default=40, help="comparisons of equal environments")
    parser.add_argument("--starts", type=int, default=20, help="processes in each interpreter")
    given = parser.parse_args()
    os.environ[HOME] = str(given.home.absolute())
    if commands := missing():
        print(f"Some runtimes are missing in {given.home}. Create them with:", *commands, sep="\n")
        return 2
    machine = lab.this_machine()
    options = {"budget_s": given.budget_s, "same_s": given.same_s}
    journal = Journal(given.json, script="runtimes", options=options, machine=machine)
    names = list(MODELS)
    with (
        tempfile.TemporaryDirectory() as text,
        lab.turn("benchmarks/runtimes.py"),
        Workers(threading.Event()) as workers,
    ):
        folder = Path(text)
        own, other = (entry("digits_cnn", folder, one) for one in (OWN, REFERENCE))
        known_ns = started(workers, own, None, seed=0)[1]
        started(workers, other, None, seed=0)
        starts = until(journal, "start", given.starts, lambda i: start(workers, own, other, known_ns, i))
        of_versions = until(
            journal,
            "versions",
            given.times * len(names),
            lambda i: versions(names[i % len(names)], folder, given.budget_s, i),
        )
        of_same = until(
            journal,
            "same",
            given.same,
            lambda i: same(SAME_MODELS[i % len(SAME_MODELS)], folder, given.same_s, i, journal.of("same")),
        )
    lab.head(machine)
    return 0 if report(of_versions, of_same, starts) else 1


if __name__ == "__main__":
    sys.exit(main())
