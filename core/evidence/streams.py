"""The speed of a block: the median run, or throughput where a comparison has several streams.

Every interval, verdict, rank and stopping rule uses one number for each block, in seconds per run. With one
caller in every configuration it is the median latency. As soon as one configuration has several streams it is
the inverse of throughput for all of them: the common window over the runs completed in it. A median of one
side beside a mean of the other would not be comparable. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.evidence.speedup_interval import trimmed_estimate

if TYPE_CHECKING:
    from core import wire
    from core.evidence.record import Block
    from core.evidence.result_types import StreamFacts, TrialResult


def seconds_per_run(block: Block, *, by_throughput: bool) -> float:
    """Return the speed of a block in seconds per run.

    Args:
        block: with at least one run.
        by_throughput: a configuration of the comparison has several streams.
    """
    if not by_throughput:
        return statistics.median(block.latencies_s)
    return window_s(block) / completed(block)


def window_s(block: Block) -> float:
    """Return the time in which all streams ran; of one caller without a window, the time of its runs."""
    return math.fsum(block.latencies_s) if block.window_s is None else block.window_s


def completed(block: Block) -> float:
    """Return the runs completed in the window, those that cross its edges in part."""
    return math.fsum(block.stream_completed) if block.stream_completed else float(len(block.latencies_s))


def stored_seconds_per_run(block: Mapping[str, Any]) -> float:
    """Return the speed of a stored block, by the statistic of its comparison, in seconds per run."""
    found: float | None = block.get("throughput_run_s")
    return float(block["median_s"]) if found is None else found


def throughput_numbers(blocks: Sequence[Block], rows: int) -> TrialResult:
    """Return samples per second over the common windows, with the 95 % interval for new processes.

    The value is that of a typical process, as for the mean latency; a single process has no interval.

    Args:
        blocks: of one configuration.
        rows: samples of a run.
    """
    by_process: dict[Hashable, list[Block]] = {}
    for one in blocks:
        by_process.setdefault((one.generation, one.copy), []).append(one)
    found = trimmed_estimate([_seconds_per_run(own) for own in by_process.values()])
    return {
        "throughput_per_s": rows / found.value,
        "throughput_per_s_low": rows / found.high if found.high else None,
        "throughput_per_s_high": rows / found.low if found.low else None,
    }


def _seconds_per_run(blocks: Sequence[Block]) -> float:
    return math.fsum(map(window_s, blocks)) / math.fsum(map(completed, blocks))


def stream_facts(blocks: Sequence[Block], load: wire.LoadReply) -> StreamFacts:
    """Return the facts of several streams: the rate of each, their fairness and their CPU use.

    Args:
        blocks: of one configuration with several streams.
        load: reply to its load.
    """
    rows = load["batch_size"]
    threads = load.get("stream_threads", [])
    spent_s = math.fsum(map(window_s, blocks))
    rates = [
        rows * math.fsum(own) / spent_s for own in zip(*(one.stream_completed for one in blocks), strict=True)
    ]
    return {
        "count": len(rates),
        "type": "processes" if threads else "threads",
        "threads": threads,
        "rates_per_s": rates,
        "fairness": min(rates) / max(rates),
        "cpus_used": math.fsum(one.counters["cpu_s"] for one in blocks)
        / math.fsum(one.counters["wall_s"] for one in blocks),
    }


def stream_count(result: Mapping[str, Any] | None) -> int:
    """Return the number of streams of a result; 1 for one caller, and for results of earlier versions."""
    return int(((result or {}).get("streams") or {}).get("count", 1))


def latency_words(result: Mapping[str, Any] | None) -> str:
    """Return what the latencies of a result are called.

    With several callers in a closed loop a latency is the service time beside the other callers. It is no
    time that a user waits, because no request waits for its turn.
    """
    count = stream_count(result)
    return "latency" if count == 1 else f"service latency under {count} callers"


def p50_words(result: Mapping[str, Any] | None) -> str:
    """Return "p50", or with several callers "p50 service latency under 2 callers"."""
    return "p50" if stream_count(result) == 1 else f"p50 {latency_words(result)}"


def latency_title(results: Iterable[Mapping[str, Any]]) -> str:
    """Return what the latencies of several results are called together, for the title of an axis."""
    counts = sorted({stream_count(one) for one in results})
    if not counts or counts[-1] == 1:
        return "Latency"
    if counts[0] == counts[-1]:
        return f"Service latency under {counts[0]} callers"
    return f"Service latency under {counts[0]} to {counts[-1]} callers"


def throughput_interval(result: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the bounds of `throughput_per_s`: its own, or those of the mean latency; None: unknown."""
    if "throughput_per_s_low" in result:
        return result["throughput_per_s_low"], result["throughput_per_s_high"]
    rows, latency = result.get("batch_size"), result.get("latency") or {}
    low, high = latency.get("mean_s_low"), latency.get("mean_s_high")
    if not rows:
        return None, None
    return (rows / high if high else None), (rows / low if low else None)
