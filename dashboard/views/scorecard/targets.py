"""The list of targets as widgets: a line for each, with the conditions of its metric.

The session keeps the ids of the lines and the values of their widgets; `read` turns them into targets. An
invalid line shows the reason and is skipped.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.spec.metrics import METRICS
from core.spec.targets import TargetSpec, check_targets, limit_text, target_from_dict
from core.wire.errors import SpecError, TunerError
from dashboard import format

IDS = "scorecard.targets"  # ids of the lines, in order
FIRST = "latency_p99"  # metric of a new line


def key(line: str, name: str) -> str:
    """Return the key of one widget of a line."""
    return f"scorecard.target.{line}.{name}"


# --- values -------------------------------------------------------------------------------------------------


def ids() -> list[str]:
    """Return the ids of the lines of this session."""
    return list(st.session_state.setdefault(IDS, []))


def load(targets: Sequence[TargetSpec]) -> None:
    """Replace the list by `targets`; call before the widgets are drawn, or in a callback."""
    for line in ids():
        _forget(line)
    st.session_state[IDS] = []
    for target in targets:
        positive = target.positive_class
        _append(
            metric=target.metric,
            limit=limit_text(target.about, target.limit),
            batch=target.batch_size,
            positive="" if positive is None else str(positive),
            threshold=target.threshold,
        )


def add(metric: str = FIRST) -> None:
    """Append an empty line."""
    _append(metric=metric, limit="", batch=None, positive="", threshold=None)


def _append(**values: Any) -> None:
    line = secrets.token_hex(3)
    st.session_state[IDS] = [*ids(), line]
    for name, value in values.items():
        st.session_state[key(line, name)] = value


def _remove(line: str) -> None:
    st.session_state[IDS] = [one for one in ids() if one != line]
    _forget(line)


def _forget(line: str) -> None:
    for name in ("metric", "limit", "batch", "positive", "threshold"):
        st.session_state.pop(key(line, name), None)


def _value(line: str, name: str) -> Any:
    return st.session_state.get(key(line, name))


def target_of(line: str) -> TargetSpec | None:
    """Return the target of a line; None where its limit is empty.

    Raises:
        SpecError: an invalid limit.
    """
    metric = METRICS[_value(line, "metric") or FIRST]
    limit = str(_value(line, "limit") or "").strip()
    if not limit:
        return None
    batch = _value(line, "batch")
    asked: dict[str, Any] = {
        "metric": metric.name,
        "at_most" if metric.smaller_is_better else "at_least": limit,
        "batch_size": int(batch) if metric.at_batch and batch is not None else None,
        "threshold": _value(line, "threshold") if metric.at_threshold else None,
        "positive_class": class_of(_value(line, "positive")) if metric.of_class else None,
    }
    return target_from_dict(asked)


def class_of(text: object) -> int | str | None:
    """Return a class from its text: a number, a name, or nothing."""
    plain = str(text or "").strip()
    return int(plain) if plain.isdecimal() else plain or None


def read() -> list[TargetSpec]:
    """Return the targets of all valid lines; of duplicates, the first."""
    found: list[TargetSpec] = []
    for line in ids():
        try:
            target = target_of(line)
            if target is not None:
                check_targets([*found, target])
                found.append(target)
        except TunerError:  # shown at the line
            continue
    return found


# --- widgets ------------------------------------------------------------------------------------------------


def draw() -> list[TargetSpec]:
    """Draw the lines and return the targets of the valid ones."""
    before: list[TargetSpec] = []
    for line in ids():
        _draw_line(line)
        before = _said(line, before)
    st.button(
        "Add target",
        key="scorecard.add",
        icon=":material/add:",
        on_click=add,
        help="Adds a metric with a limit.",
    )
    return before


def _said(line: str, before: list[TargetSpec]) -> list[TargetSpec]:
    """Return `before` plus this line's target; show the reason if the line is empty or invalid."""
    try:
        target = target_of(line)
        if target is None:
            st.caption(":material/info: Write a limit, or remove the line.")
            return before
        check_targets([*before, target])
    except SpecError as error:
        st.caption(f":material/error: {format.plain(error.message)} {format.plain(error.hint)}")
        return before
    return [*before, target]


def _draw_line(line: str) -> None:
    st.session_state.setdefault(key(line, "metric"), FIRST)
    metric = METRICS[_value(line, "metric")]
    with st.container(
        horizontal=True, vertical_alignment="bottom", gap="small", key=f"scorecard.line.{line}"
    ):
        st.selectbox(
            "Metric",
            list(METRICS),
            key=key(line, "metric"),
            format_func=lambda name: METRICS[name].title,
            persist_state="session",
            width=190,
            help=metric.help,
        )
        st.text_input(
            "at most" if metric.smaller_is_better else "at least",
            key=key(line, "limit"),
            placeholder=metric.example,
            persist_state="session",
            width=130,
            help=f"For example `{metric.example}`. Met when the whole 95 % interval is inside.",
        )
        if metric.at_batch:
            st.number_input(
                "at batch",
                value=None,
                step=1,
                key=key(line, "batch"),
                placeholder="its own",
                persist_state="session",
                width=120,
                help="Samples per run. Empty: the configuration's batch.",
            )
        if metric.of_class:
            st.text_input(
                "of class",
                key=key(line, "positive"),
                placeholder="the dataset's",
                persist_state="session",
                width=130,
                help="Number or name of the positive class. Empty: the one that the dataset names.",
            )
        if metric.at_threshold:
            st.number_input(
                "at threshold",
                value=None,
                step=0.05,
                key=key(line, "threshold"),
                placeholder="the dataset's",
                persist_state="session",
                width=130,
                help="Probability from which a sample counts as the class.",
            )
        st.button(
            "Remove",
            key=f"scorecard.drop.{line}",
            icon=":material/close:",
            type="tertiary",
            on_click=_remove,
            args=(line,),
        )
