"""OpenVINO on the pages: its settings appear with the engine, and Compare adds it."""

from __future__ import annotations

from typing import Any

import pytest

from core import wire
from core.show.sheets.models_and_machines import machine_facts
from core.spec import belongs
from core.spec.settings import SETTINGS
from core.wire.engines import DEFAULT, ENGINES
from dashboard import fields, state
from tests.reading import tells
from tests.views.page import Add, Open, click, keys, unfolded, widget

OWN = [one for one in SETTINGS if one.target == "openvino"]


@pytest.fixture
def with_devices(machine: wire.Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which OpenVINO is installed and finds a GPU."""
    described: Any = {
        **machine,
        "libraries": {**machine["libraries"], "openvino": "2026.4.1"},
        "openvino_devices": {"CPU": "Some CPU", "GPU": "Some GPU"},
    }
    monkeypatch.setattr(state, "environment", lambda *_, **__: described)


def test_settings_of_openvino_appear_with_the_engine_in_place_of_onnx_runtimes(
    open_page: Open, add_model: Add
) -> None:
    at = unfolded(open_page(model=add_model()))
    assert not keys(at) & {fields.key(one.name) for one in OWN}
    assert fields.key("graph_optimization_level") in keys(at)
    at = unfolded(widget(at, "engine").set_value("openvino").run())
    assert {fields.key(one.name) for one in OWN} <= keys(at)
    for setting in OWN:
        drawn = widget(at, setting.name)
        assert f"`{setting.field}`" in drawn.proto.help, setting.name
    lacking = {fields.key(one.name) for one in SETTINGS if not belongs(one.name, "openvino")}
    assert not keys(at) & lacking
    assert not at.error


def test_a_value_of_openvino_is_part_of_the_configuration(open_page: Open, add_model: Add) -> None:
    at = unfolded(widget(unfolded(open_page(model=add_model())), "engine").set_value("openvino").run())
    widget(at, "openvino.PERFORMANCE_HINT").set_value("THROUGHPUT").run()
    widget(at, "openvino.reshape").set_value(fields.ON).run()
    widget(at, "openvino.properties").set_value("AUTO_BATCH_TIMEOUT=5").run()
    assert not at.error
    assert {"chip.openvino.PERFORMANCE_HINT", "chip.openvino.reshape"} <= keys(at)
    widget(at, "openvino.properties").set_value("CACHE_DIR=x").run()
    assert tells(at.error[0].value, "`CACHE_DIR`")


def test_a_setting_of_the_other_engine_stays_on_the_page_until_it_is_reset(
    open_page: Open, add_model: Add
) -> None:
    at = unfolded(open_page(model=add_model()))
    widget(at, "intra_op_num_threads").set_value(1).run()
    widget(at, "engine").set_value("openvino").run()
    assert tells(at.error[0].value, "`openvino`", "`intra_op_num_threads`")
    widget(at, "intra_op_num_threads").set_value(None).run()
    assert not at.error
    widget(at, "openvino.NUM_STREAMS").set_value(2).run()
    widget(at, "engine").set_value(DEFAULT).run()
    assert tells(at.error[0].value, f"`{DEFAULT}`", "`openvino.NUM_STREAMS`")
    click(at, "chip.openvino.NUM_STREAMS")
    assert not at.error


@pytest.mark.usefixtures("with_devices")
def test_the_devices_of_this_machine_are_offered(open_page: Open, add_model: Add) -> None:
    at = unfolded(widget(unfolded(open_page(model=add_model())), "engine").set_value("openvino").run())
    assert widget(at, "openvino.device").options == ["CPU", "GPU (Some GPU)", "AUTO"]


@pytest.mark.usefixtures("with_devices")
def test_compare_adds_openvino(open_page: Open, add_model: Add) -> None:
    at = click(open_page("compare", model=add_model()), "compare.add.openvino")
    assert not at.error
    assert ENGINES["openvino"].label in "".join(str(one.value) for one in [*at.markdown, *at.text_input])


def test_compare_offers_openvino_only_where_it_is_installed(
    open_page: Open, add_model: Add, machine: wire.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = {name: one for name, one in machine["libraries"].items() if name != "openvino"}
    monkeypatch.setattr(state, "environment", lambda *_, **__: {**machine, "libraries": libraries})
    assert "compare.add.openvino" not in keys(open_page("compare", model=add_model()))


def test_the_machine_names_version_and_devices(machine: wire.Environment) -> None:
    described: Any = {
        **machine,
        "libraries": {**machine["libraries"], "openvino": "2026.4.1"},
        "openvino_devices": {"CPU": "Some CPU", "GPU": "Some GPU"},
    }
    rows = {one.name: one.text for one in machine_facts(described)}
    assert rows["OpenVINO"] == "2026.4.1, devices: CPU (Some CPU), GPU (Some GPU)"
    none = {one.name: one.text for one in machine_facts(described | {"openvino_devices": {}})}
    assert tells(none["OpenVINO"], "2026.4.1", "none")
    described.pop("openvino_devices")
    assert "OpenVINO" not in {one.name for one in machine_facts(described)}


@pytest.mark.parametrize("page", ["search", "sweep", "load", "scorecard", "accuracy", "compare", "export"])
def test_every_page_that_measures_takes_openvino(open_page: Open, add_model: Add, page: str) -> None:
    at = open_page(page, model=add_model())
    at.session_state[fields.key("engine")] = "openvino"
    at.session_state[fields.key("openvino.PERFORMANCE_HINT")] = "THROUGHPUT"
    at.run()
    assert not at.exception
    assert not at.error


def test_curves_offer_the_settings_of_the_chosen_engine(open_page: Open, add_model: Add) -> None:
    at = open_page("sweep", model=add_model())
    labels = {one.name: one.label for one in SETTINGS}
    assert labels["intra_op_num_threads"] in at.selectbox(key="sweep.axis").options
    at.session_state[fields.key("engine")] = "openvino"
    offered = at.run().selectbox(key="sweep.axis").options
    assert {labels["openvino.NUM_STREAMS"], labels["openvino.INFERENCE_NUM_THREADS"]} <= set(offered)
    assert labels["intra_op_num_threads"] not in offered
