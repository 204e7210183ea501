"""The views of one profile: operators, nodes, areas, roofline, providers, timeline, pair of profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.evidence.roofline import Peak
from core.evidence.roofline import points as roofline_points
from core.show.sheets import trials as sheets
from core.show.table import Column, Table, column_of, matching, tabulate
from core.wire.errors import TunerError
from core.wire.profile import Profile
from dashboard import format, state
from dashboard.charts import profile_charts, profile_pair_charts, roofline_charts
from dashboard.charts.profile_charts import ProviderNames, Timeline
from dashboard.widgets import peaks, plots, tables

VIEW, SEARCH, OVER = "profile.view", "profile.search", "profile.over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A profile on the page, and its context."""

    profile: Profile  # with the chosen times
    ran: ProviderNames
    peak: Peak | None
    others: Mapping[str, str]  # profiles to compare it with: id -> label
    # reads one, with its samples per inference
    other: Callable[[str], tuple[Profile, ProviderNames, int | None]]
    rows: int | None = None  # samples per inference; None: not known
    fingerprint: str = ""  # of the machine that made it; empty: made elsewhere
    threads: int = 0  # requested threads of its session

    @property
    def is_imported(self) -> bool:
        """Whether it was made on an unknown machine."""
        return not self.fingerprint


def choose() -> str:
    """Draw the choice of the view and return it."""
    return str(
        st.segmented_control(
            "View",
            list(_VIEWS),
            key=VIEW,
            default=None if VIEW in st.session_state else "Operators",
            required=True,
            label_visibility="collapsed",
            width="content",
            persist_state="session",
        )
    )


def draw(view: str, shown: Shown, picture: DeltaGenerator) -> None:
    """Draw the plot of a view in its place, and its further parts here."""
    _VIEWS[view](shown, picture)


def _operators(shown: Shown, picture: DeltaGenerator) -> None:
    profile, ran = shown.profile, shown.ran
    with picture:
        plots.draw(
            profile_charts.bars(profile_charts.operator_info(profile, ran)),
            "Self time by operator type",
            key="profile.operators",
            alt="Self time per run by operator type.",
        )
    _table(sheets.operators(profile, ran.name), "operators", search="Search operators")


def _nodes(shown: Shown, picture: DeltaGenerator) -> None:
    profile, ran = shown.profile, shown.ran
    with picture:
        plots.draw(
            profile_charts.bars(profile_charts.node_info(profile, ran)),
            "Self time of the longest nodes",
            key="profile.nodes",
            alt="Self time per run of the longest nodes.",
        )
    _table(
        sheets.nodes(profile, ran.name, peak=shown.peak),
        "nodes",
        search="Search nodes by name, operator, provider, type or shape",
    )


def _treemap(shown: Shown, picture: DeltaGenerator) -> None:
    tiles = profile_charts.treemap_info(shown.profile, shown.ran)
    with picture:
        plots.draw(
            profile_charts.treemap(tiles),
            "Self time as areas",
            key="profile.treemap",
            alt=f"Self time as areas: {len({one.op_type for one in tiles})} operator types and their nodes.",
        )
    st.caption("An area is a self time per run. Click an operator type for its nodes.")


def _roofline(shown: Shown, picture: DeltaGenerator) -> None:
    points = roofline_points(shown.profile, shown.peak)
    if not points:
        picture.info(
            "No node of this profile has countable operations; see the table under Nodes.",
            icon=":material/roofing:",
        )
        return
    _roof_state(shown)
    with picture:
        plots.draw(
            roofline_charts.roofline(points, shown.peak),
            "Roofline",
            key="profile.roofline",
            alt=f"Roofline: {len(points)} nodes, operations per second over operations per byte.",
        )
    hollow = sum(not one.is_clear for one in points)
    missing = len(shown.profile.nodes) - len(points)
    st.caption(
        "Larger: more time. Nodes above the sloping line read from a cache. "
        + (f"{hollow} hollow: too short for the profiler to measure their rate. " if hollow else "")
        + (f"{missing} of {len(shown.profile.nodes)} nodes are not counted." if missing else "")
    )


def _roof_state(shown: Shown) -> None:
    """Name the roof in the plot; without one, offer to measure it."""
    if shown.is_imported:
        st.info(
            "The peaks of the profiled machine are not known, so no roof is drawn.",
            icon=":material/move_to_inbox:",
        )
        return
    try:
        here = state.environment()["fingerprint"] == shown.fingerprint
    except TunerError:
        here = False
    if shown.peak is not None:
        words = sheets.peak_words(shown.peak, [shown.peak], shown.threads)
        st.caption(format.plain(f"The roof: {words}. See Machine."))
        return
    if not here:
        st.info(
            "This profile is from another machine or other libraries without measured peaks: "
            "no roof is drawn.",
            icon=":material/roofing:",
        )
        return
    threads = f" with {shown.threads} threads" if shown.threads > 1 else ""
    st.info(
        f"The peaks of this machine{threads} are not measured yet, so no roof is drawn.",
        icon=":material/roofing:",
    )
    peaks.button("profile", again=False, threads=shown.threads)
    peaks.progress("profile")


def _providers(shown: Shown, picture: DeltaGenerator) -> None:
    profile, ran = shown.profile, shown.ran
    with picture:
        plots.draw(
            profile_charts.bars(profile_charts.provider_info(profile, ran)),
            "Self time by execution provider",
            key="profile.providers",
            alt="Self time per run by execution provider, and the rest between the nodes.",
        )
    _table(sheets.providers(profile, ran.name), "providers", search=None)


