"""One profile on the screen: summary sentence, plot of a view, numbers, tables, and the trace file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.evidence.roofline import Advice, advice, peak_for, peaks_of, settings_first
from core.evidence.statistics import percentile
from core.show.sheets import imported as sheets_imported
from core.show.sheets import trials as sheets
from core.spec import spec_from_dict
from core.store.imported import Imported
from core.wire.errors import TunerError
from core.wire.profile import HOST_TIMED, Profile, profile_from_dict
from dashboard import format, messages, state
from dashboard.charts import profile_charts
from dashboard.charts.profile_charts import ProviderNames
from dashboard.views.profile import plots as profile_plots
from dashboard.views.profile.plots import Shown
from dashboard.widgets import page_frame, peaks

MEAN, MEDIAN = "Mean", "Median"
NOISE_PER_NODE_S = 8e-6  # added by ORT's profiler to a node's own time, at most (5 to 8 µs)
SKEW = 1.25  # mean over median of the profiled runs, above which the screen warns


@st.cache_resource(show_spinner=False, max_entries=8)
def _loaded(trial_id: str) -> tuple[Profile, dict[str, Any], dict[str, Any]]:
    """Read the profile, the rest of the result and the spec; cached, as a complete trial never changes."""
    trial = state.store().trial(trial_id)
    result: dict[str, Any] = {**trial.facts}
    return profile_from_dict(result.pop("profile", {})), result, trial.spec


@st.cache_resource(show_spinner=False, max_entries=4)
def _imported_profile(imported_id: str) -> Profile:
    """Read an imported profile; cached, as it never changes either."""
    return profile_from_dict(state.store().shelf.data(imported_id))


IMPORTED = "imported:"  # prefix of the id of an imported profile among those of trials


def imported(one: Imported, others: Mapping[str, str]) -> None:
    """Draw a profile made elsewhere: marked, and without numbers of this machine."""
    try:
        profile = _imported_profile(one.id)
    except TunerError as error:
        messages.report(error)
        return
    st.warning(
        "Machine, time and settings of an import are not known.",
        title=format.plain(f"Imported: {one.name}"),
        icon=":material/move_to_inbox:",
    )
    places = _places(profile, one.id)
    profile = places.timed(profile)
    shown = Shown(
        profile=profile, ran=ProviderNames(), peak=None, others=others, other=partial(_other, places.basis)
    )
    _draw(places, shown, {}, advice(profile, None, is_imported=True))
    with places.details:
        st.caption(
            format.plain(
                f"{sheets_imported.UNKNOWN} Format: {one.format}; came {format.when(one.created_at)}."
            )
        )


def result(trial_id: str, others: Mapping[str, str], menu: DeltaGenerator) -> None:
    """Draw the profile of a trial.

    Args:
        trial_id: of a complete profile.
        others: profiles to compare it with: id -> label.
        menu: place of further actions.
    """
    try:
        profile, result, asked = _loaded(trial_id)
    except TunerError as error:
        messages.report(error)
        return
    fingerprint, threads = str(result.get("fingerprint") or ""), sheets.threads_of(asked)
    found = peaks.measured(fingerprint) if fingerprint else None
    known = [] if found is None else peaks_of(found)
    peak = peak_for(known, threads)
    places = _places(profile, trial_id)
    profile = places.timed(profile)
    shown = Shown(
        profile=profile,
        ran=_ran(result),
        peak=peak,
        others=others,
        other=partial(_other, places.basis),
        fingerprint=fingerprint or "?",
        threads=threads,
        rows=result.get("batch_size"),
    )
    _draw(places, shown, result, settings_first(advice(profile, peak), asked, known))
    with menu:
        _actions(trial_id, asked)
    with places.details:
        st.caption("Open the trace at `chrome://tracing` (Load) or `ui.perfetto.dev`.")


# --- places -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _PageParts:
    """Parts of the page from top to bottom, and the choices in the row above the plot."""

    top: DeltaGenerator  # summary sentence
    picture: DeltaGenerator
    numbers: DeltaGenerator
    below: DeltaGenerator  # parts of the view below its plot
    details: DeltaGenerator
    view: str
    basis: str

    def timed(self, profile: Profile) -> Profile:
        """Return the profile with the chosen times (means or medians)."""
        return profile_charts.with_medians(profile) if self.basis == MEDIAN else profile


def _places(profile: Profile, profile_id: str) -> _PageParts:
    top = st.container(gap="xsmall", key="profile.top")
    with st.container(gap="xsmall", key="profile.first"):
        row = st.container(horizontal=True, vertical_alignment="center", key="profile.controls")
        picture = st.container()
    with row:
        view = profile_plots.choose()
        st.space("stretch")
        basis = _basis(profile, profile_id)
    return _PageParts(
        top=top,
        picture=picture,
        numbers=st.container(gap="xsmall", key="profile.numbers"),
        below=st.container(),
        details=st.expander("Details", icon=":material/info:", key="profile.details"),
        view=view,
        basis=basis,
    )


def _draw(places: _PageParts, shown: Shown, result: Mapping[str, Any], said: Advice) -> None:
    profile = shown.profile
    with places.top:
        _sentence(said)
        _warnings(profile, result, shown.ran)
        _skewed(profile, places.basis)
    with places.below:
        profile_plots.draw(places.view, shown, places.picture)
    with places.numbers:
        _metrics(profile, result, places.basis.lower())
        if said.remedy:
            st.markdown(f":material/lightbulb: {format.plain(said.remedy)}")
        _remarks(profile, result)
    with places.details:
        _about(profile, result)


def _other(basis: str, chosen: str) -> tuple[Profile, ProviderNames, int | None]:
    """Return the profile to compare with, in the same times; `IMPORTED` marks one made elsewhere."""
    rows = None
    if chosen.startswith(IMPORTED):
        profile, ran = _imported_profile(chosen.removeprefix(IMPORTED)), ProviderNames()
    else:
        profile, result, _ = _loaded(chosen)
        ran, rows = _ran(result), result.get("batch_size")
    return (profile_charts.with_medians(profile) if basis == MEDIAN else profile), ran, rows


def _ran(result: Mapping[str, Any]) -> ProviderNames:
    return ProviderNames(
        requested=tuple(result.get("requested_providers") or ()),
        effective=tuple(result.get("effective_providers") or ()),
        fallback=bool(result.get("fallback")),
    )


def _sentence(said: Advice) -> None:
    """Draw the summary sentence."""
    if said.sentence:
        st.subheader(format.plain(said.sentence), anchor=False)


def _unprofiled_s(result: Mapping[str, Any]) -> float | None:
    samples = result.get("unprofiled_latencies_s") or []
    return percentile(samples, 0.5) if samples else None


def _metrics(profile: Profile, result: Mapping[str, Any], basis: str) -> None:
    off, on = _unprofiled_s(result), percentile(profile.run_s, 0.5)
    total = profile.self_s + profile.remainder_s
    with st.grid(4, min_column_width=150):
        st.metric(
            "Profiler off (p50)",
            format.ms(off),
            help="The same process without the profiler. Compare this with the latency on Tune.",
        )
        st.metric(
            "Profiler on (p50)",
            format.ms(on),
            delta=f"{format.percent(on / off - 1)} by the profiler" if off else None,
            delta_color="off",
            delta_arrow="off",
            help="The other times include this cost: read them as shares.",
        )
        st.metric(
            f"In nodes ({basis})",
            format.ms(profile.self_s),
            delta=f"{profile.self_s / total:.1%} of a run" if total else None,
            delta_color="off",
            delta_arrow="off",
            help="Self times of all nodes per run. An If or Loop body counts once.",
        )
        st.metric(
            f"Between nodes ({basis})",
            format.ms(profile.remainder_s),
            delta=f"{profile.remainder_s / total:.1%} of a run" if total else None,
            delta_color="off",
            delta_arrow="off",
            help="The rest of a run, with profiler overhead.",
        )


def _about(profile: Profile, result: Mapping[str, Any]) -> None:
    """Draw how the numbers were obtained."""
    calls = sum(node.calls_per_run for node in profile.nodes)
    st.caption(
        f"{profile.runs} runs of {_rows(result)}, {len(profile.nodes):,} nodes, "
        f"{calls:,.0f} node calls per run. Profiler overhead of 5 to 8 µs per call: up to "
        f"{format.ms(min(calls * NOISE_PER_NODE_S, profile.self_s), 2)} of the time in "
        "nodes."
    )
    st.caption("Means add up to the mean run. Medians ignore single stalls.")


def _basis(profile: Profile, profile_id: str) -> str:
    """Draw the choice between means and medians; a skewed profile starts with medians."""
    return str(
        st.segmented_control(
            "Times",
            [MEAN, MEDIAN],
            key=f"profile.basis.{profile_id}",
            default=MEDIAN if profile_charts.skew(profile) > SKEW else MEAN,
            required=True,
            label_visibility="collapsed",
            width="content",
        )
    )


def _skewed(profile: Profile, basis: str) -> None:
    if (ratio := profile_charts.skew(profile)) > SKEW:
        shown = "Medians are shown. " if basis == MEDIAN else ""
        st.warning(
            f"A few slow runs raise the mean ({ratio:.1f}× the median). {shown}Profile more "
            "runs, or on an idle machine.",
            icon=":material/warning:",
        )


def _rows(result: Mapping[str, Any]) -> str:
    rows = result.get("batch_size")
    if rows is None:
        return "an unknown number of samples"
    return "1 sample" if rows == 1 else f"{format.count(rows)} samples"


def _warnings(profile: Profile, result: Mapping[str, Any], ran: ProviderNames) -> None:
    if ran.fallback:
        st.warning(
            format.plain(
                f"Fallback. Requested: {', '.join(ran.requested)}; used: "
                f"{', '.join(ran.effective)}. {result.get('fallback_reason', '')}"
            ),
            icon=":material/warning:",
        )
    if profile.truncated:
        lost = "an unknown number of" if profile.dropped_events is None else f"{profile.dropped_events:,}"
        st.warning(
            f"The profile was cut off: {lost} events are missing. The {profile.runs} complete runs are "
            "shown. Profile fewer runs to get all of them.",
            icon=":material/content_cut:",
        )
    if any(node.provider in HOST_TIMED for node in profile.nodes):
        st.info(
            "CUDA and TensorRT nodes show **host launch time**, not GPU time: that shows up in nodes that "
            "wait for it and between the nodes.",
            icon=":material/info:",
        )


def _remarks(profile: Profile, result: Mapping[str, Any]) -> None:
    if profile.parallel:
        st.caption(
            ":material/call_split: Nodes of one run overlapped on several threads: their times add up to "
            "more than the run."
        )
    _inserted(profile, result)


def _inserted(profile: Profile, result: Mapping[str, Any]) -> None:
    nodes = [node for node in profile.nodes if node.inserted]
    if not nodes:
        return
    kinds: dict[str, int] = {}
    for node in nodes:
        kinds[node.op_type] = kinds.get(node.op_type, 0) + 1
    share = sum(node.share for node in nodes)
    ordered = sorted(kinds.items(), key=lambda kv: -kv[1])
    names = format.plain(", ".join(f"{count} {kind}" for kind, count in ordered))
    fp32 = (result.get("casts") or {}).get("computes_in_float32")
    extra = " The heavy operators compute in **FP32** behind these Casts." if fp32 else ""
    st.caption(
        f":material/add_box: ONNX Runtime inserted {len(nodes)} node{'s' * (len(nodes) != 1)}: {names}; "
        f"{share:.1%} of the time in nodes.{extra}"
    )


# --- export -----------------------------------------------------------------------------------------------


def _actions(trial_id: str, asked: Mapping[str, Any]) -> None:
    trace = state.store().artifact_path(trial_id, "trace.json")
    if st.button("Use settings in Tune", key="profile.use", icon=":material/tune:", width="stretch"):
        _use(asked)
    st.download_button(
        "Download trace",
        data=_reader(trace),
        file_name=f"trace_{trial_id[:8]}.json",
        mime="application/json",
        key="profile.download",
        icon=":material/download:",
        on_click="ignore",
        width="stretch",
        disabled=not trace.is_file(),
        help="ONNX Runtime's own file in Chrome's trace format."
        if trace.is_file()
        else "The trace file is no longer there.",
    )
    page_frame.link("graph", "Show in the graph", trial=trial_id)
    page_frame.link("profile", "Link to this profile", icon="link", trial=trial_id)


def _reader(trace: Path) -> Callable[[], bytes]:
    return lambda: trace.read_bytes()


def _use(asked: Mapping[str, Any]) -> None:
    spec = spec_from_dict(asked)
    runs = state.current_spec().protocol.runs  # profiled runs do not count here
    spec = spec.model_copy(update={"protocol": spec.protocol.model_copy(update={"runs": runs})})
    try:
        state.apply_spec(spec)
    except TunerError as error:
        messages.report(error)
        return
    page_frame.switch_to("tune")
