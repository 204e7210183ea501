"""How much each host loses if all hosts use one configuration, and which one to choose. Pure.

The regret of a configuration on a host is how much slower it is there than the best configuration of that
host: best speed / its speed - 1. Its interval comes from intervals of ratios on that host, widened so that
those of all configurations and hosts hold together. Every statement that follows from them therefore holds
with 95 %, whichever configuration is chosen because of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.evidence.fleet.fleet_types import FleetRun
from core.evidence.fleet.intervals import FleetInterval, joint
from core.evidence.fleet.matrix import DEFAULT_KEY, Cell, Configuration, HostRow, Matrix, matrix

MOST_CANDIDATES = 7  # of one comparison

# BEST: its worst regret is the smallest. EQUIVALENT: no other one can be better by more than the margin.
Outcome = Literal["BEST", "EQUIVALENT", "UNDECIDED", "NONE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRegret:
    """The largest regret of a configuration over all hosts."""

    configuration: str
    host: str  # where its regret is the largest
    regret: FleetInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class Portability:
    """One configuration for all hosts."""

    hosts: tuple[str, ...]  # with valid ratios
    missing: Mapping[str, str]  # host -> why it does not count
    regrets: Mapping[str, Mapping[str, FleetInterval]]  # host -> configuration -> regret, a share
    excluded: Mapping[str, str]  # configuration -> host and reason why it cannot serve all hosts
    worst: tuple[WorstRegret, ...]  # smallest estimate first
    outcome: Outcome
    possible: tuple[str, ...]  # configurations whose worst regret may be the smallest
    margin: float

    @property
    def choice(self) -> WorstRegret | None:
        """The configuration with the smallest worst regret by its estimate; None: none runs on all hosts."""
        return self.worst[0] if self.worst else None


def portability(found: Matrix) -> Portability:
    """Return regrets and the choice of one configuration for all hosts.

    A configuration is excluded if a host cannot run it, or if its outputs are wrong there. A host without
    valid ratios does not count, and the result names it.

    Args:
        found: a comparison of the same configurations on every host.
    """
    rows = [one for one in found.measured if not one.rejected]
    missing = {one.host: one.rejected or one.why or one.state for one in found.rows if one not in rows}
    regrets = {row.host: regrets_of(row, len(rows)) for row in rows}
    excluded = _excluded(found.configurations, rows)
    kept = [one.key for one in found.configurations if one.key not in excluded]
    worst = sorted(
        (one for key in kept if (one := _worst(key, regrets)) is not None), key=lambda one: one.regret.value
    )
    margin = min((one.margin for one in rows), default=0.0)
    outcome, possible = _choose(worst, margin)
    return Portability(
        hosts=tuple(one.host for one in rows),
        missing=missing,
        regrets=regrets,
        excluded=excluded,
        worst=tuple(worst),
        outcome=outcome,
        possible=possible,
        margin=margin,
    )


def regrets_of(row: HostRow, hosts: int) -> dict[str, FleetInterval]:
    """Return the regret of each usable configuration of a host, as a share.

    They come from the ratios of all pairs, or without raw rounds from two ratios to the reference. The lower
    bound is 0 where the configuration may be the best. The upper bound is unknown while the ratio of any
    usable configuration is.

    Args:
        row: of the host.
        hosts: number of hosts whose intervals hold together.
    """
    usable = row.usable
    if (paired := _paired(row, list(usable), hosts)) is not None:
        return paired
    speeds = {
        key: joint(one.speedup, hosts, log=True) if key != row.reference else one.speedup
        for key, one in usable.items()
        if one.speedup is not None
    }
    is_whole = len(speeds) == len(usable)
    return {key: _regret(key, speeds, is_whole=is_whole) for key in speeds}


def _paired(row: HostRow, keys: Sequence[str], hosts: int) -> dict[str, FleetInterval] | None:
    """Return the regrets from the ratios of all pairs, which hold together; None: a pair is missing."""
    count = hosts * len(keys) * (len(keys) - 1) / 2
    made = {}
    for key in keys:
        others = [row.pairs.get(one, {}).get(key) for one in keys if one != key]
        known = [one.interval(count) for one in others if one is not None]
        if not known or len(known) < len(keys) - 1:
            return None
        made[key] = FleetInterval(
            value=max(0.0, max(one.value for one in known) - 1),
            low=max(0.0, max(one.low or 0.0 for one in known) - 1),
            high=max(0.0, max(one.high or 0.0 for one in known) - 1),
        )
    return made


def _regret(key: str, speeds: Mapping[str, FleetInterval], *, is_whole: bool) -> FleetInterval:
    own, others = speeds[key], [one for name, one in speeds.items() if name != key]
    value = max((one.value for one in others), default=0.0) / own.value - 1
    lows = [one.low for one in others if one.low is not None]
    highs = [one.high for one in others]
    low = max(lows) / own.high - 1 if lows and own.high else 0.0
    high = None
    if own.low and is_whole and None not in highs:
        high = max(0.0, max((one for one in highs if one is not None), default=0.0) / own.low - 1)
    return FleetInterval(value=max(0.0, value), low=max(0.0, low), high=high)


def _excluded(configurations: Sequence[Configuration], rows: Sequence[HostRow]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in configurations:
        for row in rows:
            if (why := _why_not(row.cells.get(one.key))) and one.key not in found:
                found[one.key] = f"{row.host}: {why}"
    return found


def _why_not(cell: Cell | None) -> str:
    if cell is None:
        return "not measured"
    return cell.unusable or ("" if cell.speedup is not None else "no ratio")


def _worst(key: str, regrets: Mapping[str, Mapping[str, FleetInterval]]) -> WorstRegret | None:
    """Return the largest regret: the largest of the estimates, of the lower and of the upper bounds."""
    own = {host: found[key] for host, found in regrets.items() if key in found}
    if not own or len(own) < len(regrets):
        return None
    host = max(own, key=lambda one: own[one].value)
    highs = [one.high for one in own.values()]
    return WorstRegret(
        configuration=key,
        host=host,
        regret=FleetInterval(
            value=own[host].value,
            low=max(one.low or 0.0 for one in own.values()),
            high=None if None in highs else max(one for one in highs if one is not None),
        ),
    )


def _choose(worst: Sequence[WorstRegret], margin: float) -> tuple[Outcome, tuple[str, ...]]:
    if not worst:
        return "NONE", ()
    most = min((one.regret.high for one in worst if one.regret.high is not None), default=None)
    possible = tuple(one.configuration for one in worst if most is None or (one.regret.low or 0.0) <= most)
    first = worst[0].regret
    others = [one.regret.low or 0.0 for one in worst[1:]]
    if first.high is None:
        return ("BEST" if not others else "UNDECIDED"), possible
    if not others or first.high < min(others):
        return "BEST", (worst[0].configuration,)
    if 1 + first.high <= (1 + margin) * (1 + min(others)):
        return "EQUIVALENT", possible
    return "UNDECIDED", possible


# --- the second phase ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Configurations that a second phase compares on every host, beside the ORT default."""

    question: int  # number of the search
    default: Configuration | None  # ORT default of the search, without I/O binding; None: no host has it
    configurations: tuple[Configuration, ...]  # the most frequent winners first, without the ORT default
    hosts: Mapping[str, tuple[str, ...]]  # key -> hosts whose search found it
    left_out: Mapping[str, str]  # key -> why it is not compared
    without: Mapping[str, str]  # host -> why it names no winner


