"""Evaluations of a search: all observations of a configuration and their combined estimate.

Pure.

A look is one race's numbers: gains over ONNX Runtime's default in the same rounds, as ln(gain) with standard
error, larger is better for every metric. All looks together choose what to try next. What is told of a
configuration (`told`) comes from its most careful look alone, with that comparison's own interval: the
confirmation, else the elimination round. A look of fewer than four launches has no interval: a process may be
slow for life, and so few cannot show it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from core.evidence.contrast import ASSUMED, SEEN_UNITS, Contrast, Prior, contrast
from core.evidence.metrics.intervals import Z
from core.evidence.result_types import Confirmed, GainNumbers
from core.evidence.statistics import CONFIDENCE, t_quantile
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA

Stage = Literal["screen", "heat", "confirm"]
Gain = tuple[float, float | None]  # ln(gain), and its standard error; None: not known

FROM_MEDIANS = ("latency_p50", "latency_mean", "latency_p95", "latency_p99", "throughput")
UNKNOWN_SE = 0.05  # of ln(gain)
COPIES_APART = 0.10  # ln ratio of two launches of the default, beyond which the slower one is no reference
WIDEST = 4.0  # high over low of an interval, beyond which it tells nothing
RUN_APART = 0.25  # by which the default of one run is slower than in another before that run is doubted
MOST_SPREAD_DF = 6.0  # what a search saw of launches counts as seven of a confirmation, never more


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one race told of one configuration."""

    stage: Stage
    race: str
    trial: str
    gains: Mapping[str, Gain] = field(default_factory=dict)  # by metric
    values: Mapping[str, float] = field(default_factory=dict)  # by metric: seconds, bytes, rows a second
    error: str = ""  # why it has none
    breach: str = ""  # why its outputs are not what they should be
    launches: int = 1  # processes that its gain by medians rests on
    df: float | None = None  # degrees of freedom of that gain's standard error; None: not known
    splits: float = 1.0  # by which the 5 % of its interval are divided: the interim analyses of its race
    level: float | None = None  # ln(seconds a row) of the default in the same race


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is said of a configuration: one number, wherever it stands. Bounds are None where it has none."""

    ratio: float
    low: float | None
    high: float | None
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One configuration and every look at it."""

    changes: Mapping[str, Any]  # what it sets otherwise than the start
    key: str  # of its request
    looks: tuple[Look, ...] = ()
    twin: bool = False  # a hidden control: the same configuration under another name

    @property
    def failed(self) -> str:
        """Why it cannot be the answer, by what was seen so far; empty: nothing was."""
        return next((one.error or one.breach for one in reversed(self.looks) if one.error or one.breach), "")

    def gain(self, metric: str) -> Gain | None:
        """All looks together, weighted by how sure each is; None: none tells that metric."""
        found = [one.gains[metric] for one in self.looks if metric in one.gains]
        return pooled(found) if found else None

    def value(self, metric: str) -> float | None:
        """The newest number of a metric."""
        return next((one.values[metric] for one in reversed(self.looks) if metric in one.values), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def tried_from_dict(data: Mapping[str, Any]) -> Tried:
    """Build what `Tried.to_dict` wrote."""
    looks = [
        Look(**{**one, "gains": {name: (gain[0], gain[1]) for name, gain in one["gains"].items()}})
        for one in data["looks"]
    ]
    return Tried(changes=data["changes"], key=data["key"], looks=tuple(looks), twin=data["twin"])


def interval(gain: Gain) -> tuple[float, float] | None:
    """Return the interval of a gain whose standard error stands for a known spread, as of memory."""
    middle, error = gain
    return None if error is None else (math.exp(middle - Z * error), math.exp(middle + Z * error))


def told(
    one: Tried, objective: Mapping[str, float], confirmed: Mapping[str, GainNumbers], *, among: int = 1
) -> Told | None:
    """Return the gain of a configuration as every table, chart and sentence shows it; None: it has no number.

    It is that of its most careful comparison, with the interval of that comparison: t quantiles of the
    launches, corrected for the interim analyses. Looks before that say about how much, without an interval.

    Args:
        one: the configuration.
        objective: metric -> weight.
        confirmed: trial -> what a confirmation said of it.
        among: how many configurations this one was chosen from as the best: its interval holds for whichever
            would have been chosen (Bonferroni).
    """
    for look in reversed(one.looks):
        if (found := confirmed.get(look.trial)) is not None:
            return Told(
                ratio=found["ratio"],
                low=found["ratio_low"],
                high=found["ratio_high"],
                launches=look.launches,
            )
    careful = [look for look in one.looks if look.gains and look.stage == "confirm"]
    careful = careful or [look for look in one.looks if look.gains and look.launches >= SEEN_UNITS]
    looks = tuple(careful[-1:]) or one.looks
    gain = weighed({name: replace(one, looks=looks).gain(name) for name in objective}, objective)
    if gain is None:
        return None
    reach = None
    if careful and careful[-1].launches >= SEEN_UNITS:
        reach = _reach(careful[-1], gain, objective, among)
    return Told(
        ratio=math.exp(gain[0]),
        low=None if reach is None else math.exp(gain[0] - reach),
        high=None if reach is None else math.exp(gain[0] + reach),
        launches=sum(look.launches for look in looks if look.gains),
    )


def all_confirmed(answer: Mapping[str, Any] | None) -> list[Confirmed]:
    """Return whoever a stored answer says was confirmed, the winner first."""
    found = answer or {}
    return [one for one in (found.get("winner"), *found.get("others", ())) if one]


def gains_confirmed(answer: Mapping[str, Any] | None) -> dict[str, GainNumbers]:
    """Return trial -> gain of whoever was confirmed, for `told`."""
    return {one["trial"]: one["gain"] for one in all_confirmed(answer)}


def ratios_told(
    objective: Mapping[str, float], answer: Mapping[str, Any] | None
) -> Callable[[Tried], float | None]:
    """Return what gives the told gain of a configuration as a ratio; None: it has no number."""
    confirmed = gains_confirmed(answer)

    def ratio(one: Tried) -> float | None:
        found = told(one, objective, confirmed)
        return None if found is None else found.ratio

    return ratio


def best_told(best: Mapping[str, Any]) -> str:
    """Return `told_words` of the best so far, as the live state of a search holds it."""
    gain = best["gain"]
    return told_words(
        Told(ratio=gain["ratio"], low=gain["ratio_low"], high=gain["ratio_high"], launches=best["launches"])
    )


def told_words(one: Told) -> str:
    """Return a gain with how sure it is: `1.33×, 95 % [1.29, 1.36]`, or how few launches it rests on."""
    if one.low is None or one.high is None:
        return f"about {one.ratio:.2f}× ({one.launches} launch{'es' * (one.launches != 1)}, no interval yet)"
    if one.high / one.low > WIDEST:
        return "not known yet"
    return f"{one.ratio:.2f}×, 95 % [{one.low:.2f}, {one.high:.2f}]"


def _reach(look: Look, gain: Gain, objective: Mapping[str, float], among: int) -> float | None:
    """Half of the interval of ln(gain); None where the race compared another number than the objective."""
    if gain[1] is None or not set(objective) <= {"latency_p50", *KNOWN_SPREADS}:
        return None
    if "latency_p50" not in objective:
        return Z * gain[1]
    df = look.df
    return None if df is None else t_quantile(1 - (1 - CONFIDENCE) / look.splits / among / 2, df) * gain[1]


KNOWN_SPREADS = ("peak_rss", "cpu_s", "model_size")  # metrics whose spread between launches is no question


# --- launches and references --------------------------------------------------------------------------------


def launch_spread(differences: Sequence[float]) -> Prior:
    """Return what two launches of one configuration differ by, as the controls of a search show it.

    Not robust on purpose: one control in ten that is far off is what an interval must tell.

    Args:
        differences: ln ratios of two launches of one configuration in the same rounds.
    """
    n = len(differences)
    squares = math.fsum(one**2 for one in differences)
    variance = (ASSUMED.df * ASSUMED.sigma_between**2 + squares) / (ASSUMED.df + n)
    df = min(ASSUMED.df + n, MOST_SPREAD_DF)
    return Prior(sigma_between=math.sqrt(variance), df=df, source="search" if n else ASSUMED.source)


def reference_doubts(tried: Iterable[Tried]) -> dict[str, float]:
    """Return of each race by how much, in ln, its default was slower than in the quickest other race.

    A default whose launches are all slow makes every other configuration of its race look fast. Differences
    below `RUN_APART` are what a machine drifts by, and cost nothing.
    """
    levels = {
        look.race: look.level for one in tried for look in one.looks if look.level is not None and look.race
    }
    if len(levels) < 2:
        return {}
    least = min(levels.values())
    return {race: level - least for race, level in levels.items() if level - least > RUN_APART}


def pooled(gains: Sequence[Gain]) -> Gain:
    """Return the inverse-variance mean of independent looks at one number.

    Looks that differ by more than their errors make the error of the mean as much larger (Birge 1932): the
    machine was another one, and nobody knows which of them will be right next time.
    """
    weights = [1 / (UNKNOWN_SE if error is None else max(error, 1e-6)) ** 2 for _, error in gains]
    total = math.fsum(weights)
    middle = math.fsum(weight * gain for weight, (gain, _) in zip(weights, gains, strict=True)) / total
    known = any(error is not None for _, error in gains)
    spread = math.fsum(w * (gain - middle) ** 2 for w, (gain, _) in zip(weights, gains, strict=True))
    birge = math.sqrt(max(1.0, spread / (len(gains) - 1))) if len(gains) > 1 else 1.0
    return middle, birge * math.sqrt(1 / total) if known else None


def weighed(gains: Mapping[str, Gain | None], objective: Mapping[str, float]) -> Gain | None:
    """Return ln(gain) of an objective: the weighted sum over its metrics; None: one is not known."""
    parts = [(weight, gains.get(name)) for name, weight in objective.items()]
    if any(gain is None for _, gain in parts):
        return None
    known = [(weight, gain) for weight, gain in parts if gain is not None]
    errors = [weight * (UNKNOWN_SE if gain[1] is None else gain[1]) for weight, gain in known]
    if len(known) == 1 and known[0][1][1] is None:
        return known[0][1]
    return math.fsum(weight * gain[0] for weight, gain in known), math.hypot(*errors)


# --- one race -----------------------------------------------------------------------------------------------


def look(
    head: Look,
    result: Mapping[str, Any],
    default: Mapping[str, Any],
    found: Mapping[str, Any] | None,
    *,
    sizes: tuple[float, float] | None = None,
    arena: bool = True,
    copies: float | None = None,
) -> Look:
    """Return what a race told of a configuration.

    Where the two launches of the default differ by more than `COPIES_APART`, the gain is over the faster one:
    nothing makes a process too fast.

    Args:
        head: stage, race and trial; with an error where it has no result, or none that counts.
        result: of that trial.
        default: result of ONNX Runtime's default in the same race.
        found: the contrast of the two; None: they ran in no common round.
        sizes: bytes of its model and of the default's.
        arena: it keeps ONNX Runtime's CPU arena.
        copies: ln ratio of the default's two launches, where there was one pair of them.
    """
    gains: dict[str, Gain] = {}
    values: dict[str, float] = {}
    if head.error or not result:
        return replace(head, error=head.error or "It has no result.")
    shift = abs(copies) / 2 if copies is not None and abs(copies) > COPIES_APART else 0.0
    if found is not None:
        gain = math.log(found["ratio"]) - shift, found.get("standard_error") or _rough_error(found)
        gains |= dict.fromkeys(FROM_MEDIANS, gain)
        launches, df = found.get("generations") or 1, found.get("df")
        head = replace(head, launches=launches, df=df, level=_level(default, shift))
    own_cpu, other_cpu = cpu_per_row(result), cpu_per_row(default)
    if own_cpu and other_cpu:
        gains["cpu_s"] = math.log(other_cpu[0] / own_cpu[0]), math.hypot(own_cpu[1], other_cpu[1])
        values["cpu_s"] = own_cpu[0]
    own, other = result.get("peak_rss_bytes"), default.get("peak_rss_bytes")
    if own and other:
        spread = MEMORY_SPREAD if arena else MEMORY_SPREAD_WITHOUT_ARENA
        gains["peak_rss"] = math.log(other / own), math.hypot(spread / 2, MEMORY_SPREAD / 2) / Z
        values["peak_rss"] = float(own)
    if sizes is not None:
        gains["model_size"] = math.log(sizes[1] / sizes[0]), 0.0
        values["model_size"] = sizes[0]
    latency = result.get("latency") or {}
    for name in ("p50", "p95", "p99", "mean"):
        if latency.get(f"{name}_s"):
            values[f"latency_{name}"] = latency[f"{name}_s"]
    if result.get("throughput_per_s"):
        values["throughput"] = result["throughput_per_s"]
    guard = result.get("guard") or {}
    breach = str(guard.get("why") or "its outputs differ") if guard.get("breach") else ""
    return replace(head, gains=gains, values=values, breach=breach)


def _level(default: Mapping[str, Any], shift: float) -> float | None:
    """ln(seconds a row) of the default, of its faster launch where they differ."""
    p50_s = (default.get("latency") or {}).get("p50_s")
    return math.log(p50_s / max(1, default.get("batch_size") or 1)) - shift if p50_s else None


def _rough_error(found: Mapping[str, Any]) -> float | None:
    """Of a look with too few rounds for an interval: what its rounds differ by, where that is known."""
    sigma, rounds = found.get("sigma"), found.get("rounds") or 1
    return None if not sigma else math.hypot(sigma / math.sqrt(rounds), ASSUMED.sigma_between)


def cpu_per_row(result: Mapping[str, Any]) -> tuple[float, float] | None:
    """CPU seconds of a row and the relative standard error, by the pass for it or the blocks' counters."""
    low, high = (result.get(f"cpu_s_per_inference_{end}") for end in ("low", "high"))
    value = result.get("cpu_s_per_inference")
    if value is None and low is not None and high is not None:
        value = (low + high) / 2
    if not value:
        return None
    spread = 0.1 if low is None or high is None else (high - low) / 2 / Z / value
    return value / max(1, result.get("batch_size") or 1), spread


# --- other statistics than the median -----------------------------------------------------------------------


def contrast_of(
    metric: str,
    own: Mapping[str, Any],
    other: Mapping[str, Any],
    *,
    looks: float,
    margin: float,
    prior: Prior | None = ASSUMED,
) -> Contrast | None:
    """Return how a candidate stands by another number than its medians; None: the runs do not tell.

    The mean (and with it throughput) is compared within rounds like the median; a high percentile is one
    number of each generation, the pooled runs of all its rounds.

    Args:
        metric: "latency_mean", "latency_p95", "latency_p99" or "throughput".
        own: result of the candidate with its raw samples.
        other: of the baseline.
        looks: as for `contrast`.
        margin: as for `contrast`.
        prior: as for `contrast`.
    """
    if metric in ("latency_p95", "latency_p99"):
        share = 0.95 if metric == "latency_p95" else 0.99
        one, two = _by_generation(own, share), _by_generation(other, share)
        ratios = [[two[key] - one[key]] for key in sorted(one.keys() & two.keys())]
        prior = None
    else:
        first, second = _by_round(own), _by_round(other)
        groups: dict[int, list[float]] = {}
        for key in sorted(first.keys() & second.keys()):
            groups.setdefault(key[0], []).append(second[key] - first[key])
        ratios = list(groups.values())
    return contrast(ratios, looks=looks, margin=margin, prior=prior) if ratios else None


def _blocks(result: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[float]]]:
    """Each block with its latencies per row."""
    rows, at, found = max(1, result.get("batch_size") or 1), 0, []
    latencies = result.get("latencies_s") or ()
    for block in result.get("blocks") or ():
        own = [one / rows for one in latencies[at : at + block["runs"]]]
        at += block["runs"]
        if own:
            found.append((block, own))
    return found


def _by_round(result: Mapping[str, Any]) -> dict[tuple[int, int], float]:
    seen: dict[tuple[int, int], list[float]] = {}
    for block, own in _blocks(result):
        seen.setdefault((block.get("generation", 0), block["round"]), []).append(
            math.log(statistics.fmean(own))
        )
    return {key: statistics.fmean(values) for key, values in seen.items()}


LEAST_TAIL = 3  # runs beyond a percentile of one generation, below which it is no number


def _by_generation(result: Mapping[str, Any], share: float) -> dict[int, float]:
    pooled_runs: dict[int, list[float]] = {}
    for block, own in _blocks(result):
        pooled_runs.setdefault(block.get("generation", 0), []).extend(own)
    return {
        key: math.log(sorted(runs)[math.ceil(share * len(runs)) - 1])
        for key, runs in pooled_runs.items()
        if len(runs) * (1 - share) >= LEAST_TAIL
    }
