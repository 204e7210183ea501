"""Hosts of one kind: the spread between machines, and hosts that disagree. Pure.

Machines of one kind have equal fingerprints. The spread between them is the standard deviation of the log of
a number, without the part that the uncertainty of each measurement explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.evidence.fleet.intervals import FleetInterval, relative_error
from core.evidence.fleet.matrix import Cell, HostRow, Matrix
from core.evidence.statistics import CONFIDENCE, beta_cdf
from core.evidence.verdict import Verdict

MIN_MACHINES = 2
FEW_MACHINES = 10  # below, the interval of a spread is wider than a factor of two
# Assumed of machines of one kind; a normal distribution has 0, Student's t with 7 degrees of freedom 2. In
# `benchmarks/fleet_answers.py` the interval then covers both of them.
EXCESS_KURTOSIS = 2.0
_TAIL = (1 - CONFIDENCE) / 2
_LARGEST = 50.0  # log standard deviation; beyond, nothing is known
_LEAST = 1e-7  # standard error below the resolution of any clock
_MOST_DF = 1e4  # beyond, the variance of the measurements counts as known


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How much machines of one kind differ in one number."""

    kind: str
    hosts: tuple[str, ...]  # that were measured
    configuration: str  # key
    number: str  # "latency" (mean) or "speed-up"
    deviation: FleetInterval  # relative standard deviation between machines
    lowest: str  # host with the smallest number
    highest: str
    ratio: float  # largest number / smallest number, with the noise of the measurements

    @property
    def is_known(self) -> bool:
        """Whether the machines differ by more than the uncertainty of their measurements."""
        return bool(self.deviation.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Hosts of one kind whose decided verdicts on a configuration differ."""

    kind: str
    configuration: str
    verdicts: Mapping[str, Verdict]  # host -> decided verdict


def kinds(rows: Sequence[HostRow]) -> dict[str, list[HostRow]]:
    """Return the hosts that gave a result, by kind."""
    found: dict[str, list[HostRow]] = {}
    for row in rows:
        if row.cells and row.kind:
            found.setdefault(row.kind, []).append(row)
    return found


def spreads(found: Matrix) -> list[Spread]:
    """Return the spread of latency and speed-ups for each kind with two or more hosts.

    The latency is that of the reference, which every comparison measures.
    """
    made: list[Spread] = []
    for kind, rows in kinds(found.rows).items():
        if len(rows) < MIN_MACHINES:
            continue
        for reference in dict.fromkeys(one.reference for one in rows):
            made += _spread(kind, rows, reference, "latency", lambda cell: cell.latency_s)
        for one in found.configurations:
            valid = [row for row in rows if not row.rejected and row.reference != one.key]
            made += _spread(kind, valid, one.key, "speed-up", lambda cell: cell.speedup)
    return made


def _spread(
    kind: str, rows: Sequence[HostRow], key: str, number: str, read: Callable[[Cell], FleetInterval | None]
) -> list[Spread]:
    known: dict[str, Measured] = {}
    for row in rows:
        cell = row.cells.get(key)
        one = read(cell) if cell is not None and not cell.unusable else None
        if one is not None and one.value > 0 and (error := relative_error(one)) is not None:
            known[row.host] = Measured(value=math.log(one.value), error=error, df=one.df or 1.0)
    if len(known) < MIN_MACHINES:
        return []
    ordered = sorted(known, key=lambda host: known[host].value)
    return [
        Spread(
            kind=kind,
            hosts=tuple(known),
            configuration=key,
            number=number,
            deviation=deviation_between(list(known.values())),
            lowest=ordered[0],
            highest=ordered[-1],
            ratio=math.exp(known[ordered[-1]].value - known[ordered[0]].value),
        )
    ]


def disagreements(found: Matrix) -> list[Disagreement]:
    """Return hosts of one kind that disagree: decided verdicts on one configuration that differ."""
    made = []
    for kind, rows in kinds(found.rows).items():
        for one in found.configurations:
            verdicts = {
                row.host: cell.verdict
                for row in rows
                if not row.rejected
                and (cell := row.cells.get(one.key)) is not None
                and cell.verdict not in (None, Verdict.UNDECIDED)
            }
            decided = {host: verdict for host, verdict in verdicts.items() if verdict is not None}
            if len(set(decided.values())) > 1:
                made.append(Disagreement(kind=kind, configuration=one.key, verdicts=decided))
    return made


# --- the standard deviation between machines ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A number of one machine on the log scale."""

    value: float
    error: float  # standard error
    df: float  # degrees of freedom of the error


def deviation_between(machines: Sequence[Measured]) -> FleetInterval:
    """Estimate the standard deviation between machines with its 95 % interval.

    The variance of n values, over s² + e², has an F distribution if s is the true deviation and e² the mean
    squared error of the measurements. The bounds are the values of s for which that ratio equals the
    quantiles; the estimate is the one for which it equals 1. Degrees of freedom of s² + e² follow
    Satterthwaite's rule. Those of the variance are n - 1, reduced for machines that vary somewhat less evenly
    than normal ones (`EXCESS_KURTOSIS`).

    With rare machines that are far slower than the others, the interval is too narrow: a sample without one
    of them cannot show them.

    Args:
        machines: two or more.

    Raises:
        ValueError: there are fewer than two machines.

    Source: analysis of variance with one random factor; Satterthwaite (1946), Biometrics Bulletin 2, 110-114;
    variance of a sample variance: Cramér (1946), Mathematical Methods of Statistics, section 27.4.
    """
    n = len(machines)
    if n < MIN_MACHINES:
        raise ValueError(f"a spread needs {MIN_MACHINES} machines, but got {n}")
    mean = math.fsum(one.value for one in machines) / n
    seen = math.fsum((one.value - mean) ** 2 for one in machines) / (n - 1)
    noise = max(math.fsum(one.error**2 for one in machines) / n, _LEAST**2)
    noise_df = (n * noise) ** 2 / math.fsum(max(one.error, _LEAST) ** 4 / one.df for one in machines)
    df = 2 / (2 / (n - 1) + EXCESS_KURTOSIS / n)

    def share_below(variance: float, deviation: float) -> float:
        whole = deviation**2 + noise
        return f_cdf(variance / whole, df, min(_MOST_DF, noise_df * (whole / noise) ** 2))

    # Machines that agree better than their noise allows do so by chance, which would give an empty interval.
    high = _solve(lambda s: share_below(max(seen, noise), s) - _TAIL)
    return FleetInterval(
        value=math.sqrt(max(0.0, seen - noise)),
        low=_solve(lambda s: share_below(seen, s) - (1 - _TAIL)),
        high=None if high >= _LARGEST else high,
    )


def _solve(falling: Callable[[float], float]) -> float:
    """Return where a falling function of a deviation crosses zero; 0 if it never is above."""
    if falling(0.0) <= 0:
        return 0.0
    low, high = 0.0, 0.01
    while falling(high) > 0:
        low, high = high, high * 4
        if low >= _LARGEST:
            return _LARGEST
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def f_cdf(x: float, df: float, other_df: float) -> float:
    """Return the share of the F distribution below `x`."""
    return beta_cdf(df * x / (df * x + other_df), df / 2, other_df / 2) if x > 0 else 0.0
