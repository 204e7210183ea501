"""Predicted durations of queued jobs, for the estimated start of those behind them.

Known for comparisons of a model that was compared on this machine before, for profiles of one that was
profiled here, for searches and load tests, which have a time budget or a planned duration, and for any other
job that this process did before, by its kind and text. Reads the store, starts nothing.
"""

from __future__ import annotations

import statistics
from collections import OrderedDict, deque

from core.evidence.load.arrivals import Trace
from core.evidence.load.batching import SHORTLIST
from core.evidence.load.limit_search import DEFAULT_BUDGET_S
from core.run.job import Job
from core.run.load.questions import SERVICE_TIMES_S, SEVERAL_TURNS
from core.run.prediction import ComparisonHistory, past, predict
from core.spec import TrialSpec, spec_from_dict
from core.spec.load import LoadSpec
from core.store import Store
from core.wire.errors import TunerError

MOST_EARLIER = 5  # newest durations that a prediction is the median of
MOST_TEXTS = 500  # jobs without rows whose durations are kept
MOST_KEPT = 20  # models whose past comparisons are kept


class Durations:
    """Predictions for one scheduler."""

    def __init__(self, store: Store) -> None:
        """Predict from the comparisons in `store`, whoever made them."""
        self._store = store
        self._past: dict[tuple[str, str, str], ComparisonHistory | None] = {}
        self._took: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()  # by kind and text

    def note(self, job: Job, seconds: float) -> None:
        """Remember how long a complete job without rows took."""
        if job.trials or job.study is not None:
            return
        took = self._took.setdefault((job.kind, job.what), deque(maxlen=MOST_EARLIER))
        took.append(seconds)
        self._took.move_to_end((job.kind, job.what))
        while len(self._took) > MOST_TEXTS:
            self._took.popitem(last=False)

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
        if not job.trials:
            took = list(self._took.get((job.kind, job.what), ()))
            return statistics.median(took) if took else None
        if not fingerprint:
            return None
        try:
            if job.comparison is not None:
                return self._comparison_s([spec_from_dict(one.spec) for one in job.trials], fingerprint)
            return self._earlier_s(job, fingerprint)
        except TunerError:  # no prediction is no reason to refuse the job
            return None

    def _earlier_s(self, job: Job, fingerprint: str) -> float | None:
        """The median duration of earlier trials of the same kind and model on this machine."""
        trial = job.trials[0]
        record = self._store.model(trial.spec["model"].get("sha256") or trial.spec["model"]["path"])
        if record is None:
            return None
        earlier = self._store.trials(model_sha256=record.content_sha256, kind=trial.kind, state="COMPLETE")
        took = [
            one.finished_at - one.started_at
            for one in earlier
            if one.fingerprint == fingerprint and one.started_at is not None and one.finished_at is not None
        ]
        return statistics.median(took[:MOST_EARLIER]) if took else None

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


def planned_s(load: LoadSpec, configurations: int, trace: Trace | None = None) -> float:
    """Return the seconds of traffic that a load test plans, or the time budget of one that searches.

    Args:
        load: the question.
        configurations: their number.
        trace: its arrivals, if they are recorded.
    """

    def point_s(rate: float | None) -> float:
        if trace is not None and load.duration_s is None:  # each turn replays the whole of it
            return turns * trace.length_s(rate)
        return load.effective_duration_s + turns * load.warmup_s

    several = configurations > 1 or load.question in ("together", "batching")
    turns = load.turns or (SEVERAL_TURNS if several else 1)
    points_s = [point_s(rate) for rate in load.rates or (None,)]
    if load.question == "traffic":
        return configurations * sum(points_s)
    if load.question == "together":  # each alone, and all at the same time
        return sum(points_s) + max(points_s)
    if load.question == "batching":  # the best batch sizes and delays, and no batching
        return SERVICE_TIMES_S + (SHORTLIST + 1) * points_s[0]
    return configurations * ((load.budget_s or DEFAULT_BUDGET_S) + points_s[0])
