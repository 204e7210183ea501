"""Background load from counters: flags per block, a summary of a run, and whether the machine was busy.

A verdict found under background load is valid, but for a busy machine; only the A/A test decides whether a
verdict is valid (`quality.invalid_reason`).

Pure functions of counters; no clock, no I/O. A block is judged by the counters of the system, never by its
latency. There are two kinds of signals:

- *causes* name what took resources away: another program, the hypervisor, the container's quota, another
  program on the GPU. They make a machine busy, and every display of its numbers says so.
- *symptoms* show missing resources: CPU time, a core's speed. Some configurations cause their own (more
  threads than CPUs), so each is judged against the usual value of that configuration.

Thresholds without another source come from comparisons on shared virtual machines under artificial
background load.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.evidence.result_types import Busy, Interference, Presence
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
    "suspended": "the machine or ORTune was suspended",
    "gpu_clock": "the GPU clock was throttled",
}
CAUSES = frozenset({"foreign_load", "throttled", "gpu_shared"})  # steal has its own rule: it is rarely 0

# --- thresholds of a block ----------------------------------------------------------------------------------

CPU_DEFICIT = 0.97  # CPU time per second, relative to the configuration's own 90th percentile
WAIT_SHARE = 0.03  # waiting time over the configuration's usual CPU time; matches the 3 % of CPU_DEFICIT
SWITCHES_PER_S = 50.0  # involuntary, beyond the configuration's own: 5 in 100 ms
STEAL_SHARE = 0.01  # of the requested CPU time
PRESSURE_SHARE = 0.10  # of the time, beyond the usual value of this configuration
TICK_S = 0.010  # of /proc/stat
Z_ONE_SIDED = (
    1.645  # one-sided 95 %: the load must exceed its threshold by more than the counter steps explain
)
FOREIGN_CPUS = 0.10  # of one core
IDLE_CPUS = 1.0  # with a whole CPU idle, other processes took nothing from the configuration
CANARY_DEVIATION = 0.05  # of a window's median from the run's; one canary varies by 10 % on a shared core
FREQUENCY_SHARE = 0.95  # of the median
GPU_CLOCK_SHARE = 0.75  # of the maximum; below, the block is discarded (nvbench does the same)
SUSPENDED_S = 0.010  # the two clocks behind it are not read at the same instant; a suspension lasts seconds

# --- thresholds of a run ------------------------------------------------------------------------------------

RUN_SHARE = 0.20  # of the blocks: a flag on more of them applies to the whole run
RUN_CANARY_SPREAD = 0.03  # robust spread of the canary over its median
BUSY_STEAL = 0.05  # of the requested CPU time; shared machines always lose less than that

# --- resolution of the counters -----------------------------------------------------------------------------

WINDOW_S = 0.5  # blocks of 20 ms are judged together, because counters move in steps of 10 ms

# --- grades -------------------------------------------------------------------------------------------------


def discard_reason(counters: Counters) -> str:
    """Return the reason to discard a block, by its counters alone, never by its latency; empty: keep it."""
    if counters["suspended_s"] > SUSPENDED_S:
        return f"the machine or ORTune was suspended for {counters['suspended_s']:.1f} s"
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


def flag_blocks(blocks: Sequence[Counters], configurations: Sequence[int], *, cpus: int) -> list[list[str]]:
    """Return the flags of each block, as names of `FLAGS`.

    Args:
        blocks: counters of all blocks of a run, in run order.
        configurations: configuration of each block; usual values differ between configurations.
        cpus: number of CPUs that `busy_s` and `steal_s` cover.
    """
    signals = [*_window_signals(blocks, configurations, cpus), *_block_signals(blocks, configurations)]
    return [[name for name, hits in signals if hits[index]] for index in range(len(blocks))]


def _block_signals(blocks: Sequence[Counters], configurations: Sequence[int]) -> list[tuple[str, list[bool]]]:
    """Return the signals that are exact within one block."""
    used = [_share(one["cpu_s"], one["wall_s"]) for one in blocks]
    waited = [_share(one["wait_s"], one["wall_s"]) for one in blocks]
    switched = [_share(one["involuntary_switches"], one["wall_s"]) for one in blocks]
    clock = [one["frequency_hz"] for one in blocks]
    usual_use = _usual(used, configurations, 0.9)
    usual_clock = _usual(clock, configurations, 0.5)
    no_limit = [1.0] * len(blocks)
    return [
        ("throttled", [bool(one["throttled_periods"]) for one in blocks]),
        ("gpu_shared", [_foreign_on_gpu(one) > 0 for one in blocks]),
        ("cpu_deficit", _below(used, usual_use, CPU_DEFICIT)),
        ("wait", _above(_excess(waited, configurations), usual_use, WAIT_SHARE)),
        ("switches", _above(_excess(switched, configurations), no_limit, SWITCHES_PER_S)),
        ("frequency", _below(clock, usual_clock, FREQUENCY_SHARE)),
        ("major_faults", [one["major_faults"] > 0 for one in blocks]),
        ("suspended", [one["suspended_s"] > SUSPENDED_S for one in blocks]),
        ("gpu_clock", [bool(_slow_gpu(one)) for one in blocks]),
    ]


def _window_signals(
    blocks: Sequence[Counters], configurations: Sequence[int], cpus: int
) -> list[tuple[str, list[bool]]]:
    """Return signals of the whole machine, coarse or bursty, judged over windows of consecutive blocks."""
    excess = _excess([_share(one["pressure_s"], one["wall_s"]) for one in blocks], configurations)
    canary_ns = statistics.median(one["canary_ns"] for one in blocks) if blocks else 0.0
    hits: dict[str, list[bool]] = {"foreign_load": [], "steal": [], "pressure": [], "slow_core": []}
    for window in windows(blocks):
        chosen = [blocks[index] for index in window]
        for name, hit in (
            ("foreign_load", _is_loaded(chosen, cpus)),
            ("steal", _is_stolen(chosen, cpus)),
            ("pressure", statistics.fmean(excess[index] or 0.0 for index in window) > PRESSURE_SHARE),
            ("slow_core", _is_unusual(statistics.median(one["canary_ns"] for one in chosen), canary_ns)),
        ):
            hits[name] += [hit] * len(window)
    return list(hits.items())


def _is_loaded(window: Sequence[Counters], cpus: int) -> bool:
    """Whether other processes used CPUs that the comparison could have used, beyond the resolution."""
    load, busy_s, wall_s = _foreign_cpus(window), _sum(window, "busy_s"), _sum(window, "wall_s")
    if load is None or busy_s is None or not wall_s:
        return False
    idle = cpus - (busy_s + (_sum(window, "steal_s") or 0.0)) / wall_s
    unsure = Z_ONE_SIDED * _resolution_s(len(window), 2 * cpus) / wall_s  # usually two fields per CPU change
    return idle < IDLE_CPUS and load > FOREIGN_CPUS + unsure


def _is_stolen(window: Sequence[Counters], cpus: int) -> bool:
    stolen_s, busy_s = _sum(window, "steal_s"), _sum(window, "busy_s")
    if stolen_s is None or busy_s is None:
        return False
    return stolen_s > STEAL_SHARE * (stolen_s + busy_s) + Z_ONE_SIDED * _resolution_s(len(window), cpus)


def _is_unusual(value: float, usual: float) -> bool:
    return abs(value - usual) > CANARY_DEVIATION * usual


def windows(blocks: Sequence[Counters]) -> list[list[int]]:
    """Split the run into windows of at least `WINDOW_S` of measured time; return indices of blocks."""
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


def _resolution_s(blocks: int, counters: int) -> float:
    """Return the standard deviation, in seconds, of a sum of differences of counters that move in steps.

    The difference of two readings at random positions in a step has the variance of two uniform errors,
    step**2 / 6; `blocks` times `counters` such differences are summed.
    """
    return TICK_S * math.sqrt(blocks * counters / 6)


def _usual(
    values: Sequence[float | None], configurations: Sequence[int], quantile: float
) -> list[float | None]:
    """Return the usual value of each block's configuration: a quantile of its known values."""
    own: dict[int, list[float]] = defaultdict(list)
    for value, configuration in zip(values, configurations, strict=True):
        if value is not None:
            own[configuration].append(value)
    usual = {configuration: _quantile(known, quantile) for configuration, known in own.items()}
    return [usual.get(configuration) for configuration in configurations]


