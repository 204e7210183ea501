"""The Live preview on Tune: estimates of settings while they are changed.

`core.run.live` measures, in one live comparison for all pages of a person, whose machine time it uses; this
module submits the settings to it and shows its estimates. Without settings to measure, as after a browser has
disconnected, the live comparison ends within a minute.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api import live
from core.api.requests import check_spec
from core.api.session import Status
from core.evidence.measurement import Trial
from core.show import setting_chips
from core.spec import TrialSpec
from core.store import Actor, ModelRecord
from core.wire.errors import TunerError
from dashboard import format, live_events, messages, session_jobs, state
from dashboard.live_events import Event
from dashboard.shown_result import TUNE
from dashboard.widgets import live_view, results

# keys of the session
ON = "tune.live"
MOST_KEPT = 64  # visitors whose last estimate is kept
VISITOR, REQUESTED = "tune.live.visitor", "tune.live.wished"


def switch() -> None:
    """Draw the switch."""
    st.toggle(
        "Live",
        key=ON,
        persist_state="session",
        on_change=_switched,
        **state.unless_closed(
            "Previews each change against ONNX Runtime's default. Rough; press **Run** to confirm."
        ),
    )


def _switched() -> None:
    if not st.session_state[ON]:
        stop()


def stop() -> None:
    """End the estimates of this session."""
    shared = _shared(state.present_actor())
    with shared.lock:
        if shared.wishes is not None:
            shared.wishes.leave(_visitor())
    st.session_state.pop(REQUESTED, None)


@dataclass(slots=True)
class _LiveComparison:
    """The live comparison of one person."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    wishes: live.LiveRequests | None = None
    job: str = ""
    last: dict[str, tuple[Mapping[str, Any], float]] = field(
        default_factory=dict
    )  # visitor -> last estimate, and its time


@st.cache_resource(show_spinner=False)
def _of_person(person: str) -> _LiveComparison:
    return _LiveComparison()


def _shared(actor: Actor | None) -> _LiveComparison:
    """What the pages of one person share; without login, all pages."""
    return _of_person("" if actor is None else actor.person)


def _visitor() -> str:
    return str(st.session_state.setdefault(VISITOR, secrets.token_hex(8)))


def draw(record: ModelRecord, spec: TrialSpec | None, *, busy: bool, ratio: DeltaGenerator) -> None:
    """Draw the estimate of the present settings; nothing while Live is off.

    Args:
        record: the model.
        spec: of the present settings; None: they are invalid, and the error is shown elsewhere.
        busy: a run of this page waits or is measured; the estimate starts after it.
        ratio: a second place for the ratio, in the bar.
    """
    if not st.session_state.get(ON) or state.closed():
        return
    model, actor = [record.content_sha256], state.present_actor()
    with st.container(border=True, key="glimpse"):
        if spec is None:
            st.caption(":material/bolt: Live waits for valid settings.")
            return
        if (known := _known(record, spec)) is not None:
            _draw_known(known)
            before = partial(_trail, _visitor(), spec.key(), spec.model.sha256, actor=actor)
            name = f"trail-{_visitor()}-{spec.key()}"
            live_view.watch(name, before, of=model, key="glimpse.trail", rerun=False)
            return
        if not busy:
            try:
                _request_estimate(record, spec, actor)
            except TunerError as error:
                messages.report(error)
                return
        follow = partial(
            _event,
            _visitor(),
            spec.key(),
            spec.protocol.margin,
            spec.model.sha256 or spec.model.path,
            is_default=live.is_default(spec),
            actor=actor,
        )
        name = f"glimpse-{_visitor()}-{spec.key()}"
        live_view.watch(name, follow, of=model, key="glimpse.watch", rerun=False)
    with ratio:
        live_view.watch(name, follow, of=model, key="glimpse.watch.ratio", part="ratio")


def _known(record: ModelRecord, spec: TrialSpec) -> Trial | None:
    fingerprint = state.environment()["fingerprint"]
    return state.store().find_complete(spec.key(), fingerprint, model_sha256=record.content_sha256)


def _draw_known(trial: Trial) -> None:
    st.markdown(f":material/verified: **Measured before:** {format.plain(results.trial_label(trial))}")
    st.button(
        "Open",
        key="glimpse.known",
        icon=":material/visibility:",
        on_click=TUNE.show,
        args=(trial.id,),
        help="Opens the full result.",
    )


def _request_estimate(record: ModelRecord, spec: TrialSpec, actor: Actor | None) -> None:
    key = spec.key()
    if st.session_state.get(REQUESTED) == key and session_jobs.is_active(_status(actor)):
        return
    check_spec(state.session(), spec)
    if actor is not None:
        state.scheduler().check_start(actor)
    words = ", ".join(text for text, _ in setting_chips.chips(spec)) or "ONNX Runtime's defaults"
    wish = live.LiveRequest(visitor=_visitor(), spec=spec, label=format.short(words, 60))
    shared = _shared(actor)
    with shared.lock:
        if shared.wishes is None or not shared.wishes.put(wish):
            wishes = live.LiveRequests()
            before = {visitor: told for visitor, (told, _) in shared.last.items()}
            job = live.job(wishes, wish, model_name=record.name, before=before)
            shared.job = state.scheduler().submit(job)
            shared.wishes = wishes
    st.session_state[REQUESTED] = key


def _status(actor: Actor | None) -> Status | None:
    """The status of the live comparison of a person; a thread without a session is told who reads."""
    scheduler = state.scheduler() if actor is None else state.scheduler_for(actor)
    job = _shared(actor).job
    return scheduler.status(job) if job else None


def _estimate_for(status: Status | None, visitor: str) -> Mapping[str, Any]:
    """Return the estimate of the live comparison for a visitor."""
    live_now = (status.live if status is not None else None) or {}
    found: Mapping[str, Any] = live_now.get("told", {}).get(visitor, {})
    return found


def _event(
    visitor: str, wanted: str, margin: float, model: str, *, is_default: bool, actor: Actor | None
) -> Event:
    """Return the event of the settings with the key `wanted` on a model for a visitor."""
    shared, status = _shared(actor), _status(actor)
    told, told_at = shared.last.get(visitor, ({}, 0.0))
    if (newest := _estimate_for(status, visitor)) and newest != told:
        told, told_at = newest, time.monotonic()
        with shared.lock:
            shared.last.pop(visitor, None)
            shared.last[visitor] = told, told_at
            while len(shared.last) > MOST_KEPT:
                shared.last.pop(next(iter(shared.last)), None)
    if told.get("model") != model:
        told = {}
    return live_events.of_estimate(
        status, told, wanted, is_default=is_default, margin=margin, age_s=time.monotonic() - told_at
    )


def _trail(visitor: str, wanted: str, model: str | None, *, actor: Actor | None) -> Event:
    """Return the earlier estimates as an event, for settings with a full result; none of another model."""
    told = _estimate_for(_status(actor), visitor)
    if told.get("model") != model:
        return {"ended": True, "lines": [], "pictures": []}
    return {"ended": True, "lines": [], "pictures": live_events.estimates_plot({**told, "key": wanted})}
