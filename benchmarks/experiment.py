"""Shared by experiments on comparisons: configurations, a comparison, the queue of this machine, table rows.

The experiments call `core.run.launches` and `core.evidence.result`, as the scheduler does; nothing is
implemented again here. Every experiment waits for its turn on this machine before it measures.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.background_load import FOREIGN_CPUS, STEAL_SHARE
from core.evidence.comparison import Contestant
from core.evidence.other_processes import SERVER, OtherProcesses
from core.evidence.ranking import paired_log_ratios
from core.evidence.record import Entry, RawComparison, Settings
from core.evidence.result import Evidence, MeasuredConfiguration
from core.evidence.speedup_interval import ASSUMED_PRIOR, Prior, contrast
from core.process.job_worker import run_job
from core.process.machine_queue import MachineQueue
from core.run.launches import run_launches
from core.run.plan import feed_plan, session_plan
from core.run.prior import SELF_TESTS, spread
from core.spec import WorkloadSpec, session_from_dict
from core.spec.effort import EFFORTS, Effort

MARGIN = 0.02
TIMEOUT_S = 120.0
QUICK = EFFORTS["quick"]
PriorAt = Callable[[float], Prior]

VERDICTS = ("FASTER", "SLOWER", "EQUIVALENT", "UNDECIDED")
CALLED = ("FASTER", "SLOWER")


# --- one comparison ---------------------------------------------------------------------------------------


def contestant(label: str, path: Path, *, dims: Mapping[str, int] | None = None, **session: Any) -> Entry:
    """ONNX Runtime's default session on the model at `path`, except for the given settings.

    `dims` are the sizes of free dimensions other than the batch.
    """
    info = run_job(wire.INSPECT, {"path": str(path)})
    plan: wire.ContestantPlan = {
        "engine": "onnxruntime",
        "model_path": str(path),
        "torch": None,
        "session": session_plan(session_from_dict(session)),
        "feeds": feed_plan(WorkloadSpec(batch_size=1, dims=dict(dims or {})), info),
        "use_io_binding": False,
        "warmup_runs": None,
        "cpus": [],
    }
    return Entry(label=label, plan=plan)


def compare(
    baseline: Entry,
    candidate: Entry,
    *,
    precision: Effort,
    budget_s: float,
    seed: int,
    prior_at: PriorAt = lambda run_s: ASSUMED_PRIOR,
) -> dict[str, Any]:
    """Compare two configurations as the product does, and return the result as one compact record.

    Args:
        baseline: with two processes in each generation: itself and its A/A control.
        candidate: with one.
        precision: when to stop.
        budget_s: time budget of the comparison.
        seed: of the order of rounds.
        prior_at: seconds of a run -> spread between processes that earlier comparisons showed.

    Returns:
        `ratio`, `ratio_low`, `ratio_high`, `verdict`, `holds`, `grade`, `generations`, `rounds`,
        `half_width`, `standard_error`, `df`, `sigma`, `sigma_between`, `between_from`, `drifting` as in a
        stored contrast (None if no round counts); `busy` (its words), `steal`, `others` (cores that
        programs other than this script used), `quiet` (steal below 1 %, no other load), `aa` (the A/A
        control), `centers` (log ratio of each launch, in millionths), `run_s` (of the baseline),
        `outcome`, `wall_s`, `at`.
    """
    began = time.monotonic()
    record = run_launches(
        [baseline, candidate],
        Settings(
            effort=precision,
            budget_s=budget_s,
            margin=MARGIN,
            seed=seed,
            timeout_s=TIMEOUT_S,
            baseline=0,
            anchor=0,
            prior_at=prior_at,
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
    found = {
        **_contrast(evidence),
        **_machine(evidence),
        "aa": _self_test(evidence),
        "centers": _centers(record),
        "run_s": _run_s(record),
        "outcome": record.outcome,
        "wall_s": wall_s,
    }
    return {**compact(found), "at": round(time.time())}


_OF_CONTRAST = (
    "ratio",
    "ratio_low",
    "ratio_high",
    "verdict",
    "holds",
    "grade",
    "generations",
    "rounds",
    "half_width",
    "standard_error",
    "df",
    "sigma",
    "sigma_between",
    "between_from",
    "drifting",
)


def _contrast(evidence: Evidence) -> dict[str, Any]:
    """The contrast of a comparison; undecided if no round counts."""
    nothing: dict[str, Any] = dict.fromkeys(_OF_CONTRAST) | {
        "verdict": "UNDECIDED",
        "holds": True,
        "grade": evidence.grade.grade,
        "generations": 0,
        "rounds": 0,
    }
    found: Mapping[str, Any] = evidence.contrasts[0] if evidence.contrasts else nothing
    return {name: found[name] for name in _OF_CONTRAST}


def _machine(evidence: Evidence) -> dict[str, Any]:
    """What else went on while this duel ran, and whether that was next to nothing."""
    summary, around = evidence.interference, evidence.record.other_processes
    others = None if around is None else others_of(around)
    quiet = (
        summary["steal_share"] is not None
        and summary["steal_share"] < STEAL_SHARE
        and others is not None
        and others <= FOREIGN_CPUS
        and "foreign_load" not in summary["run_flags"]
    )
    return {
        "busy": None if evidence.busy is None else evidence.busy["words"],
        "steal": summary["steal_share"],
        "others": others,
        "quiet": quiet,
    }


def others_of(around: OtherProcesses) -> float:
    """Cores that other programs used, without the process of the experiment itself."""
    return around.cores - math.fsum(one["cores"] for one in around.programs if one["name"] == SERVER)


def _self_test(evidence: Evidence) -> dict[str, Any] | None:
    aa = evidence.aa
    if aa is None:
        return None
    kept = {name: getattr(aa, name) for name in ("ratio", "half_width", "generations", "sigma_between")}
    return {**kept, "excess_between": evidence.to_dict()["self_tests"][0]["excess_between"]}


def _per_round(record: RawComparison, index: int) -> dict[tuple[int, int], float]:
    """Round -> ln of the median run of a configuration, the mean over its processes."""
    found: dict[tuple[int, int], list[float]] = {}
    for block in record.blocks:
        if block.contestant == index:
            medians = found.setdefault((block.generation, block.round), [])
            medians.append(math.log(statistics.median(block.latencies_s)))
    return {key: math.fsum(values) / len(values) for key, values in found.items()}


def _centers(record: RawComparison) -> list[int]:
    """The log ratio of each launch: another rule for the interval can be tested on these."""
    rounds = paired_log_ratios(_per_round(record, 1), _per_round(record, 0))
    return [round(1e6 * math.log(contrast([one]).ratio)) for one in rounds if one]


def _run_s(record: RawComparison) -> float | None:
    runs_s = [statistics.median(one.latencies_s) for one in record.blocks if one.contestant == 0]
    return statistics.median(runs_s) if runs_s else None


def _evidence(entries: Sequence[Entry], record: RawComparison, *, looks: float) -> Evidence:
    configurations = [
        MeasuredConfiguration(
            contestant=Contestant(
                trial=str(index), label=one.label, role="baseline" if index == 0 else "candidate"
            ),
            precision="fp32",
            feeds=one.plan["feeds"],
        )
        for index, one in enumerate(entries)
    ]
    return Evidence(
        record=record,
        configurations=configurations,
        looks=looks,
        margin=MARGIN,
        baseline=0,
        anchor=0,
        environment=None,
    )


def compact(value: Any) -> Any:
    """The same plain data, with numbers of five significant digits."""
    match value:
        case dict():
            return {name: compact(one) for name, one in value.items()}
        case list():
            return [compact(one) for one in value]
        case float():
            return float(f"{value:.5g}")
    return value


def history(rows: Sequence[dict[str, Any]]) -> PriorAt:
    """The spread between processes that the store would report after comparisons with these `rows`."""
    kept = [row for row in rows if row.get("aa") and row.get("run_s")][-SELF_TESTS:]
    self_tests = [{**row["aa"], "run_s": row["run_s"], "busy": row["busy"]} for row in kept[::-1]]
    return lambda run_s: spread(self_tests, run_s)


# --- the machine ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that the numbers were measured on."""

    text: str
    fingerprint: str


