"""Effects of settings: a model of the log speed-up fitted to few evaluations.

The gain of a configuration is a constant, an effect of each of its values and an effect of each pair of its
values, all normal, plus noise: a Gaussian process whose covariance counts on which axes two configurations
agree. Every axis has a size of its own, because most settings do nothing to most models and a few do all; a
pair counts as far as its two axes do. Sizes are learnt from the data, where the likelihood times a wide prior
is largest. The mean at a configuration that was tried is the measured value drawn towards what the others
say, by as much as it is uncertain; at one that was not tried, a prediction.

Two things disturb single looks. The looks of one race share its reference, so that they err together. And a
process may be in a slow mode for life: a look that is far slower than everybody else lets expect counts
little, one that is far faster counts fully, because nothing makes a process too fast. Pure; numpy.

Source: additive kernels, Duvenaud, Nickisch and Rasmussen (2011); Rasmussen and Williams (2006), chapter 5,
leave-one-out: 5.4.2; batches: Desautels, Krause and Burdick (2014), JMLR 15, 4053-4103; the design and the
bound are those of `Search` in measurement practice: a balanced first look, pairs of settings, and the next
batch by an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.int16]  # [configurations, axes]: the index of the value

CONSTANT_SD = 0.3
SIZES = (0.003, 0.01, 0.03, 0.1, 0.3)  # of one value's effect on ln(gain), of each axis
USUAL_SIZE, SIZE_SPREAD = 0.01, 1.5  # of the prior of a size: its middle, and its deviation in logarithms
PAIR_SHARES = (0.0, 0.3, 0.8)  # of a pair's effect, in the geometric mean of its two axes' sizes
SHARED = 1 / 3  # of the variance of a look that is its race's reference: two processes against one
RACE_SDS = (0.0, 0.02)  # by which a race's reference is off beyond that
SWEEPS = 3  # over all axes
LACK_OF_FIT = 0.005  # of a configuration: what no model of values and pairs explains
LEAST_VARIANCE = 1e-6  # of a look: no number is known better than to a thousandth
UNKNOWN_ERROR = 0.05  # of a gain whose standard error is not known
SLOW_Z = 2.5  # deviations below what the others say, from which a look is taken for one of a slow process
ROBUST_ROUNDS = 2
MOST_LEARNT_FROM = 160  # looks by which sizes are learnt; the newest
MOST_PAIRED = 150  # configurations over which an effect is averaged
CHUNK = 8192  # configurations that are predicted at once
MOST_PROMISING = 600  # configurations among which a batch is chosen


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large effects are."""

    axes: tuple[float, ...]
    pair: float
    race: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """A fitted model."""

    tried: Codes
    gains: Array
    sizes: Sizes
    precision: Array  # inverse of the covariance of the looks
    weights: Array
    looks: _Looks

    def at(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of ln(gain) of configurations."""
        means, deviations = [np.zeros(0)], [np.zeros(0)]
        own = self._own
        for start in range(0, len(codes), CHUNK):
            across = covariance(codes[start : start + CHUNK], self.tried, self.sizes)
            variance = own - np.einsum("ij,ij->i", across @ self.precision, across)
            means.append(across @ self.weights)
            deviations.append(np.sqrt(np.maximum(variance, 1e-12)))
        return np.concatenate(means), np.concatenate(deviations)

    def unshrunk(self, least: float) -> Effects:
        """Return the same with effects of any size up to about `least` as likely as those it learnt.

        Sizes are learnt from the same few looks: where these are noisy, small sizes draw every effect to none
        and call that sure. What is printed must not.
        """
        axes = tuple(max(one, least) for one in self.sizes.axes)
        sizes = Sizes(axes=axes, pair=self.sizes.pair, race=self.sizes.race)
        precision: Array = np.linalg.inv(self.looks.covariance(sizes)).astype(np.float64)
        return replace(self, sizes=sizes, precision=precision, weights=precision @ self.gains)

    def joint(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and covariance of ln(gain) of a few configurations."""
        across = covariance(codes, self.tried, self.sizes)
        spread = covariance(codes, codes, self.sizes) - across @ self.precision @ across.T
        return across @ self.weights, spread

    @cached_property
    def _own(self) -> float:
        """The prior variance of any configuration."""
        one = np.zeros((1, self.tried.shape[1]), dtype=np.int16)
        return float(covariance(one, one, self.sizes)[0, 0])


def covariance(one: Codes, other: Codes, sizes: Sizes) -> Array:
    """Return the prior covariance of ln(gain): of every configuration of `one` with every one of `other`."""
    levels = np.maximum(one.max(axis=0, initial=0), other.max(axis=0, initial=0)) + 1
    mine, theirs = _one_hot(one, levels), _one_hot(other, levels)
    size = np.repeat(sizes.axes, levels)
    found: Array = (mine * size**2) @ theirs.T
    if sizes.pair:
        total = (mine * size) @ theirs.T
        total *= total
        total -= found
        total *= sizes.pair**2 / 2
        found += total
    found += CONSTANT_SD**2
    found[mine @ theirs.T > len(sizes.axes) - 0.5] += LACK_OF_FIT**2
    return found


def _one_hot(codes: Codes, levels: NDArray[np.int16]) -> Array:
    """A column for each value of each axis: 1 where a configuration has it."""
    found = np.zeros((len(codes), int(levels.sum())))
    columns = codes + (np.cumsum(levels) - levels)[None, :]
    np.put_along_axis(found, columns.astype(np.intp), 1.0, axis=1)
    return found


def fit(
    tried: Codes,
    gains: Sequence[float],
    errors: Sequence[float | None],
    races: Sequence[str] | None = None,
    doubts: Sequence[float] | None = None,
) -> Effects:
    """Fit the model to what was tried.

    Args:
        tried: at least one configuration; the same one may stand there twice.
        gains: ln(gain over the default) of each.
        errors: their standard errors; None: not known.
        races: in which each was measured, those of one race share their reference; empty: in none.
        doubts: standard error of the reference of its race beyond that; see `tried.reference_doubts`.
    """
    known = tuple(UNKNOWN_ERROR if one is None else one for one in errors)
    return _fit(
        np.ascontiguousarray(tried, dtype=np.int16).tobytes(),
        tried.shape[1],
        tuple(gains),
        known,
        tuple(races or [""] * len(known)),
        tuple(doubts or [0.0] * len(known)),
    )


@lru_cache(maxsize=8)
def _fit(
    raw: bytes,
    width: int,
    gains: tuple[float, ...],
    errors: tuple[float, ...],
    races: tuple[str, ...],
    doubts: tuple[float, ...],
) -> Effects:
    """The same of what can be looked up: a search asks for the model of one state several times."""
    looks = _Looks(
        np.frombuffer(raw, dtype=np.int16).reshape(len(gains), width), gains, errors, races, doubts
    )
    step = math.ceil(len(gains) / MOST_LEARNT_FROM)
    sizes = _sizes(looks if step == 1 else looks.some(step), None)
    for _ in range(ROBUST_ROUNDS):
        if not looks.doubt_slow(sizes):
            break
        sizes = _sizes(looks if step == 1 else looks.some(step), sizes)
    precision: Array = np.linalg.inv(looks.covariance(sizes)).astype(np.float64)
    return Effects(
        tried=looks.codes,
        gains=looks.y,
        sizes=sizes,
        precision=precision,
        weights=precision @ looks.y,
        looks=looks,
    )


class _Looks:
    """Looks at configurations, and how they err."""

    def __init__(
        self,
        codes: Codes,
        gains: Sequence[float],
        errors: Sequence[float],
        races: Sequence[str],
        doubts: Sequence[float],
    ) -> None:
        self.codes = codes
        self.y = np.asarray(gains, dtype=np.float64)
        self.errors = np.asarray(errors, dtype=np.float64)
        self.races = np.asarray(races)
        self.reference = np.asarray(doubts, dtype=np.float64)  # of the race that a look belongs to
        self.doubt = np.zeros(len(codes))  # variance that is added to that of looks at slow processes
        self.same_race = (self.races[:, None] == self.races[None, :]) & (self.races != "")[:, None]
        self.agree = (codes[:, None, :] == codes[None, :, :]).transpose(2, 0, 1).astype(np.float64)
        self._noise: dict[float, Array] = {}
        self.whole = LACK_OF_FIT**2 * (self.agree.sum(axis=0) == codes.shape[1])

    def some(self, step: int) -> _Looks:
        """Every so many of them."""
        at = slice(None, None, step)
        lists = (one[at].tolist() for one in (self.y, self.errors, self.races, self.reference))
        found = _Looks(self.codes[at], *lists)
        found.doubt = self.doubt[at]
        return found

    def covariance(self, sizes: Sizes) -> Array:
        """Of the looks: of what they look at, and of how they err."""
        own = np.asarray(sizes.axes)
        total = np.tensordot(own, self.agree, axes=1)
        squares = np.tensordot(own**2, self.agree, axes=1)
        return self.of(total, squares, sizes)

    def of(self, total: Array, squares: Array, sizes: Sizes) -> Array:
        """The same of sums over the axes on which two looks agree: of the sizes, and of their squares."""
        true = CONSTANT_SD**2 + squares + sizes.pair**2 * (total**2 - squares) / 2 + self.whole
        found: Array = true + self.noise(sizes.race)
        return found

    def noise(self, race: float) -> Array:
        """How the looks err, alone and together; not to be written to."""
        if race in self._noise:
            return self._noise[race]
        alone = (1 - SHARED * (self.races != "")) * self.errors**2 + self.doubt + LEAST_VARIANCE
        together = SHARED * np.outer(self.errors, self.errors) + race**2
        together = together + np.outer(self.reference, self.reference)
        found: Array = np.where(self.same_race, together, 0.0) + np.diag(alone)
        self._noise[race] = found
        return found

    def doubt_slow(self, sizes: Sizes) -> bool:
        """Doubt looks that are far slower than all others let expect; whether there is a new one."""
        precision = np.linalg.inv(self.covariance(sizes))
        variance = 1 / np.diag(precision)
        beyond = (precision @ self.y) * variance  # of each look, from what the others say
        slow = (beyond < -SLOW_Z * np.sqrt(variance)) & (self.errors > 0)
        self.doubt[slow] += beyond[slow] ** 2
        self._noise.clear()
        return bool(slow.any())


def _sizes(looks: _Looks, start: Sizes | None) -> Sizes:
    """The most probable sizes on a grid: one for all axes first, then axis by axis."""
    width = looks.codes.shape[1]
    if start is None:
        agree = looks.agree.sum(axis=0)
        equal = [Sizes(axes=(size,) * width, pair=p, race=RACE_SDS[0]) for size in SIZES for p in PAIR_SHARES]
        start = max(
            equal,
            key=lambda one: _log_posterior(
                looks.of(one.axes[0] * agree, one.axes[0] ** 2 * agree, one), looks.y, one
            ),
        )
    axes, pair, race = list(start.axes), start.pair, start.race
    for _ in range(SWEEPS):
        before = [*axes], pair, race
        total = np.tensordot(np.asarray(axes), looks.agree, axes=1)
        squares = np.tensordot(np.asarray(axes) ** 2, looks.agree, axes=1)
        fixed = CONSTANT_SD**2 + looks.whole + looks.noise(race)
        for axis in range(width):
            same = looks.agree[axis]
            if same.all():
                continue  # nothing varied
            total -= axes[axis] * same
            squares -= axes[axis] ** 2 * same
            best = -math.inf
            at = SIZES.index(axes[axis])
            for size in SIZES[max(0, at - 1) : at + 2]:
                t, s = total + size * same, squares + size**2 * same
                tried = Sizes(axes=(*axes[:axis], size, *axes[axis + 1 :]), pair=pair, race=race)
                likely = _log_posterior(fixed + s + pair**2 * (t**2 - s) / 2, looks.y, tried)
                if likely > best:
                    best, axes[axis] = likely, size
            total += axes[axis] * same
            squares += axes[axis] ** 2 * same
        options = [Sizes(axes=tuple(axes), pair=p, race=r) for p in PAIR_SHARES for r in RACE_SDS]
        found = [_log_posterior(looks.of(total, squares, one), looks.y, one) for one in options]
        chosen = options[found.index(max(found))]
        pair, race = chosen.pair, chosen.race
        if ([*axes], pair, race) == before:
            break
    return Sizes(axes=tuple(axes), pair=pair, race=race)


def _log_posterior(spread: Array, y: Array, sizes: Sizes) -> float:
    """Of the looks with that covariance, and of the sizes, up to a constant."""
    n = len(y)
    bordered = np.empty((n + 1, n + 1))
    bordered[:n, :n], bordered[n, :n], bordered[:n, n] = spread, y, y
    # large enough for the whole to be positive; the factor's last row is that of `spread`, solved for y
    bordered[n, n] = 1 + 2 * float(y @ y) / LEAST_VARIANCE
    factor = np.linalg.cholesky(bordered)
    half = factor[n, :n]
    likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(factor)[:n]).sum())
    own = np.log(np.asarray(sizes.axes) / USUAL_SIZE) / SIZE_SPREAD
    return likelihood - 0.5 * float(own @ own)


