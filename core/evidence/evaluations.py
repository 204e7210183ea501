"""Evaluations of a search: all observations of a configuration and their combined estimate.

Pure.

An observation is the result of one comparison: speed-ups over the ORT default in the same rounds, as log
ratio with standard error; larger is better for every metric. All observations together determine what to
evaluate next. The reported speed-up of a configuration comes from its most precise observation alone, with
the interval of that comparison: the confirmation, else the elimination round. An observation with fewer than
four launches has no interval, because a process may be slow for its whole life and few launches cannot show
that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from core.evidence.metrics.intervals import Z
from core.evidence.result_types import Confirmed, SpeedUpNumbers
from core.evidence.speedup_interval import ASSUMED_PRIOR, SPREAD_LAUNCHES, Contrast, Prior, contrast
from core.evidence.statistics import CONFIDENCE, t_quantile
from core.evidence.streams import stored_seconds_per_run
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA
from core.spec.metrics import BY_PASSES, BY_ROUNDS, METRICS, Metric
from core.wire.units import ci

Stage = Literal["screen", "heat", "confirm"]
LogSpeedup = tuple[float, float | None]  # log speed-up and its standard error; None: not known

UNKNOWN_SE = 0.05  # assumed standard error of a log speed-up without one
ASSUMED_SPREAD = 0.1  # assumed relative standard error of a number of a pass without an interval
MAX_COPY_DIFFERENCE = 0.10  # log ratio of the default's two processes above which only the faster one is used
MAX_INTERVAL_FACTOR = 4.0  # upper over lower bound above which an interval is uninformative
MAX_DEFAULT_SHIFT = 0.25  # log ratio of the default's latency in two comparisons above which one is doubted
MOST_SPREAD_DF = 6.0  # cap: the spread seen by a search counts as at most seven launches


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result of one comparison for one configuration. It selects candidates and is never reported."""

    stage: Stage
    race: str
    trial: str
    gains: Mapping[str, LogSpeedup] = field(default_factory=dict)  # metric -> ln(speed-up), standard error
    values: Mapping[str, float] = field(default_factory=dict)  # metric -> seconds, bytes, samples/s
    error: str = ""  # why there is no result
    breach: str = ""  # why the output check failed
    launches: int = 1  # fresh processes behind the speed-up by medians
    df: float | None = None  # degrees of freedom of the standard error of that speed-up; None: unknown
    splits: float = 1.0  # divisor of the 5 % of its interval, from the interim analyses of its comparison
    level: float | None = None  # ln(seconds per sample) of the default in the same comparison

    @property
    def round_gain(self) -> LogSpeedup | None:
        """The log speed-up that its rounds compared: of the median run, or of throughput; None: neither."""
        return self.gains.get("latency_p50") or self.gains.get("throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedSpeedup:
    """The reported speed-up of a configuration, the same everywhere. Bounds are None without an interval."""

    ratio: float
    low: float | None
    high: float | None
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One configuration and all its observations."""

    changes: Mapping[str, Any]  # settings that differ from the start; in `--json` from ORT's default
    key: str  # of its request
    looks: tuple[Observation, ...] = ()
    twin: bool = False  # an A/A control: the same configuration under another name

    @property
    def failed(self) -> str:
        """Reason why it cannot be the result, from the observations so far; empty: none."""
        return next((one.error or one.breach for one in reversed(self.looks) if one.error or one.breach), "")

    def gain(self, metric: str) -> LogSpeedup | None:
        """Return the log speed-up pooled over all observations; None: no observation has the metric."""
        found = [one.gains[metric] for one in self.looks if metric in one.gains]
        return pooled(found) if found else None

    def speedup(self, objective: Mapping[str, float]) -> LogSpeedup | None:
        """Return the log speed-up of an objective from all observations; None: a metric is missing."""
        return weighted({name: self.gain(name) for name in objective}, objective)

    def value(self, metric: str) -> float | None:
        """Return the newest value of a metric."""
        return next((one.values[metric] for one in reversed(self.looks) if metric in one.values), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def evaluation_from_dict(data: Mapping[str, Any]) -> Evaluation:
    """Build an evaluation from the data that `to_dict` wrote."""
    looks = [
        Observation(**{**one, "gains": {name: (gain[0], gain[1]) for name, gain in one["gains"].items()}})
        for one in data["looks"]
    ]
    return Evaluation(changes=data["changes"], key=data["key"], looks=tuple(looks), twin=data["twin"])


def interval(gain: LogSpeedup) -> tuple[float, float] | None:
    """Return the normal interval of a speed-up whose standard error is a known spread, such as memory."""
    middle, error = gain
    return None if error is None else (math.exp(middle - Z * error), math.exp(middle + Z * error))


def reported_speedup(
    one: Evaluation,
    objective: Mapping[str, float],
    confirmed: Mapping[str, SpeedUpNumbers],
    *,
    among: int = 1,
) -> ReportedSpeedup | None:
    """Return the speed-up of a configuration as all tables, charts and sentences show it; None: not measured.

    It is that of its most precise comparison, with the interval of that comparison: t quantiles of the
    launches, corrected for the interim analyses. Observations from screening give no interval.

    Args:
        one: the evaluation.
        objective: metric -> weight.
        confirmed: trial -> speed-up from a confirmation.
        among: number of configurations from which this one was selected as the best; the interval is
            corrected for that selection (Bonferroni).
    """
    for look in reversed(one.looks):
        if (found := confirmed.get(look.trial)) is not None:
            return ReportedSpeedup(
                ratio=found["ratio"],
                low=found["ratio_low"],
                high=found["ratio_high"],
                launches=look.launches,
            )
    careful = [look for look in one.looks if look.gains and look.stage == "confirm"]
    careful = careful or [look for look in one.looks if look.gains and look.launches >= SPREAD_LAUNCHES]
    looks = tuple(careful[-1:]) or one.looks
    gain = replace(one, looks=looks).speedup(objective)
    if gain is None:
        return None
    reach = None
    if careful and careful[-1].launches >= SPREAD_LAUNCHES:
        reach = _log_half_width(careful[-1], gain, objective, among)
    return ReportedSpeedup(
        ratio=math.exp(gain[0]),
        low=None if reach is None else math.exp(gain[0] - reach),
        high=None if reach is None else math.exp(gain[0] + reach),
        launches=sum(look.launches for look in looks if look.gains),
    )


def confirmed_configurations(answer: Mapping[str, Any] | None) -> list[Confirmed]:
    """Return the confirmed configurations of a stored search result, the winner first."""
    found = answer or {}
    return [one for one in (found.get("winner"), *found.get("others", ())) if one]


def confirmed_gains(answer: Mapping[str, Any] | None) -> dict[str, SpeedUpNumbers]:
    """Return trial -> speed-up of the confirmed configurations, for `reported_speedup`."""
    return {one["trial"]: one["gain"] for one in confirmed_configurations(answer)}


def reported_ratio(
    objective: Mapping[str, float], answer: Mapping[str, Any] | None
) -> Callable[[Evaluation], float | None]:
    """Return a function from an evaluation to its reported speed-up as a ratio; None: not measured."""
    confirmed = confirmed_gains(answer)

    def ratio(one: Evaluation) -> float | None:
        found = reported_speedup(one, objective, confirmed)
        return None if found is None else found.ratio

    return ratio


def best_text(best: Mapping[str, Any]) -> str:
    """Return `speedup_text` of the best configuration so far, from the live state of a search."""
    gain = best["gain"]
    return speedup_text(
        ReportedSpeedup(
            ratio=gain["ratio"], low=gain["ratio_low"], high=gain["ratio_high"], launches=best["launches"]
        )
    )


def speedup_text(one: ReportedSpeedup) -> str:
    """Return a speed-up with its interval, `1.33×, 95 % CI [1.29, 1.36]`, or with its number of launches."""
    if one.low is None or one.high is None:
        return f"about {one.ratio:.2f}× ({one.launches} launch{'es' * (one.launches != 1)}, no interval yet)"
    if one.high / one.low > MAX_INTERVAL_FACTOR:
        return "not known yet"
    return f"{one.ratio:.2f}×, {ci(f'{one.low:.2f}', f'{one.high:.2f}')}"


def _log_half_width(
    look: Observation, gain: LogSpeedup, objective: Mapping[str, float], among: int
) -> float | None:
    """Return the half-width of the interval on the log scale; None: the objective was not compared."""
    if gain[1] is None or not set(objective) <= {"latency_p50", *BY_PASSES}:
        return None
    if "latency_p50" not in objective:
        return Z * gain[1]
    df = look.df
    return None if df is None else t_quantile(1 - (1 - CONFIDENCE) / look.splits / among / 2, df) * gain[1]


# --- launches and references --------------------------------------------------------------------------------


def launch_spread(differences: Sequence[float]) -> Prior:
    """Return the prior of the spread between launches from the A/A controls of a search.

    It is not robust on purpose: intervals must cover the one control in ten that is far off.

    Args:
        differences: log ratios of two processes of one configuration in the same rounds.
    """
    n = len(differences)
    squares = math.fsum(one**2 for one in differences)
    variance = (ASSUMED_PRIOR.df * ASSUMED_PRIOR.sigma_between**2 + squares) / (ASSUMED_PRIOR.df + n)
    df = min(ASSUMED_PRIOR.df + n, MOST_SPREAD_DF)
    return Prior(sigma_between=math.sqrt(variance), df=df, source="search" if n else ASSUMED_PRIOR.source)


def reference_doubts(tried: Iterable[Evaluation]) -> dict[str, float]:
    """Return for each comparison the log ratio by which its default was slower than in the fastest one.

    A default whose launches are all slow makes all other configurations of its comparison look fast.
    Differences below `MAX_DEFAULT_SHIFT` are ordinary drift of a machine and are left out.
    """
    levels = {
        look.race: look.level for one in tried for look in one.looks if look.level is not None and look.race
    }
    if len(levels) < 2:
        return {}
    least = min(levels.values())
    return {name: level - least for name, level in levels.items() if level - least > MAX_DEFAULT_SHIFT}


def pooled(gains: Sequence[LogSpeedup]) -> LogSpeedup:
    """Return the inverse-variance weighted mean of independent observations.

    If observations differ by more than their errors, the error of the mean grows by the Birge ratio (1932):
    the state of the machine changed between them, and either state may recur.
    """
    weights = [1 / (UNKNOWN_SE if error is None else max(error, 1e-6)) ** 2 for _, error in gains]
    total = math.fsum(weights)
    middle = math.fsum(weight * gain for weight, (gain, _) in zip(weights, gains, strict=True)) / total
    known = any(error is not None for _, error in gains)
    spread = math.fsum(w * (gain - middle) ** 2 for w, (gain, _) in zip(weights, gains, strict=True))
    birge = math.sqrt(max(1.0, spread / (len(gains) - 1))) if len(gains) > 1 else 1.0
    return middle, birge * math.sqrt(1 / total) if known else None


def weighted(gains: Mapping[str, LogSpeedup | None], objective: Mapping[str, float]) -> LogSpeedup | None:
    """Return the log speed-up of an objective: the weighted sum over its metrics; None: one is missing."""
    parts = [(weight, gains.get(name)) for name, weight in objective.items()]
    if any(gain is None for _, gain in parts):
        return None
    known = [(weight, gain) for weight, gain in parts if gain is not None]
    errors = [weight * (UNKNOWN_SE if gain[1] is None else gain[1]) for weight, gain in known]
    if len(known) == 1 and known[0][1][1] is None:
        return known[0][1]
    return math.fsum(weight * gain[0] for weight, gain in known), math.hypot(*errors)


# --- one comparison -----------------------------------------------------------------------------------------


def observe(
    head: Observation,
    result: Mapping[str, Any],
    default: Mapping[str, Any],
    found: Mapping[str, Any] | None,
    *,
    sizes: tuple[float, float] | None = None,
    arena: bool = True,
    copies: float | None = None,
) -> Observation:
    """Return the observation of a configuration from a comparison.

    If the two processes of the default differ by more than `MAX_COPY_DIFFERENCE`, the speed-up is relative to
    the faster one, because no fault makes a process faster.

    Args:
        head: stage, comparison and trial; with an error where there is no valid result.
        result: result of that trial.
        default: result of the ORT default in the same comparison.
        found: the contrast of the two; None: they have no common round.
        sizes: bytes of its model and of the default's model.
        arena: whether it keeps ONNX Runtime's CPU arena.
        copies: log ratio of the default's two processes; None: there were no two.
    """
    gains: dict[str, LogSpeedup] = {}
    values: dict[str, float] = {}
    if head.error or not result:
        return replace(head, error=head.error or "It has no result.")
    shift = abs(copies) / 2 if copies is not None and abs(copies) > MAX_COPY_DIFFERENCE else 0.0
    if found is not None:
        gain = math.log(found["ratio"]) - shift, found.get("standard_error") or _rough_error(found)
        compared = ("throughput",) if found.get("statistic") == "throughput" else BY_ROUNDS
        gains |= dict.fromkeys(compared, gain)
        launches, df = found.get("generations") or 1, found.get("df")
        head = replace(head, launches=launches, df=df, level=_log_latency(default, shift))
    for name in BY_PASSES:
        own, other = pass_reading(METRICS[name], result, arena=arena), pass_reading(METRICS[name], default)
        if own and other:
            gains[name] = math.log(other[0] / own[0]), math.hypot(own[1], other[1])
            values[name] = own[0]
    if sizes is not None:
        gains["model_size"] = math.log(sizes[1] / sizes[0]), 0.0
        values["model_size"] = sizes[0]
    for name in BY_ROUNDS:
        if number := METRICS[name].value(result):
            values[name] = number
    guard = result.get("guard") or {}
    breach = str(guard.get("why") or "its outputs differ") if guard.get("breach") else ""
    return replace(head, gains=gains, values=values, breach=breach)


def _log_latency(default: Mapping[str, Any], shift: float) -> float | None:
    """Return ln(seconds per sample) of the default, of its faster process where they differ."""
    p50_s = (default.get("latency") or {}).get("p50_s")
    return math.log(p50_s / max(1, default.get("batch_size") or 1)) - shift if p50_s else None


def _rough_error(found: Mapping[str, Any]) -> float | None:
    """Return the standard error of an observation with too few rounds for an interval; None: not known."""
    sigma, rounds = found.get("sigma"), found.get("rounds") or 1
    return None if not sigma else math.hypot(sigma / math.sqrt(rounds), ASSUMED_PRIOR.sigma_between)


def pass_reading(
    metric: Metric, result: Mapping[str, Any], *, arena: bool = True
) -> tuple[float, float] | None:
    """Return a number that is smaller for a better configuration, and its relative standard error.

    The number of the pass counts, else the middle of the interval of the counters. A number per inference is
    returned per sample. None: not measured.
    """
    low, high = (result.get(f"{metric.field}_{end}") for end in ("low", "high"))
    value = metric.value(result)
    if value is None and low is not None and high is not None:
        value = (low + high) / 2
    if not value:
        return None
    rows = max(1, result.get("batch_size") or 1) if metric.per_sample else 1
    if metric.quantity == "size":
        error = (MEMORY_SPREAD if arena else MEMORY_SPREAD_WITHOUT_ARENA) / 2 / Z
    else:
        error = ASSUMED_SPREAD if low is None or high is None else (high - low) / 2 / Z / value
    return value / rows, error


# --- other statistics than the median -----------------------------------------------------------------------


def contrast_of(
    metric: str,
    own: Mapping[str, Any],
    other: Mapping[str, Any],
    *,
    looks: float,
    margin: float,
    prior: Prior | None = ASSUMED_PRIOR,
) -> Contrast | None:
    """Return the contrast of a statistic other than the median; None: there are too few runs.

    The mean (and throughput) is compared within rounds like the median. A high percentile is one number per
    launch, computed from the pooled runs of all its rounds. With several streams, throughput is that of the
    common windows.

    Args:
        metric: "latency_p50", "latency_mean", "latency_p95", "latency_p99" or "throughput".
        own: result of the candidate with its latencies.
        other: result of the baseline with its latencies.
        looks: as for `contrast`.
        margin: as for `contrast`.
        prior: as for `contrast`.
    """
    if metric in ("latency_p95", "latency_p99"):
        share = 0.95 if metric == "latency_p95" else 0.99
        one, two = _by_launch(own, share), _by_launch(other, share)
        ratios = [[two[key] - one[key]] for key in sorted(one.keys() & two.keys())]
        prior = None
    else:
        first, second = _by_round(own, metric), _by_round(other, metric)
        groups: dict[int, list[float]] = {}
        for key in sorted(first.keys() & second.keys()):
            groups.setdefault(key[0], []).append(second[key] - first[key])
        ratios = list(groups.values())
    return contrast(ratios, looks=looks, margin=margin, prior=prior) if ratios else None


def _blocks(result: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[float]]]:
    """Return each block with its latencies per sample."""
    rows, at, found = max(1, result.get("batch_size") or 1), 0, []
    latencies = result.get("latencies_s") or ()
    for block in result.get("blocks") or ():
        own = [one / rows for one in latencies[at : at + block["runs"]]]
        at += block["runs"]
        if own:
            found.append((block, own))
    return found


def _by_round(result: Mapping[str, Any], metric: str) -> dict[tuple[int, int], float]:
    seen: dict[tuple[int, int], list[float]] = {}
    rows = max(1, result.get("batch_size") or 1)
    for block, own in _blocks(result):
        if metric == "throughput" and "throughput_run_s" in block:
            per_row_s = stored_seconds_per_run(block) / rows
        else:
            per_row_s = statistics.median(own) if metric == "latency_p50" else statistics.fmean(own)
        seen.setdefault((block.get("generation", 0), block["round"]), []).append(math.log(per_row_s))
    return {key: statistics.fmean(values) for key, values in seen.items()}


MIN_TAIL_RUNS = 3  # minimum number of runs beyond a percentile of one launch


def _by_launch(result: Mapping[str, Any], share: float) -> dict[int, float]:
    pooled_runs: dict[int, list[float]] = {}
    for block, own in _blocks(result):
        pooled_runs.setdefault(block.get("generation", 0), []).extend(own)
    return {
        key: math.log(sorted(runs)[math.ceil(share * len(runs)) - 1])
        for key, runs in pooled_runs.items()
        if len(runs) * (1 - share) >= MIN_TAIL_RUNS
    }
