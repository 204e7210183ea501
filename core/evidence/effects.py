"""Effects of settings: a model of the log speed-up fitted to few evaluations.

The log speed-up of a configuration is the sum of a constant, an effect of each of its values, an effect of
each pair of its values, and noise, all normal. This is a Gaussian process whose covariance depends on the
axes in which two configurations agree. Every axis has its own effect size, because most settings have no
effect on most models; the size of a pair follows from its two axes. Sizes are maximum a posteriori estimates
under a wide prior. The mean of an evaluated configuration is its measured value, shrunk towards the
prediction from the others according to its uncertainty. The mean of any other configuration is a prediction.

Observations have two special errors. Observations of one comparison share its reference, so their errors are
correlated. And a process may be slow for its whole life: an observation far slower than predicted gets little
weight. One far faster keeps its full weight, because no fault makes a process faster. Pure; numpy.

Source: additive kernels, Duvenaud, Nickisch and Rasmussen (2011); Rasmussen and Williams (2006), chapter 5,
leave-one-out: 5.4.2; batches: Desautels, Krause and Burdick (2014), JMLR 15, 4053-4103. A search uses a
balanced design for screening, pairs of settings, and the next batch by an upper confidence bound.
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
SIZES = (0.003, 0.01, 0.03, 0.1, 0.3)  # grid: standard deviation of an effect on the log speed-up, per axis
USUAL_SIZE, SIZE_SPREAD = 0.01, 1.5  # prior of a size: median, and standard deviation of its logarithm
PAIR_SHARES = (0.0, 0.3, 0.8)  # grid: effect size of a pair over the geometric mean of its axes' sizes
REFERENCE_SHARE = (
    1 / 3
)  # share of an observation's variance due to the reference: its two processes against one
REFERENCE_SDS = (0.0, 0.02)  # grid: further standard deviation of the reference of a comparison
SWEEPS = 3  # over all axes
LACK_OF_FIT = 0.005  # standard deviation that values and pairs of a configuration do not explain
LEAST_VARIANCE = 1e-6  # of an observation: a standard error of a thousandth
SLOW_Z = 2.5  # standard deviations below the prediction from which a process counts as slow
ROBUST_ROUNDS = 2
MAX_FITTED = 160  # maximum number of observations used to fit the sizes
MAX_AVERAGED = 150  # maximum number of configurations over which an effect is averaged
CHUNK = 8192  # configurations predicted at once
MOST_PAIRS = 5  # strongest interactions that are reported
MAX_PROMISING = 600  # maximum number of configurations from which a batch is chosen


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the effects: standard deviations on the log scale."""

    axes: tuple[float, ...]
    pair: float
    comparison: float


