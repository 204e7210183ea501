"""Settings of OpenVINO: their values, whose they are, and where they stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.api.references import config_from
from core.api.settings import spec_data
from core.process import engine_packages
from core.run import baseline, static_checks
from core.run.known_trials import is_current
from core.run.load import serving
from core.run.plan import contestant_plan, session_plan
from core.show.setting_chips import chips
from core.spec import belongs, changed, spec_from_dict, spec_from_yaml, with_changes, yaml_from_spec
from core.spec.axes import offered
from core.spec.openvino import KNOWN_PROPERTIES, OpenVinoSpec
from core.spec.settings import SETTINGS, Place
from core.spec.space import search_axes, space
from core.wire.engines import DEFAULT, ENGINES
from core.wire.errors import SpecError
from core.wire.openvino_devices import missing_devices
from dashboard import configurations, fields
from tests.reading import tells

MODEL = {"path": "m.onnx"}
OPENVINO = {"model": MODEL, "engine": "openvino"}
NO_STORE: Any = None  # an engine needs none
INFO: Any = {"batch_dim": "batch", "free_dims": ["batch"], "inputs": [], "fixed_batch": None}


def refusal(data: dict[str, Any]) -> SpecError:
    with pytest.raises(SpecError) as caught:
        spec_from_dict(data)
    return caught.value


def own(**settings: Any) -> Any:
    return spec_from_dict({**OPENVINO, "openvino": settings})


# --- values -------------------------------------------------------------------------------------------------


OPENVINO_SETTINGS = [one for one in SETTINGS if one.target == "openvino"]


@pytest.mark.parametrize(
    "device", ["CPU", "GPU", "GPU.1", "NPU", "AUTO", "AUTO:GPU,CPU", "AUTO:-CPU", "HETERO:GPU.1,CPU", "MULTI"]
)
def test_devices_in_openvinos_spelling_are_accepted(device: str) -> None:
    assert own(device=device).openvino.device == device


@pytest.mark.parametrize("device", ["", "cpu", "CPU,GPU", "AUTO:", "HETERO:GPU,", "GPU;1", "C" * 300])
def test_other_devices_are_refused(device: str) -> None:
    error = refusal({**OPENVINO, "openvino": {"device": device}})
    assert tells(error.message, "`openvino.device`", f"`{device[:80]}`")


def test_only_what_is_set_is_passed_to_openvino() -> None:
    assert own().openvino.requested() == {}
    found = own(NUM_STREAMS=2, ENABLE_CPU_PINNING=False, properties={"ENABLE_CPU_RESERVATION": True})
    assert found.openvino.requested() == {
        "NUM_STREAMS": 2,
        "ENABLE_CPU_PINNING": False,
        "ENABLE_CPU_RESERVATION": "YES",
    }


def test_the_plan_holds_device_properties_and_reshape() -> None:
    spec = own(device="AUTO", PERFORMANCE_HINT="THROUGHPUT", reshape=True)
    parts: Any = {"path": "m.onnx", "session": session_plan(spec.session), "feeds": {}, "torch": None}
    plan = contestant_plan(spec, **parts)
    assert plan["openvino"] == {
        "device": "AUTO",
        "properties": {"PERFORMANCE_HINT": "THROUGHPUT"},
        "reshape": True,
    }
    assert "openvino" not in contestant_plan(spec_from_dict({"model": MODEL}), **parts)


def test_a_property_with_a_setting_of_its_own_is_not_accepted_among_the_others() -> None:
    error = refusal({**OPENVINO, "openvino": {"properties": {"NUM_STREAMS": "2"}}})
    assert tells(error.hint, "`openvino.NUM_STREAMS`")


def test_an_unknown_property_needs_expert() -> None:
    data = {**OPENVINO, "openvino": {"properties": {"CACHE_DIR": "/tmp/x"}}}
    assert tells(refusal(data).message, "`CACHE_DIR`")
    assert spec_from_dict({**data, "session": {"expert": True}}).openvino.properties == {
        "CACHE_DIR": "/tmp/x"
    }
    assert not set(KNOWN_PROPERTIES) & set(OpenVinoSpec.model_fields)


@pytest.mark.parametrize("name", ["lower", "SPACE D", "1ST", ""])
def test_a_property_has_a_name_of_capital_letters(name: str) -> None:
    assert refusal({**OPENVINO, "openvino": {"properties": {name: "1"}}}).hint


# --- whose settings they are --------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", OPENVINO_SETTINGS, ids=lambda one: one.name)
def test_a_setting_of_openvino_belongs_to_its_engine_alone(setting: Any) -> None:
    assert [name for name in ENGINES if belongs(setting.name, name)] == ["openvino"]


def test_onnx_runtime_refuses_settings_of_openvino_and_the_reverse() -> None:
    error = refusal({"model": MODEL, "openvino": {"NUM_STREAMS": 2}})
    assert tells(error.message, f"`{DEFAULT}`", "`openvino.NUM_STREAMS`")
    assert "`openvino`" in error.hint
    error = refusal({**OPENVINO, "session": {"intra_op_num_threads": 2}})
    assert tells(error.message, "`openvino`", "`intra_op_num_threads`")
    assert f"`{DEFAULT}`" in error.hint


def test_binding_and_streams_are_openvinos_too_but_not_streams_that_are_processes() -> None:
    workload: dict[str, Any] = {"streams": 2, "use_io_binding": True}
    assert spec_from_dict({**OPENVINO, "workload": workload}).workload.streams == 2
    error = refusal({**OPENVINO, "workload": workload | {"stream_type": "processes"}})
    assert tells(error.message, "`stream_type`")


def test_a_search_of_openvino_varies_its_settings_and_none_of_onnx_runtime() -> None:
    place = Place(threads=4, streams=True, devices=("CPU", "GPU"))
    names = {one.name for one in search_axes(own(), place)}
    assert {"openvino.device", "openvino.PERFORMANCE_HINT", "openvino.NUM_STREAMS"} <= names
    assert all(belongs(name, "openvino") for name in names)
    assert not any(
        name.startswith("openvino.")
        for name in {one.name for one in search_axes(spec_from_dict({"model": MODEL}), place)}
    )
    found = space(own(), search_axes(own(), Place(threads=4)), threads=4)
    assert {found.spec(one).engine for one in found.choices} == {"openvino"}
    assert len({found.spec(one).key() for one in found.choices}) == len(found.choices)


def test_curves_offer_the_threads_of_the_engine() -> None:
    place = Place(threads=4)
    assert "openvino.INFERENCE_NUM_THREADS" in offered(INFO, place, {}, "openvino")
    assert "intra_op_num_threads" not in offered(INFO, place, {}, "openvino")
    assert not any(name.startswith("openvino.") for name in offered(INFO, place, {}))


# --- where they stand ---------------------------------------------------------------------------------------


def test_yaml_holds_a_section_of_openvino_and_reads_it_back() -> None:
    spec = own(PERFORMANCE_HINT="THROUGHPUT", NUM_STREAMS=2, properties={"MODEL_PRIORITY": "HIGH"})
    text = yaml_from_spec(spec)
    assert "openvino:\n  PERFORMANCE_HINT: THROUGHPUT" in text
    assert spec_from_yaml(text) == spec
    assert "openvino" not in yaml_from_spec(spec_from_dict({"model": MODEL}))


def test_a_request_without_settings_of_openvino_has_the_key_that_it_always_had() -> None:
    assert "openvino" not in spec_from_dict({"model": MODEL}).to_dict()
    assert own().key() != spec_from_dict({"model": MODEL}).key()
    assert own(NUM_STREAMS=2).key() != own().key()


def test_options_extend_the_properties_of_a_configuration() -> None:
    config = {**OPENVINO, "openvino": {"properties": {"MODEL_PRIORITY": "HIGH"}}}
    given = {"openvino.properties": ["AUTO_BATCH_TIMEOUT=5"], "openvino.NUM_STREAMS": "2"}
    found = spec_from_dict(spec_data(config, None, given)).openvino
    assert found.properties == {"MODEL_PRIORITY": "HIGH", "AUTO_BATCH_TIMEOUT": "5"}
    assert found.NUM_STREAMS == 2


def test_the_name_of_the_engine_is_a_configuration() -> None:
    assert config_from("openvino", NO_STORE) == {"engine": "openvino"}
    with pytest.raises(SpecError, match="names no engine"):
        config_from("openvino:fast", NO_STORE)


def test_a_change_that_is_taken_back_leaves_the_same_request() -> None:
    changed_one = with_changes(own(), {"openvino.NUM_STREAMS": 2, "openvino.PERFORMANCE_HINT": "THROUGHPUT"})
    assert changed(changed_one) == ["engine", "openvino.PERFORMANCE_HINT", "openvino.NUM_STREAMS"]
    back = {"openvino.NUM_STREAMS": None, "openvino.PERFORMANCE_HINT": None}
    assert with_changes(changed_one, back).key() == own().key()


def test_widgets_hold_every_setting_of_openvino() -> None:
    spec = own(
        device="AUTO",
        PERFORMANCE_HINT="THROUGHPUT",
        NUM_STREAMS=2,
        ENABLE_HYPER_THREADING=False,
        INFERENCE_PRECISION_HINT="bf16",
        reshape=True,
        properties={"MODEL_PRIORITY": "HIGH"},
    )
    values = fields.values_from_spec(spec)
    found = fields.spec_from_values(values, path="m.onnx", sha256=None, info=None)
    assert found.openvino == spec.openvino


def test_names_of_configurations_tell_openvinos_settings_apart() -> None:
    one, other = own(), own(PERFORMANCE_HINT="THROUGHPUT")
    names = configurations.labels([spec_from_dict({"model": MODEL}), one, other], 0)
    assert names[1] == ENGINES["openvino"].label
    assert names[2] == f"{ENGINES['openvino'].label}, hint THROUGHPUT"
    assert ("hint THROUGHPUT", "openvino.PERFORMANCE_HINT THROUGHPUT") in chips(other)


def test_another_engine_takes_the_workload_without_what_it_lacks() -> None:
    workload = {"streams": 2, "stream_type": "processes", "batch_size": 3}
    base = spec_from_dict({"model": MODEL, "workload": workload})
    found = configurations.from_engine("openvino", base)
    assert (found.workload.streams, found.workload.stream_type) == (2, "threads")
    assert found.workload.batch_size == 3
    assert configurations.from_engine("torch-eager", own(NUM_STREAMS=2)).openvino == OpenVinoSpec()


# --- its package --------------------------------------------------------------------------------------------


def test_a_result_of_another_version_of_the_package_is_not_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_packages, "installed", lambda engine: {"openvino": "2026.4.1"})
    assert engine_packages.is_same_version("openvino", {"openvino": "2026.4.1", "numpy": "2"})
    assert not engine_packages.is_same_version("openvino", {"openvino": "2026.3.0"})


def test_a_missing_package_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_packages, "_version", lambda package, versions: "")
    with pytest.raises(SpecError) as caught:
        engine_packages.check_installed("openvino")
    assert tells(caught.value.message, "`openvino`")
    assert "pip install" in caught.value.hint
    engine_packages.check_installed(DEFAULT)


def test_threads_of_openvino_count_for_a_harness_that_may_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    entry: Any = lambda **own: SimpleNamespace(  # noqa: E731
        streams=1,
        entry=SimpleNamespace(
            plan={
                "engine": "openvino",
                "cpus": [0, 1, 2, 3],
                "session": {"attributes": {}},
                "openvino": {"device": "CPU", "properties": own, "reshape": False},
            }
        ),
    )
    assert serving._may_spin(entry(INFERENCE_NUM_THREADS=2))
    assert not serving._may_spin(entry(INFERENCE_NUM_THREADS=4))
    assert not serving._may_spin(entry())


def test_another_setting_of_openvino_is_another_configuration_for_a_baseline() -> None:
    one, other = (baseline._settings(own(**parts).to_dict()) for parts in ({}, {"NUM_STREAMS": 2}))
    assert one != other


def test_the_baseline_of_a_list_names_its_settings_of_openvino() -> None:
    specs = [own(PERFORMANCE_HINT="THROUGHPUT"), spec_from_dict({"model": MODEL})]
    assert configurations.labels(specs, 0)[0] == f"{ENGINES['openvino'].label}, hint THROUGHPUT"


# --- devices, and a recorded configuration ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "there", "missing"),
    [
        ("CPU", ["CPU"], []),
        ("GPU", ["CPU"], ["GPU"]),
        ("GPU", ["CPU", "GPU.0", "GPU.1"], []),
        ("GPU.1", ["CPU", "GPU.0", "GPU.1"], []),
        ("GPU.2", ["CPU", "GPU.0", "GPU.1"], ["GPU.2"]),
        ("GPU.1", ["CPU", "GPU.10"], ["GPU.1"]),
        ("AUTO", [], []),
        ("AUTO:-GPU,CPU", ["CPU"], []),
        ("AUTO:NPU,-GPU", ["CPU"], ["NPU"]),
        ("HETERO:GPU,NPU,CPU", ["CPU"], ["GPU", "NPU"]),
    ],
)
def test_devices_that_are_not_there_are_found(device: str, there: list[str], missing: list[str]) -> None:
    assert missing_devices(device, there) == missing


@pytest.mark.parametrize(
    ("recorded", "here", "device", "states"),
    [
        ({"openvino": "2026.4.1"}, {"openvino": "2026.4.1"}, "CPU", ["OK", "OK"]),
        ({"openvino": "2026.3.0"}, {"openvino": "2026.4.1"}, "CPU", ["NOTE", "OK"]),
        ({}, {"openvino": "2026.4.1"}, "GPU", ["UNKNOWN", "NO"]),
        ({"openvino": "2026.4.1"}, {}, "CPU", ["NO"]),
    ],
)
def test_a_recorded_configuration_is_checked_for_the_version_and_the_device(
    recorded: dict[str, str], here: dict[str, str], device: str, states: list[str]
) -> None:
    held: Any = SimpleNamespace(spec=own(device=device), environment={"libraries": recorded})
    machine: Any = {"libraries": here, "openvino_devices": {"CPU": "Some CPU"}}
    found = static_checks.CheckResults()
    static_checks._engine(held, machine, found)
    assert [one.state for one in found.checks] == states
    assert all(one.why for one in found.checks if one.state != "OK")


def test_a_result_of_openvino_is_reused_only_with_the_version_that_made_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_packages, "installed", lambda engine: {"openvino": "2026.4.1"})
    trial: Any = lambda version: SimpleNamespace(facts={"libraries": {"openvino": version}})  # noqa: E731
    assert is_current(own(), trial("2026.4.1"))
    assert not is_current(own(), trial("2026.3.0"))
    elsewhere = spec_from_dict({**OPENVINO, "runtime": "ov@sha256:" + "a" * 64})
    assert is_current(elsewhere, trial("2026.3.0"))  # the hash pins it
