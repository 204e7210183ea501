"""A verdict as text: result, precision, warnings and advice. Uses no Streamlit.

Only `is_rejected` decides whether a verdict is rejected. Background load rejects no verdict; its remark
appears next to all numbers of the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence import continuation
from core.evidence import speedup_interval as contrasts
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.evidence.verdict import (
    NOT_KNOWN,
    Color,
    Verdict,
    icon_and_color,
    is_rejected,
    measured,
    parts,
    precision_is_known,
    precision_text,
    ratio_is_known,
    words,
)
from core.run.explanation import Pair
from core.show import format, load_text
from core.show.words import STATE_WORDS
from core.spec.effort import DEFAULT_MARGIN, EFFORTS
from core.store import PRUNED, Store
from core.wire.errors import StoreError, TunerError
from core.wire.output_check import different_outputs_words
from core.wire.units import ci

Contrast = Mapping[str, Any]

OLDER = (
    "Measured by an earlier version of ORTune, with one process per configuration. The interval "
    "excludes variance between processes and may be too narrow."
)
BUSY_MEANING = "Ratios are paired within rounds; absolute times may be too high."
MEASURE_BETTER = "Measure longer, or on an idle machine."
_SOURCES = {
    "search": " (from the A/A controls of its search)",
    "history": " (from earlier comparisons on this machine)",
    "assumed": " (assumed: too few launches)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The content of the verdict card."""

    headline: str
    icon: str  # name of a Material Symbol
    color: Color
    against: str  # the reference, as text
    facts: list[str]
    noise: str  # parts of the interval; empty: unknown
    warnings: list[str]  # exceeded tolerances, batch sizes, drift
    reason: str  # why it is rejected; empty: it is valid
    advice: str  # what to do; empty: nothing
    rejected: bool


# --- comparisons --------------------------------------------------------------------------------------------


def is_older(contrast: Contrast) -> bool:
    """Whether a comparison had one process per configuration, as in earlier versions."""
    return not contrast.get("generations")


def background_load_text(result: Mapping[str, Any] | None) -> str:
    """Return the remark on background load for all numbers of a comparison; empty on an idle machine."""
    return str(((result or {}).get("busy") or {}).get("words") or "")


def background_load_mark(result: Mapping[str, Any] | None) -> str:
    """Return the short remark after a number in a list, " · background load"; empty on an idle machine."""
    return f" · {BUSY}" if background_load_text(result) else ""


def quality_details(result: Mapping[str, Any] | None) -> list[str]:
    """Return the reasons for the grade of a result, background load, and the remedy, as sentences."""
    found = result or {}
    told = [sentence(text) for name in ("grade_reason", "remedy") if (text := str(found.get(name) or ""))]
    if busy := background_load_text(found):
        told.insert(1, f"Measured {busy}. {BUSY_MEANING}")
    return told


def can_measure_longer(comparison: Comparison, trials: Sequence[Trial]) -> bool:
    """Whether a finished comparison can be measured longer.

    Args:
        comparison: has finished.
        trials: of its configurations, with or without raw measurements.
    """
    return (
        _has_launches(comparison)
        and continuation.remaining_error(comparison) > continuation.MIN_ERROR
        and len(trials) == len(comparison.contestants)
        and all(one.state == "COMPLETE" and PRUNED not in one.facts for one in trials)
    )


def continuable_comparison(store: Store, of: Pair) -> str:
    """Return the comparison of both results if it can be measured longer, else an empty text."""
    comparison_id = of.candidate.comparison
    if not comparison_id or comparison_id != of.baseline.comparison:
        return ""
    try:
        comparison = store.comparison(comparison_id)
    except StoreError:  # deleted in the meantime
        return ""
    return comparison_id if can_measure_longer(comparison, store.trials_of(comparison_id)) else ""


def _has_launches(comparison: Comparison) -> bool:
    return bool(comparison.facts.get("generations")) and not comparison.protocol.get("runs")


# --- one verdict --------------------------------------------------------------------------------------------


def contrasts_of(comparison: Comparison, trial_id: str) -> list[Contrast]:
    """Return the contrasts with `trial_id` as candidate: first against the baseline, then the ORT default.

    Empty if it is the baseline itself or the others failed.
    """
    found: Sequence[Contrast] = comparison.facts.get("contrasts") or []
    return [one for one in found if one["candidate"] == trial_id]


