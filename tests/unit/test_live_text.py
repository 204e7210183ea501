"""The text of a running comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from core.evidence.comparison import DEFAULT_LABEL
from dashboard.widgets import live_text
from dashboard.widgets.live_text import ComparedConfigurations
from tests import builders
from tests.reading import numbers, tells

FIELD = ComparedConfigurations(labels={"a": "threads 1", "b": "ORT default"}, rows={"a": 1, "b": 1})
CONTRAST: dict[str, Any] = {
    "candidate": "a", "baseline": "b", "ratio": 1.31, "ratio_low": 1.28, "ratio_high": 1.34,
    "verdict": "FASTER",
}  # fmt: skip
LIVE: dict[str, Any] = {
    "rounds": 9,
    "predicted_rounds": 32,
    "generation": 3,
    "elapsed_s": 2.0,
    "contrasts": [CONTRAST],
    "p50_s": {"a": 0.000812, "b": 0.001064},
}


def said(**changes: Any) -> list[str]:
    return live_text.words(LIVE | changes, "a", FIELD, measuring=True).split(" · ")


# --- words --------------------------------------------------------------------------------------------------


def test_generation_rounds_p50_and_ratio_are_told_and_nothing_is_final() -> None:
    assert said() == [
        "launch 3",
        "9 of about 32 rounds",
        "p50 0.8120 ms (ORT default: 1.064 ms)",
        "1.31× faster than ORT default so far, 95 % CI [1.28, 1.34]",
        "not final",
    ]


def test_a_slower_one_has_the_direction_of_the_title() -> None:
    slower = {**CONTRAST, "ratio": 0.5, "ratio_low": 0.48, "ratio_high": 0.52}
    assert any(tells(one, "2.00×", DEFAULT_LABEL, "[1.92, 2.08]") for one in said(contrasts=[slower]))


def test_what_is_not_known_yet_is_not_invented() -> None:
    assert len(said(contrasts=[], p50_s={})) == 3
    early = {**CONTRAST, "ratio": None, "ratio_low": None, "ratio_high": None}
    assert not any("×" in one for one in said(contrasts=[early]))
    assert said(p50_s={"a": None, "b": 0.001})[2].startswith("1.31× faster")
    assert numbers(live_text.words({}, "a", FIELD, measuring=True)) == [0]


def test_rounds_that_were_not_foreseen_are_only_counted() -> None:
    assert numbers(live_text.rounds_text(LIVE | {"rounds": 40}, measuring=True)) == [3, 40]
    assert numbers(live_text.rounds_text(LIVE, measuring=False)) == [3, 9]
    assert live_text.rounds_text({"rounds": 1}, measuring=True) == "1 round"


def test_different_batches_are_told_per_row_and_an_unknown_one_not_at_all() -> None:
    rows = replace(FIELD, rows={"a": 4, "b": 1})
    assert tells(live_text.p50_text(LIVE, "a", rows), "0.2030 ms")
    assert tells(live_text.p50_text(LIVE, "b", rows), "1.064 ms")
    unknown = replace(FIELD, rows={"a": 4, "b": None})
    assert tells(live_text.p50_text(LIVE, "a", unknown), "0.2030 ms")
    assert live_text.p50_text(LIVE, "b", unknown) == ""
    own = replace(FIELD, rows={"a": None, "b": None})  # both use the input that the model fixes
    assert live_text.p50_text(LIVE, "a", own) == "0.8120 ms"


def test_only_ratios_of_the_trial_itself_count() -> None:
    other = {**CONTRAST, "candidate": "b", "baseline": "c", "ratio": 7.7}
    assert live_text.contrasts_of(LIVE | {"contrasts": [other, CONTRAST]}, "a") == [CONTRAST]


def test_the_configurations_are_known_by_the_specs() -> None:
    trials = [builders.trial("a", builders.spec(workload={"batch_size": 4})), builders.trial("b")]
    comparison = builders.comparison({"a": "candidate", "b": "anchor"}, state="RUNNING")
    found = live_text.compared_configurations(comparison, trials)
    assert (found.labels, found.rows) == ({"a": "A", "b": "B"}, {"a": 4, "b": None})
