"""Peaks of a machine, and how near to them an operator comes: the roofline, and what it lets one say.

The roof over an operator with so many operations per byte is the smaller of two: the rate of a product of
matrices, and that intensity times the rate of a copy. Both are medians of what was measured on this machine,
with 95 % intervals. Nothing is said of an operator whose time is mostly the profiler's own, whose work is not
counted, or where the intervals of the peaks leave open which roof is the lower one. Pure.

Source: Williams, Waterman, Patterson (2009), "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.evidence.operation_counts import Work, key_of, works
from core.evidence.statistics import Estimate, percentile_estimate
from core.wire.profile import HOST_TIMED, NodeTime, Profile

NOISE_PER_CALL_S = 8e-6  # what ORT's profiler adds to one call of a node, at most (5 to 8 µs)
MOST_NOISE = 0.25  # of a node's time: beyond, its rate says more of the profiler than of the node
NEAR = 0.5  # of the roof
NARROW = 0.1  # an interval of a reach that needs no words
UNSURE = 1.25  # the ridge may be off by so much where the runs are too few for an interval
BEYOND = 1.1  # times the roof: past what two moments of one machine explain

Bound = Literal["computing", "memory", "either"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """What a machine reaches with some threads, per second: median, interval and the best of the runs."""

    threads: int
    operations: Estimate  # float32 products and sums
    bytes: Estimate  # read and written
    best_operations: float
    best_bytes: float
    runs: tuple[int, int]  # products, copies

    @property
    def ridge(self) -> Estimate:
        """Operations per byte from which on computing is the lower roof."""
        o, b = self.operations, self.bytes
        low = None if o.low is None or b.high is None else o.low / b.high
        high = None if o.high is None or b.low is None else o.high / b.low
        return Estimate(value=o.value / b.value, low=low, high=high)

    def roof(self, intensity: float) -> Estimate:
        """Operations per second that the machine allows at so many operations per byte."""
        o, b = self.operations, self.bytes
        lows, highs = (o.low, b.low), (o.high, b.high)
        return Estimate(
            value=min(o.value, intensity * b.value),
            low=None if lows[0] is None or lows[1] is None else min(lows[0], intensity * lows[1]),
            high=None if highs[0] is None or highs[1] is None else min(highs[0], intensity * highs[1]),
        )


def peaks_of(measured: Mapping[str, Any]) -> list[Peak]:
    """Turn the raw times of the job `peaks` into rates, fewest threads first."""
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
    """Return the peak with as many threads as a session had; None: it was not measured with so many.

    Args:
        peaks: of the machine.
        threads: `intra_op_num_threads` of the session; 0: ONNX Runtime's own choice, the most of them.
    """
    if threads == 0:
        return peaks[-1] if peaks else None
    return next((one for one in peaks if one.threads == threads), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One node under the roofs, at the rate of its median run: a stall of the machine must not slow it.

    The profiler's noise is in that time.
    """

    node: NodeTime
    work: Work
    operations_per_s: float
    intensity: float
    roof: Estimate | None  # operations per second; None: no peak is known, or none for such operations
    bound: Bound | None  # which roof is the lower one at its intensity

    @property
    def reach(self) -> float | None:
        """Share of the roof above it, 0.43; beyond 1 its data came out of a cache."""
        return None if self.roof is None else self.operations_per_s / self.roof.value

    @property
    def reach_span(self) -> tuple[float, float]:
        """The least and the most that it may be, as far as the peaks are known."""
        assert self.roof is not None
        low = self.roof.low if self.roof.low is not None else self.roof.value / UNSURE
        high = self.roof.high if self.roof.high is not None else self.roof.value * UNSURE
        return self.operations_per_s / high, self.operations_per_s / low

    @property
    def is_clear(self) -> bool:
        """Whether its time is its own, and not mostly what the profiler adds."""
        return NOISE_PER_CALL_S * self.node.calls_per_run <= MOST_NOISE * self.node.median_s


def points(profile: Profile, peak: Peak | None) -> list[Point]:
    """Every node whose time is that of computing, and whose operations and bytes are counted and not zero.

    The longest comes first.
    """
    found = works(profile)
    made = (_point(node, found[key_of(node)], peak) for node in profile.nodes)
    return [one for one in made if one is not None]


def _point(node: NodeTime, work: Work, peak: Peak | None) -> Point | None:
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


