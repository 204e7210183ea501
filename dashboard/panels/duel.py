"""A trial's duel on the screen: the verdict card, both sides over time, the cold start and the cost.

The words come from `verdict` and `cells`; this module draws them. It reads the store, it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from core.cold_start import break_even
from core.comparison import Comparison
from core.errors import TunerError
from core.measurement import Trial
from dashboard import charts, format, state
from dashboard.charts import compare_charts, duel_charts
from dashboard.panels import cells, results, verdict

PLAIN_GRADES = ("A",)  # their reason needs no sentence of its own on the card
QUIET_PAGE = "views/machine.py"
COMPARE_PAGE = "views/compare.py"
TRIALS_PARAM = "trials"  # ?trials=<id>,<id> of the Compare page


@dataclass(frozen=True, slots=True, kw_only=True)
class Duel:
    """A trial, the race it ran in, and what raced beside it."""

    trial: Trial
    comparison: Comparison
    contrasts: list[verdict.Contrast]  # of the trial; the first is the one that counts
    baseline: Trial | None  # measured again in the same rounds; None: the trial is the baseline itself
    others: list[Trial]  # the rest of the race

    @property
    def verdict(self) -> str | None:
        """The verdict as `cells.latency_cells` takes it."""
        if not self.contrasts:
            return None
        return cells.REJECTED if verdict.is_rejected(self.comparison) else str(self.contrasts[0]["verdict"])


def duel_of(trial: Trial) -> Duel | None:
    """Return the race of `trial`; None where it never raced, or the race is not kept any more."""
    if not trial.comparison:
        return None
    try:
        comparison = state.store().comparison(trial.comparison)
    except TunerError:  # deleted since
        return None
    own = verdict.contrasts_of(comparison, trial.id)
    beside = [
        found for one in comparison.contestants if one.trial != trial.id if (found := _trial(one.trial))
    ]
    against = own[0]["baseline"] if own else None
    return Duel(
        trial=trial,
        comparison=comparison,
        contrasts=own,
        baseline=next((one for one in beside if one.id == against), None),
        others=[one for one in beside if one.id != against],
    )


def _trial(trial_id: str) -> Trial | None:
    try:
        return state.store().trial(trial_id)
    except TunerError:  # deleted since
        return None


# --- the verdict --------------------------------------------------------------------------------------------


def card(duel: Duel) -> None:
    """Draw what the race said, how sure that is, and what to do where it is not."""
    with st.container(border=True, key="verdict"):
        if not duel.contrasts:
            _alone(duel)
            return
        said = verdict.card(duel.comparison, duel.contrasts[0])
        _headline(said.icon, said.headline, duel)
        st.caption(format.plain(" · ".join([said.against, *said.facts])))
        for contrast in duel.contrasts[1:] if not said.rejected else ():
            more = verdict.card(duel.comparison, contrast)
            st.markdown(f"{more.icon} {format.plain(f'{more.headline}, {more.against}')}")
        _trust(duel, said)
        for line in said.warnings:
            st.markdown(f":orange[:material/warning:] {format.plain(line)}")
        for note in (duel.comparison.result or {}).get("notes") or []:
            st.caption(f":material/info: {format.plain(verdict.sentence(str(note)))}")
        _forest(duel, muted=said.rejected)


def _headline(icon: str, text: str, duel: Duel) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.header(f"{icon} {format.plain(text)}", anchor=False, width="content")
        st.space("stretch")
        result = duel.comparison.result or {}
        results.breach_badge(duel.trial.result)
        results.grade_badge(result.get("grade"), result.get("grade_reason", ""))


def _trust(duel: Duel, said: verdict.Card) -> None:
    """The grade's reason where there is one to tell, and what would help."""
    result = duel.comparison.result or {}
    reason = "" if result.get("grade") in PLAIN_GRADES else str(result.get("grade_reason") or "")
    if said.rejected:
        st.error(
            format.plain(f"{reason} {said.advice}".strip()),
            title="Why it was rejected",
            icon=":material/block:",
        )
    elif reason:
        st.caption(f":material/info: {format.plain(reason)} {format.plain(result.get('remedy') or '')}")
    if said.advice and not said.rejected:
        st.markdown(f":material/lightbulb: {format.plain(said.advice)}")
    if said.advice:
        st.page_link(QUIET_PAGE, label="Is this machine quiet enough?", icon=":material/monitor_heart:")


