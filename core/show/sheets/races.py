"""Several trials as a sheet: those of a comparison, the points of a sweep, the history. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.verdict import look
from core.run.sweep import Measured
from core.show.sheets import Line, Note, Sheet, Table
from core.show.sheets.trials import grade, notes, proof
from core.show.standings import against_reference, headline, labels, order, ranks, reference
from core.show.words import changes_in_words, interval, lately, short, verdict
from core.wire.guard import MARK, breach
from core.wire.units import DASH, significant, size
from core.wire.units import ms_number as ms

# --- a comparison -------------------------------------------------------------------------------------------


def raced(race: Comparison, trials: Sequence[Trial]) -> Sheet:
    """Who raced: the verdict on each against the baseline, ranks with their ties, and what to doubt.

    Args:
        race: with a result.
        trials: of its contestants.
    """
    result, contrasts = race.facts, against_reference(race)
    before = race.protocol.get("continues")
    went_on = [f"It goes on with comparison {before}, whose generations it holds, too."] if before else []
    named = labels(race)
    own = [f"{named[trial]}: {note}" for trial, one in contrasts.items() for note in one["notes"]]
    ties = any(one["ties"] for one in ranks(race).values())
    return Sheet(
        f"{race.model_name} · comparison {race.id} · {proof(result)}",
        [
            Note(headline(race)),
            *grade(result),
            contestants(race, trials),
            *([Line("= tie: not clearly apart at the joint confidence of all pairs")] if ties else []),
            *notes(dict.fromkeys([*went_on, *race.warnings, *result["notes"], *own])),
        ],
    )


def contestants(race: Comparison, trials: Sequence[Trial]) -> Table:
    """Who raced, the best rank first."""
    places, contrasts, named = ranks(race), against_reference(race), labels(race)
    by_id = {trial.id: trial for trial in trials}
    ordered, against = order(race), reference(race)
    return Table(
        head=("rank", "configuration", "verdict", "p50 ms", "rows/s", "CPU ms", "memory", "trial", "remark"),
        rows=[
            (
                _rank(places.get(one)),
                named[one],
                "baseline" if one == against else _verdict(contrasts.get(one)),
                *_cells(by_id.get(one), contrasts.get(one)),
            )
            for one in ordered
        ],
        left=3,
        drop=("memory", "CPU ms", "rows/s", "trial"),
        colors=[look(found)[1] if (found := contrasts.get(one)) else None for one in ordered],
    )


def _rank(one: Mapping[str, Any] | None) -> str:
    return DASH if one is None else f"{one['rank']}{'=' if one['ties'] else ''}"


def _verdict(one: Mapping[str, Any] | None) -> str:
    return DASH if one is None else verdict(one)


def _cells(trial: Trial | None, contrast: Mapping[str, Any] | None) -> list[str]:
    if trial is None:
        return [DASH, DASH, DASH, DASH, DASH, "deleted"]
    result = trial.facts
    per_s = result.get("throughput_per_s")
    remarks: list[str] = []
    if result.get("fallback"):
        remarks.append(f"FALLBACK: ran on {', '.join(map(short, result['effective_providers']))}")
    if breach(result) or (contrast and contrast["outputs_differ"]):
        remarks.append(MARK)
    if trial.state != "COMPLETE":
        remarks.append(trial.state)
    if trial.error is not None:
        remarks.append(trial.error["message"])
    return [
        ms(trial.p50_s),
        DASH if per_s is None else significant(per_s),
        ms(result.get("cpu_s_per_inference")),
        size(result.get("peak_rss_bytes")),
        trial.id[:12],
        "; ".join(remarks),
    ]


# --- a sweep ------------------------------------------------------------------------------------------------


def points(found: Sequence[Measured]) -> Table:
    """One row per point of a sweep, in the order of its values."""
    names = list(found[0].values) if found else []
    return Table(
        head=(*names, "p50 ms", "95 % interval", "p95 ms", "rows/s", "trial", "remark"),
        rows=[(*(str(one.values[name]) for name in names), *_point(one)) for one in found],
        left=0,
        drop=("p95 ms", "trial", "95 % interval"),
    )


def _point(one: Measured) -> list[str]:
    remarks = [f"FALLBACK: ran on {', '.join(map(short, one.providers))}"] if one.fallback else []
    remarks += [MARK] if one.breach else []
    remarks += ["measured before"] if one.reused else []
    if one.latency is None:
        return [DASH, DASH, DASH, DASH, one.trial[:12], "; ".join([*remarks, one.state, one.error])]
    p95 = one.latency.get("p95_s")
    needed = (one.latency.get("needs_runs") or {}).get("p95_s", "more")
    return [
        ms(one.latency.get("p50_s")),
        interval(one.latency.get("p50_s_low"), one.latency.get("p50_s_high")),
        ms(p95) if p95 is not None else f"needs {needed} runs",
        DASH if one.throughput_per_s is None else significant(one.throughput_per_s),
        one.trial[:12],
        "; ".join(remarks),
    ]


# --- history ------------------------------------------------------------------------------------------------


def history(trials: Sequence[Trial]) -> Table:
    """One row per trial: what it is about, how sure it is, what was changed, and why it failed."""
    head = ("trial", "when", "model", "kind", "state", "grade", "changed", "batch", "p50 ms", "rows/s")
    return Table(
        head=(*head, "ran on", "remark"),
        rows=[_row(trial) for trial in trials],
        left=7,
        drop=("rows/s", "batch", "ran on", "kind", "state"),
        solid=("when", "trial", "state"),
    )


def rescued(files: Sequence[Path]) -> list[Note | Line]:
    """Where results lie that the store had no room for; nothing where there are none."""
    head = "Results that could not be stored yet; the next start with enough disk space takes them back:"
    return [Line(head, "orange"), *(Note(str(path)) for path in files)] if files else []


def _row(trial: Trial) -> tuple[str, ...]:
    result = trial.facts
    per_s = result.get("throughput_per_s")
    ran = "→".join(map(short, result.get("effective_providers") or [])) or DASH
    remarks = [f"FALLBACK: ran on {ran}"] if result.get("fallback") else []
    remarks += [MARK] if breach(result) else []
    if trial.state == "DAMAGED":
        remarks.append("damaged on the disk: no number of it is shown")
    elif trial.state != "COMPLETE":
        remarks.append(trial.state)
    remarks += [trial.error["message"]] if trial.error is not None else []
    return (
        trial.id[:12],
        lately(trial.created_at),
        trial.model_name,
        trial.kind,
        trial.state,
        result.get("grade") or DASH,
        changes_in_words(trial) or "nothing",
        str(result.get("batch_size", DASH)),
        ms(trial.p50_s),
        DASH if per_s is None else significant(per_s),
        ran,
        "; ".join(remarks),
    )
