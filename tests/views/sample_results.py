"""Trials that were never run, with results in the form that the scheduler stores."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.evidence.comparison import DEFAULT_LABEL, Comparison, Contestant, Role
from core.evidence.evaluations import Evaluation, Observation
from core.evidence.load.load_types import LoadResult
from core.evidence.measurement import Trial, latency_summary
from core.evidence.result_types import Confirmed, SpeedUpNumbers
from core.evidence.verdict import Verdict
from core.run import job_types
from core.spec import TrialSpec, sizes
from core.store import ModelRecord, Store, StudyRecord
from core.wire.profile import cast_facts
from core.worker.measure.profile_parser import parse_profile
from tests import raw_comparisons
from tests.builders import guarded

DATA = Path(__file__).parents[1] / "data"
CPU = ["CPUExecutionProvider"]
ASKED_CUDA = ["CUDAExecutionProvider", "CPUExecutionProvider"]


def spec_for(record: ModelRecord, **workload: Any) -> TrialSpec:
    """The spec of the pages with every setting at its default."""
    from dashboard import fields

    values = {fields.key(name): value for name, value in workload.items()}
    guessed = sizes.suggested_sizes(fields.other_dims(record.info), record.info)
    values |= {fields.dim_key(dim): size for dim, size in guessed.items()}
    return fields.spec_from_values(values, path=record.path, sha256=record.sha256, info=record.info)


def queue(monkeypatch: pytest.MonkeyPatch, kind: str = "", submit: Callable[..., Any] | None = None) -> None:
    """Run no job: `submit` stands for the job type `kind`, records its request, and returns its id."""
    from dashboard import session_jobs, state

    if kind:
        monkeypatch.setattr(job_types, kind, submit)
    monkeypatch.setattr(session_jobs, "submit", lambda job: job)
    monkeypatch.setattr(state.scheduler(), "submit", lambda job: job)


def put_measured(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    *,
    fingerprint: str,
    latency_s: float = 0.002,
    rows: int = 1,
    runs: int = 100,
    **changes: Any,
) -> Trial:
    """Store a complete measurement whose runs scatter by some percent."""
    samples = [latency_s * (1 + 0.01 * ((index * 7919) % 13)) for index in range(runs)]
    fallback = changes.pop("fallback", False)
    result = {
        "requested_providers": ASKED_CUDA if fallback else CPU,
        "effective_providers": CPU,
        "fallback": fallback,
        "fallback_reason": "CUDA is not here." if fallback else "",
        "placement": {"CPUExecutionProvider": {"nodes": 4, "time_s": latency_s}},
        "batch_size": rows,
        "runs": runs,
        "latencies_s": samples,
        "warmup_latencies_s": [latency_s * 3],
        "latency": latency_summary(samples),
        "throughput_per_s": rows * runs / sum(samples),
        "fingerprint": fingerprint,
        "notes": [],
    }
    return _put(store, record, spec, "measure", result, fingerprint=fingerprint, **changes)


def put_run(
    store: Store,
    record: ModelRecord,
    *,
    fingerprint: str,
    batch_size: int = 1,
    intra_op_num_threads: int | None = None,
    **changes: Any,
) -> Trial:
    """Store a complete measurement of these settings; `changes` as for `put_measured`."""
    spec = spec_for(record, batch_size=batch_size, intra_op_num_threads=intra_op_num_threads)
    return put_measured(store, record, spec, fingerprint=fingerprint, rows=batch_size, **changes)


def put_failed(store: Store, record: ModelRecord, spec: TrialSpec, *, message: str, **changes: Any) -> Trial:
    """Store a trial that failed."""
    error = {"type": "WorkerError", "message": message, "hint": "Use a smaller batch."}
    facts = {"state": "FAIL", "error": error} | changes
    return _put(store, record, spec, facts.pop("kind", "measure"), None, **facts)


def put_profile(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    *,
    recording: str = "if",
    profile_changes: dict[str, Any] | None = None,
    trace: bool = True,
    **result_changes: Any,
) -> Trial:
    """Store a profile that ONNX Runtime really recorded, of another model."""
    path = DATA / f"profile_1.31.1_{recording}.json"
    parsed = parse_profile(path)
    profile = parsed.to_dict() | (profile_changes or {})
    result = {
        "requested_providers": CPU,
        "effective_providers": CPU,
        "fallback": False,
        "fallback_reason": "",
        "casts": cast_facts(parsed),
        "batch_size": 1,
        "runs": profile["runs"],
        "profile": profile,
        "unprofiled_latencies_s": [0.8 * seconds for seconds in profile["run_s"]],
        "fingerprint": "",
        "notes": [],
    }
    trial = _put(store, record, spec, "profile", result | result_changes)
    if trace:
        store.artifact_path(trial.id, "trace.json").write_bytes(path.read_bytes())
        json.loads(path.read_text())
    return trial


def _put(
    store: Store,
    record: ModelRecord,
    spec: TrialSpec,
    kind: Any,
    result: dict[str, Any] | None,
    **changes: Any,
) -> Trial:
    facts: dict[str, Any] = {
        "id": secrets.token_hex(8),
        "kind": kind,
        "state": "COMPLETE",
        "spec": spec.to_dict(),
        "model_name": record.name,
        "model_sha256": record.content_sha256,
        "key": spec.key(),
        "created_at": 1_000_000.0,
        "started_at": 1_000_000.0,
        "finished_at": 1_000_002.0,
        "result": result,
    }
    trial = Trial(**(facts | changes))
    store.create_trial(trial)
    return trial


def batches(
    store: Store, record: ModelRecord, sizes: Sequence[int], *, fingerprint: str, **changes: Any
) -> list[Trial]:
    """Store one measurement per batch size: a fixed cost plus a cost per sample."""
    return [
        put_measured(
            store,
            record,
            spec_for(record, batch_size=size),
            fingerprint=fingerprint,
            latency_s=0.0005 + 0.0001 * size,
            rows=size,
            **changes,
        )
        for size in sizes
    ]


# --- comparisons ------------------------------------------------------------------------------------------

ROUNDS = 16
ROUNDS_PER_LAUNCH = 2
RUNS_PER_BLOCK = 12
BUSY_ROUND = 5  # other processes take half a core there


@dataclass(frozen=True, kw_only=True)
class SampleConfiguration:
    """One contestant to invent; `changes` go over the result of its trial."""

    spec: TrialSpec
    latency_s: float = 0.002
    rows: int = 1
    role: Role = "candidate"
    label: str = ""
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What `put_duel` stored."""

    comparison: Comparison
    trial: Trial  # the candidate
    baseline: Trial  # measured again in the same rounds