def next_best(model: Effects, codes: Codes, count: int) -> list[tuple[int, float]]:
    """Return which configurations to try next, by the upper bound mean + deviation, and what each may gain.

    Once one is chosen it is taken as if it had been tried with the outcome that is expected, so that a batch
    is no cluster of neighbours.

    Args:
        model: of what was tried.
        codes: those that were not.
        count: of the batch.

    Returns:
        (index into `codes`, expected improvement of ln(gain) over the best mean so far), best first.
    """
    if not len(codes):
        return []
    top = float(model.at(model.tried)[0].max())
    mean, deviation = model.at(codes)
    gain = expected_improvement(mean, deviation, top)
    order = np.argsort(-(mean + 2 * deviation), kind="stable")[:MOST_PROMISING]
    own, mean, variance = codes[order], mean[order], deviation[order] ** 2
    across = covariance(own, model.tried, model.sizes)
    chosen: list[tuple[int, float]] = []
    learnt = np.zeros((0, len(own)))  # what each chosen one tells of all others
    open_ = np.ones(len(own), dtype=np.bool_)
    for _ in range(min(count, len(own))):
        bound = np.where(open_, mean + np.sqrt(np.maximum(variance, 0.0)), -np.inf)
        index = int(bound.argmax())
        open_[index] = False
        chosen.append((int(order[index]), float(gain[order[index]])))
        shared = covariance(own, own[index : index + 1], model.sizes)[:, 0]
        shared = shared - across @ (model.precision @ across[index]) - learnt.T @ learnt[:, index]
        told = shared / math.sqrt(max(float(shared[index]), 0.0) + LOOK_ERROR**2)
        learnt = np.concatenate([learnt, told[None]])
        variance = variance - told**2
    return chosen


