"""Sweep page: latency and throughput over one or two settings, all points in one comparison."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from functools import partial

import streamlit as st

from core.api import sweeping
from core.api.requests import predict
from core.api.session import Status
from core.api.sweeping import Known, Measured, Point, known_trials, sweep_job
from core.evidence.comparison import Comparison, with_references
from core.show import verdict
from core.show.report.subjects import AboutSweep
from core.show.words import counted
from core.spec import TrialSpec
from core.spec.axes import Models, axes_of_study, study_name
from core.spec.space import Axis
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import fields, format, live_events, messages, session_jobs, state
from dashboard.charts.sweep_charts import EarlierSweep
from dashboard.live_events import ACTIVE, Event
from dashboard.shown_result import ShownResult
from dashboard.views.sweep import results as curve_results
from dashboard.views.sweep import varied
from dashboard.views.sweep.shown_sweep import ShownSweep
from dashboard.widgets import (
    comparison_result,
    controls,
    job_box,
    measure_longer,
    page_frame,
    past_results,
    report,
)
from dashboard.widgets.playback import Build
from dashboard.widgets.protocol import wait_for_quiet, wait_quiet_s

AGAIN = "sweep.again"
SHOWN = ShownResult("sweep.shown", ("study",))  # its study name
PICKED = "sweep.earlier"
COMPARISONS_READ = 200  # newest comparisons that are searched for sweeps
SETTINGS_PX = 288
GHOSTS_MOST = 3  # earlier sweeps in the background of a chart


def page() -> None:
    bar = page_frame.bar("Sweep", "Latency and throughput over one or two settings, and which value is best.")
    _load_linked()
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    with bar.choice:
        _earlier(record)
    settings, answer = page_frame.panes(SETTINGS_PX)
    with settings:
        asked = _form(record)
    if asked is None:
        bar.disabled_action("Measure", "Correct the settings first.")
        page_frame.foot("sweep", lambda key: None)
        return
    base, axes, points, known = asked
    rows, comparison = sweeping.join(points, known), _comparison()
    with settings:
        limit = st.container(key="sweep.limit")
        _options(record, base, points, rows)
    run = partial(_run, record, points, rows)
    with bar.action:
        run("sweep.run")
    with bar.more:
        _actions(axes, comparison, rows)
    comparisons = [found.comparison for found in known.values() if found.comparison is not None]
    shown = ShownSweep(
        axes=axes,
        points=points,
        rows=rows,
        comparison=comparison,
        busy={one.id: verdict.background_load_text(one.result) for one in comparisons},
        margin=base.protocol.margin,
        ghosts=partial(_earlier_sweeps, record, sweeping.models(state.store(), record), axes),
    )
    with answer:
        messages.show_kept_error()
        _live(comparison, points, rows, axes)
        curve_results.results(shown, limit)
    page_frame.foot("sweep", run)


FormValues = tuple[TrialSpec, Sequence[Axis], Sequence[Point], Known]


def _form(record: ModelRecord) -> FormValues | None:
    """Draw the form; return it with earlier results of its points. Report an invalid form and return None."""
    base = _base()
    if base is None:
        return None
    named = sweeping.models(state.store(), record)
    axes = varied.draw(record, base, named)
    if axes is None:
        return None
    try:
        points = sweeping.expand(base, axes, record.info, named)
    except TunerError as error:
        messages.report(error)
        return None
    return base, axes, points, _known(record, named, points)


def _base() -> TrialSpec | None:
    try:
        return state.current_spec()
    except TunerError as error:
        messages.report(error)
        page_frame.link("tune", "Correct the settings on Tune")
        return None


# --- a linked sweep -----------------------------------------------------------------------------------


def _load_linked() -> None:
    """Load the settings, the axes and their values of `?study=…`, once per link."""
    study = SHOWN.take_link()
    if study is None:
        return
    try:
        _load(study)
    except TunerError as error:
        messages.report(error)


def _load(study: str) -> None:
    """Load the settings, the axes and their values of a sweep; raises the errors of `apply_spec`."""
    found, trials = axes_of_study(study), state.store().trials(study=study)
    if not found or not trials:
        st.warning(f"There is no sweep called {format.plain(study)} here.", icon=":material/search_off:")
        SHOWN.show(None)
        return
    state.apply_spec(state.trial_spec(trials[-1]))
    usual = fields.defaults()
    for axis in found:  # of the trial's point; the form gets the default instead
        if (key := fields.key(axis.name)) in usual:
            st.session_state[key] = usual[key]
    varied.set_axes(found)
    SHOWN.show(study)


def _earlier(record: ModelRecord) -> None:
    """List the sweeps of the model; open the newest where the user has changed no setting."""
    found = state.store().comparisons(model_sha256=record.content_sha256, limit=COMPARISONS_READ)
    sweeps = {one.study: one for one in reversed(found) if axes_of_study(one.study)}
    listed = list(reversed(sweeps))
    if SHOWN.is_new_model(record):
        if SHOWN.id not in sweeps:  # of the previous model
            SHOWN.show(None)
        # recorded results: settings are not the user's
        may = controls.settings_unchosen() or state.recorded()
        if listed and SHOWN.id is None and may:
            _load(listed[0])
            controls.mark_settings_unchosen()
    SHOWN.link(SHOWN.id)
    past_results.offer(
        "Sweep shown",
        {one: _study_label(sweeps[one]) for one in listed},
        shown=SHOWN.id,
        key=PICKED,
        on_select=SHOWN.link,
        help="Newest first. Loads its settings and values.",
        alone=True,
    )


def _study_label(comparison: Comparison) -> str:
    parts = [f"{varied.label_of(one.name)} {varied.text_of(one)}" for one in axes_of_study(comparison.study)]
    return f"{format.when(comparison.created_at)} · {' × '.join(parts) or comparison.study}"


# --- earlier results ----------------------------------------------------------------------------------


def _known(record: ModelRecord, named: Models, points: Sequence[Point]) -> Known:
    """Return the results of the shown sweep, and earlier measurements of its points on this machine."""
    fingerprint = state.environment()["fingerprint"]
    earlier = sweeping.before(state.store(), record, named, fingerprint=fingerprint)
    asked = sweeping.configurations(points)
    return known_trials(state.store(), asked, study=SHOWN.id or "", earlier=earlier)


def _earlier_sweeps(record: ModelRecord, named: Models, axes: Sequence[Axis]) -> list[EarlierSweep]:
    """Return earlier sweeps of this model over the same settings."""
    found = sweeping.earlier_sweeps(
        state.store().comparisons(model_sha256=record.content_sha256, limit=COMPARISONS_READ),
        state.store().trials_of,
        axes,
        named,
        but=SHOWN.id or "",
        most=GHOSTS_MOST,
    )
    return [
        EarlierSweep(name=f"earlier, {format.when(comparison.created_at)}", points=rows)
        for comparison, rows in found
    ]


def _comparison() -> Comparison | None:
    """Return the comparison of the shown sweep; it contains all points."""
    return next(iter(state.store().comparisons(study=SHOWN.id, limit=1)), None) if SHOWN.id else None


# --- run and cancel -----------------------------------------------------------------------------------


def _options(record: ModelRecord, base: TrialSpec, points: Sequence[Point], rows: Sequence[Measured]) -> None:
    """Draw how the points are measured, and the predicted duration."""
    active = _is_active(rows)
    st.toggle(
        "Measure finished points again",
        key=AGAIN,
        persist_state="session",
        disabled=active or not any(row.state == "COMPLETE" for row in rows),
        help="Off: points measured earlier with the same settings on this machine are reused.",
    )
    if not active:
        wait_for_quiet()
        st.caption(_prediction(record, points, _todo(points, rows, again=_again())))
    controls.badges(base)
    page_frame.link("tune", "Change settings")


def _run(record: ModelRecord, points: Sequence[Point], rows: Sequence[Measured], key: str) -> None:
    """Draw the button that measures missing points, or all again where none is missing."""
    active, todo = _is_active(rows), _todo(points, rows, again=_again())
    done = not todo and not active
    known = _todo(points, rows, again=True) if done else todo
    st.button(
        _run_label(len(todo), active=active, done=done),
        key=key,
        type="secondary" if done else "primary",
        icon=":material/replay:" if done else ":material/play_arrow:",
        shortcut="Ctrl+Enter" if key == "sweep.run" and not done else None,
        on_click=_start,
        args=(record, done),
        **state.unless_closed(
            f"All points are measured. Measures {_counted(len(known))} again."
            if done
            else "Measures all points in the same rounds.",
            off=not known,
            busy="Wait for the running sweep, or cancel it." if active else "",
        ),
    )


def _is_active(rows: Sequence[Measured]) -> bool:
    return any(row.state in ACTIVE for row in rows)


def _again() -> bool:
    return bool(st.session_state.get(AGAIN))


def _run_label(count: int, *, active: bool, done: bool) -> str:
    if active:
        return "Measuring"
    return "Measure again" if done else f"Measure {_counted(count)}"


def _counted(points: int) -> str:
    return f"{points} point{'s' * (points != 1)}"


def _prediction(record: ModelRecord, points: Sequence[Point], todo: Sequence[Point]) -> str:
    total, alike = len(points), sum(point.same is not None for point in points)
    refused = sum(point.spec is None for point in points)
    reused = total - alike - refused - len(todo)
    text = _counted(total)
    text += f", {reused} already measured" if reused else ""
    text += f", {alike} the same as others" if alike else ""
    text += f", {refused} refused" if refused else ""
    if not todo:
        return text
    known = session_jobs.past_comparisons(record.content_sha256)
    if known is None:
        return text + " · time unknown until this model is measured here"
    specs = [one.spec for one in with_references(sweeping.configurations(todo))]
    found = predict(specs, known, family=1)
    text += f" · about {format.duration(found.seconds)}, {counted(found.rounds, 'round')}"
    return f"{text} · {found.late}" if found.late else text


def _start(record: ModelRecord, again: bool) -> None:
    """Queue a sweep with the current widget values, so that a value typed just before the click counts.

    Args:
        record: of the model.
        again: whether finished points are measured again where no other is left.
    """
    if session_jobs.is_busy("sweep"):  # a double click
        return
    try:
        axes = varied.chosen_axes()
        named = sweeping.models(state.store(), record)
        points = sweeping.expand(state.current_spec(), axes, record.info, named)
        rows = sweeping.join(points, _known(record, named, points))
        todo = _todo(points, rows, again=_again()) or _todo(points, rows, again=again)
        asked = sweeping.configurations(todo)
        if not asked:
            return
        study = study_name(axes, uuid.uuid4().hex[:8])
        comparison = sweep_job(state.session(), asked, study, record.name, wait_quiet_s=wait_quiet_s())
        job = state.scheduler().submit(comparison)
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(job, "sweep", study=study)
    SHOWN.show(study)


def _todo(points: Sequence[Point], rows: Sequence[Measured], *, again: bool) -> list[Point]:
    return [
        point
        for point, row in zip(points, rows, strict=True)
        if point.is_measured
        and row.state not in ACTIVE
        and (again or row.state != "COMPLETE" or not row.ranked)
    ]


def _actions(axes: Sequence[Axis], comparison: Comparison | None, rows: Sequence[Measured]) -> None:
    if comparison is None:
        return
    if comparison.state in ACTIVE:
        words = "Ends the sweep. Finished rounds are kept and marked as cancelled."
        job_box.cancel(comparison.id, key="sweep.cancel", help=words)
        return
    if _is_active(rows):
        return
    report.offer(partial(_curve, axes, comparison, rows), key="sweep")
    # all comparisons of a continued sweep share one study name
    trials = state.store().trials_of(comparison.id)
    measure_longer.button("sweep", comparison, trials, lambda more: SHOWN.show(more.study))


def _curve(axes: Sequence[Axis], comparison: Comparison, rows: Sequence[Measured]) -> AboutSweep:
    trials = [state.store().trial(row.trial) for row in rows if row.trial]
    return AboutSweep(axes=axes, points=rows, comparison=comparison, trials=trials)


def _live(
    comparison: Comparison | None, points: Sequence[Point], rows: Sequence[Measured], axes: Sequence[Axis]
) -> None:
    """Draw the running comparison; the whole page is redrawn when it ends."""
    with st.container(key="sweep.live", gap="xsmall"):
        if comparison is None or comparison.state not in ACTIVE:
            return
        build = _events(comparison, points, rows, [axis.name for axis in axes])
        asked = repr([axes, [one.values for one in points], [one.trial for one in rows]])  # of this browser
        name = f"sweep-{comparison.id}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
        comparison_result.watch(comparison, build, key="sweep.watch", name=name)


def _events(
    comparison: Comparison, points: Sequence[Point], rows: Sequence[Measured], axes: Sequence[str]
) -> Build:
    """Return a function that builds a sweep's live event: that of its comparison, and each point so far."""
    trials = comparison_result.trials_of(comparison)
    build = comparison_result.events(comparison, trials)

    def event(status: Status, now: float) -> Event:
        found = sweeping.running_points(points, trials(), status.live or {})
        merged = [old if old.latency else new for old, new in zip(rows, found, strict=True)]  # old: reused
        return live_events.add_points(build(status, now), merged, axes)

    return event


page()
