"""Links from a search to Tune, Compare and Scorecard."""

from __future__ import annotations

import streamlit as st

from core.spec import TrialSpec, spec_from_dict
from core.spec.question import question_from_dict
from core.spec.targets import TargetSpec
from core.store import StudyRecord
from core.wire.errors import TunerError
from dashboard import messages, state
from dashboard.shown_result import TUNE
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.widgets import page_frame

GO = "search.go"  # session key: the target page of a button, and its query
SCORECARD_SETTINGS = "scorecard.settings"  # key of the Scorecard page: the settings it evaluates
FROM_TUNE = "Settings of Tune"  # a value of that key


def open_requested_page() -> None:
    """Switch to the page that a button asked for; call before any widget is drawn."""
    if (go := st.session_state.pop(GO, None)) is not None:
        page_frame.switch_to(go["page"], **go["query"])


def spec_of(record: StudyRecord, trial: str) -> TrialSpec:
    """Return the spec of a trial of a search, with the effort of the search.

    Raises:
        StoreError: the trial was deleted.
        SpecError: another version made it.
    """
    start = spec_from_dict(record.spec)
    found = state.trial_spec(state.store().trial(trial))
    return found.model_copy(update={"protocol": start.protocol})


def load(record: StudyRecord, trial: str) -> None:
    """Load a configuration of a search into Tune, and a confirmed one's result with it."""
    try:
        state.apply_spec(spec_of(record, trial))
        kept = state.store().trial(trial)
    except TunerError as error:
        messages.keep_error(error)
        return
    query = {}
    if kept.kind == "measure" and kept.state == "COMPLETE":
        TUNE.show(trial)
        query = {"trial": trial}
    st.session_state[GO] = {"page": "tune", "query": query}


def open_scorecard(record: StudyRecord, trial: str) -> None:
    """Load a configuration into the Scorecard, with the constraints of the search as targets."""
    try:
        state.apply_spec(spec_of(record, trial))
    except TunerError as error:
        messages.keep_error(error)
        return
    question = question_from_dict(record.question)
    under_load = [] if question.load is None else [TargetSpec(load=question.load)]
    scorecard_targets.load([*question.limits, *under_load])
    st.session_state[SCORECARD_SETTINGS] = [FROM_TUNE]
    st.session_state[GO] = {"page": "scorecard", "query": {}}