LOOK_ERROR = 0.015  # of a look that is not made yet


def expected_improvement(mean: Array, deviation: Array, top: float) -> Array:
    """Return E[max(0, x - top)] of normal x; Jones, Schonlau and Welch (1998)."""
    z = (mean - top) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    improvement: Array = deviation * (z * below + density)
    return improvement


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a value does against the start's value of its axis: ln(gain), with its standard error."""

    axis: int
    value: int
    mean: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEffect:
    """What two values do together beyond what each does alone."""

    axes: tuple[int, int]
    values: tuple[int, int]
    mean: float
    error: float


def main_effects(model: Effects, codes: Codes) -> list[Effect]:
    """Return the effect of every value against its axis's first, averaged over configurations of the space.

    Args:
        model: of what was tried.
        codes: of the space; a sample is enough.
    """
    found = []
    for axis in range(codes.shape[1]):
        for value in range(1, int(codes[:, axis].max(initial=0)) + 1):
            own = codes[codes[:, axis] == value][:MOST_PAIRED]
            if not len(own):
                continue
            other = own.copy()
            other[:, axis] = 0
            weights = np.repeat([1.0, -1.0], len(own)) / len(own)
            mean, error = _contrast(model, np.concatenate([own, other]), weights)
            found.append(Effect(axis=axis, value=value, mean=mean, error=error))
    return found


