"""A race as the rows of a table, what a reader must know beside it, and its line in the list of past races.

No Streamlit: what stands here is tested as text. `race_results` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.verdict import is_rejected
from core.show import words
from core.show.standings import against_reference, headline, is_per_row, labels, order, rank_text, reference
from core.spec import spec_from_dict
from core.wire.errors import TunerError
from core.wire.guard import ELSE, MARK, WARNING
from dashboard import contestants, format
from dashboard.widgets import cells, verdict

MEBIBYTE = 1 << 20


def title(comparison: Comparison) -> str:
    """Name a race after all that was asked for, not after the model of its first configuration alone."""
    asked = [
        one for one in comparison.contestants if one.role != "anchor" or one.trial == comparison.baseline
    ]
    return f"Race of {len(asked)} configurations of {comparison.model_name}"


# --- the table --------------------------------------------------------------------------------------------


def rows(comparison: Comparison, trials: Mapping[str, Trial]) -> list[dict[str, Any]]:
    """Return one row per contestant in the order of the screen; what is not known is None.

    Times are those of a run or, where the contestants fed different numbers of rows, all those of a row.
    """
    return [_row(comparison, trial, trials.get(trial), trials) for trial in order(comparison)]


def _row(
    comparison: Comparison, trial_id: str, trial: Trial | None, trials: Mapping[str, Trial]
) -> dict[str, Any]:
    result: Mapping[str, Any] = trial.facts if trial is not None else {}
    latency, size = result.get("latency") or {}, result.get("batch_size")
    per_row = is_per_row(comparison)
    unit, scale = ("per row", 1e3 / (size or 1)) if per_row else ("per run", 1e3)
    return {
        "Rank": rank_text(comparison, trial_id),
        "Configuration": labels(comparison)[trial_id],
        "Verdict": verdict_text(comparison, trial_id, trial),
        "Outputs": outputs_text(comparison, trial_id, trial),
        f"p50 {unit} (ms)": _scaled(latency.get("p50_s"), scale),
        f"p95 {unit} (ms)": _scaled(latency.get("p95_s"), scale),
        "Rows": size,
        "Rows/s": result.get("throughput_per_s"),
        f"CPU {unit} (ms)": _scaled(result.get("cpu_s_per_inference"), scale),
        "Peak memory (MiB)": _scaled(result.get("peak_rss_bytes"), 1 / MEBIBYTE),
        "Ran on": ran_on(result),
        "Machine": verdict.busy_words(comparison.result),
        "Settings": settings_text(trial, trials.get(reference(comparison))),
        "Trial": trial_id[:12],
    }


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def verdict_text(comparison: Comparison, trial_id: str, trial: Trial | None) -> str:
    """What became of one contestant, in words."""
    if trial is None:
        return "deleted since"
    if trial.state == "FAIL":
        return "failed"
    found = against_reference(comparison).get(trial_id)
    if trial_id == reference(comparison):
        return "baseline"
    if found is None:
        return {"CANCELLED": "cancelled"}.get(trial.state, "not measured")
    return words.verdict(found)


def outputs_text(comparison: Comparison, trial_id: str, trial: Trial | None = None) -> str:
    """Whether its outputs are what they should be; empty where that is not known.

    In a race of an earlier version they were held against those of the reference of the race.
    """
    result = trial.facts if trial is not None else {}
    against = against_reference(comparison).get(trial_id) or {}
    if against.get("something_else"):
        return f"{WARNING} {ELSE}"
    if result.get("guard") is not None:
        return cells.outputs_words(result)
    differ = against.get("outputs_differ")
    return {None: "", True: f"{WARNING} {MARK}", False: "agree"}[differ]


def ran_on(result: Mapping[str, Any]) -> str:
    """Providers that really ran; a fallback says so."""
    names = ", ".join(format.provider(name) for name in result.get("effective_providers") or ())
    return f"{names} (fallback)" if result.get("fallback") else names


def settings_text(trial: Trial | None, baseline: Trial | None) -> str:
    """Everything that sets a contestant apart from the baseline."""
    if trial is None or baseline is None or trial.id == baseline.id:
        return ""
    try:
        own, other = spec_from_dict(trial.spec), spec_from_dict(baseline.spec)
    except TunerError as error:
        return error.message
    return "; ".join(contestants.differences(own, other)) or "the same"


# --- what a reader must know ------------------------------------------------------------------------------


def cautions(comparison: Comparison) -> list[str]:
    """Warnings on single contestants, each with its name, and those of the whole race."""
    named, found = labels(comparison), against_reference(comparison)
    lines = [f"{named[trial]}: {note}" for trial, one in found.items() for note in one.get("notes") or []]
    if any(map(verdict.is_older, found.values())):
        lines.append(verdict.OLDER)
    if any(map(is_rejected, found.values())) and not is_rejected(comparison.result):
        lines.append(f"What would help: {verdict.MEASURE_BETTER}")
    told = tuple(f"`{name}` failed:" for name in named.values())  # each has a box of its own
    notes = [str(note) for note in comparison.facts.get("notes") or []]
    return [*lines, *(note for note in notes if not note.startswith(told))]


def facts(comparison: Comparison) -> list[str]:
    """How the race was run, in a few words each."""
    result, protocol = comparison.facts, comparison.protocol
    lines = [f"{verdict.counted(result)} of {len(against_reference(comparison)) + 1}"]
    if result.get("wall_s") is not None:
        lines.append(format.duration(result["wall_s"]))
    lines.append(f"{protocol.get('precision', '')} (±{100 * protocol.get('target', 0):.2g} %)")
    if protocol.get("continues"):
        lines.append(f"goes on from {protocol['continues'][:12]}")
    return lines


# --- past races -------------------------------------------------------------------------------------------


def past_row(comparison: Comparison) -> dict[str, Any]:
    """Return one line of the list of past comparisons."""
    result = comparison.facts
    ended = comparison.state == "COMPLETE"
    against = labels(comparison)[comparison.baseline]
    return {
        "When": comparison.created_at,
        "Configurations": f"{', '.join(_others(comparison))} against {against}",
        "Result": headline(comparison) if ended else _unfinished(comparison),
        "Grade": result.get("grade") or "",
        "Machine": verdict.busy_words(result),
        "Effort": comparison.protocol.get("precision") or "",
        "Study": comparison.study,
        "Comparison": comparison.id[:12],
    }


def _others(comparison: Comparison) -> list[str]:
    """Names of all but the baseline, and but a default that nobody asked for."""
    named = [
        one.label
        for one in comparison.contestants
        if one.trial != comparison.baseline and one.role != "anchor"
    ]
    return named or ["nothing"]


def _unfinished(comparison: Comparison) -> str:
    words = {"WAITING": "waiting", "RUNNING": "running", "CANCELLED": "cancelled"}
    if comparison.error:
        return f"failed: {comparison.error['message']}"
    return words.get(comparison.state, "failed")
