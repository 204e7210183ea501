"""Sheets of imported results, always labelled as imported, with their unknown facts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.roofline import advice
from core.evidence.statistics import percentile_estimate
from core.show import format
from core.show.format import minute
from core.show.sheets import Fact, Note, Sheet, trials
from core.show.table import Column, Table, tabulate
from core.wire.profile import Profile
from core.wire.units import DASH, ms, span_ms

UNKNOWN = (
    "Measured outside ORTune: machine, time, settings and background load are unknown. It is shown for "
    "reference and gets no verdict."
)
_PERCENTILES = ("p50", "p90", "p95", "p99")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLatency:
    """One latency of an imported result: as printed, or from its raw latencies with an interval."""

    value_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    computed: bool = False  # from raw latencies; else as printed in the file


def imported_latency(summary: Mapping[str, Any], name: str) -> ImportedLatency:
    """Return a percentile of an imported result.

    Args:
        summary: `wire.Summary`.
        name: "p50".
    """
    samples = summary["samples_s"]
    estimate = percentile_estimate(samples, float(f"0.{name[1:]}")) if samples else None
    if estimate is not None:
        return ImportedLatency(
            value_s=estimate.value, low_s=estimate.low, high_s=estimate.high, computed=True
        )
    return ImportedLatency(value_s=summary["percentiles_s"].get(name))


def basis_text(summary: Mapping[str, Any]) -> str:
    """Return how its numbers were obtained."""
    if summary["samples_s"]:
        return (
            f"{len(summary['samples_s']):,} raw latencies of one process. The intervals exclude "
            "variance between processes and days."
        )
    return "Only a summary without raw latencies, so there are no intervals."


def table(
    entries: Sequence[tuple[str, Mapping[str, Any]]], here: Sequence[tuple[str, Mapping[str, Any]]] = ()
) -> Table:
    """Return a row for each imported result, and for each result of this machine.

    Args:
        entries: labels with the import mark, and `wire.Summary`.
        here: labels and `Latency` of trials.
    """
    rows = [_imported_row(label, found) for label, found in entries]
    rows += [_measured_row(label, latency) for label, latency in here]
    return tabulate(
        rows,
        (Column("result", tells=True), lambda one: one.label),
        (Column("p50", "ms"), lambda one: one.times["p50"].value_s),
        (Column("p50, 95 % (ms)", right=True), lambda one: _interval(one.times["p50"])),
        (Column("p90", "ms"), lambda one: one.times["p90"].value_s),
        (Column("p99", "ms"), lambda one: one.times["p99"].value_s),
        (Column("mean", "ms"), lambda one: one.mean_s),
        (Column("runs", "count"), lambda one: one.runs),
        (Column("source"), lambda one: one.rests_on),
        drop=("p90", "mean", "source"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    label: str
    times: Mapping[str, ImportedLatency]
    mean_s: float | None
    runs: int | None
    rests_on: str


def _imported_row(label: str, found: Mapping[str, Any]) -> _Row:
    return _Row(
        label=label,
        times={name: imported_latency(found, name) for name in _PERCENTILES},
        mean_s=found["mean_s"],
        runs=found["runs"],
        rests_on="raw latencies of one process" if found["samples_s"] else "summary only",
    )


def _measured_row(label: str, latency: Mapping[str, Any]) -> _Row:
    times = {
        name: ImportedLatency(
            value_s=latency.get(f"{name}_s"),
            low_s=latency.get(f"{name}_s_low"),
            high_s=latency.get(f"{name}_s_high"),
            computed=True,
        )
        for name in _PERCENTILES
    }
    return _Row(label=label, times=times, mean_s=latency.get("mean_s"), runs=None, rests_on="measured here")


def _interval(one: ImportedLatency) -> str:
    return DASH if one.low_s is None and one.high_s is None else span_ms(one.low_s, one.high_s, "")


def summary(label: str, found: Mapping[str, Any], *, at: float) -> Sheet:
    """Return the sheet of an imported result."""
    facts = [
        Fact(name, f"{ms(one.value_s)}{_sure(one)}")
        for name in _PERCENTILES
        if (one := imported_latency(found, name)).value_s is not None
    ]
    created = found["session_creation_s"]
    return Sheet(
        label,
        [
            Fact("IMPORTED", UNKNOWN, "orange"),
            Fact("format", "onnxruntime_perf_test"),
            *([Fact("model", found["model"])] if found["model"] else []),
            *facts,
            *([Fact("mean", ms(found["mean_s"]))] if found["mean_s"] is not None else []),
            *([Fact("runs", f"{found['runs']:,}")] if found["runs"] else []),
            *([Fact("session", f"created in {ms(created)}")] if created is not None else []),
            Fact("precision", basis_text(found)),
            *(Note(f"note: {text}") for text in found["notes"]),
            Fact("came", minute(at)),
        ],
    )


def _sure(one: ImportedLatency) -> str:
    if one.low_s is None and one.high_s is None:
        return "" if one.computed else ", as stated in the file"
    return f", {format.interval_ms(one.low_s, one.high_s)}"


def profiled(label: str, profile: Profile, *, top: int, format_: str, at: float) -> Sheet:
    """Return the sheet of an imported profile, without the peaks of this machine."""
    said = advice(profile, None, is_imported=True)
    hidden = len(profile.nodes) - top
    return Sheet(
        label,
        [
            Fact("IMPORTED", UNKNOWN, "orange"),
            *trials.advice_facts(said),
            Fact("format", format_),
            Fact("profiled", trials.runs_words(profile)),
            Fact("time per run", trials.time_words(profile)),
            *trials.truncated(profile),
            trials.providers(profile),
            trials.operators(profile, most=top),
            trials.nodes(profile, most=top),
            *trials.hidden_nodes(hidden),
            Fact("came", minute(at)),
        ],
    )
