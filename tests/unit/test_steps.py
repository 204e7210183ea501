"""The table of steps: options that are checked, chains that cannot be, and texts that are read back."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import wire
from core.spec.steps import (
    STEPS,
    Step,
    chain_text,
    check_chain,
    is_bound,
    precision_of,
    step_from_dict,
    step_type,
)
from core.spec.steps.option import Option
from core.wire.errors import SpecError

OPTIONS = [(step.kind, option) for step in STEPS for option in step.options]


def info(**changes: Any) -> wire.ModelInfo:
    facts: Any = {
        "path": "/m.onnx",
        "free_dims": ["batch", "length"],
        "batch_dim": "batch",
        "op_counts": {"Conv": 3, "Gemm": 1},
    }
    return facts | changes


def chain(*kinds: str) -> list[Step]:
    """Steps with options that make each of them possible."""
    needed: dict[str, dict[str, Any]] = {
        "fix_dims": {"dims": {"batch": 1}},
        "metadata": {"author": "somebody"},
    }
    return [Step(kind, needed.get(kind)) for kind in kinds]


# --- the table --------------------------------------------------------------------------------------------


def test_every_step_of_the_wire_is_in_the_table_once() -> None:
    assert sorted(one.kind for one in STEPS) == sorted(get_args(wire.StepKind))
    assert len({one.flag for one in STEPS}) == len(STEPS)
    assert step_type("int8_static").flag == "--int8-static"


@pytest.mark.parametrize("one", STEPS, ids=lambda one: one.kind)
def test_a_step_without_options_given_has_them_all(one: Any) -> None:
    step = Step(one.kind)
    assert list(step.options) == [option.name for option in one.options]
    assert step.changed() == {}
    assert step_from_dict(json.loads(json.dumps(step.to_dict()))) == step


@pytest.mark.parametrize(("kind", "option"), OPTIONS, ids=lambda one: getattr(one, "name", one))
def test_every_default_is_a_value_of_its_option_and_is_explained(kind: str, option: Option) -> None:
    assert option.checked(option.default) == option.default
    assert option.help.endswith(".")
    assert option.label
    if option.kind == "choice":
        assert option.default in option.choices


def test_defaults_are_not_shared_between_steps() -> None:
    first = Step("int8_dynamic")
    first.options["op_types"].append("Conv")
    assert "Conv" not in Step("int8_dynamic").options["op_types"]


# --- options ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("simplfy", {}, "no step `simplfy`.*Did you mean `simplify`"),
        ("fp16", {"keep_io": True}, "no option `keep_io`.*Did you mean `keep_io_types`"),
        ("simplify", {"level": 1}, "no option `level`"),
        ("fp16", {"keep_io_types": 1}, "must be true or false"),
        ("fp16", {"block_ops": "Conv"}, "must be a list of names"),
        ("fp16", {"block_ops": ["Conv", " "]}, "not empty"),
        ("int8_static", {"calibration_rows": 0}, "between 1 and 100000"),
        ("int8_static", {"calibration_rows": 1.5}, "must be a whole number"),
        ("int8_static", {"calibration_rows": True}, "must be a whole number"),
        ("int8_static", {"percentile": float("nan")}, "must be a number"),
        ("int8_static", {"calibrate_method": "minmax"}, "one of MinMax, Entropy.*Did you mean `MinMax`"),
        ("int4", {"block_size": 48}, "one of 16, 32"),
        ("int4", {"block_size": "32"}, "one of 16, 32"),
        ("fix_dims", {"dims": {"batch": -1}}, "`batch` must be a whole number from 0"),
        ("fix_dims", {"dims": {"batch": True}}, "`batch` must be a whole number from 0"),
        ("fix_dims", {"dims": ["batch"]}, "dimensions to sizes"),
        ("metadata", {"notes": "x" * 10_001}, "at most 10000 characters"),
        ("mixed", {"max_rel": 0}, "between 1e-07 and 1"),
    ],
)
def test_what_an_option_cannot_be_is_said_with_its_step(kind: str, options: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        Step(kind, options)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        ("int8_static", "per_channel", "on", True),
        ("int8_static", "per_channel", "False", False),
        ("int8_static", "calibration_rows", "64", 64),
        ("int8_static", "percentile", "99.9", 99.9),
        ("int8_static", "calibrate_method", "entropy", "Entropy"),
        ("int4", "block_size", "64", 64),
        ("int8_dynamic", "op_types", "MatMul, Conv", ["MatMul", "Conv"]),
        ("int8_dynamic", "exclude_nodes", "", []),
        ("fix_dims", "dims", "batch=4,x:0=8,a=b=2", {"batch": 4, "x:0": 8, "a=b": 2}),
        ("metadata", "notes", "a, b = c", "a, b = c"),
    ],
)
def test_an_option_is_read_from_a_command_line(kind: str, name: str, text: str, value: Any) -> None:
    assert step_type(kind).option(name).parse(text) == value


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("int8_static", "per_channel", "perhaps"),
        ("int8_static", "calibration_rows", "many"),
        ("int4", "block_size", "48"),
        ("fix_dims", "dims", "batch"),
        ("fix_dims", "dims", "batch=-1"),
    ],
)
def test_a_text_that_means_nothing_is_refused(kind: str, name: str, text: str) -> None:
    with pytest.raises(SpecError, match=f"`{name}`|`batch`"):
        step_type(kind).option(name).parse(text)


@given(st.integers(-10, 200_000))
def test_a_number_is_accepted_exactly_within_its_range(number: int) -> None:
    option = step_type("int8_static").option("calibration_rows")
    assert option.low is not None
    assert option.high is not None
    if option.low <= number <= option.high:
        assert option.checked(number) == number
    else:
        with pytest.raises(SpecError):
            option.checked(number)


@pytest.mark.parametrize("data", [{}, {"kind": 3}, {"kind": "fp16", "options": []}, {"kind": "fp16", "x": 1}])
def test_what_describes_no_step_is_refused(data: Any) -> None:
    with pytest.raises(SpecError, match="options"):
        step_from_dict(data)


def test_an_option_of_a_later_version_has_its_default() -> None:
    assert step_from_dict({"kind": "int4", "options": {"block_size": 64}}).changed() == {"block_size": 64}


# --- chains -----------------------------------------------------------------------------------------------


def test_a_chain_in_words() -> None:
    assert chain_text(chain("simplify", "fp16")).split(" → ") == ["simplify", step_type("fp16").title]
    assert (
        chain_text(chain("fix_dims", "int8_static", "ort_format"))
        == "fix dimensions → INT8 static → ORT format"
    )


@pytest.mark.parametrize(
    ("kinds", "precision"),
    [
        ((), "fp32"),
        (("simplify", "fuse"), "fp32"),
        (("fuse", "fp16", "optimize"), "fp16"),
        (("mixed",), "mixed"),
        (("int8_dynamic", "metadata"), "int8"),
        (("int4",), "int4"),
    ],
)
def test_what_a_chain_computes_in(kinds: tuple[str, ...], precision: str) -> None:
    assert precision_of(chain(*kinds)) == precision


@pytest.mark.parametrize(
    "kinds",
    [
        ("simplify",),
        ("simplify", "fix_dims", "fuse", "fp16", "optimize", "metadata", "ort_format"),
        ("fuse", "int8_dynamic", "ort_format"),
        ("simplify", "int8_static", "metadata"),
        ("fix_dims", "mixed"),
        ("simplify", "simplify"),
    ],
)
def test_chains_that_can_be(kinds: tuple[str, ...]) -> None:
    check_chain(chain(*kinds), info())


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("ort_format", "metadata"), "Metadata cannot follow the ORT format"),
        (("int8_static", "fp16"), "FP16 cannot follow INT8 static"),
        (("fp16", "int8_static"), "INT8 static cannot follow FP16"),
        (("int8_dynamic", "int4"), "INT4 weights cannot follow INT8 dynamic"),
        (("fp16", "mixed"), "Mixed precision cannot follow FP16"),
        (("int8_static", "fuse"), "Fuse transformer cannot follow INT8 static"),
        (("int4", "simplify"), "Simplify cannot follow INT4 weights"),
        (("fix_dims", "fix_dims"), "no free dimension `batch`"),
    ],
)
def test_chains_that_cannot_be(kinds: tuple[str, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        check_chain(chain(*kinds), info())
    assert caught.value.hint
    *before, last = chain(*kinds)
    if last.kind != "fix_dims":  # its dimensions are told by the model that the steps before left
        with pytest.raises(SpecError, match=words):
            check_chain([last], info(), done=before)


def test_empty_chains_and_empty_steps_are_refused() -> None:
    for steps, words in (
        ([], "empty"),
        ([Step("fix_dims")], "no size"),
        ([Step("metadata")], "nothing"),
    ):
        with pytest.raises(SpecError, match=words):
            check_chain(steps, info())


def test_a_graph_for_this_processor_is_the_end_of_a_chain() -> None:
    bound = Step("optimize", {"level": "ORT_ENABLE_ALL"})
    assert is_bound(bound)
    assert not is_bound(Step("optimize"))
    check_chain([bound, *chain("metadata", "ort_format")], info())
    with pytest.raises(SpecError, match="ORT_ENABLE_ALL"):
        check_chain([bound, *chain("int8_static")], info())


def test_what_a_file_is_already_counts_as_a_step() -> None:
    quantized = info(op_counts={"QuantizeLinear": 4, "DequantizeLinear": 9, "Conv": 3})
    with pytest.raises(SpecError, match="quantized"):
        check_chain(chain("fp16"), quantized)
    with pytest.raises(SpecError, match="quantized"):
        check_chain(chain("simplify"), quantized)
    check_chain(chain("metadata"), quantized)
    with pytest.raises(SpecError, match="ORT format"):
        check_chain(chain("metadata"), info(path="/m.ORT"))


def test_a_dimension_must_be_free() -> None:
    with pytest.raises(SpecError, match=r"`lenght`.*`length`"):
        check_chain([Step("fix_dims", {"dims": {"lenght": 4}})], info())
    with pytest.raises(SpecError) as caught:
        check_chain([Step("fix_dims", {"dims": {"batch": 4}})], info(free_dims=[]))
    assert caught.value.hint
    check_chain([Step("fix_dims", {"dims": {"length": 0}})], info())
    with pytest.raises(SpecError, match="`batch`"):
        check_chain([Step("fix_dims", {"dims": {"batch": 0}})], info())
