"""Input descriptions: ranges of random values in a workload, and their text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.evidence.input_description import describe_inputs, input_text
from core.evidence.result_types import InputDescription
from core.run.plan import feed_plan
from core.spec import WorkloadSpec, spec_from_dict
from core.spec.checks import feed_range
from core.wire.errors import SpecError
from core.worker.models import inspect_model
from tests import tiny_models
from tests.reading import numbers


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("random:0..30521", (0, 30521)),
        (" Random: -1 .. 1 ", (-1, 1)),
        ("random:0.5..2.5", (0.5, 2.5)),
        ("random:0..18446744073709551615", (0, 2**64 - 1)),
        ("16000", None),
        (16000, None),
        ([1, 2], None),
    ],
)
def test_ranges_are_read(text: Any, ends: Any) -> None:
    assert feed_range("x", text) == ends


@pytest.mark.parametrize(
    "text",
    [
        *("random", "random:", "random:5", "random:..5", "random:1..", "random:a..b", "random:0..nan"),
        *("random:0..inf", "random:9..1", "random:0.." + "9" * 5000, "random 0..5"),
    ],
)
def test_what_is_no_range_is_refused_with_its_input(text: str) -> None:
    with pytest.raises(SpecError, match="`ids`") as caught:
        spec_from_dict({"model": {"path": "m.onnx"}, "workload": {"feed_values": {"ids": text}}})
    assert caught.value.hint


@pytest.fixture
def tokens(tmp_path: Path) -> Any:
    return inspect_model(str(tiny_models.tokens(tmp_path / "tokens.onnx")))


def test_a_range_becomes_the_plan_of_its_input_and_no_fixed_value(tokens: Any) -> None:
    workload = WorkloadSpec(
        dims={"sequence": 8}, feed_values={"input_ids": "random:3..6", "attention_mask": 1}
    )
    plan = feed_plan(workload, tokens)
    ids = plan["inputs"][0]
    assert (ids["low"], ids["high"], ids["drawn"]) == (3, 7, True)
    assert plan["values"] == {"attention_mask": 1}


@pytest.mark.parametrize("text", ["random:0.5..3", f"random:0..{2**63}"])
def test_a_range_that_the_type_does_not_have_is_refused(tokens: Any, text: str) -> None:
    workload = WorkloadSpec(dims={"sequence": 8}, feed_values={"input_ids": text})
    with pytest.raises(SpecError, match="int64"):
        feed_plan(workload, tokens)


def test_a_range_needs_the_sizes_that_an_npz_would_bring(tokens: Any) -> None:
    workload = WorkloadSpec(feeds="rows.npz", feed_values={"input_ids": "random:0..3"})
    with pytest.raises(SpecError, match="`sequence`"):
        feed_plan(workload, tokens)
    assert feed_plan(workload.model_copy(update={"feed_values": {}}), tokens)["source"] == "npz"


def test_a_range_survives_yaml_data() -> None:
    data = {"model": {"path": "m.onnx"}, "workload": {"feed_values": {"ids": "random:0..9"}}}
    assert spec_from_dict(spec_from_dict(data).to_dict()).workload.feed_values == {"ids": "random:0..9"}


def test_every_input_is_told_with_where_its_values_come_from(tokens: Any, tmp_path: Path) -> None:
    plans = [
        feed_plan(
            WorkloadSpec(batch_size=rows, dims={"sequence": 8}, feed_values={"attention_mask": 1}), tokens
        )
        for rows in (1, 2, 1)
    ]
    ids, mask = describe_inputs(plans, tokens)
    reason = "it chooses among the 50 entries of `table` (Gather)"
    assert input_text(ids) == f"input_ids int64 [1, 8] and [2, 8]: random, 0 to 49 ({reason})"
    assert input_text(mask) == "attention_mask int64 [1, 8] and [2, 8]: 1"
    asked = WorkloadSpec(dims={"sequence": 8}, feed_values={"input_ids": "random:3..6"})
    assert numbers(input_text(describe_inputs([feed_plan(asked, tokens)], tokens)[0]))[-2:] == [3, 6]
    from_file = WorkloadSpec(feeds="a/rows.npz")
    assert (
        input_text(describe_inputs([feed_plan(from_file, tokens)], tokens)[0])
        == "input_ids int64 [1, ?]: from rows.npz"
    )
    scalar = inspect_model(str(tiny_models.scalar(tmp_path / "s.onnx")))
    x, sr = describe_inputs([feed_plan(WorkloadSpec(), scalar)], scalar)
    assert input_text(x) == "x float32 [1, 4]: random, 0 to 1"
    assert input_text(sr) == "sr int64 []: random, 0 to 1 (the model states no range)"


def test_name_longer_than_a_screen_is_told_by_its_beginning() -> None:
    one = InputDescription(name="n" * 100_000, dtype="float32", shapes=[[2]], values="1")
    assert input_text(one) == f"{'n' * 119}… float32 [2]: 1"
