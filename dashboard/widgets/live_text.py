"""Submitted work in words: its place in the queue, its step, a comparison so far. No Streamlit, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.api.session import PRIVATE_JOB, WAITING_IDLE, Status
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.show import interim
from core.show.words import start_words
from dashboard import format


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConfigurations:
    """The compared configurations: their names, and the samples per inference of each (None: unknown)."""

    labels: Mapping[str, str]
    rows: Mapping[str, int | None]

    @property
    def per_row(self) -> bool:
        """Whether only numbers per sample can be compared."""
        return len(set(self.rows.values())) > 1


def compared_configurations(comparison: Comparison, trials: Sequence[Trial]) -> ComparedConfigurations:
    """Return the configurations of `comparison`, by the specs of its `trials`."""
    return ComparedConfigurations(
        labels={one.trial: one.label for one in comparison.contestants},
        rows={one.id: (one.spec.get("workload") or {}).get("batch_size") for one in trials},
    )


def rounds_text(live: Mapping[str, Any], *, measuring: bool) -> str:
    """Name the current launch, and the numbers of completed and expected rounds.

    Args:
        live: `Status.live`.
        measuring: whether more rounds may follow.
    """
    rounds, predicted = live.get("rounds") or 0, live.get("predicted_rounds") or 0
    more = f" of about {predicted:,}" if measuring and predicted > rounds else ""
    text = f"{rounds:,}{more} round{'s' * (max(rounds, predicted) != 1)}"
    return f"launch {live['generation']:,} · {text}" if live.get("generation") else text


def p50_text(live: Mapping[str, Any], trial: str, field: ComparedConfigurations) -> str:
    """Return the p50 of a configuration so far, "1.230 ms" or "0.3075 ms per sample"; empty: unknown."""
    seconds = (live.get("p50_s") or {}).get(trial)
    if seconds is None:
        return ""
    if not field.per_row:
        return format.ms(seconds)
    rows = field.rows.get(trial)
    # the batch of a model without a size is unknown
    return f"{format.ms(seconds / rows)} per sample" if rows else ""


def speed_text(live: Mapping[str, Any], trial: str, field: ComparedConfigurations) -> str:
    """Return what is compared, so far: "p50 1.230 ms", or with several streams "450.1 samples/s"."""
    if live.get("statistic") == "throughput":
        rate = (live.get("rate_per_s") or {}).get(trial)
        return "" if rate is None else format.rate(rate)
    text = p50_text(live, trial, field)
    return f"p50 {text}" if text else ""


def words(live: Mapping[str, Any], trial: str, field: ComparedConfigurations, *, measuring: bool) -> str:
    """Describe the comparison of `trial` so far: progress and findings; a verdict exists only at the end.

    "launch 3 · 9 of about 32 rounds · p50 0.8123 ms (ORT default: 1.064 ms) · 1.31× faster than ORT
    default so far, 95 % CI [1.10, 1.56] · not final"
    """
    own = contrasts_of(live, trial)
    parts = [rounds_text(live, measuring=measuring)]
    if text := speed_text(live, trial, field):
        beside = [
            f"{field.labels.get(one['baseline'], 'the baseline')}: {other.removeprefix('p50 ')}"
            for one in own
            if (other := speed_text(live, one["baseline"], field))
        ]
        parts.append(f"{text} ({'; '.join(beside)})" if beside else text)
    for one in own:
        parts.append(interim.sentence(one, field.labels.get(one["baseline"], "the baseline")))
    return " · ".join([*parts, "not final"])


def contrasts_of(live: Mapping[str, Any], trial: str) -> list[dict[str, Any]]:
    """Return the ratios of `trial` alone, known or not, without those of a pinned baseline to the default."""
    return [one for one in live.get("contrasts") or [] if one["candidate"] == trial]


# --- any job ------------------------------------------------------------------------------------------------


def progress(status: Status, what: str) -> tuple[float, str]:
    """Return share and text of a progress bar, while `what` ("this comparison") waits or runs."""
    if status.state == "WAITING":
        return 0.0, waiting_text(status, what)
    return (min(1.0, status.done / status.total) if status.total else 0.0), step_text(status)


def waiting_text(status: Status, what: str) -> str:
    """Say who uses the machine, how many jobs precede `what` ("this comparison"), or what it waits for."""
    if status.stage == WAITING_IDLE:
        return f"Waiting for an idle machine: {status.text}"
    if not status.holder and status.place <= 0:
        return "Waiting for a turn on this machine"
    holder = status.holder.capitalize() if status.holder == PRIVATE_JOB else status.holder
    who = f"{holder} uses the machine" if holder else "The machine is in use"
    turn = f"{what} is next" if status.place <= 1 else f"{what} is number {status.place} in the queue"
    return f"{who}; {turn}; {start_words(status.starts_in_s, basis=False)}."


def step_text(status: Status) -> str:
    """Describe the present step: its share done, its time so far and its time left."""
    parts = [status.stage or "starting"]
    if status.total:
        parts.append(f"{status.done:,} of {status.total:,}")
    if status.text:
        parts.append(status.text)
    parts.append(f"{whole(status.elapsed_s)} so far")
    if status.eta_s is not None:
        parts.append(f"about {whole(status.eta_s)} left")
    return " · ".join(parts)


def whole(seconds: float) -> str:
    """Return a duration in whole seconds, "3 s": a finer one would change with every update."""
    return f"{seconds:.0f} s" if seconds < 60 else format.duration(seconds)
