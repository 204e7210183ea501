"""Sheets of several trials: a comparison, the points of a sweep, the history. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY, quality, trial_grade
from core.evidence.ranking import Rank
from core.evidence.verdict import icon_and_color
from core.run.axes import point_name
from core.run.best_point import BEST, INCONCLUSIVE, LEVEL, SweepRanking
from core.run.sweep import Measured
from core.show import cells, setting_chips
from core.show.comparison_text import (
    against_reference,
    headline,
    intervals_text,
    is_per_row,
    labels,
    order,
    past_text,
    rank_text,
    ranks,
    reference,
)
from core.show.setting_chips import changes_text
from core.show.sheets import Line, Note, Sheet
from core.show.sheets.trials import grade, notes, verdict_basis
from core.show.table import Abridged, Column, Item, Kind, Table, Value, tabulate
from core.show.verdict import background_load_text, in_words, short_of
from core.show.words import counted, state_words
from core.spec import spec_from_dict
from core.spec.metrics import METRICS, Metric, Quantity
from core.spec.settings import value_words
from core.store import Deletion, Tags
from core.wire.errors import TunerError
from core.wire.output_check import DIFFERENT_OUTPUTS, OUTPUTS_DIFFER, WARNING, breach
from core.wire.units import provider, size, span, span_ms

_GRADE_HELP = (
    "Precision of the result: half-width of the 95 % interval. A ≤ 1 %, B ≤ 3 %, C ≤ 10 %, D wider; F: "
    "rejected: the A/A control failed, and no effect is large enough beside it."
)
OUTPUTS_HELP = (
    "Compared with the original model, run without optimizations on the CPU on the same inputs. Empty: "
    "not compared."
)
_MEMORY_HELP = "Peak memory that the session adds. The peak of the whole process is higher."
MACHINE_HELP = "Other programs that used the CPUs. Empty: none found, or not recorded."

# --- a comparison -------------------------------------------------------------------------------------------


def comparison_sheet(comparison: Comparison, trials: Sequence[Trial]) -> Sheet:
    """Return the sheet of a comparison: verdicts against the baseline, ranks, and warnings.

    Args:
        comparison: with a result.
        trials: of its configurations.
    """
    result, contrasts = comparison.facts, against_reference(comparison)
    before = comparison.protocol.get("continues")
    went_on = [f"Continues comparison {before} and includes its launches."] if before else []
    named = labels(comparison)
    own = [f"{named[trial]}: {note}" for trial, one in contrasts.items() for note in one["notes"]]
    several = any(one.best < one.worst for one in ranks(comparison).values())
    return Sheet(
        f"{comparison.model_name} · comparison {comparison.id} · {verdict_basis(result)}",
        [
            Note(headline(comparison)),
            *grade(result),
            configurations(comparison, trials),
            Line(f"Intervals of the ratios: {intervals_text(comparison)}."),
            *([Line(f"A rank such as 2–3 {RANK_RANGE}")] if several else []),
            *notes(dict.fromkeys([*went_on, *comparison.warnings, *result["notes"], *own])),
        ],
    )


def configurations(comparison: Comparison, trials: Iterable[Trial]) -> Table:
    """Return the table of configurations, the best rank first.

    On screens, times are per run, or per sample if the batch sizes differ. In files, times are per run, and
    ratios above 1 are faster than the baseline.
    """
    named, found, against, places = (
        labels(comparison),
        against_reference(comparison),
        reference(comparison),
        ranks(comparison),
    )
    by_id, per_row = {trial.id: trial for trial in trials}, is_per_row(comparison)
    roles = {one.trial: one.role for one in comparison.contestants}
    per = "sample" if per_row else ""
    fallback = any(trial.facts.get("fallback") for trial in by_id.values())

    def result(one: str) -> Mapping[str, Any]:
        return by_id[one].facts if one in by_id else {}

    def time(value: Callable[[Mapping[str, Any]], float | None]) -> Callable[[str], Value]:
        def scaled(one: str) -> Value:
            seconds, rows = value(result(one)), result(one).get("batch_size") or 1
            return seconds / rows if per_row and seconds is not None else seconds

        return scaled

    def place(which: Callable[[Rank], int]) -> Callable[[str], Value]:
        return lambda one: which(places[one]) if rank_text(comparison, one) else None

    def contrast(name: str) -> tuple[Column, Callable[[str], Value]]:
        return Column(name, "number", key=name, on="none"), lambda one: found.get(one, {}).get(name)

    return tabulate(
        order(comparison),
        (Column("rank", help=_RANK_HELP), lambda one: rank_text(comparison, one)),
        (Column("rank", "count", key="rank", on="none"), place(lambda one: one.best)),
        (Column("rank at worst", "count", key="rank_worst", on="none"), place(lambda one: one.worst)),
        (Column("configuration", key="configuration", tells=True), named.__getitem__),
        (
            Column("role", key="role", on="none"),
            lambda one: "baseline" if one == comparison.baseline else roles[one],
        ),
        (Column("verdict", help=_RATIO_HELP), lambda one: verdict_text(comparison, one, by_id.get(one))),
        *map(contrast, ("verdict", "ratio", "ratio_low", "ratio_high", "grade")),
        (Column("p50", "ms", per=per), time(lambda of: _latency(of, "p50_s"))),
        (
            Column("outputs", on="browser", help=OUTPUTS_HELP),
            lambda one: outputs_text(comparison, one, by_id.get(one)),
        ),
        (Column("p95", "ms", per=per), time(lambda of: _latency(of, "p95_s"))),
        (Column("batch", "count", key="batch_size", more=True), lambda one: result(one).get("batch_size")),
        *_latency_in_files(result),
        (Column("samples/s", "number", key="rows_per_s"), lambda one: result(one).get("throughput_per_s")),
        (
            Column("CPU", "ms", key="" if per_row else "cpu_ms", per=per, more=True),
            time(lambda of: of.get("cpu_s_per_inference")),
        ),
        *([(_CPU_OF_A_RUN, lambda one: result(one).get("cpu_s_per_inference"))] if per_row else []),
        (
            Column("peak memory", "bytes", key="peak_rss_bytes", help=_MEMORY_HELP),
            lambda one: result(one).get("peak_rss_bytes"),
        ),
        (Column("ran on", on="browser", more=not fallback), lambda one: ran_on(result(one))),
        (
            Column("grade", on="browser", help=_GRADE_HELP),
            lambda one: _quality_words(comparison.result, [found[one]]) if one in found else "",
        ),
        (
            Column("settings", on="browser", more=True, help="Settings that differ from the baseline."),
            lambda one: _settings(by_id.get(one), by_id.get(against)),
        ),
        (Column("trial", "id", key="trial", more=True), lambda one: one),
        (
            Column("state", key="state", on="none"),
            lambda one: by_id[one].state if one in by_id else "deleted",
        ),
        *_doubts_in_files(by_id.get),
        *_other_metrics(result, but=("throughput", "cpu_s", "peak_rss")),
        (Column("remark", on="terminal"), lambda one: _remark(by_id.get(one), found.get(one))),
        drop=("peak memory", "CPU", "samples/s", "batch", "p95", "trial"),
        colors=[icon_and_color(found[one])[1] if one in found else None for one in order(comparison)],
    )


RANK_RANGE = "means that the intervals overlap and leave these places open."
_RANK_HELP = f"By the intervals of the ratios. A rank such as 2–3 {RANK_RANGE}"
_RATIO_HELP = (
    "Ratio of median latencies within the same rounds. Times in this table are taken over all runs, so "
    "their quotients may differ."
)
_CPU_OF_A_RUN = Column("CPU", "ms", key="cpu_ms", on="none")


def verdict_text(comparison: Comparison, trial_id: str, trial: Trial | None) -> str:
    """Return the verdict or the state of one configuration as text."""
    if trial is None:
        return "baseline, deleted since" if trial_id == reference(comparison) else "deleted since"
    if trial.state == "FAIL":
        return "failed"
    found = against_reference(comparison).get(trial_id)
    if trial_id == reference(comparison):
        return "baseline"
    if found is None:
        return {"CANCELLED": "cancelled"}.get(trial.state, "not measured")
    return in_words(found)


def outputs_text(comparison: Comparison, trial_id: str, trial: Trial | None = None) -> str:
    """Return the result of the output check; empty: unknown.

    Earlier versions compared the outputs with those of the comparison's reference.
    """
    result = trial.facts if trial is not None else {}
    against = against_reference(comparison).get(trial_id) or {}
    if against.get("something_else"):
        return f"{WARNING} {DIFFERENT_OUTPUTS}"
    if result.get("guard") is not None:
        return cells.outputs_words(result)
    differ = against.get("outputs_differ")
    return {None: "", True: f"{WARNING} {OUTPUTS_DIFFER}", False: "agree"}[differ]


def ran_on(result: Mapping[str, Any]) -> str:
    """Return the providers that ran; a fallback is marked."""
    names = ", ".join(map(provider, result.get("effective_providers") or ()))
    return f"{names} (fallback)" if result.get("fallback") else names


def _settings(trial: Trial | None, baseline: Trial | None) -> str:
    """Return all settings of a configuration that differ from the baseline."""
    if trial is None or baseline is None or trial.id == baseline.id:
        return ""
    try:
        found = setting_chips.differences(spec_from_dict(trial.spec), spec_from_dict(baseline.spec))
    except TunerError as error:
        return error.message
    return ", ".join(one.chip for one in found) or "the same"


def _remark(trial: Trial | None, contrast: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "deleted"
    remarks = _fallback(trial.facts.get("effective_providers") if trial.facts.get("fallback") else None)
    if breach(trial.facts) or (contrast and contrast.get("outputs_differ")):
        remarks.append(OUTPUTS_DIFFER)
    if trial.state != "COMPLETE":
        remarks.append(trial.state)
    if trial.error is not None:
        remarks.append(trial.error["message"])
    return "; ".join(remarks)


def _fallback(ran: Iterable[str] | None) -> list[str]:
    return [] if ran is None else [f"FALLBACK: ran on {', '.join(map(provider, ran))}"]


def earlier_comparisons(comparisons: Sequence[Comparison]) -> Table:
    """Return earlier comparisons, one per row."""
    return tabulate(
        comparisons,
        (Column("when", "moment"), lambda one: one.created_at),
        (Column("configurations", tells=True), against),
        (Column("result"), past_text),
        (Column("grade", help=_GRADE_HELP), lambda one: _quality_words(one.result)),
        (Column("effort"), lambda one: one.protocol.get("precision") or ""),
        (Column("study"), lambda one: one.study),
        (Column("comparison", "id"), lambda one: one.id),
    )


def _quality_words(
    result: Mapping[str, Any] | None, answers: Sequence[Mapping[str, Any]] | None = None
) -> str:
    found = quality(result, answers)
    return found.words if found is not None else ""


def against(comparison: Comparison) -> str:
    """Return the labels versus the baseline's, without an ORT default that was added automatically."""
    named = [
        one.label
        for one in comparison.contestants
        if one.trial != comparison.baseline and one.role != "anchor"
    ]
    return f"{', '.join(named) or 'nothing'} versus {labels(comparison)[comparison.baseline]}"


