"""Roofline: peaks of a machine, the share of them that an operator reaches, and advice.

The roof of an operator is the smaller of two rates: that of a matrix product, and that of a copy times the
operations per byte of the operator. Both rates are medians of measurements on this machine, with 95 %
intervals. There is no advice on an operator if its time is mostly profiler overhead, if its operations are
not counted, or if the intervals of the peaks do not determine the lower roof. Pure.

Source: Williams, Waterman, Patterson (2009), "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.evidence.operation_counts import OperationCounts, count_nodes, key_of
from core.evidence.statistics import Estimate, percentile_estimate
from core.wire.profile import HOST_TIMED, NodeTime, Profile

NOISE_PER_CALL_S = 8e-6  # maximum overhead of ORT's profiler per call of a node (5 to 8 µs)
MOST_NOISE = 0.25  # maximum profiler overhead as a share of a node's time; above it, the rate is unusable
NEAR = 0.5  # of the roof
NARROW = 0.1  # width of a reach interval below which it is not displayed
RIDGE_UNCERTAINTY = 1.25  # assumed factor of uncertainty of the ridge if the runs are too few for an interval
MAX_REACH = 1.1  # times the roof: more than the variation of one machine explains

Bound = Literal["computing", "memory", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak rates of a machine with a number of threads, per second: median, interval and best run."""

    threads: int
    operations: Estimate  # float32 products and sums
    bytes: Estimate  # read and written
    best_operations: float
    best_bytes: float
    runs: tuple[int, int]  # products, copies

    @property
    def ridge(self) -> Estimate:
        """Operations per byte above which the compute roof is the lower one."""
        o, b = self.operations, self.bytes
        low = None if o.low is None or b.high is None else o.low / b.high
        high = None if o.high is None or b.low is None else o.high / b.low
        return Estimate(value=o.value / b.value, low=low, high=high)

    def roof(self, intensity: float) -> Estimate:
        """Return the operations per second that the machine allows at `intensity` operations per byte."""
        o, b = self.operations, self.bytes
        lows, highs = (o.low, b.low), (o.high, b.high)
        return Estimate(
            value=min(o.value, intensity * b.value),
            low=None if lows[0] is None or lows[1] is None else min(lows[0], intensity * lows[1]),
            high=None if highs[0] is None or highs[1] is None else min(highs[0], intensity * highs[1]),
        )


def peaks_of(measured: Mapping[str, Any]) -> list[Peak]:
    """Return the rates from the raw times of the job `peaks`, fewest threads first."""
    return [_peak(one) for one in sorted(measured["times"], key=lambda one: one["threads"])]


def _peak(times: Mapping[str, Any]) -> Peak:
    products = [times["operations"] / ns * 1e9 for ns in times["product_ns"]]
    copies = [times["moved_bytes"] / ns * 1e9 for ns in times["copy_ns"]]
    return Peak(
        threads=times["threads"],
        operations=_median(products),
        bytes=_median(copies),
        best_operations=max(products),
        best_bytes=max(copies),
        runs=(len(products), len(copies)),
    )


def _median(rates: Sequence[float]) -> Estimate:
    found = percentile_estimate(rates, 0.5)
    assert found is not None, len(rates)
    high = found.high if found.high is not None or found.low is None else max(rates)
    return Estimate(value=found.value, low=found.low, high=high)


