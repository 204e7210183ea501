"""The question of a search as widgets: what is best, within which limits, in what time, what may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.run.search import place_of
from core.run.search.choices import Models, axes_of, models_of
from core.run.search.strategies import strategy_named
from core.run.trial import Resolved
from core.show.format import duration
from core.spec import TrialSpec
from core.spec.knobs import KNOBS, Place, Value, knob
from core.spec.question import (
    DEFAULT_BUDGET_S,
    OBJECTIVES,
    PRESETS,
    STRATEGIES,
    Question,
    parse_limits,
    parse_settings,
    question_from_dict,
    settings_texts,
)
from core.spec.space import Axis, changes_words
from core.spec.targets import TargetSpec, limit_text
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import fields, format, state
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.widgets import controls, dataset, feeding, setting
from dashboard.widgets.protocol import QUICK, effort

# keys of the session
PRESET = "search.preset"
OBJECTIVE, SECOND, WEIGHT = "search.objective", "search.second", "search.weight"
LIMITS, SAME = "search.limits", "search.same_latency"
BUDGET, EFFORT, GIVE_WAY = "search.budget_s", "search.precision", "search.give_way"
EXTEND = "search.extend"
VARIANTS = "search.variants"
OWN = "search.own"  # values of the user's own, as they are typed
VARY, FIXED, NEVER = "search.vary", "search.fixed", "search.never"  # FIXED: what the user took out of VARY
STRATEGY, WARM, SEED = "search.strategy", "search.warm_start", "search.seed"

NOTHING = ""
TIMES_S = (10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
DEFAULTS: dict[str, Any] = {
    OBJECTIVE: "latency_p50",
    SECOND: NOTHING,
    WEIGHT: 70,
    LIMITS: "",
    SAME: False,
    BUDGET: DEFAULT_BUDGET_S,
    EFFORT: QUICK,
    EXTEND: False,
    GIVE_WAY: False,
    VARIANTS: "existing",
    OWN: "",
    FIXED: [],
    NEVER: [],
    STRATEGY: "race",
    WARM: True,
    SEED: 0,
}
VARIANT_NAMES = {"none": "None", "existing": "Those that exist", "make": "Made first"}
MOST_SHARE, LEAST_SHARE = 90, 10  # percent that one of two objectives may weigh


def seed() -> None:
    """Give every widget its value before it is drawn; a value that is there stays."""
    for name, value in DEFAULTS.items():
        st.session_state.setdefault(name, value)


def fill(question: Question, precision: str) -> None:
    """Take up a question; call before the widgets are drawn, or in a callback."""
    seed()
    _fill_goal(question)
    st.session_state[BUDGET] = question.budget_s
    st.session_state[EFFORT] = precision
    st.session_state[EXTEND] = question.extend
    st.session_state[GIVE_WAY] = question.give_way
    st.session_state[VARIANTS] = question.variants
    st.session_state[OWN] = "\n".join(settings_texts(question.vary))
    st.session_state[FIXED] = [*question.fix, *(one for one in question.without if "=" not in one)]
    st.session_state[NEVER] = [one for one in question.without if "=" in one]
    st.session_state[STRATEGY], st.session_state[WARM] = question.strategy, question.warm_start
    st.session_state[SEED] = question.seed


def _fill_goal(question: Question) -> None:
    (first, weight), *rest = question.objective.items()
    st.session_state[OBJECTIVE] = first
    st.session_state[SECOND] = rest[0][0] if rest else NOTHING
    st.session_state[WEIGHT] = min(MOST_SHARE, max(LEAST_SHARE, round(100 * weight))) if rest else 70
    st.session_state[LIMITS] = "\n".join(_limit_lines(question))
    st.session_state[SAME] = question.same_latency


def _limit_lines(question: Question) -> list[str]:
    """The limits as they are typed."""
    lines = [_limit_line(one) for one in question.limits]
    if question.accuracy_drop is not None:
        lines.append(f"accuracy>=-{100 * question.accuracy_drop:g}%")
    return lines


def _limit_line(one: TargetSpec) -> str:
    at = "" if one.threshold is None else f"@{one.threshold:g}"
    return (
        f"{one.metric}{at}{'<=' if one.about.smaller_is_better else '>='}{limit_text(one.about, one.limit)}"
    )


# --- what is asked ------------------------------------------------------------------------------------------


def limits() -> dict[str, Any]:
    """Return the typed limits as parts of a question; raises `SpecError` as `parse_limits` does."""
    return parse_limits(_lines(LIMITS))


def own_values() -> dict[str, list[Value | None]]:
    """Return the values of the user's own, none where nothing is typed; raises as `parse_settings` does."""
    return parse_settings(_lines(OWN), "")


