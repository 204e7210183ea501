"""Every metric against scikit-learn's value, and properties of intervals for any numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.evidence import metrics
from core.evidence.metrics import Paired
from core.wire.plain_data import plain

SEEDS = range(6)


def scored(seed: int, *, rows: int = 200, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that correlate with the labels, and the labels; every class has samples."""
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, rows - classes)])
    logits = generator.normal(size=(rows, classes))
    logits[np.arange(rows), labels] += generator.uniform(0.2, 2.5)
    return metrics.softmax(logits), labels


# --- against scikit-learn -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sklearn() -> Any:
    """Loaded by these tests alone: it takes seconds, and every process collects this file."""
    from sklearn import metrics as reference

    return reference


@pytest.mark.parametrize("seed", SEEDS)
def test_accuracy_and_top_k_are_scikit_learns(sklearn: Any, seed: int) -> None:
    scores, labels = scored(seed, classes=9)
    predicted = metrics.predictions(scores)
    assert metrics.share_of(predicted == labels).value == sklearn.accuracy_score(labels, predicted)
    for k in (1, 3, 5):
        found = metrics.share_of(metrics.top_k(scores, labels, k)).value
        assert found == sklearn.top_k_accuracy_score(labels, scores, k=k, labels=range(9))


@pytest.mark.parametrize("seed", SEEDS)
def test_confusion_and_per_class_shares_are_scikit_learns(sklearn: Any, seed: int) -> None:
    scores, labels = scored(seed)
    predicted = metrics.predictions(scores)
    matrix = metrics.confusion(labels, predicted, 4)
    assert (matrix == sklearn.confusion_matrix(labels, predicted, labels=range(4))).all()
    found = metrics.per_class(scores, labels, predicted)
    precision, recall, _, support = sklearn.precision_recall_fscore_support(labels, predicted)
    assert [one.sensitivity.value for one in found] == pytest.approx(list(recall))
    assert [one.precision.value for one in found] == pytest.approx(list(precision))
    assert [one.support for one in found] == list(support)
    negatives = [sklearn.recall_score(labels != one, predicted != one) for one in range(4)]
    assert [one.specificity.value for one in found] == pytest.approx(negatives)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ties", [False, True])
def test_roc_curve_and_area_are_scikit_learns(sklearn: Any, seed: int, ties: bool) -> None:
    scores, labels = scored(seed)
    own = np.round(scores[:, 1], 1) if ties else scores[:, 1]
    positives = labels == 1
    assert metrics.roc_auc(own, positives).value == pytest.approx(sklearn.roc_auc_score(positives, own))
    curve = metrics.roc_curve(own, positives)
    assert curve is not None
    false_rate, true_rate, thresholds = sklearn.roc_curve(positives, own)
    assert curve.false_positive_rate == pytest.approx(false_rate)
    assert curve.true_positive_rate == pytest.approx(true_rate)
    assert curve.thresholds == pytest.approx(thresholds)
    area = np.trapezoid(curve.true_positive_rate, curve.false_positive_rate)
    assert area == pytest.approx(metrics.roc_auc(own, positives).value)


@pytest.mark.parametrize("seed", SEEDS)
def test_macro_area_is_scikit_learns_one_versus_rest(sklearn: Any, seed: int) -> None:
    scores, labels = scored(seed)
    expected = sklearn.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert metrics.macro_auc(scores, labels).value == pytest.approx(expected)
    two, binary = scored(seed, classes=2)
    assert metrics.macro_auc(two, binary).value == pytest.approx(sklearn.roc_auc_score(binary, two[:, 1]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.83, 1.0])