def _excess(values: Sequence[float | None], configurations: Sequence[int]) -> list[float | None]:
    """Return each value minus the configuration's 10th percentile, its value without disturbance."""
    calm = _usual(values, configurations, 0.1)
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
    """Return the interpolated quantile, so that the median of two values is their mean."""
    ordered = sorted(values)
    place = p * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


def _sum(blocks: Sequence[Counters], name: str) -> float | None:
    """Return the sum of a counter over the blocks; None where no block has it."""
    known = [value for one in blocks if (value := one[name]) is not None]  # type: ignore[literal-required]
    return math.fsum(known) if known else None


def _foreign_cpus(blocks: Sequence[Counters]) -> float | None:
    """Return the CPUs used by other processes during these blocks; None: not readable on this system."""
    known = [one for one in blocks if one["busy_s"] is not None]
    if not known:
        return None
    others_s = (_sum(known, "busy_s") or 0.0) - (_sum(known, "cpu_s") or 0.0)
    return max(0.0, others_s) / math.fsum(one["wall_s"] for one in known)


def _steal_share(blocks: Sequence[Counters]) -> float | None:
    """Return the share of the requested CPU time that the hypervisor withheld."""
    stolen_s, busy_s = _sum(blocks, "steal_s"), _sum(blocks, "busy_s")
    if stolen_s is None or busy_s is None or stolen_s + busy_s <= 0:
        return None
    return stolen_s / (stolen_s + busy_s)


