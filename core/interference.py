"""What disturbed a comparison: flags of its blocks, a summary, and the grade that follows.

Pure functions of counters; no clock, no I/O, and no latency of a candidate: a block is judged by what the
system says about it, never by how long it took. Two kinds of signals:

- *causes* name who took something away: another program, the hypervisor, the container's quota, another
  program on the GPU. Only they can reject a comparison.
- *symptoms* say that something was missing: CPU time, a core's speed. Some configurations cause their own
  (more threads than CPUs), so each is judged against what is usual for that contestant.

Thresholds without another source come from races on shared virtual machines beside a neighbour that was
started on purpose.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.contrast import DEFAULT_MARGIN, Contrast, contrast
from core.wire import Counters

Letter = Literal["A", "B", "C", "F"]

FLAGS = {
    "foreign_load": "other programs used the CPUs",
    "steal": "the hypervisor gave the CPUs to others",
    "throttled": "the container's CPU quota stopped it",
    "gpu_shared": "another program was on the GPU",
    "cpu_deficit": "it got less CPU time than usual",
    "wait": "its threads waited for a CPU",
    "switches": "its threads were interrupted",
    "pressure": "programs waited for a CPU",
    "slow_core": "the cores' speed was unusual",
    "frequency": "the clock was lower than usual",
    "major_faults": "it waited for the disk",
    "suspended": "the machine slept",
    "gpu_clock": "the GPU had slowed its clock",
}
CAUSES = frozenset({"foreign_load", "throttled", "gpu_shared"})  # steal has its own rule: it is never quite 0

# --- thresholds of a block ----------------------------------------------------------------------------------

CPU_DEFICIT = 0.97  # CPU time per second, relative to the contestant's own 90th percentile
WAIT_SHARE = 0.03  # of the CPU time it usually gets: the deficit's 3 %, seen from the run queue
SWITCHES_PER_S = 50.0  # involuntary, beyond its own: 5 in 100 ms
STEAL_SHARE = 0.01  # of the CPU time asked for
PRESSURE_SHARE = 0.10  # of the time, beyond what is usual beside this contestant
FOREIGN_CPUS = 0.10  # of one core
IDLE_CPUS = 1.0  # a whole CPU idle: the others took nothing from the contestant
CANARY_DEVIATION = 0.05  # of a window's median from the run's; one canary scatters by 10 % on a shared core
FREQUENCY_SHARE = 0.95  # of the median
GPU_CLOCK_SHARE = 0.75  # of the maximum: below, the block is discarded (nvbench does the same)
SUSPENDED_S = 0.010  # the two clocks that tell it are not read at the same instant; a nap lasts seconds

# --- thresholds of a run ------------------------------------------------------------------------------------

RUN_SHARE = 0.20  # of the blocks: more of them with the same flag mark the whole run
RUN_CANARY_SPREAD = 0.03  # robust spread of the canary over its median
RUN_STEAL_REJECTS = 0.10  # as much as a foreign load that counts
REJECTED_SHARE = 0.50  # of the blocks disturbed by a cause

# --- the counters' own coarseness ---------------------------------------------------------------------------

WINDOW_S = 0.5  # blocks of 20 ms are judged together where the counter moves in steps of 10 ms
TICK_S = 0.010  # of /proc/stat
SURE = 1.645  # one-sided 95 %: the load must exceed its threshold by more than the steps can explain

# --- grades -------------------------------------------------------------------------------------------------

HALF_WIDTHS: tuple[tuple[Letter, float], ...] = (("A", 0.01), ("B", 0.03), ("C", 0.10))  # of the A/A interval
REJECT_LOOKS = 5  # 1 - 0.05/5: a 99 % interval, or one honest comparison in twenty would be rejected
REJECT_EFFECT = 0.01  # an A/A difference below that misleads nobody


def discard_reason(counters: Counters) -> str:
    """Return why a block must not count, or nothing. By its counters alone, never by its latency."""
    if counters["suspended_s"] > SUSPENDED_S:
        return f"the machine slept for {counters['suspended_s']:.1f} s"
    return _slow_gpu(counters)


def _slow_gpu(counters: Counters) -> str:
    gpu = counters["gpu"] or {}
    clock, most = gpu.get("sm_clock_mhz"), gpu.get("max_sm_clock_mhz")
    if clock is None or most is None or clock >= GPU_CLOCK_SHARE * most:
        return ""
    return f"the GPU had slowed its clock to {clock:.0f} of {most:.0f} MHz"


def _foreign_on_gpu(counters: Counters) -> int:
    return int((counters["gpu"] or {}).get("foreign_processes", 0))


# --- flags of blocks ----------------------------------------------------------------------------------------


def flag_blocks(blocks: Sequence[Counters], contestants: Sequence[int], *, cpus: int) -> list[list[str]]:
    """Say of each block what disturbed it, by names of `FLAGS`.

    Args:
        blocks: counters of all blocks of a run, in the order in which they ran.
        contestants: who ran each block; what is usual differs between them.
        cpus: number of CPUs that `busy_s` and `steal_s` cover.
    """
    signals = [*_window_signals(blocks, contestants, cpus), *_block_signals(blocks, contestants)]
    return [[name for name, hits in signals if hits[index]] for index in range(len(blocks))]


def _block_signals(blocks: Sequence[Counters], contestants: Sequence[int]) -> list[tuple[str, list[bool]]]:
    """Signals that are exact within one block."""
    used = [_share(one["cpu_s"], one["wall_s"]) for one in blocks]
    waited = [_share(one["wait_s"], one["wall_s"]) for one in blocks]
    switched = [_share(one["involuntary_switches"], one["wall_s"]) for one in blocks]
    clock = [one["frequency_hz"] for one in blocks]
    usual_use = _usual(used, contestants, 0.9)
    usual_clock = _usual(clock, contestants, 0.5)
    no_limit = [1.0] * len(blocks)
    return [
        ("throttled", [bool(one["throttled_periods"]) for one in blocks]),
        ("gpu_shared", [_foreign_on_gpu(one) > 0 for one in blocks]),
        ("cpu_deficit", _below(used, usual_use, CPU_DEFICIT)),
        ("wait", _above(_excess(waited, contestants), usual_use, WAIT_SHARE)),
        ("switches", _above(_excess(switched, contestants), no_limit, SWITCHES_PER_S)),
        ("frequency", _below(clock, usual_clock, FREQUENCY_SHARE)),
        ("major_faults", [one["major_faults"] > 0 for one in blocks]),
        ("suspended", [one["suspended_s"] > SUSPENDED_S for one in blocks]),
        ("gpu_clock", [bool(_slow_gpu(one)) for one in blocks]),
    ]


def _window_signals(
    blocks: Sequence[Counters], contestants: Sequence[int], cpus: int
) -> list[tuple[str, list[bool]]]:
    """Signals of the whole machine, coarse or bursty: judged over windows of neighbouring blocks."""
    excess = _excess([_share(one["pressure_s"], one["wall_s"]) for one in blocks], contestants)
    canary_ns = statistics.median(one["canary_ns"] for one in blocks) if blocks else 0.0
    hits: dict[str, list[bool]] = {"foreign_load": [], "steal": [], "pressure": [], "slow_core": []}
    for window in windows(blocks):
        chosen = [blocks[index] for index in window]
        for name, hit in (
            ("foreign_load", _is_loaded(chosen, cpus)),
            ("steal", _is_stolen(chosen, cpus)),
            ("pressure", statistics.fmean(excess[index] or 0.0 for index in window) > PRESSURE_SHARE),
            ("slow_core", _is_off(statistics.median(one["canary_ns"] for one in chosen), canary_ns)),
        ):
            hits[name] += [hit] * len(window)
    return list(hits.items())


def _is_loaded(window: Sequence[Counters], cpus: int) -> bool:
    """Others used CPUs that the contestant could have used, by more than the counters' steps explain."""
    load, busy_s, wall_s = _foreign_cpus(window), _sum(window, "busy_s"), _sum(window, "wall_s")
    if load is None or busy_s is None or not wall_s:
        return False
    idle = cpus - (busy_s + (_sum(window, "steal_s") or 0.0)) / wall_s
    unsure = SURE * _coarseness(len(window), 2 * cpus) / wall_s  # mostly two fields of a CPU move
    return idle < IDLE_CPUS and load > FOREIGN_CPUS + unsure


