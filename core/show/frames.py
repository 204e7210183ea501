"""Tables of numbers for the frames of results whose sheets hold texts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.evidence.noise_check import NoiseCheckResult
from core.evidence.profile_difference import Difference
from core.evidence.roofline import Peak
from core.evidence.statistics import Estimate
from core.evidence.targets import TargetResult
from core.run.scorecard import ScorecardRow
from core.run.variants import precision_of_model, variant_of
from core.show.sheets import differences as differences_sheet
from core.show.sheets.variants import steps_words
from core.show.table import Column, Item, Kind, Table, Value, tabulate
from core.spec.metrics import Quantity
from core.store import Accuracy, ModelRecord

Made = tuple[Column, Callable[[Item], Value]]
_ENDS = ("value", "low", "high")
_UNITS: Mapping[Quantity, str] = {"time": "s", "rate": "samples/s", "size": "bytes"}
_DIFFERENCE = {"difference": "difference", "difference_low": "low", "difference_high": "high"}


def _column(name: str, kind: Kind, value: Callable[[Item], Value]) -> Made[Item]:
    return Column(name, kind, key=name), value


def accuracies(
    measured: Iterable[tuple[Accuracy, Mapping[str, Any]]], compared: Sequence[Mapping[str, Any]] = ()
) -> Table:
    """Return a row for each model: its metrics with 95 % intervals, and its comparison with the reference.

    Args:
        measured: accuracies with `run.accuracy.summary` of each.
        compared: from `run.accuracy.compare`.
    """
    judged = {one["candidate"]["id"]: one for one in compared}

    def metric(name: str, end: str) -> Made[tuple[Accuracy, Mapping[str, Any]]]:
        def value(row: tuple[Accuracy, Mapping[str, Any]]) -> Value:
            found = row[1].get(name) or (row[1]["positive"] or {}).get(name)
            return found[end] if found else None

        return _column(name if end == "value" else f"{name}_{end}", "number", value)

    def against(name: str, value: Callable[[Mapping[str, Any]], Value], kind: Kind) -> Made[Any]:
        return _column(name, kind, lambda row: value(judged[row[0].id]) if row[0].id in judged else None)

    shown = ("accuracy", "top5", "roc_auc", "sensitivity", "specificity", "precision")
    return tabulate(
        measured,
        _column("model", "text", lambda row: row[0].model_name),
        _column("samples", "count", lambda row: row[1]["rows"]),
        *(metric(name, end) for name in shown for end in _ENDS),
        against("verdict", lambda one: str(one["accuracy"]["verdict"]), "text"),
        *(against(name, _judged(key), "number") for name, key in _DIFFERENCE.items()),
        against("agreement", lambda one: one["agreement"]["value"], "number"),
        against("p", lambda one: one["accuracy"]["p"], "number"),
        _column("id", "text", lambda row: row[0].id),
    )


def _judged(key: str) -> Callable[[Mapping[str, Any]], Value]:
    return lambda compared: compared["accuracy"][key]


def targets(card: Iterable[ScorecardRow]) -> Table:
    """Return a row for each target of each configuration; numbers are in the `unit`, shares are of 1."""

    def number(name: str) -> Made[tuple[ScorecardRow, TargetResult]]:
        return _column(name, "number", lambda row: getattr(row[1], name))

    return tabulate(
        [(row, one) for row in card for one in row.judged],
        _column("configuration", "text", lambda row: row[0].subject.label),
        _column("target", "text", lambda row: row[1].target.what),
        _column("limit", "text", lambda row: row[1].target.limit_words),
        _column("state", "text", lambda row: row[1].state),
        *map(number, ("value", "low", "high", "margin")),
        _column("unit", "text", lambda row: _UNITS.get(row[1].target.about.quantity, "")),
    )


def differences(found: Difference) -> Table:
    """Return a row for each part of a difference, per run or, if the batch sizes differ, per sample."""
    return tabulate(
        found.rows,
        _column("part", "text", differences_sheet.label),
        _column("baseline_ms", "ms", lambda one: one.baseline_s),
        _column("candidate_ms", "ms", lambda one: one.candidate_s),
        _column("difference_ms", "ms", lambda one: one.difference_s),
        _column("half_width_ms", "ms", lambda one: one.half_width_s),
        _column("share", "number", found.share),
        _column("baseline_nodes", "count", lambda one: one.baseline_nodes),
        _column("candidate_nodes", "count", lambda one: one.candidate_nodes),
        _column("clear", "text", lambda one: one.clear),
    )


def models(records: Iterable[ModelRecord], verdicts: Mapping[str, Mapping[str, Any]] | None = None) -> Table:
    """Return a row for each model or variant: size, nodes, error and speed-up against the original.

    Args:
        records: of the library.
        verdicts: of comparisons with the original, by content hash; None: without their columns.
    """

    def fact(record: ModelRecord, name: str) -> Value:
        variant: Mapping[str, Any] | None = variant_of(record)
        return None if variant is None else variant[name]

    def error(name: str) -> Made[ModelRecord]:
        def value(record: ModelRecord) -> Value:
            variant = variant_of(record)
            return None if variant is None else variant["error"][name]

        return _column(f"error_{name}", "number", value)

    def compared(name: str, kind: Kind) -> Made[ModelRecord]:
        return _column(name, kind, lambda one: (verdicts or {}).get(one.content_sha256, {}).get(name))

    shown: list[Made[ModelRecord]] = []
    if verdicts is not None:
        shown = [compared("verdict", "text")]
        shown += [compared(name, "number") for name in ("ratio", "ratio_low", "ratio_high")]
    return tabulate(
        records,
        _column("model", "text", lambda one: one.name),
        _column("original", "text", lambda one: fact(one, "root_name")),
        _column("steps", "text", steps_words),
        _column("precision", "text", precision_of_model),
        _column("nodes", "count", lambda one: one.info["nodes"]),
        _column("size_bytes", "bytes", lambda one: one.info["size_bytes"]),
        *map(error, ("max_rel", "mean_rel", "max_abs", "top1_agreement")),
        _column("seconds", "number", lambda one: fact(one, "seconds")),
        *shown,
        _column("hash", "text", lambda one: one.content_sha256),
    )


def noise(answer: NoiseCheckResult) -> Table:
    """Return a row for each effort: what it needs on this machine."""
    return tabulate(
        answer.needs,
        _column("effort", "text", lambda one: one.precision),
        _column("half_width", "number", lambda one: one.target),
        _column("launches", "count", lambda one: one.generations),
        _column("seconds", "number", lambda one: one.seconds),
        _column("within_budget", "text", lambda one: one.fits),
    )


def peaks(found: Iterable[Peak]) -> Table:
    """Return a row for each number of threads, with 95 % intervals."""

    def rate(name: str, of: Callable[[Peak], Estimate], end: str) -> Made[Peak]:
        return _column(
            name if end == "value" else f"{name}_{end}", "number", lambda one: getattr(of(one), end)
        )

    return tabulate(
        found,
        _column("threads", "count", lambda one: one.threads),
        *(rate("operations_per_s", lambda one: one.operations, end) for end in _ENDS),
        *(rate("bytes_per_s", lambda one: one.bytes, end) for end in _ENDS),
        *(rate("ridge_operations_per_byte", lambda one: one.ridge, end) for end in _ENDS),
    )
