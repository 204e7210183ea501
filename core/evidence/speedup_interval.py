"""The ratio of two configurations from paired rounds: estimate, interval, verdict. Pure functions, no I/O.

A launch is one set of fresh processes (`generation` in stored results); it runs rounds. A round is one block
of every configuration within about a second, so background load affects both sides and mostly cancels. A
ratio is the baseline's median latency per sample over the candidate's: above 1 the candidate is faster.

Round j of launch i follows a random-effects model with nested factors:

    ln(ratio_ij) = mu + b_i + e_ij

mu is fixed: the log of the reported ratio. b_i is random, with the standard deviation `sigma_between`: every
launch draws a new memory layout and a new placement of pages and threads, which its rounds share. e_ij is
random, with the standard deviation `sigma`: noise between the rounds of one launch. More rounds average out
e_ij only; more launches average out both. The launch is the unit of inference, so the interval covers new
processes.

The estimate of mu is the 20 % trimmed mean over launches of the 20 % trimmed mean over rounds. Its interval
is Yuen's Student t interval on the log scale, back-transformed by exp. `contrast` describes the variance,
with a prior for few launches, and the corrections for interim analyses and autocorrelation.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from operator import mul
from typing import cast

from core.evidence.result_types import ContrastNumbers, Source
from core.evidence.statistics import CONFIDENCE, Estimate, t_quantile
from core.evidence.verdict import MIN_LAUNCHES, MIN_SINGLE_ROUND_LAUNCHES, Verdict
from core.spec.effort import DEFAULT_MARGIN

MIN_ROUNDS = 5  # rounds of a single launch needed to estimate the spread between rounds
SPREAD_LAUNCHES = (
    4  # launches from which on the measured spread between processes outweighs the assumed prior
)
AUTOCORRELATION_LAUNCHES = 16  # launches needed to estimate the autocorrelation between launches
MAX_AUTOCORRELATION = 0.9
RESOLUTION = 1e-9  # smaller differences of log ratios are rounding, below the resolution of any clock
DRIFT_LAUNCHES = 8  # launches needed for the normal approximation of the Mann-Kendall test
DRIFT_P = 0.01
DRIFT_LEAST = 0.02  # a real drift below 2 % over a whole comparison changes no decision
FUTILITY_LAUNCHES = 9  # with fewer launches the spread is not known well enough to stop for futility
FUTILITY_CHANCE = 0.05

_NORMAL = statistics.NormalDist()
_DRIFT_Z = _NORMAL.inv_cdf(1 - DRIFT_P / 2)
_LARGEST_LOG = 700.0  # beyond, exp overflows
_MEDIAN_COST = {1: 1.0, 2: 1.0, 3: 1.346, 4: 1.192}  # variance of median over that of mean, normal data


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Prior of the spread between processes: its size and its weight."""

    sigma_between: float  # standard deviation of the log ratio of two fresh processes
    df: float  # degrees of freedom: its weight as a number of launches
    source: Source