def _is_stolen(window: Sequence[Counters], cpus: int) -> bool:
    stolen_s, busy_s = _sum(window, "steal_s"), _sum(window, "busy_s")
    if stolen_s is None or busy_s is None:
        return False
    return stolen_s > STEAL_SHARE * (stolen_s + busy_s) + SURE * _coarseness(len(window), cpus)


def _is_off(value: float, usual: float) -> bool:
    return abs(value - usual) > CANARY_DEVIATION * usual


def windows(blocks: Sequence[Counters]) -> list[list[int]]:
    """Cut the run into stretches of at least `WINDOW_S` of measured time; return indices of blocks."""
    if not blocks:
        return []
    found: list[list[int]] = [[]]
    filled_s = 0.0
    for index, one in enumerate(blocks):
        if filled_s >= WINDOW_S:
            found.append([])
            filled_s = 0.0
        found[-1].append(index)
        filled_s += one["wall_s"]
    if len(found) > 1 and filled_s < WINDOW_S:
        rest = found.pop()
        found[-1].extend(rest)
    return found


def _coarseness(blocks: int, counters: int) -> float:
    """Standard deviation, in seconds, of a sum of differences of counters that move in steps.

    The difference of two readings at random places of a step has the variance of the sum of two uniform
    errors, step**2 / 6; `blocks` times `counters` of them are added.
    """
    return TICK_S * math.sqrt(blocks * counters / 6)