def test_shares_at_a_threshold_are_scikit_learns(sklearn: Any, seed: int, threshold: float) -> None:
    scores, labels = scored(seed)
    positives, said = labels == 2, scores[:, 2] >= threshold
    found = metrics.at_threshold(scores[:, 2], positives, threshold)
    assert found.sensitivity.value == pytest.approx(sklearn.recall_score(positives, said))
    assert found.specificity.value == pytest.approx(sklearn.recall_score(~positives, ~said))
    assert found.accuracy.value == pytest.approx(sklearn.accuracy_score(positives, said))
    if said.any():
        assert found.precision.value == pytest.approx(sklearn.precision_score(positives, said))
    else:
        assert found.precision.value is None
    curve = metrics.threshold_curve(scores, labels, 2)
    at = int(np.argmin(np.abs(curve.thresholds - threshold)))
    exact = metrics.at_threshold(scores[:, 2], positives, float(curve.thresholds[at]))
    assert curve.sensitivity[at] == exact.sensitivity.value
    assert curve.specificity[at] == exact.specificity.value


# --- scores -------------------------------------------------------------------------------------------------


def test_softmax_and_sigmoid_stand_any_finite_logit() -> None:
    assert metrics.softmax([[1e300, 0.0, -1e300]]).tolist() == [[1.0, 0.0, 0.0]]
    assert metrics.softmax([[0.0, math.log(3)]])[0] == pytest.approx([0.25, 0.75])
    assert metrics.sigmoid([-1e9, 0.0, 1e9]).tolist() == [0.0, 0.5, 1.0]


def test_one_column_is_the_second_of_two_classes() -> None:
    found = metrics.probabilities(np.array([[0.0], [math.log(3)]], np.float32), logits=True)
    assert found == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]))
    assert metrics.probabilities([[0.2]], logits=False).tolist() == [[0.8, 0.2]]


def test_rows_that_are_not_finite_count_as_wrong_everywhere() -> None:
    raw = np.array([[3.0, 0.0], [np.nan, 0.0], [0.0, 3.0], [np.inf, 0.0]])
    scores, labels = metrics.probabilities(raw, logits=True), np.array([0, 0, 1, 1])
    predicted = metrics.predictions(scores)
    assert predicted.tolist() == [0, -1, 1, -1]
    assert metrics.share_of(metrics.top_k(scores, labels, 2)).count == 2
    assert metrics.confusion(labels, predicted, 2).tolist() == [[1, 0], [0, 1]]
    one = metrics.per_class(scores, labels, predicted)[1]
    assert (one.sensitivity.count, one.sensitivity.total) == (1, 2)
    assert (one.specificity.count, one.specificity.total) == (1, 2)
    assert (one.precision.count, one.precision.total) == (1, 1)
    at = metrics.at_threshold(scores[:, 1], labels == 1, 0.5)
    assert (at.sensitivity.value, at.specificity.value, at.precision.value) == (0.5, 0.5, 1.0)
    assert (at.unread_positives, at.unread_negatives) == (1, 1)
    assert one.roc_auc.value == pytest.approx(0.25)  # only the pair of the two good samples is in order


def test_class_without_rows_is_unknown_and_not_zero() -> None:
    scores, labels = metrics.softmax(np.eye(3)[[0, 1]]), np.array([0, 1])
    none = metrics.per_class(scores, labels, metrics.predictions(scores))[2]
    assert plain(none.sensitivity) == {"value": None, "low": None, "high": None, "count": 0, "total": 0}
    assert none.roc_auc.value is None
    assert metrics.roc_curve(scores[:, 2], labels == 2) is None
    assert metrics.macro_auc(scores, np.zeros(2, np.int64)).value is None


# --- one share ----------------------------------------------------------------------------------------------

counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilsons_interval_is_the_published_one(k: int, n: int, low: float, high: float) -> None:
    assert metrics.wilson(k, n) == pytest.approx((low, high), abs=5e-5)  # Newcombe 1998, table I, method 3


@given(counts)
def test_wilsons_bounds_solve_the_score_equation_and_mirror(kn: tuple[int, int]) -> None:
    k, n = kn
    low, high = metrics.wilson(k, n)
    assert 0.0 <= low <= k / n <= high <= 1.0
    for bound in (low, high):
        if 0.0 < bound < 1.0:
            assert (k / n - bound) ** 2 == pytest.approx(
                1.96**2 * bound * (1 - bound) / n, rel=1e-3, abs=1e-9
            )
    assert metrics.wilson(n - k, n) == pytest.approx((1 - high, 1 - low))