def _alone(duel: Duel) -> None:
    """The trial is what the others are put against, or the others failed: there is an A/A instead."""
    failed = [one for one in duel.others if one.error]
    if failed:
        _headline(":material/person_off:", "No verdict: what it raced against failed", duel)
        for one in failed:
            name = verdict.label(duel.comparison, one.id)
            st.markdown(f"- {format.plain(name)}: {format.plain(one.error['message'] if one.error else '')}")
    else:
        _headline(":material/flag:", "This is the baseline itself", duel)
        st.caption("There is nothing to put it against. Change a setting and run again for a verdict.")
    lines = verdict.self_test_lines(duel.comparison)
    if lines:
        st.markdown(
            "Against a twin of itself, which shows the noise of this machine (1× is the truth):\n"
            + "\n".join(f"- {format.plain(line)}" for line in lines)
        )
    reason = (duel.comparison.result or {}).get("grade_reason")
    if reason:
        st.caption(f":material/info: {format.plain(reason)}")


def _forest(duel: Duel, *, muted: bool) -> None:
    """The interval; with two references, each interval is named after its own."""
    first = duel.contrasts[0]["baseline"]
    alone = len(duel.contrasts) == 1
    rows = [
        {
            **one,
            "label": "this trial" if alone else f"against {verdict.label(duel.comparison, one['baseline'])}",
        }
        for one in duel.contrasts
    ]
    info = compare_charts.forest_info(
        rows,
        {first: verdict.label(duel.comparison, first) if alone else "the reference"},
        baseline=first,
        margin=duel.comparison.protocol.get("margin") or 0.0,
    )
    st.plotly_chart(
        compare_charts.forest(info, muted=muted),
        key="duel.forest",
        config={"displaylogo": False},
        alt="Speed of this trial against the reference, with its 95 % interval and the margin of equivalence",
    )


def never_raced(trial: Trial, pinned: Trial) -> None:
    """Say that `trial` and the pinned baseline never ran in the same rounds, and offer the race."""
    with st.container(border=True, key="never_raced"):
        name = f"trial `{pinned.id[:8]}`, {format.when(pinned.finished_at)}"
        st.markdown(
            f":material/history_toggle_off: The pinned baseline ({name}) never raced against this trial. "
            "Numbers of different hours are not a verdict, so none is given."
        )
        for line in cells.differences(trial, pinned):
            st.markdown(f"- {format.plain(line)}")
        st.page_link(
            COMPARE_PAGE,
            label="Race them now",
            icon=":material/sports_score:",
            query_params={TRIALS_PARAM: f"{trial.id},{pinned.id}"},
        )


# --- both sides ---------------------------------------------------------------------------------------------


def plots(trial: Trial, duel: Duel | None, key: str) -> None:
    """Draw latency over time with what disturbed it, and the distribution, of a trial and its baseline."""
    baseline = duel.baseline if duel is not None else None
    sides = [charts.side(trial, "this trial" if baseline is not None else "")]
    beside = []
    if duel is not None:
        named = {one.id: charts.side(one, verdict.label(duel.comparison, one.id)) for one in duel.others}
        beside = list(named.values())
        if baseline is not None:
            sides.append(charts.side(baseline, verdict.label(duel.comparison, baseline.id)))
    over_time, distribution = st.tabs(
        ["Latency over time", "Distribution"], key=f"{key}.plots", on_change="rerun"
    )
    with over_time:
        if over_time.open:
            info = duel_charts.timeline_info(sides, beside)
            st.plotly_chart(
                duel_charts.timeline(info),
                key=f"{key}.timeline",
                config={"displaylogo": False},
                alt="Latency of each run in milliseconds over time, with what disturbed each block beneath",
            )
            st.caption(_strip_words(info))
    with distribution:
        if distribution.open:
            st.plotly_chart(
                charts.latency_ecdf(sides),
                key=f"{key}.ecdf",
                config={"displaylogo": False},
                alt="Share of runs at or below each latency in milliseconds",
            )