def _usual(values: Sequence[float | None], contestants: Sequence[int], quantile: float) -> list[float | None]:
    """What is usual for the contestant of each block: a quantile of its own known values."""
    own: dict[int, list[float]] = defaultdict(list)
    for value, contestant in zip(values, contestants, strict=True):
        if value is not None:
            own[contestant].append(value)
    usual = {contestant: _quantile(known, quantile) for contestant, known in own.items()}
    return [usual.get(contestant) for contestant in contestants]


def _excess(values: Sequence[float | None], contestants: Sequence[int]) -> list[float | None]:
    """How far each value lies above the contestant's own 10th percentile: what it has undisturbed."""
    calm = _usual(values, contestants, 0.1)
    return [None if x is None or low is None else x - low for x, low in zip(values, calm, strict=True)]


def _above(values: Sequence[float | None], usual: Sequence[float | None], factor: float) -> list[bool]:
    pairs = zip(values, usual, strict=True)
    return [
        value is not None and typical is not None and value > factor * typical for value, typical in pairs
    ]


def _below(values: Sequence[float | None], usual: Sequence[float | None], factor: float) -> list[bool]:
    pairs = zip(values, usual, strict=True)
    return [
        value is not None and typical is not None and value < factor * typical for value, typical in pairs
    ]


def _quantile(values: Sequence[float], p: float) -> float:
    """Interpolated, so that the median of two is their middle."""
    ordered = sorted(values)
    place = p * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


def _sum(blocks: Sequence[Counters], name: str) -> float | None:
    """Sum of a counter over the blocks; None where no block knows it."""
    known = [value for one in blocks if (value := one[name]) is not None]  # type: ignore[literal-required]
    return math.fsum(known) if known else None


def _foreign_cpus(blocks: Sequence[Counters]) -> float | None:
    """CPUs that others used while these blocks ran; None where the system does not tell."""
    known = [one for one in blocks if one["busy_s"] is not None]
    if not known:
        return None
    others_s = (_sum(known, "busy_s") or 0.0) - (_sum(known, "cpu_s") or 0.0)
    return max(0.0, others_s) / math.fsum(one["wall_s"] for one in known)


def _steal_share(blocks: Sequence[Counters]) -> float | None:
    """Of the CPU time that was asked for, the share that the hypervisor kept back."""
    stolen_s, busy_s = _sum(blocks, "steal_s"), _sum(blocks, "busy_s")
    if stolen_s is None or busy_s is None or stolen_s + busy_s <= 0:
        return None
    return stolen_s / (stolen_s + busy_s)


