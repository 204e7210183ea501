"""The jobs that run in the runtime of their configuration, in one with an older ONNX Runtime and numpy only.

The environment has numpy and ONNX Runtime only, so a job that imports more fails here.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import wire
from core.process import runtimes
from core.process.job_worker import run_job, worker_environment
from core.run.accuracy import measure_accuracy, summary
from core.run.graph import draw_optimized, optimized_graph
from core.run.plan import contestant_plan
from core.run.preparation import prepare_trial, resolve_trial
from core.run.profiling import perform_profile
from core.run.runtime_check import FILE_NAME, capabilities, check_runtime
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import ModelError, SpecError
from tests import builders, other_runtimes, tiny_models
from tests.command_line import CommandLine
from tests.other_runtimes import needs_older_onnxruntime

pytestmark = needs_older_onnxruntime


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the runtime `older`."""
    path = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORTUNE_HOME", str(path))
        other_runtimes.add(path, "older", older=True)
        yield path


@pytest.fixture
def store(home: Path, tmp_path: Path) -> Store:
    return Store(tmp_path / "ortune.db")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_models.mlp(tmp_path / "m.onnx")


def spec(path: Path, **parts: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": str(path)}, "runtime": "older", **parts})


def older_version(home: Path) -> str:
    return capabilities("older", run_job)["version"]


def environment(runtime: str = "own") -> Any:
    """This machine, briefly; the older version really."""
    if runtime == "own":
        return {"fingerprint": "this machine"}
    return run_job(wire.ENVIRONMENT, {}, runtime=runtime)


def loads(path: Path) -> bool:
    """Whether the older version loads a model."""
    try:
        run_job(wire.LOAD_CHECK, {"path": str(path), "custom_op_libraries": []}, runtime="older")
    except ModelError:
        return False
    return True


def test_its_capabilities_are_those_of_the_older_version(home: Path) -> None:
    found = capabilities("older", run_job)
    assert found["opsets"]["com.microsoft"] == 1
    assert "session.intra_op.spin_duration_us" in found["unknown"]
    assert "session.disable_prepacking" not in found["unknown"]
    assert "intra_op_num_threads" not in found["unknown"]
    assert "InferenceSession.get_provider_graph_assignment_info" not in found["interfaces"]
    assert {"name": "CPUExecutionProvider", "loadable": True, "reason": "", "remedy": ""} in found[
        "providers"
    ]


@pytest.mark.parametrize(
    ("make", "newest"),
    [
        (tiny_models.newer_ir, lambda known: known["ir_version"]),
        (tiny_models.newer_opset, lambda known: known["opsets"][""]),
    ],
)
def test_exactly_what_it_does_not_load_is_refused_before_it_runs(
    store: Store, tmp_path: Path, make: Any, newest: Any
) -> None:
    most = newest(capabilities("older", run_job))
    for version, fits in ((most, True), (most + 1, False)):
        path = make(tmp_path / f"{version}.onnx", version)
        assert loads(path) is fits
        resolved = resolve_trial(spec(path), store, run_job)
        if fits:
            prepare_trial(resolved, store, run_job)
        else:
            with pytest.raises(SpecError, match=rf"{version}\b.* at most {most}"):
                prepare_trial(resolved, store, run_job)
        own = resolved.spec.model_copy(update={"runtime": "own"})
        check_runtime(own, resolved.record.info, run_job)


def test_a_profile_is_run_there_and_read_here(store: Store, model: Path, tmp_path: Path) -> None:
    resolved = resolve_trial(spec(model, protocol={"runs": 4}), store, run_job)
    trace = tmp_path / "trace.json"
    result = perform_profile(resolved, store, run_job, environment=environment, trace=lambda: trace)
    assert result["profile"]["runs"] == 4
    assert result["profile"]["constants"]
    assert trace.is_file()
    found = result["placement"]["CPUExecutionProvider"]
    assert found["nodes"] is None  # this version does not tell what it assigned
    assert found["ran_nodes"] == len(result["profile"]["nodes"]) > 0
    libraries = result["environment"]["libraries"]
    assert libraries["onnxruntime"] == older_version(store.folder)


@pytest.mark.parametrize(
    ("make", "bound"),
    [
        (tiny_models.mlp, False),
        (tiny_models.mlp, True),
        (partial(tiny_models.identity, dtype="bfloat16"), True),
    ],
)
def test_a_sample_that_is_recorded_here_has_the_same_outputs_there(
    store: Store, tmp_path: Path, make: Any, bound: bool
) -> None:
    one = spec(make(tmp_path / "m.onnx"), workload={"use_io_binding": bound})
    resolved = resolve_trial(one, store, run_job)
    ready = prepare_trial(resolved, store, run_job)
    plan = contestant_plan(
        resolved.spec, path=ready.path, session=ready.session, feeds=ready.feeds, torch=None
    )
    asked = {"plan": plan, "folder": str(tmp_path), "most_bytes": 1 << 20}
    assert run_job(wire.SAMPLES, asked)["refusal"] == ""
    feeds = {**plan["feeds"], "source": "npz", "path": str(tmp_path / "inputs.npz")}
    answers = {"plan": {**plan, "feeds": feeds}, "outputs": str(tmp_path / "outputs.npz")}
    reply = run_job(wire.ANSWERS, answers, runtime="older")
    assert reply["unusable"] == ""
    assert reply["error"] is not None
    assert reply["error"]["max_rel"] == pytest.approx(0, abs=1e-4)


OVERWRITES_FREED_MEMORY = """
import gc, json, sys
import numpy as np
from core import wire
from core.worker.measure.inference import prepare
from core.worker.session import build_session

model, feeds = json.load(sys.stdin)
plan = {"feeds": feeds, "use_io_binding": True}
inference = prepare(build_session(model, wire.default_session_plan()), plan)
inference.call()
(before,) = inference.arrays(None).values()
gc.collect()
noise = [np.full(16, number, np.uint16) for number in range(1, 5000)]
inference.call()
(after,) = inference.arrays(None).values()
print(json.dumps([before.tolist(), after.tolist()]))
"""


def test_bound_inputs_stay_in_memory_which_this_version_reads_without_holding_it(
    home: Path, tmp_path: Path
) -> None:
    model = tiny_models.identity(tmp_path / "m.onnx", "bfloat16", (4, 4))
    feeds = builders.feed_plan(builders.one_input("x", "bfloat16", (4, 4)))
    done = subprocess.run(
        [runtimes.record("older")["python"], "-c", OVERWRITES_FREED_MEMORY],
        input=json.dumps([str(model), feeds]),
        env=worker_environment(runtime="older"),
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert before == after


def test_accuracy_is_measured_there(store: Store, model: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    rng = np.random.default_rng(0)
    np.savez(data, x=rng.random((20, 16), np.float32), labels=np.arange(20) % 4)
    there, here = (
        measure_accuracy(
            store,
            spec(model, dataset={"path": str(data)}, runtime=name),
            run=run_job,
            environment=environment,
        )
        for name in ("older", "own")
    )
    assert there.key != here.key
    assert summary(there)["accuracy"] == summary(here)["accuracy"]
    assert there.spec["runtime"] == runtimes.pinned("older")


def test_the_optimized_graph_is_that_of_the_older_version(store: Store, model: Path) -> None:
    one = spec(model)
    counts = draw_optimized(store, one, run_job, environment=environment)
    record = resolve_trial(one, store, run_job).record
    found = optimized_graph(store, one, record, fingerprint="this machine")
    assert found is not None
    assert found.optimized is not None
    assert found.optimized.count == counts["optimized_nodes"]
    assert found.effective_providers == ("CPUExecutionProvider",)
    own = one.model_copy(update={"runtime": "own"})
    assert optimized_graph(store, own, record, fingerprint="this machine") is None


def test_a_configuration_that_it_cannot_run_is_refused_and_the_others_are_compared(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    """The older version measures with I/O binding and in several processes; a newer setting is refused."""
    other_runtimes.add(cli.home, "older", older=True)
    asked = {
        "unknown": {"session": {"session_config_entries": {"session.intra_op.spin_duration_us": "100"}}},
        "bound": {"workload": {"use_io_binding": True}},
        "processes": {"workload": {"streams": 2, "stream_type": "processes"}},
    }
    options = []
    for name, parts in asked.items():
        data = {"schema": 1, "model": {"path": mlp}, "runtime": "older", **parts}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(data))
        options += ["--candidate", str(tmp_path / f"{name}.yaml")]
    done = cli.run("compare", mlp, *options, "--runs", "6", "--json")
    document = done.document
    refused, bound, processes, *_ = document["trials"]
    assert "unknown.yaml (older) is left out: The runtime `older`" in done.err
    assert refused["state"] == "FAIL"
    assert "does not know `session.intra_op.spin_duration_us`" in refused["error"]["message"]
    assert len(document["warnings"]) == 1
    known = json.loads((cli.home / "runtimes" / "older" / FILE_NAME).read_text())["found"]
    for one in (bound, processes):
        assert one["state"] == "COMPLETE"
        assert one["environment"]["libraries"]["onnxruntime"] == known["version"]
        assert one["placement"]["CPUExecutionProvider"]["ran_nodes"] > 0


def test_a_job_that_needs_ortunes_own_libraries_is_not_started_there(home: Path, model: Path) -> None:
    with pytest.raises(AssertionError, match="own libraries"):
        run_job(wire.INSPECT, {"path": str(model)}, runtime="older")