def peak_for(peaks: Sequence[Peak], threads: int) -> Peak | None:
    """Return the peak measured with the thread count of a session; None: not measured.

    Args:
        peaks: peaks of the machine.
        threads: `intra_op_num_threads` of the session; 0: ONNX Runtime's default, the highest count.
    """
    if threads == 0:
        return peaks[-1] if peaks else None
    return next((one for one in peaks if one.threads == threads), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One node in the roofline, at the rate of its median run, which ignores stalls of the machine.

    The time includes the profiler overhead.
    """

    node: NodeTime
    work: OperationCounts
    operations_per_s: float
    intensity: float
    roof: Estimate | None  # operations per second; None: no peak is known for such operations
    bound: Bound | None  # the lower roof at its intensity

    @property
    def reach(self) -> float | None:
        """Share of the roof, such as 0.43; above 1 its data came from a cache."""
        return None if self.roof is None else self.operations_per_s / self.roof.value

    @property
    def reach_span(self) -> tuple[float, float]:
        """Lower and upper bound of `reach`, from the intervals of the peaks."""
        assert self.roof is not None
        low = self.roof.low if self.roof.low is not None else self.roof.value / RIDGE_UNCERTAINTY
        high = self.roof.high if self.roof.high is not None else self.roof.value * RIDGE_UNCERTAINTY
        return self.operations_per_s / high, self.operations_per_s / low

    @property
    def is_clear(self) -> bool:
        """Whether the profiler overhead is a small part of its time."""
        return NOISE_PER_CALL_S * self.node.calls_per_run <= MOST_NOISE * self.node.median_s


def points(profile: Profile, peak: Peak | None) -> list[Point]:
    """Return the nodes with a compute time and counted operations and bytes above zero, longest first."""
    found = count_nodes(profile)
    made = (_point(node, found[key_of(node)], peak) for node in profile.nodes)
    return [one for one in made if one is not None]


def _point(node: NodeTime, work: OperationCounts, peak: Peak | None) -> Point | None:
    intensity = work.intensity
    if not intensity or work.operations is None or node.median_s <= 0 or node.provider in HOST_TIMED:
        return None
    known = peak if peak is not None and _is_float32(node, work) else None
    return Point(
        node=node,
        work=work,
        operations_per_s=work.operations * node.calls_per_run / node.median_s,
        intensity=intensity,
        roof=None if known is None else known.roof(intensity),
        bound=None if known is None else _bound(known, intensity),
    )


def _is_float32(node: NodeTime, work: OperationCounts) -> bool:
    """Whether the peak, measured in float32 on the CPU, applies to a node."""
    return (
        not work.is_integer
        and node.provider == "CPUExecutionProvider"
        and node.inputs[0].dtype == "float32"
        and node.op_type != "MatMulNBits"
    )


def _bound(peak: Peak, intensity: float) -> Bound:
    ridge = peak.ridge
    low = ridge.low if ridge.low is not None else ridge.value / RIDGE_UNCERTAINTY
    high = ridge.high if ridge.high is not None else ridge.value * RIDGE_UNCERTAINTY
    return "computing" if intensity > high else "memory" if intensity < low else "either"


# --- advice -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One sentence on a profile, and a recommendation; empty where there is none."""

    sentence: str
    remedy: str = ""
    bound: Bound | None = None  # limit of the largest node; None: not known, or none


def advice(profile: Profile, peak: Peak | None, *, is_imported: bool = False) -> Advice:
    """Return a sentence on the operator with the most time and its share of the roof, and a recommendation.

    Args:
        profile: profile with node times.
        peak: peak of this machine with the session's threads; None: not measured.
        is_imported: measured on another machine, so that the peaks of this one do not apply.
    """
    if not profile.nodes or profile.self_s <= 0:
        return Advice(sentence="")
    run_s = profile.self_s + max(0.0, profile.remainder_s)
    shares: dict[str, float] = {}
    for node in profile.nodes:
        shares[node.op_type] = shares.get(node.op_type, 0.0) + node.share
    op_type, share = max(shares.items(), key=lambda item: item[1])
    between = max(0.0, profile.remainder_s) / run_s
    if between > share * profile.self_s / run_s:
        if sum(node.self_s for node in profile.nodes if node.provider in HOST_TIMED) > profile.self_s / 2:
            return Advice(
                sentence=f"{_percent(between)} of the profiled run is outside the nodes. Node times "
                "cover the GPU kernel launches only, so GPU execution cannot be attributed to nodes."
            )
        return Advice(
            sentence=f"{_percent(between)} of the profiled run is overhead between nodes; the largest "
            f"operator type, {op_type}, takes {_percent(share)} of the time in nodes.",
            remedy="Try a larger batch, or fewer and larger operators. Then compare: a comparison runs "
            "without profiler overhead.",
        )
    largest = next(node for node in profile.nodes if node.op_type == op_type)
    head = f"{op_type} takes {_percent(share)} of the time in nodes"
    told = _node_advice(largest, profile, peak, is_imported)
    return replace(told, sentence=f"{head}; the largest, {largest.title}, {told.sentence}.")


def settings_first(said: Advice, spec: Mapping[str, Any], peaks: Sequence[Peak]) -> Advice:
    """Return the advice with settings below ONNX Runtime's default named first.

    These are the graph optimization level, and a thread count below the default if the limit of the largest
    node is significantly higher with the default.

    Args:
        said: advice from the profile.
        spec: spec of the profiled trial.
        peaks: peaks of its machine; empty: not measured.
    """
    session = spec.get("session") or {}
    level, first = session.get("graph_optimization_level"), []
    if level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"):
        first.append(f"Raise `graph_optimization_level` from `{level}` to `ORT_ENABLE_ALL`, the default.")
    threads = int(session.get("intra_op_num_threads") or 0)
    if (gain := _threads_speedup(said.bound, threads, peaks)) is not None:
        first.append(
            f"Leave `intra_op_num_threads` at the default instead of {threads}: "
            f"the peak of {said.bound} is {gain:.1f} times as high there."
        )
    return replace(said, remedy=" ".join([*first, said.remedy]).strip()) if said.sentence else said


def _threads_speedup(bound: Bound | None, threads: int, peaks: Sequence[Peak]) -> float | None:
    """Return the factor by which default threads raise the limiting peak; None: not significant."""
    own, default = peak_for(peaks, threads), peak_for(peaks, 0)
    if own is None or default is None or bound not in ("computing", "memory"):
        return None
    few, many = (one.operations if bound == "computing" else one.bytes for one in (own, default))
    if few.high is None or many.low is None or many.low <= few.high:
        return None
    return many.value / few.value


def _node_advice(node: NodeTime, profile: Profile, peak: Peak | None, is_imported: bool) -> Advice:
    """Return the advice on a node; the sentence has no full stop."""
    found = count_nodes(profile)[key_of(node)]
    point = _point(node, found, peak)
    takes = f"takes {_percent(node.share)} of it"
    if point is None:
        why = (
            _launch_only(node)
            or found.why
            or ("it only moves data" if found.operations == 0 else "its memory traffic is unknown")
        )
        return Advice(sentence=f"{takes}; its share of the peak is unknown: {why}")
    if point.roof is None:
        return Advice(sentence=f"{takes}; {_no_roof(point, peak, is_imported)}")
    if not point.is_clear:
        return Advice(
            sentence=f"{takes}, but the profiler overhead of 5 to 8 µs per call hides its share of the peak",
            remedy="Profile with a larger batch to reduce the share of the overhead.",
        )
    return _roof_advice(point)


def _launch_only(node: NodeTime) -> str:
    return "its time covers the GPU kernel launch only" if node.provider in HOST_TIMED else ""


def _no_roof(point: Point, peak: Peak | None, is_imported: bool) -> str:
    rate = f"it computes {rate_text(point.operations_per_s)}"
    if is_imported:
        return f"{rate}; the peaks of the profiled machine are unknown"
    if peak is None:
        return f"{rate}; the peaks of this machine with these threads are not measured yet"
    return f"{rate}; the measured peak is for float32 on the CPU and does not apply to it"


def _roof_advice(point: Point) -> Advice:
    reach = point.reach or 0.0
    least, most = point.reach_span
    if least > MAX_REACH and point.bound != "computing":
        return Advice(
            sentence=f"runs at {reach:.1f} times the memory bandwidth, so its data comes from a cache "
            "and it is not memory-bound"
        )
    if least > MAX_REACH:
        return Advice(
            sentence=f"runs at {reach:.1f} times the measured peak, so the machine was slower when the "
            "peak was measured",
            remedy="Measure the peaks again on an idle machine.",
        )
    span = "" if most - least < NARROW else f" ({_percent(least)} to {_percent(most)})"
    words = f"reaches {_percent(reach)}{span} of its roofline limit on this machine"
    if point.bound == "either":
        said = "its compute and memory limits are too close to say which one applies"
        return Advice(sentence=f"{words}; {said}")
    if least < NEAR <= most:
        return Advice(
            sentence=f"{words}: the peaks are too imprecise to say what limits it",
            remedy="Measure the peaks again on an idle machine.",
        )
    if most < NEAR:
        return Advice(
            sentence=f"{words}: its limit is {point.bound}, but it is far below it",
            remedy="Neither limit explains the time. Try other thread counts, a larger batch, or shapes "
            "that are multiples of 16.",
        )
    remedy = (
        "Reduce the computation: INT8 where the CPU has instructions for it, a smaller input, or fewer "
        "channels."
        if point.bound == "computing"
        else "Reduce the memory traffic: smaller weights (INT8, INT4), operator fusion, or a larger "
        "batch that reuses the weights."
    )
    return Advice(sentence=f"{words}: bound by {point.bound}", remedy=remedy, bound=point.bound)


def rate_text(per_s: float, unit: str = "operations") -> str:
    """Return a rate as text: "84.2 billion operations per second", "29,500 billion …", "12.1 GiB/s"."""
    if unit == "bytes":
        return f"{per_s / (1 << 30):.3g} GiB/s"
    return f"{float(f'{per_s / 1e9:.3g}'):,g} billion operations per second"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.095 else f"{share * 100:.1f} %"