# --- the run ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What disturbed a run as a whole. Shares are of its blocks unless noted; None: not readable here."""

    blocks: int
    flagged_share: float  # with any flag
    disturbed_share: float  # by a cause: see `CAUSES`
    shares: dict[str, float]  # flag -> share; flags that never came up are absent
    run_flags: list[str]  # what marks the whole run
    foreign_cpus: float | None  # CPUs that others used, on average
    neighbour_cpus: float | None  # the same in the blocks flagged `foreign_load`
    steal_share: float | None  # of the CPU time asked for
    pressure_share: float | None  # of the time
    throttled_periods: int | None
    throttled_s: float | None
    canary_spread: float | None  # robust standard deviation over the median
    foreign_gpu_processes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def summarize(blocks: Sequence[Counters], flags: Sequence[Sequence[str]]) -> Summary:
    """Sum up a run from the counters of its blocks and what `flag_blocks` said of them."""
    count = max(1, len(blocks))
    shares = {name: hits / count for name in FLAGS if (hits := sum(name in one for one in flags))}
    beside = [one for one, found in zip(blocks, flags, strict=True) if "foreign_load" in found]
    throttled, steal_share = _sum(blocks, "throttled_periods"), _steal_share(blocks)
    canary_spread = _canary_spread(blocks)
    foreign_gpu = max(map(_foreign_on_gpu, blocks), default=0)
    marks = {
        **{name: share > RUN_SHARE for name, share in shares.items()},
        "steal": (steal_share or 0.0) > STEAL_SHARE,
        "throttled": bool(throttled),
        "slow_core": (canary_spread or 0.0) > RUN_CANARY_SPREAD,
        "gpu_shared": foreign_gpu > 0,
    }
    return Summary(
        blocks=len(blocks),
        flagged_share=sum(map(bool, flags)) / count,
        disturbed_share=sum(not CAUSES.isdisjoint(one) for one in flags) / count,
        shares=shares,
        run_flags=[name for name in FLAGS if marks.get(name)],
        foreign_cpus=_foreign_cpus(blocks),
        neighbour_cpus=_foreign_cpus(beside),
        steal_share=steal_share,
        pressure_share=_share(_sum(blocks, "pressure_s"), _sum(blocks, "wall_s") or 0.0),
        throttled_periods=None if throttled is None else int(throttled),
        throttled_s=_sum(blocks, "throttled_s"),
        canary_spread=canary_spread,
        foreign_gpu_processes=foreign_gpu,
    )


def _canary_spread(blocks: Sequence[Counters]) -> float | None:
    """Spread of the canary by its median deviation: one interrupted canary says nothing of a core's speed."""
    times = [float(one["canary_ns"]) for one in blocks if one["canary_ns"] > 0]
    if len(times) < 2:
        return None
    middle = statistics.median(times)
    return 1.4826 * statistics.median(abs(time - middle) for time in times) / middle


# --- the grade ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """How far a comparison can be trusted. F: rejected; kept, but never ranked."""

    grade: Letter
    reason: str  # a sentence with its numbers
    remedy: str  # an imperative sentence; empty for A


def grade(self_tests: Sequence[Sequence[float]], summary: Summary, *, frozen: bool) -> Grade:
    """Grade a comparison by its A/A self-tests and by what disturbed its blocks.

    A: the A/A interval is within 1 % and nothing marks the run. B: within 3 %. C: within 10 %, good for a
    ranking only. F: wider, or two copies of the same configuration differ, or a cause disturbed more than
    half of the blocks.

    Args:
        self_tests: paired log-ratios of the same configuration against itself, one list per self-test.
        summary: of the blocks of the comparison.
        frozen: parked workers were stopped while another measured.
    """
    pooled = [ratio for one in self_tests for ratio in one]
    result = contrast(pooled, margin=DEFAULT_MARGIN) if pooled else None
    letter = _letter(result)
    if taken := _taken(summary):
        return taken
    if result is None or letter is None:
        return Grade(
            grade="C",
            reason="No self-test was long enough to show how far two equal configurations differ here.",
            remedy="Run the comparison to its end, or give it a larger budget.",
        )
    if biased := _biased(pooled):
        return biased
    if letter == "A" and (summary.run_flags or not frozen):
        letter = "B"
    return Grade(
        grade=letter,
        reason=f"{_width(result)} {_disturbances(summary, frozen=frozen)}",
        remedy="" if letter == "A" else _remedy(summary, frozen=frozen),
    )


