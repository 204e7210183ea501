"""The ratio of two configurations from paired rounds: estimate, interval, verdict.

Pure functions of numbers; no clock, no I/O. A round is one block of every contestant within a second or so:
what the machine did to both sides cancels in their ratio. A generation is some rounds of one set of fresh
processes. Memory layout, page and thread placement are drawn once per process and stay for its life, so the
rounds of one generation share them: the unit of analysis is the generation, and an interval holds for new
processes of the same configurations. Ratios are baseline latency over candidate latency per row: above 1 the
candidate is faster.
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
from core.evidence.verdict import MIN_LAUNCHES, MIN_UNITS, Verdict
from core.spec.effort import DEFAULT_MARGIN

MIN_ROUNDS = 5  # of a single generation: the fewest that show what its rounds differ by
SEEN_UNITS = 4  # from here on the race itself has seen as much of the spread between processes as was assumed
PERSISTENCE_UNITS = 16  # the fewest that show whether a generation resembles the one before
MOST_PERSISTENCE = 0.9
RESOLUTION = 1e-9  # log ratios that differ by less are the same number and rounding: no clock shows that
DRIFT_UNITS = 8  # the fewest for which the normal approximation of Mann and Kendall's test holds
DRIFT_P = 0.01
DRIFT_LEAST = 0.02  # a real drift below 2 % over a whole comparison changes no decision
HOPELESS_UNITS = 9  # before, the spread itself is not known well enough to give up
HOPELESS_CHANCE = 0.05

_NORMAL = statistics.NormalDist()
_DRIFT_Z = _NORMAL.inv_cdf(1 - DRIFT_P / 2)
_LARGEST_LOG = 700.0  # beyond, exp overflows
_MEDIAN_COST = {1: 1.0, 2: 1.0, 3: 1.346, 4: 1.192}  # variance of a median, in that of a mean, normal data


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What is known of the spread between processes before a race: its size, and how much that counts."""

    sigma_between: float  # standard deviation of the log ratio of two fresh processes
    df: float  # degrees of freedom: as many as that many generations would give
    source: Source


