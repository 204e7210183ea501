"""Break-even: inferences after which a faster configuration makes up for a slower start.

Pure functions of two stored results and their contrast; no clock, no I/O. Seconds throughout.
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
    """Amount of work after which the candidate has used less total time than the baseline.

    `start_s` is the extra start time of the candidate, beyond a usual run; a negative value is a faster
    start. `count`, in `unit`, belongs to the kinds "after" (faster in total from there on) and "until" (up to
    there). `low` and `high` come from the interval of the ratio; a bound is None where the interval gives
    none.
    """

    kind: Kind
    start_s: float
    gain_s: float  # time saved per `unit`; negative: the candidate is slower
    count: int | None = None
    low: int | None = None
    high: int | None = None
    unit: Unit = "run"  # "row" where the batch sizes differ

    @property
    def words(self) -> str:
        """One sentence for display."""
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
    """Return after how much work the candidate has made up for its start; None: a start was not measured.

    The time of N samples is session creation, plus the first run, plus the steady latency of the remaining
    samples. The steady latency of the baseline is its p50 (the mean where there are too few runs for a p50).
    The candidate's follows from the paired ratio, because two separate medians could contradict the verdict.

    Args:
        candidate: result of a trial.
        baseline: result of the trial that it was compared with.
        contrast: contrast of the two, as a comparison stores it.
    """
    if not contrast.get("ratio") or None in (_start_s(candidate), _start_s(baseline)):
        return None
    ratio = float(contrast["ratio"])
    same_rows = candidate["batch_size"] == baseline["batch_size"]
    steady_s = _steady_s(baseline) / float(baseline["batch_size"])  # per sample
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
    """Return the time of creation and first run beyond a steady run of the same batch size."""
    start = _start_s(result)
    assert start is not None
    return start - float(steady_row_s * result["batch_size"])


def _steady_s(result: Mapping[str, Any]) -> float:
    latency = result["latency"]
    return float(latency["p50_s"] if latency.get("p50_s") is not None else latency["mean_s"])


def _count(number: float) -> int:
    return max(1, round(number))
