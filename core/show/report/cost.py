"""Computes the cost of a million inferences from measured throughput and a price per hour. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.show.report import Price, Section
from core.show.sheets import Note, Part
from core.show.table import Column, tabulate
from core.wire.units import DASH, significant

MILLION = 1e6
HOUR_S = 3600.0
ASSUMES = (
    "An inference is one sample. Assumed is one session under constant load, without parallel sessions, "
    "idle time, data preparation, network or start-up."
)

Named = tuple[str, Mapping[str, Any]]  # label and result of a configuration


def per_million(rows_per_s: float | None, price: Price) -> float | None:
    """Return the cost of a million samples in the price's currency; None: the throughput is unknown."""
    return price.per_hour / HOUR_S * MILLION / rows_per_s if rows_per_s else None


def interval(result: Mapping[str, Any], price: Price) -> tuple[float | None, float | None]:
    """Return the 95 % interval of `per_million`, from that of the mean latency; None: an open side.

    A longer run costs more, so the bounds keep their order.
    """
    rows, latency = result.get("batch_size"), result.get("latency") or {}
    low, high = latency.get("mean_s_low"), latency.get("mean_s_high")
    if not rows:
        return None, None
    return (
        per_million(rows / low, price) if low else None,
        per_million(rows / high, price) if high else None,
    )


def section(found: Sequence[Named], price: Price) -> Section | None:
    """Return the costs of several configurations; None: no throughput is known."""
    known = [(name, result) for name, result in found if result.get("throughput_per_s")]
    if not known:
        return None
    table = tabulate(
        known,
        (Column("configuration", tells=True), lambda one: one[0]),
        (Column("batch", "count"), lambda one: one[1].get("batch_size")),
        (Column("samples/s", "number"), lambda one: one[1]["throughput_per_s"]),
        (
            Column(f"{price.currency} per million", right=True),
            lambda one: _money(per_million(one[1]["throughput_per_s"], price)),
        ),
        (Column("95 % interval", right=True), lambda one: _span(*interval(one[1], price))),
    )
    parts: list[Part] = [table, Note(f"At {price.per_hour:g} {price.currency} an hour. {ASSUMES}")]
    return Section(title="Cost per million inferences", parts=parts)


def _money(amount: float | None) -> str:
    return DASH if amount is None else significant(amount, 3)


def _span(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "unknown: too few runs"
    return f"{_money(low)} to {_money(high)}"
