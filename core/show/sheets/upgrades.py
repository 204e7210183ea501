"""Sheet of an upgrade: one row for each model, and what the two versions have or lack. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.evidence.measurement import Trial
from core.evidence.upgrade import (
    Change,
    RuntimeSide,
    State,
    UpgradeRecord,
    UpgradeRow,
    headline,
    intervals_text,
)
from core.evidence.verdict import Color, Verdict, is_rejected, parts
from core.show.sheets import Fact, Line, Note, Sheet
from core.show.table import Column, Table, Value, tabulate
from core.wire.units import size

_OUTPUTS: Mapping[bool | None, str] = {True: "differ", False: "equal", None: "not judged"}
_OUTPUTS_HELP = (
    "Outputs of the new runtime against the old one's and the original model's, on the same inputs."
)


def upgrade(record: UpgradeRecord, found: Sequence[UpgradeRow]) -> Sheet:
    """Return the sheet: both runtimes, the table of models, and what the versions have or lack.

    Args:
        record: of the upgrade.
        found: a row for every model.
    """
    told = [
        *(Note(f"{row.item.model}: {text}", color) for row in found for text, color in _remarks(row)),
        *([Note(record.changes_reason, "orange")] if record.changes_reason else []),
        *([Note(f"{record.error['message']} {record.error['hint']}", "orange")] if record.error else []),
    ]
    covered = intervals_text(found)
    return Sheet(
        f"{record.title} · upgrade {record.id}",
        [
            Note(headline(found)),
            *_sides(record),
            *([Fact("configuration", record.config)] if record.config else []),
            models(found),
            *([Line(covered, apart=True)] if covered else []),
            *told,
            *_explain(found),
            *([changes(record.changes)] if record.changes else []),
        ],
    )


def _explain(found: Sequence[UpgradeRow]) -> list[Line]:
    """Return the command that explains each slower model."""
    return [
        Line(f"Explain: ortune explain {row.after.id}  ({row.item.model})")
        for row in found
        if row.after is not None and row.state == State.COMPARED and row.verdict is Verdict.SLOWER
    ]


def _sides(record: UpgradeRecord) -> list[Fact]:
    named = (("old runtime", record.before), ("new runtime", record.after))
    return [Fact(name, side_text(side)) for name, side in named if side is not None]


def side_text(side: RuntimeSide) -> str:
    """Return a runtime on one line: name, versions, and its size on disk."""
    sizes = [("ONNX Runtime on disk", side.package_bytes), ("whole environment", side.environment_bytes)]
    known = [f"{name} {size(count)}" for name, count in sizes if count is not None]
    version = f"ONNX Runtime {side.onnxruntime or 'of unknown version'}"
    return ", ".join([f"{side.name}: {version}", f"Python {side.python}", *known])


def models(found: Sequence[UpgradeRow]) -> Table:
    """Return the table of models, in the order in which they were asked for."""
    return tabulate(
        found,
        (Column("model", key="model", tells=True, most=40), lambda row: row.item.model),
        (Column("state", key="state", on="none"), lambda row: row.state.value),
        (Column("result", most=60), _result),
        (Column("95 % CI"), _interval),
        *((Column(name, "number", key=name, on="none"), _ratio(name)) for name in _RATIOS),
        (Column("verdict", key="verdict", on="none"), _verdict_name),
        (Column("outputs", key="outputs", help=_OUTPUTS_HELP), _outputs),
        *_both("p50", "ms", "p50_ms", _p50),
        *_both("memory", "bytes", "peak_rss_bytes", _fact("peak_rss_bytes")),
        *_both("session", "ms", "session_creation_ms", _fact("session_creation_s")),
        (Column("comparison", "id", key="comparison"), lambda row: row.item.comparison),
        (Column("reused", key="reused", on="none"), lambda row: row.item.reused),
        (Column("error", key="error", on="none"), lambda row: row.error["message"] if row.error else ""),
        drop=("session old", "session new", "comparison", "memory old", "memory new"),
        solid=("outputs",),
        colors=[color(row) for row in found],
    )


_RATIOS = ("ratio", "ratio_low", "ratio_high")


def _both(
    name: str, kind: Any, key: str, value: Callable[[Trial], float | None]
) -> list[tuple[Column, Callable[[UpgradeRow], Value]]]:
    """Return the columns of a number in the old and the new runtime."""

    def of(which: Callable[[UpgradeRow], Trial | None]) -> Callable[[UpgradeRow], Value]:
        def read(row: UpgradeRow) -> Value:
            trial = which(row)
            return None if trial is None or not trial.result else value(trial)

        return read

    return [
        (Column(f"{name} old", kind, key=f"{key}_old"), of(lambda row: row.before)),
        (Column(f"{name} new", kind, key=f"{key}_new"), of(lambda row: row.after)),
    ]


def _p50(trial: Trial) -> float | None:
    return trial.p50_s


def _fact(name: str) -> Callable[[Trial], float | None]:
    return lambda trial: trial.facts.get(name)  # type: ignore[return-value]


def _ratio(name: str) -> Callable[[UpgradeRow], Value]:
    return lambda row: None if row.contrast is None else row.contrast[name]


def _result(row: UpgradeRow) -> str:
    if row.state != State.COMPARED or row.contrast is None:
        return row.state.word
    if is_rejected(row.contrast):
        return "rejected: undecided"
    return parts(row.contrast)[0]


def _interval(row: UpgradeRow) -> str:
    if row.state != State.COMPARED or row.contrast is None or is_rejected(row.contrast):
        return ""
    return parts(row.contrast)[1].removeprefix("95 % CI ")


def _verdict_name(row: UpgradeRow) -> str:
    return "" if row.verdict is None else str(row.verdict.value)


def _outputs(row: UpgradeRow) -> str:
    return _OUTPUTS[row.outputs_differ] if row.state == State.COMPARED else ""


def color(row: UpgradeRow) -> Color:
    """Return the colour of a row: red where the upgrade breaks the model."""
    if row.fails:
        return "red"
    return row.verdict.color if row.state == State.COMPARED and row.verdict is not None else row.state.color


def overall_color(found: Sequence[UpgradeRow]) -> Color:
    """Return the colour of an upgrade: red if it breaks a model, green if no model is slower or undecided."""
    colors = {color(row) for row in found}
    worst: tuple[Color, ...] = ("red", "orange", "gray")
    return next((one for one in worst if one in colors), "green")


def _remarks(row: UpgradeRow) -> list[tuple[str, Color | None]]:
    """Return what the table does not show: errors, differing outputs, warnings, and the sizes used."""
    found: list[tuple[str, Color | None]] = []
    if row.error is not None:
        where = "" if row.state == State.UNUSABLE else f"{row.state.word}: "
        found.append((f"{where}{row.error['message']} {row.error['hint']}".strip(), row.state.color))
    if row.outputs_differ:
        found.append((f"OUTPUTS DIFFER: {row.outputs_reason}", "red"))
    elif row.outputs_differ is None and row.outputs_reason:
        found.append((f"outputs not judged: {row.outputs_reason}", "orange"))
    if row.verdict is Verdict.UNDECIDED and row.contrast is not None and row.contrast.get("holds_reason"):
        found.append((str(row.contrast["holds_reason"]), "orange"))
    for note in row.contrast["notes"] if row.contrast is not None else ():
        found.append((str(note), None))
    found += [(note, None) for note in row.item.notes]
    return found


def changes(found: Sequence[Change]) -> Table:
    """Return what one of the versions has and the other has not."""
    return tabulate(
        found,
        (Column("changed", key="kind"), lambda one: one.kind),
        (Column("name", key="name", tells=True, most=60), lambda one: one.name),
        (Column("old", key="old", most=40), lambda one: one.before),
        (Column("new", key="new", most=40), lambda one: one.after),
    )
