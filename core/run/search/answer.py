"""Computes the answer of a search: confirmed result, Pareto front, effects of settings, A/A controls.

Pure. The reported speed-up comes from the confirmation run alone, so selection bias does not inflate it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.evidence.effects import main_effects, pair_effects
from core.evidence.evaluations import (
    Evaluation,
    LogSpeedup,
    Observation,
    ReportedSpeedup,
    contrast_of,
    interval,
    reported_speedup,
    weighted,
)
from core.evidence.measurement import Trial
from core.evidence.metrics.intervals import Z
from core.evidence.result_types import (
    Confirmed,
    Controls,
    EffectRecord,
    FrontPoint,
    LimitJudged,
    PairRecord,
    SearchOutcome,
    SpeedUpNumbers,
)
from core.evidence.speedup_interval import ASSUMED_PRIOR, Prior
from core.evidence.statistics import CONFIDENCE, t_quantile
from core.evidence.targets import Measurements, TargetResult, evaluate_target
from core.evidence.verdict import Verdict, is_rejected
from core.run.search.failures import ExcludedValues
from core.run.search.plan import PlanState, model_of
from core.spec.metrics import BY_PASSES, BY_ROUNDS
from core.spec.question import Question
from core.spec.space import Space, changes_words

_NORMAL = statistics.NormalDist()
MOST_ON_FRONT = 30
LEAST_SIZE = 0.1  # smallest prior scale of an effect on ln(speed-up)
TIE = 0.25  # largest difference of tied estimates, as a share of the margin
SAMPLE = 2000  # number of configurations over which effects are averaged


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationTrial:
    """A configuration of a confirmation run, with all its stored data."""

    trial: Trial  # with raw measurements, if it has a result
    changes: Mapping[str, Any]  # settings that differ from the start
    look: Observation
    contrast: Any  # ContrastRecord against the ORT default; None: not measured
    size_bytes: int | None
    summaries: Mapping[Any, Any]  # accuracies that its constraints need, see `accuracy_for_limits`


def confirmed(
    one: ConfirmationTrial,
    default: ConfirmationTrial,
    question: Question,
    *,
    margin: float,
    looks: float,
) -> Confirmed:
    """Return the confirmed numbers of one candidate of a confirmation run, or of the ORT default itself.

    Args:
        one: the candidate.
        default: the ORT default of the same run.
        question: the objective and its constraints.
        margin: equivalence margin, relative.
        looks: number of interim analyses that share the false-alarm rate of 5 %.
    """
    gains: dict[str, SpeedUpNumbers] = {}
    for metric in BY_ROUNDS:
        found = _by_times(metric, one, default, margin=margin, looks=looks)
        if found is not None:
            gains[metric] = found
    for metric in BY_PASSES:
        if metric in one.look.gains:
            gains[metric] = speedup_numbers(metric, one.look.gains[metric], margin)
    limits = judged_limits(one, question)
    if question.same_latency and "latency_p50" in gains:
        limits.append(_same_latency(gains["latency_p50"], margin))
    return {
        "trial": one.trial.id,
        "comparison": one.trial.comparison,
        "changes": dict(one.changes),
        "spec": dict(one.trial.spec),
        "gain": _of_objective(question, gains, margin),
        "contrast": one.contrast,
        "gains": list(gains.values()),
        "limits": limits,
        "measurements": dict(one.look.values),
        "error": one.look.error or (f"Outputs differ: {one.look.breach}" if one.look.breach else ""),
    }


def _by_times(
    metric: str, one: ConfirmationTrial, default: ConfirmationTrial, *, margin: float, looks: float
) -> SpeedUpNumbers | None:
    if one.contrast is None or not one.trial.facts:
        return None
    compared = "throughput" if one.contrast.get("statistic") == "throughput" else "latency_p50"
    if metric == compared:
        found = one.contrast
        return _numbers(metric, found["ratio"], found["ratio_low"], found["ratio_high"], found["verdict"])
    other = contrast_of(
        metric, one.trial.facts, default.trial.facts, looks=looks, margin=margin, prior=ASSUMED_PRIOR
    )
    if other is None:
        return None
    verdict = other.verdict if one.contrast["holds"] else Verdict.UNDECIDED
    return _numbers(metric, other.ratio, other.ratio_low, other.ratio_high, verdict)


def _numbers(
    metric: str, ratio: float, low: float | None, high: float | None, verdict: Verdict
) -> SpeedUpNumbers:
    return {"metric": metric, "ratio": ratio, "ratio_low": low, "ratio_high": high, "verdict": verdict}


def speedup_numbers(metric: str, gain: LogSpeedup, margin: float) -> SpeedUpNumbers:
    """Return an ln ratio with its standard error as a ratio with a 95 % confidence interval."""
    low, high = interval(gain) or (None, None)
    return _numbers(metric, math.exp(gain[0]), low, high, Verdict.of(low, high, margin))


def estimate_numbers(metric: str, one: ReportedSpeedup, margin: float) -> SpeedUpNumbers:
    """Return the estimate of a configuration as a speed-up with its verdict."""
    return _numbers(metric, one.ratio, one.low, one.high, Verdict.of(one.low, one.high, margin))


def excluded_words(one: ExcludedValues, space: Space) -> str:
    """Return a sentence with the excluded values and the reason."""
    axes = [space.axes[axis] for axis in one.axes]
    values = {axis.name: axis.values[value] for axis, value in zip(axes, one.values, strict=True)}
    times = "once, alone" if one.failures == 1 else f"{one.failures} times"
    return f"`{changes_words(values)}` was not evaluated again: it failed {times} ({one.reason.rstrip('.')})."


def _of_objective(question: Question, gains: Mapping[str, SpeedUpNumbers], margin: float) -> SpeedUpNumbers:
    if len(question.objective) == 1:
        metric = next(iter(question.objective))
        return gains.get(metric) or _numbers(metric, 1.0, None, None, Verdict.UNDECIDED)
    logs = {name: _log(gains[name]) for name in question.objective if name in gains}
    whole = weighted(logs, question.objective)
    name = "+".join(question.objective)
    return (
        speedup_numbers(name, whole, margin) if whole else _numbers(name, 1.0, None, None, Verdict.UNDECIDED)
    )


def _log(gain: SpeedUpNumbers) -> LogSpeedup:
    """Ln of a speed-up with the standard error of its interval: the inverse of `speedup_numbers`."""
    low, high = gain["ratio_low"], gain["ratio_high"]
    error = None if low is None or high is None or low <= 0 else math.log(high / low) / 2 / Z
    return math.log(gain["ratio"]), error


# --- limits -------------------------------------------------------------------------------------------------


def judged_limits(one: ConfirmationTrial, question: Question) -> list[LimitJudged]:
    """Judge every constraint by the confirmation run of the configuration."""
    result = one.trial.facts
    rows = int(result.get("batch_size") or 1)
    found = []
    for target in question.limits:
        at = target.batch_size or rows
        evidence = Measurements(
            batch_size=rows,
            results={rows: [result]} if result and at == rows else {},
            size_bytes=one.size_bytes,
            summaries=one.summaries,
            has_dataset=bool(one.summaries),
            arena=one.trial.spec.get("session", {}).get("enable_cpu_mem_arena") is not False,
        )
        found.append(_limit(evaluate_target(target, evidence)))
    if question.accuracy_drop is not None:
        found.append(_drop(one, question.accuracy_drop))
    return found


def _limit(found: TargetResult) -> LimitJudged:
    target = found.target
    return {
        "limit": f"{target.what} {target.limit_words}",
        "state": found.state,
        "probability": _probability(found),
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "why": found.why,
    }


def _probability(found: TargetResult) -> float | None:
    """Probability that the constraint is met, from a normal distribution with that confidence interval.

    An open end of the interval counts as far away.
    """
    if found.value is None:
        return None
    low, high = found.low, found.high
    if low is not None and low == high:
        return 1.0 if found.state == "MET" else 0.0
    halves = [abs(found.value - end) for end in (low, high) if end is not None and math.isfinite(end)]
    error = max(halves, default=0.2 * abs(found.value)) / Z
    z = (found.target.limit - found.value) / max(error, 1e-12)
    return _NORMAL.cdf(z if found.target.about.smaller_is_better else -z)


def _same_latency(gain: SpeedUpNumbers, margin: float) -> LimitJudged:
    least = 1 / (1 + margin)
    low, high = gain["ratio_low"], gain["ratio_high"]
    state: Any = "UNKNOWN"
    if low is not None and low >= least:
        state = "MET"
    elif high is not None and high < least:
        state = "MISSED"
    log, error = _log(gain)
    probability = _NORMAL.cdf((log - math.log(least)) / error) if error else None
    return {
        "limit": "p50 latency at most that of the default",
        "state": state,
        "probability": probability,
        "value": gain["ratio"],
        "low": low,
        "high": high,
        "why": "Ratio to ONNX Runtime's default in the same rounds.",
    }


def _drop(one: ConfirmationTrial, drop: float) -> LimitJudged:
    """Judge non-inferiority of the accuracy: the difference of two shares on the same rows."""
    name = f"accuracy ≥ the original's − {100 * drop:g} pp"
    pair = one.summaries.get("drop")
    if pair is None:
        why = "The accuracy was not measured."
        return LimitJudged(
            limit=name, state="UNKNOWN", probability=None, value=None, low=None, high=None, why=why
        )
    value, low, high, rows = pair
    state: Any = "MET" if low >= -drop else "MISSED" if high < -drop else "UNKNOWN"
    error = max((high - low) / 2 / Z, 1e-9)
    return {
        "limit": name,
        "state": state,
        "probability": _NORMAL.cdf((value + drop) / error),
        "value": value,
        "low": low,
        "high": high,
        "why": f"Difference on the same {rows:,} samples.",
    }


def limits_state(limits: Sequence[LimitJudged]) -> str:
    """Return MISSED if a constraint is missed, else UNKNOWN if one is unknown, else MET."""
    states = {one["state"] for one in limits}
    return "MISSED" if "MISSED" in states else "UNKNOWN" if "UNKNOWN" in states else "MET"


def outcome(
    candidates: Sequence[Confirmed], default: Confirmed | None, result: Mapping[str, Any], *, margin: float
) -> tuple[SearchOutcome, Confirmed | None]:
    """Return the outcome of a confirmation run and its configuration.

    NO_DIFFERENCE depends on the upper end of each interval alone, because a configuration that may be slower
    is no better answer.

    Args:
        candidates: in order of preference.
        default: the ORT default of the same run; None: it failed.
        result: of the run.
        margin: equivalence margin, relative.
    """
    able = [one for one in candidates if not one["error"] and limits_state(one["limits"]) != "MISSED"]
    default_able = default is not None and limits_state(default["limits"]) != "MISSED"
    if not able:
        return ("NO_DIFFERENCE" if default_able else "NONE_KEEPS_LIMITS"), None
    better = [one for one in able if one["gain"]["verdict"] == Verdict.FASTER]
    if default_able:
        if is_rejected(result):
            return "REJECTED", able[0]
        if better:
            sure = [one for one in better if limits_state(one["limits"]) == "MET"]
            return ("FOUND", sure[0]) if sure else ("UNDECIDED", better[0])
        open_ = [one for one in able if _may_beat(one, margin)]
        return ("UNDECIDED", open_[0]) if open_ else ("NO_DIFFERENCE", None)
    sure = [one for one in able if limits_state(one["limits"]) == "MET"]
    return ("FOUND", sure[0]) if sure else ("UNDECIDED", able[0])


def _may_beat(one: Confirmed, margin: float) -> bool:
    """Whether a speed-up larger than the margin is still possible."""
    gain, contrast = one["gain"], one["contrast"]
    if gain["verdict"] != Verdict.UNDECIDED:
        return False
    if contrast is None or not contrast.get("holds", True) or contrast.get("contradicted"):
        return True
    return gain["ratio_high"] is None or gain["ratio_high"] > 1 + margin


# --- ranking, Pareto front, effects, controls ---------------------------------------------------------------


def confirmation_order(
    tried: Sequence[tuple[Evaluation, float]], level: frozenset[str], margin: float, *, threads: int = 1
) -> list[tuple[Evaluation, float]]:
    """Return the candidates for confirmation in order; cost breaks ties, not noise.

    A configuration ties with the leader if it is in `level` and its estimate is within a quarter of the
    margin of the leader's. Among ties, the least memory comes first (in steps of a tenth above the least,
    because the memory of identical processes differs), then the fewest threads, then the fewest changes.

    Args:
        tried: configurations with ln(speed-up) of the objective, the best first.
        level: keys of the configurations that do not differ significantly from the leader.
        margin: equivalence margin, relative.
        threads: number of threads that ONNX Runtime uses by default.
    """
    if not tried:
        return []
    top = tried[0][1]

    def is_tie(one: tuple[Evaluation, float]) -> bool:
        return one is tried[0] or (one[0].key in level and top - one[1] <= TIE * math.log1p(margin))

    ties = [one for one in tried if is_tie(one)]
    least = min((memory for one, _ in ties if (memory := one.value("peak_rss"))), default=0.0)

    def cost(one: tuple[Evaluation, float]) -> tuple[float, float, int, float]:
        memory = one[0].value("peak_rss")
        own = one[0].changes.get("intra_op_num_threads") or threads
        return (
            math.floor(math.log(memory / least) / 0.1) if memory else math.inf,
            float(own),
            len(one[0].changes),
            -one[1],
        )

    return [*sorted(ties, key=cost), *(one for one in tried if one not in ties)]


def pareto_front(
    tried: Sequence[Evaluation], question: Question, margin: float, *, confirmed: Sequence[Confirmed] = ()
) -> list[FrontPoint]:
    """Return the Pareto front: configurations that no other one dominates with 95 % confidence.

    Args:
        tried: without A/A controls.
        question: its objective is one axis; memory, CPU time and model size are the others where they vary.
        margin: see `confirmation_order`.
        confirmed: results of confirmations; points show the same number and interval as all other outputs.
    """
    points = []
    by_trial = {one["trial"]: one["gain"] for one in confirmed}
    objective = "+".join(question.objective)
    shown: dict[str, SpeedUpNumbers] = {}
    for one in tried:
        found = reported_speedup(one, question.objective, by_trial)
        if one.failed or found is None:
            continue
        shown[one.key] = estimate_numbers(objective, found, margin)
        log, error = _log(shown[one.key])
        rough = one.speedup(question.objective)  # its launches, where they give no interval
        own = {"objective": (log, rough[1] if error is None and rough else error)}
        own |= {
            name: gain
            for name in BY_PASSES
            if name not in question.objective and (gain := one.gain(name)) is not None
        }
        points.append((one, own))
    left = [
        (one, own)
        for one, own in points
        if not any(dominates(other, own, math.log1p(margin)) for _, other in points if other is not own)
    ]
    left.sort(key=lambda point: -point[1]["objective"][0])
    return [
        {
            "changes": dict(one.changes),
            "trial": one.looks[-1].trial,
            "gains": [
                shown[one.key] if metric == "objective" else speedup_numbers(metric, gain, margin)
                for metric, gain in own.items()
            ],
            "values": {
                metric: value
                for metric in ("latency_p50", "throughput", *BY_PASSES)
                if (value := one.value(metric)) is not None
            },
        }
        for one, own in left[:MOST_ON_FRONT]
    ]


def dominates(one: Mapping[str, LogSpeedup], other: Mapping[str, LogSpeedup], least: float) -> bool:
    """Return whether `one` is significantly better than `other` in one metric and equivalent in all others.

    Significant: 95 % confidence over all metrics together. Equivalent: worse by at most the margin, or the
    noise if that is larger. A test for "significantly not worse" would remove no configuration, because no
    two measured numbers are equal.
    """
    shared = one.keys() & other.keys()
    reach = _NORMAL.inv_cdf(1 - 0.05 / 2 / max(1, len(shared)))
    better = False
    for name in shared:
        (a, a_error), (b, b_error) = one[name], other[name]
        error = math.hypot(a_error or 0.05, b_error or 0.05) if name != "model_size" else 1e-9
        if a - b < -(least if name == "objective" else max(least, error)):
            return False
        better = better or a - b > reach * error
    return better


def effects(known: PlanState, spread: Prior = ASSUMED_PRIOR) -> tuple[list[EffectRecord], list[PairRecord]]:
    """Return the effect of each value on the objective and significant pairs, fitted to all observations.

    Args:
        known: state of the search.
        spread: variation between launches of one configuration; every interval includes it.
    """
    fitted = model_of(known, spread=spread.sigma_between)
    model = None if fitted is None else fitted.with_minimum_sizes(LEAST_SIZE)
    reach = t_quantile(1 - (1 - CONFIDENCE) / 2, max(1.0, len(known.tried) - known.codes.shape[1]))
    space = known.space
    if model is None or len(known.tried) < 3:
        return [], []
    step = max(1, len(known.codes) // SAMPLE)
    codes = np.concatenate([known.codes[::step], model.tried])
    seen = [set(model.tried[:, axis].tolist()) for axis in range(codes.shape[1])]
    main = [(one, one.axes[0], one.values[0]) for one in main_effects(model, codes)]
    singles: list[Any] = [
        {
            "setting": space.axes[axis].name,
            "value": space.axes[axis].values[value],
            "against": space.axes[axis].values[0],
            **_ratios(one.mean, reach * one.error),
        }
        for one, axis, value in main
        if value in seen[axis]
    ]
    pairs: list[Any] = [
        {
            "settings": [space.axes[axis].name for axis in one.axes],
            "values": [space.axes[a].values[v] for a, v in zip(one.axes, one.values, strict=True)],
            **_ratios(one.mean, reach * one.error),
        }
        for one in pair_effects(model, model.tried)
        if abs(one.mean) > reach * one.error
    ]
    singles.sort(key=lambda one: -abs(math.log(one["ratio"])))
    return singles, pairs


def _ratios(mean: float, reach: float) -> Any:
    return {
        "ratio": math.exp(mean),
        "ratio_low": math.exp(mean - reach),
        "ratio_high": math.exp(mean + reach),
    }


def controls(tried: Sequence[Evaluation], self_tests: Sequence[Mapping[str, Any]]) -> Controls:
    """Return the result of the A/A controls: hidden copies of configurations and of the ORT default.

    A pair is apart if it differs by more than chance, with 95 % confidence over all pairs together.

    Args:
        tried: all evaluations, including controls.
        self_tests: A/A tests of the comparisons of the search.
    """
    ratios: list[tuple[float, float]] = []  # ratio of each pair, standard error of its ln
    by_key = {one.key: one for one in tried if not one.twin}
    for control in (one for one in tried if one.twin):
        other = by_key.get(control.key)
        for look in control.looks:
            own = look.round_gain
            same = [
                gain
                for found in (other.looks if other is not None else ())
                if found.race == look.race and (gain := found.round_gain) is not None
            ]
            if own is None or not same:
                continue
            distance = own[0] - same[0][0]
            error = max(LAUNCH_ERROR, math.hypot(own[1] or 0.0, same[0][1] or 0.0))
            ratios.append((math.exp(distance), error))
    for test in self_tests:
        low, high = test.get("ratio_low"), test.get("ratio_high")
        if low is not None and high is not None:
            ratios.append((test["ratio"], max(1e-9, math.log(high / low) / 2 / Z)))
        else:
            ratios.append((test["ratio"], LAUNCH_ERROR))
    reach = _NORMAL.inv_cdf(1 - 0.05 / 2 / max(1, len(ratios)))
    apart = [one for one, error in ratios if abs(math.log(one)) > reach * error]
    largest = max((one for one, _ in ratios), key=lambda one: abs(math.log(one)), default=None)
    return {"pairs": len(ratios), "apart": len(apart), "largest": largest}


LAUNCH_ERROR = 0.02  # least standard error of the ln ratio of two single launches, which give no estimate


def failed_controls(found: Controls) -> str:
    """Return a warning if the A/A controls failed; empty: they passed."""
    if not found["apart"] or found["largest"] is None:
        return ""
    ratio = max(found["largest"], 1 / found["largest"])
    return (
        f"A/A control failed: {found['apart']} of {found['pairs']} pairs of launches of one configuration "
        f"differed, by up to {ratio:.2f}×. The confirmation's interval counts that spread. Search again "
        "on an idle machine, or with more time."
    )


def space_facts(space: Space) -> Any:
    """Return the numbers of combinations and distinct configurations, and why combinations are equivalent."""
    return {
        "combinations": space.combinations,
        "distinct": len(space.choices),
        "left_out": dict(space.left_out),
    }
