"""Search page: the best configuration within constraints and a time budget; form left, result right."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.api.searching import Prepared, continued_search, prepared_search, search_job, space_of
from core.spec import spec_from_dict
from core.spec.question import question_from_dict
from core.spec.space import Space
from core.store import ModelRecord, StudyRecord
from core.wire.errors import TunerError
from dashboard import format, live_events, messages, session_jobs, state
from dashboard.live_events import ACTIVE
from dashboard.shown_result import ShownResult
from dashboard.views.search import answer, form, form_widgets, links, past_searches, preview
from dashboard.views.search.form import SearchForm
from dashboard.widgets import controls, job_box, live_view, page_frame, playback
from dashboard.widgets.protocol import WAIT, wait_quiet_s

STUDY_PARAM = "study"  # ?study=<id>
SHOWN = ShownResult("search.shown", (STUDY_PARAM,))
SETTINGS_PX = 288


def page() -> None:
    links.open_requested_page()
    state.clean_up()
    record = SHOWN.open(state.store().study, _load)
    model = state.current_model()
    if model is not None and (record is None or SHOWN.is_new_model(model)):
        record = _newest(model)
    running = record is not None and record.state in ACTIVE
    bar = page_frame.bar("Search")
    with bar.model:
        model = controls.model_picker()
    settings, result = page_frame.panes(SETTINGS_PX)
    with settings:
        asked, reason = _ask(model) if model is not None else (None, "Choose a model first.")
    space, why_not = _space(asked)
    short = preview.budget_text(model, asked, space) if model and asked and space else ""
    if running:
        reason = "A search is running; wait for it or cancel it."
    start_button = partial(_run, record, reason or why_not or short)
    found = past_searches.of_model(model) if model is not None else []
    with bar.choice:
        past_searches.offer(found, record, SHOWN.link)
    with bar.action:
        start_button("search.run")
    with bar.more:
        _actions(record)
    if model is not None and asked is not None:
        with settings:
            preview.draw(model, asked, space, why_not)
    with result:
        messages.show_kept_error()
        _result(model, record)
        past_searches.table(found, record, SHOWN.link)
    page_frame.foot("search", start_button)


# --- the shown search ---------------------------------------------------------------------------------------


def _newest(model: ModelRecord) -> StudyRecord | None:
    """Return the model's running search, whoever started it, or else the newest; the form does not change."""
    found = past_searches.of_model(model)
    newest = next((one for one in found if one.state in ACTIVE), next(iter(found), None))
    SHOWN.show(newest.id if newest is not None else None)
    return newest


def _load(record: StudyRecord) -> None:
    """Load the question, start and model of a search into the form."""
    spec = spec_from_dict(record.spec)
    state.apply_spec(spec)
    form.fill(question_from_dict(record.question), spec.protocol.effort)


# --- the form -----------------------------------------------------------------------------------------------


def _ask(model: ModelRecord) -> tuple[SearchForm | None, str]:
    """Draw the form; return its values, and why no search can start (empty when one can)."""
    form_widgets.goal()
    form_widgets.time_and_effort()
    asked, error = _read_form(model)
    form_widgets.batch(model, asked.axes if asked is not None else ())
    if asked is not None and asked.question.accuracy:
        form_widgets.labelled_data(model)
    if error is not None and form.is_text_valid():
        messages.report(error)
    if asked is not None:
        form_widgets.varied_settings(asked.axes)
        asked, error = _read_form(model)  # an excluded value may be invalid now
    form_widgets.custom_values()
    form_widgets.starting_point(model)
    form_widgets.strategy()
    return asked, "" if error is None else f"{error.message} {error.hint}"


def _read_form(model: ModelRecord) -> tuple[SearchForm | None, TunerError | None]:
    try:
        return form.search_form_of(model), None
    except TunerError as error:
        return None, error


def _space(asked: SearchForm | None) -> tuple[Space | None, str]:
    """Return the search space, and why there is none."""
    if asked is None:
        return None, ""
    try:
        return _counted((asked.spec.key(), asked.question.without, tuple(asked.models.refs)), asked), ""
    except TunerError as error:
        return None, f"{error.message} {error.hint}"