def this_machine() -> Machine:
    """Call a worker, as the scheduler does."""
    facts = run_job(wire.ENVIRONMENT, {})
    cpu, versions = facts["cpu"], facts["libraries"]
    ort = versions.get("onnxruntime-gpu") or versions.get("onnxruntime")
    return Machine(
        text=f"{cpu['model']}, {cpu['usable']} usable of {cpu['logical']} CPUs, kernel {facts['kernel']}, "
        f"Python {facts['python']}, ONNX Runtime {ort}",
        fingerprint=facts["fingerprint"],
    )


@contextlib.contextmanager
def turn(what: str) -> Iterator[None]:
    """Wait until nothing else of ORTune measures on this machine; SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with MachineQueue().turn("benchmarks", what, on_wait=_say_waiting()):
        yield


def _say_waiting() -> Callable[[int, str], None]:
    said: set[str] = set()

    def say(ahead: int, who: str) -> None:
        if who not in said:
            said.add(who)
            print(f"waiting for {who} ({ahead} ahead)", file=sys.stderr, flush=True)

    return say


# --- tables -----------------------------------------------------------------------------------------------


def head(machine: Machine) -> None:
    """Print the date and the machine."""
    print(f"{today()}, {machine.text}")
    print(f"fingerprint {machine.fingerprint}\n", flush=True)


def row(what: str, against: str, measured: str, target: str) -> None:
    """Print one row of a table."""
    print(f"| {what} | {against} | {measured} | {target} |", flush=True)


def counts(values: Sequence[str], order: Sequence[str] = ()) -> str:
    """The count of each value: "EQUIVALENT 12, UNDECIDED 3"."""
    names = [*order, *sorted(set(values) - set(order))]
    return ", ".join(f"{name} {values.count(name)}" for name in names if name in values)


def quiet_text(rows: Sequence[dict[str, Any]]) -> str:
    """How many comparisons were measured on an idle machine."""
    return f"{sum(row['quiet'] for row in rows)} of {len(rows)} comparisons on an idle machine"


def milliseconds(seconds: Sequence[float | None]) -> str:
    """The median of some run times, with three digits; a dash if there are none."""
    known = [one for one in seconds if one]
    return f"{statistics.median(known) * 1e3:.3g}" if known else "–"


def today() -> str:
    return datetime.now(UTC).date().isoformat()


def options(description: str | None) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="keep the results, one per line; continues a stopped run"
    )
    return parser
