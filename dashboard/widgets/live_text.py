"""A race that runs, in words: how far it is, its ratios and latencies so far. No Streamlit, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.show import interim
from dashboard import format


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Who races: what each is called, and the rows that each feeds at once (None: the model's own batch)."""

    labels: Mapping[str, str]
    rows: Mapping[str, int | None]

    @property
    def per_row(self) -> bool:
        """Whether only numbers per row can be compared."""
        return len(set(self.rows.values())) > 1


def field_of(comparison: Comparison, trials: Sequence[Trial]) -> Field:
    """Return who races in `comparison`, by the specs of its `trials`."""
    return Field(
        labels={one.trial: one.label for one in comparison.contestants},
        rows={one.id: (one.spec.get("workload") or {}).get("batch_size") for one in trials},
    )


def rounds_text(live: Mapping[str, Any], *, racing: bool) -> str:
    """Say which generation runs, and how many rounds there were of those expected.

    Args:
        live: `Status.live`.
        racing: more rounds may follow.
    """
    rounds, predicted = live.get("rounds") or 0, live.get("predicted_rounds") or 0
    more = f" of about {predicted:,}" if racing and predicted > rounds else ""
    text = f"{rounds:,}{more} round{'s' * (max(rounds, predicted) != 1)}"
    return f"launch {live['generation']:,} · {text}" if live.get("generation") else text


def p50_text(live: Mapping[str, Any], trial: str, field: Field) -> str:
    """Return the p50 of a contestant so far, "1.230 ms" or "0.3075 ms per sample"; empty: not known yet."""
    seconds = (live.get("p50_s") or {}).get(trial)
    if seconds is None:
        return ""
    if not field.per_row:
        return format.ms(seconds)
    rows = field.rows.get(trial)
    # not known how many a model feeds itself
    return f"{format.ms(seconds / rows)} per sample" if rows else ""


def words(live: Mapping[str, Any], trial: str, field: Field, *, racing: bool) -> str:
    """Say how far the race of `trial` is, and what it found so far; a verdict stands only at its end.

    "launch 3 · 9 of about 32 rounds · p50 0.8123 ms (ORT default: 1.064 ms) · 1.31× faster than ORT
    default so far, 95 % [1.10, 1.56] · not final"
    """
    own = contrasts_of(live, trial)
    parts = [rounds_text(live, racing=racing)]
    if text := p50_text(live, trial, field):
        beside = [
            f"{field.labels.get(one['baseline'], 'the baseline')}: {other}"
            for one in own
            if (other := p50_text(live, one["baseline"], field))
        ]
        parts.append(f"p50 {text} ({'; '.join(beside)})" if beside else f"p50 {text}")
    for one in own:
        parts.append(interim.sentence(one, field.labels.get(one["baseline"], "the baseline")))
    return " · ".join([*parts, "not final"])


def contrasts_of(live: Mapping[str, Any], trial: str) -> list[dict[str, Any]]:
    """Ratios of `trial` alone, known or not: a pinned baseline is put against the default as well."""
    return [one for one in live.get("contrasts") or [] if one["candidate"] == trial]
