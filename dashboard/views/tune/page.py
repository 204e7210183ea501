"""Tune page: settings on the left; on the right their comparison with the baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.api.measuring import tune_job
from core.evidence.comparison import DEFAULT_LABEL, Comparison, same_request
from core.evidence.measurement import Trial
from core.evidence.verdict import is_rejected
from core.show import cells
from core.show.report.subjects import AboutTrial
from core.spec import TrialSpec
from core.spec.effort import DEFAULT_MARGIN
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.output_check import breach
from dashboard import demo, derived_rows, format, live_events, messages, session_jobs, state, url_state
from dashboard.charts import compare_charts
from dashboard.demo import first_view
from dashboard.live_events import ACTIVE
from dashboard.shown_result import TUNE
from dashboard.views.tune import live_estimate
from dashboard.widgets import (
    controls,
    feeding,
    job_box,
    live_view,
    measure_longer,
    page_frame,
    past_results,
    playback,
    plots,
    provider_chain,
    report,
    results,
    tables,
    trial_result,
    uploads,
)
from dashboard.widgets.protocol import wait_quiet_s

PLOT_PX = 440  # of the chart of both latency distributions, as high as the screen allows


def page() -> None:
    trial = _shown()
    record = state.current_model()
    if record is not None and (trial is None or TUNE.is_new_model(record)):
        trial = _newest(record)
    if record is not None and trial is not None and trial.state == "COMPLETE":
        with contextlib.suppress(TunerError):  # of another version: the result is shown without settings
            controls.load_result_settings(state.trial_spec(trial))
    if record is not None:
        state.seed(record)
    spec, reason = _ready(record, trial)
    ratio = _run_bar(record, trial, spec, reason)
    settings, result = page_frame.panes()
    if record is not None:
        with settings:
            controls.settings(record)
    with result:
        _result_side(record, trial, spec, ratio)
    page_frame.foot("tune", lambda key: _run_or_cancel(trial, spec, reason, key=key))


def _shown() -> Trial | None:
    """Return the trial of the link or of this session, or that on which a demonstration opens."""
    if TUNE.id is None and not url_state.named(state.TRIAL_PARAM) and (first := first_view.opening()):
        TUNE.link(first)
    return TUNE.open(state.store().trial, _load)


def _load(trial: Trial) -> None:
    if trial.kind in ("profile", "load"):  # they have no result here
        TUNE.show(None)
        page_frame.switch_to(trial.kind, trial=trial.id)
    state.apply_spec(state.trial_spec(trial))


def _newest(record: ModelRecord) -> Trial | None:
    """Return the newest measurement of a newly chosen model."""
    found = state.measured(record, limit=1)
    trial = state.store().trial(found[0].id) if found else None
    TUNE.show(None if trial is None else trial.id)
    return trial


# --- running ----------------------------------------------------------------------------------------------


def _run_bar(
    record: ModelRecord | None, trial: Trial | None, spec: TrialSpec | None, reason: str
) -> DeltaGenerator:
    """Draw the fixed bar: model, result, Run or Cancel; return the place of the live ratio."""
    bar = page_frame.bar("Tune")
    with bar.model:
        controls.model_picker()
    with bar.choice:
        if record is not None and trial is not None:
            _earlier(record, trial)
        ratio = st.container(key="bar.ratio", width="content")
        with st.container(
            horizontal=True, horizontal_alignment="right", gap="small", width="content", key="bar.said"
        ):
            if spec is not None and not reason:
                _size_badges(record)
            if spec is not None and trial is not None and trial.state == "COMPLETE" and _differs(spec, trial):
                st.badge(
                    "Settings differ from this result",
                    icon=":material/sync_problem:",
                    color="orange",
                    help="The result below belongs to other settings. Press Run to measure these.",
                )
    with bar.more:
        live_estimate.switch()
    with bar.action:
        _run_or_cancel(trial, spec, reason, key="run")
    return ratio


def _run_or_cancel(trial: Trial | None, spec: TrialSpec | None, reason: str, *, key: str) -> None:
    if trial is not None and trial.state in ACTIVE:
        words = "Stops the worker process; the trial is kept as cancelled."
        job_box.cancel(trial.id, key=key.replace("run", "cancel"), help=words)
        return
    if trial is not None and playback.button(trial.id, key=key):
        return
    reason = state.closed() or reason
    st.button(
        "Run",
        key=key,
        type="primary",
        icon=":material/play_arrow:",
        shortcut="Ctrl+Enter" if key == "run" else None,
        disabled=bool(reason),
        help=reason or f"Compare these settings with {format.plain(_baseline_label(spec))}.",
        on_click=run,
    )


def _size_badges(record: ModelRecord | None) -> None:
    for source, text in (feeding.proposed_size_texts(record) if record is not None else {}).items():
        is_guess = source == "guess"
        st.badge(
            format.plain(text),
            icon=":material/help:" if is_guess else ":material/straighten:",
            color="orange" if is_guess else "gray",
            help="The model has dynamic dimensions. Set their sizes under Workload.",
        )


def _baseline_label(spec: TrialSpec | None) -> str:
    """Return the label of the next run's baseline."""
    try:
        found = session_jobs.baseline(spec) if spec is not None else None
    except TunerError as error:
        messages.report(error)
        return DEFAULT_LABEL
    return found.label if found is not None else DEFAULT_LABEL


