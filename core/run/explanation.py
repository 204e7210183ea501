"""Explains why one stored result is faster than another: the job `explain`, and its stored answer.

    pair(store, a, b)          the two trials; raises where they cannot be explained
    explain_plan(store, …)     payload of the job `explain`
    known(store, pair)         contrast of the two results
    race_of(pair)              configurations that compare the two in the same rounds
    explained(store, …)        answer of the job, with the contrast; None before it has run
    explained_at(store, …)     time of that answer

The passes of a pair are stored as a file among the candidate's artifacts, so every page and command finds
them, and they are deleted with the trial. Runs in the parent: it starts workers only through `run`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core import wire
from core.evidence.comparison import Configuration
from core.evidence.continuation import splits
from core.evidence.measurement import Trial
from core.evidence.profile_difference import Difference, EndToEnd, difference
from core.evidence.ranking import Key as Round
from core.evidence.ranking import paired_log_ratios
from core.evidence.result_types import Role, TrialResult
from core.evidence.speedup_interval import contrast
from core.evidence.streams import stored_seconds_per_run, stream_count
from core.evidence.verdict import Verdict, is_rejected, words
from core.process import scratch
from core.process.job_worker import Run, run_job
from core.run.plan import contestant_plan
from core.run.preparation import prepare_trial, resolve_trial
from core.spec import spec_from_dict
from core.spec.effort import DEFAULT_MARGIN
from core.store import PRUNED, Store
from core.wire import engines
from core.wire.errors import SpecError, StoreError, WorkerError
from core.wire.files import read_result
from core.wire.output_check import different_outputs_words
from core.wire.profile_passes import Passes, passes_from_json, turns
from core.wire.provenance import fingerprint_difference
from core.wire.runtime import OWN, runtime

TIMEOUT_S = 3600.0  # usually 15 s; models with seconds per run take longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two results; the second is explained relative to the first."""

    baseline: Trial
    candidate: Trial

    @property
    def what(self) -> str:
        """One line of text that identifies the pair."""
        return f"why {self.candidate.model_name}: {self.baseline.id[:8]} → {self.candidate.id[:8]}"

    @property
    def different_models(self) -> bool:
        """Whether the two ran models of different content, including variants of one original."""
        return self.baseline.model_sha256 != self.candidate.model_sha256


def pair(store: Store, baseline: str, candidate: str) -> Pair:
    """Find two trials by id, or by its first 6 or more characters.

    Raises:
        StoreError: there is no such trial.
        SpecError: they are the same, or one has no latency or is no session of ONNX Runtime.
    """
    found = Pair(baseline=store.trial(baseline), candidate=store.trial(candidate))
    if found.baseline.id == found.candidate.id:
        raise SpecError(
            f"Both sides are trial `{found.baseline.id[:12]}`.", hint="Give two different trials."
        )
    for trial in (found.baseline, found.candidate):
        _check(trial)
    return found


def with_its_baseline(store: Store, candidate: str) -> Pair:
    """Find a trial and the baseline of its comparison.

    Raises:
        StoreError: there is no such trial.
        SpecError: it has no baseline; or as of `pair`.
    """
    trial = store.trial(candidate)
    contrasts = trial.facts.get("contrasts") or []
    if not contrasts:
        raise SpecError(
            f"Trial `{trial.id[:12]}` was compared with nothing.",
            hint="Name two trials: the baseline, then the one to explain. `history` lists them.",
        )
    return pair(store, contrasts[0]["baseline"], trial.id)


def _check(trial: Trial) -> None:
    if trial.state != "COMPLETE" or not trial.p50_s:
        raise SpecError(
            f"The trial `{trial.id[:12]}` ({trial.kind}, {trial.state}) has no p50 latency to explain.",
            hint="Choose complete measurements from `history`.",
        )
    if (count := stream_count(trial.facts)) > 1:
        raise SpecError(
            f"The trial `{trial.id[:12]}` ran with {count} streams, but a profile shows one caller.",
            hint="Measure the same settings with one stream, and explain that trial.",
        )
    engine = trial.spec.get("engine", engines.DEFAULT)
    engines.require(engine, "profile", of=f", but the trial `{trial.id[:12]}` ran on it")


# --- the job ------------------------------------------------------------------------------------------------


