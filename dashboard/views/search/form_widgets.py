"""Widgets of the search form: the common ones visible, the others in collapsed groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from core.api.searching import load_plan_words
from core.show.format import duration
from core.spec.metrics import OBJECTIVES
from core.spec.question import PRESETS, STRATEGIES, question_from_dict
from core.spec.settings import SETTINGS, trial_setting
from core.spec.space import Axis
from core.store import ModelRecord
from core.wire.errors import TunerError
from dashboard import fields, format, messages, runtimes, state
from dashboard.views.scorecard import targets as scorecard_targets
from dashboard.views.search import form
from dashboard.widgets import collapsible, controls, dataset, feeding, page_frame, setting
from dashboard.widgets.protocol import effort, wait_for_quiet


def goal() -> None:
    """Draw the objectives and constraints."""
    form.seed()
    _presets()
    st.selectbox(
        "Objective",
        list(OBJECTIVES),
        key=form.OBJECTIVE,
        format_func=lambda one: OBJECTIVES.get(one, one),
        persist_state="session",
        help="What to optimize, relative to ONNX Runtime's default.",
    )
    st.selectbox(
        "Second objective",
        [form.NOTHING, *OBJECTIVES],
        key=form.SECOND,
        format_func=lambda one: OBJECTIVES.get(one, "none"),
        persist_state="session",
        help="Optional second objective. For a hard maximum use a constraint.",
    )
    if st.session_state[form.SECOND] not in (form.NOTHING, st.session_state[form.OBJECTIVE]):
        st.slider(
            "First weight (%)",
            form.LEAST_SHARE,
            form.MOST_SHARE,
            step=5,
            key=form.WEIGHT,
            persist_state="session",
            help="The rest goes to the second objective (weighted geometric mean of both improvements).",
        )
    st.text_area(
        "Constraints",
        key=form.LIMITS,
        height=96,
        placeholder="p99<=3ms\nmemory<=100MiB\naccuracy>=-0.5%",
        persist_state="session",
        help="One per line, with a unit: `p50`, `p95`, `p99`, `throughput`, `memory`, `cpu`, "
        "`size`, `output_error`, `accuracy`, `sensitivity@0.6` and other scorecard "
        "metrics. `accuracy>=-0.5%` is relative to the original.",
    )
    try:
        form.limits()
    except TunerError as error:
        messages.report(error, "A constraint cannot be read")
    st.text_input(
        "Under load",
        key=form.LOAD,
        placeholder="200/s with p99<=20ms",
        persist_state="session",
        help="Requests/s and a latency limit that the answer has to take. Load tests follow the "
        "confirmation, in addition to the time budget.",
    )
    try:
        if asked := form.load():
            st.caption(f":material/speed: {format.plain(load_plan_words(asked['load']))}.")
    except TunerError as error:
        messages.report(error, "The traffic cannot be read")
    if scorecard_targets.read():
        st.button(
            "Use scorecard targets",
            key="search.targets",
            icon=":material/checklist:",
            type="tertiary",
            on_click=_take_targets,
            help="Turns targets into constraints. Targets at another batch size or of one class "
            "are left out.",
        )
    st.toggle(
        "At least as fast as the default",
        key=form.SAME,
        persist_state="session",
        help="p50 latency must not exceed that of ONNX Runtime's default.",
    )


def _take_targets() -> None:
    rows = st.session_state.get(fields.key("batch_size"))
    targets = scorecard_targets.read()
    loads = [one.load.text for one in targets if one.load is not None]
    timed = [one for one in targets if one.load is None]
    fitting = [one for one in timed if one.batch_size in (None, rows) and one.positive_class is None]
    st.session_state[form.LIMITS] = "\n".join(map(form.limit_line, fitting))
    st.session_state[form.LOAD] = loads[0] if loads else ""
    if left := len(timed) - len(fitting):
        messages.notify(f"{left} of {len(targets)} targets left out: another batch size, or one class.")
    if len(loads) > 1:
        messages.notify(f"A search runs one target under load: {loads[0]}.")


def _presets() -> None:
    """Draw the preset goals; one is selected while the form equals it."""
    st.session_state[form.PRESET] = next((name for name in PRESETS if _asks(name)), None)
    chosen: str | None = st.pills(
        "Goal",
        list(PRESETS),
        key=form.PRESET,
        format_func=lambda name: f"{name[:1].upper()}{name[1:]}",
        on_change=_take_preset,
        help="Fills in objective and constraints; you can change them.",
    )
    if chosen is not None:
        st.caption(PRESETS[chosen][0])


def _asks(name: str) -> bool:
    wanted = question_from_dict(PRESETS[name][1])
    try:
        own = question_from_dict(
            {"objective": form.objective(), **form.limits(), "same_latency": st.session_state[form.SAME]}
        )
    except TunerError:
        return False
    return own == wanted


def _take_preset() -> None:
    if name := st.session_state.get(form.PRESET):
        form.fill_goal(question_from_dict(PRESETS[name][1]))


def time_and_effort() -> None:
    """Draw time budget and effort."""
    times = sorted({*form.TIMES_S, st.session_state[form.BUDGET]})
    st.select_slider(
        "Time budget",
        times,
        key=form.BUDGET,
        format_func=duration,
        persist_state="session",
        help="Covers screening, elimination and confirmation. The search ends earlier if more "
        "time would change nothing.",
    )
    st.toggle(
        "Extend if needed",
        key=form.EXTEND,
        persist_state="session",
        help="Takes longer if the budget is too short to confirm a result. Off: such a search is refused.",
    )
    effort(form.EFFORT, "Effort")


def batch(record: ModelRecord, axes: Sequence[Axis]) -> None:
    """Draw the batch size of the starting point, and those tried where the batch size varies.

    Args:
        record: the model.
        axes: the settings that can vary, fixed ones included.
    """
    state.seed(record)
    setting.one(trial_setting("batch_size"), None, record)
    tried = next((one for one in axes if one.name == "batch_size"), None)
    if tried is not None and tried.name not in st.session_state[form.FIXED]:
        values = ", ".join(format.value(one) for one in tried.values)
        st.caption(f":material/shuffle: The search varies it: {values}.")


def labelled_data(record: ModelRecord) -> None:
    """Draw the labelled data, which a constraint on the accuracy needs."""
    named = bool(st.session_state.get(dataset.key(dataset.LABELLED, "path")))
    with st.expander("Labelled data", icon=":material/dataset:", expanded=not named, key="search.data"):
        dataset.form(dataset.LABELLED, outputs=[one["name"] for one in record.info["outputs"]])


def starting_point(record: ModelRecord) -> None:
    """Draw the starting point: inputs here, every other setting as on Tune."""
    state.seed(record)

    def draw() -> None:
        try:
            spec = state.current_spec()
        except TunerError as error:
            messages.report(error)
        else:
            controls.badges(spec)
        page_frame.link("tune", "Change settings on Tune")
        feeding.dims(record)
        feeding.feeds(record, {})

    changed = len(set(controls.changed_settings()) - {"batch_size"})
    collapsible.group("Starting point", draw, key="search.start", icon="flag", changed=changed)


def custom_values() -> None:
    """Draw the field for custom settings and values."""
    try:
        named, error = len(form.custom_values()), None
    except TunerError as caught:
        named, error = 0, caught
    title = f"Custom values: {named}" if named else "Custom values"
    collapsible.group(title, _own_values, key="search.own_values", icon="edit")
    if error is not None:
        messages.report(error, "A setting cannot be read")


def _own_values() -> None:
    st.text_area(
        "Settings and their values, one setting per line",
        key=form.CUSTOM,
        height=96,
        placeholder="intra_op_num_threads=1,2,4\nsession.intra_op.allow_spinning=on,off",
        persist_state="session",
        on_change=_take_own,
        help="If set, only these settings vary.",
    )


def varied_settings(axes: Sequence[Axis]) -> None:
    """Draw which settings vary, which values are excluded, and whether variants are candidates."""
    names = [one.name for one in axes]
    free = [name for name in names if name not in st.session_state[form.FIXED]]
    st.session_state[form.VARY] = free

    def draw() -> None:
        _vary(names)
        _runtimes()
        _never(form.values_beyond_start([one for one in axes if one.name in free]))
        _variants()

    title = f"Varied settings: {len(free)} of {len(names)}"
    collapsible.group(title, draw, key="search.changes", icon="shuffle")


def _vary(names: Sequence[str]) -> None:
    st.multiselect(
        "Varied settings",
        names,
        key=form.VARY,
        format_func=_axis_name,
        on_change=_take_vary,
        args=(names,),
        placeholder="Choose settings",
        help="Removed settings keep their value on Tune.",
    )


def _runtimes() -> None:
    """Draw which other runtimes may be the result, where this machine has any."""
    others = form.further_runtimes()
    if not others:
        return
    own = state.environment()["libraries"]
    st.session_state[form.RUNTIMES] = form.chosen_runtimes()
    st.multiselect(
        "Runtimes",
        others,
        key=form.RUNTIMES,
        format_func=lambda one: runtimes.label(one, own),
        persist_state="session",
        placeholder="that of the starting point",
        help="Further runtimes that may be the result. Empty: every configuration runs in that of the "
        "starting point.",
    )


def _never(values: Mapping[str, str]) -> None:
    st.session_state[form.EXCLUDED] = [one for one in st.session_state[form.EXCLUDED] if one in values]
    st.multiselect(
        "Excluded values",
        list(values),
        key=form.EXCLUDED,
        format_func=lambda one: values.get(one, one),
        persist_state="session",
        placeholder="none",
        help="The starting point is always evaluated, because all results are compared with it.",
    )
    st.button(
        "Vary all",
        key="search.all",
        icon=":material/undo:",
        type="tertiary",
        disabled=not st.session_state[form.FIXED] and not st.session_state[form.EXCLUDED],
        on_click=_all_may_change,
        help="No setting is fixed, and no value excluded.",
    )


def _variants() -> None:
    st.segmented_control(
        "Model variants",
        list(form.VARIANT_NAMES),
        key=form.VARIANTS,
        format_func=lambda one: form.VARIANT_NAMES[one],
        required=True,
        persist_state="session",
        help="Whether a variant of the model may be the result. *Create new* adds simplified, "
        "fused, FP16 and INT8 copies within the time.",
    )


def _axis_name(name: str) -> str:
    return next((one.label for one in SETTINGS if one.name == name), name)


def _take_vary(names: Sequence[str]) -> None:
    """Store which settings were removed, so that settings of a later question vary by default."""
    chosen = st.session_state[form.VARY]
    others = [one for one in st.session_state[form.FIXED] if one not in names]
    st.session_state[form.FIXED] = [*others, *(one for one in names if one not in chosen)]


def _take_own() -> None:
    """Unfix every setting with custom values."""
    try:
        named = form.custom_values()
    except TunerError:
        return  # the error is shown below the field
    st.session_state[form.FIXED] = [one for one in st.session_state[form.FIXED] if one not in named]


def _all_may_change() -> None:
    st.session_state[form.FIXED], st.session_state[form.EXCLUDED] = [], []


def strategy() -> None:
    """Draw the screening strategy, earlier searches, seed, and yielding; the defaults suit every search."""
    names = (form.STRATEGY, form.WARM, form.SEED, form.GIVE_WAY)
    changed = sum(st.session_state[name] != form.DEFAULTS[name] for name in names)
    collapsible.group("Strategy", _strategy, key="search.how", icon="route", changed=changed)


def _strategy() -> None:
    st.selectbox(
        "Screening strategy",
        list(STRATEGIES),
        key=form.STRATEGY,
        persist_state="session",
        help="How screening chooses configurations. Elimination and confirmation stay the same.",
    )
    st.caption(format.plain(STRATEGIES[st.session_state[form.STRATEGY]]))
    st.toggle(
        "Use earlier searches",
        key=form.WARM,
        persist_state="session",
        help="Starts with the best of earlier searches of this model and measures it again.",
    )
    st.number_input(
        "Seed",
        step=1,
        key=form.SEED,
        persist_state="session",
        help="The same seed gives the same screening.",
    )
    st.toggle(
        "Yield to other jobs",
        key=form.GIVE_WAY,
        persist_state="session",
        help="Other jobs may run between two steps of the search. Their time does not count.",
    )
    wait_for_quiet()