def _strip_words(info: duel_charts.Timeline) -> str:
    if info.strip is None:
        return ":material/info: What disturbed this trial was not recorded."
    blocks = len(info.strip.hover)
    return (
        ":material/info: A marker is the median of a block, a thin line its runs. Beneath stands each block "
        f"of the race, darker is worse. Something disturbed {info.strip.flagged:,} of {blocks:,}; hover to "
        "see what. No block is left out for being slow."
    )


# --- what a start and a run cost ----------------------------------------------------------------------------


def cold_start(trial: Trial, duel: Duel | None) -> None:
    """Draw what a start costs, and after how many runs the faster side has repaid it."""
    result, baseline = trial.result or {}, _result(duel)
    shown = cells.cold_cells(result, baseline)
    found = break_even(result, baseline, duel.contrasts[0]) if duel is not None and baseline else None
    if found is not None:
        rejected = duel is not None and duel.verdict == cells.REJECTED
        shown.append(cells.break_even_cell(replace(found, kind="unknown") if rejected else found))
    results.grid(shown, key="cold_start")
    warm = len(result.get("warmup_latencies_s") or [])
    if warm:
        settled = "until the latency was steady" if result.get("steady") else "kept apart"
        st.caption(
            f":material/info: {warm:,} runs of warm-up, {settled}. None of them is in the numbers above."
        )


def cost(trial: Trial, duel: Duel | None) -> None:
    """Draw what a run costs beside its latency."""
    results.grid(cells.cost_cells(trial.result or {}, _result(duel)), key="cost")


def _result(duel: Duel | None) -> Mapping[str, Any] | None:
    return duel.baseline.result if duel is not None and duel.baseline is not None else None


def numbers(trial: Trial, duel: Duel | None) -> None:
    """Draw latency, throughput and output error, with the change against what raced beside it."""
    results.outputs(trial.result or {})
    shown = cells.latency_cells(trial.result or {}, _result(duel), duel.verdict if duel is not None else None)
    outputs = cells.outputs_cell(trial.result or {})
    results.grid([*shown, *([outputs] if outputs is not None else [])], key="numbers")


# --- while it runs ------------------------------------------------------------------------------------------


def live(trial: Trial, race: Mapping[str, Any], *, margin: float, racing: bool) -> None:
    """Draw how far the race of `trial` is: the ratio so far with its interval, which shrinks.

    Args:
        trial: that runs.
        race: `Status.live`.
        margin: of equivalence.
        racing: more rounds may follow.
    """
    found = _own_so_far(trial, race)
    st.markdown(format.plain(live_words(race, found, racing=racing)))
    if not found:
        return
    info = compare_charts.forest_info(found, {}, baseline="", margin=margin)
    st.echarts_chart(
        compare_charts.live_forest(info),
        key="duel.live",
        height=compare_charts.live_height(info),
        alt="Speed against each reference so far, with its 95 % interval",
    )


def _own_so_far(trial: Trial, race: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Contrasts of `trial` alone: a pinned baseline is put against the default as well."""
    own = [one for one in race.get("contrasts") or [] if one["candidate"] == trial.id and one.get("ratio")]
    try:
        comparison = state.store().comparison(trial.comparison)
    except TunerError:
        return own
    return [{**one, "label": verdict.label(comparison, one["baseline"])} for one in own]


def live_words(race: Mapping[str, Any], contrasts: Sequence[Mapping[str, Any]], *, racing: bool) -> str:
    """Say how far a race is, and what it found so far; a verdict stands only at its end."""
    rounds, predicted = race.get("rounds") or 0, race.get("predicted_rounds") or 0
    more = f" of about {predicted:,}" if racing and predicted > rounds else ""
    parts = [f"{rounds:,}{more} round{'s' if max(rounds, predicted) != 1 else ''}"]
    for one in contrasts:
        low, high = one.get("ratio_low"), one.get("ratio_high")
        span = f", 95 % [{low:.3g}, {high:.3g}]" if low and high else ""
        parts.append(f"{one['ratio']:.3g}× as fast as {one['label']} so far{span}")
    return " · ".join([*parts, "final only at the end"])