def explain_plan(store: Store, of: Pair, *, fingerprint: str, run: Run = run_job) -> wire.ExplainPlan:
    """Return the payload of the job `explain`.

    Args:
        store: holds the models, and takes the result.
        of: the two results.
        fingerprint: of this machine, for the record.
        run: starts a worker where a model's file has changed.

    Raises:
        TunerError: a model is missing or has changed, or the settings do not fit it.
    """
    return {
        "sides": [_side(store, trial, run) for trial in (of.baseline, of.candidate)],
        "fingerprint": fingerprint,
        "output": str(passes_path(store, of)),
    }


def _side(store: Store, trial: Trial, run: Run) -> wire.ContestantPlan:
    resolved = resolve_trial(spec_from_dict(trial.spec), store, run)
    prepared = prepare_trial(resolved, store, run)
    return contestant_plan(
        resolved.spec, path=prepared.path, session=prepared.session, feeds=prepared.feeds, torch=None
    )


def profile_pair(plan: wire.ExplainPlan, run: Run) -> wire.ExplainReply:
    """Profile both sides in turns, and write what the profiles show.

    One process profiles both where both run in ORTune's own runtime. Else every pass is a process of its own
    in its side's runtime, which has only numpy and onnxruntime, and a last one matches the nodes.

    Args:
        plan: of `explain_plan`.
        run: starts workers.

    Raises:
        TunerError: a side cannot be built or run, or the result cannot be written.
    """
    if not any("runtime" in side for side in plan["sides"]):
        return run(wire.EXPLAIN, plan, timeout_s=TIMEOUT_S)
    with scratch.folder() as folder:
        sides = [_RecordedSide(side, folder / str(index), run) for index, side in enumerate(plan["sides"])]
        order = list(turns(len(sides)))
        for done, index in enumerate(order):
            sides[index].make_pass(done, len(order))
        recorded = [side.recorded for side in sides]
        return run(wire.EXPLAIN, {**plan, "recorded": recorded}, timeout_s=TIMEOUT_S)


class _RecordedSide:
    """One configuration in its runtime, and its passes so far."""

    def __init__(self, plan: wire.ContestantPlan, folder: Path, run: Run) -> None:
        folder.mkdir()
        self._run = run
        self._runtime = plan.get("runtime", OWN)
        self._folder = folder
        self._optimized = folder / ".optimized.onnx"
        asked: wire.NamedModelPlan = {"model_path": plan["model_path"], "folder": str(folder)}
        named = run(wire.NAMED_MODEL, asked, timeout_s=TIMEOUT_S)
        self._plan: wire.ContestantPlan = {**plan, "model_path": named["path"]}
        self.recorded: wire.RecordedPasses = {
            "first": self._pass(0),
            "passes": [],
            "optimized": str(self._optimized),
            "notes": named["notes"],
        }

    def make_pass(self, done: int, total: int) -> None:
        """Make one counted pass; `done` of `total` passes of both sides were made before."""
        self.recorded["passes"].append(self._pass(self.recorded["first"]["runs"], done, total))

    def _pass(self, runs: int, done: int = 0, total: int = 0) -> wire.PassReply:
        plan: wire.PassPlan = {
            "side": self._plan,
            "folder": str(self._folder),
            "runs": runs,
            "optimized": str(self._optimized),
            "done": done,
            "total": total,
        }
        return self._run(wire.PROFILED_PASS, plan, timeout_s=TIMEOUT_S, runtime=self._runtime)


def passes_path(store: Store, of: Pair) -> Path:
    """Return the path of the passes of a pair."""
    return store.artifact_path(of.candidate.id, f"why-{of.baseline.id}.json")


def explanations(store: Store, candidates: Iterable[str]) -> list[tuple[str, str]]:
    """Return the explained pairs of trials, as (baseline, candidate), newest first.

    Args:
        store: keeps the passes.
        candidates: ids of trials to check.
    """
    found = []
    for one in candidates:
        for path in store.artifacts(one, "why-*.json"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path.stem.removeprefix("why-"), one))
    return [(baseline, candidate) for _, baseline, candidate in sorted(found, reverse=True)]


# --- the answer ---------------------------------------------------------------------------------------------


def explained(store: Store, of: Pair) -> Difference | None:
    """Return why the two differ; None where the job `explain` has not run.

    Raises:
        WorkerError: the stored passes cannot be read.
    """
    passes = _read(passes_path(store, of))
    if passes is None:
        turned = _read(passes_path(store, Pair(baseline=of.candidate, candidate=of.baseline)))
        if turned is None:
            return None
        passes = replace(turned, sides=(turned.sides[1], turned.sides[0]))
    found = difference(passes, end_to_end_of(store, of))
    notes = (*found.notes, *_notes(of, passes.fingerprint))
    return replace(found, notes=notes, versions=_versions(of))