@given(counts)
def test_more_rows_of_the_same_share_narrow_the_interval(kn: tuple[int, int]) -> None:
    k, n = kn
    low, high = metrics.wilson(k, n)
    closer = metrics.wilson(4 * k, 4 * n)
    assert closer[1] - closer[0] < high - low


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.994])
def test_wilsons_interval_holds_the_truth_95_times_of_100(share: float) -> None:
    """The mean over sample sizes: for one size the coverage of any such interval swings."""
    held = []
    for n in range(50, 400, 7):
        bounds = [metrics.wilson(k, n) for k in range(n + 1)]
        chance = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
        held.append(sum(p for p, (low, high) in zip(chance, bounds, strict=True) if low <= share <= high))
    assert 0.94 <= float(np.mean(held)) <= 0.975


# --- the area under the ROC curve ---------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(5, 80))
@settings(max_examples=60, deadline=None)
def test_interval_of_an_area_holds_it_and_does_not_leave_0_to_1(seed: int, rows: int) -> None:
    scores, labels = scored(seed, rows=rows, classes=2)
    found = metrics.roc_auc(scores[:, 1], labels == 1)
    assert found.value is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    mirrored = metrics.roc_auc(-scores[:, 1], labels == 1)
    assert mirrored.value == pytest.approx(1 - found.value)
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))


