"""A verdict as text: what the race said, how sure that is, and what a reader must know beside it.

No Streamlit: what stands here is tested as text. `duel` draws it. A comparison that was graded F is rejected:
its numbers are told, but never as a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core import contrast as contrasts
from core.comparison import Comparison
from dashboard import format

Contrast = Mapping[str, Any]

REJECTED = "F"
LOOKS: Mapping[str, tuple[str, str]] = {
    # verdict -> icon, colour
    "FASTER": (":material/rocket_launch:", "green"),
    "SLOWER": (":material/trending_down:", "orange"),
    "EQUIVALENT": (":material/equal:", "blue"),
    "UNDECIDED": (":material/help:", "gray"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What the verdict card says."""

    headline: str
    icon: str
    color: str
    against: str  # what it was put against, in words
    facts: list[str]
    warnings: list[str]  # what changes the meaning of the numbers: outputs that differ, rows, drift
    advice: str  # what would help; empty where nothing must
    rejected: bool


def contrasts_of(comparison: Comparison, trial_id: str) -> list[Contrast]:
    """Contrasts of which `trial_id` is the candidate: first against the baseline, then the default.

    Empty where nothing stood against it, because it is the baseline itself or the others failed.
    """
    found: Sequence[Contrast] = (comparison.result or {}).get("contrasts") or []
    return [one for one in found if one["candidate"] == trial_id]


def label(comparison: Comparison, trial_id: str) -> str:
    """What the comparison calls a contestant."""
    return next((one.label for one in comparison.contestants if one.trial == trial_id), trial_id[:8])


def is_rejected(comparison: Comparison) -> bool:
    """True for a comparison that was graded F."""
    return (comparison.result or {}).get("grade") == REJECTED


def card(comparison: Comparison, contrast: Contrast) -> Card:
    """Return what may be said about one contrast of `comparison`."""
    said = contrasts.words(contrast)
    rejected = is_rejected(comparison)
    icon, color = LOOKS[contrast["verdict"]]
    return Card(
        headline=f"Rejected: no verdict ({said})" if rejected else sentence(said, stop=""),
        icon=":material/block:" if rejected else icon,
        color="red" if rejected else color,
        against=f"against {label(comparison, contrast['baseline'])}",
        facts=_facts(comparison, contrast),
        warnings=[sentence(str(note)) for note in contrast.get("notes") or []],
        advice=_advice(comparison, contrast, rejected=rejected),
        rejected=rejected,
    )


def sentence(text: str, *, stop: str = ".") -> str:
    """Return `text` with a capital at its beginning and a full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}{stop}"


def _facts(comparison: Comparison, contrast: Contrast) -> list[str]:
    result = comparison.result or {}
    facts = [f"{contrast['rounds']} round{'s' if contrast['rounds'] != 1 else ''}"]
    if flagged := contrast.get("flagged_rounds"):
        facts[0] += f", {flagged} of them disturbed"
    if (wall_s := contrast.get("wall_s") or result.get("wall_s")) is not None:
        facts.append(format.duration(wall_s))
    facts.append(precision_words(contrast, comparison.protocol.get("target")))
    return facts


def precision_words(contrast: Contrast, target: float | None) -> str:
    """Say how precisely the ratio is known, beside what was asked for."""
    asked = f" (asked: ±{100 * target:.2g} %)" if target else ""
    half = contrast.get("half_width")
    return f"no interval{asked}" if half is None else f"known to ±{100 * half:.2g} %{asked}"


def _advice(comparison: Comparison, contrast: Contrast, *, rejected: bool) -> str:
    if rejected:
        return str((comparison.result or {}).get("remedy") or "")
    if contrast["verdict"] != "UNDECIDED":
        return ""
    needed = rounds_to_decide(comparison, contrast)
    more = needed is not None and needed > contrast["rounds"]
    many = f"About {needed:,} rounds would decide it here. " if more else ""
    return f"{many}Choose a higher precision or a larger budget, or measure when the machine is quieter."


def rounds_to_decide(comparison: Comparison, contrast: Contrast) -> int | None:
    """Return about how many rounds an open question takes, if ratio and noise stay; None where unknown.

    Decided is what lies apart from 1, or wholly inside the margin: the interval must get narrower than the
    farther of the two.
    """
    sigma, margin = contrast.get("sigma"), comparison.protocol.get("margin") or contrasts.DEFAULT_MARGIN
    if not sigma or not contrast.get("ratio"):
        return None
    distance = abs(math.log(contrast["ratio"]))
    reach = max(distance, math.log1p(margin) - distance)
    looks = len(comparison.protocol.get("looks") or contrasts.PRECISIONS["quick"].looks)
    return contrasts.predicted_rounds(sigma, reach, looks=looks)


# --- a default is nothing but itself ------------------------------------------------------------------------


def self_test_lines(comparison: Comparison) -> list[str]:
    """Say how ONNX Runtime's default did against a twin of itself: what noise looks like here."""
    lines = []
    for test in (comparison.result or {}).get("self_tests") or []:
        low, high = test.get("ratio_low"), test.get("ratio_high")
        span = f", 95 % [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
        when = _WHEN.get(test["when"], test["when"])
        lines.append(f"{when}: {test['ratio']:.3f}×{span}, {test['rounds']} rounds")
    return lines


_WHEN = {"before": "Before the race", "after": "After the race", "alone": "Self-test"}


# --- a table of trials --------------------------------------------------------------------------------------


def short(result: Mapping[str, Any]) -> str:
    """A verdict in a few characters, for a table; empty where there is none."""
    own: Sequence[Contrast] = result.get("contrasts") or []
    if not own:
        return ""
    if result.get("grade") == REJECTED:
        return "rejected"
    contrast = own[0]
    ratio, low, high = contrast["ratio"], contrast["ratio_low"], contrast["ratio_high"]
    match contrast["verdict"]:
        case "FASTER":
            return f"{contrasts.ratio_text(ratio, low, high)}× faster"
        case "SLOWER":
            return f"{contrasts.ratio_text(1 / ratio, 1 / high, 1 / low)}× slower"
        case "EQUIVALENT":
            return "no difference"
    return "undecided"
