"""Effort with its predicted time, time budget, equivalence margin, and the wait for an idle machine."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from core.api.requests import Prediction
from core.show.verdict import sentence
from core.spec import TrialSpec
from core.spec.effort import EFFORTS
from core.spec.settings import trial_setting
from core.wire.errors import TunerError
from dashboard import fields, format, state
from dashboard.widgets.setting import help_text, one, show_no_effect, undo

PRECISION = "protocol.effort"
QUICK = "quick"  # the default effort
# session keys, shared by all pages that measure
WAIT, MINUTES = "protocol.wait_quiet", "protocol.wait_minutes"
DEFAULT_MINUTES, MOST_MINUTES = 5, 120


def protocol(spec: TrialSpec | None, effects: dict[str, str]) -> None:
    """Draw the group; exact numbers of runs are among the advanced settings, where empty means automatic.

    Args:
        spec: of all settings; None: they are invalid, and nothing is predicted.
        effects: setting without effect now -> reason.
    """
    _precision(_predictions(spec))
    if effects.get(PRECISION):
        show_no_effect(effects[PRECISION])
    with st.container(horizontal=True, gap="small", key="row.limits"):
        for name in ("budget_s", "margin"):
            one(trial_setting(name), effects.get(name))
    wait_for_quiet()


def effort(key: str, label: str = "Effort", predictions: Mapping[str, Prediction] | None = None) -> str:
    """Draw the choice of the effort, with its predicted time if known; return its name."""
    known = predictions or {}
    chosen = st.segmented_control(
        label,
        list(EFFORTS),
        key=key,
        required=True,
        default=None if key in st.session_state else QUICK,
        format_func=lambda name: _option(name, known.get(name)),
        persist_state="session",
        help="How narrow the 95 % interval of every ratio must be before measuring ends: "
        + ", ".join(f"{one.name} ±{100 * one.target:.2g} %" for one in EFFORTS.values()),
    )
    return chosen or QUICK


def wait_for_quiet() -> None:
    """Draw the wait for an idle machine and its time limit; all pages share the values."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="row.wait_quiet"):
        st.toggle(
            "Wait for an idle machine",
            key=WAIT,
            persist_state="session",
            help="Waits until other programs, the hypervisor and the disk are idle, then starts. "
            "After the time limit it starts anyway.",
        )
        st.session_state.setdefault(MINUTES, DEFAULT_MINUTES)
        st.number_input(
            "Time limit (min)",
            step=1,
            key=MINUTES,
            width=130,
            persist_state="session",
            disabled=not st.session_state[WAIT],
            help="Measuring starts then, even if the machine is not idle.",
        )
    try:
        wait_quiet_s()
    except TunerError as error:
        state.report(error)


def wait_quiet_s() -> float:
    """Return the seconds that a comparison of this session waits for an idle machine; 0: it does not wait.

    Raises:
        SpecError: minutes out of range.
    """
    if not st.session_state.get(WAIT):
        return 0.0
    minutes = st.session_state.get(MINUTES)
    minutes = DEFAULT_MINUTES if minutes is None else minutes
    fields.in_range("minutes of the time limit", minutes, 1, MOST_MINUTES)
    return 60.0 * minutes


def _predictions(spec: TrialSpec | None) -> dict[str, Prediction]:
    """Return effort -> predicted seconds; empty if unknown."""
    if spec is None:
        return {}
    found = {}
    try:
        for name in EFFORTS:
            changed = spec.protocol.model_copy(update={"effort": name})
            prediction = state.predicted(spec.model_copy(update={"protocol": changed}))
            if prediction is not None:
                found[name] = prediction
    except TunerError:  # reported where it matters: by the machine line, or when the job runs
        return {}
    return found


def _precision(predictions: dict[str, Prediction]) -> None:
    setting, key = trial_setting(PRECISION), fields.key(PRECISION)
    with st.container(
        horizontal=True, wrap=False, vertical_alignment="bottom", gap="small", key=f"row.{PRECISION}"
    ):
        st.segmented_control(
            setting.label,
            list(EFFORTS),
            key=key,
            format_func=lambda name: _option(name, predictions.get(name)),
            required=True,
            help=help_text(setting),
            persist_state="session",
        )
        undo(setting.label, key)
    st.caption(f":material/schedule: {_time_words(st.session_state[key], predictions)}")


def _option(name: str, prediction: Prediction | None) -> str:
    return name if prediction is None else f"{name} · {format.about(prediction.seconds)}"


def _time_words(name: str, predictions: dict[str, Prediction]) -> str:
    """Describe the precision of the chosen effort and its predicted time, or the time limit."""
    precise, prediction = f"Within ±{100 * EFFORTS[name].target:g} %", predictions.get(name)
    if prediction is None:
        budget_s = st.session_state.get(fields.key("budget_s")) or EFFORTS[name].budget_s
        limit = format.about(budget_s)
        return f"{precise}, or at most {limit}. The first measurement of a model tells how long."
    words = f"{precise}: about {format.about(prediction.seconds)}, {prediction.rounds:,} rounds"
    if not prediction.late:
        return f"{words}, at the noise last measured."
    return f"{words}. {sentence(prediction.late)}"
