"""The table of paths in the plans of workers, and the rules that follow from it."""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process import confinement, worker_output
from core.process.confinement import PATHS, PLANS, confined, confined_load, nested_plan
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.wire import sandbox
from core.wire.errors import SpecError
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


def load(**changes: Any) -> dict[str, Any]:
    return confined_load(plan(**changes), "/scratch", no_files)


def rules_of(**changes: Any) -> sandbox.Rules:
    found: sandbox.Rules = load(**changes)[sandbox.KEY]
    return found


def test_a_contestant_reads_its_model_and_inputs_and_writes_its_own_folder() -> None:
    feeds = {**plan()["feeds"], "source": "npz", "path": "/data/inputs.npz"}
    found = rules_of(feeds=feeds)
    assert found["read"] == ["/m/model.onnx", "/data/inputs.npz"]
    assert (found["write"], found["scratch"]) == ([], "/scratch")
    assert [found[name] for name in ("network", "processes", "attributes", "gpu")] == [False] * 4


def session_of(entries: dict[str, str], **options: str) -> dict[str, Any]:
    providers = [{"name": "TensorrtExecutionProvider", "options": options}]
    return {**wire.default_session_plan(), "config_entries": entries, "providers": providers}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with ORTune's folder and a project, which is the current folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "user" / "data" / "ortune"))
    monkeypatch.delenv("ORTUNE_MODELS", raising=False)
    for name in ("images", ".ssh", "data/ortune/login", "data/ortune/models/trt", "project/.git", "engines"):
        (tmp_path / "user" / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "user" / "project")
    return tmp_path / "user"


def test_a_new_file_that_a_setting_names_is_written_into_the_worker_s_own_folder(user: Path) -> None:
    """Its folder would hold other files: ORTune's store and logins, or a project."""
    for folder in (user / "data" / "ortune", user, Path()):
        named = str(folder / "x.onnx")
        sent = load(session=session_of({"ep.context_file_path": named}, trt_ep_context_file_path=named))
        assert (sent[sandbox.KEY]["read"], sent[sandbox.KEY]["write"]) == (["/m/model.onnx"], [])
        assert sent["session"]["config_entries"] == {"ep.context_file_path": "/scratch/x.onnx"}
        (one,) = sent["session"]["providers"]
        assert one["options"] == {"trt_ep_context_file_path": "/scratch/x.onnx"}


def test_without_a_sandbox_a_new_file_is_written_where_its_setting_says(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_SANDBOX", "off")
    entries = {"ep.context_file_path": "x.onnx"}
    assert load(session=session_of(entries))["session"]["config_entries"] == entries


def test_a_file_that_a_setting_names_is_read_unless_it_is_private(user: Path) -> None:
    for name, is_read in (
        ("project/partition.json", True),
        ("project/.env", False),
        ("data/ortune/ortune.db", False),
        ("data/ortune/models/m.onnx", True),
    ):
        (user / name).touch()
        entries = {"session.node_partition_config_file": str(user / name)}
        sent = load(session=session_of(entries))
        assert sent["session"]["config_entries"] == entries
        assert (str(user / name) in sent[sandbox.KEY]["read"]) is is_read
        assert sent[sandbox.KEY]["write"] == []


def test_a_cache_is_made_and_written_but_no_private_folder_is(user: Path) -> None:
    for named, folder in (
        ("trt", user / "project" / "trt"),
        (str(user / ".cache" / "engines"), user / ".cache" / "engines"),
        (str(user / "data" / "ortune" / "models" / "trt"), user / "data" / "ortune" / "models" / "trt"),
    ):
        assert rules_of(session=session_of({}, trt_engine_cache_path=named))["write"] == [str(folder)]
        assert folder.is_dir()
    for private in (
        *("~", "~/engines", "~/.ssh", "/", "./", "../", ".git", ".git/hooks", "new/.hidden", "~/data/ortune"),
        *("~/data", "~/data/ortune/login", "~/data/ortune/models", "~/data/ortune/new", "../engines"),
    ):
        with pytest.raises(SpecError, match="trt_engine_cache_path"):
            rules_of(session=session_of({}, trt_engine_cache_path=private))


def test_a_text_that_only_sounds_like_a_folder_opens_nothing(user: Path) -> None:
    properties = {"CACHE_MODE": "OPTIMIZE_SPEED"}
    found = rules_of(engine="openvino", openvino={"device": "CPU", "properties": properties})
    assert (found["read"], found["write"]) == (["/m/model.onnx"], [])
    assert list((user / "project").iterdir()) == [user / "project" / ".git"]


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


def reads_of(path: Path, kind: str = "csv") -> set[str]:
    data = {"path": str(path), "kind": kind}
    accuracy = {"model_path": "/m.onnx", "scores_path": "", "session": wire.default_session_plan()}
    with confined(wire.ACCURACY, {**accuracy, "dataset": data}, "", no_files) as asked:
        return set(asked.payload[sandbox.KEY]["read"]) - {"/m.onnx"}


def test_a_list_of_images_opens_the_files_that_it_names_in_its_folder(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("1.png", "images/2.png", ".ssh/id", "images/../.ssh/id", "link.png", "../out.png", "/etc/passwd")
    (user / "link.png").symlink_to(user / ".ssh" / "id")
    (rows := user / "rows.csv").write_text("label;path\n" + "".join(f"a;{one}\n" for one in names))
    one, two = str(user / "1.png"), str(user / "images" / "2.png")
    assert reads_of(rows) == {str(rows), one, two}
    rows.write_text("1.png,a\nimages/2.png,b\n")
    assert reads_of(rows) == {str(rows), one, two}
    rows.write_bytes(b"\xff")
    assert reads_of(rows) == {str(rows)}
    monkeypatch.setattr(confinement, "MOST_LISTED", 1)
    rows.write_text("1.png,a\nimages/2.png,b\n")
    assert reads_of(rows) == {str(rows), one, str(user / "images")}


def test_a_folder_of_data_is_never_the_whole_home_or_ortune_s_own(user: Path) -> None:
    (user / "1.png").touch()
    opened = {str(user / one) for one in ("images", "engines", "project", "1.png")}
    assert reads_of(user, "images") == opened
    assert reads_of(user / "images", "images") == {str(user / "images")}
    assert reads_of(user / "data" / "ortune", "images") == set()


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
            {"landlock": 0, "seccomp": True, "lacks": ["files: this kernel has no Landlock"]},
            "not sandboxed (files are open): files: this kernel has no Landlock",
        ),
        (
            {"landlock": 7, "seccomp": True, "lacks": [], "off": True},
            "not sandboxed: turned off with `--no-sandbox`",
        ),
    ],
)
def test_what_confines_workers_is_said(found: sandbox.Offer, words: str) -> None:
    assert sandbox.in_words(found) == words
