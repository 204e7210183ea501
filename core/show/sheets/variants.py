"""Sheets of model variants: results of transform steps, output errors, lists of variants. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core import wire
from core.evidence.input_description import input_text
from core.evidence.verdict import Color
from core.run.variants import Branch, creation_check, lineage, precision_of_model, steps_of, tree, variant_of
from core.show import format
from core.show.sheets import Fact, Note, Sheet
from core.show.sheets.trials import notes
from core.show.table import Table, texts
from core.show.verdict import in_words
from core.show.words import counted
from core.spec.datasets import DatasetSpec
from core.spec.steps import Step, StepType, chain_text, step_type
from core.store import ModelRecord
from core.wire.access import library_note
from core.wire.errors import SpecError
from core.wire.output_check import ADVICE, OUTPUTS_DIFFER, rows_of
from core.wire.units import DASH, clipped, significant, size

Verdicts = Mapping[str, Mapping[str, Any]]
Facts = Mapping[str, Any]  # `details["variant"]` of a record

LEAST = 1e-5  # smaller shares are shown as below this
LISTED = 8  # most names of a list; the rest is counted

# --- transform ----------------------------------------------------------------------------------------------


def transform_sheet(
    records: Sequence[ModelRecord], reused: int, written: Sequence[str] | None, told: Sequence[str]
) -> Sheet:
    """Return the sheet of a chain of steps.

    Args:
        records: one per step; the last one is the final variant.
        reused: number of steps that were reused.
        written: files that were copied to the output; None: none requested.
        told: further notes.
    """
    last = records[-1]
    remarks = dict.fromkeys(one for record in records for one in _remarks(record))
    below = [
        *remarks,
        *(Note(f"input: {one}") for one in _inputs_text(records)),
        *notes(told),
        *([Note(f"{counted(reused, 'step')} of {len(records)} were reused from earlier.")] if reused else []),
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


def _inputs_text(records: Sequence[ModelRecord]) -> list[str]:
    """Return the inputs of the output comparison as text, one entry for each distinct kind."""
    found = (one for record in records for one in (variant_of(record) or {}).get("fed", []))
    return list(dict.fromkeys(input_text(one) for one in found))


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
        ", ".join([percent(error), *([OUTPUTS_DIFFER] if breach(record) else [])]),
        significant(variant["seconds"], 3),
    )


def _remarks(record: ModelRecord) -> list[Note]:
    """Return checks with remedies, notes, and where to use the file."""
    variant = variant_of(record)
    if variant is None:
        return []
    step = step_type(variant["steps"][-1]["kind"])
    found = []
    if why := breach(record):
        found.append(Note(f"{OUTPUTS_DIFFER.upper()}  {record.name}: {why.rstrip('.')}. {ADVICE}", "orange"))
    for one in variant["checks"]:
        color: Color | None = "orange" if one["level"] == "warning" else None
        found.append(Note(f"{one['level']}: {one['text']}{_remedy(step, one['remedy'])}", color))
    if variant["hardware_bound"]:
        found.append(Note(f"hardware-bound: {variant['hardware_bound']}"))
    return [*found, *notes([*variant["notes"], *native_libraries_text(variant.get("libraries", {}))])]


def native_libraries_text(libraries: Mapping[str, str]) -> list[str]:
    """Return the native libraries that ran, from their names and hashes."""
    return [library_note(name, digest.removeprefix("sha256:")) for name, digest in libraries.items()]


def _remedy(step: StepType, options: Mapping[str, Any]) -> str:
    own = {one.name for one in step.options}
    texts = [
        f"--option {step.flag.removeprefix('--')}.{name}={_written(value)}"
        for name, value in options.items()
        if name in own
    ]
    return f" Try {' '.join(texts)}." if texts else ""


def _written(value: Any) -> str:
    """Return a value in the form that `Option.parse` reads."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# --- one variant --------------------------------------------------------------------------------------------


