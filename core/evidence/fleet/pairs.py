"""Ratios of all pairs of configurations of one comparison, from its raw rounds. Pure.

A document of `compare` has ratios to one baseline. The regret of a configuration needs its ratio to the best
one; from the rounds of both it is far more precise than from two ratios to the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from core.evidence.continuation import family, splits
from core.evidence.evaluations import contrast_of
from core.evidence.fleet.intervals import TAIL_DF, FleetInterval
from core.evidence.statistics import CONFIDENCE, t_quantile
from core.spec.effort import DEFAULT_MARGIN

PAIRS = "pairs"  # key of a document without raw measurements, for its pairs
_ALPHA = 1 - CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRatio:
    """The speed of one configuration relative to another one of the same rounds; above 1: it is faster."""

    ratio: float
    standard_error: float  # of the log ratio
    df: float  # degrees of freedom
    analyses: float  # interim analyses that share the 5 %

    def inverse(self) -> PairRatio:
        """Return the ratio with both sides swapped."""
        return PairRatio(
            ratio=1 / self.ratio, standard_error=self.standard_error, df=self.df, analyses=self.analyses
        )

    def interval(self, count: float) -> FleetInterval:
        """Return the interval that holds together with `count` others."""
        share = _ALPHA / 2 / (self.analyses * count)
        reach = t_quantile(1 - share, TAIL_DF * self.df) * self.standard_error
        return FleetInterval(
            value=self.ratio, low=self.ratio * math.exp(-reach), high=self.ratio * math.exp(reach), df=self.df
        )


def pairs_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the ratios of all pairs of a comparison as plain data: both trials, the fields of `PairRatio`.

    A document whose raw measurements were removed holds them. A pair without an interval is left out, and so
    is every pair of a comparison with a contradicted contrast, whose stored interval covers more.
    """
    if PAIRS in document:
        kept: list[dict[str, Any]] = document[PAIRS]
        return kept
    contrasts: Sequence[Mapping[str, Any]] = document.get("contrasts") or ()
    if not contrasts or any(one.get("contradicted") for one in contrasts):
        return []
    metric = "throughput" if document.get("statistic") == "throughput" else "latency_p50"
    protocol = document.get("protocol") or {}
    analyses = splits(protocol) / family(protocol)
    complete = [one for one in document.get("trials") or () if one.get("blocks") and not one.get("error")]
    found = []
    for own, other in combinations(complete, 2):
        one = contrast_of(metric, own, other, looks=1, margin=DEFAULT_MARGIN)
        if one is not None and one.standard_error and one.df and one.interval is not None:
            found.append(
                {
                    "candidate": own["trial"],
                    "baseline": other["trial"],
                    "ratio": one.ratio,
                    "standard_error": one.standard_error,
                    "df": one.df,
                    "analyses": analyses,
                }
            )
    return found


def by_key(found: Sequence[Mapping[str, Any]], keys: Mapping[str, str]) -> dict[str, dict[str, PairRatio]]:
    """Return pairs by the keys of their configurations, in both directions.

    Args:
        found: from `pairs_of`.
        keys: trial -> key; trials that are not among them are left out.
    """
    made: dict[str, dict[str, PairRatio]] = {}
    for one in found:
        if one["candidate"] not in keys or one["baseline"] not in keys:
            continue
        own, other = keys[one["candidate"]], keys[one["baseline"]]
        ratio = PairRatio(
            ratio=one["ratio"],
            standard_error=one["standard_error"],
            df=one["df"],
            analyses=one["analyses"],
        )
        made.setdefault(own, {})[other] = ratio
        made.setdefault(other, {})[own] = ratio.inverse()
    return made
