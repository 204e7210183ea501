"""Graph page: the model as nodes and blocks, before and after ONNX Runtime's optimizations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.api.graphs import check_drawable, graph_job, located, optimized_at, optimized_graph, own_graph
from core.api.measuring import profile_job
from core.api.session import Status
from core.evidence.graph_changes import changes
from core.evidence.graph_facts import ProfileMatch, errors, times
from core.evidence.measurement import Trial
from core.show import setting_chips
from core.show.sheets.graphs import changes_words, unmatched_words
from core.spec import TrialSpec
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.graph import Graphs
from core.wire.profile import Profile, profile_from_dict
from dashboard import format, messages, session_jobs, state
from dashboard.charts.graph_charts import MODES, Mode
from dashboard.shown_result import ShownResult
from dashboard.views.graph import picture
from dashboard.views.graph.levels import ShownGraph
from dashboard.widgets import controls, job_box, page_frame

LINKED = ShownResult("graph.linked", (state.TRIAL_PARAM, state.MODEL_PARAM))

# session keys
SOURCE = "graph.source"  # id of the trial with the configuration; a profile has times, too
VIEW, COLOR = "graph.view", "graph.color"
COLORED = "graph.colored"  # the user chose a colour
CONFIGURATION = "graph.configuration"
JOB, PROFILING = "graph.job", "graph.profiling"  # ids of this session's jobs; the keys end with their subject
OWN, AFTER, BOTH = "Model", "After optimization", "Side by side"
VIEWS = (OWN, AFTER, BOTH)
CURRENT = ""  # the current settings of Tune, without times
NOT_PROFILED = "current settings, without times"
COLOR_PX, CONFIGURATION_PX = 170, 480
ABOUT = (
    "The model's nodes, folded by block, before and after ONNX Runtime's optimizations. Data flow downwards."
)
PROFILED_RUNS = 20
LIMIT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenConfiguration:
    """The chosen configuration of the model, and its trial."""

    record: ModelRecord
    spec: TrialSpec | None  # None: the settings are invalid, which was reported
    trial: Trial | None  # its source; None: the settings of Tune

    @property
    def profile(self) -> Profile | None:
        """Return the times of the nodes; None without a profile."""
        if self.trial is None or self.trial.kind != "profile":
            return None
        return _profile(self.trial.id)


def page() -> None:
    bar = page_frame.bar("Graph", ABOUT)
    messages.show_kept_error()
    _follow_link()
    with bar.model:
        record = controls.model_picker()
    if record is None:
        return
    with bar.more:
        chosen = _chosen(record)
    with bar.choice:
        view, mode = _choices(chosen)
    graphs = _own(record)
    if graphs is None:
        return
    after = _optimized_graph(chosen, view)
    _draw(chosen, graphs, after, view, mode)


# --- the configuration --------------------------------------------------------------------------------------


def _follow_link() -> None:
    """Apply a profile or measured trial from `?trial=` and a model from `?model=`, once per link."""
    linked = LINKED.take_link()
    if linked is None:
        return
    trial_id, model = linked.split(" ")
    try:
        if trial_id:
            trial = state.store().trial(trial_id)
            state.choose_model(state.find_model(state.trial_spec(trial).model))
            st.session_state[SOURCE] = trial.id
        elif (record := state.store().model(model)) is not None:
            state.choose_model(record)
        else:
            st.info(f"The library has no model {format.code(model[:12])}; the current one is shown.")
    except TunerError as error:
        messages.report(error)


def _chosen(record: ModelRecord) -> ChosenConfiguration:
    """Draw the choice of the configuration; the default is the newest profile of the model."""
    known = _trials(record)
    if st.session_state.get(SOURCE) not in (*known, CURRENT):
        st.session_state[SOURCE] = next(iter(known), CURRENT)
    opened = st.popover("Configuration", icon=":material/tune:", key=CONFIGURATION, on_change="rerun")
    if opened.open:
        with opened, st.container(width=CONFIGURATION_PX):
            st.selectbox(
                "Times and configuration of",
                [*known, CURRENT],
                key=SOURCE,
                persist_state="session",
                format_func=lambda one: _label(known[one]) if one in known else NOT_PROFILED,
                help="A profile has the time and provider of each node. The graph is optimized for "
                "its settings.",
            )
    trial = known.get(st.session_state[SOURCE])
    try:
        spec = state.current_spec() if trial is None else state.trial_spec(trial)
        check_drawable(spec)
    except TunerError as error:
        messages.report(error)
        spec = None
    return ChosenConfiguration(record=record, spec=spec, trial=trial)


def _trials(record: ModelRecord) -> dict[str, Trial]:
    """Return the profiles of the model, newest first, and the linked measured trial."""
    found = state.store().trials(
        model_sha256=record.content_sha256, kind="profile", state="COMPLETE", limit=LIMIT
    )
    linked = st.session_state.get(SOURCE)
    if linked and linked not in {one.id for one in found}:
        trial = state.trial_if_kept(linked)
        if trial and trial.model_sha256 == record.content_sha256 and trial.kind != "profile":
            found = [trial, *found]
    return {one.id: one for one in found}


def _label(trial: Trial) -> str:
    """Return a label that never changes: Streamlit finds the selected option by its label."""
    told = format.short(setting_chips.words(trial), 60)
    what = "profile" if trial.kind == "profile" else "trial, without times of nodes:"
    return f"{what} {trial.id[:8]} · {format.when(trial.created_at)} · {told}"


@st.cache_resource(show_spinner=False, max_entries=8)
def _profile(trial_id: str) -> Profile:
    """Return the node times of a profile; cached, because a complete trial never changes."""
    return profile_from_dict(state.store().trial(trial_id).facts["profile"])


def _choices(chosen: ChosenConfiguration) -> tuple[str, Mode]:
    """Draw the choice of the graph and of its colours; by default the colours show time where it is known."""
    view = st.segmented_control(
        "Graph",
        list(VIEWS),
        key=VIEW,
        default=None if VIEW in st.session_state else OWN,
        required=True,
        label_visibility="collapsed",
        width="content",
        persist_state="session",
    )
    if not st.session_state.get(COLORED):
        st.session_state[COLOR] = "Operator" if chosen.profile is None else "Time"
    color = st.selectbox(
        "Colour",
        list(MODES),
        key=COLOR,
        persist_state="session",
        width=COLOR_PX,
        format_func=lambda mode: f"Colour: {mode.lower()}",
        on_change=state.put,
        args=(COLORED, True),
    )
    return str(view), color


# --- the graphs ---------------------------------------------------------------------------------------------


def _own(record: ModelRecord) -> Graphs | None:
    try:
        with st.spinner("Reading the nodes of the model in a process of its own…"):
            return _own_cached(record.content_sha256, record)
    except TunerError as error:
        messages.report(error)
        return None


@st.cache_resource(show_spinner=False, max_entries=8)
def _own_cached(content_sha256: str, _record: ModelRecord) -> Graphs:
    """Return the graph of the original; cached, because a hash identifies its content."""
    return own_graph(state.store(), _record)


def _stored_optimized(chosen: ChosenConfiguration) -> Graphs | None:
    """Return the stored optimized graph; None where no job has made it yet."""
    if chosen.spec is None:
        return None
    fingerprint = state.environment()["fingerprint"]
    made_at = optimized_at(state.store(), chosen.spec, chosen.record, fingerprint=fingerprint)
    return None if made_at is None else _read_once(_about(chosen), made_at, chosen, fingerprint)


@st.cache_resource(show_spinner=False, max_entries=8)
def _read_once(about: str, made_at: float, _chosen: ChosenConfiguration, _fingerprint: str) -> Graphs | None:
    """Return the optimized graph; cached until its file is written again."""
    assert _chosen.spec is not None, "there was a file"
    return optimized_graph(state.store(), _chosen.spec, _chosen.record, fingerprint=_fingerprint)


def _optimized_graph(chosen: ChosenConfiguration, view: str) -> Graphs | None:
    """Return the optimized graph; draw the way to get it where `view` needs it and it is not stored."""
    try:
        found = _stored_optimized(chosen)
    except TunerError as error:
        messages.report(error)
        return None
    job = _job(JOB, chosen)
    if found is None:
        job_box.report_end(job)
        if view != OWN and not session_jobs.is_active(job):
            with st.container(border=True, horizontal=True, vertical_alignment="center"):
                st.markdown(
                    ":material/account_tree: **The optimized graph is not known yet** for these "
                    "settings. A worker builds the session and saves its graph."
                )
                _optimize_button(chosen, type="primary")
    job_box.draw(job, "graph", what="this graph", help=job_box.NOTHING_KEPT)
    return found


def _optimize_button(chosen: ChosenConfiguration, **look: Any) -> None:
    st.button(
        "Optimize",
        key="graph.optimize",
        icon=":material/auto_fix_high:",
        on_click=_optimize,
        args=(chosen,),
        **look,
        **state.unless_closed(
            "Waits for its turn, so that it does not disturb a measurement.", off=chosen.spec is None
        ),
    )


def _about(chosen: ChosenConfiguration) -> str:
    """Return what a job of this page is about; equal for equal model and settings."""
    return f"{chosen.record.content_sha256} {'' if chosen.spec is None else chosen.spec.key()}"


def _job(key: str, chosen: ChosenConfiguration) -> Status | None:
    return session_jobs.status(st.session_state.get(f"{key} {_about(chosen)}") or "")


def _optimize(chosen: ChosenConfiguration) -> None:
    assert chosen.spec is not None, "the button is disabled"
    try:
        job_id = session_jobs.submit(graph_job(state.session(), chosen.spec, chosen.record))
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(job_id, "graph")
    st.session_state[f"{JOB} {_about(chosen)}"] = job_id


# --- drawing ------------------------------------------------------------------------------------------------


def _draw(chosen: ChosenConfiguration, graphs: Graphs, after: Graphs | None, view: str, mode: Mode) -> None:
    optimized = None if after is None else after.optimized
    own = graphs if after is None else after  # both sides must come from one reading
    profile = chosen.profile
    _missing_data_hint(chosen, mode)
    units = _units(chosen.record)
    sides: dict[str, ShownGraph] = {}
    if view != AFTER:
        found = None if profile is None else times(own.model, profile, optimized)
        sides[OWN] = _shown(OWN, own, found, chosen, mode, units)
    if view != OWN and after is not None and optimized is not None:
        found = None if profile is None else times(optimized, profile)
        sides[AFTER] = _shown(AFTER, after, found, chosen, mode, units)
    picture.draw(sides, _changed(after) if view != OWN else "", lambda: _notes(chosen, own, sides, view))


def _notes(chosen: ChosenConfiguration, own: Graphs, sides: Mapping[str, ShownGraph], view: str) -> None:
    """Draw notes on what is unknown about the graphs, and how to get it."""
    can_match = view == OWN and own.optimized is None  # else the button is above the graph already
    for one in sides.values():
        if one.times is not None and one.times.unmatched:
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.caption(f":material/info: {one.name}: {format.plain(unmatched_words(one.times))}.")
                if can_match and not session_jobs.is_active(_job(JOB, chosen)):
                    _optimize_button(chosen, type="tertiary")
        for note in (*one.side.notes, *(own.notes if one.name == AFTER else ())):
            st.info(format.plain(note), icon=":material/info:")


def _changed(after: Graphs | None) -> str:
    if after is None or after.optimized is None:
        return ""
    found = changes(after.model, after.optimized)
    return changes_words(found, after.model.count, after.optimized.count)


def _shown(
    name: str,
    graphs: Graphs,
    found: ProfileMatch | None,
    chosen: ChosenConfiguration,
    mode: Mode,
    units: Mapping[str, object],
) -> ShownGraph:
    side = graphs.model if name == OWN or graphs.optimized is None else graphs.optimized
    return ShownGraph(
        name=name,
        token=_token(name, graphs, chosen),
        side=side,
        model=graphs.model if name == AFTER else None,
        times=found,
        units=errors(side, list(units.values())),  # type: ignore[arg-type]
        mode=mode,
    )


def _token(name: str, graphs: Graphs, chosen: ChosenConfiguration) -> str:
    """Return a key of the graph, so that a selection in the original survives optimizing."""
    content = chosen.record.content_sha256
    copied = chosen.spec is not None and chosen.spec.model.precision == "fp16"  # runs another file
    own = name == OWN and (graphs.optimized is None or not copied)
    return content if own else f"{content} {graphs.created_at}"


def _units(record: ModelRecord) -> Mapping[str, object]:
    try:
        found = located(state.store(), record)
    except TunerError as error:
        messages.report(error)
        return {}
    return {} if found is None else {unit.name: unit for unit in found.savings.units}


def _missing_data_hint(chosen: ChosenConfiguration, mode: Mode) -> None:
    """Draw how to get the data that the chosen colours need, with a button for it."""
    if mode in ("Time", "Provider") and chosen.profile is None:
        job = _job(PROFILING, chosen)
        job_box.report_end(job)
        if job is not None and job.state == "COMPLETE":
            st.session_state.pop(f"{PROFILING} {_about(chosen)}")
            st.session_state.pop(SOURCE, None)  # selects the newest profile, which is this one
            st.rerun()
        if not session_jobs.is_active(job):
            _offer_profile(chosen, mode)
        job_box.draw(job, "graph", what="this profile", help="Nothing is kept.", of="profile")
    elif mode == "Error" and not _units(chosen.record):
        with st.container(border=True, horizontal=True, vertical_alignment="center"):
            st.markdown(
                ":material/science: **No operator errors are known for this model.** Choose a "
                "quantized variant on Variants and press Locate errors."
            )
            page_frame.link("variants", "Open Variants")


def _offer_profile(chosen: ChosenConfiguration, mode: Mode) -> None:
    what = "the time of each node" if mode == "Time" else "where each node runs"
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown(f":material/search_insights: **No profile is chosen, so {what} is not known.**")
        st.button(
            "Profile it",
            key="graph.profile",
            type="primary",
            icon=":material/play_arrow:",
            on_click=_start_profile,
            args=(chosen,),
            **state.unless_closed(
                f"{PROFILED_RUNS} runs with these settings; see Profile for more.",
                off=chosen.spec is None,
            ),
        )


def _start_profile(chosen: ChosenConfiguration) -> None:
    assert chosen.spec is not None, "the button is disabled"
    protocol = chosen.spec.protocol.model_copy(update={"runs": PROFILED_RUNS})
    spec = chosen.spec.model_copy(update={"protocol": protocol})
    try:
        trial_id = session_jobs.submit(profile_job(state.session(), spec, model_name=chosen.record.name))
    except TunerError as error:
        messages.keep_error(error)
        return
    session_jobs.follow(trial_id, "graph")
    st.session_state[f"{PROFILING} {_about(chosen)}"] = trial_id


page()
