"""Sheets of accuracy results and of accuracy comparisons. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.evidence.metrics.pairs import Verdict
from core.evidence.verdict import Color
from core.show import format
from core.show.runtime_text import runtime_name
from core.show.sheets import Line, Note, Sheet
from core.show.sheets.trials import notes
from core.show.table import Column, Item, Table, Value, tabulate, texts
from core.store import Accuracy
from core.wire.errors import ErrorRecord
from core.wire.runtime import OWN
from core.wire.units import DASH, significant

_ROWS = 20  # classes in the table
_COLORS: Mapping[Verdict, Color] = {"NOT_WORSE": "green", "WORSE": "red", "UNDECIDED": "gray"}


def accuracy_sheet(one: Accuracy, found: Mapping[str, Any]) -> Sheet:
    """Return the sheet of one model: data, metrics with intervals, classes and notes.

    Args:
        one: a model on its data.
        found: `run.accuracy.summary` of it.
    """
    shares = [("accuracy", found["accuracy"]), ("top-5", found["top5"]), ("ROC-AUC", found["roc_auc"])]
    positive = found["positive"]
    if positive is not None:
        of = f"of `{positive['name']}` at {positive['threshold']:g}"
        shares += [(f"{name} {of}", positive[name]) for name in ("sensitivity", "specificity", "precision")]
        shares.append((f"ROC-AUC of `{positive['name']}`", positive["roc_auc"]))
    rows = [
        (name, *_with_interval(share, percent="ROC" not in name))
        for name, share in shares
        if share is not None
    ]
    shown = found["per_class"][:_ROWS]
    hidden = len(found["per_class"]) - len(shown)
    return Sheet(
        f"{_named(one)} · {found['rows']:,} samples · {found['classes']} classes · accuracy {one.id}",
        [
            Table(columns=texts("", "value", "95 % interval", "samples"), rows=rows),
            classes(shown),
            *([Line(f"({hidden} more classes; --json has all)")] if hidden > 0 else []),
            *([Note(f"SEEN SAMPLES: {told}", "orange")] if (told := found["calibration_note"]) else []),
            *notes(found["notes"]),
        ],
    )


def headline(
    measured: Sequence[tuple[Accuracy, Mapping[str, Any]]],
    compared: Sequence[Mapping[str, Any]] = (),
    errors: Sequence[ErrorRecord] = (),
) -> str:
    """Return the accuracy of each model with its interval, what the comparisons say, and the errors."""
    found = [(_named(one), summary["accuracy"]) for one, summary in measured]
    texts = [
        f"{name}: {format.share(one['value'])}, {format.interval_share(one['low'], one['high'])}"
        for name, one in found
    ]
    said = [one["accuracy"]["text"] for one in compared]
    return "; ".join([*texts, *said, *(one["message"] for one in errors)]) or "nothing is measured yet"


def _named(one: Accuracy) -> str:
    """The model of an accuracy, with its runtime if that is not ORTune's own."""
    name = runtime_name(one.spec)
    return one.model_name if name == OWN else f"{one.model_name} ({name})"


def classes(per_class: Sequence[Mapping[str, Any]]) -> Table:
    """Return the metrics of each class against all others; from `run.accuracy.summary`."""
    return tabulate(
        per_class,
        (Column("class", tells=True), lambda one: one["name"]),
        (Column("samples", "count"), lambda one: one["support"]),
        *_of_a_class("sensitivity", "Recall: share of the samples of the class that the model recognizes."),
        *_of_a_class(
            "specificity",
            "Share of the samples of other classes that the model does not assign to the class.",
        ),
        *_of_a_class("precision", "Share of the samples assigned to the class that belong to it."),
        (Column("ROC-AUC", "number"), lambda one: one["roc_auc"]["value"]),
    )


def _of_a_class(name: str, help: str) -> list[tuple[Column, Callable[[Mapping[str, Any]], Value]]]:
    return share(name, lambda one: one[name], help=help)


def share(
    name: str, of: Callable[[Item], Mapping[str, Any] | None], *, help: str = ""
) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the columns of a share and of its 95 % interval; only the browser shows the interval.

    Args:
        name: displayed name.
        of: returns the share of a row; None: it has none.
        help: description.
    """

    def value(one: Item) -> Value:
        found = of(one)
        return None if found is None else found["value"]

    def span(one: Item) -> Value:
        found = of(one)
        return None if found is None else interval(found)

    return [
        (Column(name, "share", decimals=2, help=help), value),
        (Column(f"{name}, 95 %", on="browser"), span),
    ]


def interval(share: Mapping[str, Any]) -> str | None:
    """Return the 95 % interval of a share, "98.00 to 99.80 %"; None: unknown."""
    if share["low"] is None:
        return None
    return f"{share['low'] * 100:.2f} to {share['high'] * 100:.2f} %"


def _with_interval(share: Mapping[str, Any], *, percent: bool) -> tuple[str, str, str]:
    shown = format.share if percent else _plain
    counts = f"{share['count']:,}/{share['total']:,}" if "count" in share else ""
    if share["value"] is None:
        return DASH, DASH, counts
    return shown(share["value"]), f"{shown(share['low'])} to {shown(share['high'])}", counts


def _plain(value: float | None) -> str:
    return DASH if value is None else f"{value:.4f}"


def compared(pair: Mapping[str, Any]) -> Sheet:
    """Return the sheet of two models on the same samples; `pair` is from `run.accuracy.compare`."""
    same = pair["agreement"]
    span = f" ({format.interval_share(same['low'], same['high'])})" if same["low"] is not None else ""
    agreement = f"{format.share(same['value'])} of {same['total']:,} samples{span}"
    parts = []
    for name in ("accuracy", "sensitivity", "specificity"):
        if (judged := pair[name]) is not None:
            b, c, p = judged["only_reference"], judged["only_candidate"], significant(judged["p"], 2)
            color = _COLORS[judged["verdict"]]
            parts.append(
                Note(f"{judged['text']} Correct in one model only: {b} versus {c} samples, p = {p}.", color)
            )
    area = pair["roc_auc"]
    if area is not None and area["difference"] is not None:
        span = f"({area['low']:+.4f} to {area['high']:+.4f})"
        parts.append(Note(f"ROC-AUC differs by {area['difference']:+.4f} {span}."))
    who = f"{pair['candidate']['model']} versus {pair['reference']['model']}"
    return Sheet(f"{who}: same prediction for {agreement}", parts)