def pair_effects(model: Effects, codes: Codes, *, most: int = 5) -> list[PairEffect]:
    """Return the strongest interactions, each the double difference of its four corners, largest first."""
    found = []
    size = codes.shape[1]
    for a in range(size):
        for b in range(a + 1, size):
            for one in range(1, int(codes[:, a].max(initial=0)) + 1):
                for two in range(1, int(codes[:, b].max(initial=0)) + 1):
                    own = codes[(codes[:, a] == one) & (codes[:, b] == two)][:1]
                    if not len(own):
                        continue
                    corners = np.repeat(own, 4, axis=0)
                    corners[1, a] = corners[2, b] = corners[3, a] = corners[3, b] = 0
                    mean, error = _contrast(model, corners, np.array([1.0, -1.0, -1.0, 1.0]))
                    found.append(PairEffect(axes=(a, b), values=(one, two), mean=mean, error=error))
    found.sort(key=lambda pair: -abs(pair.mean) / max(pair.error, 1e-9))
    return found[:most]


def _contrast(model: Effects, codes: Codes, weights: Array) -> tuple[float, float]:
    mean, joint = model.joint(codes)
    return float(weights @ mean), math.sqrt(max(0.0, float(weights @ joint @ weights)))


# --- the first look -----------------------------------------------------------------------------------------