def label(comparison: Comparison, trial_id: str) -> str:
    """Return the label of a trial in the comparison."""
    return next((one.label for one in comparison.contestants if one.trial == trial_id), trial_id[:8])


def card(comparison: Comparison, contrast: Contrast) -> Card:
    """Return the card of one contrast of `comparison`."""
    rejected = is_rejected(contrast)
    icon, color = icon_and_color(contrast)
    return Card(
        headline=sentence(in_words(contrast), stop=""),
        icon=icon,
        color=color,
        against=_against(comparison, contrast),
        facts=_facts(comparison, contrast),
        noise=noise_words(contrast),
        warnings=_warnings(contrast),
        reason=_reason(comparison, contrast) if rejected else "",
        advice=_advice(comparison, contrast, rejected=rejected),
        rejected=rejected,
    )


def sentence(text: str, *, stop: str = ".") -> str:
    """Return `text` with a capital first letter and a final full stop."""
    text = text.removeprefix("not_steady: ")  # prefix in results of earlier versions
    return f"{text[:1].upper()}{text[1:].rstrip('.')}{stop}"


def _against(comparison: Comparison, contrast: Contrast) -> str:
    unit = ", per sample" if contrast.get("per_row") else ""
    return f"against {label(comparison, contrast['baseline'])}{unit}"


def _facts(comparison: Comparison, contrast: Contrast) -> list[str]:
    result = comparison.facts
    facts = [rounds_words(contrast)]
    if flagged := contrast.get("flagged_rounds"):
        facts[0] += f", {flagged} of them disturbed"
    if (wall_s := contrast.get("wall_s") or result.get("wall_s")) is not None:
        facts.append(format.duration(wall_s))
    facts.append(precision_words(contrast, comparison.protocol.get("target")))
    return facts


def rounds_words(of: Mapping[str, Any]) -> str:
    """Return the number of launches and rounds: "9 launches, 54 rounds"; of old comparisons "16 rounds".

    Args:
        of: a contrast, a self-test, or the result of a comparison.
    """
    rounds, made = of.get("rounds") or 0, of.get("generations")
    many = len(made) if isinstance(made, list) else made or 0
    text = f"{rounds:,} round{'s' * (rounds != 1)}"
    return f"{many:,} launch{'es' * (many != 1)}, {text}" if many else text


def precision_words(contrast: Contrast, target: float | None) -> str:
    """Return the precision of the ratio and its goal."""
    asked = f" (goal ±{100 * target:.2g} %)" if target else ""
    half = contrast.get("half_width")
    if half is None:
        return f"no interval{asked}"
    known = precision_is_known(half)
    return f"{precision_text(half)}{asked}" if known else f"{NOT_KNOWN}{asked}"


def noise_words(contrast: Contrast) -> str:
    """Return the parts of the interval: "between processes ±0.6 %, within ±2.6 %"; empty: unknown."""
    if is_older(contrast) or not precision_is_known(contrast.get("half_width")):
        return ""
    within, between = contrast["within_half_width"], contrast["between_half_width"]
    if within is None or between is None:
        return "variance between processes and within them cannot be separated"
    source = _SOURCES.get(contrast["between_from"], "")
    return f"between processes ±{100 * between:.2g} %{source}, within ±{100 * within:.2g} %"


def _warnings(contrast: Contrast) -> list[str]:
    """Return the notes of a contrast and of earlier versions, without the reason of a rejection."""
    told = contrast.get("holds_reason")
    notes = [sentence(str(note)) for note in contrast.get("notes") or [] if note != told]
    return [*notes, OLDER] if is_older(contrast) else notes


def _reason(comparison: Comparison, contrast: Contrast) -> str:
    return str(contrast.get("holds_reason") or comparison.facts.get("grade_reason") or "")


def _advice(comparison: Comparison, contrast: Contrast, *, rejected: bool) -> str:
    if rejected:
        return str(comparison.facts.get("remedy") or MEASURE_BETTER)
    if contrast["verdict"] != Verdict.UNDECIDED:
        return ""
    needed = launches_to_decide(comparison, contrast)
    more = needed is not None and needed > contrast["generations"]
    many = f"About {needed:,} launches would decide it. " if more else ""
    first = "Measure longer, choose" if _has_launches(comparison) else "Choose"
    return f"{many}{first} more effort or a larger budget, or use an idle machine."


