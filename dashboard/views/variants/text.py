"""A variant in words: how far its outputs are from the original's, what was done, what a check would change.

No Streamlit: what stands here is tested as text. The other `variant_*` panels draw it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import wire
from core.evidence.fed import fed_from_dict, fed_words
from core.evidence.verdict import is_rejected, look, measured, parts
from core.run import variants
from core.show import verdict as verdicts
from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.spec.steps import Step
from core.store import ModelRecord
from dashboard import format

Facts = Mapping[str, Any]  # `details["variant"]` of a record

PRECISIONS: Mapping[str, tuple[str, str]] = {
    # precision -> words, colour of the badge
    "fp32": ("FP32", "gray"),
    "fp16": ("FP16", "violet"),
    "mixed": ("FP16 mixed", "violet"),
    "int8": ("INT8", "blue"),
    "int4": ("INT4", "blue"),
}
NOT_RACED = "not raced yet"
LEAST = 1e-5  # a smaller share is only said to be smaller
LISTED = 8  # names of a list that are written out


def error_text(error: wire.OutputError) -> str:
    """How far the outputs are from the original's: the largest error, or why they cannot be compared."""
    return error["difference"] or percent(error["max_rel"])


def agreement_text(error: wire.OutputError) -> str:
    """How often the largest class is the same; empty where no output holds classes."""
    agreement = error["top1_agreement"]
    return "" if agreement is None else f"same top-1: {percent(agreement)}"


def percent(share: float | None) -> str:
    """A share as `0.12 %`, with as many digits as tell something; all of it is `100 %`, almost all is not."""
    if share is None:
        return format.DASH
    text = f"{100 * share:.3g}"
    if text == "100" and share < 1:
        text = "99.9"  # never all where something is missing
    if 0 < share < LEAST:
        text = f"< {100 * LEAST:g}"
    return f"{text} %"


def breach(record: ModelRecord) -> str:
    """Why the outputs are too far from the original's for what it computes in; empty where they are not."""
    judged = variants.judged(record)
    return judged.why if judged is not None and judged.breach else ""


def size_text(facts: Facts) -> str:
    """The size, and how it changed: `0.31 MiB (−74 %)`."""
    before, after = facts["size_before_bytes"], facts["size_bytes"]
    change = after / before - 1 if before else 0.0
    return (
        f"{format.size(after)} ({format.percent(change, 0)})" if abs(change) >= 0.005 else format.size(after)
    )


# --- a verdict in the tree ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the latest race said of a variant against its original on default settings."""

    words: str
    interval: str  # what the verdict rests on, and its grade; empty: there was no race
    remark: str  # on the machine, or on how an earlier version raced; empty: there is none
    icon: str
    color: str


def verdict_of(found: Mapping[str, Any] | None) -> Verdict:
    """Return the verdict in words with its interval.

    Args:
        found: one of `variants.verdicts`; None: it has not raced.
    """
    if found is None:
        return Verdict(
            words=NOT_RACED, interval="", remark="", icon=":material/hourglass_empty:", color="gray"
        )
    icon, color = look(found)
    known = None not in (found["ratio_low"], found["ratio_high"])
    rests_on = parts(found)[1] if known else "too few rounds for an interval"
    if known and is_rejected(found):
        rests_on = measured(found)
    remarks = [verdicts.busy_words(found), "one pair of processes" if verdicts.is_older(found) else ""]
    return Verdict(
        words=verdicts.short(found),
        interval=f"{rests_on}, grade {found['grade']}",
        remark="; ".join(one for one in remarks if one),
        icon=format.icon(icon),
        color=color,
    )


# --- what was done ------------------------------------------------------------------------------------------


def step_line(step: Step) -> str:
    """A step with the options that differ from its defaults."""
    changed = [f"{name} {_value(value)}" for name, value in step.changed().items()]
    return f"{step.type.title}: {'; '.join(changed)}" if changed else step.type.title


