"""History page: every trial in the store; filter, tag, compare and delete them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.evidence.load.load_types import LoadResult
from core.evidence.measurement import Trial
from core.show import load_text
from core.show.sheets import history, loads
from core.show.words import counted
from core.spec.axes import axes_of_study
from core.store import Change, Query, Tags
from core.wire.errors import TunerError
from dashboard import configurations, format, messages, state, url_state
from dashboard.shown_result import TUNE
from dashboard.views.history import filters
from dashboard.views.history import plots as history_plots
from dashboard.widgets import page_frame, results, sharing, tables, trial_result

PAGE_ROWS = 100  # trials per page of the table
ROWS = 14  # visible rows of the table; the others scroll
TABLE = "history.table"
PAGE = "history.page"


def page() -> None:
    bar = page_frame.bar(
        "History", "All trials of this machine. Tick some to compare, explain, tag or delete them."
    )
    state.clean_up()
    messages.show_kept_error()
    _rescued()
    models = state.store().model_names()
    if not models:
        _empty()
        return
    query = filters.draw(models, bar)
    brushed = history_plots.draw(query, models)
    shown, total = _page(query if brushed is None else Query(**_brush(query, brushed)))
    if not shown:
        st.info("No trial matches these filters.", icon=":material/filter_alt_off:")
        return
    chosen = _table(shown, total, brushed=brushed is not None)
    marks = state.store().marks([one.id for one in chosen])
    _bulk(chosen, marks)
    _detail(chosen)


def _rescued() -> None:
    """Show the files of results that the store had no space for."""
    if files := state.store().rescued():
        listed = "".join(f"\n- {format.plain(str(path))}" for path in files)
        st.warning(
            f"Results that could not be stored yet, kept as files: {listed}\n\nThe next start "
            "with enough disk space imports them.",
            icon=":material/save:",
        )


def _empty() -> None:
    with st.container(border=True):
        st.markdown("#### :material/history: No trials yet")
        st.markdown("Every measurement is kept here, failed ones too.")
        page_frame.link("tune", "Open Tune")


# --- filtering --------------------------------------------------------------------------------------------


def _brush(query: Query, ids: Sequence[str]) -> dict[str, Any]:
    """Return the query of the trials selected in a plot, which have passed the filters already."""
    return {"kind": query.kind, "archived": True, "order": query.order, "ids": tuple(ids)}


def _page(query: Query) -> tuple[list[Trial], int]:
    """Return the trials of the current page, and the number of all matching trials."""
    if "DAMAGED" in query.states:
        return _damaged(query)
    number = max(1, int(st.session_state.get(PAGE) or 1))
    shown, total = state.store().trial_page(query, offset=(number - 1) * PAGE_ROWS, limit=PAGE_ROWS)
    if not shown and total:  # the filters now leave fewer pages
        shown, total = state.store().trial_page(query, limit=PAGE_ROWS)
        st.session_state.pop(PAGE, None)
    return shown, total


LOOKED_AT = 5000  # newest trials searched for damaged ones: no index lists them


def _damaged(query: Query) -> tuple[list[Trial], int]:
    found, _ = state.store().trial_page(
        Query(model_name=query.model_name, kind=query.kind, text=query.text, archived=True), limit=LOOKED_AT
    )
    shown = [one for one in found if one.state in query.states][:PAGE_ROWS]
    return shown, len(shown)


def _table(trials: list[Trial], total: int, *, brushed: bool) -> list[Trial]:
    """Draw the table and return the chosen trials: the selected rows, or else the linked trial."""
    chosen = tables.draw(
        history.table(
            trials,
            state.store().marks([one.id for one in trials]),
            state.store().visibility([one.id for one in trials]),
            persons=state.present_actor() is not None,
            grouped=st.session_state.get("history.order") == "study",
        ),
        key=f"{TABLE}.{tables.key_of(one.id for one in trials)}{'.brushed' * brushed}",
        most=ROWS,
        on_select="rerun",
        ticked=range(len(trials)) if brushed else (),
        alt="Trials with what was changed, the verdict, latency, labels and model",
    )
    _under_table(total, brushed=brushed)
    picked = [trials[i] for i in chosen["selection"]["rows"] if i < len(trials)]
    _put_in_url(picked)
    return picked or _linked()


def _under_table(total: int, *, brushed: bool) -> None:
    """Draw the number of trials, the button that clears a plot selection, and the pagination."""
    pages = math.ceil(total / PAGE_ROWS)
    what = (
        "brushed in the plot" if brushed else filters.ORDERS[st.session_state.get("history.order") or "study"]
    )
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{total:,} trial{'s' * (total != 1)}, {what}.", width="stretch")
        if brushed:
            st.button(
                "Clear selection",
                key="history.let_go",
                icon=":material/deselect:",
                type="tertiary",
                on_click=history_plots.clear_selection,
                help="Shows all matching trials in the table again.",
            )
        if pages > 1:
            st.pagination(pages, key=PAGE)


def _put_in_url(picked: list[Trial]) -> None:
    """Put the one selected trial into the URL; remove it when the selection ends."""
    if len(picked) == 1:
        st.session_state[TICKED] = picked[0].id
        url_state.put(state.TRIAL_PARAM, picked[0].id)
    elif st.session_state.pop(TICKED, None) == (url_state.named(state.TRIAL_PARAM) or ""):
        url_state.put(state.TRIAL_PARAM, None)


TICKED = "history.ticked"  # id of the trial that a selection put into the URL


def _linked() -> list[Trial]:
    """Return the trial of the URL, even if the filters exclude it."""
    linked = url_state.named(state.TRIAL_PARAM)
    try:
        return [state.store().trial(linked)] if linked else []
    except TunerError as error:
        messages.report(error)
        return []


# --- actions ----------------------------------------------------------------------------------------------


def _bulk(chosen: list[Trial], marks: Mapping[str, Tags]) -> None:
    if not chosen:
        return
    ids = [one.id for one in chosen]
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="history.actions"):
        if len(chosen) == 1:
            if chosen[0].state != "DAMAGED":
                _single(chosen[0])
            words = "Checks the digests of its model, result and measurements."
            page_frame.link("export", "Digests", icon="tag", help=words, trial=ids[0], tab="digests")
        _comparison_links(chosen)
        _tag_buttons(ids, [history.tags_of(marks, one) for one in ids])
        if st.button(
            f"Delete {'it' if len(chosen) == 1 else f'{len(chosen)} trials'}",
            key="history.delete",
            icon=":material/delete:",
            **sharing.unless_of_others(ids, "Lists what is deleted, and asks first."),
        ):
            _confirm(ids)


def _comparison_links(chosen: Sequence[Trial]) -> None:
    """Draw links to the pages that compare trials."""
    least, most = configurations.LEAST, configurations.MOST
    if len(chosen) > 1:
        page_frame.link(
            "compare",
            "Compare",
            icon="sports_score",
            help=f"Loads them into Compare, the first as baseline: {least} to {most} trials.",
            disabled=not least <= len(chosen) <= most or any(one.state == "DAMAGED" for one in chosen),
            trials=",".join(one.id for one in chosen[:most]),
        )
    if pair := _pair(chosen):
        words = "Explains the difference. The baseline is the older one, or what it was compared with."
        page_frame.link("explain", "Explain", help=words, a=pair[0], b=pair[1])
    studies = {one.study for one in chosen}
    if len(studies) == 1 and axes_of_study(study := studies.pop()):
        page_frame.link("sweep", "Sweep", help="Opens the sweep that they belong to.", study=study)


def _pair(chosen: Sequence[Trial]) -> tuple[str, str] | None:
    """Return baseline and candidate of an explanation: the two selected, or one and its own baseline."""
    if not all(one.state == "COMPLETE" and one.kind in ("measure", filters.REFERENCE) for one in chosen):
        return None
    if len(chosen) == 2 and chosen[0].model_name == chosen[1].model_name:
        older, newer = sorted(chosen, key=lambda one: one.created_at)
        return older.id, newer.id
    contrasts = chosen[0].facts.get("contrasts") or []
    return (str(contrasts[0]["baseline"]), chosen[0].id) if len(chosen) == 1 and contrasts else None


# --- tags ---------------------------------------------------------------------------------------------------

LABELS, NOTE = "history.edit.labels", "history.edit.note"


def _tag_buttons(ids: Sequence[str], marks: Sequence[Tags]) -> None:
    starred, archived = all(one.starred for one in marks), all(one.archived for one in marks)
    st.button(
        "Unstar" if starred else "Star",
        key="history.star",
        icon=":material/star:",
        on_click=mark,
        args=(ids, Change(starred=not starred)),
        **sharing.unless_of_others(ids, "Marks a trial so that you find it again."),
    )
    st.button(
        "Unarchive" if archived else "Archive",
        key="history.archive",
        icon=":material/unarchive:" if archived else ":material/archive:",
        on_click=mark,
        args=(ids, Change(archived=not archived)),
        **sharing.unless_of_others(ids, "Archived trials are kept, but hidden unless *With archived* is on."),
    )
    sharing.button(ids, key="history.share")
    if st.button(
        "Labels" if len(ids) > 1 else "Labels, note",
        key="history.edit",
        icon=":material/label:",
        **sharing.unless_of_others(ids, "Labels of the ticked trials, and the note of a single one."),
    ):
        _edit(ids, marks)


@st.dialog("Labels and note", icon=":material/label:")
def _edit(ids: Sequence[str], marks: Sequence[Tags]) -> None:
    common = sorted(set.intersection(*(set(one.labels) for one in marks)))
    known = state.store().labels()
    chosen = st.multiselect(
        "Labels" if len(ids) == 1 else f"Labels that all {len(ids)} have",
        sorted({*known, *common}),
        default=common,
        key=LABELS,
        accept_new_options=True,
        placeholder="Choose, or type a new one",
        help="Labels that only some of them have stay.",
    )
    note: str | None = None
    if len(ids) == 1:
        note = st.text_area("Note", marks[0].note, key=NOTE, help="Free text.")
    if st.button("Save", key="history.save_marks", type="primary", icon=":material/check:"):
        label(ids, common, chosen, note)
        st.rerun()


def label(ids: Sequence[str], before: Sequence[str], chosen: Sequence[str], note: str | None) -> None:
    """Add the chosen labels, remove those no longer chosen, and store the note."""
    try:
        change = Change(
            add=tuple(one for one in chosen if one not in before),
            remove=tuple(one for one in before if one not in chosen),
            note=note,
        )
    except TunerError as error:
        messages.keep_error(error)
        return
    mark(ids, change)


def mark(ids: Sequence[str], change: Change) -> None:
    """Change the tags of trials; report one that was deleted meanwhile."""
    try:
        state.store().mark(ids, change)
    except TunerError as error:
        messages.keep_error(error)


# --- one trial, and deleting ------------------------------------------------------------------------------


def _single(trial: Trial) -> None:
    if st.button(
        "Reopen as settings",
        key="history.reopen",
        icon=":material/tune:",
        type="primary",
        help="Loads its settings and model into Tune and shows its result.",
    ):
        results.open_in_tune(trial)
    if trial.state == "COMPLETE" and trial.kind == "measure":
        is_pinned = state.store().baseline(trial.model_sha256) == trial.id
        trial_result.pin_button(trial.model_sha256, trial.id, is_pinned=is_pinned, key="history.pin")
    if trial.kind == "load":
        page_frame.link("load", "Load", help="Opens the load test with its plots.", trial=trial.id)
    else:
        page_frame.link("profile", "Profile", trial=trial.id)
    page_frame.link("export", "Export", trial=trial.id)


@st.dialog("Delete trials?", icon=":material/delete:")
def _confirm(trial_ids: list[str]) -> None:
    found = state.store().deletion(trial_ids)
    if found.unfinished:
        st.error(
            f"{counted(len(found.unfinished), 'trial')} of these waits or runs, so nothing is deleted.\n\n"
            "**What to do:** wait until it has ended, cancel it, or untick it.",
            icon=":material/block:",
        )
        return
    st.markdown(
        f"{format.plain(history.deletion_in_words(found))}, with profiles, labels and "
        "notes, will be deleted for all users. This cannot be undone."
    )
    for one in pinned(trial_ids):
        st.warning(
            f"Trial `{one.id[:12]}` is the pinned baseline of {format.plain(one.model_name)}: "
            "later runs of this model are compared with ONNX Runtime's default again.",
            icon=":material/keep_off:",
        )
    with st.container(horizontal=True):
        if st.button("Delete", key="history.confirm", type="primary", icon=":material/delete:"):
            delete(trial_ids)
            st.rerun()
        if st.button("Keep", key="history.keep"):
            st.rerun()


def pinned(trial_ids: list[str]) -> list[Trial]:
    """Return the trials that are the pinned baseline of their model."""
    found = filter(None, map(state.trial_if_kept, trial_ids))
    return [one for one in found if state.store().baseline(one.model_sha256) == one.id]


def delete(trial_ids: list[str]) -> None:
    """Delete trials, and remove them from the state of this session."""
    baselines = pinned(trial_ids)
    try:
        state.store().delete_finished(trial_ids)
    except TunerError as error:  # one is running again
        messages.keep_error(error)
        return
    if TUNE.id in trial_ids:
        TUNE.show(None)
    if url_state.named(state.TRIAL_PARAM) in trial_ids:
        url_state.put(state.TRIAL_PARAM, None)
    models = ", ".join(dict.fromkeys(one.model_name for one in baselines))
    unpinned = f" No baseline is pinned for {models} any more." if baselines else ""
    messages.notify(f"Deleted {len(trial_ids)} trial{'s' if len(trial_ids) != 1 else ''}.{unpinned}")


def _detail(chosen: list[Trial]) -> None:
    if len(chosen) != 1:
        return
    try:
        trial = state.store().trial(chosen[0].id)  # with the raw measurements, which the list omits
    except TunerError as error:  # damaged, or deleted meanwhile
        messages.report(error)
        return
    with st.container(border=True, key="history.detail"):
        results.header(trial)
        if (load := load_text.load_of(trial)) is not None:
            _load_test(load)
        elif trial.kind not in ("profile", "load") and trial.state == "COMPLETE" and trial.result:
            _measured(trial)
        else:
            trial_result.unfinished(trial, key="history")


def _load_test(result: LoadResult) -> None:
    st.markdown(format.plain(load_text.answer(result)))
    tables.draw(loads.points(result), key="history.load", alt="Latency at each rate of requests")


def _measured(trial: Trial) -> None:
    comparison = trial_result.comparison_of(trial)
    if comparison is not None:
        trial_result.card(comparison)
    trial_result.numbers(trial, comparison)
    results.notes(trial.facts)
    results.run_details(trial.facts)
    trial_result.latencies(trial, comparison, key="history")


page()