def put_compared(
    store: Store,
    record: ModelRecord,
    *,
    spec: TrialSpec | None = None,
    baseline: TrialSpec | None = None,
    fingerprint: str,
    latency_s: float = 0.002,
    baseline_s: float = 0.00284,
    rows: int = 1,
    baseline_rows: int = 1,
    changes: dict[str, Any] | None = None,
    **facts: Any,
) -> Compared:
    """Store a candidate that raced against a baseline; without `baseline`, against the anchor (the default).

    `changes` replace fields of the candidate's result; `facts` are those of `put_race`.
    """
    against: Role = "baseline" if baseline is not None else "anchor"
    default = spec_for(record, batch_size=baseline_rows)
    own = SampleConfiguration(
        spec=spec or spec_for(record, batch_size=rows, intra_op_num_threads=1),
        latency_s=latency_s,
        rows=rows,
        changes=changes or {},
    )
    other = SampleConfiguration(
        spec=baseline or default, latency_s=baseline_s, rows=baseline_rows, role=against
    )
    anchor = (
        [SampleConfiguration(spec=default, latency_s=baseline_s * 1.05, role="anchor")] if baseline else []
    )
    comparison, trials = put_comparison(
        store, record, [own, other, *anchor], fingerprint=fingerprint, **facts
    )
    return Compared(comparison=comparison, trial=trials[0], baseline=trials[1])


