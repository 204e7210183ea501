"""The history: trials one per row, with their tags, and what a deletion takes along. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.evidence.measurement import Trial
from core.evidence.quality import BUSY, trial_grade
from core.show import cells, load_text, setting_chips
from core.show.runtime_text import any_other
from core.show.setting_chips import changes_text
from core.show.sheets import Line, Note
from core.show.sheets.columns import (
    GRADE_HELP,
    OUTPUTS_HELP,
    doubts_in_files,
    fallback_words,
    latency_in_files,
    latency_kind,
    latency_of,
    other_metrics,
    quality_words,
    ran_on,
)
from core.show.table import Abridged, Column, Table, Value, tabulate
from core.show.verdict import background_load_text, short_of
from core.show.words import counted, state_words
from core.store import Deletion, Tags, Visibility
from core.wire.output_check import OUTPUTS_DIFFER, breach
from core.wire.runtime import OWN
from core.wire.units import size

_SHORT_ID_LENGTH = 8  # characters of an ID in a row; commands accept 6 or more


def table(
    trials: Sequence[Trial],
    marks: Mapping[str, Tags] | None = None,
    visibility: Mapping[str, Visibility] | None = None,
    *,
    grouped: bool = False,
    persons: bool = False,
) -> Table:
    """Return one row per trial: changed settings, verdict, grade, and error.

    Args:
        trials: one per row, which is one line on a terminal.
        marks: ID of a trial -> its tags.
        visibility: ID of a trial -> who started it, and who sees it.
        persons: whether a column of the browser names who started each.
        grouped: whether the browser indents a trial below another one of the same study or comparison.
    """
    own, seen = marks or {}, visibility or {}
    below = {one.id for above, one in pairwise(trials) if grouped and _group(above) == _group(one)}

    def changed(one: Trial) -> str:
        return f"{BELOW if one.id in below else ''}{_settings_text(one)}"

    return tabulate(
        trials,
        (Column("trial", "id", key="trial"), lambda one: Abridged(one.id, one.id[:_SHORT_ID_LENGTH])),
        (Column("when", "moment", key="when", on="terminal"), lambda one: one.created_at),
        (Column("model", key="model", on="terminal"), lambda one: one.model_name),
        (Column("when", "moment", on="browser", tells=True), lambda one: one.created_at),
        (Column("model", on="browser", tells=True), lambda one: one.model_name),
        (Column("changed", on="browser", tells=True, help=_CHANGED_HELP), changed),
        (Column("★", on="browser", help=_STAR_HELP), lambda one: _tag_symbols(tags_of(own, one.id))),
        (Column("verdict", on="browser", help=_VERDICT_HELP), lambda one: short_of(one.facts)),
        (Column("p50", "ms", on="browser"), lambda one: one.p50_s),
        (Column("grade", on="browser", help=GRADE_HELP), lambda one: quality_words(one.result)),
        (Column("study", on="browser"), lambda one: one.study),
        *([(Column("by", on="browser"), lambda one: _by(seen.get(one.id)))] if persons else []),
        (Column("kind", key="kind", more=True), lambda one: one.kind),
        (Column("state", key="state", on="terminal"), lambda one: one.state),
        (Column("state", on="browser"), state_words),
        (Column("grade", on="terminal"), lambda one: trial_grade(one.result)),
        (Column("grade", key="grade", on="none"), lambda one: trial_grade(one.result)),
        (Column("changed", on="terminal"), _changed_in_short),
        (Column("changed", key="changed", on="none"), changes_text),
        *([_RUNTIME] if any_other(trials) else []),
        (
            Column("outputs", on="browser", help=OUTPUTS_HELP),
            lambda one: cells.outputs_words(one.facts),
        ),
        (Column("batch", "count", key="batch_size", more=True), lambda one: one.facts.get("batch_size")),
        (Column("p50", "ms", on="terminal"), lambda one: one.p50_s),
        (Column("p95", "ms", on="browser", more=True), lambda one: latency_of(one.facts, "p95_s")),
        *latency_kind(_facts, trials),
        *latency_in_files(_facts),
        (
            Column("samples/s", "number", key="rows_per_s", more=True),
            lambda one: one.facts.get("throughput_per_s"),
        ),
        (Column("CPU", "ms", key="cpu_ms", on="none"), lambda one: one.facts.get("cpu_s_per_inference")),
        (
            Column("peak memory", "bytes", key="peak_rss_bytes", on="none"),
            lambda one: one.facts.get("peak_rss_bytes"),
        ),
        (
            Column("ran on", more=not any(one.facts.get("fallback") for one in trials)),
            lambda one: ran_on(one.facts),
        ),
        (
            Column("ran on", key="ran_on", on="none"),
            lambda one: " ".join(one.facts.get("effective_providers") or []),
        ),
        (Column("labels", on="browser"), lambda one: ", ".join(tags_of(own, one.id).labels)),
        (Column("note", on="browser"), lambda one: tags_of(own, one.id).note),
        *_tag_columns(own),
        *doubts_in_files(_same_trial),
        (Column("error", on="browser"), lambda one: one.error["message"] if one.error else ""),
        *other_metrics(_facts, but=("throughput", "cpu_s", "peak_rss")),
        (
            Column("remark", on="terminal"),
            lambda one: _remark_on_a_trial(one, own.get(one.id), seen.get(one.id)),
        ),
        drop=("samples/s", "batch", "ran on", "kind", "state"),
        solid=("when", "trial", "state"),
        cut=True,
    )


_RUNTIME = (Column("runtime", key="runtime", on="none"), lambda one: one.spec.get("runtime", OWN))
BELOW = "↳ "  # before a trial of the same study as the one above it


def _group(trial: Trial) -> str:
    """Return what a trial was measured for: a search, a sweep or a comparison; unique if for itself."""
    return trial.study or trial.comparison or trial.id


_CHANGED_HELP = "Settings that differ from the defaults. Double-click to see the full text."
_VERDICT_HELP = "Compared with the baseline pinned at that time, otherwise with ONNX Runtime's default."


def rescued(files: Sequence[Path]) -> list[Note | Line]:
    """Return notes on files with results that did not fit into the store; none without such files."""
    head = (
        "Results that are not stored yet because the disk was full. ORTune stores them at the next "
        "start with enough space:"
    )
    return [Line(head, "orange"), *(Note(str(path)) for path in files)] if files else []


def _changed_in_short(trial: Trial) -> str:
    return Abridged(changes_text(trial) or "nothing", setting_chips.short_changes(trial) or "nothing")


def _facts(trial: Trial) -> Mapping[str, Any]:
    return trial.facts


def _same_trial(trial: Trial) -> Trial:
    return trial


def _settings_text(trial: Trial) -> str:
    return "" if trial.state == "DAMAGED" else setting_chips.words(trial)


def tags_of(marks: Mapping[str, Tags], trial_id: str) -> Tags:
    """Return the tags of one trial."""
    return marks.get(trial_id) or Tags()


def tags_text(own: Tags | None) -> str:
    """Return the tags of a trial as text: "★, archived, labels: edge, ship; note: for the demo"."""
    if own is None:
        return ""
    parts = [*(["★"] if own.starred else []), *(["archived"] if own.archived else [])]
    parts += [f"labels: {', '.join(own.labels)}"] if own.labels else []
    said = ", ".join(parts)
    note = f"note: {' '.join(own.note.split())}" if own.note else ""
    return "; ".join(part for part in (said, note) if part)


def deletion_in_words(found: Deletion) -> str:
    """Return what is deleted together with trials."""
    parts = [f"{counted(len(found.trials), 'trial')} with {size(found.samples_bytes)} of raw measurements"]
    if found.starred:
        parts.append(f"{found.starred} of them starred")
    if found.references:
        parts.append(f"{counted(found.references, 'trial')} measured only as their references")
    if found.comparisons:
        parts.append(f"{counted(found.comparisons, 'comparison')} without remaining trials")
    return ", ".join(parts)


def _tag_symbols(own: Tags) -> str:
    return ("★" if own.starred else "") + (" archived" if own.archived else "")


def _tag_columns(own: Mapping[str, Tags]) -> list[tuple[Column, Callable[[Trial], Value]]]:
    return [
        (Column("starred", key="starred", on="none"), lambda one: tags_of(own, one.id).starred),
        (Column("archived", key="archived", on="none"), lambda one: tags_of(own, one.id).archived),
        (Column("labels", key="labels", on="none"), lambda one: ",".join(tags_of(own, one.id).labels)),
        (Column("note", key="note", on="none"), lambda one: tags_of(own, one.id).note),
    ]


_STAR_HELP = "Star and archive state. Select the trial to change it."


def _by(seen: Visibility | None) -> str:
    """Return who started a trial, and whether it is private: "ada@example.org, private"."""
    return "" if seen is None else f"{seen.person}{', private' * seen.private}"


def _remark_on_a_trial(trial: Trial, own: Tags | None, seen: Visibility | None) -> str:
    result = trial.facts
    remarks = ["private"] if seen is not None and seen.private else []
    remarks += [load_text.short(load)] if (load := load_text.load_of(trial)) is not None else []
    remarks += fallback_words(result.get("effective_providers") if result.get("fallback") else None)
    remarks += [OUTPUTS_DIFFER] if breach(result) else []
    remarks += [BUSY] if background_load_text(result) else []
    if trial.state == "DAMAGED":
        remarks.append("damaged on disk: its numbers are not shown")
    elif trial.state != "COMPLETE":
        remarks.append(word if (word := state_words(trial)) == "interrupted" else trial.state)
    why = [trial.error["message"]] if trial.error is not None else []
    marked = [tags_text(own)] if own else []
    return Abridged("; ".join([*remarks, *why, *marked]), "; ".join([*remarks, *marked]))
