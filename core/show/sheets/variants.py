"""Variants of models as sheets: what a chain of steps made, and what there is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.evidence.fed import fed_from_dict, fed_words
from core.evidence.verdict import Color
from core.run.variants import Branch, judged, lineage, precision_of_model, steps_of, tree, variant_of
from core.show.sheets import Note, Sheet
from core.show.sheets.trials import notes
from core.show.table import Table, texts
from core.show.words import counted, verdict
from core.spec.steps import StepType, chain_text, step_type
from core.store import ModelRecord
from core.wire.errors import SpecError
from core.wire.guard import ADVICE, MARK
from core.wire.units import DASH, significant, size

Verdicts = Mapping[str, Mapping[str, Any]]

# --- what a chain made --------------------------------------------------------------------------------------


def transformed(
    records: Sequence[ModelRecord], reused: int, written: Sequence[str] | None, told: Sequence[str]
) -> Sheet:
    """What a chain of steps made, and what to know of it.

    Args:
        records: of each step, the last one the result.
        reused: steps that had been made before.
        written: files that were copied out; None: none was asked for.
        told: notes.
    """
    last = records[-1]
    remarks = dict.fromkeys(one for record in records for one in _remarks(record))
    below = [
        *remarks,
        *(Note(f"fed: {one}") for one in _fed(records)),
        *notes(told),
        *([Note(f"{counted(reused, 'step')} of {len(records)} had been made before.")] if reused else []),
        *(Note(one) for one in written or [last.path]),
    ]
    columns = texts("step", "tool", "model", "nodes", "size", "largest error", "seconds", left=3)
    return Sheet(
        f"{last.name}: {lineage(last) or 'no change'}",
        [
            Table(columns=columns, rows=[_row(one) for one in records]),
            replace(below[0], apart=True),
            *below[1:],
        ],
    )


def _fed(records: Sequence[ModelRecord]) -> list[str]:
    """What outputs were compared on, in words; of every step, where they differ."""
    found = (one for record in records for one in (variant_of(record) or {}).get("fed", []))
    return list(dict.fromkeys(fed_words(fed_from_dict(one)) for one in found))


def _row(record: ModelRecord) -> tuple[str, ...]:
    variant = variant_of(record)
    if variant is None:
        return ("no change", DASH, record.name, str(record.info["nodes"]), *(DASH,) * 3)
    error = variant["error"]["max_rel"]
    return (
        step_type(variant["steps"][-1]["kind"]).title,
        f"{variant['tool']} {variant['tool_version']}",
        record.name,
        f"{variant['nodes_before']} → {variant['nodes_after']}",
        f"{size(variant['size_before_bytes'])} → {size(variant['size_bytes'])}",
        ", ".join([DASH if error is None else _percent(error), *([MARK] if _breach(record) else [])]),
        significant(variant["seconds"], 3),
    )


def _remarks(record: ModelRecord) -> list[Note]:
    """Checks with what would help, notes, and where the file belongs."""
    variant = variant_of(record)
    if variant is None:
        return []
    step = step_type(variant["steps"][-1]["kind"])
    found = []
    if why := _breach(record):
        found.append(Note(f"{MARK.upper()}  {record.name}: {why.rstrip('.')}. {ADVICE}", "orange"))
    for one in variant["checks"]:
        color: Color | None = "orange" if one["level"] == "warning" else None
        found.append(Note(f"{one['level']}: {one['text']}{_remedy(step, one['remedy'])}", color))
    if variant["hardware_bound"]:
        found.append(Note(f"hardware-bound: {variant['hardware_bound']}"))
    return [*found, *notes(variant["notes"])]


def _breach(record: ModelRecord) -> str:
    """Why the outputs are too far from the original's; empty where they are not, or it cannot be told."""
    verdict = judged(record)
    return verdict.why if verdict is not None and verdict.breach else ""


def _remedy(step: StepType, options: Mapping[str, Any]) -> str:
    own = {one.name for one in step.options}
    texts = [
        f"--option {step.flag.removeprefix('--')}.{name}={_written(value)}"
        for name, value in options.items()
        if name in own
    ]
    return f" Try {' '.join(texts)}." if texts else ""


def _written(value: Any) -> str:
    """A value as `Option.parse` reads it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# --- what there is ------------------------------------------------------------------------------------------


def listed(families: Sequence[tuple[Sequence[ModelRecord], Verdicts]]) -> Table:
    """Variants below their originals, with what each costs and brings.

    Args:
        families: the members of each, and what races showed: content hash -> verdict.
    """
    return Table(
        columns=texts("model", "precision", "steps", "error", "size", "against the original", "hash", left=3),
        rows=[_branch(branch, known) for members, known in families for branch in tree(members)],
        drop=("hash", "size"),
        solid=("model",),
    )


def _branch(branch: Branch, known: Verdicts) -> tuple[str, ...]:
    record, facts = branch.record, variant_of(branch.record)
    precision = precision_of_model(record)
    name, sha = f"{branch.prefix}{record.name}", record.content_sha256
    if facts is None:
        return (name, precision, "original", DASH, size(record.info["size_bytes"]), DASH, sha[:12])
    return (
        name,
        precision,
        _steps(record),
        _error(facts),
        size(facts["size_bytes"]),
        _against(sha, known),
        sha[:12],
    )


def _steps(record: ModelRecord) -> str:
    try:
        return chain_text(steps_of(record))
    except SpecError:
        return "steps of another version"


def _error(facts: Mapping[str, Any]) -> str:
    found = facts["error"]["max_rel"]
    return DASH if found is None else _percent(found)


def _percent(share: float) -> str:
    value = 100 * share
    return f"{value:.2g} %" if value < 10 else f"{value:,.0f} %"  # never 1e+02


def _against(sha: str, known: Verdicts) -> str:
    found = known.get(sha)
    if found is None:
        return "not raced"
    return str(found["verdict"]).lower() if found["ratio_low"] is None else verdict(found)
