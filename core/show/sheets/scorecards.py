"""Sheet of a scorecard: a configuration and its targets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.evidence.targets import STATE_WORDS, State, TargetResult, interval, margin, quantity
from core.evidence.verdict import Color
from core.run.scorecard import ScorecardRow
from core.show.runtime_text import runtime_of
from core.show.sheets import Fact, Note, Sheet
from core.show.table import Table, texts
from core.wire.units import DASH

_MARKS: Mapping[State, str] = {"MET": "✓", "MISSED": "✗", "UNKNOWN": "?"}
_COLORS: Mapping[State, Color] = {"MET": "green", "MISSED": "red", "UNKNOWN": "gray"}


def scorecard(row: ScorecardRow) -> Sheet:
    """Return the table of one configuration's targets, with measured values and results."""
    undone = [one for one in row.judged if one.state != "MET"]
    told = [f"{one.target.what}: {f'{one.why} {one.todo}'.strip()}" for one in undone]
    ran_in = runtime_of(row.subject.spec.to_dict(), None)
    return Sheet(
        f"{row.subject.label} · {STATE_WORDS[row.state]}",
        [
            *([Fact("runtime", ran_in)] if ran_in else []),
            Table(
                columns=texts("", "target", "limit", "measured", "95 % interval", "margin", left=3),
                rows=[_cells(one) for one in row.judged],
                colors=[_COLORS[one.state] for one in row.judged],
            ),
            *(Note(text, apart=text is told[0]) for text in told),
            *([Note(f"OUTPUTS DIFFER: {row.breach}", "orange")] if row.breach else []),
            *([Note(f"SEEN SAMPLES: {row.calibration}", "orange")] if row.calibration else []),
        ],
    )


def _cells(one: TargetResult) -> tuple[str, ...]:
    return (
        f"{_MARKS[one.state]} {STATE_WORDS[one.state]}",
        one.target.what,
        one.target.limit_words,
        DASH if one.value is None else quantity(one.target, one.value),
        interval(one),
        margin(one),
    )


def headline(card: Sequence[ScorecardRow], label: Callable[[str], str] = str) -> str:
    """Return which configurations meet all targets, as a sentence; `label` formats their labels."""
    met = [label(row.subject.label) for row in card if row.state == "MET"]
    if met:
        return f"{', '.join(met)} {'meets' if len(met) == 1 else 'meet'} every target."
    if all(row.state == "MISSED" for row in card):
        return "No configuration meets every target." if len(card) > 1 else "It misses a target."
    return "No configuration is known to meet every target yet."