def _ready(record: ModelRecord | None, trial: Trial | None) -> tuple[TrialSpec | None, str]:
    """Return the current settings, and why they cannot run now (empty when they can)."""
    if record is None:
        return None, "Choose a model first."
    try:
        spec = state.current_spec()
    except TunerError as error:
        return None, f"{error.message} {error.hint}"
    if trial is not None and trial.state in ACTIVE:
        return spec, "A trial is running; wait for it or cancel it."
    return spec, state.lacking(spec, record)


def _differs(spec: TrialSpec, trial: Trial) -> bool:
    try:
        return state.trial_spec(trial).key() != spec.key()
    except TunerError:
        return True


def run() -> None:
    """Submit the current settings for comparison with the pinned baseline and the ORT default."""
    try:
        spec = state.current_spec()
        record = state.current_model()
        job = tune_job(
            state.session(),
            spec,
            baseline=session_jobs.baseline(spec),
            model_name=record.name if record else None,
            wait_quiet_s=wait_quiet_s(),
        )
        trial_id = session_jobs.submit(job)
    except TunerError as error:
        messages.keep_error(error)
    else:
        session_jobs.follow(trial_id, "tune", trial=trial_id)
        TUNE.show(trial_id)


# --- result -----------------------------------------------------------------------------------------------


def _result_side(
    record: ModelRecord | None, trial: Trial | None, spec: TrialSpec | None, ratio: DeltaGenerator
) -> None:
    messages.show_kept_error()
    if record is not None:
        live_estimate.draw(record, spec, busy=trial is not None and trial.state in ACTIVE, ratio=ratio)
    if trial is None:
        _empty(record)
        return
    if trial.state in ACTIVE or playback.playing(trial.id):
        _watch(trial, ratio)
        return
    if trial.state == "COMPLETE" and trial.result:
        _complete(trial, spec)
    else:
        results.header(trial)
        trial_result.unfinished(trial, key="tune")
        if trial.error and trial.error["type"] == "ProviderError":
            provider_chain.provider_remedies("failed")
            st.caption("Then press **Run** again.")


def _earlier(record: ModelRecord, shown: Trial) -> None:
    """Draw the list of the model's results; choosing one does not change the settings."""
    labels = derived_rows.of_trials(
        state.measured_by(record), "tune.labels", results.trial_label, limit=EARLIER
    )
    past_results.offer(
        "Results of this model",
        labels,
        shown=shown.id,
        key=PICKED,
        on_select=TUNE.show,
        help="Newest first. Your settings stay; use History to load those of a result.",
    )


def _added(record: ModelRecord, new: bool) -> None:
    """Choose a newly added model."""
    state.choose_model(record)
    messages.notify_added(record, new)


