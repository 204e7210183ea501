"""Preview of a search: distinct configurations, excluded ones, and what the time budget allows."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.api.requests import Resolved
from core.api.searching import Prepared, budget_error, prediction
from core.spec.space import Space, unvaried_words
from core.store import ModelRecord, StudyRecord
from dashboard import format, state
from dashboard.views.search.form import SearchForm
from dashboard.widgets import collapsible, page_frame

SPACE = "search.space"  # whether the preview is open
MOST_REASONS = 12


def draw(model: ModelRecord, asked: SearchForm, space: Space | None, why_not: str) -> None:
    """Draw the search space, closed at first.

    Args:
        model: to search on.
        asked: the form's values.
        space: the distinct configurations; None: there are none.
        why_not: why there is no space.
    """
    if space is None:
        st.warning(format.plain(why_not), icon=":material/warning:", title="There is nothing to search")
        return
    inside = partial(_space, model, asked, space)
    collapsible.group(f"{len(space.choices):,} distinct configurations", inside, key=SPACE, icon="grid_view")


def _space(model: ModelRecord, asked: SearchForm, space: Space) -> None:
    for line in lines(asked, space, time_estimate(model, asked, space)):
        st.markdown(format.plain(line))
    page_frame.link("machine", "Noise check of this machine", icon="monitor_heart")
    if space.left_out:
        st.caption(f"{space.combinations:,} combinations; the rest are equivalent:")
        st.table(reasons(space), border="horizontal")


def lines(asked: SearchForm, space: Space, time_estimate: str) -> list[str]:
    """Return the search space and what the time budget allows, in words."""
    named = [f"{one.name.removeprefix('session.')} ({len(one.values)})" for one in space.axes]
    count = f"{len(named)} setting{'s' * (len(named) != 1)}"
    return [
        f"{count} with their number of values: {', '.join(named)}.",
        f"In {format.duration(asked.question.budget_s)}: {time_estimate}.",
        *unvaried_words(space.unvaried),
    ]


def time_estimate(model: ModelRecord, asked: SearchForm, space: Space) -> str:
    """Return what the time budget allows, predicted from earlier comparisons of the model on this machine."""
    return prediction(_prepared(model, asked, space), state.store())


def budget_text(model: ModelRecord, asked: SearchForm, space: Space) -> str:
    """Return why the budget is too short; empty where it suffices, is unknown, or may be extended."""
    short = None if asked.question.extend else budget_error(_prepared(model, asked, space), state.store())
    return "" if short is None else f"{short.message} {short.hint}"


def _prepared(model: ModelRecord, asked: SearchForm, space: Space) -> Prepared:
    record = StudyRecord(
        id="",
        state="WAITING",
        question={},
        spec={},
        model_name=model.name,
        model_sha256=model.content_sha256,
        created_at=0.0,
        fingerprint=state.environment()["fingerprint"],
    )
    resolved = Resolved(record=model, spec=asked.spec)
    return Prepared(record=record, question=asked.question, resolved=resolved, space=space)


def reasons(space: Space) -> dict[str, str]:
    """Return why combinations are excluded, most frequent first: combinations -> reason."""
    listed = list(space.left_out.items())
    shown = {format.plain(reason): f"{count:,}" for reason, count in listed[:MOST_REASONS]}
    rest = sum(count for _, count in listed[MOST_REASONS:])
    return {**shown, **({f"{len(listed) - MOST_REASONS} more reasons": f"{rest:,}"} if rest else {})}