def _lines(name: str) -> list[str]:
    text = str(st.session_state.get(name) or "")
    return [line.strip() for line in text.splitlines() if line.strip()]


def is_typed_well() -> bool:
    """Whether all that is typed can be read; where not, it was said beneath it."""
    try:
        limits()
        own_values()
    except TunerError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the form asks for, and the settings that are worth trying for it."""

    spec: TrialSpec  # the start
    question: Question
    place: Place
    axes: Sequence[Axis]  # those that are held among them
    models: Models  # variants that may be the answer


def asked(record: ModelRecord) -> Asked:
    """Return what the form asks for.

    Raises:
        TunerError: a limit that cannot be read, parts that contradict each other, settings of Tune that
            cannot be used, or labelled data that are not named.
    """
    seed()
    whole = question()
    spec = start_spec(whole)
    place = place_of(state.environment(), Resolved(record=record, spec=spec), whole)
    models = models_of(state.store(), record, whole)
    axes = axes_of(spec, whole, place, models)
    held = [one for one in st.session_state[FIXED] if one in {axis.name for axis in axes}]
    values = _values([one for one in axes if one.name not in held])
    never = [one for one in st.session_state[NEVER] if one in values]
    whole = whole.model_copy(update={"without": (*held, *never)})
    return Asked(spec=spec, question=whole, place=place, axes=axes, models=models)


def question() -> Question:
    """Return the question of the form, without what is held: that takes the settings worth trying.

    Raises:
        SpecError: a limit or a value that cannot be read, or parts that contradict each other.
    """
    return question_from_dict(
        {
            "objective": _objective(),
            **limits(),
            "same_latency": bool(st.session_state[SAME]),
            "budget_s": int(st.session_state[BUDGET]),
            "strategy": st.session_state[STRATEGY],
            "extend": bool(st.session_state[EXTEND]),
            "give_way": bool(st.session_state[GIVE_WAY]),
            "variants": st.session_state[VARIANTS],
            "vary": own_values(),
            "warm_start": bool(st.session_state[WARM]),
            "seed": int(st.session_state[SEED] or 0),
        }
    )


def _objective() -> dict[str, float]:
    first, second = st.session_state[OBJECTIVE], st.session_state[SECOND]
    if not second or second == first:
        return {first: 1.0}
    share = round(st.session_state[WEIGHT] / 100, 2)
    return {first: share, second: round(1 - share, 2)}


def start_spec(whole: Question) -> TrialSpec:
    """Return where a search starts: the settings of Tune, with the effort of this page.

    Raises:
        TunerError: the settings of Tune cannot be used, or the labelled data are not named.
    """
    spec = state.current_spec()
    precision = st.session_state.get(EFFORT) or QUICK
    protocol = spec.protocol.model_copy(update={"precision": precision, "budget_s": None, "runs": None})
    data = dataset.asked(dataset.LABELLED) if whole.accuracy else None
    return spec.model_copy(update={"protocol": protocol, "dataset": data, "targets": ()})


# --- the widgets --------------------------------------------------------------------------------------------


def goal() -> None:
    """Draw what is to be best, and within which limits."""
    seed()
    _presets()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox(
            "What is best",
            list(OBJECTIVES),
            key=OBJECTIVE,
            format_func=lambda one: OBJECTIVES.get(one, one),
            persist_state="session",
            help="What the answer is best in, against ONNX Runtime's default in the same rounds.",
        )
        st.selectbox(
            "and",
            [NOTHING, *OBJECTIVES],
            key=SECOND,
            format_func=lambda one: OBJECTIVES.get(one, "nothing else"),
            persist_state="session",
            help="A second number that counts as well. What must merely not be exceeded is a limit instead.",
        )
    if st.session_state[SECOND] not in (NOTHING, st.session_state[OBJECTIVE]):
        st.slider(
            "Weight of the first (%)",
            LEAST_SHARE,
            MOST_SHARE,
            step=5,
            key=WEIGHT,
            persist_state="session",
            help="The rest is the weight of the second: of the logarithms of both gains.",
        )
    st.text_area(
        "Limits, one per line",
        key=LIMITS,
        height=96,
        placeholder="p99<=3ms\nmemory<=100MiB\naccuracy>=-0.5%",
        persist_state="session",
        help="What an answer must keep: `p50`, `p95`, `p99`, `throughput`, `memory`, `cpu`, `size`, "
        "`output_error`, `accuracy`, `sensitivity@0.6` and others of the scorecard, with a unit. "
        "`accuracy>=-0.5%` is against the original's. Leave it empty for none.",
    )
    try:
        limits()
    except TunerError as error:
        state.report(error, "A limit cannot be read")
    if scorecard_targets.read():
        st.button(
            "Take the scorecard's targets",
            key="search.targets",
            icon=":material/checklist:",
            type="tertiary",
            on_click=_take_targets,
            help="Its targets become the limits; those at another batch size, or of one class, cannot.",
        )
    st.toggle(
        "No slower than by default",
        key=SAME,
        persist_state="session",
        help="The p50 latency may be no longer than that of ONNX Runtime's default.",
    )


def _take_targets() -> None:
    rows = st.session_state.get(fields.key("batch_size"))
    targets = scorecard_targets.read()
    fitting = [one for one in targets if one.batch_size in (None, rows) and one.positive_class is None]
    st.session_state[LIMITS] = "\n".join(map(_limit_line, fitting))
    if left := len(targets) - len(fitting):
        state.notify(
            f"{left} of {len(targets)} targets hold at another batch size or of one class: left out."
        )


def _presets() -> None:
    """Draw the questions that people have; one of them is marked while the form asks just that."""
    st.session_state[PRESET] = next((name for name in PRESETS if _asks(name)), None)
    chosen: str | None = st.pills(
        "Question",
        list(PRESETS),
        key=PRESET,
        format_func=lambda name: f"{name[:1].upper()}{name[1:]}",
        on_change=_take_preset,
        help="Fills in what is best and the limits below. All of it can be changed.",
    )
    if chosen is not None:
        st.caption(PRESETS[chosen][0])


def _asks(name: str) -> bool:
    wanted = question_from_dict(PRESETS[name][1])
    try:
        own = question_from_dict(
            {"objective": _objective(), **limits(), "same_latency": st.session_state[SAME]}
        )
    except TunerError:
        return False
    return own == wanted


def _take_preset() -> None:
    if name := st.session_state.get(PRESET):
        _fill_goal(question_from_dict(PRESETS[name][1]))


def time_and_effort() -> None:
    """Draw how long to search, how sure the answer must be, and whether others go first."""
    times = sorted({*TIMES_S, st.session_state[BUDGET]})
    st.select_slider(
        "Time",
        times,
        key=BUDGET,
        format_func=duration,
        persist_state="session",
        help="For all of it: first looks, a race of the best, and the confirmation in fresh processes. "
        "It ends sooner where nothing more would change the answer.",
    )
    effort(EFFORT, "Effort of the confirmation")
    st.segmented_control(
        "Variants of the model",
        list(VARIANT_NAMES),
        key=VARIANTS,
        format_func=lambda one: VARIANT_NAMES[one],
        required=True,
        persist_state="session",
        help="Whether a converted copy of the model may be the answer. *Made first*: simplified, fused, FP16 "
        "and INT8 copies, in the time of the search. Whose outputs differ too much is no answer.",
    )
    st.toggle(
        "Extend if needed",
        key=EXTEND,
        persist_state="session",
        help="Takes longer where the time could not confirm anything. Otherwise such a search is refused.",
    )
    st.toggle(
        "Give way to others",
        key=GIVE_WAY,
        persist_state="session",
        help="Other jobs of this machine may go between two races of the search. Their time does not count.",
    )


def labelled_data(record: ModelRecord) -> None:
    """Draw the labelled data, which a limit on the accuracy needs."""
    named = bool(st.session_state.get(dataset.key(dataset.LABELLED, "path")))
    with st.expander("Labelled data", icon=":material/dataset:", expanded=not named, key="search.data"):
        dataset.form(dataset.LABELLED, outputs=[one["name"] for one in record.info["outputs"]])


def what_stays(record: ModelRecord) -> None:
    """Draw where the search starts: batch and feeds here, every other setting as it is on Tune."""
    state.seed(record)
    with st.expander("Where it starts", icon=":material/flag:", key="search.start"):
        try:
            spec = state.current_spec()
        except TunerError as error:
            state.report(error)
        else:
            controls.badges(spec)
        st.page_link("views/tune/page.py", label="Change settings on Tune", icon=":material/tune:")
        setting.one(knob("batch_size"), None, record)
        feeding.dims(record)
        feeding.feeds(record, {})


def values_of_ones_own() -> None:
    """Draw what may change in the user's own words, for who knows which values to try."""
    with st.expander("Values of your own", icon=":material/edit:", key="search.own_values"):
        st.text_area(
            "Settings and the values to try, one setting per line",
            key=OWN,
            height=96,
            placeholder="intra_op_num_threads=1,2,4\nsession.intra_op.allow_spinning=on,off",
            persist_state="session",
            on_change=_take_own,
            help="As `--vary` takes them. Once a setting stands here, nothing else varies. Leave it empty to "
            "try all that is worth trying.",
        )
        try:
            own_values()
        except TunerError as error:
            state.report(error, "A setting cannot be read")


