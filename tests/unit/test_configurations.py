"""The list of configurations: presets and PyTorch on a workload, and names that state the differences."""

from __future__ import annotations

from typing import Any

import pytest

from core.evidence.comparison import DEFAULT_LABEL, same_request
from core.show.setting_chips import differences
from core.spec import TrialSpec, spec_from_dict
from core.spec.presets import PRESETS
from core.wire.engines import ENGINES
from core.wire.errors import SpecError
from dashboard.configurations import (
    LABEL_LIMIT,
    Entry,
    check_count,
    check_room,
    from_engine,
    from_preset,
    labels,
    missing_provider,
    with_changed_input,
    with_inputs_of,
    with_protocol,
)


def spec(**changes: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx", "sha256": "a" * 64}, **changes})


BASE = spec(workload={"batch_size": 4, "seed": 7}, session={"intra_op_num_threads": 3})


def entry(number: int) -> Entry:
    return Entry(id=str(number), source="test", spec=spec(workload={"batch_size": number}))


def test_a_preset_keeps_the_model_and_what_it_does_not_set_of_the_workload() -> None:
    found = from_preset("cpu-throughput", BASE)
    assert found.model == BASE.model
    assert (found.workload.batch_size, found.workload.seed, found.workload.use_io_binding) == (16, 7, True)
    assert found.session.intra_op_num_threads is None


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_compared(name: str) -> None:
    assert with_protocol(from_preset(name, BASE), precision="quick", budget_s=None, margin=0.02).key()


def test_pytorch_gets_the_same_feeds_and_none_of_the_session() -> None:
    fancy = spec(
        model={"path": "m.onnx", "sha256": "a" * 64, "precision": "fp16"},
        workload={"batch_size": 4, "seed": 7, "use_io_binding": True},
        session={"intra_op_num_threads": 3},
    )
    found = from_engine("torch-eager", fancy)
    assert (found.engine, found.workload.batch_size, found.workload.seed) == ("torch-eager", 4, 7)
    assert (found.model.precision, found.workload.use_io_binding) == ("fp32", False)


def test_the_protocol_of_the_comparison_replaces_precision_and_runs_but_not_the_cpus() -> None:
    own = spec(protocol={"runs": 30, "precision": "publish", "cpus": "0", "warmup_runs": 3})
    found = with_protocol(own, precision="standard", budget_s=20, margin=0.05).protocol
    assert (found.effort, found.budget_s, found.margin, found.runs) == ("standard", 20, 0.05, None)
    assert (found.cpus, found.warmup_runs) == ("0", 3)
    with pytest.raises(SpecError):
        with_protocol(own, precision="standard", budget_s=20, margin=7.0)


def test_an_entry_survives_the_session() -> None:
    found = Entry.from_dict(entry(3).to_dict())
    assert found == entry(3)
    assert same_request(found.spec, entry(3).spec)


def test_a_comparison_has_two_to_eight() -> None:
    with pytest.raises(SpecError, match=r"2 .* 1"):
        check_count([entry(1)])
    check_count([entry(1), entry(2)])
    check_room([entry(i) for i in range(1, 8)])
    with pytest.raises(SpecError, match="8"):
        check_room([entry(i) for i in range(1, 9)])


def test_names_say_what_differs_from_the_baseline() -> None:
    specs = [
        spec(),
        spec(session={"intra_op_num_threads": 1}),
        spec(workload={"batch_size": 16}),
        spec(engine="torch-eager"),
        spec(protocol={"cpus": "0-1"}),
    ]
    assert labels(specs, 0) == [
        DEFAULT_LABEL,
        "threads 1",
        "batch 16",
        ENGINES["torch-eager"].label,
        "cpus 0-1",
    ]
    assert labels(specs, 1)[:3] == [
        DEFAULT_LABEL,
        "threads 1",
        f"{DEFAULT_LABEL}, batch 16",
    ]


def test_a_preset_keeps_its_name_and_tells_a_batch_of_its_own() -> None:
    throughput = from_preset("cpu-throughput", spec())
    assert labels([spec(), from_preset("edge", spec()), throughput], 0) == [
        DEFAULT_LABEL,
        PRESETS["edge"][0],
        f"{PRESETS['cpu-throughput'][0]}, batch 16",
    ]
    half = spec(model={"path": "m.onnx", "precision": "fp16"}, session=throughput.to_dict()["session"])
    assert "Throughput" not in labels([spec(), half], 0)[1]


def test_what_all_are_fed_changes_for_all_but_those_with_their_own() -> None:
    listed = [
        Entry(id="0", source="", spec=spec()),
        Entry(id="1", source="", spec=spec(session={"intra_op_num_threads": 1})),
        Entry(id="2", source="", spec=from_preset("cpu-throughput", spec())),
    ]
    found = with_changed_input(listed, 0, "batch_size", 8)
    assert [one.spec.workload.batch_size for one in found] == [8, 8, 16]
    assert found[1].spec.session == listed[1].spec.session
    assert [one.spec.workload.dims for one in with_changed_input(found, 0, "dims.seq", 32)] == [
        {"seq": 32}
    ] * 3
    assert [one.spec.workload.batch_size for one in with_changed_input(found, 0, "batch_size", None)] == [
        None,
        None,
        16,
    ]
    with pytest.raises(SpecError):
        with_changed_input(listed, 0, "batch_size", 0)


def test_a_new_entry_is_fed_what_the_list_is_fed() -> None:
    tune = spec(workload={"batch_size": 4, "use_io_binding": True})
    found = with_inputs_of(tune, spec(workload={"batch_size": 2, "seed": 3}))
    assert (found.workload.batch_size, found.workload.seed, found.workload.use_io_binding) == (2, 3, True)


CUDA_MISSING = [
    {"name": "CUDAExecutionProvider", "loadable": False, "reason": "There is no GPU.", "remedy": "Use one."},
    {"name": "CPUExecutionProvider", "loadable": True, "reason": "", "remedy": ""},
]


def test_what_cannot_load_is_known_before_the_comparison() -> None:
    gpu = from_preset("gpu-server", spec())
    assert missing_provider(gpu, CUDA_MISSING) == "CUDA does not load here. There is no GPU. Use one."
    assert missing_provider(spec(), CUDA_MISSING) == ""
    assert missing_provider(gpu, []) == ""  # the machine is not known


def test_no_two_names_are_equal() -> None:
    explicit = spec(session={"graph_optimization_level": "ORT_ENABLE_ALL"})
    found = labels([spec(), explicit, spec(workload={"image_mean": [0.5]}), explicit], 0)
    assert len(set(found)) == 4
    assert found[1] == "explicit graph ALL"


def test_long_names_are_cut_and_counted() -> None:
    edge = from_preset("edge", spec())
    more = edge.model_copy(update={"session": edge.session.model_copy(update={"intra_op_num_threads": 2})})
    found = labels([spec(), more], 0)[1]
    assert found == "graph BASIC, threads 2, arena off + 1 more"
    huge = spec(session={"session_config_entries": {"session.intra_op_thread_affinities": "1;" * 80 + "1"},
                         "intra_op_num_threads": 82})  # fmt: skip
    assert len(labels([spec(), huge], 0)[1]) <= LABEL_LIMIT + len(" + 9 more")


def test_differences_name_provider_options_of_either_side() -> None:
    cuda = {"name": "CUDAExecutionProvider", "options": {"use_tf32": "0"}}
    with_options = spec(session={"providers": [cuda]})
    assert [one.chip for one in differences(with_options, spec())] == ["providers CUDA", "CUDA.use_tf32 0"]
    assert [one.chip for one in differences(spec(), with_options)] == [
        "providers CPU",
        "CUDA.use_tf32 default",
    ]
