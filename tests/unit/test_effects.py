"""The model of settings' effects: real effects are found, absent ones are not; designs of the screening."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from core.evidence.effects import (
    CONSTANT_SD,
    Sizes,
    balanced_design,
    covariance,
    expected_improvement,
    fit,
    main_effects,
    next_batch,
    pair_effects,
)

CODES = np.array(list(itertools.product(range(3), range(2), range(2), range(2))), dtype=np.int16)
ERROR = 0.01


def truth(codes: Any) -> Any:
    """The first axis matters, the second does, and they do something together; the others do nothing."""
    codes = np.asarray(codes)
    return 0.2 * (codes[:, 0] == 1) - 0.1 * codes[:, 1] + 0.15 * (codes[:, 0] == 2) * codes[:, 1]


def measured(codes: Any, seed: int = 0, error: float = ERROR) -> list[float]:
    found: list[float] = (truth(codes) + np.random.default_rng(seed).normal(0, error, len(codes))).tolist()
    return found


def model(seed: int = 0, tried: Any = CODES) -> Any:
    return fit(tried, measured(tried, seed), [ERROR] * len(tried))


# --- predictions ----------------------------------------------------------------------------------------


def test_what_was_tried_is_drawn_towards_the_truth() -> None:
    errors_before, errors_after = [], []
    for seed in range(10):
        mean, _ = model(seed).at(CODES)
        errors_before += list(np.abs(np.array(measured(CODES, seed)) - truth(CODES)))
        errors_after += list(np.abs(mean - truth(CODES)))
    assert np.mean(errors_after) < 0.8 * np.mean(errors_before)


def test_what_was_not_tried_is_predicted() -> None:
    rng = np.random.default_rng(1)
    inside = []
    for seed in range(20):
        at = rng.permutation(len(CODES))
        found = model(seed, CODES[at[:16]])
        mean, deviation = found.at(CODES[at[16:]])
        inside += list(np.abs(mean - truth(CODES[at[16:]])) <= 2 * deviation + 0.005)
    assert np.mean(inside) > 0.85


def test_joint_predictions_agree_with_single_ones() -> None:
    found = model(tried=CODES[::2])
    mean, deviation = found.at(CODES)
    together, spread = found.joint(CODES)
    assert together == pytest.approx(mean)
    assert np.sqrt(np.diag(spread)) == pytest.approx(deviation, rel=1e-6)


def test_many_configurations_are_predicted_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    found = model(tried=CODES[::2])
    whole = found.at(CODES)
    monkeypatch.setattr("core.evidence.effects.CHUNK", 5)
    assert np.allclose(found.at(CODES), whole)
    assert [len(part) for part in found.at(CODES[:0])] == [0, 0]


def test_one_observation_is_enough_for_a_model() -> None:
    mean, deviation = fit(CODES[3:4], [0.1], [0.05]).at(CODES)
    assert np.isfinite(mean).all()
    assert (deviation > 0).all()
    assert mean[3] == pytest.approx(mean.max())


def test_two_observations_of_one_configuration_count_as_two() -> None:
    once = fit(CODES[:1], [0.1], [0.02]).at(CODES[:1])[1][0]
    twice = fit(CODES[[0, 0]], [0.1, 0.1], [0.02, 0.02]).at(CODES[:1])[1][0]
    assert twice < 0.8 * once


def test_observations_of_one_comparison_count_less_than_those_of_two() -> None:
    def deviation(comparisons: list[str]) -> float:
        return float(fit(CODES[[0, 0]], [0.1, 0.1], [0.02, 0.02], comparisons).at(CODES[:1])[1][0])

    assert deviation(["a", "a"]) > deviation(["a", "b"])


def test_a_comparison_whose_reference_was_slow_is_seen_through() -> None:
    """Half of the screening comes from a comparison in which every configuration seems 6 % better."""
    rng = np.random.default_rng(3)
    at = rng.permutation(len(CODES))
    comparisons = ["a" if i < 12 else "b" for i in range(len(CODES))]
    gains = np.array(measured(CODES[at], 5)) + 0.06 * (np.array(comparisons) == "b")
    blind = fit(CODES[at], gains.tolist(), [ERROR] * len(CODES))
    seeing = fit(CODES[at], gains.tolist(), [ERROR] * len(CODES), comparisons)
    order = np.corrcoef(seeing.at(CODES)[0], truth(CODES))[0, 1]
    assert order > 0.97
    assert order >= np.corrcoef(blind.at(CODES)[0], truth(CODES))[0, 1]


def test_a_slow_process_hides_no_good_configuration() -> None:
    best = int(np.argmax(truth(CODES)))
    gains = measured(CODES, 2)
    gains[best] -= 0.3
    assert model(2).at(CODES)[0][best] - fit(CODES, gains, [ERROR] * len(CODES)).at(CODES)[0][best] < 0.1


def test_a_fast_observation_counts_fully() -> None:
    gains = measured(CODES, 2)
    gains[7] += 0.3
    mean, _ = fit(CODES, gains, [ERROR] * len(CODES)).at(CODES)
    assert mean[7] > truth(CODES)[7] + 0.03


def test_what_does_nothing_is_taken_for_small() -> None:
    sizes = model().sizes.axes
    assert min(sizes[0], sizes[1]) > 3 * max(sizes[2], sizes[3])


def test_the_prior_variance_is_that_of_one_configuration_with_itself() -> None:
    sizes = Sizes(axes=(0.1, 0.2), pair=0.5, comparison=0.0)
    one = np.zeros((1, 2), dtype=np.int16)
    expected = CONSTANT_SD**2 + 0.1**2 + 0.2**2 + 0.5**2 * 0.1 * 0.2 + 0.005**2
    assert covariance(one, one, sizes)[0, 0] == pytest.approx(expected)
    other = np.array([[0, 1]], dtype=np.int16)
    assert covariance(one, other, sizes)[0, 0] == pytest.approx(CONSTANT_SD**2 + 0.1**2)


@hypothesis(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, len(CODES) - 1), min_size=1, max_size=12), st.integers(0, 1000))
def test_any_observations_make_a_model(rows: list[int], seed: int) -> None:
    gains = np.random.default_rng(seed).normal(0, 2, len(rows)).tolist()
    mean, deviation = fit(CODES[rows], gains, [0.05 if i % 2 else 0.0 for i in rows]).at(CODES)
    assert np.isfinite(mean).all()
    assert np.isfinite(deviation).all()


# --- the next candidates --------------------------------------------------------------------------------


def test_the_promising_are_tried_next_and_none_twice() -> None:
    found = model(tried=CODES[[0, 1, 2, 4, 12, 16, 20]])
    chosen = next_batch(found, CODES, 8)
    assert len({index for index, _ in chosen}) == 8
    gains = truth(CODES[[index for index, _ in chosen]])
    assert gains.mean() > truth(CODES).mean()


def test_a_batch_is_no_cluster_of_samples() -> None:
    found = model(tried=CODES[[0, 8, 20]])
    chosen = CODES[[index for index, _ in next_batch(found, CODES, 4)]]
    distances = [(a != b).sum() for a, b in itertools.combinations(chosen, 2)]
    assert max(distances) >= 2


def test_nothing_left_is_nothing_to_try() -> None:
    assert next_batch(model(), CODES[:0], 5) == []
    assert len(next_batch(model(), CODES[:3], 5)) == 3


def test_expected_improvement_of_known_cases() -> None:
    found = expected_improvement(np.array([0.0, 1.0, -9.0]), np.array([1.0, 1e-9, 1.0]), 0.0)
    assert found == pytest.approx([1 / math.sqrt(2 * math.pi), 1.0, 0.0], abs=1e-6)


# --- what matters ---------------------------------------------------------------------------------------


def test_effects_of_values_are_those_that_were_put_in() -> None:
    found = {(one.axes[0], one.values[0]): one for one in main_effects(model(), CODES)}
    one = found[0, 1]
    assert abs(one.mean - 0.2) < 0.03
    assert 0 < one.error < 0.03
    assert abs(found[2, 1].mean) < 2 * found[2, 1].error + 0.01
    assert set(found) == {(0, 1), (0, 2), (1, 1), (2, 1), (3, 1)}


def test_effects_of_pairs_are_found() -> None:
    strongest = pair_effects(model(), CODES)[0]
    assert (strongest.axes, strongest.values) == ((0, 1), (2, 1))
    assert strongest.mean == pytest.approx(0.15, abs=0.05)


# --- the design -----------------------------------------------------------------------------------------


def test_a_design_has_every_value_equally_often() -> None:
    chosen = CODES[balanced_design(CODES, 12, seed=0)]
    for axis in range(4):
        counts = np.bincount(chosen[:, axis])
        assert counts.max() - counts.min() <= 1


def test_a_design_has_every_pair() -> None:
    chosen = CODES[balanced_design(CODES, 12, seed=0)]
    for a, b in itertools.combinations(range(4), 2):
        assert len({(int(row[a]), int(row[b])) for row in chosen}) == len({(r[a], r[b]) for r in CODES})


def test_a_design_goes_on_with_what_was_taken() -> None:
    first = balanced_design(CODES, 6, seed=0)
    second = balanced_design(CODES, 6, seed=1, taken=first)
    assert not set(first) & set(second)
    counts = np.bincount(CODES[[*first, *second]][:, 0])
    assert counts.max() - counts.min() <= 1


def test_a_design_is_no_larger_than_the_space_and_the_same_for_a_seed() -> None:
    assert sorted(balanced_design(CODES, 100, seed=0)) == list(range(len(CODES)))
    assert balanced_design(CODES, 100, seed=0, taken=range(len(CODES))) == []
    assert balanced_design(CODES, 7, seed=3) == balanced_design(CODES, 7, seed=3)
