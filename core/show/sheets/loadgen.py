"""Sheet of a cross-check with LoadGen: its verdicts, latencies and rates, as LoadGen reports them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from core import wire
from core.evidence.load.loadgen_result import LABEL, LoadGenResult
from core.evidence.verdict import Color
from core.show.sheets import Fact, Note, Sheet
from core.show.table import Column, Table, Value, tabulate

ABOUT = (
    "A query's latency counts from its scheduled time (Server) or from its issue. LoadGen judges by its own "
    "rules. MLPerf's rules also prescribe durations, numbers of queries, models and data."
)


def loadgen_sheet(result: LoadGenResult) -> Sheet:
    """Return LoadGen's verdict in words, a row for each scenario, and why tests are invalid."""
    return Sheet(
        result["words"],
        [
            Fact("cross-check", LABEL),
            Fact("model", result["model"]),
            *_asked(result),
            table(result),
            *_reasons(result),
            *(Note(f"note: {text}") for text in dict.fromkeys(_notes(result))),
            Note(ABOUT),
        ],
    )


def table(result: LoadGenResult) -> Table:
    """Return a row for each test."""
    return tabulate(
        result["tests"],
        (Column("scenario", key="scenario", tells=True), lambda one: one["scenario"]),
        (Column("valid", key="valid"), lambda one: "yes" if one["valid"] else "no"),
        (Column("p50", "ms", key="p50_ms"), _latency("p50")),
        (Column("p90", "ms", key="p90_ms"), _latency("p90")),
        (Column("p99", "ms", key="p99_ms"), _latency("p99")),
        (Column("queries", "count", key="queries"), lambda one: one["queries"]),
        (Column("samples/s", "number", key="samples_per_s"), lambda one: one["samples_per_s"]),
        (Column("test (s)", "number", key="seconds"), lambda one: one["seconds"]),
    )


def _latency(name: str) -> Callable[[wire.LoadGenReply], Value]:
    """Return the cell of a percentile; Offline's latencies only tell when its one query came to them."""
    return lambda one: None if one["scenario"] == "Offline" else one["latency_s"][name]


def _asked(result: LoadGenResult) -> Iterator[Fact]:
    """Return rate and limit of the scenario Server."""
    for one in result["tests"]:
        if one["scenario"] == "Server":
            settings, over = one["settings"], one["over_limit"] or 0
            limit = f"{settings['target_latency_ns'] / 1e6:g} ms"
            percentile = 100 * settings["target_latency_percentile"]
            share = 100 * over / max(1, one["queries"])
            yield Fact("Server", f"{settings['target_qps']:g} queries/s, p{percentile:g} ≤ {limit}")
            color: Color | None = None if one["limit_met"] else "red"
            yield Fact("above the limit", f"{over:,} of {one['queries']:,} queries ({share:.2g} %)", color)


def _reasons(result: LoadGenResult) -> Iterator[Note]:
    for one in result["tests"]:
        for reason in one["reasons"]:
            yield Note(f"{one['scenario']} is invalid: {reason}", "orange")


def _notes(result: LoadGenResult) -> Iterator[str]:
    for one in result["tests"]:
        yield from one["notes"]
        if one["fallback"]:
            yield one["fallback_reason"]