# Pairs of fresh processes of one configuration differed by 0.6 to 1 % at 40 µs a run and by 0.3 % at 1 ms on
# a quiet machine with two cores. Two degrees of freedom: any race of four generations outweighs it.
ASSUMED = Prior(sigma_between=0.01, df=2.0, source="assumed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A ratio with its interval and what follows from it. Bounds are None where they cannot be known."""

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    generations: int
    sigma: float | None  # robust standard deviation of one round's log ratio within a generation
    sigma_between: float | None  # the same between fresh processes; None: not told apart from `sigma`
    between_from: Source
    half_width: float | None  # of the interval, as a share of the ratio
    within_half_width: float | None  # its part that more rounds would narrow; the squares of the two add up
    between_half_width: float | None  # its part that only more processes would narrow
    standard_error: float | None  # of the log ratio
    df: float | None  # degrees of freedom of the interval
    drifting: bool  # the log ratio itself moved from the first generations to the last
    margin: float  # within which a difference counts as none

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its bounds; None where they are not known."""
        known = self.ratio_low is not None and self.ratio_high is not None
        return cast(tuple[float, float], (self.ratio_low, self.ratio_high)) if known else None

    def to_dict(self) -> ContrastNumbers:
        """Plain JSON data."""
        return cast(ContrastNumbers, asdict(self))


def contrast(
    generations: Sequence[Sequence[float]],
    *,
    looks: float = 1,
    margin: float = DEFAULT_MARGIN,
    prior: Prior | None = ASSUMED,
) -> Contrast:
    """Estimate the ratio from the log ratios of every round of every generation, and decide.

    A generation counts as the 20 % trimmed mean of its rounds (the median below five). The estimate is the
    20 % trimmed mean of the generations with Yuen's interval, carried through exp. The variance of a
    generation is the mean of what these generations show and what the prior and the rounds predict, weighted
    by their degrees of freedom, and never less than what they show: a race of few generations does not
    believe its own luck, nor does it let a prior talk it out of what it saw. A prior that falls short of what
    was seen counts for fewer degrees of freedom, by the ratio of the two variances.

    An interval has the confidence 1 - 0.05/looks, so that with 95 % all intervals of all looks hold together,
    and a comparison may stop at any of them. A stop between two looks (the budget) takes the place of the
    look that follows. Where several contrasts are told together, `looks` counts those of all of them (see
    `continuation.parts`). From 16 generations on an interval is widened where one resembles the one before.

    EQUIVALENT, the whole interval within 1/(1 + margin) and 1 + margin, wins over FASTER and SLOWER. There is
    no interval, and the verdict is UNDECIDED, of a single generation, which shows nothing of the next; below
    5 generations without a prior, or of one round each, which the prior does not know; and where all that
    trimming leaves is the same number: then the clock was too coarse to show the spread, and a standard error
    of zero would be a false certainty.

    Args:
        generations: of each, in order, ln(baseline's median per row / candidate's) of its rounds; empty ones
            are skipped.
        looks: by what the 5 % are divided: how often the comparison may look at its numbers to decide whether
            to stop, times the contrasts that hold together.
        margin: relative difference up to which two contestants count as equally fast; 0: never.
        prior: of the spread between processes; None: these generations alone.

    Raises:
        ValueError: there is no round.

    Source: Tukey and McLaughlin (1963); Yuen (1974), Biometrika 61, 165-170; generations as units: Kalibera
    and Jones (2013), Rigorous benchmarking in reasonable time; moderated variances: Smyth (2004), Statistical
    Applications in Genetics and Molecular Biology 3(1); for the widening the effective number of a
    first-order autoregression, Bayley and Hammersley (1946).
    """
    kept = [sorted(one) for one in generations if one]
    n, rounds = len(kept), sum(map(len, kept))
    if n == 0:
        raise ValueError("a contrast needs at least one round")
    centers = list(map(_center, kept))
    ordered = sorted(centers)
    middle, within_s = _center(ordered), _within(kept)
    noise = _noise(kept, ordered, within_s, prior)
    low = high = half = error = None
    if noise is not None:
        error = math.sqrt(noise.variance / n) * _trimming_cost(n) * _persistence(centers, ordered)
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
        between_from="race" if prior is None or n >= SEEN_UNITS else prior.source,
        half_width=half,
        within_half_width=None if share is None or half is None else half * math.sqrt(share),
        between_half_width=None if share is None or half is None else half * math.sqrt(1 - share),
        standard_error=error,
        df=None if noise is None else noise.df,
        drifting=_drifting(centers),
        margin=margin,
    )


def usual(values: Sequence[float]) -> Estimate:
    """Estimate what is usual among launches: the 20 % trimmed mean with Yuen's interval, as for a ratio.

    A launch that is slow for its whole life moves neither the number nor, unless there are many, much of its
    interval; it holds for new launches, and one launch has none.

    Args:
        values: one of each launch, at least one.
    """
    n, ordered = len(values), sorted(values)
    value = _center(ordered)
    if n < MIN_LAUNCHES:
        return Estimate(value=value, low=None, high=None)
    error = _robust_deviation(ordered) * _trimming_cost(n) / math.sqrt(n)
    half = t_quantile(1 - (1 - CONFIDENCE) / 2, _spread_df(n)) * error
    return Estimate(value=value, low=max(0.0, value - half), high=value + half)


def excess_between(generations: Sequence[Sequence[float]]) -> float | None:
    """Variance of the log ratio of two fresh processes, as these generations alone show it.

    What the generations differ by, less what their rounds explain; below 0 where chance made them agree, so
    that the mean of many such is right. None below 4 generations, or of one round each.

    Args:
        generations: as for `contrast`.
    """
    kept = [sorted(one) for one in generations if one]
    within = _within_center(kept, _within(kept))
    if len(kept) < SEEN_UNITS or within is None:
        return None
    return _robust_deviation(sorted(map(_center, kept))) ** 2 - within


def spanning(one: Contrast, other: Contrast) -> Contrast:
    """Return `one` with an interval that holds the interval of `other`, too; the verdict follows from it.

    What more rounds and more processes would narrow is not told apart any more.

    Args:
        one: with an interval.
        other: with an interval, of some of the same rounds.
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


def settled(contrast: Contrast, target: float, of_effect: float = 0.0) -> bool:
    """Whether a comparison may stop at this look: it is decided, narrow enough, and does not drift.

    Args:
        contrast: of all rounds so far.
        target: relative half-width, as in `Effort.target`.
        of_effect: as in `Effort`.
    """
    decided = contrast.verdict != Verdict.UNDECIDED and not contrast.drifting
    enough = max(target, of_effect * abs(math.log(contrast.ratio)))
    return decided and contrast.half_width is not None and contrast.half_width <= enough


def hopeless(now: Contrast, *, looks: float, left: int) -> bool:
    """Whether to say UNDECIDED now, because the generations still allowed are too few to change that.

    Those to come are predicted from those that were: the estimate will move by about its own standard error,
    the interval will shrink with the square root of the generations. True when the chance that this ends in
    any verdict is below 5 %. Conservative: never before 9 generations, nor without an interval; and a
    comparison that is decided but wider than its target goes on.

    Args:
        now: of all generations so far.
        looks: as for `contrast`.
        left: generations that the budget and the last look still allow; 0 or less: none.

    Source: predictive power with a flat prior, Spiegelhalter, Freedman and Blackburn (1986).
    """
    if now.generations < HOPELESS_UNITS or now.verdict != Verdict.UNDECIDED or now.standard_error is None:
        return False
    return _chance_of_verdict(now, looks, max(0, left)) < HOPELESS_CHANCE


def predicted_units(deviation: float, target: float, *, looks: float = 6, prior_df: float = 0.0) -> int:
    """Return how many generations bring the half-width of the interval to `target`.

    Args:
        deviation: standard deviation of one generation's log ratio.
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


def sufficient_look(units: int, looks: Sequence[int]) -> int | None:
    """Return the first look that has `units` generations or more; None where even the last has fewer."""
    return next((look for look in looks if look >= units), None)


_MOST_PREDICTED = 100_000


# --- estimators: of values in ascending order, so that a race sorts each generation once -----------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """The variance of one generation's log ratio, and how well it is known."""

    variance: float
    within: float | None  # its part that the rounds of a generation cause; None: not told apart
    df: float


def _noise(
    generations: Sequence[Sequence[float]],
    centers: Sequence[float],
    within_s: float | None,
    prior: Prior | None,
) -> _Noise | None:
    """None where the rounds are too few, or too much alike, to show a spread."""
    n, within = len(centers), _within_center(generations, within_s)
    if within is None:  # a prior of processes says nothing of what single rounds differ by
        prior = None
    enough = (n >= 2 or len(generations[0]) >= MIN_ROUNDS) if prior is not None else n >= MIN_UNITS
    if not enough or _all_alike(generations, centers):
        return None
    own_df = _spread_df(n)
    own = _robust_deviation(centers) if n > 1 else None
    if prior is None or within is None:
        return _Noise(variance=(own or 0.0) ** 2, within=within, df=own_df)
    # One generation has seen no other process: however much earlier races knew, it is not believed here.
    df = min(prior.df, ASSUMED.df) if n == 1 else prior.df
    between = max(prior.sigma_between, ASSUMED.sigma_between) if n == 1 else prior.sigma_between
    seen = (own or 0.0) ** 2
    moderated = (df * (between**2 + within) + own_df * seen) / (df + own_df)
    # A prior may widen what chance made narrow, never narrow what was seen; and the more it falls short of
    # that, the less it counts for how well the noise is known.
    counts = min(1.0, (between**2 + within) / seen) if seen else 1.0
    return _Noise(variance=max(seen, moderated), within=within, df=df * counts + own_df)


def _all_alike(generations: Sequence[Sequence[float]], centers: Sequence[float]) -> bool:
    """Whether what trimming leaves is one number, within generations and between them."""
    if len(centers) > 1:
        return _trimmed_range(centers) < RESOLUTION and all(
            _trimmed_range(one) < RESOLUTION for one in generations
        )
    return _trimmed_range(generations[0]) < RESOLUTION


def _trimmed_range(ordered: Sequence[float]) -> float:
    cut = _cut(len(ordered))
    return ordered[len(ordered) - cut - 1] - ordered[cut]


def _center(ordered: Sequence[float]) -> float:
    """20 % trimmed mean; the median below five, where there is nothing to trim."""
    n = len(ordered)
    cut = _cut(n)
    if not cut:
        return ordered[n // 2] if n % 2 else (ordered[n // 2 - 1] + ordered[n // 2]) / 2
    return math.fsum(ordered[cut : n - cut]) / (n - 2 * cut)


@lru_cache(maxsize=1024)
def _trimming_cost(n: int) -> float:
    """Standard error of `_center` of n normal values, in that of their mean."""
    cut = _cut(n)
    if not cut:
        return math.sqrt(_MEDIAN_COST[n])
    return _normal_winsorised_deviation(cut / n) / (1 - 2 * cut / n)


def _within(generations: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation of one round within a usual generation; None where none has two rounds.

    The median over the generations, weighted by their degrees of freedom: one wild round of one generation
    moves neither its center nor theirs, and so must not count here. From three on, each is divided by what
    the median of a chi-squared variable falls short of its mean by (Wilson and Hilferty 1931).
    """
    kept = [(one, df) for one in generations if (df := _spread_df(len(one))) > 0]
    shortfall = {df: (1 - 2 / (9 * df)) ** 3 if len(kept) > 2 else 1.0 for df in {df for _, df in kept}}
    seen = sorted([(_robust_deviation(one) ** 2 / shortfall[df], df) for one, df in kept])
    half, below = sum(df for _, df in seen) / 2, 0
    for number, (square, df) in enumerate(seen):
        below += df
        if below == half:  # between two, as for any median
            return math.sqrt((square + seen[number + 1][0]) / 2)
        if below > half:
            return math.sqrt(square)
    return None


def _spread_df(n: int) -> int:
    """Degrees of freedom of `_robust_deviation` of n values."""
    return n - 2 * _cut(n) - 1


def _within_center(generations: Sequence[Sequence[float]], within_s: float | None) -> float | None:
    """Variance of a generation's center that its rounds cause, on average; None where it is not known."""
    if within_s is None:
        return None
    costs = [_trimming_cost(n) ** 2 / n for n in map(len, generations)]
    return within_s**2 * math.fsum(costs) / len(costs)


def _robust_deviation(ordered: Sequence[float]) -> float:
    """Standard deviation from the winsorised one; 0 where all that trimming leaves is one number."""
    n = len(ordered)
    if n < 2:
        return 0.0
    cut = _cut(n)
    least, most = ordered[cut], ordered[n - cut - 1]
    if most - least < RESOLUTION:
        return 0.0
    values = [least] * cut + [*ordered[cut : n - cut]] + [most] * cut
    mean = math.fsum(values) / n
    offsets = [value - mean for value in values]
    return math.sqrt(sum(map(mul, offsets, offsets)) / (n - 1)) / _normal_winsorised_deviation(cut / n)


def _persistence(values: Sequence[float], ordered: Sequence[float]) -> float:
    """How much wider the error of a mean is because a value resembles the one before; 1 where it does not.

    The autocorrelation is that of the values winsorised by 20 %, less its bias of -1/n. It counts from
    its own standard error on, 1/sqrt(n) (Bartlett 1946): whoever widens for any luck above 0 makes every
    interval too wide by a tenth.
    """
    n = len(values)
    if n < PERSISTENCE_UNITS:
        return 1.0
    cut = _cut(n)
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
    correlation = min(correlation, MOST_PERSISTENCE)
    return math.sqrt((1 + correlation) / (1 - correlation))


@lru_cache(maxsize=1024)
def _normal_winsorised_deviation(share: float) -> float:
    """Standard deviation of a standard normal whose tails of `share` each are pulled in to their edge."""
    if share <= 0:
        return 1.0
    edge = -_NORMAL.inv_cdf(share)
    return math.sqrt(1 - 2 * share - 2 * edge * _NORMAL.pdf(edge) + 2 * share * edge * edge)


def _chance_of_verdict(now: Contrast, looks: float, left: int) -> float:
    assert now.standard_error is not None
    assert now.df is not None
    n, center, error = now.generations, math.log(now.ratio), now.standard_error
    prior_df = now.df - (n - 2 * _cut(n) - 1)
    end = error * math.sqrt(n / (n + left))
    reach = _t(n + left, looks, prior_df) * end
    moves = math.sqrt(error**2 - end**2)
    inside = math.log1p(now.margin) - reach
    decided = _above(reach - center, moves) + _above(reach + center, moves)
    equivalent = 0.0 if inside <= 0 else 1 - _above(inside - center, moves) - _above(inside + center, moves)
    return decided + max(0.0, equivalent)


def _above(distance: float, deviation: float) -> float:
    """Chance that a normal move of `deviation` goes farther than `distance`."""
    if deviation == 0:
        return float(distance < 0)
    return 1 - _NORMAL.cdf(distance / deviation)


def _drifting(log_ratios: Sequence[float]) -> bool:
    """Mann and Kendall's test for a trend, and a trend large enough to matter.

    The size is Theil's "incomplete" slope: the median of the differences between the generations of the first
    half and those half a comparison later.
    """
    n = len(log_ratios)
    if n < DRIFT_UNITS:
        return False
    score, variance = _kendall_score(log_ratios)
    if variance <= 0 or (abs(score) - 1) / math.sqrt(variance) < _DRIFT_Z:
        return False
    half = n // 2
    slope = statistics.median(log_ratios[i + n - half] - log_ratios[i] for i in range(half)) / (n - half)
    return abs(math.expm1(slope * n)) > DRIFT_LEAST


def _kendall_score(values: Sequence[float]) -> tuple[int, float]:
    """Rising minus falling pairs, and the variance of that number when there is no trend; ties accounted."""
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
    df = max(1.0, units - 2 * _cut(units) - 1 + prior_df)
    return t_quantile(1 - (1 - CONFIDENCE) / looks / 2, df)


def _cut(units: int) -> int:
    """How many are trimmed at either end: 20 %, and so none below five."""
    return units // 5


def _exp(value: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(_LARGEST_LOG, value)))
