"""Scorecard page: targets, and which configurations and variants of the model meet them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api.judging import (
    MissingMeasurements,
    ScorecardRow,
    Subject,
    needed,
    on_model,
    rows,
    scorecard_jobs,
)
from core.api.references import open_folders, with_relative_paths
from core.api.session import Status
from core.show.report.subjects import of_card
from core.spec import TrialSpec, ort_default, yaml_from_spec
from core.spec.datasets import DatasetSpec
from core.spec.targets import TargetSpec
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.files import file_stem
from core.wire.runtime import OWN, runtime
from dashboard import configurations, format, live_events, messages, session_jobs, state
from dashboard.live_events import Event
from dashboard.shown_result import ShownResult
from dashboard.views.scorecard import form
from dashboard.views.scorecard import measured as scorecard
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.widgets import controls, dataset, live_view, page_frame, past_results, report
from dashboard.widgets.protocol import wait_quiet_s

SHOWN = ShownResult("scorecard.shown", (state.TRIAL_PARAM,))  # the trial whose targets were applied

# session keys
PICKED = "scorecard.earlier"
LIMIT = 200  # newest measurements of a model that are searched for targets
JOBS = "scorecard.jobs"  # ids of the jobs that this session started last
BEFORE = "scorecard.before"  # keys of the unknown cells at that time
RUN = "scorecard.run"  # where errors of measuring are shown
TAKEN = "scorecard.taken"  # label of the configuration to export

MEASURE = "Measure"


def page() -> None:
    bar = page_frame.bar(
        "Scorecard",
        "Which configurations meet your targets. Met: the whole 95 % interval is inside the limit.",
    )
    messages.show_kept_error()
    _follow_link()
    with bar.model:
        record = controls.model_picker()
    before = _earlier(record) if record is not None else {}
    answer = st.container(key="scorecard.answer")
    data, targets = form.what(record)
    if record is None:
        return
    chosen = form.models_and_settings(record)
    with bar.choice:
        _offer(before)
    if not targets:
        bar.disabled_action(MEASURE, "Add a target first.")
        with answer:
            _empty()
        return
    form.effort_and_wait()
    with answer:
        _answer(_card(record, chosen, data, targets), bar)


def _card(
    record: ModelRecord,
    chosen: Sequence[ModelRecord],
    data: DatasetSpec | None,
    targets: Sequence[TargetSpec],
) -> list[ScorecardRow]:
    """Return the rows of the scorecard; none where there is nothing to judge, with the reason shown."""
    subjects = _subjects(record, chosen, data, targets)
    if not subjects:
        return []
    try:
        fingerprint = state.environment()["fingerprint"]
        return list(rows(state.store(), subjects, targets, fingerprint=fingerprint))
    except TunerError as error:
        messages.report(error)
        return []


def _answer(card: Sequence[ScorecardRow], bar: page_frame.Bar) -> None:
    """Draw the headline, the table, what is missing, and the export."""
    if not card:
        bar.disabled_action(MEASURE, "Choose a configuration first.")
        return
    active = [one for one in _jobs() if session_jobs.is_active(one)]
    work = needed(card)
    _button(card, work, active, bar.action)
    messages.show_kept_error(RUN, "Nothing was measured")
    _live(active)
    _result(card)
    if not active:
        _ended(_jobs(), card)
    if work:
        st.caption(f"Missing: {scorecard.work_text(work)}.")
    _take_away(card)


# --- earlier targets ----------------------------------------------------------------------------------------


def _follow_link() -> None:
    """Apply the targets, the data and the settings of the trial in `?trial=`, once per link."""
    if linked := SHOWN.take_link():
        try:
            form.load(state.trial_spec(state.store().trial(linked)))
        except TunerError as error:
            messages.report(error)


def _earlier(record: ModelRecord) -> dict[str, TrialSpec]:
    """Return the earlier targets of this model, newest first: trial -> its configuration.

    A session without targets starts with the newest; the settings of Tune do not change.
    """
    found: dict[str, TrialSpec] = {}
    tested = state.store().trials(model_sha256=record.content_sha256, kind="load", limit=LIMIT)
    trials = [*state.measured(record, limit=LIMIT), *tested]
    for trial in sorted(trials, key=lambda one: one.created_at, reverse=True):
        if not trial.spec.get("targets"):
            continue
        with contextlib.suppress(TunerError):  # of another version
            spec = state.trial_spec(trial)
            if all(spec.targets != one.targets for one in found.values()):
                found[trial.id] = spec
    if SHOWN.is_new_model(record) and found and not scorecard_targets.ids():
        _take_targets(next(iter(found.values())))
    return found


def _take_targets(spec: TrialSpec) -> None:
    scorecard_targets.load(spec.targets)
    if spec.dataset is not None:
        dataset.fill(dataset.LABELLED, spec.dataset)


def _offer(before: Mapping[str, TrialSpec]) -> None:
    """Draw the list of earlier targets, where some differ from the current ones."""
    stated = tuple(scorecard_targets.read())
    past_results.offer(
        "Earlier targets",
        {name: _targets_label(name, spec) for name, spec in before.items()},
        shown=next((one for one, spec in before.items() if spec.targets == stated), None),
        key=PICKED,
        on_select=_open,
        help="Earlier targets of this model, newest first, with their data.",
    )


def _targets_label(trial_id: str, spec: TrialSpec) -> str:
    words = ", ".join(f"{one.what} {one.limit_words}" for one in spec.targets)
    return f"{format.short(words, 100)} · {trial_id[:8]}"


def _open(trial_id: str) -> None:
    try:
        _take_targets(state.trial_spec(state.store().trial(trial_id)))
        SHOWN.show(trial_id)
    except TunerError as error:
        messages.keep_error(error)


# --- configurations -----------------------------------------------------------------------------------------


def _subjects(
    record: ModelRecord,
    chosen: Sequence[ModelRecord],
    data: DatasetSpec | None,
    targets: Sequence[TargetSpec],
) -> list[Subject]:
    """Return the chosen models with each of the chosen settings; invalid ones are reported and left out."""
    found: list[Subject] = []
    try:
        base = state.current_spec()
        settings = {name: _settings(name, base) for name in st.session_state[form.SETTINGS]}
    except TunerError as error:
        messages.report(error)
        return []
    for one in chosen:
        for name, spec in settings.items():
            own = spec if one.content_sha256 == record.content_sha256 else _moved(spec, one)
            own = own.model_copy(update={"dataset": data, "targets": tuple(targets)})
            label = one.name if settings.keys() == {form.DEFAULT} else f"{one.name} · {form.label(name)}"
            if own.runtime != OWN:
                label += f" ({runtime(own.runtime).name})"
            found.append(Subject(label=label, spec=_with_protocol(own), record=one))
    if not found:
        st.info("Choose at least one model and one kind of settings.", icon=":material/checklist:")
    return found


def _moved(spec: TrialSpec, record: ModelRecord) -> TrialSpec:
    return on_model(spec, record, path=state.portable(record.path))


def _settings(name: str, base: TrialSpec) -> TrialSpec:
    """Return the settings `name` on the model and workload of `base`; raises their `SpecError`."""
    if name == form.TUNE:
        return base
    return ort_default(base) if name == form.DEFAULT else configurations.from_preset(name, base)


def _with_protocol(spec: TrialSpec) -> TrialSpec:
    changes = {"precision": form.chosen_effort(), "budget_s": None, "runs": None}
    return spec.model_copy(update={"protocol": spec.protocol.model_copy(update=changes)})


def _empty() -> None:
    with st.container(border=True):
        st.markdown(
            ":material/checklist: **No targets yet.** Press **Add target** below, or load "
            "the example. Each configuration is then Met, Missed or Not yet known."
        )


# --- measuring ----------------------------------------------------------------------------------------------


def _button(
    card: Sequence[ScorecardRow], work: MissingMeasurements, active: Sequence[Status], action: DeltaGenerator
) -> None:
    action.button(
        "Measuring" if active else MEASURE,
        key="scorecard.run",
        type="primary" if work and not active else "secondary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter",
        disabled=bool(active) or not work or bool(state.closed()),
        help=_why_disabled(work, active),
        on_click=_start,
        args=(work, scorecard.open_targets(card)),
    )


def _why_disabled(work: MissingMeasurements, active: Sequence[Status]) -> str:
    if active:
        return "Wait for the measurements, or cancel them."
    if work and (reason := state.closed()):
        return reason
    return (
        "Measures what is missing: batch sizes, labelled data, and load tests."
        if work
        else "Nothing that could be measured is missing."
    )


def _start(work: MissingMeasurements, before: Sequence[str]) -> None:
    if session_jobs.is_busy("scorecard"):  # a double click
        return
    st.session_state[BEFORE] = list(before)
    try:
        submit = state.scheduler().submit
        wanted = scorecard_jobs(state.session(), work, wait_quiet_s=wait_quiet_s())
        jobs = [submit(one) for one in wanted]
    except TunerError as error:
        messages.keep_error(error, RUN)
        return
    st.session_state[JOBS] = jobs
    session_jobs.follow(jobs[-1], "scorecard")


def _jobs() -> list[Status]:
    found = (session_jobs.status(one) for one in st.session_state.get(JOBS) or [])
    return [one for one in found if one is not None]


def _live(active: Sequence[Status]) -> None:
    with st.container(key="scorecard.live"):
        if not active:
            return
        ids = [one.id for one in active]
        name = f"scorecard-{ids[0]}-{len(ids)}"
        live_view.watch(name, partial(_event, ids), of=ids, key="scorecard.watch")
        st.button(
            "Cancel",
            key="scorecard.cancel",
            icon=":material/stop_circle:",
            on_click=_cancel,
            args=(ids,),
            help="Ends all jobs of this page. Finished measurements are kept.",
        )


def _event(jobs: Sequence[str]) -> Event:
    """Return the state of several jobs, of which the first runs; the page is redrawn after each."""
    known = filter(None, map(session_jobs.status, jobs))
    now = [one for one in known if session_jobs.is_active(one)]
    if len(now) != len(jobs):
        return live_events.ENDED
    left = f" · {len(now) - 1} more to do" if len(now) > 1 else ""
    return live_events.of_job(now[0], "this one", name=now[0].what, more=left)


def _cancel(jobs: Sequence[str]) -> None:
    scheduler = state.scheduler()  # once: Streamlit may rerun the page at any access to the session
    for one in reversed(jobs):  # the running one last, so that no other starts meanwhile
        scheduler.cancel(one)


def _ended(jobs: Sequence[Status], card: Sequence[ScorecardRow]) -> None:
    """Report what the jobs that this session started last have decided, and their errors."""
    seconds = sum(one.elapsed_s for one in jobs)
    if jobs and (lines := scorecard.progress_lines(card, st.session_state.get(BEFORE) or [], seconds)):
        first, *others = lines
        st.info("\n".join([first, "", *(f"- {line}" for line in others)]), icon=":material/timer:")
    if any(one.state == "CANCELLED" for one in jobs):
        st.info("Measuring was cancelled; finished measurements are kept.", icon=":material/cancel:")
    for one in jobs:
        if one.state == "FAIL" and one.error is not None:
            messages.report(one.error)
        for label, message in ((one.result or {}).get("failures") or {}).items():
            st.warning(f"{format.plain(label)}: {format.plain(message)}", icon=":material/warning:")


# --- result -------------------------------------------------------------------------------------------------


def _result(card: Sequence[ScorecardRow]) -> None:
    with st.container(key="scorecard.result", gap="small"):
        st.markdown(f"#### {scorecard.headline(card)} {scorecard.tally(card)}")
        st.table(pd.DataFrame(scorecard.matrix(card)).set_index("Configuration"))
        if len(card) == 1:
            _details(card[0])
            return
        labels = [f"{scorecard.ICONS[row.state][0]} {format.plain(row.subject.label)}" for row in card]
        for tab, row in zip(st.tabs(labels), card, strict=True):
            with tab:
                _details(row)


def _details(row: ScorecardRow) -> None:
    if row.breach:
        st.warning(
            f"The outputs differ from the original's: {format.plain(row.breach)}", icon=":material/warning:"
        )
    if row.calibration:
        st.warning(format.plain(row.calibration), icon=":material/visibility:", title="Seen data")
    for line in scorecard.busy_lines(row):
        st.caption(f":material/groups: {format.plain(line)}")
    st.table(pd.DataFrame(scorecard.details(row)).set_index("Target"))


def _take_away(card: Sequence[ScorecardRow]) -> None:
    labels = {row.subject.label: row for row in card}
    if st.session_state.get(TAKEN) not in labels:
        st.session_state[TAKEN] = next(
            (label for label, row in labels.items() if row.state == "MET"), next(iter(labels))
        )
    with st.container(horizontal=True, vertical_alignment="bottom", key="scorecard.away"):
        st.selectbox(
            "Configuration",
            list(labels),
            key=TAKEN,
            width=300,
            help="Its settings with targets and data: input of `ortune scorecard`.",
            label_visibility="collapsed",
        )
        row = labels[st.session_state[TAKEN]]
        st.download_button(
            "YAML with targets",
            yaml_of(row),
            file_name=f"{file_stem(row.subject.record.name)}-scorecard.yaml",
            mime="application/yaml",
            key="scorecard.download",
            icon=":material/download:",
            on_click="ignore",
        )
        report.offer(lambda: of_card(state.store(), card, _card_name(card)), key="scorecard")


def _card_name(card: Sequence[ScorecardRow]) -> str:
    """Return the ids of the measuring trials: they identify the scorecard's results."""
    found = [trial[:12] for row in card for trial in row.trials]
    return ", ".join(dict.fromkeys(found)) or "nothing measured"


def yaml_of(row: ScorecardRow) -> str:
    """Return the configuration with its targets, its data and the current verdicts as a YAML file."""
    return yaml_from_spec(with_relative_paths(row.subject.spec, open_folders()), measured=row.measured)


page()
