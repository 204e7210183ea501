"""What a search knows of each configuration that it tried: looks at it, and what they say together. Pure.

A look is one race's numbers: gains over ONNX Runtime's default in the same rounds, as ln(gain) with standard
error, larger is better for every metric. Looks choose what to try next; what is reported comes from the last,
confirming race alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from core.evidence.contrast import ASSUMED, Contrast, Prior, contrast
from core.evidence.metrics.intervals import Z
from core.evidence.targets import MEMORY_SPREAD, MEMORY_SPREAD_WITHOUT_ARENA

Stage = Literal["screen", "heat", "confirm"]
Gain = tuple[float, float | None]  # ln(gain), and its standard error; None: not known

FROM_MEDIANS = ("latency_p50", "latency_mean", "latency_p95", "latency_p99", "throughput")
UNKNOWN_SE = 0.05  # of ln(gain)


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
    """Return the 95 % interval of a gain as a ratio; None: its error is not known."""
    middle, error = gain
    return None if error is None else (math.exp(middle - Z * error), math.exp(middle + Z * error))


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
) -> Look:
    """Return what a race told of a configuration.

    Args:
        head: stage, race and trial; with an error where it has no result, or none that counts.
        result: of that trial.
        default: result of ONNX Runtime's default in the same race.
        found: the contrast of the two; None: they ran in no common round.
        sizes: bytes of its model and of the default's.
        arena: it keeps ONNX Runtime's CPU arena.
    """
    gains: dict[str, Gain] = {}
    values: dict[str, float] = {}
    if head.error or not result:
        return replace(head, error=head.error or "It has no result.")
    if found is not None:
        gain = math.log(found["ratio"]), found.get("standard_error") or _rough_error(found)
        gains |= dict.fromkeys(FROM_MEDIANS, gain)
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
