"""The form of a search as session values and as a `Question`; `form_widgets` draws the widgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import streamlit as st

from core import wire
from core.api.requests import Resolved
from core.api.searching import Models, axes_of, models_of, place_of
from core.spec import TrialSpec
from core.spec.load import parse_load_target
from core.spec.question import (
    Question,
    parse_limits,
    parse_settings,
    question_from_dict,
    settings_texts,
)
from core.spec.settings import Place, Value, value_words
from core.spec.space import Axis, changes_words
from core.spec.targets import TargetSpec, limit_text
from core.store import ModelRecord
from core.wire.errors import TunerError
from core.wire.runtime import OWN, runtime
from dashboard import fields, runtimes, state
from dashboard.widgets import dataset
from dashboard.widgets.protocol import QUICK

# session keys
PRESET = "search.preset"
OBJECTIVE, SECOND, WEIGHT = "search.objective", "search.second", "search.weight"
LIMITS, SAME = "search.limits", "search.same_latency"
LOAD = "search.under_load"  # traffic that the answer has to take, as typed
BUDGET, EFFORT, GIVE_WAY = "search.budget_s", "search.precision", "search.give_way"
EXTEND = "search.extend"
VARIANTS = "search.variants"
CUSTOM = "search.own"  # custom values, as typed
VARY, FIXED, EXCLUDED = "search.vary", "search.fixed", "search.never"  # FIXED: removed from VARY by the user
RUNTIMES = "search.runtimes"  # names of further runtimes that may be the result
STRATEGY, WARM, SEED = "search.strategy", "search.warm_start", "search.seed"

NOTHING = ""
# Fields of a question with one widget each, whose key is "search." and the field.
FIELDS = (*("same_latency", "budget_s", "extend", "give_way", "variants", "strategy", "warm_start", "seed"),)
TIMES_S = (10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
DEFAULTS: dict[str, Any] = {
    OBJECTIVE: "latency_p50",
    SECOND: NOTHING,
    WEIGHT: 70,
    LIMITS: "",
    LOAD: "",
    EFFORT: QUICK,
    CUSTOM: "",
    FIXED: [],
    EXCLUDED: [],
    RUNTIMES: [],
    **{f"search.{name}": Question.model_fields[name].default for name in FIELDS},
}
VARIANT_NAMES = {"none": "None", "existing": "Existing", "make": "Create new"}
MOST_SHARE, LEAST_SHARE = 90, 10  # percent, bounds of the first objective's weight


def seed() -> None:
    """Give every widget without a value its default; call before the widgets are drawn."""
    for name, value in DEFAULTS.items():
        st.session_state.setdefault(name, value)


def fill(question: Question, precision: str) -> None:
    """Fill the form with a question; call before the widgets are drawn, or in a callback."""
    seed()
    fill_goal(question)
    for name in FIELDS:
        st.session_state[f"search.{name}"] = getattr(question, name)
    st.session_state[EFFORT] = precision
    st.session_state[CUSTOM] = "\n".join(settings_texts(question.vary))
    st.session_state[FIXED] = [*question.fix, *(one for one in question.without if "=" not in one)]
    st.session_state[EXCLUDED] = [one for one in question.without if "=" in one]
    st.session_state[RUNTIMES] = [runtime(one).name for one in question.runtimes]


def fill_goal(question: Question) -> None:
    """Fill in the objectives and constraints of a question."""
    (first, weight), *rest = question.objective.items()
    st.session_state[OBJECTIVE] = first
    st.session_state[SECOND] = rest[0][0] if rest else NOTHING
    st.session_state[WEIGHT] = min(MOST_SHARE, max(LEAST_SHARE, round(100 * weight))) if rest else 70
    st.session_state[LIMITS] = "\n".join(_limit_lines(question))
    st.session_state[LOAD] = "" if question.load is None else question.load.text
    st.session_state[SAME] = question.same_latency


def _limit_lines(question: Question) -> list[str]:
    """Return the constraints as text."""
    lines = [limit_line(one) for one in question.limits]
    if question.accuracy_drop is not None:
        lines.append(f"accuracy>=-{100 * question.accuracy_drop:g}%")
    return lines


def limit_line(one: TargetSpec) -> str:
    """Return a constraint as it is typed."""
    at = "" if one.threshold is None else f"@{one.threshold:g}"
    sign = "<=" if one.about.smaller_is_better else ">="
    return f"{one.about.name}{at}{sign}{limit_text(one.about, one.limit)}"


# --- reading the form ---------------------------------------------------------------------------------------


def limits() -> dict[str, Any]:
    """Return the typed constraints as parts of a question; raises `SpecError` as `parse_limits` does."""
    return parse_limits(_lines(LIMITS))


def load() -> dict[str, Any]:
    """Return the typed traffic as a part of a question.

    Raises:
        SpecError: it is no target under load.
    """
    text = str(st.session_state.get(LOAD) or "").strip()
    return {"load": parse_load_target(text)} if text else {}


def custom_values() -> dict[str, list[Value | None]]:
    """Return the custom values, empty where nothing is typed; raises as `parse_settings` does."""
    return parse_settings(_lines(CUSTOM), "")


def _lines(name: str) -> list[str]:
    text = str(st.session_state.get(name) or "")
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_text_valid() -> bool:
    """Return whether all typed text is valid; the error of an invalid text is shown below its field."""
    try:
        limits()
        load()
        custom_values()
    except TunerError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class SearchForm:
    """A validated form: start, question, and the settings that can vary."""

    spec: TrialSpec  # starting point of the search
    question: Question
    place: Place
    axes: Sequence[Axis]  # fixed settings included
    models: Models  # variants among the candidates


def search_form_of(record: ModelRecord) -> SearchForm:
    """Return the validated form.

    Raises:
        TunerError: a limit that cannot be read, parts that contradict each other, settings of Tune that
            cannot be used, or labelled data that are not named.
    """
    seed()
    whole = question()
    spec = start_spec(whole)
    machine = {**state.environment(), "providers": state.providers(spec.runtime)}
    place = place_of(cast(wire.Environment, machine), Resolved(record=record, spec=spec), whole)
    models = models_of(state.store(), record, whole)
    axes = axes_of(spec, whole, place, models)
    held = [one for one in st.session_state[FIXED] if one in {axis.name for axis in axes}]
    values = values_beyond_start([one for one in axes if one.name not in held])
    never = [one for one in st.session_state[EXCLUDED] if one in values]
    whole = whole.model_copy(update={"without": (*held, *never)})
    return SearchForm(spec=spec, question=whole, place=place, axes=axes, models=models)


def question() -> Question:
    """Return the question of the form, without fixed settings: those need the axes of the search.

    Raises:
        SpecError: a limit or a value that cannot be read, parts that contradict each other, or a runtime
            that does not exist.
    """
    return question_from_dict(
        {
            "objective": objective(),
            **limits(),
            **load(),
            "vary": custom_values(),
            "runtimes": [runtimes.pinned(one) for one in chosen_runtimes()],
            **{name: st.session_state[f"search.{name}"] for name in FIELDS},
            "seed": st.session_state[SEED] or 0,  # an emptied field is None
        }
    )


def further_runtimes() -> list[str]:
    """Return the names of this machine's runtimes besides that of the starting point."""
    start = runtimes.chosen(st.session_state.get(fields.RUNTIME)).partition("@")[0]
    return [one for one in (OWN, *runtimes.others()) if one != start]


