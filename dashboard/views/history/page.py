"""History: every trial that was made here; find one, look at it, take its settings up again, or delete it."""

from __future__ import annotations

import hashlib

import streamlit as st

from core.evidence.measurement import Trial, model_words
from core.show import verdict
from core.show.sheets import races
from core.show.words import STATE_WORDS
from core.wire.errors import TunerError
from core.wire.guard import MARK, breach
from dashboard import format, state
from dashboard.widgets import duel, results, tables

LIMIT = 2000
ROWS = 10  # of the table; the others are scrolled
TABLE = "history.table"
ALL = "all"
KIND = "history.kind"
REFERENCE = "reference"


def page() -> None:
    st.title("History", anchor=False)
    state.show_kept_error()
    _rescued()
    wanted = REFERENCE if st.session_state.get(KIND) == REFERENCE else None
    trials = state.store().trials(kind=wanted, limit=LIMIT, damaged=True)
    if not trials and wanted is None:
        _empty()
        return
    shown = _filtered(trials)
    if not shown:
        st.info("No trial matches these filters.", icon=":material/filter_alt_off:")
        return
    chosen = _table(shown)
    _bulk(chosen)
    _detail(chosen)


def _rescued() -> None:
    """Say where results lie that the store had no room for."""
    if files := state.store().rescued():
        listed = "".join(f"\n- {format.plain(str(path))}" for path in files)
        st.warning(
            f"Results that could not be stored yet, as files:\n{listed}\n\nThe next start with enough disk "
            "space takes them back.",
            icon=":material/save:",
        )


def _empty() -> None:
    with st.container(border=True):
        st.markdown("#### :material/history: No trials yet")
        st.markdown("Every measurement is kept here, failed ones too. Make the first one on the Tune page.")
        st.page_link("views/tune/page.py", label="Open Tune", icon=":material/tune:")


# --- finding ----------------------------------------------------------------------------------------------


def _filtered(trials: list[Trial]) -> list[Trial]:
    models = sorted({t.model_name for t in trials})
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="history.filters"):
        model = st.selectbox(
            "Model",
            [ALL, *models],
            key="history.model",
            persist_state="session",
            width=220,
            help="Only trials of this model.",
        )
        kind = st.selectbox(
            "Kind",
            [ALL, "measure", "profile", REFERENCE],
            key=KIND,
            persist_state="session",
            width=140,
            help="A profile runs with ONNX Runtime's profiler on; its times are not latencies. A reference "
            "was measured again beside a candidate, to be put against it; `all` leaves these out.",
        )
        wanted = st.multiselect(
            "State",
            list(results.STATES),
            key="history.state",
            persist_state="session",
            width=260,
            placeholder="any",
            format_func=STATE_WORDS.__getitem__,
            help="Empty: any state.",
        )
        text = st.text_input(
            "Search",
            key="history.search",
            persist_state="session",
            width=260,
            placeholder="id, setting, provider, study",
            help="All words must occur in the trial's id, model, settings, providers, owner or study.",
        )
    return [
        t
        for t in trials
        if (model in (ALL, None) or t.model_name == model)
        and (kind in (ALL, None) or t.kind == kind)
        and (not wanted or t.state in wanted)
        and matches(t, text or "")
    ]


def matches(trial: Trial, text: str) -> bool:
    """True when all words of `text` occur somewhere in what describes `trial`."""
    result = trial.facts
    described = " ".join(
        [
            trial.id,
            trial.model_name,
            trial.model_sha256,
            model_words(result),
            trial.study,
            trial.owner,
            str(trial.spec),
            " ".join(result.get("effective_providers") or ()),
            "fallback" if result.get("fallback") else "",
            MARK if breach(result) else "",
            verdict.busy_words(result),
            trial.error["message"] if trial.error else "",
        ]
    ).lower()
    return all(word in described for word in text.lower().split())


def _table(trials: list[Trial]) -> list[Trial]:
    """Draw the table and return the chosen trials: the selected rows, else the linked one."""
    count = f"{len(trials):,} trial{'s' * (len(trials) != 1)}"
    st.caption(f"{count}, newest first. Click a column to sort, tick a row to look at it.")
    chosen = tables.draw(
        races.history(trials),
        key=f"{TABLE}.{_of_rows(trials)}",  # a tick must not move to another trial when one comes or goes
        most=ROWS,
        on_select="rerun",
        alt="All trials with their model, state, latency and settings",
    )
    picked = [trials[i] for i in chosen["selection"]["rows"] if i < len(trials)]
    _address(picked)
    return picked or _linked()


def _address(picked: list[Trial]) -> None:
    """Name the one ticked trial in the address, and take back what was named so."""
    if len(picked) == 1:
        st.session_state[TICKED] = st.query_params[state.TRIAL_PARAM] = picked[0].id
    elif st.session_state.pop(TICKED, None) == st.query_params.get(state.TRIAL_PARAM, ""):
        del st.query_params[state.TRIAL_PARAM]


