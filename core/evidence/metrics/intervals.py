"""Shares and numbers with their 95 % interval: the types of all metrics. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return asdict(self)


UNKNOWN = Interval(value=None, low=None, high=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`count` of `total` rows, with Wilson's interval."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The share; None without rows."""
        return self.count / self.total if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """Return value, bounds and counts as plain JSON data."""
        low, high = wilson(self.count, self.total) if self.total else (None, None)
        return {"value": self.value, "low": low, "high": high, "count": self.count, "total": self.total}


def wilson(k: float, n: float, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval of a share: all p with |k/n - p| <= z sqrt(p (1 - p) / n).

    Args:
        k: rows that count, 0 to n.
        n: all rows, above 0.
        z: quantile of the normal distribution.
    """
    share, square = k / n, z * z / n
    centre = share + square / 2
    half = z * math.sqrt(max(share * (1 - share), 0.0) / n + square / (4 * n))
    low, high = (centre - half) / (1 + square), (centre + half) / (1 + square)
    return (0.0 if k <= 0 else max(0.0, min(low, share))), (1.0 if k >= n else min(1.0, max(high, share)))


def share_of(hits: Booleans) -> Share:
    """Return the share of rows that are True."""
    return Share(count=int(np.count_nonzero(hits)), total=len(hits))
