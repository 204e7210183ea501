"""Background load from counters: flags per block, a summary, and the validity of the A/A control.

Does a verdict stand? The A/A test of the race says so: two processes of one configuration, raced like the
others. Is this the machine that the user means? The counters say so: a verdict found beside a neighbour
stands, for a busy machine.

Pure functions of counters; no clock, no I/O, and no latency of a candidate: a block is judged by what the
system says about it, never by how long it took. Two kinds of signals:

- *causes* name who took something away: another program, the hypervisor, the container's quota, another
  program on the GPU. They make a machine busy, which is told wherever its numbers stand.
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
from typing import Protocol, cast

from core.evidence.contrast import Contrast
from core.evidence.result_types import Busy, Interference, Presence
from core.evidence.statistics import t_quantile
from core.evidence.verdict import Grade, Verdict
from core.wire import Counters

FLAGS = {
    "foreign_load": "other programs used the CPUs",
    "steal": "the hypervisor gave the CPUs to other guests",
    "throttled": "the container's CPU quota throttled it",
    "gpu_shared": "another program used the GPU",
    "cpu_deficit": "it got less CPU time than usual",
    "wait": "its threads waited for a CPU",
    "switches": "its threads were preempted",
    "pressure": "processes waited for a CPU",
    "slow_core": "the core speed was unusual",
    "frequency": "the clock frequency was lower than usual",
    "major_faults": "it waited for the disk",
    "suspended": "the machine was suspended",
    "gpu_clock": "the GPU clock was throttled",
}
CAUSES = frozenset({"foreign_load", "throttled", "gpu_shared"})  # steal has its own rule: it is never quite 0

# --- thresholds of a block ----------------------------------------------------------------------------------

CPU_DEFICIT = 0.97  # CPU time per second, relative to the contestant's own 90th percentile
WAIT_SHARE = 0.03  # of the CPU time it usually gets: the deficit's 3 %, seen from the run queue
SWITCHES_PER_S = 50.0  # involuntary, beyond its own: 5 in 100 ms
STEAL_SHARE = 0.01  # of the CPU time asked for
PRESSURE_SHARE = 0.10  # of the time, beyond what is usual beside this contestant
TICK_S = 0.010  # of /proc/stat
SURE = 1.645  # one-sided 95 %: the load must exceed its threshold by more than the steps can explain
FOREIGN_CPUS = 0.10  # of one core
IDLE_CPUS = 1.0  # a whole CPU idle: the others took nothing from the contestant
CANARY_DEVIATION = 0.05  # of a window's median from the run's; one canary scatters by 10 % on a shared core
FREQUENCY_SHARE = 0.95  # of the median
GPU_CLOCK_SHARE = 0.75  # of the maximum: below, the block is discarded (nvbench does the same)
SUSPENDED_S = 0.010  # the two clocks that tell it are not read at the same instant; a nap lasts seconds

# --- thresholds of a run ------------------------------------------------------------------------------------

RUN_SHARE = 0.20  # of the blocks: more of them with the same flag mark the whole run
RUN_CANARY_SPREAD = 0.03  # robust spread of the canary over its median
BUSY_STEAL = 0.05  # of the CPU time asked for; less is what shared machines always lose

# --- the counters' own coarseness ---------------------------------------------------------------------------

WINDOW_S = 0.5  # blocks of 20 ms are judged together where the counter moves in steps of 10 ms

# --- grades -------------------------------------------------------------------------------------------------

REJECT_ALPHA = 0.01  # at 5 % one honest comparison in twenty would be doubted
REJECT_EFFECT = 0.01  # an A/A difference below that misleads nobody
SEVERAL = 3.0  # times what two equal configurations differ by: an effect that stands all the same


def discard_reason(counters: Counters) -> str:
    """Return why a block must not count, or nothing. By its counters alone, never by its latency."""
    if counters["suspended_s"] > SUSPENDED_S:
        return f"the machine was suspended for {counters['suspended_s']:.1f} s"
    return _slow_gpu(counters)


def _slow_gpu(counters: Counters) -> str:
    gpu = counters["gpu"] or {}
    clock, most = gpu.get("sm_clock_mhz"), gpu.get("max_sm_clock_mhz")
    if clock is None or most is None or clock >= GPU_CLOCK_SHARE * most:
        return ""
    return f"the GPU clock was throttled to {clock:.0f} of {most:.0f} MHz"


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

    def to_dict(self) -> Interference:
        """Plain JSON data."""
        return cast(Interference, asdict(self))


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


# --- is this the machine that the user means? ---------------------------------------------------------------


class Programs(Protocol):
    """Who else used the CPUs, by name: `neighbours.Neighbours`."""

    def words(self, cores: float) -> str: ...  # noqa: D102
    def to_dict(self) -> Presence: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The machine is in another state than it was in earlier races, without a counter that shows it."""

    factor: float  # of what the default usually takes
    races: int

    @property
    def words(self) -> str:
        """What stands beside the numbers."""
        times = (
            f"{self.factor:.1f} times as long"
            if self.factor > 1
            else f"only {_percent(self.factor)} of the time"
        )
        return (
            f"at an unusual machine speed: ONNX Runtime's default took {times} as in {self.races} earlier "
            "comparisons on this machine"
        )