def creation_facts(record: ModelRecord) -> list[Fact]:
    """Return how a variant was created, with its checks; empty for an original."""
    facts = variant_of(record)
    if facts is None:
        return []
    error, calibration = facts["error"], facts.get("calibration")
    found = [
        Fact("original", clipped(facts["root_name"])),
        Fact("made from", clipped(facts["parent_name"])),
        Fact("tool", f"{facts['tool']} {facts['tool_version']}, ONNX Runtime {facts['onnxruntime']}"),
        Fact("made", f"{format.when(facts['made_at'])}, in {format.duration(facts['seconds'])}"),
        Fact("largest error", f"{number(error['max_abs'])} absolute, {percent(error['max_rel'])} relative"),
        Fact("mean error", f"{number(error['mean_abs'])} absolute, {percent(error['mean_rel'])} relative"),
        Fact("checked on", f"{facts['error_seeds']} random inputs"),
    ]
    if any(step.type.needs_calibration for step in steps_of(record)):
        found.append(Fact("calibrated on", _calibrated_on(calibration) if calibration else "random values"))
    found += [Fact("input", one) for one in _inputs_text([record])]
    found += [Fact("native code", f"{name}, {digest}") for name, digest in facts.get("libraries", {}).items()]
    if facts["files"]:
        found.append(Fact("further files", ", ".join(facts["files"])))
    scalars = {name: value for name, value in facts["facts"].items() if isinstance(value, str | int | float)}
    return found + [Fact(name.replace("_", " "), _scalar(value)) for name, value in scalars.items()]


def step_line(step: Step) -> str:
    """Return a step with the options that differ from its defaults."""
    changed = [f"{name} {option_text(value)}" for name, value in step.changed().items()]
    return f"{step.type.title}: {'; '.join(changed)}" if changed else step.type.title


def breach(record: ModelRecord) -> str:
    """Return why the output error exceeds the tolerance of the precision; empty: it does not."""
    verdict = creation_check(record)
    return verdict.why if verdict is not None and verdict.breach else ""


def error_text(error: wire.OutputError) -> str:
    """Return the largest output error versus the original, or why the outputs cannot be compared."""
    return error["difference"] or percent(error["max_rel"])


def agreement_text(error: wire.OutputError) -> str:
    """Return how often the top class agrees, and of how many samples; empty: no output holds classes."""
    share = agreement_share(error)
    return f"same top-1: {share}" if share else ""


def agreement_share(error: wire.OutputError) -> str:
    """Return the share of samples with the same top class, and their number: "100 % of 7 samples"."""
    agreement = error["top1_agreement"]
    return "" if agreement is None else f"{percent(agreement)} of {rows_of(error)}"


def size_text(facts: Facts) -> str:
    """Return the size and its change: `0.31 MiB (−74 %)`."""
    before, after = facts["size_before_bytes"], facts["size_bytes"]
    change = after / before - 1 if before else 0.0
    return f"{size(after)} ({format.percent(change, 0)})" if abs(change) >= 0.005 else size(after)


def percent(share: float | None) -> str:
    """Return a share as `0.12 %` with three digits; only a complete share is `100 %`."""
    if share is None:
        return DASH
    value = 100 * share
    text = f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
    if text == "100" and share < 1:
        text = "99.9"  # 100 % only if complete
    if 0 < share < LEAST:
        text = f"< {100 * LEAST:g}"
    return f"{text} %"


def number(value: float | None) -> str:
    """Return a small number with three digits, `1.2e-05`."""
    return DASH if value is None else f"{value:.3g}"


def option_text(value: object) -> str:
    """Return an option's value; a list is joined by commas, and a long one is truncated."""
    if not isinstance(value, list):
        return format.value(value)
    more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
    return ", ".join(map(str, value[:LISTED])) + more or "none"


def _scalar(value: object) -> str:
    return number(value) if isinstance(value, float) else option_text(value)


def _calibrated_on(data: Mapping[str, Any]) -> str:
    """Return the path of the data, and which part of it was used."""
    share = data.get("calibration_share", DatasetSpec.model_fields["calibration_share"].default)
    part = {"calibration": f", {share:.0%} of the samples", "rest": f", without {share:.0%} of the samples"}
    return str(data["path"]) + part.get(data.get("part", ""), "")


# --- lists --------------------------------------------------------------------------------------------------


def listed(families: Sequence[tuple[Sequence[ModelRecord], Verdicts]]) -> Table:
    """Return the table of variants below their originals, with size, error and speed-up.

    Args:
        families: the members of each, and the verdicts of comparisons by content hash.
    """
    return Table(
        columns=texts("model", "precision", "steps", "error", "size", "versus original", "hash", left=3),
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
        steps_words(record),
        percent(facts["error"]["max_rel"]),
        size(facts["size_bytes"]),
        _against(sha, known),
        sha[:12],
    )


def steps_words(record: ModelRecord) -> str:
    """Return the chain of steps from the original; empty: it is an original."""
    try:
        return chain_text(steps_of(record))
    except SpecError:
        return "steps of another version"


def _against(sha: str, known: Verdicts) -> str:
    found = known.get(sha)
    if found is None:
        return "not compared"
    return str(found["verdict"]).lower() if found["ratio_low"] is None else in_words(found)
