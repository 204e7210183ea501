"""Who is ahead in a race and who cannot be told apart: what sheets, exports and screens say of a race. Pure.

What `is_rejected` rejects is not ranked: its numbers are told, but never as a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.verdict import is_rejected
from core.show.format import duration
from core.show.verdict import MEASURE_BETTER, OLDER, counted, is_older
from core.show.words import STATE_WORDS, verdict
from core.wire.guard import ELSE, MARK, WARNING

Contrast = Mapping[str, Any]


def reference(comparison: Comparison) -> str:
    """Trial that the others are put against: the baseline, or the default where the baseline has failed."""
    against = [one["baseline"] for one in comparison.facts.get("contrasts") or []]
    return comparison.baseline if comparison.baseline in against or not against else against[0]


def labels(comparison: Comparison) -> dict[str, str]:
    """Trial -> name."""
    return {one.trial: one.label for one in comparison.contestants}


def against_reference(comparison: Comparison) -> dict[str, Contrast]:
    """Trial -> its contrast against the reference, of those that have one."""
    found: Sequence[Contrast] = comparison.facts.get("contrasts") or []
    against = reference(comparison)
    return {one["candidate"]: one for one in found if one["baseline"] == against}


def ranks(comparison: Comparison) -> dict[str, Mapping[str, Any]]:
    """Trial -> {rank, ties}, without those whose verdict was rejected; empty where nobody is ranked."""
    if is_rejected(comparison.result):
        return {}
    found = against_reference(comparison)
    return {
        one["trial"]: one
        for one in comparison.facts.get("ranks") or []
        if not is_rejected(found.get(one["trial"]))
    }


def is_per_row(comparison: Comparison) -> bool:
    """Whether the contestants fed different numbers of rows: then everything is compared per row."""
    return any(one.get("per_row") for one in comparison.facts.get("contrasts") or [])


def order(comparison: Comparison) -> list[str]:
    """Trials in the order of the screen: by rank, then by ratio, those without a number at the end."""
    found, against = against_reference(comparison), reference(comparison)
    ranked = ranks(comparison)

    def place(trial: str) -> tuple[int, float]:
        ratio = 1.0 if trial == against and found else found[trial]["ratio"] if trial in found else 0.0
        return (ranked[trial]["rank"] if trial in ranked else len(comparison.contestants) + 1, -ratio)

    return sorted((one.trial for one in comparison.contestants), key=place)


def headline(comparison: Comparison) -> str:
    """Say in a sentence or two who is ahead."""
    if is_rejected(comparison.result):
        return "Rejected: nobody is ranked."
    named, found, against = labels(comparison), against_reference(comparison), reference(comparison)
    if not found:
        return "There is nothing to compare: fewer than two configurations came through."
    ranked = ranks(comparison)
    first = [trial for trial in order(comparison) if trial in ranked and ranked[trial]["rank"] == 1]
    if not first and any(map(is_rejected, found.values())):
        return f"Nobody can be called the fastest: who came out ahead of {named[against]} was rejected."
    if not first:
        return f"Put against {named[against]}; too many configurations to rank."
    if first == [against]:
        who = f"{named[against]}, the baseline," if against == comparison.baseline else named[against]
        return f"{who} is the fastest.{_differing(comparison, first)}"
    best = first[0]
    wrong = _differing(comparison, first)
    said = f"against {named[against]}: {verdict(found[best])}" if best in found else ""
    if len(first) == 1:
        return f"{named[best]} is the fastest; {said}.{wrong}"
    shared = f"{_listed([named[trial] for trial in first])} share the first place: they cannot be told apart."
    return f"{shared}{wrong}" if against in first else f"{shared} {named[best]} {said}.{wrong}"


def _differing(comparison: Comparison, trials: Sequence[str]) -> str:
    """Who of `trials` has wrong outputs, and who of all computes something else; empty: nobody does."""
    breaches = comparison.facts.get("breaches") or {}
    named, found = labels(comparison), against_reference(comparison)
    names = [named[trial] for trial in trials if trial in breaches]
    text = f" {WARNING} The {MARK} from the reference: {_listed(names)}." if names else ""
    others = [named[trial] for trial, one in found.items() if one.get("something_else")]
    if others:
        verb = ELSE if len(others) == 1 else ELSE.replace("computes", "compute")
        text += f" {WARNING} {_listed(others)} {verb} than {named[reference(comparison)]}."
    return text


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def past_text(comparison: Comparison) -> str:
    """Say in a list how a race ended."""
    if comparison.state == "COMPLETE":
        return headline(comparison)
    if comparison.error:
        return f"failed: {comparison.error['message']}"
    return STATE_WORDS[comparison.state]


def rank_text(comparison: Comparison, trial_id: str) -> str:
    """The rank, with `=` where another has the same one: `1 =`."""
    ranked = ranks(comparison)
    if trial_id not in ranked:
        return ""
    rank = ranked[trial_id]["rank"]
    shared = sum(one["rank"] == rank for one in ranked.values()) > 1
    return f"{rank} =" if shared else str(rank)


# --- what stands beside -------------------------------------------------------------------------------------


def title(comparison: Comparison) -> str:
    """Name a race after all that was asked for, not after the model of its first configuration alone."""
    asked = [
        one for one in comparison.contestants if one.role != "anchor" or one.trial == comparison.baseline
    ]
    return f"Race of {len(asked)} configurations of {comparison.model_name}"


def cautions(comparison: Comparison) -> list[str]:
    """Warnings on single contestants, each with its name, and those of the whole race."""
    named, found = labels(comparison), against_reference(comparison)
    lines = [f"{named[trial]}: {note}" for trial, one in found.items() for note in one.get("notes") or []]
    if any(map(is_older, found.values())):
        lines.append(OLDER)
    if any(map(is_rejected, found.values())) and not is_rejected(comparison.result):
        lines.append(f"What would help: {MEASURE_BETTER}")
    told = tuple(f"`{name}` failed:" for name in named.values())  # each has a box of its own
    notes = [str(note) for note in comparison.facts.get("notes") or []]
    return [*lines, *(note for note in notes if not note.startswith(told))]


def facts(comparison: Comparison) -> list[str]:
    """How the race was run, in a few words each."""
    result, protocol = comparison.facts, comparison.protocol
    lines = [f"{counted(result)} of {len(against_reference(comparison)) + 1}"]
    if result.get("wall_s") is not None:
        lines.append(duration(result["wall_s"]))
    lines.append(f"{protocol.get('precision', '')} (±{100 * protocol.get('target', 0):.2g} %)")
    if protocol.get("continues"):
        lines.append(f"goes on from {protocol['continues'][:12]}")
    return lines
