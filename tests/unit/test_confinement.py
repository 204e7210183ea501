"""The table of paths in the plans of workers, and the rules that follow from it."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process import worker_output
from core.process.confinement import PATHS, PLANS, confined, contestant_rules, nested_plan
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.wire import sandbox
from core.worker import sandbox as worker_sandbox

# Fields of plans that hold text, but no path.
NO_PATHS = {
    ("AccuracyPlan", "engine"),
    ("AccuracyPlan", "output"),
    ("AccuracyPlan", "values"),
    ("ContestantPlan", "engine"),
    ("ContestantPlan", "runtime"),
    ("ContestantPlan", "stream_type"),
    ("DatasetPlan", "kind"),
    ("DatasetPlan", "part"),
    ("DatasetPlan", "split"),
    ("ExplainPlan", "fingerprint"),
    ("ExportPlan", "external_data"),
    ("ExportPlan", "name"),
    ("ExportPlan", "source"),
    ("FeedPlan", "source"),
    ("FeedPlan", "values"),
    ("InputPlan", "dtype"),
    ("InputPlan", "name"),
    ("InstallPlan", "lock"),
    ("LoadGenPlan", "scenario"),
    ("NodeErrorsPlan", "options"),
    ("NodeErrorsPlan", "step"),
    ("OpenVinoPlan", "device"),
    ("OpenVinoPlan", "properties"),
    ("PassReply", "effective_providers"),
    ("PassReply", "fallback_reason"),
    ("PassReply", "notes"),
    ("PassReply", "requested_providers"),
    ("Preprocessing", "channels"),
    ("ProviderPlan", "name"),
    ("ProviderPlan", "options"),  # read by `named_paths`
    ("RecordedPasses", "notes"),
    ("SavedGraph", "effective_providers"),
    ("SavedGraph", "notes"),
    ("SessionPlan", "attributes"),  # none that a request may set names a file
    ("SessionPlan", "config_entries"),  # read by `named_paths`
    ("SessionPlan", "disabled_optimizers"),
    ("SessionPlan", "run_config_entries"),  # read by `named_paths`
    ("TorchSource", "name"),
    ("TorchSource", "outputs"),
    ("TorchSource", "sha256"),
    ("TorchSource", "source"),
    ("TorchSource", "weights"),
    ("TransformPlan", "options"),
    ("TransformPlan", "step"),
}
WITHOUT_FILES = {
    # requests whose arguments name no file
    *(wire.ENVIRONMENT, wire.SETTINGS, wire.CAPABILITIES, wire.PEAKS, wire.LAYOUT),
    *(wire.FORKSERVER, wire.CONTESTANT, wire.FORK, wire.REAP),
    *(wire.WARM, wire.BLOCK, wire.COST, wire.FOOTPRINT, wire.TRAFFIC),
    wire.NEW_SHAPES,  # feeds that differ from those of the configuration in their shapes only
}


def fields() -> Iterator[tuple[str, str, Any]]:
    """Every field of every plan, with those of the plans in it: (plan, field, type)."""
    waiting, seen = [*PLANS.values()], set[str]()
    while waiting:
        plan = waiting.pop()
        if plan.__name__ in seen:
            continue
        seen.add(plan.__name__)
        for name, hint in typing.get_type_hints(plan).items():
            yield plan.__name__, name, hint
            if (nested := nested_plan(hint)) is not None:
                waiting.append(nested)


def holds_text(hint: Any) -> bool:
    """Whether a value of the type may be or hold a text."""
    if hint is str or typing.get_origin(hint) is typing.Literal:
        return True
    if hint is Any:
        return True
    if nested_plan(hint) is not None:
        return False
    if typing.get_origin(hint) is dict:
        return holds_text(typing.get_args(hint)[1])
    return any(holds_text(one) for one in typing.get_args(hint))


def test_every_text_of_a_plan_is_a_path_with_a_role_or_no_path() -> None:
    texts = {(plan, name) for plan, name, hint in fields() if holds_text(hint)}
    roles = {(plan, name) for plan, names in PATHS.items() for name in names}
    assert texts - roles - NO_PATHS == set()
    assert roles | NO_PATHS == texts
    assert roles & NO_PATHS == set()


def test_every_request_is_in_the_table_or_names_no_file() -> None:
    requests = {one for one in vars(wire).values() if isinstance(one, wire.Request)}
    assert requests == set(PLANS) | WITHOUT_FILES


def plan(**changes: Any) -> dict[str, Any]:
    feeds = {"inputs": [], "source": "random", "path": None, "values": {}}
    return {
        "engine": "onnxruntime",
        "model_path": "/m/model.onnx",
        "torch": None,
        "session": wire.default_session_plan(),
        "feeds": feeds,
        **changes,
    }


def no_files(model: Path) -> list[str]:
    return []


def rules_of(**changes: Any) -> sandbox.Rules:
    return contestant_rules(plan(**changes), "/scratch", no_files)


def test_a_contestant_reads_its_model_and_inputs_and_writes_its_own_folder() -> None:
    feeds = {**plan()["feeds"], "source": "npz", "path": "/data/inputs.npz"}
    found = rules_of(feeds=feeds)
    assert found["read"] == ["/m/model.onnx", "/data/inputs.npz"]
    assert (found["write"], found["scratch"]) == ([], "/scratch")
    assert [found[name] for name in ("network", "processes", "attributes", "gpu")] == [False] * 4


def test_a_file_that_a_setting_names_may_be_written(tmp_path: Path) -> None:
    session = wire.default_session_plan()
    session["config_entries"]["ep.context_file_path"] = str(tmp_path / "context.onnx")
    assert rules_of(session=session)["write"] == [str(tmp_path)]
    (tmp_path / "context.onnx").touch()
    assert rules_of(session=session)["write"] == [str(tmp_path / "context.onnx")]


ON_CUDA = {**wire.default_session_plan(), "providers": [{"name": "CUDAExecutionProvider", "options": {}}]}


@pytest.mark.parametrize(
    ("changes", "gpu", "processes"),
    [
        ({"session": ON_CUDA}, True, False),
        ({"engine": "openvino", "openvino": {"device": "GPU"}}, True, False),
        ({"engine": "openvino", "openvino": {"device": "CPU"}}, False, False),
        ({"engine": "torch-compile", "torch": {"path": "/m/model.pt2"}}, True, True),
        ({"engine": "torch-eager", "torch": {"path": "/m/model.pt2"}}, True, False),
    ],
)
def test_devices_and_compilers_get_what_they_need(changes: Any, gpu: bool, processes: bool) -> None:
    found = rules_of(**changes)
    assert (found["gpu"], found["processes"]) == (gpu, processes)


@pytest.mark.parametrize("name", KNOWN_PROVIDERS)
def test_only_providers_of_devices_get_device_nodes(name: str) -> None:
    on_cpu = {f"{one}ExecutionProvider" for one in ("CPU", "Dnnl", "Xnnpack", "ACL")}
    session = {**wire.default_session_plan(), "providers": [{"name": name, "options": {}}]}
    session["providers"].append({"name": "CPUExecutionProvider", "options": {}})
    assert rules_of(session=session)["gpu"] is (name not in on_cpu)


def test_only_jobs_that_use_devices_get_device_nodes() -> None:
    for job in (one for one in WITHOUT_FILES if one not in (wire.FORKSERVER, wire.CONTESTANT)):
        with confined(job, {}, "", no_files) as asked:
            uses = job in (wire.ENVIRONMENT, wire.CAPABILITIES)
            assert (job, asked.payload[sandbox.KEY]["gpu"]) == (job, uses)
    for name, expected in (("CUDAExecutionProvider", True), ("CPUExecutionProvider", False)):
        session = {**wire.default_session_plan(), "providers": [{"name": name, "options": {}}]}
        for job, given in (
            (wire.SAVE_GRAPH, {"model_path": "/m.onnx", "graph_path": "", "session": session}),
            (wire.ACCURACY, {"model_path": "/m.onnx", "scores_path": "", "session": session}),
            (wire.ANSWERS, {"plan": plan(session=session), "outputs": ""}),
            (wire.EXPLAIN, {"sides": [plan(), plan(session=session)], "output": ""}),
            (wire.LOADGEN, {"plan": plan(session=session)}),
        ):
            with confined(job, given, "", no_files) as asked:
                assert (job, asked.payload[sandbox.KEY]["gpu"]) == (job, expected)
    for job in (wire.INSPECT, wire.NAMED_MODEL, wire.TRANSFORM):
        with confined(job, {"path": "/m.onnx"}, "", no_files) as asked:
            assert not asked.payload[sandbox.KEY]["gpu"]


NODES = {
    # of /dev -> whether a worker that uses a GPU opens it
    **dict.fromkeys(("nvidia0", "nvidia15", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"), True),
    **dict.fromkeys(("nvidia-caps", "nvidia-modeset", "dri", "kfd"), True),
    **dict.fromkeys(("sda", "nvme0n1", "mem", "kmsg", "kvm", "fuse", "tty", "shm", "dri2", "zero"), False),
}


@pytest.mark.parametrize("gpu", [True, False])
def test_the_nodes_of_gpus_are_opened_for_their_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: bool
) -> None:
    """On a machine with these nodes: this one may have no GPU."""
    for name in NODES:
        (tmp_path / "dev" / name).mkdir(parents=True)
    opened: dict[str, int] = {}

    def allow(ruleset: int, path: str, rights: int) -> None:
        opened[path] = opened.get(path, 0) | rights

    def found(root: Path, pattern: str) -> list[Path]:
        assert root == Path("/")
        return [Path("/") / one.relative_to(tmp_path) for one in real_glob(tmp_path, pattern)]

    real_glob = Path.glob
    monkeypatch.setattr(Path, "glob", found)
    monkeypatch.setattr(worker_sandbox, "_code", set)
    monkeypatch.setattr(worker_sandbox, "_without_private", lambda folder, private: iter([folder]))
    monkeypatch.setattr(worker_sandbox, "_allow_one", allow)
    worker_sandbox._allow(0, sandbox.rules(gpu=gpu), (1 << 16) - 1)
    assert {name for name in NODES if f"/dev/{name}" in opened} == {
        name for name, uses in NODES.items() if uses and gpu
    }
    if gpu:
        assert opened["/dev/nvidia0"] == worker_sandbox._WRITES | worker_sandbox._IOCTL
    assert [
        one for one, rights in opened.items() if rights & worker_sandbox._IOCTL and "/dev/" not in one
    ] == []


def test_a_list_of_data_opens_its_folder_but_never_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "user" / "data" / "ortune"))
    for name in ("images", ".ssh", "data/ortune"):
        (tmp_path / "user" / name).mkdir(parents=True)
    (rows := tmp_path / "user" / "rows.csv").touch()

    def reads(path: Path) -> set[str]:
        feeds = {**plan()["feeds"], "source": "images", "path": str(path)}
        return set(rules_of(feeds=feeds)["read"]) - {"/m/model.onnx"}

    assert reads(tmp_path / "user" / "images" / "rows.csv") >= {str(tmp_path / "user" / "images")}
    assert reads(rows) == {str(rows), str(tmp_path / "user" / "images")}
    assert reads(tmp_path / "user") == {str(rows), str(tmp_path / "user" / "images")}
    assert reads(tmp_path / "user" / "images") == {str(tmp_path / "user" / "images")}


def test_the_largest_file_leaves_a_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk:
        f_bavail, f_frsize = 10, 1 << 30

    monkeypatch.setattr(os, "statvfs", lambda path: Disk)
    assert rules_of()["file_bytes"] == (10 << 30) - worker_output.RESERVE_BYTES
    Disk.f_bavail = 0
    assert rules_of()["file_bytes"] == 64 << 20


def test_a_cache_of_openvino_may_be_written(tmp_path: Path) -> None:
    properties = {"CACHE_DIR": str(tmp_path), "NUM_STREAMS": 2, "PERFORMANCE_HINT": "LATENCY"}
    found = rules_of(engine="openvino", openvino={"device": "CPU", "properties": properties})
    assert found["write"] == [str(tmp_path)]


@pytest.mark.parametrize("text", ["off", "0", "FALSE", " no "])
def test_the_operator_turns_it_off(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_SANDBOX", text)
    assert sandbox.is_off()


@pytest.mark.parametrize("text", ["", "on", "1", "of"])
def test_nothing_else_turns_it_off(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_SANDBOX", text)
    assert not sandbox.is_off()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"landlock": 7, "seccomp": True, "lacks": []}, "sandboxed by Landlock 7 and seccomp"),
        (
            {"landlock": 3, "seccomp": True, "lacks": ["TCP in Landlock"]},
            "sandboxed by Landlock 3 and seccomp; not confined: TCP in Landlock",
        ),
        ({"landlock": 0, "seccomp": False, "lacks": ["no means"]}, "not sandboxed: no means"),
        (
            {"landlock": 7, "seccomp": True, "lacks": [], "off": True},
            "not sandboxed: turned off with `--no-sandbox`",
        ),
    ],
)
def test_what_confines_workers_is_said(found: sandbox.Offer, words: str) -> None:
    assert sandbox.in_words(found) == words
