"""Live on the Tune page: a glimpse of what the settings do, a moment after a slider rests.

The race itself is `core.run.live`, one for all visitors of this server; this leaves wishes with it and shows
what it tells. A browser that goes away leaves nothing behind: without a wish the race ends within a minute.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.evidence.measurement import Trial
from core.run import live
from core.run.job import Status
from core.show import interim, settings
from core.spec import TrialSpec
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import format, state
from dashboard.charts import glimpse_charts
from dashboard.widgets import duel, plots, results

# keys of the session
ON = "tune.live"
VISITOR, WISHED = "tune.live.visitor", "tune.live.wished"

SOON_S, LATER_S = 0.15, 3.0  # between two looks: at a race, and at one that rests
DEFAULT = "ONNX Runtime's default"
MOVING = ("starts", "races")


def switch() -> None:
    """Draw the switch."""
    st.toggle(
        "Live",
        key=ON,
        persist_state="session",
        on_change=_switched,
        **state.unless_closed(
            "Shows what a setting does as soon as a slider rests: a glimpse against ONNX Runtime's default, "
            "which stays warm meanwhile. Others who wait for this machine go first. *Run* confirms."
        ),
    )


def _switched() -> None:
    if not st.session_state[ON]:
        stop()


def stop() -> None:
    """Want no more glimpses in this session."""
    shared = _shared()
    with shared.lock:
        if shared.wishes is not None:
            shared.wishes.leave(_visitor())
    st.session_state.pop(WISHED, None)


@dataclass(slots=True)
class _Shared:
    """The live race of this server."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    wishes: live.Wishes | None = None
    job: str = ""


@st.cache_resource(show_spinner=False)
def _shared() -> _Shared:
    return _Shared()


def _visitor() -> str:
    return str(st.session_state.setdefault(VISITOR, secrets.token_hex(8)))


def draw(record: ModelRecord, spec: TrialSpec | None, *, busy: bool, ratio: DeltaGenerator) -> None:
    """Draw the glimpse of the settings as they stand; nothing while Live is off.

    Args:
        record: the model.
        spec: what the settings ask for; None: they cannot be used, which is said beside them.
        busy: a run of this page waits or races; the glimpse comes after it.
        ratio: where the ratio stands once more, in the bar.
    """
    if not st.session_state.get(ON) or state.closed():
        return
    with st.container(border=True, key="glimpse"):
        if spec is None:
            st.caption(":material/bolt: Live waits for settings that can be used.")
            return
        if (known := _known(record, spec)) is not None:
            _draw_known(known)
            told = _told(_status())
            if told.get("model") == spec.model.sha256:  # else it is of the model before
                _draw_trail({**told, "key": spec.key()})
            return
        if not busy:
            try:
                _wish(record, spec)
            except TunerError as error:
                state.report(error)
                return
        every_s = SOON_S if _is_moving(_status(), spec) else LATER_S
        st.fragment(_watch, run_every=every_s)(spec, every_s, ratio)


def _known(record: ModelRecord, spec: TrialSpec) -> Trial | None:
    fingerprint = state.environment()["fingerprint"]
    return state.store().find_complete(spec.key(), fingerprint, model_sha256=record.content_sha256)


def _draw_known(trial: Trial) -> None:
    st.markdown(f":material/verified: **Measured before:** {format.plain(results.trial_label(trial))}")
    st.button(
        "Show it",
        key="glimpse.known",
        icon=":material/visibility:",
        on_click=state.own_trial,
        args=(trial.id,),
        help="The whole result, instead of a glimpse.",
    )


def _wish(record: ModelRecord, spec: TrialSpec) -> None:
    key = spec.key()
    if st.session_state.get(WISHED) == key and state.is_active(_status()):
        return
    state.check_before(spec)
    words = ", ".join(settings.summary(spec)) or "ONNX Runtime's defaults"
    wish = live.Wish(visitor=_visitor(), spec=spec, label=format.short(words, 60))
    shared = _shared()
    with shared.lock:
        if shared.wishes is None or not shared.wishes.put(wish):
            wishes = live.Wishes()
            shared.job = state.scheduler().submit(live.job(wishes, wish, model_name=record.name))
            shared.wishes = wishes
    st.session_state[WISHED] = key


