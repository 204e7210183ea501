"""Compare: two to eight configurations, raced in interleaved rounds against one baseline."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.evidence.comparison import Comparison, Configuration, line_up
from core.evidence.measurement import Trial
from core.run.prediction import Prediction, past, predict
from core.show.report.subjects import of_race
from core.show.sheets import races
from core.show.words import counted
from core.spec.effort import DEFAULT_MARGIN, EFFORTS, Effort
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import address, contestants, format, state
from dashboard.contestants import Entry
from dashboard.live_events import ACTIVE
from dashboard.views.compare import elsewhere, entry_list
from dashboard.widgets import controls, going_on, job_box, race_results, report, tables
from dashboard.widgets.protocol import QUICK, effort, wait_for_quiet, wait_quiet_s

COMPARISON_PARAM = "comparison"  # ?comparison=<id>
TRIALS_PARAM = "trials"  # ?trials=<id>,<id>

# keys of the session
SHOWN = "compare.shown"  # id of the comparison that is shown
APPLIED = "compare.applied"  # the linked trials that were taken into the list
SHOWN_OF = "compare.shown_of"  # content hash of the model that was current when it was shown
BY_ITSELF = "compare.by_itself"  # the comparison that the page opened, and nobody asked for
CLOSED = "compare.closed"  # somebody closed the race: no other one opens by itself
FOLLOWED = "compare.followed"  # the linked comparison whose model was chosen
PRECISION, MARGIN, BUDGET = "compare.precision", "compare.margin", "compare.budget"
PAST, DUELS = "compare.past", "compare.duels"

PAST_LIMIT = 200
PAST_ROWS = 8  # more of them scroll


def page() -> None:
    shown = _shown()
    _follow_links(shown)
    record = state.current_model()
    if record is not None and (shown is None or state.left_behind(SHOWN_OF, record)):
        shown = _newest(record)
    # One that somebody opened: its list makes room. One that opened by itself stays below the list.
    opened = shown is not None and shown.id != st.session_state.get(BY_ITSELF)
    active = shown is not None and shown.state in ACTIVE
    _run_bar(record, active=active)
    state.show_kept_error()
    if record is not None:
        count = len(entry_list.entries(record))
        label = f"The list: {count} configuration{'s' * (count != 1)}"
        key = "compare.builder.closed" if opened else "compare.builder.open"  # a race comes to the top
        with st.expander(label, icon=":material/list:", expanded=not opened, key=key):
            _builder(record)
    if shown is not None:
        _race(shown)
    elsewhere.draw(shown)
    if record is not None:
        _past(record)


# --- which race is shown ----------------------------------------------------------------------------------


def _shown() -> Comparison | None:
    """The comparison of the link or of this session; a link to nothing is said and forgotten."""
    linked = address.named(COMPARISON_PARAM) or st.session_state.get(SHOWN)
    if not linked:
        return None
    try:
        found = state.store().comparison(linked)
    except TunerError as error:
        state.report(error)
        show(None)
        return None
    show(found.id)
    return found


def show(comparison_id: str | None) -> None:
    """Make this comparison the one that is shown, in the address as well: a reload finds it again."""
    if st.session_state.get(SHOWN) != comparison_id:
        st.session_state[SHOWN_OF] = None
    st.session_state[SHOWN] = comparison_id
    address.put(COMPARISON_PARAM, comparison_id)
    if comparison_id is not None:
        st.session_state[CLOSED] = False


def _close() -> None:
    show(None)
    st.session_state[CLOSED] = True


def _newest(record: ModelRecord) -> Comparison | None:
    """The newest race of a model, wherever it was asked for; the list stays as it is."""
    show(None)
    if st.session_state.get(CLOSED):
        return None
    newest = next((one for one in _races(record) if one.result or one.state in ACTIVE), None)
    if newest is not None:
        show(newest.id)
        st.session_state[FOLLOWED], st.session_state[SHOWN_OF] = newest.id, record.content_sha256
        st.session_state[BY_ITSELF] = newest.id
    return newest


def _follow_links(shown: Comparison | None) -> None:
    """A linked race brings its model, linked trials become the list; each once."""
    if shown is not None and st.session_state.get(FOLLOWED) != shown.id:
        st.session_state[FOLLOWED] = shown.id
        if record := state.store().model(shown.model_sha256) if shown.model_sha256 else None:
            state.choose_model(record)
            if not entry_list.is_begun():
                _retake(shown)
    linked = address.named(TRIALS_PARAM)
    if not linked or st.session_state.get(APPLIED) == linked:
        return
    st.session_state[APPLIED] = linked
    try:
        entry_list.take_trials([state.store().trial(one.strip()) for one in linked.split(",") if one.strip()])
    except TunerError as error:
        state.report(error)


# --- what shall race --------------------------------------------------------------------------------------


def _builder(record: ModelRecord) -> None:
    entries = entry_list.entries(record)
    found, why_not = _predictions(record, entries)
    left, right = st.columns([1, 2], gap="medium")
    with left:
        controls.model_picker()
    with right:
        _protocol(found)
    entry_list.draw(record)
    st.caption(why_not or _prediction_text(found, len(entries)), text_alignment="right")


# --- effort and time --------------------------------------------------------------------------------------


def _protocol(found: Mapping[str, Prediction]) -> None:
    """Effort with its predicted time, margin and budget."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        effort(PRECISION, predictions=found)
        st.number_input(
            "Equal within (%)",
            value=None if MARGIN in st.session_state else 100 * DEFAULT_MARGIN,
            step=0.5,
            format="%.1f",
            key=MARGIN,
            width=130,
            persist_state="session",
            help="Smaller differences do not matter: two configurations are called equal when the whole "
            "interval lies within.",
        )
        st.number_input(
            "Budget (s)",
            value=None,
            step=10,
            key=BUDGET,
            width=130,
            persist_state="session",
            placeholder=str(_precision().budget_s),
            help="Seconds of rounds after which an open question stays UNDECIDED. Empty: what belongs to the "
            "effort.",
        )
    wait_for_quiet()