def explained_at(store: Store, of: Pair) -> float | None:
    """Return when the passes of a pair were made, in seconds since the epoch; None: there are none."""
    for one in (of, Pair(baseline=of.candidate, candidate=of.baseline)):
        with contextlib.suppress(OSError):
            return passes_path(store, one).stat().st_mtime
    return None


def _read(path: Path) -> Passes | None:
    try:
        return passes_from_json(read_result(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorkerError(
            f"The profiled passes of these two results cannot be read: {error}.", hint="Explain them again."
        ) from error


def _versions(of: Pair) -> tuple[str, str]:
    """Return the versions of ONNX Runtime of both sides; empty where they ran in the same runtime."""
    if of.baseline.spec.get("runtime", OWN) == of.candidate.spec.get("runtime", OWN):
        return "", ""
    one, other = (onnxruntime_version(trial) for trial in (of.baseline, of.candidate))
    if one == other:  # two environments with the same version
        return f"{one} of the baseline", f"{other} of the candidate"
    return one, other


def onnxruntime_version(trial: Trial) -> str:
    """Return "ONNX Runtime 1.32.0", or the name of its runtime where the version is not known."""
    environment = trial.facts.get("environment")
    libraries: Mapping[str, str] = {} if environment is None else environment["libraries"]
    found = next((version for name, version in libraries.items() if name.startswith("onnxruntime")), "")
    return f"ONNX Runtime {found}" if found else str(runtime(trial.spec.get("runtime", OWN)).name)


def _notes(of: Pair, fingerprint: str) -> list[str]:
    notes = []
    if all(versions := _versions(of)):
        notes.append(
            f"The baseline ran on {versions[0]}, the candidate on {versions[1]}. Each pass was a process of "
            "its own in the runtime of its side."
        )
    if fingerprint not in (of.baseline.fingerprint, of.candidate.fingerprint):
        notes.append("The profiled passes ran on another machine or with other libraries than the results.")
    if of.different_models:
        notes.append("The models are different, so their nodes are matched by name.")
    return notes


def _protocol(store: Store, trial: Trial) -> dict[str, Any]:
    """Protocol of the trial's comparison; empty where it had none, or where it was deleted."""
    try:
        return dict(store.comparison(trial.comparison).protocol) if trial.comparison else {}
    except StoreError:
        return {}


def end_to_end(of: Pair, protocol: Mapping[str, Any] | None = None) -> EndToEnd:
    """Contrast the two results, per sample where their batch sizes differ.

    Two results of the same rounds have the verdict of their comparison. Others have none: their ratio
    contains changes of the machine in between, which no interval covers.

    Args:
        of: the two results.
        protocol: of the candidate's comparison: its margin, and its interim analyses, which widen intervals.
    """
    one, other = _result(of.baseline), _result(of.candidate)
    per_row = one["batch_size"] != other["batch_size"]
    rows = (one["batch_size"], other["batch_size"]) if per_row else (1, 1)
    baseline_s, candidate_s = of.baseline.p50_s, of.candidate.p50_s
    assert baseline_s is not None, of.baseline.id  # checked by `pair`
    assert candidate_s is not None, of.candidate.id
    baseline_s, candidate_s = baseline_s / rows[0], candidate_s / rows[1]
    candidate_p50_s = candidate_s
    found = _contrast(of, protocol or {}) if of.baseline.fingerprint == of.candidate.fingerprint else None
    compared = found is not None
    found = found or _separately_measured(of)
    if compared and found.get(
        "ratio"
    ):  # from paired rounds: the ratio of two separate p50 could contradict it
        candidate_s = baseline_s / found["ratio"]
    if found.get("statistic") == "throughput":  # of one-stream trials beside others
        baseline_s = _throughput_run_s(of.baseline) / rows[0]
        candidate_s = baseline_s / found["ratio"]
    if compared and "holds" not in found and is_rejected(_result(of.candidate)):  # stored by an older version
        reason = _result(of.candidate).get("grade_reason") or "the A/A control failed"
        text = f"their comparison was rejected: {reason.rstrip('.')}"
        found = {**found, "verdict": Verdict.UNDECIDED, "words": text}
    if found.get("holds") is False:
        found = {**found, "words": f"{words(found)}: {found['holds_reason'].rstrip('.')}"}
    low, high = found["ratio_low"], found["ratio_high"]
    return EndToEnd(
        baseline_s=baseline_s,
        candidate_s=candidate_s,
        candidate_p50_s=candidate_p50_s,
        low_s=baseline_s * (1 / high - 1) if high else None,
        high_s=baseline_s * (1 / low - 1) if low else None,
        verdict=Verdict[found["verdict"]],
        words=(found.get("words") or words(found)) + different_outputs_words(found),
        raced=compared,
        per_row=per_row,
    )


def end_to_end_of(store: Store, of: Pair) -> EndToEnd:
    """Contrast the two results under the protocol of the candidate's comparison; see `end_to_end`."""
    return end_to_end(of, _protocol(store, of.candidate))


def comparison_of_pair(of: Pair) -> list[Configuration]:
    """Return the configurations that compare the two: each as requested, under one protocol."""
    return [_requested(of.candidate, "candidate"), _requested(of.baseline, "baseline")]


def _requested(trial: Trial, role: Role) -> Configuration:
    spec = spec_from_dict(trial.spec)
    return Configuration(spec=spec, label=f"trial {trial.id[:8]}", role=role, model=trial.model_name)


def _throughput_run_s(trial: Trial) -> float:
    """Seconds per inference by throughput, as its comparison has compared them."""
    result = _result(trial)
    rate = result["throughput_per_s"]
    assert rate is not None, trial.id
    return result["batch_size"] / rate


def _result(trial: Trial) -> TrialResult:
    assert trial.result is not None, trial.id
    return trial.result


def _contrast(of: Pair, protocol: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The contrast of two results of one comparison, stored or from their blocks; else None."""
    names = of.candidate.id, of.baseline.id
    for trial in (of.candidate, of.baseline):
        for stored in _result(trial).get("contrasts") or []:
            if (stored["candidate"], stored["baseline"]) == names:
                return dict(stored)
            if (stored["baseline"], stored["candidate"]) == names:
                return _inverted(stored)
    if not of.candidate.comparison or of.candidate.comparison != of.baseline.comparison:
        return None
    ratios = paired_log_ratios(_medians(of.candidate), _medians(of.baseline))
    if not ratios and any(PRUNED in _result(trial) for trial in (of.candidate, of.baseline)):
        text = "they were measured together, but the raw measurements were pruned"
        return {**_without_ratio(text), "holds": True}
    margin = float(protocol.get("margin") or DEFAULT_MARGIN)
    return contrast(ratios, looks=splits(protocol), margin=margin).to_dict() if ratios else None


def _inverted(stored: Mapping[str, Any]) -> dict[str, Any]:
    low, high = stored["ratio_low"], stored["ratio_high"]
    return {
        **stored,
        "ratio": 1 / stored["ratio"],
        "ratio_low": 1 / high if high else None,
        "ratio_high": 1 / low if low else None,
        "verdict": Verdict[stored["verdict"]].opposite,
    }


def _medians(trial: Trial) -> dict[Round, float]:
    """(launch, round) -> ln(seconds per sample), the mean over the processes of that round."""
    result = _result(trial)
    found: dict[Round, list[float]] = {}
    for one in result.get("blocks") or []:
        value = math.log(stored_seconds_per_run(one) / result["batch_size"])
        found.setdefault((one.get("generation", 0), one["round"]), []).append(value)
    return {number: math.fsum(values) / len(values) for number, values in found.items()}


def _separately_measured(of: Pair) -> dict[str, Any]:
    """The contrast of results from different comparisons: only when and where they were measured."""
    text = "they were measured at different times"
    if of.baseline.fingerprint != of.candidate.fingerprint:
        machines = [_result(trial).get("environment") for trial in (of.baseline, of.candidate)]
        names = {runtime(one.spec.get("runtime", OWN)).name for one in (of.baseline, of.candidate)}
        same = len(names) == 1  # libraries of two runtimes differ on purpose
        told = fingerprint_difference(*machines, libraries=same) if all(machines) else []  # type: ignore[arg-type]
        what = f" ({'; '.join(told[:3])})" if told else ""
        text = f"they were measured on different machines or with different libraries{what}"
    return _without_ratio(text)


def _without_ratio(text: str) -> dict[str, Any]:
    """A contrast without a ratio, with the reason."""
    return {"ratio_low": None, "ratio_high": None, "verdict": Verdict.UNDECIDED, "words": text}
