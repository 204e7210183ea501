"""Single settings on the Tune page: the engine of an exported model, more threads than there are CPUs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core import wire
from core.spec import WorkloadSpec
from core.store import ModelRecord
from core.wire.catalog import SEED_KEY, SOURCE_KEY, WEIGHTS_KEY
from core.wire.engines import DEFAULT, ENGINES
from dashboard import fields, state
from dashboard.widgets import results
from dashboard.widgets.feeding import GUESS_SUFFIX
from tests import tiny_models
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import Add, Open, opened, widget


def from_torchvision(record: ModelRecord) -> ModelRecord:
    """The record as if its file had been exported here."""
    metadata = {SOURCE_KEY: "torchvision squeezenet1_1", WEIGHTS_KEY: "random", SEED_KEY: "0"}
    exported = replace(record, info={**record.info, "metadata": metadata})
    state.store().put_model(exported)
    return exported


def test_pytorch_is_offered_only_for_a_model_that_was_exported_here(open_page: Open, add_model: Add) -> None:
    mlp = add_model()
    engine = widget(open_page(model=mlp), "engine")
    assert engine.options == [one.label for one in ENGINES.values() if not one.program]
    assert ENGINES[DEFAULT].label in engine.options
    engine = widget(open_page(model=from_torchvision(mlp)), "engine")
    assert engine.options == [one.label for one in ENGINES.values()]


def test_an_engine_that_ignores_a_setting_says_which(open_page: Open, add_model: Add) -> None:
    at = open_page(model=from_torchvision(add_model()))
    widget(at, "intra_op_num_threads").set_value(1).run()
    assert not at.error
    widget(at, "engine").set_value("torch-eager").run()
    assert tells(at.error[0].value, "torch-eager", "`intra_op_num_threads`")
    widget(at, "intra_op_num_threads").set_value(None).run()
    assert not at.error


def test_more_threads_than_cpus_are_warned_of_and_allowed(
    open_page: Open, add_model: Add, machine: wire.Environment
) -> None:
    at = open_page(model=add_model())
    widget(at, "intra_op_num_threads").set_value(1).run()
    assert not any(tells(one.value, "`intra_op_num_threads`", "CPU") for one in at.caption)
    widget(at, "intra_op_num_threads").set_value(machine["cpu"]["logical"] + 1).run()
    more = machine["cpu"]["logical"] + 1
    assert any(tells(one.value, "`intra_op_num_threads`", more, "CPU") for one in at.caption)
    assert not at.error
    assert not at.button(key="run").disabled


@pytest.mark.parametrize(
    ("name", "number"), [("intra_op_num_threads", 1_000_000), ("batch_size", 99_999_999), ("runs", -1)]
)
def test_what_the_field_shows_is_what_runs_or_it_does_not_run(
    open_page: Open, add_model: Add, name: str, number: int
) -> None:
    at = open_page(model=add_model())
    field = widget(at, name)
    assert (field.min, field.max) == (None, None)  # the browser sends what it shows
    field.set_value(number).run()
    assert number in numbers(at.error[0].value)
    assert widget(at, name).value == number
    assert at.button(key="run").disabled


def test_minutes_to_wait_are_held_to_their_range(open_page: Open, add_model: Add) -> None:
    at = open_page(model=add_model())
    at.toggle(key="protocol.wait_quiet").set_value(True).run()
    at.number_input(key="protocol.wait_minutes").set_value(500).run()
    assert numbers(at.error[0].value)[:3] == [1, 120, 500]
    at.button(key="run").click().run()
    assert not state.store().trials()


def test_a_guessed_image_size_is_marked_as_one_until_it_is_given(open_page: Open, add_model: Add) -> None:
    def image(path: Path) -> Path:
        return tiny_models.identity(path, "float32", ("batch", 3, "side", "other"))

    at = open_page(model=add_model(image, "image"))
    height, width = (at.get_by_key(fields.dim_key(one)) for one in ("side", "other"))
    assert tells(height.label, "side")
    assert tells(width.label, "other")
    assert (height.value, GUESS_SUFFIX in height.label) == (224, True)
    assert any(numbers(one.value) == [224, 224] for one in at.markdown)
    height.set_value(32).run()
    assert GUESS_SUFFIX not in at.get_by_key(fields.dim_key("side")).label
    assert any(numbers(one.value) == [224] for one in at.markdown)


def test_a_size_of_the_last_run_is_proposed_by_every_page(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.tokens, "tokens")
    [dim] = fields.other_dims(record.info)
    spec = sample_results.spec_for(record).model_copy(update={"workload": WorkloadSpec(dims={dim: 7})})
    sample_results.put_measured(state.store(), record, spec, fingerprint="here")
    at = open_page(model=record)
    field = at.get_by_key(fields.dim_key(dim))
    assert (field.value, "(last run)" in field.label) == (7, True)
    assert not any("guessed" in one.value for one in at.markdown)
    assert (
        opened(open_page("search", model=record), "search.start").get_by_key(fields.dim_key(dim)).value == 7
    )
    assert open_page("variants", model=record).get_by_key(fields.dim_key(dim)).value == 7


def test_the_title_of_a_result_names_the_shapes_that_were_fed(add_model: Add) -> None:
    record = add_model(tiny_models.tokens, "tokens")
    [dim] = fields.other_dims(record.info)
    values = {fields.key("batch_size"): 2, fields.dim_key(dim): 7}
    spec = fields.spec_from_values(values, path=record.path, sha256=record.sha256, info=record.info)
    trial = sample_results.put_measured(state.store(), record, spec, fingerprint="here", rows=2)
    assert results.input_shapes_text(trial).split(", ") == [
        f"{name} 2×7" for name in ("input_ids", "attention_mask")
    ]