def put_comparison(
    store: Store,
    record: ModelRecord,
    configurations: Sequence[SampleConfiguration],
    *,
    fingerprint: str,
    grade: str = "A",
    grade_reason: str = "Two copies of the same configuration came out at 1.001×, ±0.8 %.",
    remedy: str = "",
    half_width: float = 0.02,
    margin: float = 0.02,
    rounds: int = ROUNDS,
    study: str = "",
    older: bool = False,
    contrast: dict[str, Any] | None = None,
    **result_changes: Any,
) -> tuple[Comparison, list[Trial]]:
    """Store a comparison and the trials of its configurations, in the form that the scheduler stores.

    Args:
        store: to keep them in.
        record: the model of all.
        racers: configurations; compared with the baseline among them, else with the ORT default.
        fingerprint: of the machine.
        grade: of the whole comparison, with its reason and remedy; F: the A/A control rejects every verdict.
        grade_reason: why that grade.
        remedy: what to do about it.
        half_width: relative, of every contrast's interval.
        margin: differences below it do not matter.
        rounds: how many of them.
        study: of comparison and trials.
        older: as versions stored it that had one process of each and tests before and after; F is of the
            machine there, and leaves the verdicts as they are.
        contrast: fields to set in every contrast, for example `ratio_low=None`.
        result_changes: fields to set in the comparison's result; `busy` in those of the trials as well.
    """
    comparison_id, ids = secrets.token_hex(8), [secrets.token_hex(8) for _ in configurations]
    roles = [configuration.role for configuration in configurations]
    against = next(roles.index(role) for role in ("baseline", "anchor", "candidate") if role in roles)
    anchor = roles.index("anchor") if "anchor" in roles else against
    wall_s = 0.06 * rounds * (len(configurations) + 1)
    shared: dict[str, Any] = {"grade": grade, "wall_s": wall_s, "notes": []}
    if not older:
        shared |= _launches_of_contrast(half_width, rounds)
        shared |= _rejected(grade_reason) if grade == "F" else {"holds": True, "holds_reason": ""}
    contrasts = [
        _contrast(configurations, ids, i, j, half_width=half_width, margin=margin, rounds=rounds)
        | shared
        | (contrast or {})
        for j in dict.fromkeys([against, *(k for k, role in enumerate(roles) if role == "anchor")])
        for i in range(len(configurations))
        if i != j and (j == against or roles[i] != "baseline")
    ]
    summary = {
        "blocks": rounds * len(configurations),
        "flagged_share": 1 / rounds,
        "shares": {"foreign_load": 1 / rounds},
    }
    judged: dict[str, Any] = {
        "grade": grade,
        "grade_reason": grade_reason,
        "remedy": remedy,
        "interference": summary,
    }
    if not older:
        judged["busy"] = result_changes.pop("busy", None)
    processes = [(i, 0) for i in range(len(configurations))] + ([] if older else [(anchor, 1)])
    turn_s = max(configuration.latency_s for configuration in configurations) * RUNS_PER_BLOCK * 1.5 + 0.01
    trials = []
    for i, configuration in enumerate(configurations):
        places = [place for place, (index, _) in enumerate(processes) if index == i]
        blocks, latencies = _blocks(
            configuration.latency_s, places, len(processes), rounds, turn_s, older=older
        )
        own = {
            "comparison": comparison_id,
            "role": configuration.role,
            "steady": True,
            "contrasts": [one for one in contrasts if one["candidate"] == ids[i]],
            "blocks": blocks,
            **judged,
            **({} if older else {"generations": _launches(rounds)}),
            **_measured(configuration, latencies, fingerprint),
            **guarded(),
            **configuration.changes,
        }
        kind = "measure" if configuration.role == "candidate" else "reference"
        facts = {"id": ids[i], "fingerprint": fingerprint, "study": study, "comparison": comparison_id}
        trials.append(_put(store, record, configuration.spec, kind, own, **facts))
    ranked = [] if grade == "F" and not older else _ranked(configurations)
    comparison = Comparison(
        id=comparison_id,
        state="COMPLETE",
        model_name=record.name,
        model_sha256=record.content_sha256,
        contestants=tuple(
            Contestant(
                trial=ids[i],
                label=configuration.label
                or (DEFAULT_LABEL if configuration.role == "anchor" else configuration.role),
                role=configuration.role,
            )
            for i, configuration in enumerate(configurations)
        ),
        protocol={
            "precision": "quick",
            "target": 0.03,
            "budget_s": 30,
            "margin": margin,
            "looks": [8, 16, 32, 64] if older else [4, 6, 9, 14, 21, 32, 48, 72],
            "seed": 0,
        },
        created_at=1_000_000.0,
        started_at=1_000_000.0,
        finished_at=1_000_000.0 + wall_s,
        study=study,
        fingerprint=fingerprint,
        result={
            "rounds": rounds,
            "wall_s": wall_s,
            "outcome": "decided",
            "orders": [[ids[k] for k in range(len(configurations))] for _ in range(rounds)],
            "contrasts": contrasts,
            "ranks": [{"trial": ids[k], "rank": n + 1, "ties": []} for n, k in enumerate(ranked)],
            **judged,
            **_aa_tests(older=older, rounds=rounds),
            **({} if older else {"generations": _all_launches([ids[i] for i, _ in processes], rounds)}),
            "frozen": True,
            "groups": [[ids[k] for k in range(len(configurations))]],
            "notes": [],
            "environment": None,
            "fingerprint": fingerprint,
            **result_changes,
        },
    )
    store.create_comparison(comparison)
    return comparison, trials