def _precision() -> Effort:
    return EFFORTS[st.session_state.get(PRECISION) or QUICK]


def _asked(
    record: ModelRecord, entries: Sequence[Entry], precision: str | None = None
) -> list[Configuration]:
    """The list as it shall race: under one protocol, each named after what sets it apart from the baseline.

    Args:
        record: the model that the list is of.
        entries: of the list.
        precision: None: the chosen one.

    Raises:
        SpecError: too few, or a protocol that cannot be.
    """
    contestants.check_count(entries)
    margin = st.session_state.get(MARGIN)
    specs = [
        contestants.for_race(
            one.spec,
            precision=precision or _precision().name,
            budget_s=st.session_state.get(BUDGET),
            margin=DEFAULT_MARGIN if margin is None else margin / 100,
        )
        for one in entries
    ]
    against = entry_list.baseline_index(entries)
    names = entry_list.names(record, entries)
    return [
        Configuration(
            spec=spec,
            label=name,
            role="baseline" if index == against else "candidate",
            model=entries[index].model or record.name,
        )
        for index, (spec, name) in enumerate(zip(specs, names, strict=True))
    ]


def _predictions(record: ModelRecord, entries: Sequence[Entry]) -> tuple[dict[str, Prediction], str]:
    """Effort -> how long the race will take, empty where nobody knows; and why there can be no race."""
    if len(entries) < contestants.LEAST:
        return {}, "A race takes two to eight configurations."
    try:
        known = past(
            state.store(), model_sha256=record.content_sha256, fingerprint=state.environment()["fingerprint"]
        )
        asked = {name: _asked(record, entries, name) for name in EFFORTS}
    except TunerError as error:
        return {}, format.plain(error.message)
    if known is None:
        return {}, ""
    return {name: predict([one.spec for one in line_up(race)], known) for name, race in asked.items()}, ""


def _prediction_text(found: Mapping[str, Prediction], count: int) -> str:
    """How long the chosen effort will take, or that nobody knows."""
    chosen = _precision()
    budget_s = st.session_state.get(BUDGET) or chosen.budget_s
    limit = f"at most {budget_s} s of rounds"
    text = f"{count} configurations to ±{100 * chosen.target:.2g} %"
    if chosen.name not in found:
        return f"{text} · time unknown: no race of this model has told it here yet, {limit}"
    one = found[chosen.name]
    text += f" · about {format.about(one.seconds)}, {counted(one.rounds, 'round')} · {limit}"
    return f"{text} · {one.late}" if one.late else text


# --- running ----------------------------------------------------------------------------------------------


def _run_bar(record: ModelRecord | None, *, active: bool) -> None:
    count = len(entry_list.entries(record)) if record is not None else 0
    reason = _why_not(record, active=active)
    with st.container(horizontal=True, vertical_alignment="center", key="compare.runbar"):
        st.title("Compare", anchor=False, width="content")
        st.space("stretch")
        st.button(
            "Racing" if active else f"Race {count} configurations" if count > 1 else "Race",
            key="compare.run",
            type="primary",
            icon=":material/flag_check:",
            shortcut="Ctrl+Enter",
            disabled=bool(reason),
            help=reason or "Each in a process of its own, in interleaved rounds of random order.",
            on_click=_start,
        )
    st.caption(
        "Two to eight configurations race in interleaved rounds: what the machine does to one, it does to "
        "all."
    )