# --- columns of files ---------------------------------------------------------------------------------------


def _latency(result: Mapping[str, Any], name: str) -> float | None:
    value: float | None = (result.get("latency") or {}).get(name)
    return value


def _latency_in_files(
    result: Callable[[Item], Mapping[str, Any]],
) -> list[tuple[Column, Callable[[Item], Value]]]:
    """Return the columns of percentiles per run, with the interval of the median."""

    def column(name: str) -> tuple[Column, Callable[[Item], Value]]:
        key = name.replace("_s", "_ms", 1)
        return Column(name, "ms", key=key, on="none"), lambda one: _latency(result(one), name)

    return [column(name) for name in ("p50_s", "p50_s_low", "p50_s_high", "p95_s")]


_KINDS: Mapping[Quantity, Kind] = {"time": "ms", "size": "bytes"}


def _other_metrics(
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


def _doubts_in_files(trial: Callable[[Item], Trial | None]) -> list[tuple[Column, Callable[[Item], Value]]]:
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


# --- a sweep ------------------------------------------------------------------------------------------------


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
        (Column("95 % interval", right=True, on="terminal"), _interval),
        (Column("p50 low", "ms", key="p50_ms_low", on="browser", more=True), latency("p50_s_low")),
        (Column("p50 high", "ms", key="p50_ms_high", on="browser", more=True), latency("p50_s_high")),
        (Column("p95", "ms", key="p95_ms"), _p95),
        (Column("p95 low", "ms", key="p95_ms_low", on="none"), latency("p95_s_low")),
        (Column("p95 high", "ms", key="p95_ms_high", on="none"), latency("p95_s_high")),
        (Column("p99", "ms", key="p99_ms", on="browser", more=True), latency("p99_s")),
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
            Column("peak memory", "bytes", key="peak_rss_bytes", on="browser", help=_MEMORY_HELP),
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
        *_other_metrics(_result_of_a_point, but=("throughput", "peak_rss")),
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


def _interval(one: Measured) -> str | None:
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
    remarks = _fallback(one.result.get("effective_providers") if one.fallback else None)
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


# --- history ------------------------------------------------------------------------------------------------

_SHORT_ID_LENGTH = 8  # characters of an ID in a row; commands accept 6 or more


def history(
    trials: Sequence[Trial], marks: Mapping[str, Tags] | None = None, *, grouped: bool = False
) -> Table:
    """Return one row per trial: changed settings, verdict, grade, and error.

    Args:
        trials: one per row, which is one line on a terminal.
        marks: ID of a trial -> its tags.
        grouped: whether the browser indents a trial below another one of the same study or comparison.
    """
    own = marks or {}
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
        (Column("grade", on="browser", help=_GRADE_HELP), lambda one: _quality_words(one.result)),
        (Column("study", on="browser"), lambda one: one.study),
        (Column("kind", key="kind", more=True), lambda one: one.kind),
        (Column("state", key="state", on="terminal"), lambda one: one.state),
        (Column("state", on="browser"), state_words),
        (Column("grade", on="terminal"), lambda one: trial_grade(one.result)),
        (Column("grade", key="grade", on="none"), lambda one: trial_grade(one.result)),
        (Column("changed", on="terminal"), _changed_in_short),
        (Column("changed", key="changed", on="none"), changes_text),
        (
            Column("outputs", on="browser", help=OUTPUTS_HELP),
            lambda one: cells.outputs_words(one.facts),
        ),
        (Column("batch", "count", key="batch_size", more=True), lambda one: one.facts.get("batch_size")),
        (Column("p50", "ms", on="terminal"), lambda one: one.p50_s),
        (Column("p95", "ms", on="browser", more=True), lambda one: _latency(one.facts, "p95_s")),
        *_latency_in_files(_facts),
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
        *_doubts_in_files(_same_trial),
        (Column("error", on="browser"), lambda one: one.error["message"] if one.error else ""),
        *_other_metrics(_facts, but=("throughput", "cpu_s", "peak_rss")),
        (Column("remark", on="terminal"), lambda one: _remark_on_a_trial(one, own.get(one.id))),
        drop=("samples/s", "batch", "ran on", "kind", "state"),
        solid=("when", "trial", "state"),
        cut=True,
    )


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


def _remark_on_a_trial(trial: Trial, own: Tags | None) -> str:
    result = trial.facts
    remarks = _fallback(result.get("effective_providers") if result.get("fallback") else None)
    remarks += [OUTPUTS_DIFFER] if breach(result) else []
    remarks += [BUSY] if background_load_text(result) else []
    if trial.state == "DAMAGED":
        remarks.append("damaged on disk: its numbers are not shown")
    elif trial.state != "COMPLETE":
        remarks.append(word if (word := state_words(trial)) == "interrupted" else trial.state)
    why = [trial.error["message"]] if trial.error is not None else []
    marked = [tags_text(own)] if own else []
    return Abridged("; ".join([*remarks, *why, *marked]), "; ".join([*remarks, *marked]))