# --- the run ------------------------------------------------------------------------------------------------


def summarize(blocks: Sequence[Counters], flags: Sequence[Sequence[str]]) -> Interference:
    """Summarize a run from the counters of its blocks and their flags (`flag_blocks`)."""
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
    return Interference(
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
    """Return the spread of the canary by its median deviation, which ignores single interrupted canaries."""
    times = [float(one["canary_ns"]) for one in blocks if one["canary_ns"] > 0]
    if len(times) < 2:
        return None
    middle = statistics.median(times)
    return 1.4826 * statistics.median(abs(time - middle) for time in times) / middle


# --- state of the machine -----------------------------------------------------------------------------------


class Programs(Protocol):
    """Other processes that used the CPUs, by name; implemented by `OtherProcesses`."""

    def words(self, cores: float) -> str: ...  # noqa: D102
    def to_dict(self) -> Presence: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusualSpeed:
    """The machine's speed differs from earlier comparisons, without a counter that shows the cause."""

    factor: float  # latency of the default over its usual latency
    comparisons: int

    @property
    def words(self) -> str:
        """Text to display with the numbers."""
        times = (
            f"{self.factor:.1f} times as long"
            if self.factor > 1
            else f"only {percent(self.factor)} of the time"
        )
        return (
            f"at an unusual machine speed: ONNX Runtime's default took {times} as in {self.comparisons} "
            "earlier comparisons on this machine"
        )


def unusual_speed(own_s: float | None, earlier_s: Sequence[float]) -> UnusualSpeed | None:
    """Return how far the machine's speed is from usual, by the ORT default, which every comparison measures.

    A state of a host (two virtual CPUs on one core, another clock) can last for seconds and change the best
    number of threads. A verdict from that time is valid for that state only.

    Args:
        own_s: p50 of the default in this comparison; None: it did not run.
        earlier_s: the same in earlier comparisons on this machine.

    Returns:
        None if the p50 is within a factor of 1.25 of the usual one, if a quarter of the earlier comparisons
        were similar to this one, or if there are fewer than three.
    """
    if own_s is None or own_s <= 0 or len(earlier_s) < MIN_EARLIER:
        return None
    factor = own_s / statistics.median(earlier_s)
    if max(factor, 1 / factor) <= STATE_FACTOR:
        return None
    alike = sum(abs(math.log(own_s / one)) <= math.log(SIMILAR_FACTOR) for one in earlier_s)
    if alike >= SIMILAR_SHARE * len(earlier_s):
        return None
    return UnusualSpeed(factor=factor, comparisons=len(earlier_s))


MIN_EARLIER = 3
STATE_FACTOR = 1.25
OTHER_STATE = "other_state"
SIMILAR_FACTOR, SIMILAR_SHARE = 1.1, 0.25  # similar: within 10 %; required share of the earlier comparisons


def busy(
    interference: Interference, other_processes: Programs | None, state: UnusualSpeed | None = None
) -> Busy | None:
    """Return the note to display with all numbers of a run under background load; None on an idle machine.

    Ratios measured under background load apply to a busy machine, where other thread counts may be best.
    Times, throughput and CPU time are no better than on an idle machine.

    Args:
        interference: of all blocks.
        other_processes: other processes that ran meanwhile; None: not known.
        state: unusual state of the machine; None: usual, or not known.
    """
    reasons = [name for name in FLAGS if name in CAUSES and interference["shares"].get(name, 0.0) > RUN_SHARE]
    if (interference["steal_share"] or 0.0) > BUSY_STEAL:
        reasons.append("steal")
    if not reasons and state is None:
        return None
    loaded = "foreign_load" in reasons
    cores = (interference["neighbour_cpus"] or 0.0) if loaded else 0.0
    stolen, throttled = interference["steal_share"] or 0.0, interference["shares"].get("throttled", 0.0)
    said = {
        "foreign_load": other_processes.words(cores)
        if other_processes
        else f"other processes used {cores:.1f} cores",
        "steal": f"the hypervisor gave {percent(stolen)} of the CPU time to other guests",
        "throttled": f"the container's CPU quota throttled it during {percent(throttled)} of the blocks",
        "gpu_shared": f"other programs ({interference['foreign_gpu_processes']}) used the GPU",
    }
    words = ["under background load: " + "; ".join(said[name] for name in reasons)] if reasons else []
    words += [state.words] if state is not None else []
    return {
        "words": "; ".join(words),
        "cores": cores,
        "programs": other_processes.to_dict()["programs"] if other_processes and loaded else [],
        "steal_share": interference["steal_share"],
        "reasons": [*reasons, *([OTHER_STATE] if state is not None else [])],
    }


def percent(share: float, digits: int = 0) -> str:
    """Return a share of 1 as "12 %"."""
    return f"{100 * share:.{digits}f} %"
