"""Verification: runs, same outputs, same speed-up, from two sets of results.

Pure: recorded results and results of this machine in, verdicts out. The two comparisons were made at
different times on different machines, so their measurements are not paired. Compared are two ratios with
intervals, each relative to the same reference in its own rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.evidence.targets import State as TargetState
from core.evidence.verdict import ratio_text
from core.wire.units import ci

MARGIN = 0.05  # equivalence margin of two speed-ups: two quick comparisons have ±2 % each

Answer = Literal["YES", "NO", "UNKNOWN"]
Fact = Literal["OK", "NO", "NOTE", "UNKNOWN"]
Speed = Literal["HOLDS", "DIFFERS", "UNDECIDED", "NOT_MEASURED"]
State = Literal["CONFIRMED", "NOT_MEASURED", "FAILED", "UNDECIDED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Speed-up in one comparison; above 1 is faster."""

    ratio: float
    low: float | None  # lower bound of the 95 % interval; None: unknown
    high: float | None
    doubt: str = ""  # why its comparison is invalid; empty: it is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotient:
    """A quotient of two independent estimates, with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A recorded speed-up compared with the same speed-up on this machine."""

    against: str  # the reference of both, as text
    recorded: Speedup
    here: Speedup | None  # None: not measured
    between: Quotient | None  # `here` / `recorded`; None: one of the two has no interval
    state: Speed
    why: str

    @property
    def is_slower(self) -> bool:
        """Whether the speed-up here is significantly smaller than the recorded one."""
        return self.state == "DIFFERS" and self.between is not None and self.between.ratio < 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCheck:
    """One fact checked without measuring: its recorded value, its value here, and whether they match."""

    name: str
    state: Fact  # NOTE: it runs, but differs from the record
    recorded: str = ""
    here: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationPart:
    """One of the three parts of a verification, with its reason."""

    state: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChange:
    """A configuration compared with an earlier baseline of the same machine; above 1 is faster."""

    between: Quotient | None  # speed now / speed of the baseline, per sample
    raw: Quotient | None  # `between` without the correction for CPU speed
    cpus: float | None  # CPU speed now / CPU speed of the baseline; None: unknown
    limit: float  # a larger slowdown than this share fails
    state: Speed
    why: str
    changed: Sequence[str] = ()  # what differs from the baseline: model, ONNX Runtime, settings

    @property
    def passed(self) -> bool:
        """Whether the interval excludes a larger slowdown."""
        return self.state == "HOLDS"

    @property
    def is_slower(self) -> bool:
        """Whether it is significantly slower than allowed."""
        return self.state == "DIFFERS"


# --- two ratios ---------------------------------------------------------------------------------------------


def between(one: Speedup, other: Speedup) -> Quotient | None:
    """Return `one` over `other` with its 95 % interval; None if one of them has none.

    On the log scale, the distances of the estimates from the ends of their intervals add up as squares, so
    the intervals may be asymmetric.

    Source: Zou and Donner (2008), Statistics in Medicine 27, 1693-1702 (MOVER).
    """
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    values = (one.ratio, one.low, one.high, other.ratio, other.low, other.high)
    if not all(math.isfinite(value) and value > 0 for value in values):
        return None
    a, a_low, a_high, b, b_low, b_high = map(math.log, values)
    down, up = math.hypot(a - a_low, b_high - b), math.hypot(a_high - a, b - b_low)
    return Quotient(ratio=math.exp(a - b), low=math.exp(a - b - down), high=math.exp(a - b + up))


def transfer(against: str, recorded: Speedup, here: Speedup | None, *, margin: float = MARGIN) -> Transfer:
    """Return whether a recorded speed-up is reproduced on this machine.

    HOLDS: the whole 95 % interval of their quotient is within `margin` around 1. DIFFERS: all of it is on one
    side of 1, and not within the margin. UNDECIDED otherwise, or if a comparison is invalid.
    """
    found = None if here is None else between(here, recorded)
    state, why = _speed(recorded, here, found, margin)
    return Transfer(against=against, recorded=recorded, here=here, between=found, state=state, why=why)


def _speed(
    recorded: Speedup, here: Speedup | None, found: Quotient | None, margin: float
) -> tuple[Speed, str]:
    if here is None:
        return "NOT_MEASURED", f"{_ratio(recorded)} recorded; not measured here."
    both = f"{_ratio(here)} here, {_ratio(recorded)} recorded"
    for gain, where in ((recorded, "The recorded comparison"), (here, "The comparison here")):
        if gain.doubt:
            return "UNDECIDED", f"{both}. {where} has no verdict: {gain.doubt.rstrip('.')}."
    if found is None:
        return "UNDECIDED", f"{both}; one of them has no interval."
    share = f"{_span(found)} of the recorded speed-up"
    if found.low >= 1 / (1 + margin) and found.high <= 1 + margin:
        return "HOLDS", f"{both}: {share}, within {100 * margin:g} %."
    if found.high < 1 or found.low > 1:
        return "DIFFERS", f"{both}: {share}, {'less' if found.high < 1 else 'more'} than recorded."
    return (
        "UNDECIDED",
        f"{both}: {share}: undecided. Measure here with more effort.",
    )


def _ratio(gain: Speedup) -> str:
    return f"{ratio_text(gain.ratio, gain.low, gain.high)}×"


def _span(found: Quotient) -> str:
    """Return the quotient with its interval: "0.99× (95 % CI [0.96, 1.02])"."""
    places = 3 if found.high - found.low < 0.02 else 2
    return f"{found.ratio:.{places}f}× ({ci(f'{found.low:.{places}f}', f'{found.high:.{places}f}')})"


