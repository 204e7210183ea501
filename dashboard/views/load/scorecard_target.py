"""The target that a load test suggests, and the button that adds it to the scorecard."""

from __future__ import annotations

import math

import streamlit as st

from core.evidence.load.load_types import LoadResult
from core.show import load_text
from core.spec import TrialSpec, spec_from_dict
from core.spec.load import BatchingSpec, LoadLimit, LoadTarget
from core.spec.targets import check_targets, target_from_dict
from core.wire.errors import TunerError
from dashboard import messages
from dashboard.charts import load_charts
from dashboard.views.scorecard import form as scorecard_form
from dashboard.views.scorecard import targets as scorecard_targets

DIGITS = 3  # significant digits of the suggested rate, rounded down: what passed at more passes at less


def button(result: LoadResult) -> None:
    """Draw the button, disabled where the result suggests no target."""
    found = suggested(result)
    text = found.text if isinstance(found, LoadTarget) else ""
    st.button(
        "Add to scorecard",
        key="load.to_scorecard",
        icon=":material/checklist:",
        on_click=_add,
        args=(result, text),
        disabled=not text,
        help=f"Adds the target `{text}` with these settings." if text else str(found),
    )


def suggested(result: LoadResult) -> LoadTarget | str:
    """Return the target of the answer's rate and limit, or why there is none."""
    asked, limit = load_text.question_of(result), load_charts.latency_limit(result)
    if asked is None or limit is None:
        return "A target needs a latency limit."
    if asked.arrivals.process != "poisson" or asked.rows or asked.dims:
        return "A target is for Poisson arrivals with the inputs of the configuration."
    rate = _rate(result)
    return "No rate was measured." if rate is None else _target(rate, limit)


def _target(rate: float, limit: LoadLimit) -> LoadTarget:
    power = 10.0 ** (math.floor(math.log10(rate)) - DIGITS + 1)
    rounded = math.floor(rate / power * (1 + 1e-9)) * power
    return LoadTarget(rate=float(f"{rounded:.6g}"), limit=limit)


def _rate(result: LoadResult) -> float | None:
    """Return the confirmed rate, or else that of the answer's point."""
    if result["highest"]:
        return result["highest"][0]["confirmed_per_s"]
    point = load_charts.main_point(result)
    if point is None or point["outcome"] == "failed":
        return None
    if load_text.has_no_answer(point):
        return None
    return point["rate_per_s"]


def tested_spec(result: LoadResult) -> TrialSpec:
    """Return the configuration that the answer is about, with the dynamic batching that was best.

    Raises:
        SpecError: another version wrote it.
    """
    point = load_charts.main_point(result)
    spec = spec_from_dict(result["configurations"][0 if point is None else point["configuration"]]["spec"])
    found = result["batching"]
    if found is None or found["best"] is None:
        return spec
    best = found["trials"][found["best"]]
    batching = BatchingSpec(
        max_batch_size=best["max_batch_size"],
        max_queue_delay_microseconds=best["max_queue_delay_microseconds"],
        preferred_batch_size=tuple(best["preferred_batch_size"]),
    )
    return spec.model_copy(update={"dynamic_batching": batching})


def _add(result: LoadResult, text: str) -> None:
    """Add the target to those of the page Scorecard, whose current settings become the tested ones."""
    try:
        target, before = target_from_dict({"load": text}), scorecard_targets.read()
        targets = tuple(before if target in before else [*before, target])
        check_targets(targets)
        scorecard_form.load(tested_spec(result).model_copy(update={"targets": targets}))
    except TunerError as error:
        messages.keep_error(error)
        return
    messages.notify(f"Added to the scorecard: {text}.")