def _status() -> Status | None:
    job = _shared().job
    return state.status(job) if job else None


def _told(status: Status | None) -> Mapping[str, Any]:
    """What the live race tells this visitor."""
    live_now = (status.live if status is not None else None) or {}
    found: Mapping[str, Any] = live_now.get("told", {}).get(_visitor(), {})
    return found


def _is_moving(status: Status | None, spec: TrialSpec) -> bool:
    """Whether something new may be there a moment later."""
    if not state.is_active(status):
        return False
    told = _told(status)
    return told.get("key") != spec.key() or told.get("state") in MOVING


def _watch(spec: TrialSpec, every_s: float, ratio: DeltaGenerator) -> None:
    status = _status()
    if (SOON_S if _is_moving(status, spec) else LATER_S) != every_s:
        st.rerun()  # one full run changes how often to look
    told = _told(status)
    _draw_ratio(told if told.get("key") == spec.key() and state.is_active(status) else {}, ratio)
    if status is None or not state.is_active(status):
        _ended(status)
        return
    if live.is_default(spec) and not told.get("error"):
        st.caption(":material/bolt: These are ONNX Runtime's defaults: nothing to compare. Move a setting.")
    elif told.get("key") != spec.key() or not (told.get("contrasts") or told.get("error")):
        waits = (
            f" behind {format.plain(status.holder)}" if status.state == "WAITING" and status.holder else ""
        )
        st.caption(f":material/bolt: Glimpse: {'waits' if waits else 'starts'}{waits} …")
    elif told.get("error"):
        state.report_record(told["error"])
    else:
        _draw_glimpse(told, spec)
    _draw_trail(told)


def _ended(status: Status | None) -> None:
    if status is not None and status.error is not None and status.state == "FAIL":
        state.report_record(status.error)
        return
    st.caption(":material/bolt: Live rests: the machine is free again. Move a setting to go on.")


def _draw_ratio(told: Mapping[str, Any], place: DeltaGenerator) -> None:
    """Draw the ratio in the bar; a fragment that writes beyond itself has to write in every run."""
    if not told.get("contrasts") or told.get("error"):
        place.empty()
        return
    place.badge(f"glimpse: {interim.sentence(told['contrasts'][0])}", icon=":material/bolt:", color="gray")


def _draw_glimpse(told: Mapping[str, Any], spec: TrialSpec) -> None:
    [contrast] = told["contrasts"]
    said = f":material/bolt: **Glimpse:** {interim.sentence(contrast, DEFAULT)}"
    point = next((one for one in told.get("trail") or [] if one["key"] == told["key"]), None)
    if point is not None:
        said += f" · p50 about {format.ms(point['p50_s'])} · about {format.rate(point['rows_per_s'])}"
    st.markdown(said)
    if interim.is_known(contrast):
        labels = {live.WISH: told["label"], live.DEFAULT: DEFAULT}
        duel.glimpse([contrast], labels, margin=spec.protocol.margin)
    launches = told.get("launches") or 0
    if contrast["ratio"] is None:
        st.caption(f"{launches} of {live.LEAST_LAUNCHES} launches that a first interval takes.")
        return
    st.caption(f"{launches} launches; outputs are not compared. **Run** confirms it.")


def _draw_trail(told: Mapping[str, Any]) -> None:
    points = told.get("trail") or []
    if len(points) < 2:
        return
    plots.draw_growing(
        glimpse_charts.trail(points, str(told.get("key")), dark=state.is_dark()),
        key="glimpse.trail",
        height=glimpse_charts.HEIGHT,
        alt="Throughput over latency of the glimpses so far, joined in their order",
        why="",
    )