def test_perfect_separation_still_has_an_interval() -> None:
    found = metrics.roc_auc(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(metrics.wilson(2, 2)[0])


def test_delongs_interval_holds_the_truth_about_95_times_of_100() -> None:
    generator, held, shift = np.random.default_rng(5), 0, 1.2
    truth = 0.5 * (1 + math.erf(shift / 2))  # of two normals with that distance
    labels = np.arange(120) < 40
    for _ in range(400):
        found = metrics.roc_auc(generator.normal(size=120) + shift * labels, labels)
        held += found.low <= truth <= found.high
    assert 0.92 <= held / 400 <= 0.985


def test_paired_difference_of_areas_knows_that_the_rows_are_the_same() -> None:
    scores, labels = scored(1, classes=2)
    own, positives = scores[:, 1], labels == 1
    same = metrics.auc_difference(own, own, positives)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    perfect = metrics.auc_difference(positives * 1.0, positives * 2.0 - own * 0.1, positives)
    assert perfect.value == 0.0
    assert perfect.low == pytest.approx(-perfect.high)
    assert perfect.high > 0.0
    near = metrics.auc_difference(own, own + np.random.default_rng(0).normal(0, 0.02, len(own)), positives)
    single = metrics.roc_auc(own, positives)
    assert near.high - near.low < (single.high - single.low) / 2


# --- two models on the same samples -------------------------------------------------------------------------

cells = st.tuples(*[st.integers(0, 400)] * 4).filter(any)


@pytest.mark.parametrize(
    ("b", "c", "p"), [(0, 0, 1.0), (0, 5, 2 / 2**5), (1, 9, 22 / 2**10), (4, 4, 1.0), (10, 0, 2 / 2**10)]
)
def test_mcnemars_exact_p(b: int, c: int, p: float) -> None:
    assert metrics.mcnemar(b, c) == pytest.approx(p)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_two_sided_binomial_test(b: int, c: int) -> None:
    n = b + c
    tail = sum(math.comb(n, k) for k in range(min(b, c) + 1)) / 2**n
    assert metrics.mcnemar(b, c) == metrics.mcnemar(c, b) == pytest.approx(min(1.0, 2 * tail))


def test_mcnemar_of_many_rows_is_quick_and_finite() -> None:
    assert 0.0 <= metrics.mcnemar(20_000, 21_000) < 1e-5


def test_newcombes_interval_is_the_published_one() -> None:
    assert metrics.newcombe_paired(36, 2, 12, 0) == pytest.approx((0.2, 0.0569, 0.3404), abs=5e-5)


@given(cells)
def test_newcombes_interval_holds_the_difference_and_turns_with_the_models(
    four: tuple[int, int, int, int],
) -> None:
    both, b, c, neither = four
    n = sum(four)
    difference, low, high = metrics.newcombe_paired(both, b, c, neither)
    assert difference == pytest.approx((c - b) / n)
    assert -1.0 <= low <= difference <= high <= 1.0
    turned = metrics.newcombe_paired(both, c, b, neither)
    assert turned == pytest.approx((-difference, -high, -low))
    flipped = metrics.newcombe_paired(neither, c, b, both)  # wrong samples counted instead of right ones
    assert flipped == pytest.approx(turned)


@pytest.mark.parametrize(("only_first", "only_second", "both"), [(0.01, 0.01, 0.9), (0.06, 0.02, 0.85)])
def test_newcombes_interval_holds_the_truth_95_times_of_100(
    only_first: float, only_second: float, both: float
) -> None:
    generator, held = np.random.default_rng(3), 0
    shares = [both, only_first, only_second, 1 - both - only_first - only_second]
    drawn = generator.multinomial(300, shares, size=1500)
    for four in drawn:
        _, low, high = metrics.newcombe_paired(*map(int, four))
        held += low <= only_second - only_first <= high
    assert 0.93 <= held / len(drawn) <= 0.995


def test_pairing_narrows_the_interval_where_models_agree() -> None:
    _, low, high = metrics.newcombe_paired(900, 10, 10, 80)
    _, far_low, far_high = metrics.newcombe_paired(837, 73, 73, 17)  # the same shares, answers unrelated
    assert high - low < (far_high - far_low) / 2


@pytest.mark.parametrize(
    ("four", "delta", "verdict"),
    [
        ((3500, 20, 25, 55), 0.01, "NOT_WORSE"),
        ((900, 90, 5, 5), 0.01, "WORSE"),
        ((340, 3, 2, 15), 0.005, "UNDECIDED"),
        ((340, 3, 2, 15), 0.05, "NOT_WORSE"),
    ],
)
def test_verdict_needs_the_whole_interval(four: tuple[int, ...], delta: float, verdict: str) -> None:
    found = metrics.not_worse(Paired(**dict(zip(Paired.__slots__, four, strict=True))), delta)
    assert found.verdict == verdict
    assert (found.low >= -delta) == (verdict == "NOT_WORSE")
    assert (found.high < -delta) == (verdict == "WORSE")


@given(cells, st.floats(0.001, 0.3))
@settings(max_examples=60, deadline=None)
def test_rows_needed_would_decide_and_one_row_less_would_not(
    four: tuple[int, int, int, int], delta: float
) -> None:
    counts = Paired(**dict(zip(Paired.__slots__, four, strict=True)))
    found = metrics.not_worse(counts, delta)
    assert found.difference is not None
    if found.rows_needed is None:
        assert found.verdict == "UNDECIDED"
        return

    def verdict(rows: int) -> bool:
        _, low, high = metrics.newcombe_paired(*(cell * rows / counts.rows for cell in four))
        return low >= -delta or high < -delta

    assert verdict(found.rows_needed)
    assert found.rows_needed == 1 or not verdict(found.rows_needed - 1)


def test_no_rows_are_no_verdict() -> None:
    found = metrics.not_worse(metrics.paired(np.zeros(0, bool), np.zeros(0, bool)), 0.01)
    assert (found.difference, found.verdict, found.rows_needed) == (None, "UNDECIDED", None)


def test_difference_that_is_the_limit_itself_is_never_decided() -> None:
    assert (
        metrics.not_worse(Paired(both=90, only_reference=2, only_candidate=1, neither=7), 0.01).rows_needed
        is None
    )