def fact_rows(record: ModelRecord, facts: Facts) -> dict[str, str]:
    """What a reader may want to know of how it was made, as name -> text."""
    calibration = facts.get("calibration")
    error = facts["error"]
    rows = {
        "Original": format.plain(facts["root_name"]),
        "Made from": format.plain(facts["parent_name"]),
        "Tool": format.plain(f"{facts['tool']} {facts['tool_version']}"),
        "ONNX Runtime": format.plain(facts["onnxruntime"]),
        "Made": f"{format.when(facts['made_at'])}, in {format.duration(facts['seconds'])}",
        "Largest error": f"{number(error['max_abs'])} absolute, {percent(error['max_rel'])} relative",
        "Mean error": f"{number(error['mean_abs'])} absolute, {percent(error['mean_rel'])} relative",
        "Checked on": f"{facts['error_seeds']} random feeds",
        "File": f"`{record.path}`",
    }
    if any(step.type.needs_calibration for step in variants.steps_of(record)):
        rows["Calibrated on"] = _calibrated_on(calibration) if calibration else "random values"
    if shown := facts.get("fed"):
        rows["Fed"] = "; ".join(format.plain(fed_words(fed_from_dict(one))) for one in shown)
    if facts["files"]:
        rows["Further files"] = ", ".join(f"`{name}`" for name in facts["files"])
    scalars = {name: value for name, value in facts["facts"].items() if isinstance(value, str | int | float)}
    return rows | {_title(name): format.plain(_scalar(value)) for name, value in scalars.items()}


def _calibrated_on(data: Mapping[str, Any]) -> str:
    """The path of the data, and which part of them."""
    share = data.get("calibration_share", DatasetSpec.model_fields["calibration_share"].default)
    part = {"calibration": f", {share:.0%} of the rows", "rest": f", without {share:.0%} of the rows"}
    return format.plain(data["path"]) + part.get(data.get("part", ""), "")


def _scalar(value: object) -> str:
    return number(value) if isinstance(value, float) else _value(value)


def _value(value: object) -> str:
    """An option's value; a list is no order of preference here, and a long one is counted."""
    if not isinstance(value, list):
        return format.value(value)
    more = f" and {len(value) - LISTED} more" if len(value) > LISTED else ""
    return ", ".join(map(str, value[:LISTED])) + more or "none"


def _title(name: str) -> str:
    return format.plain(name.replace("_", " ").capitalize())


def number(value: float | None) -> str:
    """A small number with three digits, `1.2e-05`."""
    return format.DASH if value is None else f"{value:.3g}"


# --- a remedy -----------------------------------------------------------------------------------------------


def corrected(steps: Sequence[Step], remedy: Mapping[str, Any]) -> list[Step] | None:
    """Return the chain with the options that a check recommends in its last step; None where none is one.

    Raises:
        SpecError: a value that the option cannot have.
    """
    last = steps[-1]
    own = {name: value for name, value in remedy.items() if name in last.options}
    if not own or all(last.options[name] == value for name, value in own.items()):
        return None
    return [*steps[:-1], Step(last.kind, {**last.options, **own})]


def remedy_text(remedy: Mapping[str, Any]) -> str:
    """The options that a remedy changes: `reduce_range on`."""
    return ", ".join(f"{name} {_value(value)}" for name, value in remedy.items())


def with_excluded(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return the chain whose last step leaves these nodes in float too.

    Raises:
        SpecError: the last step can exclude none.
    """
    last = steps[-1]
    last.type.option("exclude_nodes")  # says so where there is none
    excluded = list(dict.fromkeys([*last.options.get("exclude_nodes", []), *names]))
    return [*steps[:-1], Step(last.kind, {**last.options, "exclude_nodes": excluded})]


def calibration_of(facts: Facts) -> DatasetSpec | None:
    """The data that a variant was calibrated on; None: random values, or none were needed.

    Raises:
        SpecError: this version cannot read them.
    """
    data = facts.get("calibration")
    return dataset_from_dict(data) if data else None
