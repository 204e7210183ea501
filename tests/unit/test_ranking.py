"""Pairs of rounds, and ranks that follow from intervals against one baseline and never contradict them."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.comparison import Comparison
from core.evidence.ranking import Interval, are_equivalent, intervals, paired_log_ratios, ranks
from core.evidence.verdict import Verdict
from core.show import comparison_text
from core.show.sheets.comparisons import verdict_text
from tests import builders

# --- pairs ----------------------------------------------------------------------------------------------


def test_a_pair_is_the_ratio_of_both_in_every_round_that_both_have():
    own = {(0, 0): 0.1, (0, 1): 0.2, (1, 2): 0.3, (3, 7): 0.0}
    other = {(0, 0): 0.5, (0, 1): 0.4, (1, 2): 0.4, (2, 5): 9.0}
    assert paired_log_ratios(own, other) == [pytest.approx([0.4, 0.2]), pytest.approx([0.1])]
    assert paired_log_ratios(own, {}) == []


def test_rounds_and_generations_are_in_order_however_they_were_written_down():
    keys = [(g, 8 * g + r) for g in range(4) for r in range(8)]
    shuffled = random.Random(1).sample(keys, len(keys))
    own = {key: 0.0 for key in shuffled}
    found = paired_log_ratios(own, {key: float(key[1]) for key in keys})
    assert found == [[float(8 * g + r) for r in range(8)] for g in range(4)]


# --- ranks ----------------------------------------------------------------------------------------------


def places(**found: Interval | None) -> dict[str, tuple[int, int]]:
    return {one.name: (one.best, one.worst) for one in ranks(found)}


def test_a_rank_is_the_places_that_the_intervals_leave_open():
    found = ranks({"base": (1, 1), "slow": (0.5, 0.6), "a": (1.3, 1.5), "b": (1.4, 1.6), "c": (0.9, 1.2)})
    assert [(one.name, one.best, one.worst, one.ties) for one in found] == [
        ("a", 1, 2, ("b",)),
        ("b", 1, 2, ("a",)),
        ("base", 3, 4, ("c",)),
        ("c", 3, 4, ("base",)),
        ("slow", 5, 5, ()),
    ]


def test_overlaps_are_no_chain():
    """The middle one may be first or last; the outer two are apart all the same."""
    assert places(a=(1.4, 1.6), b=(1.1, 1.5), c=(0.9, 1.2)) == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}


def test_what_has_no_interval_may_have_any_place():
    assert places(a=(1.4, 1.6), base=(1, 1), b=None) == {"a": (1, 2), "base": (2, 3), "b": (1, 3)}


def test_level_are_those_of_whom_no_two_can_differ_by_more_than_the_margin():
    assert are_equivalent([(1.395, 1.41), (1.40, 1.42)], 0.02)
    assert not are_equivalent([(1.38, 1.41), (1.40, 1.42)], 0.02)
    assert are_equivalent([(0.985, 1.015), (1, 1)], 0.02)  # EQUIVALENT, though its own interval is 3 % wide
    assert not are_equivalent([(1.0, 1.0), None], 0.02)


def test_intervals_are_those_against_the_baseline_which_is_one():
    contrasts = [
        builders.contrast(1.5, 0.1, candidate="a", baseline="base"),
        builders.contrast(9.0, 0.1, candidate="a", baseline="ort"),
        builders.contrast(2.0, 0.1, candidate="b", baseline="base", ratio_low=None),
    ]
    found = intervals(contrasts, "base", ["base", "a", "b", "c"])
    assert found == {"base": (1, 1), "a": pytest.approx((1.5 / 1.1, 1.65)), "b": None, "c": None}


def test_a_contradiction_of_an_earlier_version_spans_both_of_its_intervals():
    calm = {"ratio_low": 0.98, "ratio_high": 1.01}
    old = builders.contrast(1.5, 0.1, candidate="a", baseline="base", contradicted=True, without_flagged=calm)
    assert intervals([old], "base", ["a"]) == {"a": pytest.approx((0.98, 1.65))}


# --- nothing contradicts the intervals -------------------------------------------------------------------

MARGIN = 0.02
BOUNDS = st.tuples(st.floats(-0.7, 0.7), st.sampled_from([1e-3, 4e-3, 0.01, 0.03, 0.2, 0.9]))
NAMES = [f"n{number}" for number in range(8)]


def compared(found: list[tuple[float, float]]) -> Comparison:
    """A finished comparison of configurations with these logarithms of ratios and half-widths."""
    contrasts: list[dict[str, Any]] = []
    for name, (center, half) in zip(NAMES, found, strict=False):
        ratio, low, high = (2.718281828 ** (center + side * half) for side in (0, -1, 1))
        contrasts.append(
            builders.contrast(
                ratio,
                candidate=name,
                baseline="base",
                ratio_low=low,
                ratio_high=high,
                verdict=Verdict.of(low, high, MARGIN),
                margin=MARGIN,
            )
        )
        contrasts[-1]["half_width"] = (high - low) / 2 / ratio
    roles: dict[str, Any] = {one["candidate"]: "candidate" for one in contrasts} | {"base": "baseline"}
    return builders.comparison(
        roles,
        protocol={"margin": MARGIN, "precision": "quick", "target": 0.03, "family": len(contrasts)},
        result={"contrasts": contrasts, "ranks": [{}], "grade": "A", "generations": [], "rounds": 9},
    )


def bounds(comparison: Comparison) -> dict[str, tuple[float, float]]:
    told = {one["candidate"]: (one["ratio_low"], one["ratio_high"]) for one in comparison.facts["contrasts"]}
    return {**told, "base": (1.0, 1.0)}


@given(st.lists(BOUNDS, min_size=1, max_size=8))
def test_no_rank_contradicts_an_interval_or_a_verdict(found: list[tuple[float, float]]):
    comparison = compared(found)
    shown, ranked = bounds(comparison), comparison_text.ranks(comparison)
    assert set(shown) == set(ranked)
    for one, own in shown.items():
        for other, against in shown.items():
            if own[0] > against[1]:  # surely faster: better by the best place and by the worst
                assert ranked[one].best < ranked[other].best
                assert ranked[one].worst < ranked[other].worst
                assert other not in ranked[one].ties
            elif one != other and own[1] >= against[0]:
                assert other in ranked[one].ties
                assert ranked[one].best <= ranked[other].worst
    for one in comparison.facts["contrasts"]:
        text = verdict_text(comparison, one["candidate"], builders.trial(one["candidate"]))
        own, base = ranked[one["candidate"]], ranked["base"]
        if own.worst < base.best:
            assert "faster" in text
        if own.best > base.worst:
            assert "slower" in text
        if "undecided" in text:
            assert "base" in own.ties


@given(st.lists(BOUNDS, min_size=1, max_size=8))
def test_the_sentence_claims_what_the_intervals_show(found: list[tuple[float, float]]):
    comparison = compared(found)
    shown, said = bounds(comparison), comparison_text.headline(comparison)
    first = {one for one, own in shown.items() if not any(other[0] > own[1] for other in shown.values())}
    near = all(shown[a][1] <= (1 + MARGIN) * shown[b][0] for a in first for b in first if a != b)
    claims = {"is the fastest": len(first) == 1, "equally fast": len(first) > 1 and near}
    claims["Inconclusive: "] = len(first) > 1 and not near
    assert {text: text in said for text in claims} == claims
    assert comparison_text.is_open(comparison) == claims["Inconclusive: "]
    named = said.partition("is the fastest")[0] if len(first) == 1 else said
    assert all(one.upper() in named for one in first)