def candidates(run: FleetRun, number: int) -> Candidates:
    """Return the winners of a search, to be compared on every host.

    Args:
        run: whose searches have ended.
        number: of the search.
    """
    found = matrix(run, number)
    winners: dict[str, list[str]] = {}
    without: dict[str, str] = {}
    for row in found.rows:
        keys = [key for key in row.best if key != DEFAULT_KEY] if len(row.best) == 1 else []
        if keys:
            winners.setdefault(keys[0], []).append(row.host)
        else:
            without[row.host] = row.why or row.text or row.state
    ordered = sorted(winners, key=lambda key: -len(winners[key]))
    foreign = {key for key in ordered if _is_of_another_model(found, key)}
    own = [key for key in ordered if key not in foreign]
    left_out = dict.fromkeys(foreign, "its model is a variant, which only its host has")
    left_out |= dict.fromkeys(own[MOST_CANDIDATES:], f"a comparison takes {MOST_CANDIDATES} candidates")
    return Candidates(
        question=number,
        default=_default(found),
        configurations=tuple(found.configuration(key) for key in own[:MOST_CANDIDATES]),
        hosts={key: tuple(hosts) for key, hosts in winners.items()},
        left_out=left_out,
        without=without,
    )


def _default(found: Matrix) -> Configuration | None:
    return next((one for one in found.configurations if one.key == DEFAULT_KEY), None)


def _is_of_another_model(found: Matrix, key: str) -> bool:
    """Whether a winner runs another model than the ORT default of its search."""

    def model(one: Configuration) -> object:
        return (one.spec.get("model") or {}).get("sha256")

    default = _default(found)
    return default is not None and model(found.configuration(key)) != model(default)


def spec_of(configuration: Configuration) -> dict[str, Any]:
    """Return the spec of a candidate for another host, as plain data, without its model's path and hash.

    The hash of a runtime is left out, too, because hosts may have different builds of one version.

    Args:
        configuration: from `candidates`.
    """
    spec = {name: part for name, part in configuration.spec.items() if name not in ("protocol", "targets")}
    model = {
        name: one for name, one in (spec.get("model") or {}).items() if name not in ("path", "name", "sha256")
    }
    if "runtime" in spec:
        spec["runtime"] = str(spec["runtime"]).partition("@")[0]
    return {**spec, "model": model}
