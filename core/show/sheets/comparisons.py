"""Sheet of a comparison, and the list of earlier ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.ranking import Rank
from core.evidence.verdict import icon_and_color
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
from core.show.runtime_text import any_other, name_and_versions
from core.show.sheets import Line, Note, Sheet
from core.show.sheets.columns import (
    GRADE_HELP,
    MEMORY_HELP,
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
from core.show.sheets.trials import grade, notes, verdict_basis
from core.show.table import Column, Kind, Table, Value, tabulate
from core.show.verdict import in_words
from core.spec import spec_from_dict
from core.wire.errors import TunerError
from core.wire.output_check import DIFFERENT_OUTPUTS, OUTPUTS_DIFFER, WARNING, breach
from core.wire.runtime import OWN


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
        kind: Kind = "text" if name in ("verdict", "grade") else "number"
        return Column(name, kind, key=name, on="none"), lambda one: found.get(one, {}).get(name)

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
        (
            Column("verdict", help=_ratio_help(comparison)),
            lambda one: verdict_text(comparison, one, by_id.get(one)),
        ),
        *map(contrast, ("verdict", "ratio", "ratio_low", "ratio_high", "grade")),
        *_runtime_columns(by_id),
        (Column("p50", "ms", per=per), time(lambda of: latency_of(of, "p50_s"))),
        (
            Column("outputs", on="browser", help=OUTPUTS_HELP),
            lambda one: outputs_text(comparison, one, by_id.get(one)),
        ),
        (Column("p95", "ms", per=per), time(lambda of: latency_of(of, "p95_s"))),
        *latency_kind(result, order(comparison)),
        (Column("batch", "count", key="batch_size", more=True), lambda one: result(one).get("batch_size")),
        *latency_in_files(result),
        (Column("samples/s", "number", key="rows_per_s"), lambda one: result(one).get("throughput_per_s")),
        (
            Column("CPU", "ms", key="" if per_row else "cpu_ms", per=per, more=True),
            time(lambda of: of.get("cpu_s_per_inference")),
        ),
        *([(_CPU_OF_A_RUN, lambda one: result(one).get("cpu_s_per_inference"))] if per_row else []),
        (
            Column("peak memory", "bytes", key="peak_rss_bytes", help=MEMORY_HELP),
            lambda one: result(one).get("peak_rss_bytes"),
        ),
        (Column("ran on", on="browser", more=not fallback), lambda one: ran_on(result(one))),
        (
            Column("grade", on="browser", help=GRADE_HELP),
            lambda one: quality_words(comparison.result, [found[one]]) if one in found else "",
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
        *doubts_in_files(by_id.get),
        *other_metrics(result, but=("throughput", "cpu_s", "peak_rss")),
        (Column("remark", on="terminal"), lambda one: _remark(by_id.get(one), found.get(one))),
        drop=("peak memory", "CPU", "samples/s", "batch", "p95", "trial", "runtime"),
        colors=[icon_and_color(found[one])[1] if one in found else None for one in order(comparison)],
    )


RANK_RANGE = "means that the intervals overlap and leave these places open."
_RANK_HELP = f"By the intervals of the ratios. A rank such as 2–3 {RANK_RANGE}"
_RATIO_HELP = (
    "Ratio of {what} within the same rounds. Times in this table are taken over all runs, so their "
    "quotients may differ."
)


def _ratio_help(comparison: Comparison) -> str:
    by_throughput = comparison.facts.get("statistic") == "throughput"
    return _RATIO_HELP.format(what="throughput" if by_throughput else "median latencies")


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
    remarks = fallback_words(trial.facts.get("effective_providers") if trial.facts.get("fallback") else None)
    if breach(trial.facts) or (contrast and contrast.get("outputs_differ")):
        remarks.append(OUTPUTS_DIFFER)
    if trial.state != "COMPLETE":
        remarks.append(trial.state)
    if trial.error is not None:
        remarks.append(trial.error["message"])
    return "; ".join(remarks)


def earlier_comparisons(comparisons: Sequence[Comparison]) -> Table:
    """Return earlier comparisons, one per row."""
    return tabulate(
        comparisons,
        (Column("when", "moment"), lambda one: one.created_at),
        (Column("configurations", tells=True), against),
        (Column("result"), past_text),
        (Column("grade", help=GRADE_HELP), lambda one: quality_words(one.result)),
        (Column("effort"), lambda one: one.protocol.get("precision") or ""),
        (Column("study"), lambda one: one.study),
        (Column("comparison", "id"), lambda one: one.id),
    )


def against(comparison: Comparison) -> str:
    """Return the labels versus the baseline's, without an ORT default that was added automatically."""
    named = [
        one.label
        for one in comparison.contestants
        if one.trial != comparison.baseline and one.role != "anchor"
    ]
    return f"{', '.join(named) or 'nothing'} versus {labels(comparison)[comparison.baseline]}"


def _runtime_columns(by_id: Mapping[str, Trial]) -> list[tuple[Column, Callable[[str], Value]]]:
    """The runtime of each configuration, if one is not ORTune's own."""
    if not any_other(by_id.values()):
        return []
    return [
        (Column("runtime", help=_RUNTIME_HELP), lambda one: name_and_versions(by_id.get(one))),
        (
            Column("runtime", key="runtime", on="none"),
            lambda one: by_id[one].spec.get("runtime", OWN) if one in by_id else "",
        ),
    ]


_RUNTIME_HELP = "Environment in which the configuration ran, with its version of ONNX Runtime."
