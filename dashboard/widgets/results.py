"""A stored result on the screen: configuration, numbers, notes and charts; the words come from `cells`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.api.requests import feed_plan
from core.evidence.input_description import input_text
from core.evidence.measurement import Trial, model_text
from core.evidence.quality import Quality, quality
from core.show import setting_chips, verdict
from core.show.cells import Cell, Result
from core.show.placement import cast_lines, placement
from core.show.runtime_text import runtime_text
from core.show.words import STATE_WORDS
from core.wire.errors import TunerError
from core.wire.output_check import ADVICE, OUTPUTS_DIFFER, breach, error_in_words
from dashboard import format, messages, state
from dashboard.shown_result import TUNE
from dashboard.widgets import controls, page_frame, tables

STATES: Mapping[str, tuple[str, str]] = {
    # state -> icon, colour
    "WAITING": (":material/hourglass_empty:", "orange"),
    "RUNNING": (":material/speed:", "blue"),
    "COMPLETE": (":material/check_circle:", "gray"),  # `quality_badge` rates the answer
    "FAIL": (":material/error:", "red"),
    "CANCELLED": (":material/cancel:", "gray"),
    "DAMAGED": (":material/broken_image:", "red"),
}


def fallback_reason(result: Mapping[str, Any]) -> str:
    """Return why a requested provider was not used, as Markdown."""
    return format.plain(result.get("fallback_reason") or "A requested provider did not load.")


def state_badge(name: str) -> None:
    """Draw a trial's state: icon, colour and word."""
    icon, color = STATES[name]
    st.badge(STATE_WORDS[name], icon=icon, color=color)  # type: ignore[arg-type] # a colour of the table above


def quality_badge(shown: Quality | None, result: Result | None = None) -> None:
    """Draw the grade of an answer with its reason, and the details of `result` on demand; none: nothing."""
    if shown is not None:
        more = " ".join(verdict.quality_details(result))
        st.badge(
            format.plain(shown.label),
            icon=format.icon(shown.icon),
            color=shown.color,
            help=format.plain(more) or None,
        )


def tolerance_badge(result: Result | None) -> None:
    """Draw a badge for a result whose output check failed; nothing for any other."""
    if why := breach(result):
        st.badge(
            OUTPUTS_DIFFER,
            icon=":material/warning:",
            color="orange",
            help=format.plain(verdict.sentence(why)),
        )


def other_processes_note(result: Result | None) -> None:
    """Say which other processes used the machine, next to the numbers of a comparison."""
    if words := verdict.background_load_text(result):
        st.caption(f":material/groups: {format.plain(f'Measured {words}. {verdict.BUSY_MEANING}')}")


def rejected(result: Result, title: str | None = None) -> None:
    """Draw why a comparison was rejected, and what to do."""
    reason, remedy = (format.plain(str(result.get(name) or "")) for name in ("grade_reason", "remedy"))
    said = f"{reason}\n\n**What to do:** {remedy}" if remedy else reason
    st.error(said, title=title, icon=":material/block:")


def pruned_note(missing: Sequence[str] = ()) -> None:
    """Say that a chart needs raw samples which were pruned.

    Args:
        missing: the sides without samples, if others can be drawn; empty: all sides.
    """
    whose = f" of {', '.join(missing)}" if missing else ""
    st.caption(
        f":material/content_cut: {format.plain(f'The raw samples{whose} were pruned; the numbers stay.')}"
    )


def header(trial: Trial, *, live: bool = False, judged: bool = False) -> None:
    """Draw the name and state of the trial.

    Args:
        trial: the shown one.
        live: it runs, or is played back: another box shows the progress, and no verdict is drawn.
        judged: a verdict card follows, with the cautions on its comparison.
    """
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        fed = input_shapes_text(trial)
        name = f"{trial.model_name} · {fed}" if fed else trial.model_name
        st.subheader(format.plain(name), anchor=False, width="content")
        if not live:
            state_badge(trial.state)
        result: Mapping[str, Any] = {} if live else trial.facts
        if not judged:
            tolerance_badge(result)
            quality_badge(quality(result), result)
        if result.get("fallback"):
            st.badge(
                "fallback",
                icon=":material/warning:",
                color="orange",
                help=fallback_reason(result),
            )
        if providers := result.get("effective_providers"):  # a load test has those of its configurations
            ran = ", ".join(format.provider(name) for name in providers)
            st.badge(f"ran on {ran}", icon=":material/memory:", color="gray")
        wrong = None
        try:
            controls.spec_badges(state.trial_spec(trial), model_text(None if live else trial.result))
        except TunerError as error:
            wrong = error
    if wrong is not None:
        messages.report(wrong)
    if live:
        return
    facts = [f"Trial `{trial.id[:12]}`", format.when(trial.finished_at or trial.created_at)]
    facts.append(format.plain(trial.owner))
    if result.get("runs"):
        facts.append(f"{result['runs']:,} runs of {result['batch_size']} {_rows(result)}")
    if ran_in := runtime_text(trial):
        facts.append(f"runtime {format.plain(ran_in)}")
    st.caption(" · ".join(facts))


def open_in_tune(trial: Trial) -> None:
    """Load the settings of `trial` and open Tune with it; report an error when its model is missing."""
    try:
        state.apply_spec(state.trial_spec(trial))
    except TunerError as error:
        messages.report(error)
        return
    TUNE.show(trial.id)
    page_frame.switch_to("tune", trial=trial.id)


