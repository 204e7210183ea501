"""Shares and numbers with their 95 % interval: the types of all metrics. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

Z = 1.959963984540054  # 97.5 % of a standard normal variable lie below


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number with its interval; all None where no row contributes."""

    value: float | None
    low: float | None
    high: float | None


UNKNOWN = Interval(value=None, low=None, high=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Interval):
    """A share of samples with its Wilson 95 % interval; null without samples."""

    count: int
    total: int

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """Return the share `count` of `total`."""
        low, high = wilson(count, total) if total else (None, None)
        return cls(value=count / total if total else None, low=low, high=high, count=count, total=total)


def wilson(k: float, n: float) -> tuple[float, float]:
    """Return Wilson's interval of a share: all p with |k/n - p| <= z sqrt(p (1 - p) / n).

    Args:
        k: rows that count, 0 to n.
        n: all rows, above 0.
    """
    share, square = k / n, Z * Z / n
    centre = share + square / 2
    half = Z * math.sqrt(max(share * (1 - share), 0.0) / n + square / (4 * n))
    low, high = (centre - half) / (1 + square), (centre + half) / (1 + square)
    return (0.0 if k <= 0 else max(0.0, min(low, share))), (1.0 if k >= n else min(1.0, max(high, share)))


def share_of(hits: Booleans) -> Share:
    """Return the share of rows that are True."""
    return Share.of(int(np.count_nonzero(hits)), len(hits))
