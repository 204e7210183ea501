"""Break-even: inferences after which a faster configuration makes up for a slower start.

Pure functions of two stored results and the contrast of their race; no clock, no I/O. Seconds throughout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.evidence.verdict import Verdict
from core.wire.units import ms

Kind = Literal["at once", "after", "until", "never", "same", "unknown"]
Unit = Literal["run", "row"]
_UNITS = {"run": "run", "row": "sample"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """After how much work the candidate has used less time in all than the baseline.

    `start_s` is what its start costs more than the baseline's, beyond a usual run; below 0 it starts sooner.
    `count` of `unit` belongs to the kinds "after" (ahead from there on) and "until" (ahead up to there), with
    `low` and `high` from the interval of the ratio; they are None where it has no such end.
    """

    kind: Kind
    start_s: float
    gain_s: float  # per `unit`; below 0: the candidate loses
    count: int | None = None
    low: int | None = None
    high: int | None = None
    unit: Unit = "run"  # "row" where the batch sizes differ

    @property
    def words(self) -> str:
        """One sentence for a person."""
        gap, gain = ms(abs(self.start_s), 3), ms(abs(self.gain_s), 3)
        start = f"the start takes {gap} {'longer' if self.start_s > 0 else 'less'}"
        unit = _UNITS[self.unit]
        how_many = f"{self.count:,} {unit}s{self._span}" if self.count is not None else ""
        return {
            "at once": f"At once: {start}, and each {unit} {gain} less.",
            "after": f"After about {how_many}: {start}, each {unit} {gain} less.",
            "until": f"Only for the first {how_many}: {start}, but each {unit} {gain} more.",
            "never": f"Never: {start}, and each {unit} {gain} more.",
            "same": f"Equally fast once warm, so the start decides: {start}.",
            "unknown": f"Unknown: the comparison did not decide which one is faster once warm; {start}.",
        }[self.kind]

    @property
    def _span(self) -> str:
        if self.low is None:
            return ""
        return f" ({self.low:,} {f'to {self.high:,}' if self.high is not None else 'or more'})"


def break_even(
    candidate: Mapping[str, Any], baseline: Mapping[str, Any], contrast: Mapping[str, Any]
) -> BreakEven | None:
    """Return when the candidate's steady state has repaid its start; None where a start was not measured.

    The time of N rows is taken as session creation, plus the first run, plus the steady latency of the rows
    after it. The steady latency of the baseline is its p50 (the mean where there are too few runs for one),
    and the candidate's follows from the paired ratio: two medians of their own could contradict the verdict.

    Args:
        candidate: result of a trial.
        baseline: result of the trial that raced against it.
        contrast: of the two, as a comparison stores it.
    """
    if not contrast.get("ratio") or None in (_start_s(candidate), _start_s(baseline)):
        return None
    ratio = float(contrast["ratio"])
    same_rows = candidate["batch_size"] == baseline["batch_size"]
    steady_s = _steady_s(baseline) / float(baseline["batch_size"])  # per row
    start_s = _beyond_a_run(candidate, steady_s / ratio) - _beyond_a_run(baseline, steady_s)
    unit_s = steady_s * float(baseline["batch_size"] if same_rows else 1)

    def gain_s(at: float) -> float:
        return unit_s * (1 - 1 / at)

    found = BreakEven(
        kind="unknown", start_s=start_s, gain_s=gain_s(ratio), unit="run" if same_rows else "row"
    )
    if contrast["verdict"] in (Verdict.EQUIVALENT, Verdict.UNDECIDED):
        return replace(found, kind="same" if contrast["verdict"] == Verdict.EQUIVALENT else "unknown")
    if (found.gain_s > 0) == (start_s <= 0):  # start and steady state agree
        return replace(found, kind="at once" if found.gain_s > 0 else "never")
    ends = [contrast.get("ratio_low"), contrast.get("ratio_high")]
    counts = sorted(_count(start_s / gain_s(end)) for end in ends if end and start_s * gain_s(end) > 0)
    return replace(
        found,
        kind="after" if found.gain_s > 0 else "until",
        count=_count(start_s / found.gain_s),
        low=counts[0] if counts else None,
        high=counts[1] if len(counts) == 2 else None,
    )


def _start_s(result: Mapping[str, Any]) -> float | None:
    creation, first = result.get("session_creation_s"), result.get("first_run_s")
    return None if creation is None or first is None else float(creation + first)


def _beyond_a_run(result: Mapping[str, Any], steady_row_s: float) -> float:
    """What creation and first run take beyond a usual run of the same rows."""
    start = _start_s(result)
    assert start is not None
    return start - float(steady_row_s * result["batch_size"])


def _steady_s(result: Mapping[str, Any]) -> float:
    latency = result["latency"]
    return float(latency["p50_s"] if latency.get("p50_s") is not None else latency["mean_s"])


def _count(number: float) -> int:
    return max(1, round(number))