def _letter(result: Contrast | None) -> Letter | None:
    if result is None or result.half_width is None:
        return None
    return next((letter for letter, most in HALF_WIDTHS if result.half_width <= most), "F")


def _taken(summary: Summary) -> Grade | None:
    """F where somebody took something away for most of the time."""
    cause = max(sorted(CAUSES), key=lambda name: summary.shares.get(name, 0.0))
    during = f"during {_percent(summary.shares.get(cause, 0.0))} of the blocks"
    reasons = {
        "foreign_load": f"A neighbour used {summary.neighbour_cpus or 0.0:.1f} cores {during}.",
        "throttled": f"The container's CPU quota stopped the measurement {during}.",
        "gpu_shared": f"Other programs ({summary.foreign_gpu_processes}) were on the GPU {during}.",
    }
    if summary.disturbed_share > REJECTED_SHARE:
        return Grade(grade="F", reason=reasons[cause], remedy=_REMEDIES[cause])
    if (summary.steal_share or 0.0) > RUN_STEAL_REJECTS:
        reason = (
            f"The hypervisor gave {_percent(summary.steal_share or 0.0)} of the CPU time to other guests."
        )
        return Grade(grade="F", reason=reason, remedy=_REMEDIES["steal"])
    return None


def _biased(pooled: Sequence[float]) -> Grade | None:
    """F where two copies of one configuration differ by more than chance explains."""
    strict = contrast(pooled, looks=REJECT_LOOKS, margin=DEFAULT_MARGIN)
    low, high = strict.ratio_low, strict.ratio_high
    if low is None or high is None or low <= 1 <= high or abs(strict.ratio - 1) <= REJECT_EFFECT:
        return None
    apart = _percent(abs(strict.ratio - 1), 1)
    reason = (
        f"In the self-test two copies of the same configuration differed by {apart} (99 % interval "
        f"of their ratio: {low:.3f} to {high:.3f})."
    )
    return Grade(grade="F", reason=reason, remedy=_QUIETER)


def _width(result: Contrast) -> str:
    return (
        f"In the self-test ({result.rounds} rounds) two copies of the same configuration came out at "
        f"{result.ratio:.3f}×, ±{_percent(result.half_width or 0.0, 1)}."
    )


def _disturbances(summary: Summary, *, frozen: bool) -> str:
    marks = [_mark(name, summary) for name in summary.run_flags]
    marks += [] if frozen else ["workers that waited could not be stopped"]
    return f"Disturbed: {'; '.join(marks)}." if marks else "Nothing disturbed the run."


def _mark(name: str, summary: Summary) -> str:
    share = summary.shares.get(name)
    return f"{FLAGS[name]} ({_percent(share)} of the blocks)" if share else FLAGS[name]


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


_QUIETER = "Measure again when the machine is quieter."
_REMEDIES = {
    "foreign_load": "Stop the other programs, or measure when the machine is idle.",
    "steal": "Use a machine of your own, or a guest with dedicated CPUs.",
    "throttled": "Raise the container's CPU quota, or use no more threads than it allows.",
    "gpu_shared": "Stop the other programs on the GPU.",
    "frequency": "Let the machine cool down, plug it in, and set the clock's governor to performance.",
    "major_faults": "Free memory, so that nothing has to be read from the disk.",
}


def _remedy(summary: Summary, *, frozen: bool) -> str:
    """What to do about the first mark that has a remedy of its own."""
    known = next((_REMEDIES[name] for name in summary.run_flags if name in _REMEDIES), None)
    return known or (_QUIETER if frozen else "Measure on Linux or macOS, where workers can be stopped.")