def moved(own_s: float | None, earlier_s: Sequence[float]) -> Moved | None:
    """Return how far a machine is from its usual state, by the one configuration that races every time.

    A state of a host (two virtual CPUs on one core, another clock) can last for seconds and change which
    number of threads is best: a verdict of such seconds is true of them only.

    Args:
        own_s: p50 of the default in this race; None: it did not run.
        earlier_s: the same in earlier races of this machine.

    Returns:
        None within a quarter of what is usual, where a quarter of the earlier races were like this one, and
        where there are fewer than three.
    """
    if own_s is None or own_s <= 0 or len(earlier_s) < LEAST_EARLIER:
        return None
    factor = own_s / statistics.median(earlier_s)
    if max(factor, 1 / factor) <= STATE_FACTOR:
        return None
    alike = sum(abs(math.log(own_s / one)) <= math.log(ALIKE) for one in earlier_s)
    if alike >= ALIKE_SHARE * len(earlier_s):
        return None
    return Moved(factor=factor, races=len(earlier_s))


LEAST_EARLIER = 3
STATE_FACTOR = 1.25
OTHER_STATE = "other_state"
ALIKE, ALIKE_SHARE = 1.1, 0.25  # within a tenth; of the earlier races


def busy(summary: Summary, neighbours: Programs | None, state: Moved | None = None) -> Busy | None:
    """Return what must stand wherever numbers of this run stand; None on a quiet machine.

    Ratios that were found beside a neighbour are those of a busy machine, where other thread counts may be
    best; times, throughput and CPU time are no better than on a quiet one.

    Args:
        summary: of all blocks.
        neighbours: who ran meanwhile; None: not known.
        state: how far the machine is from its usual state; None: it is in it, or that is not known.
    """
    reasons = [name for name in FLAGS if name in CAUSES and summary.shares.get(name, 0.0) > RUN_SHARE]
    if (summary.steal_share or 0.0) > BUSY_STEAL:
        reasons.append("steal")
    if not reasons and state is None:
        return None
    loaded = "foreign_load" in reasons
    cores = (summary.neighbour_cpus or 0.0) if loaded else 0.0
    stolen, throttled = summary.steal_share or 0.0, summary.shares.get("throttled", 0.0)
    said = {
        "foreign_load": neighbours.words(cores) if neighbours else f"other processes used {cores:.1f} cores",
        "steal": f"the hypervisor gave {_percent(stolen)} of the CPU time to other guests",
        "throttled": f"the container's CPU quota throttled it during {_percent(throttled)} of the blocks",
        "gpu_shared": f"other programs ({summary.foreign_gpu_processes}) used the GPU",
    }
    words = ["under background load: " + "; ".join(said[name] for name in reasons)] if reasons else []
    words += [state.words] if state is not None else []
    return {
        "words": "; ".join(words),
        "cores": cores,
        "programs": neighbours.to_dict()["programs"] if neighbours and loaded else [],
        "steal_share": summary.steal_share,
        "reasons": [*reasons, *([OTHER_STATE] if state is not None else [])],
    }


# --- does a verdict stand, and how fine is it? --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """How fine a comparison is. F: no verdict of it stands; its numbers are kept, but never ranked."""

    grade: Grade
    reason: str  # a sentence with its numbers
    remedy: str  # an imperative sentence; empty where nothing must be done


def stands(found: Contrast, aa: Contrast | None) -> str:
    """Say why a verdict must not be believed; empty: it stands.

    Its interval knows what differs between processes. What it cannot know is a fault of the measurement
    itself; two copies of one configuration that surely differ, by more than 1 %, show one. Then only an
    effect that is three times as large stands, and "no difference" only where it would still hold if the
    fault were added.
    """
    bias = _bias(aa)
    if not bias or aa is None or found.ratio_low is None or found.ratio_high is None:
        return ""
    bounds = [abs(math.log(found.ratio_low)), abs(math.log(found.ratio_high))]
    if found.verdict == Verdict.EQUIVALENT:
        doubtful = max(bounds) + bias > math.log1p(found.margin)
    else:
        doubtful = abs(math.log(found.ratio)) < SEVERAL * bias or min(bounds) <= bias
    if found.verdict == Verdict.UNDECIDED or not doubtful:
        return ""
    return (
        "In the A/A test, two copies of the same configuration differed significantly, by "
        f"{_percent(math.expm1(bias), 1)}. A difference of {_percent(abs(found.ratio - 1), 1)} is too "
        "small beside that to be reported."
    )