def what_changes(axes: Sequence[Axis]) -> None:
    """Draw which settings may change, and which values never."""
    names = [one.name for one in axes]
    free = [name for name in names if name not in st.session_state[FIXED]]
    title = f"What may change: {len(free)} of {len(names)} settings"
    with st.expander(title, icon=":material/shuffle:", key="search.changes"):
        st.session_state[VARY] = free
        st.multiselect(
            "Settings that may change",
            names,
            key=VARY,
            format_func=_axis_name,
            on_change=_take_vary,
            args=(names,),
            placeholder="Choose settings",
            help="What you take out stays as it is on Tune.",
        )
        values = _values([one for one in axes if one.name in free])
        st.session_state[NEVER] = [one for one in st.session_state[NEVER] if one in values]
        st.multiselect(
            "Values that are never tried",
            list(values),
            key=NEVER,
            format_func=lambda one: values.get(one, one),
            persist_state="session",
            placeholder="none",
            help="What the search starts with is always tried: everything is put against it.",
        )
        st.button(
            "All may change",
            key="search.all",
            icon=":material/undo:",
            type="tertiary",
            disabled=not st.session_state[FIXED] and not st.session_state[NEVER],
            on_click=_all_may_change,
            help="Nothing is held, and no value is left out.",
        )


def _axis_name(name: str) -> str:
    return next((one.label for one in KNOBS if one.name == name), name)