TICKED = "history.ticked"  # id of the trial that a tick has put into the address


def _of_rows(trials: list[Trial]) -> str:
    """A few characters that change whenever a row of the table would hold another trial."""
    return hashlib.sha256("".join(one.id for one in trials).encode()).hexdigest()[:12]


def _linked() -> list[Trial]:
    """The trial of the address, even one that the filters leave out."""
    linked = st.query_params.get(state.TRIAL_PARAM)
    try:
        return [state.store().trial(linked)] if linked else []
    except TunerError:  # deleted since
        return []


# --- what can be done -------------------------------------------------------------------------------------


def _bulk(chosen: list[Trial]) -> None:
    if not chosen:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="history.actions"):
        if len(chosen) == 1 and chosen[0].state != "DAMAGED":
            _single(chosen[0])
        if st.button(
            f"Delete {'it' if len(chosen) == 1 else f'{len(chosen)} trials'}",
            key="history.delete",
            icon=":material/delete:",
            help="Asks first.",
        ):
            _confirm([t.id for t in chosen])


def _single(trial: Trial) -> None:
    if st.button(
        "Reopen as settings",
        key="history.reopen",
        icon=":material/tune:",
        type="primary",
        help="Loads its settings and its model into Tune and shows its result there.",
    ):
        reopen(trial)
    if trial.state == "COMPLETE" and trial.kind == "measure":
        st.button(
            "Pin as baseline",
            key="history.pin",
            icon=":material/keep:",
            on_click=state.store().pin_baseline,
            args=(trial.model_sha256, trial.id),
            help="Later results of this model are compared with it.",
        )
    link = {state.TRIAL_PARAM: trial.id}
    st.page_link(
        "views/profile/page.py", label="Profile", icon=":material/search_insights:", query_params=link
    )
    st.page_link("views/export/page.py", label="Export", icon=":material/file_export:", query_params=link)


def reopen(trial: Trial) -> None:
    """Load the settings of `trial` and open Tune on it; says so when its model is gone."""
    try:
        state.apply_spec(state.trial_spec(trial))
    except TunerError as error:
        state.report(error)
        return
    state.own_trial(trial.id)
    st.switch_page("views/tune/page.py", query_params={state.TRIAL_PARAM: trial.id})


@st.dialog("Delete trials?", icon=":material/delete:")
def _confirm(trial_ids: list[str]) -> None:
    many = len(trial_ids) != 1
    st.markdown(
        f"{len(trial_ids)} trial{'s' if many else ''} with raw samples and profiles will be gone for "
        f"everybody. "
        "This cannot be undone."
    )
    for one in pinned(trial_ids):
        st.warning(
            f"Trial `{one.id[:12]}` is the pinned baseline of {format.plain(one.model_name)}: later runs of "
            "this model race against ONNX Runtime's default again.",
            icon=":material/keep_off:",
        )
    with st.container(horizontal=True):
        if st.button("Delete", key="history.confirm", type="primary", icon=":material/delete:"):
            delete(trial_ids)
            st.rerun()
        if st.button("Keep", key="history.keep"):
            st.rerun()


def pinned(trial_ids: list[str]) -> list[Trial]:
    """Return those trials that are the pinned baseline of their model."""
    store = state.store()
    found = [store.trial(one) for one in trial_ids]
    return [one for one in found if store.baseline(one.model_sha256) == one.id]


def delete(trial_ids: list[str]) -> None:
    """Delete trials, and forget them where this session shows one."""
    baselines = pinned(trial_ids)
    state.store().delete_trials(trial_ids)
    if st.session_state.get(state.TRIAL) in trial_ids:
        state.show_trial(None)
    if st.query_params.get(state.TRIAL_PARAM) in trial_ids:
        del st.query_params[state.TRIAL_PARAM]
    models = ", ".join(dict.fromkeys(one.model_name for one in baselines))
    unpinned = f" No baseline is pinned for {models} any more." if baselines else ""
    state.notify(f"Deleted {len(trial_ids)} trial{'s' if len(trial_ids) != 1 else ''}.{unpinned}")


def _detail(chosen: list[Trial]) -> None:
    if len(chosen) != 1:
        return
    try:
        trial = state.store().trial(chosen[0].id)  # with the raw samples, which the list leaves out
    except TunerError as error:  # damaged, or deleted meanwhile
        state.report(error)
        return
    with st.container(border=True, key="history.detail"):
        results.header(trial)
        if trial.kind != "profile" and trial.state == "COMPLETE" and trial.result:
            _measured(trial)
        else:
            results.failed(trial)


def _measured(trial: Trial) -> None:
    race = duel.duel_of(trial)
    if race is not None:
        duel.card(race)
    duel.numbers(trial, race)
    results.notes(trial.facts)
    results.what_ran(trial.facts)
    duel.latencies(trial, race, key="history")


page()