def chosen_runtimes() -> list[str]:
    """Return the names of the further runtimes that may be the result."""
    others = further_runtimes()
    return [name for one in st.session_state[RUNTIMES] if (name := runtimes.chosen(one)) in others]


def objective() -> dict[str, float]:
    """Return the objectives: metric -> weight."""
    first, second = st.session_state[OBJECTIVE], st.session_state[SECOND]
    if not second or second == first:
        return {first: 1.0}
    share = round(st.session_state[WEIGHT] / 100, 2)
    return {first: share, second: round(1 - share, 2)}


def start_spec(whole: Question) -> TrialSpec:
    """Return the starting point of a search: the settings of Tune, with the effort of this page.

    Raises:
        TunerError: the settings of Tune are invalid, or the labelled data are not chosen.
    """
    spec = state.current_spec()
    precision = st.session_state.get(EFFORT) or QUICK
    protocol = spec.protocol.model_copy(update={"effort": precision, "budget_s": None, "runs": None})
    data = dataset.chosen_dataset(dataset.LABELLED) if whole.accuracy else None
    return spec.model_copy(update={"protocol": protocol, "dataset": data, "targets": ()})


def values_beyond_start(axes: Sequence[Axis]) -> dict[str, str]:
    """Return each value other than the start's, in the syntax of `without` -> its display name."""
    return {
        f"{one.name}={value_words(value)}": changes_words({one.name: value})
        for one in axes
        for value in one.values[1:]
    }