def balanced(codes: Codes, count: int, *, seed: int, taken: Sequence[int] = ()) -> list[int]:
    """Return configurations in which every value, and every pair as far as it goes, comes equally often.

    Greedy: each time the best of a random sample, by how rare its values and pairs are so far.

    Args:
        codes: of the space.
        count: how many.
        seed: of the samples.
        taken: those that are tried anyway; they count.
    """
    rng = np.random.default_rng(seed)
    size = codes.shape[1]
    levels = [int(codes[:, axis].max(initial=0)) + 1 for axis in range(size)]
    singles = [np.zeros(n) for n in levels]
    pairs = {(a, b): np.zeros((levels[a], levels[b])) for a in range(size) for b in range(a + 1, size)}

    def take(index: int) -> None:
        row = codes[index]
        for axis in range(size):
            singles[axis][row[axis]] += 1
        for (a, b), seen in pairs.items():
            seen[row[a], row[b]] += 1

    chosen: list[int] = []
    for index in taken:
        take(index)
    while len(chosen) < min(count, len(codes) - len(taken)):
        sample = rng.choice(len(codes), size=min(SAMPLE, len(codes)), replace=False)
        sample = np.array([i for i in sample if i not in chosen and i not in taken])
        if not len(sample):
            left = [i for i in range(len(codes)) if i not in chosen and i not in taken]
            sample = np.array(left[:SAMPLE])
        rows = codes[sample]
        cost = np.zeros(len(sample))
        for axis in range(size):
            # a value of a small axis is to come more often than one of a large one
            cost += singles[axis][rows[:, axis]] * levels[axis]
        for (a, b), seen in pairs.items():
            cost += PAIR_WEIGHT * seen[rows[:, a], rows[:, b]] * levels[a] * levels[b] / max(1, size)
        index = int(sample[int(cost.argmin())])
        take(index)
        chosen.append(index)
    return chosen


SAMPLE = 192
PAIR_WEIGHT = 0.3