# Pairs of fresh processes of one configuration differed by 0.6 to 1 % at 40 µs per run and by 0.3 % at 1 ms
# on an idle machine with two cores. Two degrees of freedom: any comparison of four launches outweighs it.
ASSUMED_PRIOR = Prior(sigma_between=0.01, df=2.0, source="assumed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A ratio with its interval and verdict. Bounds are None where they cannot be estimated."""

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    generations: int
    sigma: float | None  # robust standard deviation of one round's log ratio within a launch
    sigma_between: float | None  # the same between fresh processes; None: not separable from `sigma`
    between_from: Source
    half_width: float | None  # of the interval, as a share of the ratio
    within_half_width: float | None  # part that more rounds reduce; the squares of the two parts add up
    between_half_width: float | None  # part that only more launches reduce
    standard_error: float | None  # of the log ratio
    df: float | None  # degrees of freedom of the interval
    drifting: bool  # the log ratio has a trend over the launches
    margin: float  # equivalence margin, relative

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bounds of the interval; None where they are not known."""
        known = self.ratio_low is not None and self.ratio_high is not None
        return cast(tuple[float, float], (self.ratio_low, self.ratio_high)) if known else None

    def to_dict(self) -> ContrastNumbers:
        """Plain JSON data."""
        return cast(ContrastNumbers, asdict(self))


def contrast(
    launches: Sequence[Sequence[float]],
    *,
    looks: float = 1,
    margin: float = DEFAULT_MARGIN,
    prior: Prior | None = ASSUMED_PRIOR,
) -> Contrast:
    """Estimate the ratio and its verdict from the log ratios of all rounds of all launches.

    A launch counts as the 20 % trimmed mean of its rounds (the median below five rounds). The estimate is the
    20 % trimmed mean of the launches with Yuen's interval, back-transformed by exp. The variance of a launch
    is the mean of the observed variance and the one that the prior and the rounds predict, weighted by their
    degrees of freedom. It is never less than the observed variance: the prior can widen an interval of few
    launches, but not narrow it. A predicted variance below the observed one reduces the prior's degrees of
    freedom by the ratio of the two.

    An interval has the confidence 1 - 0.05/looks, so that all intervals of all interim analyses hold together
    with 95 %, and a comparison may stop at any of them. A stop between two interim analyses (budget spent)
    takes the place of the next one. If several contrasts are reported together, `looks` counts those of all
    of them (see `continuation.parts`). From 16 launches on, autocorrelation between launches widens the
    interval.

    EQUIVALENT (the whole interval within 1/(1 + margin) and 1 + margin) takes precedence over FASTER and
    SLOWER. There is no interval, and the verdict is UNDECIDED, in three cases: a single launch, which says
    nothing about the next one; fewer than 5 launches without a prior, or with one round each, which the prior
    does not cover; and identical values after trimming, because the clock was too coarse to show the spread
    and a standard error of zero would be wrong.

    Args:
        launches: for each launch, in order, ln(baseline's median per sample / candidate's) of its rounds;
            empty launches are skipped.
        looks: divisor of the 5 %: number of interim analyses times the number of contrasts that hold
            together.
        margin: equivalence margin, relative; 0: never equivalent.
        prior: prior of the spread between processes; None: none is used.

    Raises:
        ValueError: there is no round.

    Source: Tukey and McLaughlin (1963); Yuen (1974), Biometrika 61, 165-170; launches as units: Kalibera
    and Jones (2013), Rigorous benchmarking in reasonable time; moderated variances: Smyth (2004), Statistical
    Applications in Genetics and Molecular Biology 3(1); widening by autocorrelation: the effective sample
    size of a first-order autoregression, Bayley and Hammersley (1946).
    """
    kept = [sorted(one) for one in launches if one]
    n, rounds = len(kept), sum(map(len, kept))
    if n == 0:
        raise ValueError("a contrast needs at least one round")
    centers = list(map(_center, kept))
    ordered = sorted(centers)
    middle, within_s = _center(ordered), _within(kept)
    noise = _noise(kept, ordered, within_s, prior)
    low = high = half = error = None
    if noise is not None:
        error = math.sqrt(noise.variance / n) * _trimming_cost(n) * _autocorrelation_factor(centers, ordered)
    if noise is not None and error is not None and n >= MIN_LAUNCHES:
        reach = t_quantile(1 - (1 - CONFIDENCE) / looks / 2, noise.df) * error
        low, high = _exp(middle - reach), _exp(middle + reach)
        half = (high - low) / 2 / _exp(middle)
    share = None if noise is None or noise.within is None else min(1.0, noise.within / noise.variance)
    return Contrast(
        ratio=_exp(middle),
        ratio_low=low,
        ratio_high=high,
        verdict=Verdict.of(low, high, margin),
        rounds=rounds,
        generations=n,
        sigma=within_s if within_s is not None else _robust_deviation(ordered) if n > 1 else None,
        sigma_between=None if share is None or noise is None else math.sqrt((1 - share) * noise.variance),
        between_from="race" if prior is None or n >= SPREAD_LAUNCHES else prior.source,
        half_width=half,
        within_half_width=None if share is None or half is None else half * math.sqrt(share),
        between_half_width=None if share is None or half is None else half * math.sqrt(1 - share),
        standard_error=error,
        df=None if noise is None else noise.df,
        drifting=_drifting(centers),
        margin=margin,
    )


def trimmed_estimate(values: Sequence[float]) -> Estimate:
    """Estimate the typical value of a launch: the 20 % trimmed mean with Yuen's interval, as for a ratio.

    A few slow launches change neither the estimate nor much of the interval. The interval holds for new
    launches; a single launch has none.

    Args:
        values: one value per launch, at least one.
    """
    n, ordered = len(values), sorted(values)
    value = _center(ordered)
    if n < MIN_LAUNCHES:
        return Estimate(value=value, low=None, high=None)
    error = _robust_deviation(ordered) * _trimming_cost(n) / math.sqrt(n)
    half = t_quantile(1 - (1 - CONFIDENCE) / 2, _spread_df(n)) * error
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def excess_between(launches: Sequence[Sequence[float]]) -> float | None:
    """Return the variance of the log ratio between fresh processes, estimated from these launches alone.

    It is the variance between launches minus the part that their rounds explain. It can be negative by
    chance, which keeps the mean of many such estimates unbiased. None below 4 launches or with one round
    each.

    Args:
        launches: as for `contrast`.
    """
    kept = [sorted(one) for one in launches if one]
    within = _within_center(kept, _within(kept))
    if len(kept) < SPREAD_LAUNCHES or within is None:
        return None
    return _robust_deviation(sorted(map(_center, kept))) ** 2 - within


def with_joint_interval(one: Contrast, other: Contrast) -> Contrast:
    """Return `one` with an interval that includes the interval of `other`; the verdict follows from it.

    The two parts of the half-width are None.

    Args:
        one: contrast with an interval.
        other: contrast with an interval, from a part of the same rounds.
    """
    assert one.interval is not None
    assert other.interval is not None
    low, high = min(one.interval[0], other.interval[0]), max(one.interval[1], other.interval[1])
    return replace(
        one,
        ratio_low=low,
        ratio_high=high,
        verdict=Verdict.of(low, high, one.margin),
        half_width=(high - low) / 2 / one.ratio,
        within_half_width=None,
        between_half_width=None,
    )


def may_stop(contrast: Contrast, target: float, of_effect: float = 0.0) -> bool:
    """Whether a comparison may stop at this interim analysis: decided, narrow enough and without drift.

    Args:
        contrast: contrast of all rounds so far.
        target: relative half-width, as in `Effort.target`.
        of_effect: as in `Effort`.
    """
    decided = contrast.verdict != Verdict.UNDECIDED and not contrast.drifting
    enough = max(target, of_effect * abs(math.log(contrast.ratio)))
    return decided and contrast.half_width is not None and contrast.half_width <= enough


def is_futile(now: Contrast, *, looks: float, left: int) -> bool:
    """Whether to stop for futility: the remaining launches are too few to reach a verdict.

    The prediction assumes that the estimate moves by about its standard error and that the interval shrinks
    with the square root of the number of launches. True if the probability of any verdict is below 5 %.
    Conservative: never before 9 launches or without an interval. A comparison that is decided but wider than
    its target continues.

    Args:
        now: contrast of all launches so far.
        looks: as for `contrast`.
        left: launches that the budget and the last interim analysis still allow; 0 or less: none.

    Source: predictive power with a flat prior, Spiegelhalter, Freedman and Blackburn (1986).
    """
    if now.generations < FUTILITY_LAUNCHES or now.verdict != Verdict.UNDECIDED or now.standard_error is None:
        return False
    return _chance_of_verdict(now, looks, max(0, left)) < FUTILITY_CHANCE


def predicted_launches(deviation: float, target: float, *, looks: float = 6, prior_df: float = 0.0) -> int:
    """Return the number of launches that brings the half-width of the interval to `target`.

    Args:
        deviation: standard deviation of the log ratio of one launch.
        target: relative half-width, above 0.
        looks: as for `contrast`.
        prior_df: degrees of freedom of the prior.
    """
    n = 2
    while n < _MOST_PREDICTED:
        reach = _t(n, looks, prior_df) * deviation * _trimming_cost(n) / math.sqrt(n)
        if reach <= target:
            return n
        n += max(1, n // 16)
    return n


def sufficient_analysis(units: int, looks: Sequence[int]) -> int | None:
    """Return the first interim analysis with at least `units` launches; None if the last one has fewer."""
    return next((look for look in looks if look >= units), None)


_MOST_PREDICTED = 100_000


# --- estimators: they take values in ascending order, so that each launch is sorted once -----------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """The variance of the log ratio of one launch, with its degrees of freedom."""

    variance: float
    within: float | None  # part caused by the rounds within a launch; None: not separable
    df: float


def _noise(
    launches: Sequence[Sequence[float]],
    centers: Sequence[float],
    within_s: float | None,
    prior: Prior | None,
) -> _Noise | None:
    """Return None where the rounds are too few, or too similar, to estimate the variance."""
    n, within = len(centers), _within_center(launches, within_s)
    if within is None:  # the prior covers processes, not single rounds
        prior = None
    enough = (
        (n >= 2 or len(launches[0]) >= MIN_ROUNDS) if prior is not None else n >= MIN_SINGLE_ROUND_LAUNCHES
    )
    if not enough or _all_alike(launches, centers):
        return None
    own_df = _spread_df(n)
    own = _robust_deviation(centers) if n > 1 else None
    if prior is None or within is None:
        return _Noise(variance=(own or 0.0) ** 2, within=within, df=own_df)
    # A single launch cannot check the prior, so it gets at most the weight and at least the size of ASSUMED.
    df = min(prior.df, ASSUMED_PRIOR.df) if n == 1 else prior.df
    between = max(prior.sigma_between, ASSUMED_PRIOR.sigma_between) if n == 1 else prior.sigma_between
    seen = (own or 0.0) ** 2
    moderated = (df * (between**2 + within) + own_df * seen) / (df + own_df)
    # The prior may widen the observed variance, never narrow it. The further it falls below the observed
    # variance, the fewer degrees of freedom it adds.
    counts = min(1.0, (between**2 + within) / seen) if seen else 1.0
    return _Noise(variance=max(seen, moderated), within=within, df=df * counts + own_df)


def _all_alike(launches: Sequence[Sequence[float]], centers: Sequence[float]) -> bool:
    """Whether all values left after trimming are equal, within launches and between them."""
    if len(centers) > 1:
        return _trimmed_range(centers) < RESOLUTION and all(
            _trimmed_range(one) < RESOLUTION for one in launches
        )
    return _trimmed_range(launches[0]) < RESOLUTION


def _trimmed_range(ordered: Sequence[float]) -> float:
    cut = _trimmed_count(len(ordered))
    return ordered[len(ordered) - cut - 1] - ordered[cut]


def _center(ordered: Sequence[float]) -> float:
    """Return the 20 % trimmed mean; the median below five values, where nothing is trimmed."""
    n = len(ordered)
    cut = _trimmed_count(n)
    if not cut:
        return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2
    return math.fsum(ordered[cut : n - cut]) / (n - 2 * cut)


@lru_cache(maxsize=1024)
def _trimming_cost(n: int) -> float:
    """Return the standard error of `_center` of n normal values over that of their mean."""
    cut = _trimmed_count(n)
    if not cut:
        return math.sqrt(_MEDIAN_COST[n])
    return _normal_winsorised_deviation(cut / n) / (1 - 2 * cut / n)


def _within(launches: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation of one round within a launch; None where no launch has two rounds.

    It is the median over the launches, weighted by their degrees of freedom: an outlier in one launch does
    not move the trimmed means, so it must not count here. From three launches on, each variance is divided by
    the ratio of the median of a chi-squared variable to its mean (Wilson and Hilferty 1931).
    """
    kept = [(one, df) for one in launches if (df := _spread_df(len(one))) > 0]
    shortfall = {df: (1 - 2 / (9 * df)) ** 3 if len(kept) > 2 else 1.0 for df in {df for _, df in kept}}
    seen = sorted([(_robust_deviation(one) ** 2 / shortfall[df], df) for one, df in kept])
    half, below = sum(df for _, df in seen) / 2, 0
    for number, (square, df) in enumerate(seen):
        below += df
        if below == half:
            return math.sqrt((square + seen[number + 1][0]) / 2)
        if below > half:
            return math.sqrt(square)
    return None


def _spread_df(n: int) -> int:
    """Degrees of freedom of `_robust_deviation` of n values."""
    return n - 2 * _trimmed_count(n) - 1


def _within_center(launches: Sequence[Sequence[float]], within_s: float | None) -> float | None:
    """Return the mean variance of a launch's center caused by its rounds; None where it is not known."""
    if within_s is None:
        return None
    costs = [_trimming_cost(n) ** 2 / n for n in map(len, launches)]
    return within_s**2 * math.fsum(costs) / len(costs)


def _robust_deviation(ordered: Sequence[float]) -> float:
    """Return the standard deviation from the winsorised one; 0 if all values left by trimming are equal."""
    n = len(ordered)
    if n < 2:
        return 0.0
    cut = _trimmed_count(n)
    least, most = ordered[cut], ordered[n - cut - 1]
    if most - least < RESOLUTION:
        return 0.0
    values = [least] * cut + [*ordered[cut : n - cut]] + [most] * cut
    mean = math.fsum(values) / n
    offsets = [value - mean for value in values]
    return math.sqrt(sum(map(mul, offsets, offsets)) / (n - 1)) / _normal_winsorised_deviation(cut / n)


def _autocorrelation_factor(values: Sequence[float], ordered: Sequence[float]) -> float:
    """Return the factor by which autocorrelation increases the error of a mean; 1 without autocorrelation.

    The autocorrelation is that of the values winsorised by 20 %, corrected for its bias of -1/n. It counts
    only above its standard error, 1/sqrt(n) (Bartlett 1946): widening for every value above 0 would make all
    intervals about 10 % too wide.
    """
    n = len(values)
    if n < AUTOCORRELATION_LAUNCHES:
        return 1.0
    cut = _trimmed_count(n)
    least, most = ordered[cut], ordered[n - cut - 1]
    kept = [least if value < least else most if value > most else value for value in values]
    mean = math.fsum(kept) / n
    offsets = [value - mean for value in kept]
    squares = sum(map(mul, offsets, offsets))
    if not squares:
        return 1.0
    correlation = sum(map(mul, offsets, offsets[1:])) / squares + 1 / n
    if correlation < 1 / math.sqrt(n):
        return 1.0
    correlation = min(correlation, MAX_AUTOCORRELATION)
    return math.sqrt((1 + correlation) / (1 - correlation))


@lru_cache(maxsize=1024)
def _normal_winsorised_deviation(share: float) -> float:
    """Return the standard deviation of a standard normal winsorised by `share` at each end."""
    if share <= 0:
        return 1.0
    edge = -_NORMAL.inv_cdf(share)
    return math.sqrt(1 - 2 * share - 2 * edge * _NORMAL.pdf(edge) + 2 * share * edge * edge)


def _chance_of_verdict(now: Contrast, looks: float, left: int) -> float:
    assert now.standard_error is not None
    assert now.df is not None
    n, center, error = now.generations, math.log(now.ratio), now.standard_error
    prior_df = now.df - (n - 2 * _trimmed_count(n) - 1)
    end = error * math.sqrt(n / (n + left))
    reach = _t(n + left, looks, prior_df) * end
    moves = math.sqrt(error**2 - end**2)
    inside = math.log1p(now.margin) - reach
    decided = _probability_above(reach - center, moves) + _probability_above(reach + center, moves)
    equivalent = (
        0.0
        if inside <= 0
        else 1 - _probability_above(inside - center, moves) - _probability_above(inside + center, moves)
    )
    return decided + max(0.0, equivalent)


def _probability_above(distance: float, deviation: float) -> float:
    """Return the probability that a normal change with this deviation exceeds `distance`."""
    if deviation == 0:
        return float(distance < 0)
    return 1 - _NORMAL.cdf(distance / deviation)


def _drifting(log_ratios: Sequence[float]) -> bool:
    """Whether the Mann-Kendall test finds a trend, and the trend is large enough to matter.

    The size is Theil's "incomplete" slope: the median of the differences between the launches of the first
    half and those half a comparison later.
    """
    n = len(log_ratios)
    if n < DRIFT_LAUNCHES:
        return False
    score, variance = _kendall_score(log_ratios)
    if variance <= 0 or (abs(score) - 1) / math.sqrt(variance) < _DRIFT_Z:
        return False
    half = n // 2
    slope = statistics.median(log_ratios[i + n - half] - log_ratios[i] for i in range(half)) / (n - half)
    return abs(math.expm1(slope * n)) > DRIFT_LEAST


def _kendall_score(values: Sequence[float]) -> tuple[int, float]:
    """Return rising minus falling pairs, and its variance without a trend, corrected for ties."""
    seen: list[float] = []
    score = 0
    for value in values:
        below = upto = bisect_left(seen, value)
        if below < len(seen) and seen[below] == value:
            upto = bisect_right(seen, value)
        score += below + upto - len(seen)
        seen.insert(below, value)
    n, different = len(seen), Counter(seen)
    tied = [ties for ties in different.values() if ties > 1] if len(different) < n else []
    loss = sum(ties * (ties - 1) * (2 * ties + 5) for ties in tied)
    return score, (n * (n - 1) * (2 * n + 5) - loss) / 18


def _t(units: int, looks: float, prior_df: float = 0.0) -> float:
    df = max(1.0, units - 2 * _trimmed_count(units) - 1 + prior_df)
    return t_quantile(1 - (1 - CONFIDENCE) / looks / 2, df)


def _trimmed_count(units: int) -> int:
    """Return how many values are trimmed at each end: 20 %, so none below five."""
    return units // 5


def _exp(value: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(_LARGEST_LOG, value)))
