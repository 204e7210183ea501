"""Browser texts of a variant: badge, verdict, and the changes that a check recommends.

Uses no Streamlit, so it is tested as text. Texts shared with the terminal are in `core.show`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api import variants
from core.evidence.quality import quality
from core.evidence.verdict import icon_and_color, is_rejected, measured, parts
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
NOT_COMPARED = "not measured yet"


# --- verdict in the tree ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict of the latest comparison of a variant with its original, on default settings."""

    words: str
    interval: str  # behind the verdict, with its grade; empty: never compared
    remark: str  # on background load, or on the method of an earlier version; may be empty
    icon: str
    color: str


def verdict_of(found: Mapping[str, Any] | None) -> Verdict:
    """Return the verdict in words with its interval.

    Args:
        found: one of `variants.verdicts`; None: never compared.
    """
    if found is None:
        return Verdict(
            words=NOT_COMPARED, interval="", remark="", icon=":material/hourglass_empty:", color="gray"
        )
    icon, color = icon_and_color(found)
    known = None not in (found["ratio_low"], found["ratio_high"])
    rests_on = parts(found)[1] if known else "too few rounds for an interval"
    if known and is_rejected(found):
        rests_on = measured(found)
    good = quality(found, [found])
    remarks = [verdicts.background_load_text(found), "one launch" if verdicts.is_older(found) else ""]
    return Verdict(
        words=verdicts.short(found),
        interval=f"{rests_on}, grade {good.words}" if good is not None else rests_on,
        remark="; ".join(one for one in remarks if one),
        icon=format.icon(icon),
        color=color,
    )


def headline(record: ModelRecord, found: Mapping[str, Any] | None) -> str:
    """Return speed, size and error of a variant in one sentence without markup.

    Args:
        record: the variant.
        found: its verdict, one of `variants.verdicts`; None: never compared.
    """
    facts = variants.variant_of(record)
    assert facts is not None, record.name
    said = verdict_of(found)
    speed = f"{said.words}, {said.interval}" if said.interval else said.words
    error = sheets.error_text(facts["error"])
    return f"{record.name}: {speed}; {sheets.size_text(facts)}; outputs off by {error}."


# --- a remedy -----------------------------------------------------------------------------------------------


def corrected(steps: Sequence[Step], remedy: Mapping[str, Any]) -> list[Step] | None:
    """Return the steps with a check's recommended options in the last one; None where nothing changes.

    Raises:
        SpecError: a value that the option cannot have.
    """
    last = steps[-1]
    own = {name: value for name, value in remedy.items() if name in last.options}
    if not own or all(last.options[name] == value for name, value in own.items()):
        return None
    return [*steps[:-1], Step(last.kind, {**last.options, **own})]


def remedy_text(remedy: Mapping[str, Any]) -> str:
    """Return the options that a remedy changes: `reduce_range on`."""
    return ", ".join(f"{name} {option_text(value)}" for name, value in remedy.items())


def with_excluded(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return the steps, with these nodes also excluded from the last one.

    Raises:
        SpecError: the last step cannot exclude nodes.
    """
    last = steps[-1]
    last.type.option("exclude_nodes")  # raises where the step has none
    excluded = list(dict.fromkeys([*last.options.get("exclude_nodes", []), *names]))
    return [*steps[:-1], Step(last.kind, {**last.options, "exclude_nodes": excluded})]


def calibration_of(facts: Mapping[str, Any]) -> DatasetSpec | None:
    """Return a variant's calibration data; None: random values, or none needed.

    Raises:
        SpecError: this version cannot read them.
    """
    data = facts.get("calibration")
    return dataset_from_dict(data) if data else None
