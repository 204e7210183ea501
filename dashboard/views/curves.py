"""Latency and throughput over one setting, and the best point under a latency line."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import streamlit as st

from core import sweep
from core.errors import TunerError
from core.measurement import Trial
from core.spec import TrialSpec
from core.store import ModelRecord
from core.sweep import Axis, Measured, Point
from dashboard import controls, format, state
from dashboard.panels import curve_results
from dashboard.panels.curve_results import ACTIVE, point_name

AXIS = "curves.axis"
VALUES = "curves.values"  # + "." + name of the axis
AGAIN = "curves.again"
STUDY = "curves.study"  # name of the sweep that is shown
STUDY_PARAM = "study"  # ?study=<name>
APPLIED = "curves.applied"  # the linked sweep whose settings were loaded


def page() -> None:
    st.title("Curves")
    st.caption("Vary one setting, keep the others as they are on Tune, and see where the sweet spot lies.")
    state.show_kept_error()
    _load_linked()
    left, right = st.columns([2, 3], gap="medium")
    with left:
        record = controls.model_picker()
        base = _base() if record is not None else None
    if record is None or base is None:
        return
    with right:
        one = _axis(record, base)
    if one is None:
        return
    try:
        points = sweep.expand(base, [one], record.info)
    except TunerError as error:
        state.report(error)
        return
    rows = _rows(record, points)
    _run_box(record, base, points, rows)
    _live(points, rows)
    curve_results.results(one, points, rows)


def _base() -> TrialSpec | None:
    try:
        return state.current_spec()
    except TunerError as error:
        state.report(error)
        st.page_link("views/tune.py", label="Correct the settings on Tune", icon=":material/tune:")
        return None


# --- a linked sweep -----------------------------------------------------------------------------------


def _load_linked() -> None:
    """Load settings, setting to vary and values of `?study=…`, once."""
    study = st.query_params.get(STUDY_PARAM)
    if not study or st.session_state.get(APPLIED) == study:
        return
    st.session_state[APPLIED] = study
    one, trials = sweep.axis_of_study(study), state.store().trials(study=study)
    if one is None or not trials:
        st.warning(f"There is no sweep called {format.plain(study)} here.", icon=":material/search_off:")
        return
    if st.session_state.get(STUDY) == study:
        return
    try:
        state.apply_spec(state.trial_spec(trials[-1]))
    except TunerError as error:
        state.report(error)
        return
    st.session_state[AXIS] = one.name
    st.session_state[_values_key(one.name)] = _text(one.values)
    st.session_state[STUDY] = study


# --- what to vary -------------------------------------------------------------------------------------


def _values_key(name: str) -> str:
    return f"{VALUES}.{name}"


def _text(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _axis(record: ModelRecord, base: TrialSpec) -> Axis | None:
    names = sweep.axis_names(record.info)
    if st.session_state.get(AXIS) not in names:
        st.session_state[AXIS] = names[0]
    left, right = st.columns([1, 1])
    name = left.segmented_control(
        "Setting to vary",
        names,
        key=AXIS,
        required=True,
        format_func=_axis_label,
        persist_state="session",
        help="Batch size, threads, or a free dimension of the model.",
    )
    assert name is not None  # required=True
    key = _values_key(name)
    if not st.session_state.get(key):
        usable = state.environment()["cpu"]["usable"]
        current = base.workload.dims.get(name)
        st.session_state[key] = _text(sweep.default_values(name, usable_threads=usable, current=current))
    text = right.text_input(
        "Values",
        key=key,
        persist_state="session",
        placeholder="1, 2, 4, 8",
        help=f"Whole numbers with commas, at most {sweep.MAX_POINTS}. Empty brings the suggestion back.",
    )
    try:
        return Axis(name=name, values=sweep.parse_values(text or "", name=name))
    except TunerError as error:
        state.report(error)
        return None


def _axis_label(name: str) -> str:
    return {sweep.BATCH: "Batch size", sweep.THREADS: "Intra-op threads"}.get(name, name)


# --- what is measured already -------------------------------------------------------------------------


def _rows(record: ModelRecord, points: Sequence[Point]) -> list[Measured]:
    """Each point with its trial of this sweep, or an earlier one of the same settings on this machine."""
    study = st.session_state.get(STUDY)
    own = state.store().trials(study=study) if study else []
    fingerprint = state.environment()["fingerprint"]
    earlier: dict[str, Trial] = {}
    for point in points:
        key = point.spec.key()
        if point.spec.repeatable and (
            found := state.store().find_complete(key, fingerprint, model_sha256=record.content_sha256)
        ):
            earlier[key] = found
    return sweep.join(points, own, earlier)


# --- run and cancel -----------------------------------------------------------------------------------


def _run_box(record: ModelRecord, base: TrialSpec, points: Sequence[Point], rows: Sequence[Measured]) -> None:
    active = any(row.state in ACTIVE for row in rows)
    todo = _todo(points, rows)
    with st.container(horizontal=True, vertical_alignment="center"):
        controls.badges(base)
        st.page_link("views/tune.py", label="Change settings", icon=":material/tune:")
        st.space("stretch")
        st.toggle(
            "Measure finished points again",
            key=AGAIN,
            persist_state="session",
            disabled=active or not any(row.state == "COMPLETE" for row in rows),
            help="Off: points that were measured before with the same settings on this machine are reused.",
        )
        st.button(
            _run_label(len(todo), active=active),
            key="curves.run",
            type="primary",
            icon=":material/play_arrow:",
            shortcut="Ctrl+Enter",
            disabled=active or not todo,
            help="Wait for the running sweep, or cancel it." if active else None,
            on_click=_start,
            args=(record,),
        )
    if not active:
        st.caption(_prediction(record, points, todo), text_alignment="right")


def _run_label(count: int, *, active: bool) -> str:
    if active:
        return "Measuring"
    return f"Measure {count} point{'s' * (count != 1)}" if count else "All points are measured"


def _prediction(record: ModelRecord, points: Sequence[Point], todo: Sequence[Point]) -> str:
    total, reused = len(points), len(points) - len(todo)
    text = f"{total} point{'s' * (total != 1)}"
    if reused:
        text += f", {reused} already measured"
    if not todo:
        return text
    known = state.store().trials(
        model_sha256=record.content_sha256, kind="measure", state="COMPLETE", limit=50
    )
    predicted = sweep.predict_s(todo, known)
    if predicted is None:
        return text + " · time unknown until this model has been measured once"
    return text + f" · about {format.duration(predicted)}"


def _start(record: ModelRecord) -> None:
    """Queue what the widgets hold now: a value typed just before the click counts."""
    name = st.session_state[AXIS]
    try:
        one = sweep.axis(name, sweep.parse_values(st.session_state[_values_key(name)], name=name))
        points = sweep.expand(state.current_spec(), [one], record.info)
        todo = _todo(points, _rows(record, points))
        study = sweep.study_name(one, uuid.uuid4().hex[:8])
        for point in todo:
            state.scheduler().submit(point.spec, kind="measure", study=study, model_name=record.name)
            st.session_state[STUDY] = st.session_state[APPLIED] = st.query_params[STUDY_PARAM] = study
    except TunerError as error:  # what was queued before it is measured all the same
        state.keep_error(error)


def _todo(points: Sequence[Point], rows: Sequence[Measured]) -> list[Point]:
    again = bool(st.session_state.get(AGAIN))
    return [
        point
        for point, row in zip(points, rows, strict=True)
        if row.state not in ACTIVE and (again or row.state != "COMPLETE")
    ]


def _cancel(study: str) -> None:
    for trial in state.store().trials(study=study):
        if trial.state in ACTIVE:
            state.scheduler().cancel(trial.id)


def _live(points: Sequence[Point], rows: Sequence[Measured]) -> None:
    """Progress of the running sweep, polled; each finished point redraws the page once."""
    study = st.session_state.get(STUDY)
    finished = sum(row.state not in (*ACTIVE, "NEW") for row in rows)
    active = bool(study) and any(row.state in ACTIVE for row in rows)

    def tick() -> None:
        if not active:
            return
        trials = state.store().trials(study=study)
        waiting = [trial for trial in trials if trial.state in ACTIVE]
        if not waiting or len(trials) - len(waiting) != start_finished:
            st.rerun()
        _progress(trials, waiting, points, finished)
        st.button("Cancel", key="curves.cancel", icon=":material/stop:", on_click=_cancel, args=(study,))

    own = state.store().trials(study=study) if active else []
    start_finished = sum(trial.state not in ACTIVE for trial in own)
    with st.container(key="curves.live"):
        st.fragment(tick, run_every=1.0 if active else None)()


def _progress(
    trials: Sequence[Trial], waiting: Sequence[Trial], points: Sequence[Point], finished: int
) -> None:
    names = {point.spec.key(): point_name(point.values) for point in points}
    left = sweep.predict_s(
        [point for point in points if point.spec.key() in {trial.key for trial in waiting}],
        [trial for trial in trials if trial.state == "COMPLETE"],
    )
    text = f"{finished} of {len(points)} points"
    known = [(trial, status) for trial in waiting if (status := state.status(trial.id)) is not None]
    running = next(((trial, status) for trial, status in known if status.state == "RUNNING"), None)
    if running is not None:
        trial, status = running
        step = f" {status.done:,} of {status.total:,}" if status.total else ""
        text += f" · {names.get(trial.key, trial.id[:8])}: {status.stage}{step}"
    elif known:
        status = min((status for _, status in known), key=lambda status: status.place)
        text += f" · waiting for {status.holder}" if status.holder else " · waiting for a turn"
    if left is not None:
        text += f" · about {format.duration(left)} left"
    st.progress(finished / max(1, len(points)), text=format.plain(text))


page()