def _take_vary(names: Sequence[str]) -> None:
    """Remember what was taken out: a setting that comes along with another question is in."""
    chosen = st.session_state[VARY]
    others = [one for one in st.session_state[FIXED] if one not in names]
    st.session_state[FIXED] = [*others, *(one for one in names if one not in chosen)]


def _take_own() -> None:
    """Whatever is named may change, even if it was held before."""
    try:
        named = own_values()
    except TunerError:
        return  # said beneath the field
    st.session_state[FIXED] = [one for one in st.session_state[FIXED] if one not in named]


def _all_may_change() -> None:
    st.session_state[FIXED], st.session_state[NEVER] = [], []


def _values(axes: Sequence[Axis]) -> dict[str, str]:
    """Each value beyond the start's as `without` takes it, with its name on the screen."""
    return {
        f"{one.name}={_value_text(value)}": changes_words({one.name: value})
        for one in axes
        for value in one.values[1:]
    }


def _value_text(value: Value | None) -> str:
    if isinstance(value, tuple):  # a chain of providers goes with its first
        return str(value[0])
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def strategy() -> None:
    """Draw how the search looks; its default suits all questions."""
    with st.expander("Strategy", icon=":material/route:", key="search.how"):
        st.selectbox(
            "How it looks",
            list(STRATEGIES),
            key=STRATEGY,
            persist_state="session",
            help="How first looks are chosen. The race of the best and the confirmation are the same.",
        )
        st.caption(format.plain(STRATEGIES[st.session_state[STRATEGY]]))
        try:
            strategy_named(st.session_state[STRATEGY])
        except TunerError as error:
            state.report(error)
        st.toggle(
            "Begin with what earlier searches found",
            key=WARM,
            persist_state="session",
            help="Earlier searches of this model say what to try first. It is raced anew.",
        )
        st.number_input(
            "Seed",
            step=1,
            key=SEED,
            persist_state="session",
            help="The same seed draws the same first looks.",
        )
