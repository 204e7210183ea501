"""Sheet and table of a machine's peak compute rate and memory bandwidth. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.roofline import Peak, peaks_of, rate_text
from core.evidence.statistics import Estimate
from core.show.format import minute
from core.show.sheets import Fact, Note, Sheet
from core.show.table import Column, Table, tabulate
from core.show.words import counted
from core.wire.units import significant, size, span

NOT_MEASURED = "not measured; run `machine --peaks` (a few seconds)"
ABOUT = (
    "Float32 matrix product in ONNX Runtime, and a memory copy larger than the caches (bytes read plus "
    "written). Medians with 95 % intervals over runs, measured once."
)
_G, _GIB = 1e9, float(1 << 30)


def peaks(measured: Mapping[str, Any]) -> Sheet:
    """Return the sheet of the measured peaks, with their uncertainty."""
    found = peaks_of(measured)
    return Sheet(
        "Peaks of this machine",
        [
            *peak_facts(measured),
            table(found),
            *(Note(f"note: {text}", "orange") for text in peak_warnings(found)),
        ],
    )


def headline(found: Sequence[Peak]) -> str:
    """Return the highest rates of a machine."""
    compute, copies = (
        max(found, key=lambda one: one.operations.value),
        max(found, key=lambda one: one.bytes.value),
    )
    return f"{rate_text(compute.operations.value)}, {rate_text(copies.bytes.value, 'bytes')} copied"


def peak_facts(measured: Mapping[str, Any]) -> list[Fact]:
    """Return when the peaks were measured, and the size of the cache."""
    cache = measured.get("cache_bytes")
    return [
        Fact("measured", minute(measured["at"])),
        Fact("cache", f"{size(cache)}, the largest of a core" if cache else "its size is not known"),
    ]


def table(found: Sequence[Peak]) -> Table:
    """Return a row for each number of threads."""
    return tabulate(
        found,
        (Column("threads", "count", tells=True), lambda one: one.threads),
        (Column("computes (Gop/s)", right=True), lambda one: _number(one.operations)),
        (Column("95 % interval", right=True), lambda one: _interval(one.operations)),
        (Column("copies (GiB/s)", right=True), lambda one: _number(one.bytes, _GIB)),
        (Column("95 %", right=True), lambda one: _interval(one.bytes, _GIB)),
        (Column("ridge (op/byte)", right=True), lambda one: significant(one.ridge.value, 3)),
        (Column("runs", right=True), lambda one: f"{one.runs[0]} and {one.runs[1]}"),
    )


def _number(one: Estimate, unit: float = _G) -> str:
    return significant(one.value / unit, 3)


def _interval(one: Estimate, unit: float = _G) -> str:
    low, high = (None if end is None else end / unit for end in (one.low, one.high))
    return span(low, high, digits=3)


def peak_warnings(found: Sequence[Peak]) -> list[str]:
    """Return warnings on the peaks; empty: none."""
    told = []
    if len(found) > 1 and found[-1].operations.value < 1.2 * found[0].operations.value:
        told.append(
            f"{counted(found[-1].threads, 'thread')} were hardly faster than {found[0].threads}: other "
            "programs used the CPUs, or the threads share one core. Measure again on an idle machine."
        )
    for one in found:
        if one.best_operations > 1.25 * one.operations.value:
            told.append(
                f"With {counted(one.threads, 'thread')} the fastest matrix product was "
                f"{one.best_operations / one.operations.value:.1f} times as fast as the median: the "
                "measurement was disturbed. Measure again on an idle machine."
            )
    return told