def _timeline(shown: Shown, picture: DeltaGenerator) -> None:
    profile = shown.profile
    words, zoom = _timeline_search("timeline")
    info = profile_charts.timeline_info(profile, shown.ran, words=words)
    _found(info)
    with picture:
        plots.draw(
            profile_charts.timeline(info, zoom=zoom),
            "Timeline of one run",
            key="profile.timeline",
            wheel=True,
            alt=f"Timeline of one run with {info.drawn} kernel executions.",
        )
    st.caption(
        f"Run {profile.timeline_run + 1} of {profile.runs}, the one with the median duration. "
        f"{_HOW_TO_ZOOM}{_omitted(info)}"
    )


_HOW_TO_ZOOM = "Drag or turn the wheel to zoom, double-click to see all of it again."


def _timeline_search(name: str) -> tuple[str, bool]:
    """Draw the search field of a timeline and its switch; return the search text and whether to zoom."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = st.text_input(
            "Search the timeline by node, operator or provider",
            key=f"{SEARCH}.{name}",
            icon=":material/search:",
            placeholder="all words must occur",
            live="300ms",
            help="Matches keep their colour.",
        )
        zoom = st.toggle(
            "Zoom to what is found",
            key=f"profile.zoom.{name}",
            disabled=not words,
            help="From the first to the last match.",
        )
    return words or "", bool(zoom and words)


def _found(info: Timeline) -> None:
    if info.found is None:
        return
    if not info.found:
        st.caption("No match on the timeline.")
        return
    total = sum(sum(one.ms) for one in info.bundles if one.op_type != profile_charts.NOT_FOUND)
    st.caption(f"{info.found:,} of {info.drawn:,} executions match; {format.ms(total / 1000.0)} together.")


def _omitted(info: Timeline) -> str:
    if not info.omitted:
        return ""
    return f" The {info.omitted:,} shortest of {info.drawn + info.omitted:,} executions are left out."


# --- comparison of two profiles ----------------------------------------------------------------------------


def _pair(shown: Shown, picture: DeltaGenerator) -> None:
    if not shown.others:
        picture.info(
            "There is no other profile of this model to compare with.",
            icon=":material/compare:",
        )
        return
    chosen = picture.selectbox(
        "Compare with",
        list(shown.others),
        key=OVER,
        format_func=lambda one: shown.others.get(one, str(one)),
        help="A is the profile above, B this one.",
    )
    try:
        other, ran, rows = shown.other(str(chosen))
    except TunerError as error:
        state.report(error)
        return
    if None not in (shown.rows, rows) and shown.rows != rows:
        st.warning(
            f"A ran {shown.rows} samples per run and B {rows}: the times are per run.",
            icon=":material/table_rows:",
        )
    names = ("the profile above", shown.others[str(chosen)])
    info = profile_pair_charts.pair_info(shown.profile, other)
    with picture:
        plots.draw(
            profile_pair_charts.pair(info, names),
            "Self time of both profiles by operator type",
            key="profile.pair",
            alt="Self time per run by operator type, of both profiles.",
        )
    words, zoom = _timeline_search("pair")
    both = profile_pair_charts.pair_timeline_info(shown.profile, other, (shown.ran, ran), words=words)
    _found(both)
    with picture:
        plots.draw(
            profile_charts.timeline(both, zoom=zoom),
            "Timelines of both profiles",
            key="profile.pair.timeline",
            wheel=True,
            alt="Timelines of the median run of both profiles, on one axis.",
        )
    tables.draw(pairs_table(info), key="profile.table.pair", alt="Times by operator type of both profiles")
    st.caption(
        f"{_HOW_TO_ZOOM}{_omitted(both)} Measured at different times, so differences are "
        "no verdict. Explain compares two results."
    )


_VIEWS: Mapping[str, Callable[[Shown, DeltaGenerator], None]] = {
    "Operators": _operators,
    "Nodes": _nodes,
    "Treemap": _treemap,
    "Roofline": _roofline,
    "Providers": _providers,
    "Timeline": _timeline,
    "Two profiles": _pair,
}


def pairs_table(info: Sequence[profile_pair_charts.Pair]) -> Table:
    return tabulate(
        info,
        (Column("operator", tells=True), lambda one: one.op_type),
        (Column("A", "ms", per="run"), lambda one: one.ms[0] / 1e3),
        (Column("B", "ms", per="run"), lambda one: one.ms[1] / 1e3),
        (Column("B minus A", "ms", per="run", signed=True), lambda one: one.difference_ms / 1e3),
        (Column("nodes of A", "count"), lambda one: one.nodes[0]),
        (Column("nodes of B", "count"), lambda one: one.nodes[1]),
    )


def _table(table: Table, name: str, *, search: str | None) -> None:
    words = tables.search(search, key=f"{SEARCH}.{name}") if search is not None else ""
    found = matching(table, words)
    if words:
        share = sum(float(one or 0) for one in column_of(found, "share"))
        st.caption(f"{len(found.rows)} of {len(table.rows)} lines; {share:.1%} of the time in nodes.")
    tables.draw(found, key=f"profile.table.{name}", alt=f"Times by {name}; {tables.SORTABLE}")
