"""The tables of compare, sweep and history for other programs: CSV with numbers in full, or Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from core.cli.grid import visible
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.run.sweep import Measured
from core.show.sheets import Table
from core.show.standings import against_reference, order, ranks
from core.show.words import changes_in_words
from core.wire.guard import breach

Record = Mapping[str, Any]  # name of a column, with its unit -> value; None: not known

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def csv_text(records: Sequence[Record]) -> str:
    """Return records of one kind as CSV with a head, without the last line's end."""
    file = io.StringIO()
    if records:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([visible(name) for name in records[0]])
        writer.writerows([_cell(value) for value in one.values()] for one in records)
    return file.getvalue().rstrip("\n")


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def md_text(content: Table) -> str:
    """Return a table as Markdown."""
    head = content.head
    lines = [_md_row(head), _md_row(["---"] * len(head)), *(_md_row(row) for row in content.rows)]
    return "\n".join(lines)


def _md_row(cells: Sequence[str]) -> str:
    escaped = (visible(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return f"| {' | '.join(escaped)} |"


# --- records ------------------------------------------------------------------------------------------------


def history_records(trials: Sequence[Trial]) -> list[Record]:
    """One record per trial."""
    return [
        {
            "trial": trial.id,
            "when": datetime.fromtimestamp(trial.created_at, tz=UTC).isoformat(timespec="seconds"),
            "model": trial.model_name,
            "kind": trial.kind,
            "state": trial.state,
            "grade": trial.facts.get("grade"),
            "changed": changes_in_words(trial),
            **_numbers(trial),
            "ran_on": " ".join(trial.facts.get("effective_providers") or []),
            **_doubts(trial),
        }
        for trial in trials
    ]


def comparison_records(race: Comparison, trials: Sequence[Trial]) -> list[Record]:
    """One record per contestant, the best rank first; ratios above 1 are faster than the baseline."""
    places, contrasts = ranks(race), against_reference(race)
    by_id = {trial.id: trial for trial in trials}
    contestants = {one.trial: one for one in race.contestants}
    found: list[Record] = []
    for one in map(contestants.__getitem__, order(race)):
        contrast, trial = contrasts.get(one.trial, {}), by_id.get(one.trial)
        found.append(
            {
                "rank": places.get(one.trial, {}).get("rank"),
                "configuration": one.label,
                "role": "baseline" if one.trial == race.baseline else one.role,
                **{
                    name: contrast.get(name)
                    for name in ("verdict", "ratio", "ratio_low", "ratio_high", "grade")
                },
                **_numbers(trial),
                "trial": one.trial,
                "state": "deleted" if trial is None else trial.state,
                **_doubts(trial),
            }
        )
    return found


def sweep_records(points: Sequence[Measured]) -> list[Record]:
    """One record per point."""
    return [
        {
            **one.values,
            **_latency(one.latency),
            "rows_per_s": one.throughput_per_s,
            "trial": one.trial,
            "state": one.state,
            "measured_before": one.reused,
            "fallback": one.fallback,
            "outputs_differ": bool(one.breach),
            "error": one.error,
        }
        for one in points
    ]


def _numbers(trial: Trial | None) -> dict[str, Any]:
    result: Mapping[str, Any] = trial.facts if trial is not None else {}
    return {
        "batch_size": result.get("batch_size"),
        **_latency(result.get("latency")),
        "rows_per_s": result.get("throughput_per_s"),
        "cpu_ms": _ms(result.get("cpu_s_per_inference")),
        "peak_rss_bytes": result.get("peak_rss_bytes"),
    }


def _latency(latency: Mapping[str, Any] | None) -> dict[str, float | None]:
    known = latency or {}
    names = ("p50_s", "p50_s_low", "p50_s_high", "p95_s")
    return {name.replace("_s", "_ms", 1): _ms(known.get(name)) for name in names}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else float(f"{seconds * 1e3:.12g}")  # without the noise of the factor


def _doubts(trial: Trial | None) -> dict[str, Any]:
    result: Mapping[str, Any] = trial.facts if trial is not None else {}
    return {
        "fallback": bool(result.get("fallback")),
        "outputs_differ": bool(breach(result)),
        "error": trial.error["message"] if trial is not None and trial.error is not None else "",
    }