EARLIER = 50
PICKED = "tune.earlier"


def _empty(record: ModelRecord | None) -> None:
    """Draw the start view: three steps with links to other starting points, beside a recorded result.

    The recorded result goes when Live shows an estimate of this machine.
    """
    steps, example = st.columns(2)
    if not st.session_state.get(live_estimate.ON):
        with example, st.container(border=True, key="first.example"):
            _example()
    chosen = f" {format.plain(record.name)} is chosen." if record else ""
    with steps, st.container(border=True, key="first"):
        st.markdown(f"**1** Choose a model.{chosen}  \n**2** Change a setting.  \n**3** Run.")
        if not state.closed():
            uploads.model("first", _added)
        with st.container(horizontal=True, gap="medium"):
            page_frame.link("models", "Add a model")
            page_frame.link("search", "Find the best settings")
            page_frame.link("history", "Open an earlier result")


def _example() -> None:
    """Draw a recorded result of the sample model as a run shows it."""
    shown = demo.example()
    st.caption(f":material/history: {format.plain(shown['origin'])}")
    st.markdown(f"{format.icon(shown['icon'])} **{format.plain(shown['sentence'])}**")
    st.caption(format.plain(f"{shown['model']}, {shown['settings']}, {shown['against']}"))
    contrast = {**shown["contrast"], "label": shown["settings"]}
    names = {contrast["baseline"]: shown["baseline"]}
    info = compare_charts.forest_info(
        [contrast], names, baseline=contrast["baseline"], margin=shown["margin"]
    )
    plots.draw(
        compare_charts.forest(info, slim=True),
        "Speed versus reference",
        key="first.forest",
        alt=f"{shown['settings']}: {shown['sentence']}, {shown['against']}. {shown['origin']}",
    )


def _watch(trial: Trial, ratio: DeltaGenerator) -> None:
    """Draw what is fixed while a trial runs, its live view, and the live ratio in the bar."""
    results.header(trial, live=True)
    field, margin = trial_result.compared_configurations(trial), _margin(trial)
    name, follow = live_view.stream(
        trial.id,
        lambda status, _: live_events.of_trial(status, field, margin),
        partial(_elsewhere, trial.id),
    )
    tick_s = live_view.pace(trial.id, trial.state)
    with st.container(key="live"):
        live_view.watch(name, follow, of=[trial.id], key="tune.watch", tick_s=tick_s)
    with ratio:
        live_view.watch(name, follow, of=[trial.id], key="tune.watch.ratio", part="ratio", tick_s=tick_s)


def _elsewhere(trial_id: str) -> str | None:
    trial = state.store().trial(trial_id)
    return f"Being measured by {trial.owner}" if trial.state in ACTIVE else None


def _margin(trial: Trial) -> float:
    try:
        return state.trial_spec(trial).protocol.margin
    except TunerError:
        return DEFAULT_MARGIN


def _complete(trial: Trial, spec: TrialSpec | None) -> None:
    compared = trial_result.comparison_of(trial)
    pinned = _pinned(trial)
    offer_comparison = pinned is not None and pinned.id != trial.id and not _includes(compared, pinned)
    crowded = offer_comparison or (
        compared is not None and (len(compared.contrasts) > 1 or is_rejected(compared.contrast))
    )
    with st.container(key="verdict", gap="xsmall"):
        actions = partial(_actions, trial, pinned, compared)
        trial_result.head(trial, compared, actions, settings=spec is None or _differs(spec, trial))
        if compared is not None and compared.contrasts and not crowded:
            trial_result.forest(compared)
    trial_result.latency_over_time(trial, compared, key="tune", height=PLOT_PX)
    trial_result.numbers(trial, compared)
    if compared is not None:
        trial_result.card_details(compared)
    if pinned is not None and offer_comparison:
        trial_result.offer_comparison(trial, pinned)
    _further(trial, compared, forest=crowded and compared is not None and bool(compared.contrasts))


