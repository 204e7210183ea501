"""The space of a search: what really differs, what was left out and why, and what a user may forbid."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.spec import ModelRef, with_changes, without_effect
from core.spec.settings import Place
from core.spec.space import (
    MODEL,
    MOST_DISTINCT,
    Axis,
    Space,
    axes_from_user,
    changes_from_default,
    changes_words,
    check_any_varies,
    fit_axes,
    reference,
    search_axes,
    space,
    unvaried_words,
    without,
)
from core.wire.errors import SpecError
from tests import builders

BASE = builders.spec()
THREADS = Axis(name="intra_op_num_threads", values=(0, 1, 2))
MODE = Axis(name="execution_mode", values=("ORT_SEQUENTIAL", "ORT_PARALLEL"))
INTER = Axis(name="inter_op_num_threads", values=(0, 2, 4))
SPIN = Axis(name="session.intra_op.allow_spinning", values=(True, False))
SPIN_US = Axis(name="session.intra_op.spin_duration_us", values=(None, 100))
PATTERN = Axis(name="enable_mem_pattern", values=(True, False))
ARENA = Axis(name="enable_cpu_mem_arena", values=(True, False))
ALL = (THREADS, MODE, INTER, SPIN, SPIN_US, PATTERN, ARENA)


def check_whole(of: Space) -> None:
    """Properties of every space."""
    assert len(of.choices) + sum(of.left_out.values()) == of.combinations
    assert of.combinations == math.prod(len(axis.values) for axis in of.axes)
    assert len(set(of.choices)) == len(of.choices)
    assert not any(of.choices[0])
    some = of.choices[:: 1 + len(of.choices) // 300]
    assert all(of.canonical(choice) == choice for choice in some)


# --- what really differs --------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(ALL), unique=True, min_size=1), st.booleans(), st.booleans())
def test_choices_and_what_was_left_out_add_up(axes: list[Axis], parallel: bool, one_thread: bool) -> None:
    session: dict[str, Any] = {"execution_mode": "ORT_PARALLEL"} if parallel else {}
    if one_thread:
        session["intra_op_num_threads"] = 1
    base = builders.spec(session=session)
    own = axes_from_user(base, {axis.name: list(axis.values) for axis in axes})
    check_whole(space(base, own))


def test_every_configuration_is_another_request() -> None:
    of = space(BASE, ALL)
    keys = {of.spec(choice).key() for choice in of.choices}
    assert len(keys) == len(of.choices)


def test_no_configuration_sets_what_has_no_effect() -> None:
    of = space(BASE, ALL)
    for choice in of.choices:
        assert not set(of.changes(choice)) & set(without_effect(of.spec(choice)))


def test_what_rules_decides_what_is_left() -> None:
    of = space(BASE, [MODE, INTER])
    assert {of.label(choice) for choice in of.choices} == {
        "ONNX Runtime's default",
        "mode PARALLEL",
        "mode PARALLEL, inter_threads 2",
        "mode PARALLEL, inter_threads 4",
    }
    assert of.left_out == {"`inter_op_num_threads` has no effect: used by ORT_PARALLEL only": 2}


def test_rules_hold_in_whichever_order_axes_are_named() -> None:
    one = space(BASE, [MODE, INTER, SPIN, SPIN_US, THREADS])
    two = space(BASE, [THREADS, SPIN_US, SPIN, INTER, MODE])
    assert {frozenset(one.changes(choice).items()) for choice in one.choices} == {
        frozenset(two.changes(choice).items()) for choice in two.choices
    }
    assert sum(one.left_out.values()) == sum(two.left_out.values())


def test_a_rule_reads_the_start_where_a_setting_does_not_vary() -> None:
    parallel = builders.spec(session={"execution_mode": "ORT_PARALLEL"})
    with pytest.raises(SpecError):
        check_any_varies(without([INTER], ["inter_op_num_threads"]))
    assert len(space(BASE, [INTER]).choices) == 1
    assert len(space(parallel, [INTER]).choices) == 3


def test_the_canonical_form_is_what_a_combination_really_is() -> None:
    of = space(BASE, [THREADS, SPIN, SPIN_US, ARENA])
    assert of.canonical((1, 1, 1, 1)) == (1, 0, 0, 1)  # one thread has no pool that could spin
    assert of.canonical((2, 1, 1, 0)) == (2, 1, 0, 0)  # no duration of what is off
    assert of.canonical((2, 0, 1, 0)) == (2, 0, 1, 0)
    assert all(of.canonical(of.canonical(one)) == of.canonical(one) for one in [(1, 1, 1, 1), (2, 1, 1, 0)])


def test_a_setting_with_one_value_is_no_axis() -> None:
    of = space(BASE, [THREADS, Axis(name="enable_mem_pattern", values=(True,))])
    assert [axis.name for axis in of.axes] == ["intra_op_num_threads"]


def test_too_large_a_space_is_refused() -> None:
    axes = [Axis(name="intra_op_num_threads", values=tuple(range(1000))), ARENA, PATTERN]
    axes.append(Axis(name="batch_size", values=tuple(range(1, 101))))
    with pytest.raises(SpecError, match=r"at most 200,000 .*, but got 400,000") as caught:
        space(BASE, axes)
    assert "exclude" in caught.value.hint


def test_what_is_worth_trying_is_a_space_on_any_machine() -> None:
    for threads in (1, 2, 4, 64):
        of = space(BASE, search_axes(BASE, Place(threads=threads)))
        check_whole(of)
        assert len(of.choices) > 100


def test_the_start_is_the_first_value_of_every_axis() -> None:
    base = builders.spec(session={"intra_op_num_threads": 2, "enable_cpu_mem_arena": False})
    axes = {one.name: one for one in search_axes(base, Place(threads=4))}
    assert axes["intra_op_num_threads"].values == (2, 0, 1, 4)
    assert axes["enable_cpu_mem_arena"].values[0] is False


# --- one configuration ----------------------------------------------------------------------------------


def test_a_configuration_becomes_the_request_that_it_says() -> None:
    of = space(BASE, ALL)
    choice = of.find({"intra_op_num_threads": 2, "session.intra_op.allow_spinning": False})
    assert choice is not None
    spec = of.spec(choice)
    assert spec.session.intra_op_num_threads == 2
    assert spec.session.session_config_entries["session.intra_op.allow_spinning"] == "0"
    assert of.spec(of.choices[0]) == BASE


def test_a_configuration_is_found_by_what_it_changes() -> None:
    of = space(BASE, ALL)
    assert all(of.find(of.changes(choice)) == choice for choice in of.choices)


@pytest.mark.parametrize(
    "values",
    [
        {"intra_op_num_threads": 3},
        {"enable_profiling": True},
        {"inter_op_num_threads": 2},  # without ORT_PARALLEL it is a duplicate of another
    ],
)
def test_what_is_not_of_the_space_is_not_found(values: dict[str, Any]) -> None:
    assert space(BASE, ALL).find(values) is None


def test_lists_from_json_are_found_like_tuples() -> None:
    chains = (("CPUExecutionProvider",), ("XnnpackExecutionProvider", "CPUExecutionProvider"))
    of = space(BASE, [Axis(name="providers", values=chains)])
    assert of.find({"providers": ["XnnpackExecutionProvider", "CPUExecutionProvider"]}) == (1,)


def test_variants_are_an_axis_of_models() -> None:
    int8 = ModelRef(path="int8.onnx")
    of = space(BASE, [Axis(name=MODEL, values=(None, "int8")), ARENA], models={"int8": int8})
    choice = of.find({MODEL: "int8", "enable_cpu_mem_arena": False})
    assert choice == (1, 1)
    assert of.spec(choice).model == int8
    assert of.spec((0, 1)).model == BASE.model
    assert of.label(choice) == "int8, arena off"


def test_changes_in_words() -> None:
    changes = {
        "intra_op_num_threads": 1,
        "session.intra_op.allow_spinning": False,
        "graph_optimization_level": "ORT_ENABLE_BASIC",
        "providers": ("A", "B"),
    }
    assert changes_words(changes) == ("threads 1, spinning off, graph BASIC, providers A+B")
    assert changes_words({}) == "ONNX Runtime's default"


def test_a_configuration_is_named_by_all_that_differs_from_the_default_wherever_the_search_starts() -> None:
    start = builders.spec(
        session={"graph_optimization_level": "ORT_ENABLE_BASIC", "intra_op_num_threads": 1},
        workload={"use_io_binding": True},
    )
    levels = Axis(name="graph_optimization_level", values=("ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"))
    of = space(start, [Axis(name="use_io_binding", values=(True, False)), levels])
    label = {tuple(of.changes(choice)): of.label(choice) for choice in of.choices}
    assert label == {
        (): "graph BASIC, threads 1, io_binding on",
        ("use_io_binding",): "graph BASIC, threads 1",
        ("graph_optimization_level",): "threads 1, io_binding on",
        ("use_io_binding", "graph_optimization_level"): "threads 1",
    }


def test_what_differs_from_the_default_is_what_the_spec_asks_for() -> None:
    start = builders.spec(session={"intra_op_num_threads": 1, "enable_mem_pattern": False})
    of = space(start, [Axis(name="enable_mem_pattern", values=(False, True)), MODE, ARENA])
    for choice in of.choices:
        own = changes_from_default(start, of.changes(choice))
        assert with_changes(reference(start), own).key() == of.spec(choice).key()
    assert changes_from_default(builders.spec(), {MODEL: "int8", "use_io_binding": False}) == {MODEL: "int8"}


# --- requested and excluded values ----------------------------------------------------------------------


def test_axes_that_are_named_begin_with_the_start() -> None:
    (axis,) = axes_from_user(BASE, {"intra_op_num_threads": [4, 2, 4]})
    assert axis.values == (0, 4, 2)


def test_how_to_measure_cannot_vary() -> None:
    with pytest.raises(SpecError, match="`budget_s` is a setting of the measurement"):
        axes_from_user(BASE, {"budget_s": [1, 2]})


def test_a_value_that_a_setting_does_not_take_is_refused() -> None:
    with pytest.raises(SpecError):
        axes_from_user(BASE, {"intra_op_num_threads": [-7]})


def test_settings_and_values_can_be_forbidden() -> None:
    axes = [THREADS, MODE, SPIN]
    left = without(axes, ["execution_mode", "intra_op_num_threads=2", "off"])
    assert [(one.name, one.values) for one in left] == [("intra_op_num_threads", (0, 1))]


def test_the_starts_own_value_stays() -> None:
    with pytest.raises(SpecError, match="does not vary here"):
        without([THREADS], ["intra_op_num_threads=0"])


def test_a_choice_can_be_forbidden_by_its_name_alone() -> None:
    left = without([MODE, THREADS], ["ort_parallel"])
    assert [one.name for one in left] == ["intra_op_num_threads"]


def test_a_value_can_be_forbidden_as_lists_of_values_show_it() -> None:
    cuda, tensorrt, cpu = (f"{one}ExecutionProvider" for one in ("CUDA", "Tensorrt", "CPU"))
    chains = Axis(name="providers", values=((cpu,), (cuda, cpu), (tensorrt, cuda, cpu)))
    for text, left in ((f"{cuda}+{cpu}", (0, 2)), ("tensorrt", (0, 1)), (tensorrt, (0, 1))):
        [kept] = without([chains], [f"providers={text}"])
        assert kept.values == tuple(chains.values[place] for place in left)
    assert without([chains], ["providers=cuda"]) == []
    [spin] = without([Axis(name="spin", values=(100, None, 0))], ["spin=default"])
    assert spin.values == (100, 0)


@pytest.mark.parametrize(
    ("text", "near"),
    [("intra_op_num_thread", "intra_op_num_threads"), ("ORT_PARALEL", "ORT_PARALLEL")],
)
def test_what_does_not_vary_offers_the_nearest_name(text: str, near: str) -> None:
    with pytest.raises(SpecError, match=f"Did you mean `{near}`") as caught:
        without([THREADS, MODE], [text])
    assert "execution_mode, intra_op_num_threads" in caught.value.hint


def test_nothing_left_to_vary_is_refused() -> None:
    left = without([MODE], ["execution_mode"])
    with pytest.raises(SpecError, match="Nothing is left to vary"):
        check_any_varies(left)


# --- more than a search can try -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "gpus", "asked"),
    [
        (16, (), {"any_batch": True}),
        (128, (), {"any_batch": True, "memory": True}),
        (2, ("CUDAExecutionProvider",), {}),
        (64, ("TensorrtExecutionProvider", "CUDAExecutionProvider"), {"any_batch": True, "memory": True}),
    ],
)
def test_every_machine_can_be_searched(threads: int, gpus: tuple[str, ...], asked: dict[str, bool]) -> None:
    chains = (("CPUExecutionProvider",), *((one, "CPUExecutionProvider") for one in gpus))
    axes = search_axes(BASE, Place(threads=threads, providers=chains, **asked))
    left, unvaried = fit_axes(BASE, axes)
    found = space(BASE, left)
    assert 1 < len(found.choices) <= MOST_DISTINCT
    names = {one.name for one in left}
    assert names.isdisjoint(unvaried)
    assert names | set(unvaried) == {one.name for one in axes}
    assert {"intra_op_num_threads", "graph_optimization_level"} <= names
    assert not gpus or "providers" in names


def test_what_is_small_enough_stays_whole_and_what_is_left_out_is_named() -> None:
    axes = search_axes(BASE, Place(threads=2))
    assert fit_axes(BASE, axes) == (axes, ())
    [told] = unvaried_words(["use_deterministic_compute"])
    assert "deterministic" in told
    assert unvaried_words([]) == []