# --- then and now -------------------------------------------------------------------------------------------


def change(
    then: Speedup,
    now: Speedup,
    *,
    limit: float,
    cpus: float | None,
    changed: Sequence[str] = (),
) -> SpeedChange:
    """Return whether a configuration became slower since `then`, by more than `limit`.

    The two were measured at different times, and their intervals do not cover changes of the machine in
    between. The time of a fixed piece of work then and now does: the interval covers both the measured
    quotient and the one corrected to the same speed of the CPUs.

    Args:
        then: speed, samples per second, with its interval.
        now: the same, now.
        limit: allowed slowdown: taking (1 + limit) times as long is too slow.
        cpus: speed of a core now over then; None: not known.
        changed: differences since then.
    """
    raw = between(now, then)
    found = raw
    if raw is not None and cpus is not None and cpus > 0:
        same = Quotient(ratio=raw.ratio / cpus, low=raw.low / cpus, high=raw.high / cpus)
        found = Quotient(ratio=raw.ratio, low=min(raw.low, same.low), high=max(raw.high, same.high))
    state, why = _changed(then, now, found, limit)
    return SpeedChange(
        between=found, raw=raw, cpus=cpus, limit=limit, state=state, why=why, changed=tuple(changed)
    )


def _changed(then: Speedup, now: Speedup, found: Quotient | None, limit: float) -> tuple[Speed, str]:
    for gain, when in ((then, "The comparison of the baseline"), (now, "The comparison here")):
        if gain.doubt:
            return "UNDECIDED", f"{when} has no verdict: {gain.doubt.rstrip('.')}."
    if found is None:
        return "UNDECIDED", "One of the two has no interval."
    least = 1 / (1 + limit)
    places = 3 if found.high - found.low < 0.02 else 2
    span = ci(f"{found.low:.{places}f}", f"{found.high:.{places}f}")
    text = f"{found.ratio:.{places}f}× as fast as the baseline, {span}"
    if found.high < least:
        return "DIFFERS", f"{text}: more than {100 * limit:g} % slower."
    if found.low >= least:
        return "HOLDS", f"{text}: not more than {100 * limit:g} % slower."
    return "UNDECIDED", f"{text}: undecided whether more than {100 * limit:g} % slower."


# --- recorded speed-ups -------------------------------------------------------------------------------------


def recorded_speedups(contrasts: Any) -> list[Speedup]:
    """Return the recorded speed-ups of a file: over the ORT default, then over the baseline if there was one.

    Args:
        contrasts: `measured.contrasts` of a file; untrusted, of any type.
    """
    listed = contrasts if isinstance(contrasts, list) else []
    found = [gain for one in reversed(listed[:8]) if (gain := _gain(one)) is not None]
    return found[:2] if len(found) == len(listed) else []


def _gain(one: Any) -> Speedup | None:
    if not isinstance(one, Mapping):
        return None
    ratio, low, high = (one.get(name) for name in ("ratio", "ratio_low", "ratio_high"))
    if not _positive(ratio) or not all(bound is None or _positive(bound) for bound in (low, high)):
        return None
    assert ratio is not None
    doubt = ""
    if one.get("holds") is False or one.get("grade") == "F":
        doubt = str(one.get("holds_reason") or "its A/A test failed")[:300]
    elif one.get("contradicted") is True:
        doubt = "its undisturbed rounds contradict all rounds"
    return Speedup(ratio=ratio, low=low, high=high, doubt=doubt)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


# --- the overall result -------------------------------------------------------------------------------------


def speed_part(transfers: Iterable[Transfer], *, otherwise: str) -> VerificationPart:
    """Return the third part: the worst of the speed-ups over all references."""
    order: tuple[Speed, ...] = ("DIFFERS", "UNDECIDED", "NOT_MEASURED", "HOLDS")
    found = sorted(transfers, key=lambda one: (not one.is_slower, order.index(one.state)))
    if not found:
        return VerificationPart(state="NOT_MEASURED", why=otherwise)
    return VerificationPart(state=found[0].state, why=f"Against {found[0].against}: {found[0].why}")


def overall(
    *,
    runs: VerificationPart,
    same: VerificationPart,
    transfers: Sequence[Transfer],
    targets: Sequence[TargetState],
    change: SpeedChange | None,
    asked_speed: bool,
    measure: bool = True,
) -> State:
    """Return the overall state: FAILED if a part has failed for certain, UNDECIDED if one may have.

    A larger speed-up than recorded is no failure. A missing measurement is UNDECIDED only if it was
    requested. Without `measure`, and with all other parts passed, the state is NOT_MEASURED, never CONFIRMED.
    """
    slower = any(one.is_slower for one in transfers) or (change is not None and change.is_slower)
    if runs.state == "NO" or same.state == "NO" or slower or "MISSED" in targets:
        return "FAILED"
    speeds = [one.state for one in transfers] or ["NOT_MEASURED"]
    speeds += [] if change is None else [change.state]
    open_ = asked_speed and any(one in ("UNDECIDED", "NOT_MEASURED") for one in speeds)
    if change is not None and change.state == "HOLDS" and not transfers:
        open_ = False  # no other speed was requested
    if runs.state == "UNKNOWN" or same.state == "UNKNOWN" or open_ or "UNKNOWN" in targets:
        return "UNDECIDED"
    return "CONFIRMED" if measure else "NOT_MEASURED"