def biased(aa: Contrast | None) -> bool:
    """Whether two copies of one configuration surely differ, by more than 1 %."""
    return _bias(aa) > 0


def _bias(aa: Contrast | None) -> float:
    """How far the two copies surely differ, as a log ratio; 0 where chance may have done it."""
    if aa is None or aa.standard_error is None or aa.df is None:
        return 0.0
    apart = abs(math.log(aa.ratio))
    sure = apart > t_quantile(1 - REJECT_ALPHA / 2, aa.df) * aa.standard_error
    return apart if sure and apart > REJECT_EFFECT else 0.0


def grade(
    aa: Contrast | None,
    half_widths: Sequence[float | None],
    summary: Summary,
    *,
    rejected: bool,
    frozen: bool,
) -> Graded:
    """Grade a comparison by how fine its answer is: by the widest interval of its verdicts.

    A: within 1 %. B: within 3 %, or parked workers could not be stopped. C: within 10 %. D: wider, or not
    known. F: the A/A test does not let any verdict stand. What made the machine busy is told, but decides
    nothing here: see `busy`.

    Args:
        aa: the anchor against its twin; None: there was no A/A test.
        half_widths: of the verdicts; empty: the A/A test itself was the question.
        summary: of the blocks of the comparison.
        rejected: none of its verdicts stands, see `stands`.
        frozen: parked workers were stopped while another measured.
    """
    asked = [*half_widths] or [None if aa is None else aa.half_width]
    known = [one for one in asked if one is not None]
    letter = Grade.of(max(known) if len(known) == len(asked) else None, frozen=frozen)
    if rejected:
        return Graded(grade=Grade.F, reason=_width(aa), remedy=_QUIETER)
    return Graded(
        grade=letter,
        reason=f"{_answer(half_widths)}{_width(aa)} {_disturbances(summary, aa, frozen=frozen)}",
        remedy="" if letter == Grade.A else _remedy(summary, frozen=frozen),
    )


def _answer(half_widths: Sequence[float | None]) -> str:
    if not half_widths:
        return ""
    known = [one for one in half_widths if one is not None]
    if len(known) < len(half_widths):
        return "An interval is missing because there were too few rounds. "
    which = "The 95 % interval" if len(known) == 1 else "The widest 95 % interval"
    return f"{which} is ±{_percent(max(known), 1)}. "


def _width(aa: Contrast | None) -> str:
    if aa is None or aa.half_width is None:
        return "The A/A test was too short to estimate the noise of this machine."
    launches = f"{aa.generations} launch{'es' * (aa.generations != 1)}"
    return (
        f"In the A/A test ({launches}, {aa.rounds} rounds) the ratio of two copies of the same "
        f"configuration was {aa.ratio:.3f}×, ±{_percent(aa.half_width or 0.0, 1)}."
    )


def _disturbances(summary: Summary, aa: Contrast | None, *, frozen: bool) -> str:
    """What the counters showed, in a sentence that does not contradict what the A/A control found."""
    marks = [_mark(name, summary) for name in summary.run_flags]
    marks += [] if frozen else ["idle worker processes could not be paused"]
    if not marks:
        return "No disturbance was found."
    told = "; ".join(marks)
    passed = aa is not None and aa.half_width is not None and not biased(aa)
    return f"{told[:1].upper()}{told[1:]}{'; the A/A result is unaffected' if passed else ''}."


def _mark(name: str, summary: Summary) -> str:
    share, what = summary.shares.get(name), FLAGS[name]
    if not share:
        return what
    blocks = f"{_percent(share)} of the blocks"
    return f"{blocks} had less CPU time than usual" if name == "cpu_deficit" else f"in {blocks} {what}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


_QUIETER = "Measure again on an idle machine."
_REMEDIES = {
    "foreign_load": "Wait for an idle machine before it starts, or measure longer.",
    "steal": "Use a physical machine, or a virtual machine with dedicated CPUs.",
    "throttled": "Raise the container's CPU quota, or use fewer threads.",
    "gpu_shared": "Stop the other programs on the GPU.",
    "frequency": "Let the machine cool down, connect it to power, and set the CPU frequency governor to "
    "performance.",
    "major_faults": "Free memory, so that no pages are read from disk.",
}


def _remedy(summary: Summary, *, frozen: bool) -> str:
    """What to do about the first mark that has a remedy of its own."""
    known = next((_REMEDIES[name] for name in summary.run_flags if name in _REMEDIES), None)
    return known or ("Measure longer for a narrower interval." if frozen else _UNFROZEN)


_UNFROZEN = "Measure on Linux or macOS, where worker processes can be paused."
