"""Sentences about a comparison: fastest, equivalent and undecided configurations.

Pure functions.

A configuration that `is_rejected` rejects is not ranked: its numbers are reported, but never as a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence import continuation, ranking
from core.evidence.comparison import Comparison
from core.evidence.ranking import Rank
from core.evidence.verdict import Verdict, is_rejected, precision_is_known, precision_text
from core.show.format import duration
from core.show.verdict import MEASURE_BETTER, OLDER, in_words, is_older, rounds_words, sentence
from core.show.words import STATE_WORDS
from core.wire.output_check import DIFFERENT_OUTPUTS, OUTPUTS_DIFFER, WARNING

Contrast = Mapping[str, Any]

WIDE = "the ratios are not known yet"


def reference(comparison: Comparison) -> str:
    """Return the trial that the others are compared with: the baseline, or the ORT default if that failed."""
    against = [one["baseline"] for one in comparison.facts.get("contrasts") or []]
    return comparison.baseline if comparison.baseline in against or not against else against[0]


def labels(comparison: Comparison) -> dict[str, str]:
    """Map trials to their names."""
    return {one.trial: one.label for one in comparison.contestants}


def against_reference(comparison: Comparison) -> dict[str, Contrast]:
    """Map trials to their contrasts against the reference; trials without a contrast are absent."""
    found: Sequence[Contrast] = comparison.facts.get("contrasts") or []
    against = reference(comparison)
    return {one["candidate"]: one for one in found if one["baseline"] == against}


def ranks(comparison: Comparison) -> dict[str, Rank]:
    """Map trials to their ranks, from the displayed intervals; empty if the comparison allows no ranking.

    Trials with a rejected verdict are included, because they may be faster than others. They have no
    `rank_text`.
    """
    if is_rejected(comparison.result) or not comparison.facts.get("ranks"):
        return {}
    against, found = reference(comparison), against_reference(comparison)
    names = [one.trial for one in comparison.contestants if one.trial in found or one.trial == against]
    return {one.name: one for one in ranking.ranks(_intervals(comparison, names))}


def _intervals(comparison: Comparison, names: Sequence[str]) -> dict[str, ranking.Interval | None]:
    contrasts: Sequence[Contrast] = comparison.facts.get("contrasts") or []
    return ranking.intervals(contrasts, reference(comparison), names)


def is_per_row(comparison: Comparison) -> bool:
    """Whether batch sizes differ: then all times are compared per sample."""
    return any(one.get("per_row") for one in comparison.facts.get("contrasts") or [])


def order(comparison: Comparison) -> list[str]:
    """Return trials in display order: by rank, then by ratio, those without a number last."""
    found, against = against_reference(comparison), reference(comparison)
    ranked = ranks(comparison)

    def place(trial: str) -> tuple[int, float]:
        ratio = 1.0 if trial == against and found else found[trial]["ratio"] if trial in found else 0.0
        known = trial in ranked and not is_rejected(found.get(trial))
        return (ranked[trial].best if known else len(comparison.contestants) + 1, -ratio)

    return sorted((one.trial for one in comparison.contestants), key=place)


def headline(comparison: Comparison) -> str:
    """Return the result in one or two sentences, from the displayed intervals alone."""
    if is_rejected(comparison.result):
        return "Rejected: the configurations are not ranked."
    named, found, against = labels(comparison), against_reference(comparison), reference(comparison)
    if not found:
        return "Nothing to compare: fewer than two configurations have a result."
    first = _first(comparison)
    if not first:
        return f"Compared with {named[against]}; too many configurations to rank."
    if doubted := [named[trial] for trial in first if is_rejected(found.get(trial))]:
        return f"The fastest is unknown because the result of {_listed(doubted)} was rejected."
    return f"{_fastest(comparison, first)}{_differing(comparison, first)}"


def is_open(comparison: Comparison) -> bool:
    """Whether the fastest is undecided: several may be, by more than the equivalence margin."""
    first = _first(comparison)
    level = ranking.are_equivalent(list(_intervals(comparison, first).values()), _margin(comparison))
    return len(first) > 1 and not level


def _first(comparison: Comparison) -> list[str]:
    """Return the trials that may be the fastest, in display order; empty: none is ranked."""
    ranked = ranks(comparison)
    return [trial for trial in order(comparison) if trial in ranked and ranked[trial].best == 1]


def _margin(comparison: Comparison) -> float:
    return float(comparison.protocol.get("margin") or 0.0)


def _fastest(comparison: Comparison, first: Sequence[str]) -> str:
    """Return the fastest, or that `first` are equivalent, or that their intervals are inconclusive."""
    named, found, against = labels(comparison), against_reference(comparison), reference(comparison)
    names = _listed([named[trial] for trial in first])
    best = next((trial for trial in first if trial in found), "")
    proof = f"against {named[against]}: {in_words(found[best])}" if best and against not in first else ""
    if first == [against]:
        who = f"{named[against]}, the baseline," if against == comparison.baseline else named[against]
        return f"{who} is the fastest.{_nearly(comparison)}"
    if len(first) == 1:
        return f"{names} is the fastest; {proof}."
    rest = f" {named[best]} {proof}." if proof else ""
    if not is_open(comparison):
        margin = f"±{100 * _margin(comparison):g} %"
        return f"{names} are equally fast within the equivalence margin of {margin}.{rest}"
    halves = [found[trial].get("half_width") for trial in first if trial in found]
    widths = [math.inf if one is None else float(one) for one in halves]
    reach = f"intervals reach {precision_text(max(widths))}" if precision_is_known(max(widths)) else WIDE
    may = _listed([named[trial] for trial in first], "or")
    return f"Inconclusive: {reach}. The fastest may be {may}. {MEASURE_BETTER}{rest}"


def _nearly(comparison: Comparison) -> str:
    """Return the configurations slower than the baseline by less than the margin; empty: none."""
    named, found = labels(comparison), against_reference(comparison)
    near = [named[trial] for trial, one in found.items() if one["verdict"] == Verdict.EQUIVALENT]
    verb = "is" if len(near) == 1 else "are"
    return f" {_listed(near)} {verb} slower by less than the equivalence margin." if near else ""


def _differing(comparison: Comparison, trials: Sequence[str]) -> str:
    """Return which of `trials` exceed the output tolerance, and which of all compute something else."""
    breaches = comparison.facts.get("breaches") or {}
    named, found = labels(comparison), against_reference(comparison)
    names = [named[trial] for trial in trials if trial in breaches]
    text = f" {WARNING} The {OUTPUTS_DIFFER} from the reference: {_listed(names)}." if names else ""
    others = [named[trial] for trial, one in found.items() if one.get("something_else")]
    if others:
        verb = DIFFERENT_OUTPUTS if len(others) == 1 else DIFFERENT_OUTPUTS.replace("computes", "compute")
        text += f" {WARNING} {_listed(others)} {verb} than {named[reference(comparison)]}."
    return text


def _listed(names: Sequence[str], word: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def past_text(comparison: Comparison) -> str:
    """Return the result of a comparison for a list."""
    if comparison.state == "COMPLETE":
        return headline(comparison)
    if comparison.error:
        return f"failed: {comparison.error['message']}"
    return STATE_WORDS[comparison.state]


def rank_text(comparison: Comparison, trial_id: str) -> str:
    """Return the ranks that the intervals allow: "1", "2–3"; empty: no rank."""
    ranked = ranks(comparison)
    if trial_id not in ranked or is_rejected(against_reference(comparison).get(trial_id)):
        return ""
    one = ranked[trial_id]
    return str(one.best) if one.best == one.worst else f"{one.best}–{one.worst}"


def intervals_text(comparison: Comparison) -> str:
    """Say whether the intervals of the ratios are simultaneous for all configurations or for each alone."""
    shown = len(against_reference(comparison))
    if shown < 2:
        return "95 %, over all interim analyses"
    if continuation.family(comparison.protocol) >= shown:
        return f"95 % for all {shown} configurations together, over all interim analyses"
    return "95 % for each configuration alone, over all interim analyses"


# --- title, warnings, facts ---------------------------------------------------------------------------------


def title(comparison: Comparison) -> str:
    """Return the name of a comparison, from all requested configurations."""
    asked = [
        one for one in comparison.contestants if one.role != "anchor" or one.trial == comparison.baseline
    ]
    return f"Comparison of {len(asked)} configurations of {comparison.model_name}"


def cautions(comparison: Comparison) -> list[str]:
    """Return warnings on single configurations, each with its name, and on the whole comparison."""
    named, found = labels(comparison), against_reference(comparison)
    lines = [f"{named[trial]}: {note}" for trial, one in found.items() for note in one.get("notes") or []]
    if any(map(is_older, found.values())):
        lines.append(OLDER)
    if any(map(is_rejected, found.values())) and not is_rejected(comparison.result):
        lines.append(f"What would help: {MEASURE_BETTER}")
    told = tuple(f"`{name}` failed:" for name in named.values())  # failures are displayed separately
    notes = [str(note) for note in comparison.facts.get("notes") or []]
    return [*lines, *(note for note in notes if not note.startswith(told))]


def facts(comparison: Comparison) -> list[str]:
    """Return how the comparison was run, in a few words each."""
    result, protocol = comparison.facts, comparison.protocol
    lines = [f"{rounds_words(result)} of {len(against_reference(comparison)) + 1}"]
    if result.get("wall_s") is not None:
        lines.append(duration(result["wall_s"]))
    lines.append(f"{protocol.get('precision', '')} (±{100 * protocol.get('target', 0):.2g} %)")
    if protocol.get("continues"):
        lines.append(f"continues {protocol['continues'][:12]}")
    return lines


def comparison_verdict(comparison: Comparison) -> str:
    """Return the result of a comparison in one or two sentences, or its state."""
    if comparison.result:
        return headline(comparison)
    return sentence(past_text(comparison))
