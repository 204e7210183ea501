"""The scorecard as text: one cell per configuration and target, and a table of one configuration.

Uses no Streamlit, so it is tested as text. Every verdict has an icon and a word, not only a colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.api.judging import MissingMeasurements, ScorecardRow
from core.evidence import quality
from core.evidence.targets import STATE_WORDS, State, TargetResult, interval, margin, quantity, target_text
from core.show import verdict
from core.show.sheets import scorecards
from core.show.words import counted
from dashboard import format

ICONS: Mapping[State, tuple[str, str]] = {
    # state -> icon, colour of the badge
    "MET": (":material/check_circle:", "green"),
    "MISSED": (":material/cancel:", "red"),
    "UNKNOWN": (":material/help:", "gray"),
}
BREACH = ":material/warning: outputs differ"
BUSY = f":material/groups: {quality.BUSY}"


def heads(judged: Sequence[TargetResult]) -> list[str]:
    """Return one heading for each target: `p99 latency at batch 1 ≤ 3 ms`."""
    return [f"{one.target.what} {one.target.limit_words}" for one in judged]


def matrix(card: Sequence[ScorecardRow]) -> dict[str, list[str]]:
    """Return the table's columns in Markdown: configuration, overall state, then one for each target."""
    named = [_named(row) for row in card]
    columns: dict[str, list[str]] = {"Configuration": named, "All": [word(row.state) for row in card]}
    for index, head in enumerate(heads(card[0].judged) if card else []):
        columns[format.plain(head)] = [_cell(row.judged[index]) for row in card]
    return columns


def _named(row: ScorecardRow) -> str:
    marks = [*([BREACH] if row.breach else []), *([BUSY] if busy_lines(row) else [])]
    return "  ".join([f"**{format.plain(row.subject.label)}**", *marks])


def busy_lines(row: ScorecardRow) -> list[str]:
    """Return a line for each batch size whose newest comparison ran under background load."""
    newest = {size: found[0] for size, found in sorted(row.evidence.results.items()) if found}
    told = {size: words for size, one in newest.items() if (words := verdict.background_load_text(one))}
    return [f"At batch {size:,} measured {words}." for size, words in told.items()]


def word(state: State) -> str:
    """Return icon and word of a state, on one line."""
    return f"{ICONS[state][0]}\N{NO-BREAK SPACE}**{STATE_WORDS[state]}**"


def _cell(one: TargetResult) -> str:
    """The state with number and interval; the table below adds the margin."""
    return word(one.state) + format.plain(
        target_text(replace(one, margin=None)).removeprefix(STATE_WORDS[one.state])
    )


def details(row: ScorecardRow) -> list[dict[str, str]]:
    """Return one line of Markdown for each target: numbers, their source, and advice."""
    return [
        {
            "Target": format.plain(f"{one.target.what} {one.target.limit_words}"),
            "State": word(one.state),
            "Measured": quantity(one.target, one.value),
            "95 % interval": interval(one),
            "Margin": margin(one),
            "Reason": format.plain(one.why),
            "What to do": format.plain(one.todo),
        }
        for one in row.judged
    ]


def headline(card: Sequence[ScorecardRow]) -> str:
    """Return one sentence that names the configurations meeting every target."""
    return scorecards.headline(card, lambda label: f"**{format.plain(label)}**")


def tally(card: Sequence[ScorecardRow]) -> str:
    """Return the counts of all states: `5 met, 1 missed, 2 not known yet.`"""
    states = [one.state for row in card for one in row.judged]
    counts = [(states.count(state), STATE_WORDS[state].lower()) for state in ICONS]
    return f"{', '.join(f'{count} {word}' for count, word in counts if count)}."


def open_targets(card: Sequence[ScorecardRow]) -> list[str]:
    """Return a key for each cell with an unknown state; plain strings, so that a session can keep them."""
    return [key for row in card for key, one in _keyed(row).items() if one.state == "UNKNOWN"]


def _keyed(row: ScorecardRow) -> dict[str, TargetResult]:
    heading = zip(heads(row.judged), row.judged, strict=True)
    return {f"{row.subject.label} · {head}": one for head, one in heading}


def progress_lines(card: Sequence[ScorecardRow], before: Sequence[str], seconds: float) -> list[str]:
    """Return what measuring decided: a line of Markdown for all cells, then one for each cell of `before`.

    Args:
        card: the current state.
        before: `open_targets` before measuring; cells no longer in the card are skipped.
        seconds: duration of the measurements.
    """
    now = {key: one for row in card for key, one in _keyed(row).items() if key in before}
    if not now:
        return []
    decided = [one for one in now.values() if one.state != "UNKNOWN"]
    whole = f"decided {len(decided)} of {len(now)} target{'s' * (len(now) != 1)} not known before"
    lines = [f"**{format.duration(seconds)} of measuring {whole}.**"]
    for key, one in now.items():
        said = _cell(one)
        if one.state == "UNKNOWN":
            said += f": {format.plain(f'{one.why} {one.todo}'.strip())}"
        lines.append(f"{format.plain(key)}: {said}")
    return lines


def work_text(work: MissingMeasurements) -> str:
    """Return the pending work in words: `2 at batch 1, 1 load test of 30 s in all, accuracy of 2`."""
    parts = [f"{len(subjects)} at batch {size:,}" for size, subjects in sorted(work.comparisons.items())]
    if work.loads:
        seconds = sum(one.seconds for one in work.loads)
        tests = counted(len(work.loads), "load test")
        parts.append(f"{tests} of {format.duration(seconds)} in all")
    if work.accuracies:
        parts.append(f"accuracy of {len(work.accuracies)}")
    return ", ".join(parts)