def _is_float32(node: NodeTime, work: Work) -> bool:
    """Whether the peak, which is of float32 on the CPU, is a roof over it."""
    return (
        not work.is_integer
        and node.provider == "CPUExecutionProvider"
        and node.inputs[0].dtype == "float32"
        and node.op_type != "MatMulNBits"
    )


def _bound(peak: Peak, intensity: float) -> Bound:
    ridge = peak.ridge
    low = ridge.low if ridge.low is not None else ridge.value / UNSURE
    high = ridge.high if ridge.high is not None else ridge.value * UNSURE
    return "computing" if intensity > high else "memory" if intensity < low else "either"


# --- what one can say ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One sentence on a profile, and what to try; empty where the evidence carries nothing."""

    sentence: str
    remedy: str = ""
    bound: Bound | None = None  # what surely binds the largest node; None: not known, or nothing does


def advice(profile: Profile, peak: Peak | None, *, is_imported: bool = False) -> Advice:
    """Say where the time goes, how near the largest node of it comes to the roof, and what that suggests.

    Args:
        profile: with the times to speak of.
        peak: of this machine with the session's threads; None: not measured.
        is_imported: made elsewhere, so that no peak of this machine speaks of it.
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
    told = _told(largest, profile, peak, is_imported)
    return replace(told, sentence=f"{head}; the largest, {largest.title}, {told.sentence}.")


def settings_first(said: Advice, spec: Mapping[str, Any], peaks: Sequence[Peak]) -> Advice:
    """Return the advice that names settings below ONNX Runtime's default before anything else.

    These are the graph optimization level; and fewer threads than ONNX Runtime starts, where what binds the
    largest node is surely higher with those.

    Args:
        said: what the profile suggests.
        spec: of the trial that was profiled.
        peaks: of its machine; empty: not measured.
    """
    session = spec.get("session") or {}
    level, first = session.get("graph_optimization_level"), []
    if level in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"):
        first.append(f"Raise `graph_optimization_level` from `{level}` to `ORT_ENABLE_ALL`, the default.")
    threads = int(session.get("intra_op_num_threads") or 0)
    if (gain := _threads_gain(said.bound, threads, peaks)) is not None:
        first.append(
            f"Leave `intra_op_num_threads` at the default instead of {threads}: "
            f"the peak of {said.bound} is {gain:.1f} times as high there."
        )
    return replace(said, remedy=" ".join([*first, said.remedy]).strip()) if said.sentence else said


def _threads_gain(bound: Bound | None, threads: int, peaks: Sequence[Peak]) -> float | None:
    """How much higher the peak that binds is with ONNX Runtime's own threads; None: not surely, not known."""
    own, default = peak_for(peaks, threads), peak_for(peaks, 0)
    if own is None or default is None or bound not in ("computing", "memory"):
        return None
    few, many = (one.operations if bound == "computing" else one.bytes for one in (own, default))
    if few.high is None or many.low is None or many.low <= few.high:
        return None
    return many.value / few.value


def _told(node: NodeTime, profile: Profile, peak: Peak | None, is_imported: bool) -> Advice:
    """What is said of a node, without a full stop."""
    found = works(profile)[key_of(node)]
    point = _point(node, found, peak)
    takes = f"takes {_percent(node.share)} of it"
    if point is None:
        why = (
            _started_only(node)
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
    return _reached(point)


def _started_only(node: NodeTime) -> str:
    return "its time covers the GPU kernel launch only" if node.provider in HOST_TIMED else ""


def _no_roof(point: Point, peak: Peak | None, is_imported: bool) -> str:
    rate = f"it computes {rate_words(point.operations_per_s)}"
    if is_imported:
        return f"{rate}; the peaks of the profiled machine are unknown"
    if peak is None:
        return f"{rate}; the peaks of this machine with these threads are not measured yet"
    return f"{rate}; the measured peak is for float32 on the CPU and does not apply to it"


def _reached(point: Point) -> Advice:
    reach = point.reach or 0.0
    least, most = point.reach_span
    if least > BEYOND and point.bound != "computing":
        return Advice(
            sentence=f"runs at {reach:.1f} times the memory bandwidth, so its data comes from a cache "
            "and it is not memory-bound"
        )
    if least > BEYOND:
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


def rate_words(per_s: float, unit: str = "operations") -> str:
    """Return a rate in words: "84.2 billion operations per second", "29,500 billion …", "12.1 GiB/s"."""
    if unit == "bytes":
        return f"{per_s / (1 << 30):.3g} GiB/s"
    return f"{float(f'{per_s / 1e9:.3g}'):,g} billion operations per second"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.095 else f"{share * 100:.1f} %"
