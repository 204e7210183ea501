"""Columns and texts that the tables of comparisons, sweeps and trials share. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.evidence.measurement import Trial
from core.evidence.quality import quality
from core.evidence.streams import latency_words, stream_count
from core.show.table import Column, Item, Kind, Value
from core.spec.metrics import METRICS, Metric, Quantity
from core.wire.output_check import breach
from core.wire.units import provider

GRADE_HELP = (
    "Precision of the result: half-width of the 95 % interval. A ≤ 1 %, B ≤ 3 %, C ≤ 10 %, D wider; F: "
    "rejected: the A/A control failed, and no effect is large enough beside it."
)
OUTPUTS_HELP = (
    "Compared with the original model, run without optimizations on the CPU on the same inputs. Empty: "
    "not compared."
)
MEMORY_HELP = "Peak memory that the session adds. The peak of the whole process is higher."


def latency_of(result: Mapping[str, Any], name: str) -> float | None:
    """Return a statistic of the latency, seconds; None: unknown."""
    value: float | None = (result.get("latency") or {}).get(name)
    return value


def latency_in_files(
    result: Callable[[Item], Mapping[str, Any]],
) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the columns of percentiles per run, with their intervals."""

    def column(name: str) -> tuple[Column, Callable[[Item], Value]]:
        key = name.replace("_s", "_ms", 1)
        return Column(name, "ms", key=key, on="none"), lambda one: latency_of(result(one), name)

    return [column(f"{name}_s{end}") for name in ("p50", "p95") for end in ("", "_low", "_high")]


def latency_kind(
    result: Callable[[Item], Mapping[str, Any]], items: Iterable[Item]
) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the column that says what each latency is; none where every item has one caller.

    Args:
        result: of an item.
        items: the rows of the table.
    """
    if all(stream_count(result(one)) == 1 for one in items):
        return []
    column = Column("latency kind", key="latency_kind", help=_KIND_HELP)
    return [(column, lambda one: latency_words(result(one)) if result(one).get("latency") else "")]


_KIND_HELP = (
    "Percentiles of several callers are service latency beside the other callers in a closed loop, never "
    "user latency: no request waits for its turn."
)
_KINDS: Mapping[Quantity, Kind] = {"time": "ms", "size": "bytes"}


def other_metrics(
    result: Callable[[Item], Mapping[str, Any]], *, but: Sequence[str]
) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the columns of the metrics that a table does not place itself.

    Args:
        result: of an item.
        but: names of the metrics that the table has already.
    """

    def column(metric: Metric) -> tuple[Column, Callable[[Item], Value]]:
        kind = _KINDS.get(metric.quantity, "number")
        return (
            Column(metric.column, kind, key=metric.key, on="browser", more=True, help=metric.help),
            lambda one: metric.value(result(one)),
        )

    return [column(one) for one in METRICS.values() if one.column and one.name not in but]


def doubts_in_files(trial: Callable[[Item], Trial | None]) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the columns of files on fallback, exceeded tolerance and error of a trial."""

    def result(one: Item) -> Mapping[str, Any]:
        found = trial(one)
        return found.facts if found is not None else {}

    def error(one: Item) -> str:
        found = trial(one)
        return found.error["message"] if found is not None and found.error is not None else ""

    return [
        (Column("fallback", key="fallback", on="none"), lambda one: bool(result(one).get("fallback"))),
        (Column("outputs", key="outputs_differ", on="none"), lambda one: bool(breach(result(one)))),
        (Column("error", key="error", on="none"), error),
    ]


def ran_on(result: Mapping[str, Any]) -> str:
    """Return the providers that ran; a fallback is marked."""
    names = ", ".join(map(provider, result.get("effective_providers") or ()))
    return f"{names} (fallback)" if result.get("fallback") else names


def fallback_words(ran: Iterable[str] | None) -> list[str]:
    """Return the remark on a fallback to the providers `ran`; None: there was none."""
    return [] if ran is None else [f"FALLBACK: ran on {', '.join(map(provider, ran))}"]


def quality_words(
    result: Mapping[str, Any] | None, answers: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """Return the quality of a result in a few words; empty: no result."""
    found = quality(result, answers)
    return found.words if found is not None else ""
