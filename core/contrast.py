"""How one contestant stands to another: paired rounds to ratio, interval, verdict, ranks, and their words.

Pure functions of numbers; no clock, no I/O. The unit is the round, in which every contestant ran one block
within a second or so of the others: what the machine did to both sides cancels in their ratio. Ratios are
baseline latency over candidate latency per row: above 1 the candidate is faster.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations, permutations, product
from operator import mul
from types import MappingProxyType
from typing import Any, Literal

from core.statistics import CONFIDENCE, t_quantile

Verdict = Literal["FASTER", "SLOWER", "EQUIVALENT", "UNDECIDED"]

DEFAULT_MARGIN = 0.02  # differences below 2 % are rarely worth a change of configuration
MIN_ROUNDS = 5  # the fewest that trimming leaves three of; below, a spread is a guess
PERSISTENCE_ROUNDS = 16  # the fewest that show whether a round resembles the one before
MOST_PERSISTENCE = 0.9
RESOLUTION = 1e-9  # log ratios that differ by less are the same number and rounding: no clock shows that
DRIFT_ROUNDS = 8  # the fewest for which the normal approximation of Mann and Kendall's test holds
DRIFT_P = 0.01
DRIFT_LEAST = 0.02  # a real drift below 2 % over a whole comparison changes no decision
HOPELESS_ROUNDS = 32  # before, the spread itself is not known well enough to give up
HOPELESS_CHANCE = 0.05
STABLE_ROUNDS, STABLE_SHARE = 16, 0.25  # the spread moved less than that over the last rounds
MOST_DIGITS, MOST_DECIMALS = 4, 6

_NORMAL = statistics.NormalDist()
_LARGEST_LOG = 700.0  # beyond, exp overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How sure to be, and how long to try at most."""

    name: str
    target: float  # relative half-width of the interval at which to stop
    budget_s: int
    looks: tuple[int, ...]  # rounds after which a comparison may stop


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        one.name: one
        for one in (
            Precision(name="quick", target=0.03, budget_s=30, looks=(8, 16, 32, 64, 128, 256)),
            Precision(name="standard", target=0.015, budget_s=120, looks=(8, 16, 32, 64, 128, 256, 512)),
            Precision(name="publish", target=0.007, budget_s=600, looks=(8, 16, 32, 64, 128, 256, 512, 1024)),
        )
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A ratio with its interval and what follows from it. Bounds are None where they cannot be known."""

    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    verdict: Verdict
    rounds: int
    sigma: float | None  # robust standard deviation of one round's log ratio; None below two rounds
    half_width: float | None  # of the interval, as a share of the ratio
    drifting: bool  # the log ratio itself moved from the first rounds to the last
    margin: float  # within which a difference counts as none

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return asdict(self)


def contrast(log_ratios: Sequence[float], *, looks: int = 1, margin: float = DEFAULT_MARGIN) -> Contrast:
    """Estimate the ratio from one log ratio per round, and decide.

    The estimate is the 20 % trimmed mean with Yuen's interval, both carried through exp. An interval has the
    confidence 1 - 0.05/looks, so that with 95 % all intervals of all looks hold together, and a comparison
    may stop at any of them. A stop between two looks (the budget) takes the place of the look that follows.
    From 16 rounds on it is widened where a round resembles the one before: a burst that lasts several rounds
    and hits one side more than the other is one piece of bad luck, not several.

    EQUIVALENT, the whole interval within 1/(1 + margin) and 1 + margin, wins over FASTER and SLOWER. There is
    no interval, and the verdict is UNDECIDED, below 5 rounds, where the ratio is the median; and where the
    rounds that trimming leaves are all the same number: then the clock was too coarse to show the spread,
    and a standard error of zero would be a false certainty.

    Args:
        log_ratios: ln(baseline's median per row / candidate's median per row) of each round, in order.
        looks: how often the comparison may look at its numbers to decide whether to stop.
        margin: relative difference up to which two contestants count as equally fast; 0: never.

    Raises:
        ValueError: there is no round.

    Source: Tukey and McLaughlin (1963); Yuen (1974), Biometrika 61, 165-170; for the widening the effective
    number of a first-order autoregression, Bayley and Hammersley (1946).
    """
    n = len(log_ratios)
    if n == 0:
        raise ValueError("a contrast needs at least one round")
    ordered = sorted(log_ratios)
    cut = _cut(n)
    spread = _winsorised_deviation(ordered, cut) if n > 1 else None
    center = math.fsum(ordered[cut : n - cut]) / (n - 2 * cut) if cut else statistics.median(ordered)
    low = high = half = None
    if n >= MIN_ROUNDS and spread:
        error = spread / ((1 - 2 * cut / n) * math.sqrt(n))
        error *= _persistence(log_ratios, ordered[cut], ordered[n - cut - 1])
        reach = _t(n, looks) * error
        low, high = _exp(center - reach), _exp(center + reach)
        half = (high - low) / 2 / _exp(center)
    return Contrast(
        ratio=_exp(center),
        ratio_low=low,
        ratio_high=high,
        verdict=_verdict(low, high, margin),
        rounds=n,
        sigma=None if spread is None else spread / _normal_winsorised_deviation(cut / n),
        half_width=half,
        drifting=_drifting(log_ratios),
        margin=margin,
    )


def settled(contrast: Contrast, target: float) -> bool:
    """Whether a comparison may stop at this look: it is decided, narrow enough, and does not drift.

    Args:
        contrast: of all rounds so far.
        target: relative half-width, as in `Precision.target`.
    """
    decided = contrast.verdict != "UNDECIDED" and not contrast.drifting
    return decided and contrast.half_width is not None and contrast.half_width <= target


def hopeless(log_ratios: Sequence[float], *, looks: int, margin: float, rounds_left: int) -> bool:
    """Whether to say UNDECIDED now, because the rounds still allowed are too few to change that.

    The rounds to come are predicted from those that were: the estimate will move by about its own standard
    error, the interval will shrink with the square root of the rounds. True when the chance that this ends in
    any verdict is below 5 %. Conservative: never before 32 rounds, nor while the spread still changes (more
    than a quarter over the last 16 rounds), nor without an interval; and a comparison that is decided but
    wider than its target goes on.

    Args:
        log_ratios: of all rounds so far, in order.
        looks: as for `contrast`.
        margin: as for `contrast`.
        rounds_left: that the budget and the last look still allow; 0 or less: none.

    Source: predictive power with a flat prior, Spiegelhalter, Freedman and Blackburn (1986).
    """
    if len(log_ratios) < HOPELESS_ROUNDS:
        return False
    now = contrast(log_ratios, looks=looks, margin=margin)
    before = contrast(log_ratios[:-STABLE_ROUNDS], looks=looks, margin=margin)
    if now.verdict != "UNDECIDED" or now.ratio_high is None or not now.sigma or not before.sigma:
        return False
    if abs(now.sigma / before.sigma - 1) > STABLE_SHARE:
        return False
    return _chance_of_verdict(now, looks, max(0, rounds_left)) < HOPELESS_CHANCE


def predicted_rounds(sigma: float, target: float, *, looks: int = 6) -> int:
    """Return how many rounds bring the half-width of the interval to `target`.

    (z * 1.2 * sigma / target) squared, with z of the split alpha: 2.64 for six looks. 1.2 is what the trimmed
    mean (1.07 on normal data), Student's t and the allowance for lasting bursts cost.

    Args:
        sigma: standard deviation of one log ratio, as in `Contrast.sigma` or from a self-test.
        target: relative half-width, above 0.
        looks: as for `contrast`.
    """
    z = _NORMAL.inv_cdf(1 - (1 - CONFIDENCE) / looks / 2)
    return max(MIN_ROUNDS, math.ceil((z * 1.2 * sigma / target) ** 2))


def sufficient_look(rounds: int, looks: Sequence[int]) -> int | None:
    """Return the first look that has `rounds` rounds or more; None where even the last has fewer."""
    return next((look for look in looks if look >= rounds), None)


# --- words ---------------------------------------------------------------------------------------------


def ratio_text(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """Return the ratio as text with the digits that its interval supports, four significant ones at most.

    One step of the last digit is at most half of the interval's half-width: 1.4237 is "1.42" in ±0.04, "1.4"
    in ±0.3. Without an interval two digits are shown.
    """
    return f"{ratio:.{_decimals(ratio, low, high)}f}"


def words(contrast: Mapping[str, Any]) -> str:
    """Say a contrast (`Contrast.to_dict()`, or a stored one) in plain English, for screens and commands.

    "1.42× faster, 95 % [1.38, 1.46]", "1.30× slower, 95 % [1.25, 1.36]", "no difference larger than 2 %
    (1.004×, 95 % [0.995, 1.013])", "undecided: between 0.97× and 1.08×".
    """
    ratio, low, high = contrast["ratio"], contrast["ratio_low"], contrast["ratio_high"]
    if low is None or high is None:
        return f"undecided: about {ratio_text(ratio)}×; {_why_no_interval(contrast['rounds'])}"
    if contrast["verdict"] == "SLOWER":
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    places = _decimals(ratio, low, high)
    span = f"95 % [{low:.{places}f}, {high:.{places}f}]"
    match contrast["verdict"]:
        case "FASTER":
            return f"{ratio:.{places}f}× faster, {span}"
        case "SLOWER":
            return f"{ratio:.{places}f}× slower, {span}"
        case "EQUIVALENT":
            margin = contrast.get("margin") or DEFAULT_MARGIN  # results may be stored without it
            return f"no difference larger than {100 * margin:g} % ({ratio:.{places}f}×, {span})"
    return f"undecided: between {low:.{places}f}× and {high:.{places}f}×"


def _why_no_interval(rounds: int) -> str:
    if rounds < MIN_ROUNDS:
        return f"an interval takes {MIN_ROUNDS} rounds, there {'was' if rounds == 1 else 'were'} {rounds}"
    return "the rounds hardly differ: the clock is too coarse for an interval"


def _decimals(ratio: float, low: float | None, high: float | None) -> int:
    size = math.floor(math.log10(ratio))
    if low is None or high is None or high <= low:
        return max(0, 1 - size)
    step = math.floor(math.log10((high - low) / 4))
    places = max(0, min(MOST_DIGITS, size - step + 1) - 1 - size)
    while places < MOST_DECIMALS and any(_hides(bound, places) for bound in (low, high)):
        places += 1  # an interval that excludes 1 must not be shown as one that ends there
    return places


def _hides(bound: float, places: int) -> bool:
    return bound != 1 and float(f"{bound:.{places}f}") == 1


# --- ranks ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """The place of one contestant: 1 + how many are clearly faster."""

    name: str
    rank: int
    ties: tuple[str, ...]  # those that are not clearly faster or slower, in the given order


def ranks(
    per_round: Mapping[str, Mapping[int, float]], *, looks: int = 1, margin: float = DEFAULT_MARGIN
) -> list[Rank]:
    """Rank contestants by pairwise contrasts over the rounds that both sides have.

    A pair is clearly apart when its contrast says FASTER or SLOWER at a confidence that is split over all
    pairs (Bonferroni), so that with 95 % no two equal contestants get different ranks. What is EQUIVALENT,
    UNDECIDED or without common rounds is a tie. "Clearly faster" is carried along chains (faster than one
    that is faster), so that nobody stands above a contestant that is clearly faster.

    Args:
        per_round: contestant -> {round: ln(median latency per row)}.
        looks: as for `contrast`.
        margin: as for `contrast`.

    Returns:
        The ranks, best first, in the given order within a rank; "1, 1, 3" where two tie ahead of a third.
    """
    names = list(per_round)
    faster = _clearly_faster(per_round, max(1, looks * math.comb(len(names), 2)), margin)
    found = [
        Rank(
            name=name,
            rank=1 + sum((other, name) in faster for other in names),
            ties=tuple(
                other
                for other in names
                if other != name and (name, other) not in faster and (other, name) not in faster
            ),
        )
        for name in names
    ]
    return sorted(found, key=lambda one: one.rank)


def _clearly_faster(
    per_round: Mapping[str, Mapping[int, float]], looks: int, margin: float
) -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    for a, b in combinations(per_round, 2):
        common = sorted(per_round[a].keys() & per_round[b].keys())
        if not common:
            continue
        found = contrast([per_round[b][r] - per_round[a][r] for r in common], looks=looks, margin=margin)
        if found.verdict == "FASTER":
            pairs.add((a, b))
        elif found.verdict == "SLOWER":
            pairs.add((b, a))
    for middle, (a, b) in product(per_round, permutations(per_round, 2)):  # Warshall: the chains
        if (a, middle) in pairs and (middle, b) in pairs:
            pairs.add((a, b))
    return {(a, b) for a, b in pairs if (b, a) not in pairs}


# --- estimators ----------------------------------------------------------------------------------------


def _verdict(low: float | None, high: float | None, margin: float) -> Verdict:
    if low is None or high is None:
        return "UNDECIDED"
    if low >= 1 / (1 + margin) and high <= 1 + margin:
        return "EQUIVALENT"
    return "FASTER" if low > 1 else "SLOWER" if high < 1 else "UNDECIDED"


def _winsorised_deviation(ordered: Sequence[float], cut: int) -> float:
    n = len(ordered)
    kept = ordered[cut : n - cut]
    values = [kept[0]] * cut + list(kept) + [kept[-1]] * cut
    if kept[-1] - kept[0] < RESOLUTION:
        return 0.0
    mean = math.fsum(values) / n
    offsets = [value - mean for value in values]
    return math.sqrt(sum(map(mul, offsets, offsets)) / (n - 1))


def _persistence(values: Sequence[float], least: float, most: float) -> float:
    """How much wider the error of a mean is because a value resembles the one before; 1 where it does not.

    The autocorrelation is that of the values winsorised to `least` and `most`, less its bias of -1/n.
    """
    n = len(values)
    if n < PERSISTENCE_ROUNDS:
        return 1.0
    kept = [least if value < least else most if value > most else value for value in values]
    mean = math.fsum(kept) / n
    offsets = [value - mean for value in kept]
    correlation = sum(map(mul, offsets, offsets[1:])) / sum(map(mul, offsets, offsets)) + 1 / n
    correlation = min(max(correlation, 0.0), MOST_PERSISTENCE)
    return math.sqrt((1 + correlation) / (1 - correlation))


@lru_cache(maxsize=1024)
def _normal_winsorised_deviation(share: float) -> float:
    """Standard deviation of a standard normal whose tails of `share` each are pulled in to their edge."""
    if share <= 0:
        return 1.0
    edge = -_NORMAL.inv_cdf(share)
    return math.sqrt(1 - 2 * share - 2 * edge * _NORMAL.pdf(edge) + 2 * share * edge * edge)


def _chance_of_verdict(now: Contrast, looks: int, rounds_left: int) -> float:
    assert now.ratio_low is not None
    n, center = now.rounds, math.log(now.ratio)
    error = (center - math.log(now.ratio_low)) / _t(n, looks)
    end = error * math.sqrt(n / (n + rounds_left))
    reach = _t(n + rounds_left, looks) * end
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

    The size is Theil's "incomplete" slope: the median of the differences between the rounds of the first half
    and those half a comparison later.
    """
    n = len(log_ratios)
    if n < DRIFT_ROUNDS:
        return False
    score, variance = _kendall_score(log_ratios)
    if variance <= 0 or (abs(score) - 1) / math.sqrt(variance) < _NORMAL.inv_cdf(1 - DRIFT_P / 2):
        return False
    half = n // 2
    slope = statistics.median(log_ratios[i + n - half] - log_ratios[i] for i in range(half)) / (n - half)
    return abs(math.expm1(slope * n)) > DRIFT_LEAST


def _kendall_score(values: Sequence[float]) -> tuple[int, float]:
    """Rising minus falling pairs, and the variance of that number when there is no trend; ties accounted."""
    seen: list[float] = []
    score = 0
    for value in values:
        score += bisect_left(seen, value) - (len(seen) - bisect_right(seen, value))
        insort(seen, value)
    n = len(seen)
    loss = sum(ties * (ties - 1) * (2 * ties + 5) for ties in Counter(seen).values())
    return score, (n * (n - 1) * (2 * n + 5) - loss) / 18


def _t(rounds: int, looks: int) -> float:
    return t_quantile(1 - (1 - CONFIDENCE) / looks / 2, rounds - 2 * _cut(rounds) - 1)


def _cut(rounds: int) -> int:
    """How many rounds are trimmed at either end: 20 %, and so none below five."""
    return rounds // 5


def _exp(value: float) -> float:
    return math.exp(max(-_LARGEST_LOG, min(_LARGEST_LOG, value)))