def _launches(rounds: int) -> int:
    return max(1, rounds // ROUNDS_PER_LAUNCH)


def _launches_of_contrast(half_width: float, rounds: int) -> dict[str, Any]:
    """What a contrast says of its generations: a quarter of the variance is between processes."""
    return {
        "generations": _launches(rounds),
        "sigma_between": half_width / 2,
        "between_from": "race",
        "within_half_width": half_width * math.sqrt(0.75),
        "between_half_width": half_width / 2,
        "standard_error": half_width / 3,
        "df": 5.0,
    }


def _rejected(reason: str) -> dict[str, Any]:
    return {"holds": False, "holds_reason": reason, "verdict": "UNDECIDED", "notes": [reason]}


def _ranked(configurations: Sequence[SampleConfiguration]) -> list[int]:
    return sorted(
        range(len(configurations)), key=lambda k: configurations[k].latency_s / configurations[k].rows
    )


def _aa_tests(*, older: bool, rounds: int) -> dict[str, Any]:
    """The A/A control: in the rounds of the comparison, of older versions before and after them."""
    found = {"ratio": 1.001, "ratio_low": 0.99, "ratio_high": 1.012, "sigma": 0.01, "rounds": 12}
    if older:
        return {"self_tests": [{"when": when, **found} for when in ("before", "after")]}
    more = {"rounds": rounds, "generations": _launches(rounds), "sigma_between": 0.005, "run_s": 0.002}
    return {"self_tests": [{"when": "during", **found, **more, "half_width": 0.011, "log_ratios": []}]}


def _all_launches(trials: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """The generations of a race; the last of `trials` is the anchor's twin."""
    order = [*trials[:-1], f"{trials[-1]}/1"]
    count = _launches(rounds)
    return [
        {
            "generation": number,
            "rounds": rounds // count,
            "start_s": 0.05 * len(order),
            "order": order,
            "layouts": {one: {} for one in order},
        }
        for number in range(count)
    ]


def _contrast(
    configurations: Sequence[SampleConfiguration],
    ids: Sequence[str],
    i: int,
    j: int,
    *,
    half_width: float,
    margin: float,
    rounds: int,
) -> dict[str, Any]:
    """How racer `i` stands to racer `j`, per row."""
    ratio = (configurations[j].latency_s / configurations[j].rows) / (
        configurations[i].latency_s / configurations[i].rows
    )
    low, high = ratio / (1 + half_width), ratio * (1 + half_width)
    verdict = "FASTER" if low > 1 else "SLOWER" if high < 1 else "UNDECIDED"
    if 1 / (1 + margin) < low and high < 1 + margin:
        verdict = "EQUIVALENT"
    return {
        "candidate": ids[i],
        "baseline": ids[j],
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": high,
        "verdict": verdict,
        "half_width": half_width,
        "sigma": half_width,
        "rounds": rounds,
        "drifting": False,
        "margin": margin,
        "per_row": configurations[i].rows != configurations[j].rows,
    }


def _blocks(
    latency_s: float, places: Sequence[int], processes: int, rounds: int, turn_s: float, *, older: bool
) -> tuple[list[dict[str, Any]], list[float]]:
    """Blocks of one configuration that alternate with those of the others, and their runs in order.

    Args:
        latency_s: of a run.
        places: of its processes among all; two of the ORT default's.
        processes: of all configurations together.
        rounds: how many.
        turn_s: from one block to the next.
        older: blocks name no launch and no copy.
    """
    blocks: list[dict[str, Any]] = []
    latencies: list[float] = []
    for number in range(rounds):
        for copy, place in enumerate(places):
            position = (place + number) % processes
            busy = number == BUSY_ROUND
            slow = 1 + 0.02 * (number % 4) + (0.2 if busy else 0)  # what both sides share of a round
            runs = [latency_s * slow * (1 + 0.01 * ((k * 7919) % 13)) for k in range(RUNS_PER_BLOCK)]
            found = {
                "round": number,
                "position": position,
                "at_s": (number * processes + position) * turn_s,
                "runs": len(runs),
                "refill_s": runs[0] * 1.2,
                "median_s": sorted(runs)[(len(runs) - 1) // 2],
                "counters": _counters(sum(runs) * 1.05, busy=busy),
                "flags": ["foreign_load", "wait"] if busy else [],
            }
            blocks.append(
                found if older else found | {"generation": number // ROUNDS_PER_LAUNCH, "copy": copy}
            )
            latencies += runs
    return blocks, latencies


def _counters(wall_s: float, *, busy: bool) -> wire.Counters:
    own = {
        "wall_s": wall_s,
        "cpu_s": wall_s * (0.7 if busy else 0.98),
        "busy_s": wall_s * (1.2 if busy else 1),
    }
    beside = {"involuntary_switches": 9, "wait_s": wall_s * 0.4, "pressure_s": wall_s * 0.3} if busy else {}
    return raw_comparisons.counters(**own, **beside, canary_ns=900_000, frequency_hz=3.1e9)


def _measured(configuration: SampleConfiguration, latencies: list[float], fingerprint: str) -> dict[str, Any]:
    return {
        "requested_providers": CPU,
        "effective_providers": CPU,
        "fallback": False,
        "fallback_reason": "",
        "placement": {
            "CPUExecutionProvider": {"nodes": 4, "ran_nodes": 3, "time_s": configuration.latency_s}
        },
        "casts": None,
        "batch_size": configuration.rows,
        "runs": len(latencies),
        "latencies_s": latencies,
        "warmup_latencies_s": [configuration.latency_s * 3, configuration.latency_s * 1.5],
        "session_creation_s": 0.02,
        "first_run_s": configuration.latency_s * 3,
        "latency": latency_summary(latencies),
        "throughput_per_s": configuration.rows * len(latencies) / sum(latencies),
        "cpu_s_per_inference": configuration.latency_s * 1.9,
        "idle_cpu_s": 0.1,
        "idle_wall_s": 0.2,
        "load_peak_rss_bytes": 6 << 20,
        "peak_rss_bytes": 8 << 20,
        "gpu_memory_bytes": None,
        "energy_j_per_inference": None,
        "energy_note": "no RAPL counter can be read here",
        "new_shapes": [
            {
                "batch_size": configuration.rows * 2,
                "first_run_s": 0.009,
                "next_run_s": configuration.latency_s * 2,
            }
        ],
        "affinity": [0, 1],
        "environment": {"fingerprint": fingerprint},
        "fingerprint": fingerprint,
        "seed": 0,
        "tool_version": "0.0.0",
        "notes": [],
    }


# --- searches -----------------------------------------------------------------------------------------------


def put_study(
    store: Store,
    record: ModelRecord,
    *,
    fingerprint: str,
    outcome: str = "FOUND",
    question: dict[str, Any] | None = None,
    confirmed: Sequence[str] = (),
    **changes: Any,
) -> StudyRecord:
    """Store a search that evaluated three configurations and their control.

    Args:
        store: to keep it in.
        record: its model.
        fingerprint: of the machine.
        outcome: of its answer; empty: it has none.
        question: differences from the lowest p50 latency.
        confirmed: trials of the winner and of ONNX Runtime's default.
        changes: fields of the record.
    """
    names = (*confirmed, "0" * 16, "1" * 16)[:2]
    facts: dict[str, Any] = {
        "id": secrets.token_hex(8),
        "state": "COMPLETE",
        "question": {"budget_s": 60, **(question or {})},
        "spec": spec_for(record).to_dict(),
        "model_name": record.name,
        "model_sha256": record.content_sha256,
        "created_at": 1_000_000.0,
        "finished_at": 1_000_060.0,
        "owner": "somebody",
        "wall_s": 58.0,
        "tried": [one.to_dict() for one in tried_ones()],
        "answer": search_answer(outcome, *names) if outcome else None,
        "fingerprint": fingerprint,
    }
    study = StudyRecord(**(facts | changes))
    store.put_study(study)
    return study


def tried_ones() -> list[Evaluation]:
    """A good one, a bad one, one that failed, and the control of the first."""

    def one(changes: dict[str, Any], gain: float, memory: float, **how: Any) -> Evaluation:
        found = {"latency_p50": (math.log(gain), 0.01), "peak_rss": (0.0, 0.02)}
        values = {"latency_p50": 0.002 / gain, "peak_rss": memory}
        seen = Observation(stage="screen", race="r", trial=f"look-{gain}", gains=found, values=values)
        return Evaluation(changes=changes, key=f"key-{gain}", looks=(seen,), **how)

    failed = Observation(stage="screen", race="r", trial="look-failed", error="It ran out of memory.")
    return [
        one({"intra_op_num_threads": 1}, 1.25, 8e6),
        one({"intra_op_num_threads": 2, "enable_mem_pattern": False}, 0.4, 6e6),
        Evaluation(changes={"execution_mode": "ORT_PARALLEL"}, key="key-failed", looks=(failed,)),
        one({"intra_op_num_threads": 1}, 1.24, 8e6, twin=True),
    ]


def gain(ratio: float, verdict: str = "FASTER", metric: str = "latency_p50") -> SpeedUpNumbers:
    """A speed-up over ONNX Runtime's default, ±4 %."""
    return {
        "metric": metric,
        "ratio": ratio,
        "ratio_low": ratio * 0.96,
        "ratio_high": ratio * 1.04,
        "verdict": Verdict[verdict],
    }


def confirmed_one(trial: str, ratio: float, verdict: str, **changes: Any) -> Confirmed:
    """A configuration that was compared with the default in fresh processes."""
    facts: dict[str, Any] = {
        "trial": trial,
        "comparison": "race",
        "changes": {"intra_op_num_threads": 1},
        "spec": {},
        "gain": gain(ratio, verdict),
        "contrast": None,
        "gains": [gain(ratio, verdict), gain(1.01, "UNDECIDED", "peak_rss")],
        "limits": [],
        "measurements": {"latency_p50": 0.002 / ratio, "peak_rss": 8e6},
        "error": "",
    }
    return {**facts, **changes}  # type: ignore[typeddict-item] # every key is there


def search_answer(outcome: str, winner: str, default: str) -> dict[str, Any]:
    """What a search says; the winner is 1.3 times faster where there is one that is."""
    ratio, verdict = {"FOUND": (1.3, "FASTER"), "NO_DIFFERENCE": (1.001, "EQUIVALENT")}.get(
        outcome, (1.02, "UNDECIDED")
    )
    limit = {
        "limit": "p99 latency ≤ 3 ms",
        "state": {"FOUND": "MET", "NONE_KEEPS_LIMITS": "MISSED"}.get(outcome, "UNKNOWN"),
        "probability": 0.97,
        "value": 0.0029,
        "low": 0.0028,
        "high": 0.003,
        "why": "",
    }
    best = confirmed_one(winner, ratio, verdict, limits=[limit])
    wins = outcome not in ("NO_DIFFERENCE", "NONE_KEEPS_LIMITS")
    effect = {"ratio": 1.2, "ratio_low": 1.1, "ratio_high": 1.3}
    return {
        "outcome": outcome,
        "objective": {"latency_p50": 1.0},
        "limits": [limit["limit"]],
        "space": {"combinations": 24, "distinct": 8, "left_out": {"`a` has no effect: because": 16}},
        "tried": 3,
        "failed": 1,
        "winner": best if wins else None,
        "default": confirmed_one(default, 1.0, "UNDECIDED", changes={}),
        "others": [] if wins else [best],
        "front": [
            {
                "changes": {"intra_op_num_threads": 1},
                "trial": winner,
                "gains": [gain(1.25)],
                "values": {"latency_p50": 0.0016, "peak_rss": 8e6},
            }
        ],
        "effects": [{"setting": "intra_op_num_threads", "value": 1, "against": 0, **effect}],
        "pairs": [
            {"settings": ["intra_op_num_threads", "enable_mem_pattern"], "values": [1, False], **effect}
        ],
        "controls": {"pairs": 3, "apart": 0, "largest": 1.01},
        "course": [
            {"at_s": 3.0, "stage": "screen", "tried": 3, "ratio": 1.25},
            {"at_s": 50.0, "stage": "confirm", "tried": 3, "ratio": ratio},
        ],
        "grade": "F" if outcome == "REJECTED" else "B",
        "busy": None,
        "budget_s": 60.0,
        "wall_s": 58.0,
        "own_s": 0.5,
        "strategy": "race",
        "notes": ["A note of the search."],
    }


# --- load tests -------------------------------------------------------------------------------------------


def put_load(store: Store, record: ModelRecord, found: LoadResult | None, **changes: Any) -> Trial:
    """Store a load test of the default settings; `found`: its result, None where it has none."""
    spec = spec_for(record)
    result: dict[str, Any] | None = None
    if found is not None:
        configurations = [
            {**one, "spec": spec.to_dict(), "model": record.name} for one in found["configurations"]
        ]
        result = {"load": {**found, "configurations": configurations}, "notes": [], "fingerprint": ""}
    facts = {"kind": "load"} | changes
    return _put(store, record, spec, facts.pop("kind"), result, **facts)
