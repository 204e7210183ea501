"""Cost of a million inferences on each host, and the cheapest host that meets the constraints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core.evidence.fleet.intervals import FleetInterval, joint
from core.evidence.fleet.matrix import HostRow, Matrix

MILLION = 1e6
HOUR_S = 3600.0

Meets = Literal["MET", "MISSED", "UNKNOWN"]
# EQUIVALENT: no other host can be cheaper by more than the margin. NONE: no host is known to meet the limits
CheapestOutcome = Literal["CHEAPEST", "EQUIVALENT", "UNDECIDED", "NONE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """Cost of a million samples on one host, with the configuration that is the best there."""

    host: str
    configuration: str  # key
    price_per_hour: float
    throughput: FleetInterval  # samples per second
    per_million: FleetInterval  # in the currency of the price; 95 % for this host alone
    meets: Meets  # the constraints of the question
    limits: tuple[str, ...]  # constraints that are missed or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of all hosts with a price."""

    hosts: tuple[HostCost, ...]  # the cheapest estimate first
    without: Mapping[str, str]  # host -> why it has no cost
    outcome: CheapestOutcome
    possible: tuple[str, ...]  # hosts that may be the cheapest that meets the constraints

    @property
    def cheapest(self) -> HostCost | None:
        """The host with the lowest estimate among those that meet the constraints; None: there is none."""
        return next((one for one in self.hosts if one.meets == "MET"), None)


def per_million(rate: FleetInterval, price_per_hour: float) -> FleetInterval:
    """Return the cost of a million samples at a throughput; a higher throughput costs less.

    Args:
        rate: samples per second, above 0.
        price_per_hour: of the machine.
    """

    def cost(one: float | None) -> float | None:
        return price_per_hour / HOUR_S * MILLION / one if one else None

    value = cost(rate.value)
    assert value is not None, rate
    return FleetInterval(value=value, low=cost(rate.high), high=cost(rate.low), df=rate.df)


def costs(found: Matrix) -> Costs:
    """Return the cost of each host with its best configuration, and the cheapest host.

    The selection uses intervals that hold for all hosts together.
    """
    made: list[HostCost] = []
    without: dict[str, str] = {}
    for row in found.rows:
        if isinstance(one := _cost(row), HostCost):
            made.append(one)
        else:
            without[row.host] = one
    ordered = sorted(made, key=lambda one: one.per_million.value)
    margin = min((one.margin for one in found.measured), default=0.0)
    outcome, possible = _cheapest(ordered, margin)
    return Costs(hosts=tuple(ordered), without=without, outcome=outcome, possible=possible)


def _cost(row: HostRow) -> HostCost | str:
    """Return the cost of a host, or why it has none."""
    if row.price_per_hour is None:
        return "no price"
    keys = [*row.best, row.reference]
    key = next((one for one in keys if one in row.cells), "")
    cell = row.cells.get(key)
    if cell is None or cell.throughput is None:
        return row.why or "no throughput"
    states = {one.state for one in row.limits}
    meets: Meets = "MISSED" if "MISSED" in states else "UNKNOWN" if "UNKNOWN" in states else "MET"
    return HostCost(
        host=row.host,
        configuration=key,
        price_per_hour=row.price_per_hour,
        throughput=cell.throughput,
        per_million=per_million(cell.throughput, row.price_per_hour),
        meets=meets,
        limits=tuple(f"{one.limit}: {one.state}" for one in row.limits if one.state != "MET"),
    )


def _cheapest(ordered: list[HostCost], margin: float) -> tuple[CheapestOutcome, tuple[str, ...]]:
    able = [one for one in ordered if one.meets == "MET"]
    if not able:
        return "NONE", ()
    rivals = [one for one in ordered if one.meets != "MISSED"]
    spans = {one.host: _joint_cost(one, len(rivals)) for one in rivals}
    mosts = [spans[one.host].high for one in able]
    most = min((one for one in mosts if one is not None), default=None)
    possible = tuple(one.host for one in rivals if most is None or (spans[one.host].low or 0.0) <= most)
    first = spans[able[0].host]
    lows = [spans[one.host].low for one in rivals if one.host != able[0].host]
    if not lows:
        return "CHEAPEST", possible
    known = [one for one in lows if one is not None]
    if first.high is None or len(known) < len(lows):
        return "UNDECIDED", possible
    if first.high < min(known):
        return "CHEAPEST", (able[0].host,)
    return ("EQUIVALENT" if first.high <= (1 + margin) * min(known) else "UNDECIDED"), possible


def _joint_cost(one: HostCost, count: int) -> FleetInterval:
    """Return the cost with an interval that holds for all hosts together.

    The interval of the mean latency is symmetric, so the widening is done for the inverse of the throughput.
    """
    rate = one.throughput
    inverse = FleetInterval(
        value=1 / rate.value,
        low=1 / rate.high if rate.high else None,
        high=1 / rate.low if rate.low else None,
        df=rate.df,
    )
    wide = joint(inverse, count, log=False)
    scale = one.price_per_hour / HOUR_S * MILLION
    return FleetInterval(
        value=one.per_million.value,
        low=None if wide.low is None else max(0.0, wide.low) * scale,
        high=None if wide.high is None else wide.high * scale,
    )
