"""The list of targets as widgets: a line for each, with the conditions of its metric.

The session keeps the ids of the lines and the values of their widgets; `read` turns them into targets. An
invalid line shows the reason and is skipped.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import streamlit as st

from core.spec.load import parse_load_limit
from core.spec.metrics import METRICS, UNDER_LOAD, Metric
from core.spec.targets import TargetSpec, check_targets, limit_text, target_from_dict
from core.wire.errors import SpecError, TunerError
from dashboard import format

IDS = "scorecard.targets"  # ids of the lines, in order
FIRST = "latency_p99"  # metric of a new line
CHOICES = {**METRICS, UNDER_LOAD.name: UNDER_LOAD}  # what a line may limit
LIMIT_EXAMPLE = "p99<=20ms"  # under load
PARTS = ("metric", "limit", "batch", "positive", "threshold", "rate")  # of a line


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
        _append_target(target)


def append(target: TargetSpec) -> None:
    """Append a target; call before the widgets are drawn, or in a callback.

    Raises:
        SpecError: there are too many targets, or there is one on the same metric and conditions.
    """
    check_targets([*read(), target])
    _append_target(target)


def _append_target(target: TargetSpec) -> None:
    if target.load is not None:
        _append(metric=UNDER_LOAD.name, limit=target.load.limit.text, rate=target.load.rate)
        return
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
    _append(metric=metric)


def _append(**values: Any) -> None:
    line = secrets.token_hex(3)
    st.session_state[IDS] = [*ids(), line]
    for name, value in {"limit": "", "batch": None, "positive": "", "threshold": None, "rate": None}.items():
        st.session_state[key(line, name)] = value
    for name, value in values.items():
        st.session_state[key(line, name)] = value


def _remove(line: str) -> None:
    st.session_state[IDS] = [one for one in ids() if one != line]
    _forget(line)


def _forget(line: str) -> None:
    for name in PARTS:
        st.session_state.pop(key(line, name), None)


def _value(line: str, name: str) -> Any:
    return st.session_state.get(key(line, name))


def _metric(line: str) -> Metric:
    return CHOICES.get(_value(line, "metric") or FIRST, METRICS[FIRST])


def target_of(line: str) -> TargetSpec | None:
    """Return the target of a line; None where its limit, or its rate under load, is empty.

    Raises:
        SpecError: an invalid limit or rate.
    """
    metric = _metric(line)
    limit = str(_value(line, "limit") or "").strip()
    if not limit:
        return None
    if metric is UNDER_LOAD:
        rate = _value(line, "rate")
        parse_load_limit(limit)  # its own error, before the rate is known
        return None if rate is None else target_from_dict({"load": f"{rate:.6f}/s with {limit}"})
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
            what = "a limit and a rate" if _metric(line) is UNDER_LOAD else "a limit"
            st.caption(f":material/info: Write {what}, or remove the line.")
            return before
        check_targets([*before, target])
    except SpecError as error:
        st.caption(f":material/error: {format.plain(error.message)} {format.plain(error.hint)}")
        return before
    return [*before, target]


def _limit_help(metric: Metric) -> str:
    if metric is UNDER_LOAD:
        return (
            f"For example `{LIMIT_EXAMPLE}`, from the scheduled arrival. Met when the upper 95 % bound of "
            "the share of slower requests is inside."
        )
    return f"For example `{metric.example}`. Met when the whole 95 % interval is inside."


def _draw_line(line: str) -> None:
    st.session_state.setdefault(key(line, "metric"), FIRST)
    metric = _metric(line)
    under_load = metric is UNDER_LOAD
    with st.container(
        horizontal=True, vertical_alignment="bottom", gap="small", key=f"scorecard.line.{line}"
    ):
        st.selectbox(
            "Metric",
            list(CHOICES),
            key=key(line, "metric"),
            format_func=lambda name: CHOICES[name].title,
            persist_state="session",
            width=190,
            help=metric.help,
        )
        st.text_input(
            "limit" if under_load else "at most" if metric.smaller_is_better else "at least",
            key=key(line, "limit"),
            placeholder=LIMIT_EXAMPLE if under_load else metric.example,
            persist_state="session",
            width=130,
            help=_limit_help(metric),
        )
        if under_load:
            st.number_input(
                "at requests/s",
                value=None,
                key=key(line, "rate"),
                placeholder="200",
                persist_state="session",
                width=180,
                format="%g",
                help="Requests of the configuration's batch size, Poisson arrivals. Tested for 30 s or more.",
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