def _why_not(record: ModelRecord | None, *, active: bool) -> str:
    """Why no race can be started now; empty when one can."""
    if reason := state.closed():
        return reason
    if record is None:
        return "Choose a model first."
    if active:
        return "A race is running; wait for it or cancel it."
    try:
        listed = entry_list.entries(record)
        contestants.check_count(listed)
    except TunerError as error:
        return f"{error.message} {error.hint}"
    if sum(map(entry_list.can_load, listed)) < contestants.LEAST:
        return "Fewer than two of these can be loaded on this machine; the list says which cannot."
    return ""


def _start() -> None:
    """Queue the race of what the list holds now."""
    record = state.current_model()
    if record is None:
        return
    try:
        job = state.race(
            _asked(record, entry_list.entries(record)),
            study=f"compare #{secrets.token_hex(4)}",
            model_name=record.name,
            wait_quiet_s=wait_quiet_s(),
            different_models=entry_list.different_models(),
        )
        comparison_id = state.submit(job)
    except TunerError as error:
        state.keep_error(error)
        return
    _follow(comparison_id)


def _follow(comparison_id: str) -> None:
    """Show a race that this session has started: its model is the current one, its list stays."""
    state.follow(comparison_id, "compare", comparison=comparison_id)
    st.session_state[FOLLOWED] = comparison_id
    show(comparison_id)


def _race(shown: Comparison) -> None:
    with st.container(border=True, key="compare.race"):
        trials = state.store().trials_of(shown.id)
        if shown.state in ACTIVE:
            race_results.header(shown, live=True)
            _live(shown)
            return
        race_results.header(shown, partial(_buttons, shown, trials))
        race_results.finished(shown, {trial.id: trial for trial in trials})


def _buttons(shown: Comparison, trials: Sequence[Trial]) -> None:
    going_on.button("compare", shown, trials, lambda more: _follow(more.id))
    report.offer(lambda: of_race(state.store(), shown), key="compare")
    st.button(
        "Take as list",
        key="compare.again",
        icon=":material/replay:",
        on_click=_retake,
        args=(shown,),
        help="Makes these configurations the list above, to race them again or with others.",
    )
    st.button("Close", key="compare.close", icon=":material/close:", on_click=_close)


def _retake(shown: Comparison) -> None:
    """Make the contestants of a race the list: its baseline first, no default that nobody asked for."""
    asked = [one.trial for one in shown.contestants if one.role != "anchor" or one.trial == shown.baseline]
    asked.sort(key=lambda one: one != shown.baseline)
    if shown.protocol.get("different_models"):
        st.session_state[entry_list.DIFFERENT] = True
    try:
        entry_list.take_trials([state.store().trial(one) for one in asked[: contestants.MOST]])
    except TunerError as error:
        state.keep_error(error)


def _live(race: Comparison) -> None:
    with st.container(key="compare.live"):
        follow = race_results.follow(race, race_results.trials_of(race))
        race_results.watch(race, follow, key="compare.watch")
        if state.status(race.id) is not None:
            job_box.cancel(
                race.id, key="compare.cancel", help="Ends all its workers. Rounds that were made are kept."
            )


# --- past races -------------------------------------------------------------------------------------------


def _past(record: ModelRecord) -> None:
    st.subheader("Past races", anchor=False)
    with_duels = st.toggle(
        "Single runs of Tune too",
        key=DUELS,
        persist_state="session",
        help="A run on Tune is a race as well: of the settings against the baseline.",
    )
    found = _races(record, with_duels=with_duels)
    if not found:
        st.caption(f"No race of {format.plain(record.name)} yet.")
        return
    key = f"{PAST}.{found[0].id}"  # a new race moves the rows: a tick must not move to another
    tables.draw(
        races.past(found),
        key=key,
        most=PAST_ROWS,
        on_select=partial(_reopen, key, [one.id for one in found]),
        mode="single-row",
        alt="Past comparisons of this model with their results",
    )
    st.caption("Tick a row to open that race.")


def _races(record: ModelRecord, *, with_duels: bool = False) -> list[Comparison]:
    """Races that a model took part in, as the baseline too, newest first."""
    found = state.store().comparisons(raced_sha256=record.content_sha256, limit=PAST_LIMIT)
    return [one for one in found if with_duels or not one.is_duel]


def _reopen(key: str, comparison_ids: Sequence[str]) -> None:
    picked = st.session_state[key]["selection"]["rows"]
    if picked and picked[0] < len(comparison_ids):
        show(comparison_ids[picked[0]])


page()