@st.cache_resource(show_spinner="Counting configurations…", max_entries=20)
def _counted(cache_key: tuple[object, ...], _asked: SearchForm) -> Space:
    """Count the space; hundreds of thousands of combinations take a second."""
    return space_of(_asked.spec, _asked.question, _asked.place, _asked.models)


def _run(record: StudyRecord | None, reason: str, key: str) -> None:
    """Draw the button that starts a search or replays the recorded one; `reason` disables it."""
    if record is not None and playback.button(record.id, key=key):
        return
    st.button(
        "Search",
        key=key,
        type="primary",
        icon=":material/manage_search:",
        shortcut="Ctrl+Enter" if key == "search.run" else None,
        disabled=bool(reason := state.closed() or reason),
        help=reason or ("Evaluates configurations within the time and confirms the best in fresh processes."),
        on_click=start,
    )


def start() -> None:
    """Submit a search with the form's values, and show it."""
    model = state.current_model()
    if model is None:
        return
    try:
        asked = form.search_form_of(model)
        _submit(prepared_search(state.session(), asked.spec, asked.question))
    except TunerError as error:
        messages.keep_error(error)


def _submit(prepared: Prepared) -> None:
    study = session_jobs.submit(search_job(prepared, wait_quiet_s=wait_quiet_s()))
    session_jobs.follow(study, "search", **{STUDY_PARAM: study})
    SHOWN.show(study)


def continue_search(study: str, budget_s: int | None = None) -> None:
    """Continue a search that has ended, with more time where `budget_s` is given."""
    try:
        _submit(continued_search(state.session(), study, budget_s=budget_s))
    except TunerError as error:
        messages.keep_error(error)


# --- the result ---------------------------------------------------------------------------------------------


def _actions(record: StudyRecord | None) -> None:
    """Draw the actions for the shown search."""
    if record is None:
        return
    if record.state in ACTIVE:
        words = "Ends all worker processes. Results are kept, and you can resume the search."
        job_box.cancel(record.id, key="search.cancel", help=words)
    else:
        answer.actions(record, partial(continue_search, record.id), _delete)


def _result(model: ModelRecord | None, record: StudyRecord | None) -> None:
    if record is None:
        if model is not None:
            _empty(model)
    elif record.state in ACTIVE or playback.playing(record.id):
        _watch(record)
    else:
        answer.draw(record, partial(continue_search, record.id), _offer_quiet)


def _watch(record: StudyRecord) -> None:
    """Draw the live view of a search: the best configuration so far, the evaluations, the remaining time."""
    question = question_from_dict(record.question)
    with st.container(key="search.live", gap="xsmall"):
        st.markdown(f"#### Searching: {format.plain(question.words)}")
        if question.limit_words:
            st.caption(f":material/rule: {format.plain(', '.join(question.limit_words))}")
        name, follow = live_view.stream(record.id, live_events.of_search, partial(_elsewhere, record.id))
        tick_s = live_view.pace(record.id, record.state)
        live_view.watch(name, follow, of=[record.id], key="search.watch", tick_s=tick_s)


def _elsewhere(study: str) -> str | None:
    record = state.store().study(study)
    tried = sum(not one["twin"] for one in record.tried)
    who = f"Searched by {record.owner or 'another process'}: {tried:,} evaluated so far"
    return who if record.state in ACTIVE else None


def _offer_quiet() -> None:
    """Draw the button for the same search on an idle machine, after one under background load."""
    st.button(
        "Search when idle",
        key="search.quiet",
        icon=":material/hourglass_empty:",
        disabled=bool(reason := state.closed()),
        help=reason
        or (
            "Background load changes which settings win. The search starts on an idle "
            "machine, or after the time limit."
        ),
        on_click=_start_quiet,
    )


def _start_quiet() -> None:
    st.session_state[WAIT] = True
    start()


def _delete(study: str) -> None:
    try:
        state.store().delete_study(study)
    except TunerError as error:
        messages.keep_error(error)
    SHOWN.show(None)


def _empty(model: ModelRecord) -> None:
    st.markdown("#### :material/manage_search: Nothing searched yet")
    st.markdown(
        f"Choose objective, constraints and time for **{format.plain(model.name)}**, then "
        "press **Search**. The result is confirmed in fresh processes "
        "against ONNX Runtime's default."
    )


page()
