"""A sweep: sentences about its points, and their table. Pure.

Sentences give the deciding metric of a point, samples per second, with its interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.evidence.statistics import MIN_BLOCKS
from core.run.best_point import BEST, INCONCLUSIVE, LEVEL, SweepRanking, has_few_processes
from core.run.sweep import Measured
from core.show.sheets.columns import (
    MEMORY_HELP,
    OUTPUTS_HELP,
    fallback_words,
    latency_kind,
    other_metrics,
    ran_on,
)
from core.show.table import Column, Table, Value, tabulate
from core.show.verdict import in_words
from core.spec.axes import point_name
from core.spec.settings import value_words
from core.wire.output_check import OUTPUTS_DIFFER, WARNING
from core.wire.units import DASH, brief, interval, significant, span, span_ms

NAMED = 3  # most points in one sentence; the table lists all
MACHINE_HELP = "Other programs that used the CPUs. Empty: none found, or not recorded."


# --- sentences ----------------------------------------------------------------------------------------------


def rate(point: Measured) -> str:
    """Return samples per second with the 95 % interval."""
    if point.throughput_per_s is None:
        return DASH
    low, high = point.throughput_interval()
    known = interval(low, high) if low or high else "no interval"
    return f"{significant(point.throughput_per_s, 4)} samples/s ({known})"


def head(ranking: SweepRanking) -> str:
    """Return the criterion of the best point."""
    if ranking.line_s is not None:
        return f"Best under the limit of {brief(ranking.line_s * 1e3)} ms"
    return "Highest measured throughput" if ranking.inconclusive else "Highest throughput"


def others(ranking: SweepRanking) -> str:
    """Return the points that are inconclusive or level with the best, and unranked points; empty: none."""
    margin = f"{100 * ranking.margin:g} %"
    parts = (
        (ranking.inconclusive, "Inconclusive against {}: 95 % intervals overlap or are unknown."),
        (ranking.level, "Within ±" + margin + " of it, with 95 %: {}."),
        (ranking.unranked, "Not ranked because the comparison was rejected or cancelled: {}."),
    )
    return " ".join(text.format(_listed(points)) for points, text in parts if points)


def few_processes(points: Iterable[Measured]) -> str:
    """Say which points have too few launches for an interval over launches; empty: none."""
    few = [one for one in points if one.ranked and one.same is None and has_few_processes(one)]
    if not few:
        return ""
    least = min(one.processes or 0 for one in few)
    return (
        f"Intervals are {'unknown' if least < 2 else 'wide'}: {least} launch{'es' * (least != 1)} of "
        f"{_listed(few)}, {MIN_BLOCKS} are needed. Measure longer."
    )


def sentence(points: Sequence[Measured], ranking: SweepRanking) -> str:
    """Return the whole result as plain text."""
    if not any(one.latency for one in points):
        return "No point has a result."
    if ranking.best is not None:
        said = f"{head(ranking)}: {point_name(ranking.best.values)}: {rate(ranking.best)}."
    elif ranking.line_s is not None and any(one.ranked for one in points):
        said = f"No point is at or under the limit of {brief(ranking.line_s * 1e3)} ms."
    else:
        said = "The points are not ranked."
    return " ".join(part for part in (said, others(ranking), few_processes(points)) if part)


def _listed(points: Sequence[Measured]) -> str:
    names = [point_name(one.values) for one in points[:NAMED]]
    more = [f"{len(points) - NAMED} more"] if len(points) > NAMED else []
    return "; ".join([*names, *more])


# --- the table of points ------------------------------------------------------------------------------------


def points(
    found: Sequence[Measured], ranking: SweepRanking | None = None, busy: Mapping[str, str] | None = None
) -> Table:
    """Return one row per point of a sweep, in the order of its values.

    Args:
        found: the points.
        ranking: their order, and which are over the latency limit.
        busy: ID of a comparison -> background load.
    """
    names = list(found[0].values) if found else []

    def value(name: str) -> tuple[Column, Callable[[Measured], Value]]:
        held = [one.values[name] for one in found]
        numbers = all(isinstance(one, int) and not isinstance(one, bool) for one in held)
        if numbers:
            return Column(name, "count", key=name, tells=True), lambda one: _number(one.values[name])
        return Column(name, key=name, tells=True), lambda one: value_words(one.values[name])

    def latency(name: str) -> Callable[[Measured], Value]:
        return lambda one: (one.latency or {}).get(name)

    def stands(names: Callable[[SweepRanking], frozenset[str]]) -> Callable[[Measured], Value]:
        return lambda one: ranking is not None and ranking.is_in(one, names(ranking))

    def place(one: Measured) -> str:
        return "" if ranking is None else ranking.place(one)

    return tabulate(
        found,
        *map(value, names),
        *([] if ranking is None else [(Column("best", help=BEST_HELP), lambda one: _MARKS[place(one)])]),
        (Column("place", key="place", on="none"), place),
        (Column("p50", "ms", key="p50_ms"), latency("p50_s")),
        (Column("95 % interval", right=True, on="terminal"), _p50_interval),
        (Column("p50 low", "ms", key="p50_ms_low", on="browser", more=True), latency("p50_s_low")),
        (Column("p50 high", "ms", key="p50_ms_high", on="browser", more=True), latency("p50_s_high")),
        (Column("p95", "ms", key="p95_ms"), _p95),
        (Column("p95 low", "ms", key="p95_ms_low", on="none"), latency("p95_s_low")),
        (Column("p95 high", "ms", key="p95_ms_high", on="none"), latency("p95_s_high")),
        (Column("p99", "ms", key="p99_ms", on="browser", more=True), latency("p99_s")),
        *latency_kind(_result_of_a_point, found),
        (Column("mean", "ms", key="mean_ms", on="browser", more=True), latency("mean_s")),
        (Column("std", "ms", key="std_ms", on="browser", more=True), latency("std_s")),
        (Column("samples/s", "number", key="rows_per_s"), lambda one: one.throughput_per_s),
        (Column("samples/s, 95 %", right=True, on="terminal"), _rate_interval),
        (
            Column("samples/s low", "number", key="rows_per_s_low", on="browser", more=True),
            lambda one: one.throughput_interval()[0],
        ),
        (
            Column("samples/s high", "number", key="rows_per_s_high", on="browser", more=True),
            lambda one: one.throughput_interval()[1],
        ),
        (
            Column("per sample, versus ORT default", key="against_default", on="browser"),
            _against_default,
        ),
        (Column("over the limit", key="over_line", on="none"), stands(lambda one: one.over)),
        (Column("front", key="front", on="none"), stands(lambda one: one.front)),
        (
            Column("peak memory", "bytes", key="peak_rss_bytes", on="browser", help=MEMORY_HELP),
            lambda one: one.result.get("peak_rss_bytes"),
        ),
        (Column("runs", "count", on="browser", more=True), lambda one: one.result.get("runs")),
        (Column("ran on", on="browser", more=not any(one.fallback for one in found)), _ran_on),
        (
            Column("machine", on="browser", narrow=True, help=MACHINE_HELP),
            lambda one: (busy or {}).get(one.comparison, ""),
        ),
        (
            Column("outputs", on="browser", help=OUTPUTS_HELP),
            lambda one: f"{WARNING} {OUTPUTS_DIFFER}" if one.breach else "",
        ),
        (Column("state", on="browser"), lambda one: "reused" if one.reused else one.state.lower()),
        (Column("same as", key="same_as", on="browser", help=SAME_HELP), _same_as),
        (Column("trial", "id", key="trial", more=True), lambda one: one.trial),
        (Column("state", key="state", on="none"), lambda one: one.state),
        (Column("measured before", key="measured_before", on="none"), lambda one: one.reused),
        (Column("fallback", key="fallback", on="none"), lambda one: one.fallback),
        (Column("outputs", key="outputs_differ", on="none"), lambda one: bool(one.breach)),
        (Column("error", key="error", on="browser"), lambda one: one.error),
        *other_metrics(_result_of_a_point, but=("throughput", "peak_rss")),
        (Column("remark", on="terminal"), lambda one: _remarks_on_a_point(one, ranking)),
        drop=("p95", "trial", "95 % interval"),
        solid=("95 % interval", "samples/s, 95 %"),
    )


BEST_HELP = (
    "By samples/s: ★ best within the latency limit, = ★ equivalent to the best, ? ★ inconclusive, "
    "because the 95 % intervals overlap."
)
SAME_HELP = "The point with these numbers. A setting has no effect here, so both are the same configuration."
_MARKS = {BEST: "★", LEVEL: "= ★", INCONCLUSIVE: "? ★", "": ""}


def _number(value: object) -> Value:
    return value if isinstance(value, int) else None


def _result_of_a_point(one: Measured) -> Mapping[str, Any]:
    return one.result


def _same_as(one: Measured) -> str:
    return "" if one.same is None else point_name(one.same)


def _p50_interval(one: Measured) -> str | None:
    known = one.latency
    if known is None:
        return None
    low, high = known.get("p50_s_low"), known.get("p50_s_high")
    return "unknown: too few runs" if low is None and high is None else span_ms(low, high, unit="")


def _rate_interval(one: Measured) -> str | None:
    low, high = one.throughput_interval()
    return None if one.throughput_per_s is None else span(low, high) if low or high else "not known"


def _p95(one: Measured) -> Value:
    if one.latency is None or (p95 := one.latency.get("p95_s")) is not None:
        return None if one.latency is None else p95
    return f"needs {(one.latency.get('needs_runs') or {}).get('p95_s', 'more')} runs"


def _against_default(one: Measured) -> str:
    if one.is_default:
        return "the default itself"
    return in_words(one.contrast) if one.contrast else ""


def _ran_on(one: Measured) -> str:
    return "" if one.latency is None else ran_on(one.result)


def _remarks_on_a_point(one: Measured, ranking: SweepRanking | None) -> str:
    remarks = fallback_words(one.result.get("effective_providers") if one.fallback else None)
    if ranking is not None:
        remarks += ["over the limit"] if ranking.is_in(one, ranking.over) else []
    remarks += [OUTPUTS_DIFFER] if one.breach else []
    remarks += ["measured before"] if one.reused else []
    remarks += [f"the same as {_same_as(one)}"] if one.same is not None else []
    if one.cut_short:
        remarks.append("cancelled: rounds measured until then")
    elif one.latency is None:
        remarks += [one.state, one.error]
    return "; ".join(filter(None, remarks))
