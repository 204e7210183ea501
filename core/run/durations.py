"""Predicted durations of queued jobs, for the estimated start of those behind them.

Known for comparisons of a model that was compared on this machine before, and for searches, which have a time
budget. Reads the store, starts nothing.
"""

from __future__ import annotations

from core.run.job import Job
from core.run.prediction import ComparisonHistory, past, predict
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import TunerError

MOST_KEPT = 20  # models whose past comparisons are kept


class Durations:
    """Predictions for one scheduler."""

    def __init__(self, store: Store) -> None:
        """Predict from the comparisons in `store`, whoever made them."""
        self._store = store
        self._past: dict[tuple[str, str, str], ComparisonHistory | None] = {}

    def predicted_s(self, job: Job, fingerprint: str) -> float | None:
        """Return the duration of a job in seconds; None: unknown.

        Args:
            job: to be queued.
            fingerprint: of this machine; empty: not known.
        """
        if job.predicted_s is not None:
            return job.predicted_s
        if job.study is not None:
            budget_s = job.study.question.get("budget_s")
            return float(budget_s) if isinstance(budget_s, int | float) else None
        if job.comparison is None or not fingerprint:
            return None
        try:
            return self._comparison_s([spec_from_dict(one.spec) for one in job.trials], fingerprint)
        except TunerError:  # no prediction is no reason to refuse the job
            return None

    def _comparison_s(self, specs: list[TrialSpec], fingerprint: str) -> float | None:
        name = specs[0].model.sha256 or specs[0].model.path
        record = self._store.model(name)
        if record is None:
            return None
        known = self._of(record.content_sha256, fingerprint)
        return None if known is None else predict(specs, known).seconds

    def _of(self, model_sha256: str, fingerprint: str) -> ComparisonHistory | None:
        newest = self._store.comparisons(model_sha256=model_sha256, state="COMPLETE", limit=1)
        key = model_sha256, fingerprint, newest[0].id if newest else ""
        if key not in self._past:
            while len(self._past) >= MOST_KEPT:
                del self._past[next(iter(self._past))]
            self._past[key] = past(self._store, model_sha256=model_sha256, fingerprint=fingerprint)
        return self._past[key]
