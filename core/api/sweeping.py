"""Measures one or two settings at several values: `sweep`, and the study that the page Sweep queues."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import pinned_runtimes, without_runtimes
from core.api.measuring import compare_job
from core.api.models import ModelLike
from core.api.requests import Config, announce, report_precision, spec_of, with_sizes
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session
from core.api.settings import given_of, values_to_try
from core.evidence.comparison import Comparison, Configuration
from core.run import job_types
from core.run.best_point import BEST as BEST
from core.run.best_point import INCONCLUSIVE as INCONCLUSIVE
from core.run.best_point import LEVEL as LEVEL
from core.run.best_point import SweepRanking, rank_points
from core.run.best_point import supported_percentile as supported_percentile
from core.run.best_point import surely_within_limit as surely_within_limit
from core.run.job import Job
from core.run.known_trials import Earlier, Known, KnownTrial, known_trials, missing
from core.run.preparation import resolve_trial
from core.run.sweep import REFUSED as REFUSED
from core.run.sweep import Measured, Point, before, configurations, expand, join, models
from core.run.sweep import earlier_sweeps as earlier_sweeps
from core.run.sweep import running_points as running_points
from core.show import documents
from core.show.runtime_text import runtime_of
from core.show.sheets import Line, Part, Sheet, sweeps
from core.show.table import Table
from core.spec.axes import PERCENTILE_NAMES, RUNTIME, axis, parse_vary, point_name, study_name
from core.spec.space import Axis as Axis
from core.wire.errors import SpecError, nearest
from core.wire.runtime import runtime

PERCENTILES = {name.removesuffix("_s"): name for name in PERCENTILE_NAMES}


@arguments.checked()
def sweep(
    model: ModelLike | None = None,
    vary: Mapping[str, Any] | str | Sequence[str | Axis] = (),
    config: Config = None,
    *,
    limit_s: float | None = None,
    percentile: str | None = None,
    reuse: bool = False,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Sweep]:
    """Measure one or two settings at several values, all under the same conditions.

    Args:
        model: see `tune`.
        vary: values of one or two settings, free dimensions, or of `model` (its variants), by name: a list,
            or text such as "1,2,4". Or texts NAME=A,B.
        config: configuration to start from, see `tune`.
        limit_s: latency limit in seconds; the best point is one below it.
        percentile: that the limit applies to: p50, p90, p95 or p99. None: p95 if every point has enough
            inferences for it, else p50.
        reuse: reuse points that were measured before on this machine.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`. Several values of `runtime` vary it.

    Raises:
        SpecError: nothing varies, or a value or a setting is invalid.
        TunerError: a point cannot be measured. A point that failed has its error in the result.
    """
    session = session or default_session()
    runtimes, given = without_runtimes(given_of(settings))
    axes = _axes(vary)
    if len(runtimes) > 1:
        axes.append(axis(RUNTIME, runtimes))
        runtimes = []
    axes = [_with_names(one) if one.name == RUNTIME else one for one in axes]
    if not axes:
        raise SpecError(
            "There is nothing to sweep.",
            hint="Give `vary` one or two settings or dimensions with lists of values.",
        )
    chosen = None if percentile is None else percentile_named(percentile)
    spec = spec_of(model, config, {**given, RUNTIME: runtimes} if runtimes else given, session)
    [spec], sizes = with_sizes([spec], session, varied=[one.name for one in axes])
    resolved = resolve_trial(spec, session.store, session.inspect)
    named = models(session.store, resolved.record)
    points = expand(resolved.spec, axes, resolved.record.info, named)
    _note_unmeasured(points, session)
    earlier = None
    if reuse:
        earlier = before(session.store, resolved.record, named, fingerprint=session.fingerprint)
    found = Sweep(
        session=session,
        name=study_name(axes, secrets.token_hex(4)),
        axes=axes,
        points=points,
        limit_s=limit_s,
        percentile=chosen,
        margin=resolved.spec.protocol.margin,
        sizes=sizes,
        earlier=earlier,
    )
    if asked := missing(configurations(points), found.read().known):
        job = sweep_job(session, asked, found.name, resolved.record.name, wait_quiet_s=wait_quiet_s)
        announce(session, asked, family=1)
        session.last = sweep_result(found)
        session.run(job, on_progress=on_progress, cancel=cancel)
    result = session.last = sweep_result(found)
    if (comparison := result.record.comparison) is not None:
        report_precision(session, comparison)
    return result


def _axes(vary: Mapping[str, Any] | str | Sequence[str | Axis]) -> list[Axis]:
    if isinstance(vary, Mapping):
        read = [values_to_try(*one) for one in arguments.mapping("vary", vary).items()]
        return [axis(name, values) for name, values in read]
    axes = []
    for one in arguments.listed("vary", vary):
        if not isinstance(one, Axis | str):
            arguments.refuse(
                "vary", "a dictionary of lists", one, 'Write for example {"batch_size": [1, 8]}.'
            )
        axes.append(one if isinstance(one, Axis) else parse_vary(one))
    return axes


def _with_names(one: Axis) -> Axis:
    """Return an axis of runtimes as their names.

    Raises:
        SpecError: there is no such runtime, or its content has another hash.
    """
    return axis(RUNTIME, [runtime(text).name for text in pinned_runtimes(list(one.values))])


def sweep_job(
    session: Session,
    asked: Sequence[Configuration],
    study: str,
    model_name: str,
    *,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Return the checked job that measures points of a sweep in one comparison.

    Args:
        session: holds the results.
        asked: points without a result.
        study: name of the sweep, see `study_name`.
        model_name: of the model that the queue names.
        wait_quiet_s: see `tune`.

    Raises:
        TunerError: no point can run, or the session does not admit one.
    """
    return compare_job(
        session,
        asked,
        study=study,
        model_name=model_name,
        what=f"sweep of {len(asked)} points of {model_name}",
        wait_quiet_s=wait_quiet_s,
        protocol=job_types.sweep_protocol(asked),
    )


def percentile_named(text: str) -> str:
    """Return the stored name of a percentile.

    Raises:
        SpecError: there is no such percentile.
    """
    if text in PERCENTILES:
        return PERCENTILES[text]
    raise SpecError(
        f"There is no percentile `{text[:40]}` here.{nearest(text, PERCENTILES)}",
        hint=f"Choose among {', '.join(PERCENTILES)}.",
    )


def _note_unmeasured(points: Sequence[Point], session: Session) -> None:
    """Note which combinations are not measured, before the others start."""
    for point in points:
        if point.refused:
            session.note(f"{point_name(point.values)} is refused: {point.refused}")
        elif point.same is not None:
            session.note(f"{point_name(point.values)} is the same as {point_name(point.same)}: {point.why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep and the results of its points."""

    session: Session
    name: str  # of its trials in the store
    axes: Sequence[Axis]
    points: Sequence[Point]
    limit_s: float | None
    percentile: str | None
    margin: float
    sizes: dict[str, Any]  # sources of assumed sizes, see `with_sizes`
    earlier: Earlier | None = None  # finds measurements to reuse
    known: Known = field(default_factory=dict)

    def read(self) -> Sweep:
        """Return the sweep with what the store has now."""
        asked = configurations(self.points)
        known = known_trials(self.session.store, asked, study=self.name, earlier=self.earlier)
        return replace(self, known=known)

    @property
    def comparison(self) -> Comparison | None:
        """The comparison of the points; None: all were measured earlier."""
        return next((one.comparison for one in self.known.values() if not one.reused), None)

    def ended(self) -> list[KnownTrial]:
        """Return the results of the points that are measured, not replaced by an equivalent one."""
        keys = (point.spec.key() for point in self.points if point.spec is not None and point.is_measured)
        return [self.known[key] for key in keys if key in self.known]

    def rows(self) -> list[Measured]:
        """Return the points with their numbers."""
        return join(self.points, self.known)

    def ranking(self) -> SweepRanking:
        """Return which points are best, keep the limit and form the front."""
        return rank_points(self.rows(), line_s=self.limit_s, percentile=self.percentile, margin=self.margin)

    def table(self) -> Table:
        """Return one row per point."""
        return sweeps.points(self.rows(), self.ranking())

    def verdict(self) -> str:
        """Return the best point in one sentence."""
        return sweeps.sentence(self.rows(), self.ranking())

    def parts(self) -> list[Part]:
        """Return the table, the verdict, and the runtime if all points ran in another than ORTune's own."""
        told = {runtime_of(one.spec.to_dict(), None) for one in self.points if one.spec is not None}
        ran_in = [Line(f"Runtime: {told.pop()}")] if len(told) == 1 and all(told) else []
        return [*ran_in, self.table(), Line(self.verdict(), apart=True)]

    def document(self) -> dict[str, Any]:
        """Return what `sweep --json` prints."""
        store, ranking = self.session.store, self.ranking()
        found = documents.sweep(store, self.name, self.axes, self.points, self.known, ranking)
        return {**found, **self.sizes}


def sweep_result(found: Sweep) -> Result[Sweep]:
    """Return the result of a sweep."""
    return Result(
        kind="sweep",
        id=found.name,
        read=found.read,
        document=Sweep.document,
        content=lambda one: Sheet(one.verdict(), one.parts()),
        says=Sweep.verdict,
        rows=Sweep.table,
        store=found.session.store,
        refs=[found.name],
    )
