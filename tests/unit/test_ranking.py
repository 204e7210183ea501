"""Ranks from pairs: ties stay ties, chains hold, and only rounds of both sides count."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.contrast import ASSUMED, Prior
from core.evidence.ranking import paired, ranks
from tests.races import noise

CALM = Prior(sigma_between=0.001, df=4.0, source="history")


def field(generations=8, rounds=8, between=0.0, **latencies):
    """Contestants with these latencies and spreads, on a machine that is restless itself."""
    keys = [(i // rounds, i) for i in range(generations * rounds)]
    machine = noise(len(keys), 0.3, seed=99)
    found = {}
    for seed, (name, (latency, sigma)) in enumerate(latencies.items()):
        own = noise(len(keys), sigma, seed)
        kept = noise(generations, between, seed + 50) if between else [0.0] * generations
        found[name] = {
            key: math.log(latency) + machine[i] + own[i] + kept[key[0]] for i, key in enumerate(keys)
        }
    return found


# --- pairs ----------------------------------------------------------------------------------------------


def test_a_pair_is_the_ratio_of_both_in_every_round_that_both_have():
    own = {(0, 0): 0.1, (0, 1): 0.2, (1, 2): 0.3, (3, 7): 0.0}
    other = {(0, 0): 0.5, (0, 1): 0.4, (1, 2): 0.4, (2, 5): 9.0}
    assert paired(own, other) == [pytest.approx([0.4, 0.2]), pytest.approx([0.1])]
    assert paired(own, {}) == []


def test_rounds_and_generations_are_in_order_however_they_were_written_down():
    keys = [(g, 8 * g + r) for g in range(4) for r in range(8)]
    shuffled = random.Random(1).sample(keys, len(keys))
    own = {key: 0.0 for key in shuffled}
    found = paired(own, {key: float(key[1]) for key in keys})
    assert found == [[float(8 * g + r) for r in range(8)] for g in range(4)]


# --- ranks ----------------------------------------------------------------------------------------------


def test_ranks_show_ties_as_ties():
    found = ranks(field(slow=(2.0, 0.02), a=(1.0, 0.02), b=(1.0, 0.02)))
    assert [(one.name, one.rank, one.ties) for one in found] == [
        ("a", 1, ("b",)),
        ("b", 1, ("a",)),
        ("slow", 3, ()),
    ]


def test_undecided_pairs_and_pairs_without_common_rounds_are_ties():
    contestants = field(a=(1.0, 0.02), b=(1.05, 0.9))
    assert [one.rank for one in ranks(contestants)] == [1, 1]
    contestants["late"] = {(9, r): 9.0 for r in range(100, 164)}
    assert {one.name: one.ties for one in ranks(contestants)}["late"] == ("a", "b")


def test_a_difference_within_the_margin_is_a_tie():
    contestants = field(a=(1.0, 0.002), b=(1.01, 0.002))
    assert [one.rank for one in ranks(contestants, margin=0.02, prior=CALM)] == [1, 1]
    assert [one.rank for one in ranks(contestants, margin=0.001, prior=CALM)] == [1, 2]


def test_one_pair_of_processes_that_differ_by_chance_tells_no_ranks():
    """Every round says that a is faster, and fresh processes of both might not."""
    contestants = field(generations=1, rounds=64, a=(1.0, 0.002), b=(1.03, 0.002))
    assert [one.rank for one in ranks(contestants)] == [1, 1]
    as_units = {name: {(r, r): x for (_, r), x in one.items()} for name, one in contestants.items()}
    assert [one.rank for one in ranks(as_units, prior=None)] == [1, 2]  # what rounds alone would have said


def test_only_rounds_of_both_sides_count():
    a, b = field(a=(1.0, 0.02), b=(1.3, 0.02)).values()
    missed = {key: value for key, value in a.items() if key[1] < 32}
    flattering = {key: value - 5 * (key[1] >= 32) for key, value in b.items()}
    found = ranks({"a": missed, "b": flattering})
    assert [(one.name, one.rank) for one in found] == [("a", 1), ("b", 2)]


def test_nobody_stands_above_one_that_is_clearly_faster():
    # x and y are faster than a, and a than b. What x and y share with b is noise: by its direct defeats alone
    # b would be second, ahead of a.
    def rounds(numbers, center, sigma, seed):
        values = [center + x for x in noise(len(numbers), sigma, seed)]
        return {(number // 8, number): x for number, x in zip(numbers, values, strict=True)}

    early, shared, late = range(64), range(16), range(104, 168)
    contestants = {
        "b": rounds(shared, 0.2, 2.0, 5) | rounds(late, 0.2, 0.01, 6),
        "a": rounds(early, 0.1, 0.01, 3) | rounds(late, 0.1, 0.01, 4),
        "x": rounds(early, 0.0, 0.01, 1),
        "y": rounds(early, 0.0, 0.01, 2),
    }
    alone = [one.rank for one in ranks({n: contestants[n] for n in ("x", "b")}, prior=None)]
    assert alone == [1, 1]
    found = ranks(contestants, prior=None)
    assert [(one.name, one.rank, one.ties) for one in found] == [
        ("x", 1, ("y",)),
        ("y", 1, ("x",)),
        ("a", 3, ()),
        ("b", 4, ()),
    ]


def test_the_more_pairs_the_surer_each_must_be():
    near = {"a": (1.0, 0.02), "b": (1.015, 0.02)}
    assert [one.rank for one in ranks(field(**near), margin=0.0)] == [1, 2]
    crowd = field(**near, **{f"far{i}": (9.0 + i, 0.02) for i in range(8)})
    assert [one.rank for one in ranks(crowd, margin=0.0)][:2] == [1, 1]
    as_often = ranks(field(**near), margin=0.0, looks=45)  # 10 contestants have 45 pairs
    assert [one.rank for one in as_often] == [1, 1]


def test_a_prior_that_expects_much_of_processes_makes_ties():
    contestants = field(generations=4, a=(1.0, 0.002), b=(1.03, 0.002))
    wild = Prior(sigma_between=0.05, df=4.0, source="history")
    assert [one.rank for one in ranks(contestants, prior=ASSUMED)] == [1, 2]
    assert [one.rank for one in ranks(contestants, prior=wild)] == [1, 1]


def test_one_contestant_is_first():
    (only,) = ranks({"a": {(0, 0): 0.1}})
    assert (only.rank, only.ties) == (1, ())
    assert ranks({}) == []


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 9))
def test_ranks_are_those_of_the_truth_where_the_noise_is_small(steps, seed):
    """Contestants a whole step apart are apart, those on the same step tie; names come in any order."""
    names = [f"c{i}" for i in range(len(steps))]
    contestants = field(
        generations=6, rounds=4, **{n: (1.3**s, 0.001) for n, s in zip(names, steps, strict=True)}
    )
    found = ranks(contestants)
    for one in found:
        own = steps[names.index(one.name)]
        assert one.rank == 1 + sum(step < own for step in steps)
        assert set(one.ties) == {n for n, s in zip(names, steps, strict=True) if s == own} - {one.name}
    assert [one.rank for one in found] == sorted(one.rank for one in found)