def launches_to_decide(comparison: Comparison, contrast: Contrast) -> int | None:
    """Return about how many launches decide a verdict if ratio and noise stay the same; None: unknown.

    A verdict is decided when its interval excludes 1 or lies inside the margin. The interval must become
    narrower than the larger of the two distances.
    """
    sigma, between = contrast.get("sigma"), contrast.get("sigma_between")
    if is_older(contrast) or not sigma or between is None or not contrast.get("ratio"):
        return None
    margin = comparison.protocol.get("margin") or DEFAULT_MARGIN
    distance = abs(math.log(contrast["ratio"]))
    reach = max(distance, math.log1p(margin) - distance)
    each = contrast["rounds"] / contrast["generations"]
    protocol = comparison.protocol
    looks = protocol.get("splits") or continuation.parts(len(protocol.get("looks") or EFFORTS["quick"].looks))
    deviation = math.sqrt(between**2 + sigma**2 / each)
    return contrasts.predicted_launches(deviation, reach, looks=looks, prior_df=contrasts.ASSUMED_PRIOR.df)


# --- self-test ----------------------------------------------------------------------------------------------


def self_test_lines(comparison: Comparison) -> list[str]:
    """Return the result of the A/A test: the ORT default against its A/A control."""
    lines = []
    for test in comparison.facts.get("self_tests") or []:
        low, high = test.get("ratio_low"), test.get("ratio_high")
        when = _WHEN.get(test["when"], test["when"])
        told = f"{test['ratio']:.3f}×"
        if low is not None and high is not None:
            told = f"{told}, {ci(f'{low:.3f}', f'{high:.3f}')}" if ratio_is_known(low, high) else NOT_KNOWN
        lines.append(f"{when}: {told}, {rounds_words(test)}")
    return lines


_WHEN = {
    "during": "In the same rounds",
    "before": "Before the comparison",
    "after": "After the comparison",
    "alone": "Self-test",
}


# --- as text -----------------------------------------------------------------------------------------


def in_words(contrast: Contrast) -> str:
    """Return a contrast as text; a rejected one is not called a verdict."""
    if is_rejected(contrast):
        return f"rejected: no verdict ({measured(contrast)})"
    return words(contrast) + different_outputs_words(contrast)


def short(contrast: Contrast) -> str:
    """Return a verdict in a few characters, for a table or next to a number."""
    if is_rejected(contrast):
        return "rejected"
    said = Verdict.EQUIVALENT.word if contrast["verdict"] == Verdict.EQUIVALENT else parts(contrast)[0]
    return said + different_outputs_words(contrast)


def short_of(result: Mapping[str, Any]) -> str:
    """Return the verdict of a trial's result in a few characters; empty: none."""
    if (load := result.get("load")) is not None:
        return load_text.short(load)
    own: Sequence[Contrast] = result.get("contrasts") or []
    return short(own[0]) if own else ""


def stored_comparison(store: Store, comparison_id: str) -> Comparison | None:
    """Return a comparison; None: there is none, or it was deleted in the meantime."""
    try:
        return store.comparison(comparison_id) if comparison_id else None
    except TunerError:
        return None


def trial_verdict(trial: Trial, comparison: Comparison | None) -> tuple[str, Color, list[str]]:
    """Return the verdict in one sentence, its colour, and its basis."""
    if not trial.facts:
        return f"No numbers: {STATE_WORDS.get(trial.state, trial.state.lower())}.", "red", []
    if (load := load_text.load_of(trial)) is not None:
        return load_text.answer(load), load_text.color(load), []
    if trial.kind == "profile":
        return "Where a run spends its time. A profile has no verdict.", "gray", []
    own = contrasts_of(comparison, trial.id) if comparison is not None else []
    if comparison is None or not own:
        alone = "This is the baseline itself."
        return (
            (alone if comparison is not None else "Measured without a comparison, so there is no verdict."),
            "gray",
            [],
        )
    said = card(comparison, own[0])
    text = f"{said.headline}, {said.against}."
    more = [f"{one.headline}, {one.against}" for one in (card(comparison, each) for each in own[1:])]
    return text, said.color, [*said.facts, *([said.noise] if said.noise else []), *more]
