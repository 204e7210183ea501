"""Links from a search to Tune, Compare and Scorecard."""

from __future__ import annotations

import streamlit as st

from core.spec import TrialSpec, spec_from_dict
from core.spec.question import question_from_dict
from core.store import StudyRecord
from core.wire.errors import TunerError
from dashboard import state
from dashboard.views.scorecard import targets as scorecard_targets

GO = "search.go"  # key of the session: the page that a button asked for, and its query
SCORECARD_SETTINGS = "scorecard.settings"  # of the Scorecard page: which settings are judged
FROM_TUNE = "Settings of Tune"  # one of them


def leave() -> None:
    """Go where a button of this page asked to; call before any widget is drawn."""
    if (go := st.session_state.pop(GO, None)) is not None:
        st.switch_page(f"views/{go['page']}/page.py", query_params=go["query"])


def spec_of(record: StudyRecord, trial: str) -> TrialSpec:
    """Return what a trial of a search asks for, with the effort of the search.

    Raises:
        StoreError: the trial was deleted.
        SpecError: another version made it.
    """
    start = spec_from_dict(record.spec)
    found = state.trial_spec(state.store().trial(trial))
    return found.model_copy(update={"protocol": start.protocol})


def load(record: StudyRecord, trial: str) -> None:
    """Load a configuration of a search into Tune; a confirmed one is shown there with its result."""
    try:
        state.apply_spec(spec_of(record, trial))
        kept = state.store().trial(trial)
    except TunerError as error:
        state.keep_error(error)
        return
    query = {}
    if kept.kind == "measure" and kept.state == "COMPLETE":
        state.own_trial(trial)
        query = {state.TRIAL_PARAM: trial}
    st.session_state[GO] = {"page": "tune", "query": query}


def judge(record: StudyRecord, trial: str) -> None:
    """Load a configuration with the limits of the search into the scorecard."""
    try:
        state.apply_spec(spec_of(record, trial))
    except TunerError as error:
        state.keep_error(error)
        return
    scorecard_targets.load(question_from_dict(record.question).limits)
    st.session_state[SCORECARD_SETTINGS] = [FROM_TUNE]
    st.session_state[GO] = {"page": "scorecard", "query": {}}
