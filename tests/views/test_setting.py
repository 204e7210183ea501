"""Single settings on the Tune page: the engine of an exported model, more threads than there are CPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamlit.testing.v1 import AppTest

from core import wire
from core.catalog import SEED_KEY, SOURCE_KEY, WEIGHTS_KEY
from core.store import ModelRecord
from dashboard import fields, state

Open = Callable[..., AppTest]
Add = Callable[..., ModelRecord]


def widget(at: AppTest, name: str) -> Any:
    return at.get_by_key(fields.key(name))


def from_torchvision(record: ModelRecord) -> ModelRecord:
    """The record as if its file had been exported here."""
    metadata = {SOURCE_KEY: "torchvision squeezenet1_1", WEIGHTS_KEY: "random", SEED_KEY: "0"}
    exported = replace(record, info={**record.info, "metadata": metadata})
    state.store().put_model(exported)
    return exported


def test_pytorch_is_offered_only_for_a_model_that_was_exported_here(open_page: Open, add_model: Add) -> None:
    mlp = add_model()
    engine = widget(open_page(model=mlp), "engine")
    assert (engine.options, engine.disabled) == (["ONNX Runtime"], True)
    engine = widget(open_page(model=from_torchvision(mlp)), "engine")
    assert engine.options == ["ONNX Runtime", "PyTorch eager", "torch.compile"]
    assert not engine.disabled


def test_an_engine_that_ignores_a_setting_says_which(open_page: Open, add_model: Add) -> None:
    at = open_page(model=from_torchvision(add_model()))
    widget(at, "engine").set_value("torch-eager").run()
    assert not at.error
    widget(at, "intra_op_num_threads").set_value(1).run()
    assert "`intra_op_num_threads` is a setting of ONNX Runtime" in at.error[0].value.replace("\\", "")
    widget(at, "intra_op_num_threads").set_value(None).run()
    assert not at.error


def test_more_threads_than_cpus_are_warned_of_and_allowed(
    open_page: Open, add_model: Add, machine: wire.Environment
) -> None:
    at = open_page(model=add_model())
    widget(at, "intra_op_num_threads").set_value(1).run()
    assert not any("wait for each other" in one.value for one in at.caption)
    widget(at, "intra_op_num_threads").set_value(machine["cpu"]["logical"] + 1).run()
    assert any("threads will wait for each other" in one.value for one in at.caption)
    assert not at.error
    assert not at.button(key="run").disabled
