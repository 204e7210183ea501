"""A variant in words that only the browser has: its badge, its verdict, what a check would change.

No Streamlit: what stands here is tested as text. What a terminal says as well is in `core.show`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.quality import quality
from core.evidence.verdict import is_rejected, look, measured, parts
from core.run import variants
from core.show import verdict as verdicts
from core.show.sheets import variants as sheets
from core.show.sheets.variants import option_text
from core.spec.datasets import DatasetSpec, dataset_from_dict
from core.spec.steps import Step
from core.store import ModelRecord
from dashboard import format

PRECISIONS: Mapping[str, tuple[str, str]] = {
    # precision -> words, colour of the badge
    "fp32": ("FP32", "gray"),
    "fp16": ("FP16", "violet"),
    "mixed": ("FP16 mixed", "violet"),
    "int8": ("INT8", "blue"),
    "int4": ("INT4", "blue"),
}
NOT_RACED = "not measured yet"


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
    good = quality(found, [found])
    remarks = [verdicts.busy_words(found), "one launch" if verdicts.is_older(found) else ""]
    return Verdict(
        words=verdicts.short(found),
        interval=f"{rests_on}, grade {good.words}" if good is not None else rests_on,
        remark="; ".join(one for one in remarks if one),
        icon=format.icon(icon),
        color=color,
    )


def headline(record: ModelRecord, found: Mapping[str, Any] | None) -> str:
    """Return what a variant brings and costs, in one sentence without markup.

    Args:
        record: the variant.
        found: its verdict, one of `variants.verdicts`; None: it has not raced.
    """
    facts = variants.variant_of(record)
    assert facts is not None, record.name
    said = verdict_of(found)
    speed = f"{said.words}, {said.interval}" if said.interval else said.words
    error = sheets.error_text(facts["error"])
    return f"{record.name}: {speed}; {sheets.size_text(facts)}; outputs off by {error}."


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
    return ", ".join(f"{name} {option_text(value)}" for name, value in remedy.items())


def with_excluded(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return the chain whose last step leaves these nodes in float too.

    Raises:
        SpecError: the last step can exclude none.
    """
    last = steps[-1]
    last.type.option("exclude_nodes")  # says so where there is none
    excluded = list(dict.fromkeys([*last.options.get("exclude_nodes", []), *names]))
    return [*steps[:-1], Step(last.kind, {**last.options, "exclude_nodes": excluded})]


def calibration_of(facts: Mapping[str, Any]) -> DatasetSpec | None:
    """The data that a variant was calibrated on; None: random values, or none were needed.

    Raises:
        SpecError: this version cannot read them.
    """
    data = facts.get("calibration")
    return dataset_from_dict(data) if data else None