@dataclass(frozen=True, kw_only=True)
class Effects:
    """A fitted model."""

    tried: Codes
    gains: Array
    sizes: Sizes
    precision: Array  # inverse of the covariance of the observations
    weights: Array
    looks: _Observations

    def at(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and standard deviation of the log speed-up of configurations."""
        means, deviations = [np.zeros(0)], [np.zeros(0)]
        own = self._own
        for start in range(0, len(codes), CHUNK):
            across = covariance(codes[start : start + CHUNK], self.tried, self.sizes)
            variance = own - np.einsum("ij,ij->i", across @ self.precision, across)
            means.append(across @ self.weights)
            deviations.append(np.sqrt(np.maximum(variance, 1e-12)))
        return np.concatenate(means), np.concatenate(deviations)

    def with_minimum_sizes(self, least: float) -> Effects:
        """Return the model with all effect sizes raised to at least `least`.

        Sizes are fitted to the same few observations. If these are noisy, the sizes are small, and all
        effects shrink to zero with narrow intervals. Displayed effects must not.
        """
        axes = tuple(max(one, least) for one in self.sizes.axes)
        sizes = Sizes(axes=axes, pair=self.sizes.pair, comparison=self.sizes.comparison)
        precision: Array = np.linalg.inv(self.looks.covariance(sizes)).astype(np.float64)
        return replace(self, sizes=sizes, precision=precision, weights=precision @ self.gains)

    def joint(self, codes: Codes) -> tuple[Array, Array]:
        """Return mean and covariance of the log speed-up of a few configurations."""
        across = covariance(codes, self.tried, self.sizes)
        spread = covariance(codes, codes, self.sizes) - across @ self.precision @ across.T
        return across @ self.weights, spread

    @cached_property
    def _own(self) -> float:
        """Prior variance of a configuration."""
        one = np.zeros((1, self.tried.shape[1]), dtype=np.int16)
        return float(covariance(one, one, self.sizes)[0, 0])


def covariance(one: Codes, other: Codes, sizes: Sizes) -> Array:
    """Return the prior covariance of the log speed-up between the configurations of `one` and `other`."""
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
    """Return a column for each value of each axis: 1 where a configuration has it."""
    found = np.zeros((len(codes), int(levels.sum())))
    columns = codes + (np.cumsum(levels) - levels)[None, :]
    np.put_along_axis(found, columns.astype(np.intp), 1.0, axis=1)
    return found


def fit(
    tried: Codes,
    gains: Sequence[float],
    errors: Sequence[float],
    comparisons: Sequence[str] | None = None,
    doubts: Sequence[float] | None = None,
) -> Effects:
    """Fit the model to the observations.

    Args:
        tried: observed configurations, at least one; a configuration may occur several times.
        gains: log speed-up of each over the default.
        errors: their standard errors.
        comparisons: comparison of each observation, whose reference it shares; empty: none.
        doubts: further standard error of the reference; see `evaluations.reference_doubts`.
    """
    return _fit(
        np.ascontiguousarray(tried, dtype=np.int16).tobytes(),
        tried.shape[1],
        tuple(gains),
        tuple(errors),
        tuple(comparisons or [""] * len(gains)),
        tuple(doubts or [0.0] * len(gains)),
    )


@lru_cache(maxsize=8)
def _fit(
    raw: bytes,
    width: int,
    gains: tuple[float, ...],
    errors: tuple[float, ...],
    comparisons: tuple[str, ...],
    doubts: tuple[float, ...],
) -> Effects:
    """Fit with hashable arguments, cached: a search fits the model of one state several times."""
    looks = _Observations(
        np.frombuffer(raw, dtype=np.int16).reshape(len(gains), width), gains, errors, comparisons, doubts
    )
    step = math.ceil(len(gains) / MAX_FITTED)
    sizes = _sizes(looks if step == 1 else looks.some(step), None)
    for _ in range(ROBUST_ROUNDS):
        if not looks.inflate_slow(sizes):
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


class _Observations:
    """Observations of configurations, with their error model."""

    def __init__(
        self,
        codes: Codes,
        gains: Sequence[float],
        errors: Sequence[float],
        comparisons: Sequence[str],
        doubts: Sequence[float],
    ) -> None:
        self.codes = codes
        self.y = np.asarray(gains, dtype=np.float64)
        self.errors = np.asarray(errors, dtype=np.float64)
        self.comparisons = np.asarray(comparisons)
        self.reference = np.asarray(doubts, dtype=np.float64)  # of the comparison of each observation
        self.doubt = np.zeros(len(codes))  # variance added to observations of slow processes
        self.same_comparison = (self.comparisons[:, None] == self.comparisons[None, :]) & (
            self.comparisons != ""
        )[:, None]
        self.agree = (codes[:, None, :] == codes[None, :, :]).transpose(2, 0, 1).astype(np.float64)
        self._noise: dict[float, Array] = {}
        self.whole = LACK_OF_FIT**2 * (self.agree.sum(axis=0) == codes.shape[1])

    def some(self, step: int) -> _Observations:
        """Return every `step`-th observation."""
        at = slice(None, None, step)
        lists = (one[at].tolist() for one in (self.y, self.errors, self.comparisons, self.reference))
        found = _Observations(self.codes[at], *lists)
        found.doubt = self.doubt[at]
        return found

    def covariance(self, sizes: Sizes) -> Array:
        """Return the covariance of the observations: of the true values plus that of the errors."""
        own = np.asarray(sizes.axes)
        total = np.tensordot(own, self.agree, axes=1)
        squares = np.tensordot(own**2, self.agree, axes=1)
        return self.of(total, squares, sizes)

    def of(self, total: Array, squares: Array, sizes: Sizes) -> Array:
        """Return the covariance from sums of sizes and squared sizes over the axes in which a pair agrees."""
        true = CONSTANT_SD**2 + squares + sizes.pair**2 * (total**2 - squares) / 2 + self.whole
        found: Array = true + self.noise(sizes.comparison)
        return found

    def noise(self, comparison: float) -> Array:
        """Return the covariance of the errors. The result is cached: do not modify it."""
        if comparison in self._noise:
            return self._noise[comparison]
        alone = (
            (1 - REFERENCE_SHARE * (self.comparisons != "")) * self.errors**2 + self.doubt + LEAST_VARIANCE
        )
        together = REFERENCE_SHARE * np.outer(self.errors, self.errors) + comparison**2
        together = together + np.outer(self.reference, self.reference)
        found: Array = np.where(self.same_comparison, together, 0.0) + np.diag(alone)
        self._noise[comparison] = found
        return found

    def inflate_slow(self, sizes: Sizes) -> bool:
        """Add variance to observations far slower than predicted; return whether there was one."""
        precision = np.linalg.inv(self.covariance(sizes))
        variance = 1 / np.diag(precision)
        beyond = (precision @ self.y) * variance  # distance from the leave-one-out prediction
        slow = (beyond < -SLOW_Z * np.sqrt(variance)) & (self.errors > 0)
        self.doubt[slow] += beyond[slow] ** 2
        self._noise.clear()
        return bool(slow.any())


def _sizes(looks: _Observations, start: Sizes | None) -> Sizes:
    """Return the most probable sizes on a grid: one size for all axes first, then axis by axis."""
    width = looks.codes.shape[1]
    if start is None:
        agree = looks.agree.sum(axis=0)
        equal = [
            Sizes(axes=(size,) * width, pair=p, comparison=REFERENCE_SDS[0])
            for size in SIZES
            for p in PAIR_SHARES
        ]
        start = max(
            equal,
            key=lambda one: _log_posterior(
                looks.of(one.axes[0] * agree, one.axes[0] ** 2 * agree, one), looks.y, one
            ),
        )
    axes, pair, comparison = list(start.axes), start.pair, start.comparison
    for _ in range(SWEEPS):
        before = [*axes], pair, comparison
        total = np.tensordot(np.asarray(axes), looks.agree, axes=1)
        squares = np.tensordot(np.asarray(axes) ** 2, looks.agree, axes=1)
        fixed = CONSTANT_SD**2 + looks.whole + looks.noise(comparison)
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
                tried = Sizes(axes=(*axes[:axis], size, *axes[axis + 1 :]), pair=pair, comparison=comparison)
                likely = _log_posterior(fixed + s + pair**2 * (t**2 - s) / 2, looks.y, tried)
                if likely > best:
                    best, axes[axis] = likely, size
            total += axes[axis] * same
            squares += axes[axis] ** 2 * same
        options = [Sizes(axes=tuple(axes), pair=p, comparison=r) for p in PAIR_SHARES for r in REFERENCE_SDS]
        found = [_log_posterior(looks.of(total, squares, one), looks.y, one) for one in options]
        chosen = options[found.index(max(found))]
        pair, comparison = chosen.pair, chosen.comparison
        if ([*axes], pair, comparison) == before:
            break
    return Sizes(axes=tuple(axes), pair=pair, comparison=comparison)


def _log_posterior(spread: Array, y: Array, sizes: Sizes) -> float:
    """Return the log posterior of observations and sizes under a covariance, up to a constant."""
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


def next_batch(model: Effects, codes: Codes, count: int) -> list[tuple[int, float]]:
    """Return the configurations to evaluate next, by upper confidence bound, with their expected improvement.

    After each choice the model is updated as if the configuration had been observed at its mean, so that the
    configurations of a batch differ.

    Args:
        model: fitted to the observations.
        codes: configurations that were not evaluated.
        count: size of the batch.

    Returns:
        (index into `codes`, expected improvement of the log speed-up over the best mean), best first.
    """
    if not len(codes):
        return []
    top = float(model.at(model.tried)[0].max())
    mean, deviation = model.at(codes)
    gain = expected_improvement(mean, deviation, top)
    order = np.argsort(-(mean + 2 * deviation), kind="stable")[:MAX_PROMISING]
    own, mean, variance = codes[order], mean[order], deviation[order] ** 2
    across = covariance(own, model.tried, model.sizes)
    chosen: list[tuple[int, float]] = []
    learnt = np.zeros((0, len(own)))  # what each chosen one explains of all others, as covariance
    open_ = np.ones(len(own), dtype=np.bool_)
    for _ in range(min(count, len(own))):
        bound = np.where(open_, mean + np.sqrt(np.maximum(variance, 0.0)), -np.inf)
        index = int(bound.argmax())
        open_[index] = False
        chosen.append((int(order[index]), float(gain[order[index]])))
        shared = covariance(own, own[index : index + 1], model.sizes)[:, 0]
        shared = shared - across @ (model.precision @ across[index]) - learnt.T @ learnt[:, index]
        told = shared / math.sqrt(max(float(shared[index]), 0.0) + OBSERVATION_ERROR**2)
        learnt = np.concatenate([learnt, told[None]])
        variance = variance - told**2
    return chosen


OBSERVATION_ERROR = 0.015  # standard error assumed for a future observation


def expected_improvement(mean: Array, deviation: Array, top: float) -> Array:
    """Return E[max(0, x - top)] of normal x; Jones, Schonlau and Welch (1998)."""
    z = (mean - top) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    improvement: Array = deviation * (z * below + density)
    return improvement


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Log speed-up of a value compared with the first of its axis, or of a pair beyond its two values."""

    axes: tuple[int, ...]
    values: tuple[int, ...]
    mean: float
    error: float  # standard error of the mean


def main_effects(model: Effects, codes: Codes) -> list[Effect]:
    """Return the effect of every value compared with the first of its axis, averaged over the space.

    Args:
        model: fitted to the observations.
        codes: configurations of the space; a sample is enough.
    """
    found = []
    for axis in range(codes.shape[1]):
        for value in range(1, int(codes[:, axis].max(initial=0)) + 1):
            own = codes[codes[:, axis] == value][:MAX_AVERAGED]
            if not len(own):
                continue
            other = own.copy()
            other[:, axis] = 0
            weights = np.repeat([1.0, -1.0], len(own)) / len(own)
            mean, error = _contrast(model, np.concatenate([own, other]), weights)
            found.append(Effect(axes=(axis,), values=(value,), mean=mean, error=error))
    return found


def pair_effects(model: Effects, codes: Codes) -> list[Effect]:
    """Return the strongest interactions (double differences of four corners), most significant first."""
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
                    found.append(Effect(axes=(a, b), values=(one, two), mean=mean, error=error))
    found.sort(key=lambda pair: -abs(pair.mean) / max(pair.error, 1e-9))
    return found[:MOST_PAIRS]


def _contrast(model: Effects, codes: Codes, weights: Array) -> tuple[float, float]:
    mean, joint = model.joint(codes)
    return float(weights @ mean), math.sqrt(max(0.0, float(weights @ joint @ weights)))


# --- screening ----------------------------------------------------------------------------------------------


def balanced_design(codes: Codes, count: int, *, seed: int, taken: Sequence[int] = ()) -> list[int]:
    """Return a balanced design: every value, and as far as possible every pair, occurs equally often.

    Greedy: each step adds the configuration of a random sample whose values and pairs are rarest so far.

    Args:
        codes: configurations of the space.
        count: number of configurations to return.
        seed: seed of the random samples.
        taken: configurations that are evaluated anyway; they count for the balance.
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
            # a value of an axis with few values should occur more often than one of an axis with many
            cost += singles[axis][rows[:, axis]] * levels[axis]
        for (a, b), seen in pairs.items():
            cost += PAIR_WEIGHT * seen[rows[:, a], rows[:, b]] * levels[a] * levels[b] / max(1, size)
        index = int(sample[int(cost.argmin())])
        take(index)
        chosen.append(index)
    return chosen


SAMPLE = 192
PAIR_WEIGHT = 0.3