def _further(trial: Trial, compared: trial_result.TrialComparison | None, *, forest: bool) -> None:
    """Draw further details in tabs: distribution, cold start, cost, providers used, both configurations.

    Args:
        trial: that is shown.
        compared: its comparison.
        forest: whether the intervals are drawn here, because warnings take their place at the verdict.
    """
    baseline = compared.baseline if compared is not None else None
    shown: dict[str, Callable[[], None]] = {
        "More numbers": lambda: trial_result.latency(trial, compared),
        "Distribution": lambda: trial_result.latency_distribution(trial, compared, key="tune"),
        "Cold start": lambda: trial_result.cold_start(trial, compared),
        "Cost": lambda: trial_result.cost(trial, compared),
        "Providers used": lambda: results.run_details(trial.facts),
    }
    if baseline is not None:
        shown["Versus baseline"] = lambda: _versus_baseline(trial, baseline)
    if compared is not None and forest:
        shown = {"Ratio": partial(trial_result.forest, compared), **shown}
    shown["Details"] = lambda: _details(trial, compared)
    tabs = st.tabs(list(shown), key="further", on_change="rerun")
    for tab, (name, draw) in zip(tabs, shown.items(), strict=True):
        with tab:
            if name != "Distribution" or tab.open:  # it reads every measurement again
                draw()


def _details(trial: Trial, compared: trial_result.TrialComparison | None) -> None:
    """Draw the trial's name, output check and notes."""
    results.header(trial, judged=compared is not None)
    if not breach(trial.facts):  # else it is next to the numbers
        results.outputs(trial.facts)
    results.notes(trial.facts, said=trial_result.warnings(compared))


def _longer_button(trial: Trial, comparison: Comparison) -> None:
    def follow(more: Comparison) -> None:
        goes_on = measure_longer.continued_trial(trial.id, comparison, more)
        session_jobs.follow(goes_on, "tune", trial=goes_on)
        TUNE.show(goes_on)

    measure_longer.button("tune", comparison, state.store().trials_of(comparison.id), follow)


def _pinned(trial: Trial) -> Trial | None:
    """Return the currently pinned baseline; the trial may have been compared with an earlier one."""
    pinned = state.store().baseline(trial.model_sha256)
    return state.trial_if_kept(pinned) if pinned is not None else None


def _includes(compared: trial_result.TrialComparison | None, pinned: Trial) -> bool:
    """Return whether the pinned trial, or the same configuration measured again, ran in this comparison."""
    if compared is None:
        return False
    try:
        wanted = state.trial_spec(pinned)
        return any(same_request(state.trial_spec(one), wanted) for one in compared.beside)
    except TunerError:
        return any(one.id == pinned.id for one in compared.beside)


def _actions(trial: Trial, pinned: Trial | None, compared: trial_result.TrialComparison | None) -> None:
    if compared is not None and compared.baseline is not None:
        trial_result.explain_link(compared.baseline.id, trial.id)
    page_frame.link("export", "Export", trial=trial.id)
    comparison, beside = (compared.comparison, compared.beside) if compared is not None else (None, ())
    report.offer(lambda: AboutTrial(trial=trial, comparison=comparison, beside=beside), key="tune")
    with st.popover("More", icon=":material/more_horiz:", key="tune.more"):
        if compared is not None:
            _longer_button(trial, compared.comparison)
        is_pinned = pinned is not None and pinned.id == trial.id
        trial_result.pin_button(trial.model_sha256, trial.id, is_pinned=is_pinned, key="pin")
        page_frame.link("profile", "Profile", trial=trial.id)
        st.caption("The address that opens this result in any browser:")
        st.code(url_state.link({state.TRIAL_PARAM: trial.id}), language=None, wrap_lines=True)


def _versus_baseline(trial: Trial, baseline: Trial) -> None:
    st.caption("Settings that differ and all numbers, measured in the same rounds.")
    tables.draw(
        cells.comparison(trial, baseline),
        key="comparison",
        alt="Settings that differ and the numbers of this result and of the baseline",
    )


page()