def input_shapes_text(trial: Trial) -> str:
    """Return the input shapes of a trial: "1×3×224×224", with names where there are several.

    Empty if unknown: the model is gone, or a file determines the shapes.
    """
    record = state.store().model(trial.model_sha256) if trial.model_sha256 else None
    if record is None:
        return ""
    try:
        plan = feed_plan(state.trial_spec(trial).workload, record.info)
    except TunerError:  # written by another version
        return ""
    shapes = {one["name"]: "×".join(map(str, one["shape"])) for one in plan["inputs"]}
    if plan["source"] == "npz" or not all(shapes.values()):
        return ""
    if len(shapes) == 1:
        return next(iter(shapes.values()))
    more = len(shapes) - MOST_SHAPES
    named = [f"{name} {shape}" for name, shape in list(shapes.items())[:MOST_SHAPES]]
    return ", ".join([*named, *([f"{more} more"] if more > 0 else [])])


def trial_label(trial: Trial) -> str:
    """Name a measured trial in a list. Never changes: Streamlit identifies the chosen option by its label."""
    asked = format.short(setting_chips.short_changes(trial) or "ORT default", 60)
    busy = verdict.background_load_mark(trial.result)
    return f"{format.when(trial.created_at)} · p50 {format.ms(trial.p50_s)}{busy} · {asked} · {trial.id[:8]}"


MOST_SHAPES = 3  # inputs named in a title
UNBROKEN_CI = "95\N{NO-BREAK SPACE}%\N{NO-BREAK SPACE}CI"


def _rows(result: Result) -> str:
    return "row" if result["batch_size"] == 1 else "rows"


def strip(shown: Sequence[Cell], key: str) -> None:
    """Draw numbers in one row under a plot: the uncertainty of each below it, the rest on demand.

    Args:
        shown: the numbers.
        key: of the box around them.
    """
    with st.container(key=key), st.grid(len(shown) or 1, min_column_width=130, gap="small"):
        for cell in shown:
            more = [cell.help, f"{cell.change}, {cell.change_note}".strip(", "), cell.baseline_text]
            with st.container(gap=None, key=f"{key}.{cell.name}"):
                st.metric(cell.label, cell.value, help="  \n".join(format.plain(one) for one in more if one))
                st.caption(format.plain(cell.note).replace("95 % CI", UNBROKEN_CI))


def grid(shown: Sequence[Cell], key: str, *, judged: bool = False) -> None:
    """Draw numbers side by side, each with its uncertainty and the baseline's number.

    Args:
        shown: the numbers.
        key: of the box around them.
        judged: a verdict card above them shows the uncertainty of the ratio.
    """
    with st.container(key=key), st.grid(4, min_column_width=140):
        for cell in shown:
            with st.container(border=True, height="stretch", gap=None, key=f"{key}.{cell.name}"):
                st.metric(
                    cell.label,
                    cell.value,
                    delta=format.plain(cell.change) or None,
                    delta_color=cell.color,
                    delta_arrow="off",
                    help=cell.help,
                )
                if cell.change_note and not judged:
                    st.caption(f"ratio: {format.plain(cell.change_note)}")
                st.caption(format.plain(cell.note).replace("95 % CI", UNBROKEN_CI))
                if cell.baseline_text:
                    st.caption(f":material/compare_arrows: {format.plain(cell.baseline_text)}")


def outputs(result: Result, *, agree: bool = True) -> None:
    """Draw the deviation of the outputs from the reference, and the remedy where it exceeds the tolerance.

    Args:
        result: that contains it.
        agree: draw it where the outputs agree, too.
    """
    words = error_in_words(result)
    if why := breach(result):
        said = dict.fromkeys(verdict.sentence(one) for one in (why, words) if one)
        st.warning(
            f"{format.plain(' '.join(said))}\n\n**What to do:** {format.plain(ADVICE)}",
            title="Outputs differ",
            icon=":material/warning:",
        )
    elif words and agree:
        st.caption(f":material/fact_check: Outputs: {format.plain(verdict.sentence(words))}")


def run_details(result: Result) -> None:
    """Draw the requested settings, the inputs and the providers used."""
    if shown := result.get("fed"):
        words = "; ".join(input_text(one) for one in shown)
        st.caption(f":material/input: inputs: {format.plain(words)}")
    tables.draw(
        placement(result),
        key="what_ran",
        alt="Requested and loaded providers, with their nodes and time per run",
    )
    if result.get("placement") is not None:
        st.caption(
            ":material/info: From a separate profiled pass, which slows nodes down: read the "
            "shares, not the sum."
        )
    if result["fallback"]:
        st.warning(
            f"Requested {', '.join(result['requested_providers'])}, used "
            f"{', '.join(result['effective_providers'])}. "
            f"{format.plain(result.get('fallback_reason') or '')}",
            icon=":material/warning:",
            title="Fallback",
        )
    if result.get("placement") is None:
        st.caption(":material/info: The provider of each node is not known for this trial; see the notes.")
    _casts(result.get("casts"))


def _casts(casts: Mapping[str, Any] | None) -> None:
    for icon, line in cast_lines(casts):
        st.markdown(f"{icon} {format.plain(line)}")


def notes(result: Result, said: Sequence[str] = ()) -> None:
    """Draw the remarks that a reader of the numbers needs.

    Args:
        result: of the trial.
        said: sentences that the page shows already.
    """
    known = [verdict.sentence(str(line)) for line in result.get("notes") or []]
    lines = [format.plain(line) for line in known if line not in said]
    if lines:
        st.caption(f":material/info: {' · '.join(lines)}")


def failed(trial: Trial) -> None:
    """Draw why a trial did not complete: a failure as an error, a cancelled one as cancelled."""
    if trial.state == "CANCELLED":
        kept = "it has no numbers" if trial.p50_s is None else "this is what was measured until then"
        st.info(f"This trial was cancelled; {kept}.", icon=":material/cancel:")
    elif trial.error:
        messages.report(trial.error)
