"""What settings and data may reach: files named by settings, lines of a CSV, links, and the environment."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from PIL import Image

from core import wire
from core.process.job_worker import is_inherited, run_job, worker_environment
from core.run.named_files import check_named_files, named_files
from core.run.plan import pinned
from core.spec import session_from_dict
from core.spec.datasets import dataset_from_dict, dataset_plan
from core.spec.settings import KNOWN_CONFIG_ENTRIES, PROVIDER_OPTIONS
from core.wire.access import available_libraries, expert_allowed, resolve_library
from core.wire.errors import SpecError
from core.wire.variables import ALLOW_LIBRARIES, OPEN_FOLDERS
from core.worker.data.datasets import open_dataset
from core.worker.session.feeds.images import _files

# --- settings that name files


@pytest.mark.parametrize(
    ("session", "named"),
    [
        (
            {"session_config_entries": {"session.model_external_initializers_file_folder_path": "/etc"}},
            "/etc",
        ),
        ({"session_config_entries": {"session.node_partition_config_file": "/etc/x"}}, "/etc/x"),
        ({"session_config_entries": {"session.resource_cuda_partitioning_settings": "100,/etc/x"}}, "/etc/x"),
        ({"session_config_entries": {"ep.context_file_path": "x.onnx"}}, "x.onnx"),
        ({"session_config_entries": {"session.made_up": "../x"}}, "../x"),
        ({"session_config_entries": {"session.made_up": "~/x"}}, "~/x"),
        ({"session_config_entries": {"session.moe_expert_counter_state_file": "state"}}, "state"),
    ],
)
def test_entries_that_name_files_are_found(session: dict[str, object], named: str, tmp_path: Path) -> None:
    settings = session_from_dict({**session, "expert": True})
    assert [path for _, path in named_files(settings)] == [named]
    with pytest.raises(SpecError, match="folders"):
        check_named_files(settings, [tmp_path])


@pytest.mark.parametrize(
    ("provider", "option", "value"),
    [
        ("TensorrtExecutionProvider", "trt_extra_plugin_lib_paths", "evil.so"),
        ("TensorrtExecutionProvider", "trt_engine_decryption_lib_path", "/tmp/evil.so"),
        ("TensorrtExecutionProvider", "trt_engine_cache_path", "/var/cache"),
        ("TensorrtExecutionProvider", "trt_engine_cache_prefix", "../../x"),
        ("QNNExecutionProvider", "backend_path", "evil.so"),
        ("OpenVINOExecutionProvider", "cache_dir", "x"),
        ("OpenVINOExecutionProvider", "load_config", "config.json"),
        ("MyExecutionProvider", "anything", "a;/lib/evil.so"),
    ],
)
def test_options_that_name_files_or_libraries_are_held_to_the_folders(
    provider: str, option: str, value: str, tmp_path: Path
) -> None:
    settings = session_from_dict(
        {"providers": [{"name": provider, "options": {option: value}}], "expert": True}
    )
    with pytest.raises(SpecError, match=option):
        check_named_files(settings, [tmp_path])


def test_files_in_the_folders_are_accepted_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    key = "session.node_partition_config_file"

    def check(path: Path) -> None:
        check_named_files(session_from_dict({"session_config_entries": {key: str(path)}}), [tmp_path])

    check(tmp_path / "new" / "partition.json")
    with pytest.raises(SpecError, match="outside"):
        check(tmp_path / "out" / "passwd")
    with pytest.raises(SpecError, match="outside"):
        check(tmp_path / ".." / "x")


def test_settings_that_name_no_file_are_left_alone() -> None:
    entries = {key: (values[0] if values else "1") for key, values in KNOWN_CONFIG_ENTRIES.items()}
    entries.pop("optimization.disable_specified_optimizers")
    entries["session.qdq_matmulnbits_block_size"] = "32"
    shapes = {f"trt_profile_{part}_shapes": "/model/x:1x3x224x224" for part in ("min", "max", "opt")}
    settings = session_from_dict(
        {
            "session_config_entries": {k: v for k, v in entries.items() if k not in _NAMING},
            "providers": [{"name": "TensorrtExecutionProvider", "options": shapes}],
        }
    )
    assert list(named_files(settings)) == []


_NAMING = ("session.node_partition_config_file", "ep.context_file_path")


def test_every_text_option_that_sounds_like_a_file_is_judged() -> None:
    sounding = [
        option.name
        for options in PROVIDER_OPTIONS.values()
        for option in options
        if option.kind == "text"
        and any(word in option.name for word in ("path", "file", "folder", "lib_"))
        and "profile" not in option.name
    ]
    assert sounding
    for name in sounding:
        session = {
            "providers": [{"name": "TensorrtExecutionProvider", "options": {name: "/x"}}],
            "expert": True,
        }
        assert list(named_files(session_from_dict(session))), name


@pytest.mark.parametrize(("text", "allowed"), [("", False), ("0", False), ("1", True), (" True ", True)])
def test_the_operators_switch(monkeypatch: pytest.MonkeyPatch, text: str, allowed: bool) -> None:
    monkeypatch.setenv("ORTUNE_ALLOW_EXPERT", text)
    assert expert_allowed() is allowed


# data outside the allowed folders


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder that this process may read data from; a secret image lies beside it."""
    folder = tmp_path / "open"
    (folder / "a").mkdir(parents=True)
    for path in (folder / "in.png", folder / "a" / "in.png", tmp_path / "secret.png"):
        Image.new("RGB", (8, 8)).save(path)
    monkeypatch.setenv(OPEN_FOLDERS, str(folder))
    return folder


def plan(path: Path) -> wire.DatasetPlan:
    return dataset_plan(dataset_from_dict({"path": str(path)}))


@pytest.mark.parametrize(
    "line", ["../secret.png", "/etc/passwd", "a/../../secret.png", "link.png", "gone/../../x"]
)
def test_lines_of_a_csv_stay_under_its_folder(opened: Path, line: str) -> None:
    (opened / "link.png").symlink_to(opened.parent / "secret.png")
    (opened / "rows.csv").write_text(f"in.png,1\n{line},2\n")
    with pytest.raises(SpecError, match="outside"):
        open_dataset(plan(opened / "rows.csv"))


def test_a_csv_in_a_folder_does_not_reach_the_folder_above(opened: Path) -> None:
    (opened / "a" / "rows.csv").write_text("in.png,1\n../in.png,2\n")
    with pytest.raises(SpecError, match="outside"):
        open_dataset(plan(opened / "a" / "rows.csv"))
    (opened / "a" / "rows.csv").write_text("in.png,1\n./in.png,2\n")
    assert open_dataset(plan(opened / "a" / "rows.csv")).rows == 2


def test_links_of_an_image_folder_stay_in_the_open_folders(opened: Path) -> None:
    (opened / "a" / "link.png").symlink_to(opened / "in.png")
    assert open_dataset(plan(opened)).rows == 2
    assert len(_files(str(opened / "a"))) == 2
    (opened / "a" / "leak.png").symlink_to(opened.parent / "secret.png")
    for look in (lambda: open_dataset(plan(opened)), lambda: _files(str(opened / "a"))):
        with pytest.raises(SpecError, match=r"leak\.png"):
            look()
    (opened / "a" / "leak.png").unlink()
    (opened / "b").symlink_to(opened.parent)  # a class that is a link to a folder
    with pytest.raises(SpecError, match="outside"):
        open_dataset(plan(opened))


def test_a_user_at_the_command_line_reads_what_he_names(
    opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(OPEN_FOLDERS)
    (opened / "rows.csv").write_text(f"in.png,1\n{opened.parent / 'secret.png'},2\n")
    assert open_dataset(plan(opened / "rows.csv")).rows == 2


# --- the environment of workers


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        *("OMP_NUM_THREADS", "ORT_INTRA_OP_NUM_THREADS", "ORTUNE_HOME", "TMPDIR", "LANG", "LC_ALL"),
        *("XDG_CACHE_HOME", "LD_PRELOAD", "TORCH_HOME"),
    ],
)
def test_workers_get_what_they_need(name: str) -> None:
    assert is_inherited(name)


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "NVIDIA_API_KEY", "ORTUNE_TOKEN"),
        *("HTTPS_PROXY", "SSH_AUTH_SOCK", "STREAMLIT_SERVER_COOKIE_SECRET", "PATHS", "MYHOME"),
        "ORTUNE_KEY_PASSPHRASE",
    ],
)
def test_secrets_of_the_server_stay_with_the_server(name: str) -> None:
    assert not is_inherited(name)
    assert is_inherited(name, also=[name.upper()])


def test_a_real_worker_sees_the_allowed_variables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSWORD", "hunter2")
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy")
    monkeypatch.setenv("ORT_SOMETHING", "1")
    assert not {"MY_PASSWORD", "https_proxy"} & set(worker_environment())
    assert worker_environment("export")["https_proxy"] == "http://user:secret@proxy"  # downloads weights
    monkeypatch.setenv("ORTUNE_WORKER_ENV", "my_password, OTHER")
    assert worker_environment()["MY_PASSWORD"] == "hunter2"
    assert worker_environment()["PATH"] == os.environ["PATH"]
    machine = run_job(wire.ENVIRONMENT, {})
    assert machine["variables"]["ORT_SOMETHING"] == "1"


# --- libraries of native code


def test_a_library_is_found_in_the_folder_with_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "libops.so.1").write_bytes(b"\x7fELF rest")
    monkeypatch.setenv(ALLOW_LIBRARIES, str(tmp_path))
    path, found = resolve_library("sub/libops.so.1")
    assert path == tmp_path / "sub" / "libops.so.1"
    digest = hashlib.sha256(b"\x7fELF rest").hexdigest()
    assert str(found) == f"sub/libops.so.1@sha256:{digest}"
    assert resolve_library(str(found)) == (path, found)
    assert available_libraries() == ["sub/libops.so.1"]
    assert pinned(session_from_dict({"custom_op_libraries": [found.name]})).custom_op_libraries == (
        str(found),
    )


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("none.so", r"There is no library `none\.so`.*Did you mean `nine\.so`"),
        ("text.so", "is no shared library"),
        ("empty.so", "is no shared library"),
        ("link.so", "leads out of"),
        ("folder", "cannot be read"),
        (f"nine.so@sha256:{'0' * 64}", "is another library"),
    ],
)
def test_what_is_no_such_library_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, told: str
) -> None:
    door = tmp_path / "door"
    (door / "folder").mkdir(parents=True)
    (door / "nine.so").write_bytes(b"\x7fELF")
    (door / "text.so").write_text("echo")
    (door / "empty.so").touch()
    (tmp_path / "outside.so").write_bytes(b"\x7fELF")
    (door / "link.so").symlink_to(tmp_path / "outside.so")
    monkeypatch.setenv(ALLOW_LIBRARIES, str(door))
    with pytest.raises(SpecError, match=told):
        resolve_library(named)
    monkeypatch.delenv(ALLOW_LIBRARIES)
    assert available_libraries() == []
    with pytest.raises(SpecError, match="folder") as caught:
        resolve_library(named)
    assert f"{ALLOW_LIBRARIES}=FOLDER" in caught.value.hint


@pytest.mark.parametrize(
    "named", ["/etc/x.so", "../x.so", "a/../../x.so", "x.so@sha256:12", "", "x.so@md5:1", "a\\b.dll"]
)
def test_a_name_that_is_none_is_refused_before_anybody_looks(named: str) -> None:
    with pytest.raises(SpecError, match="library"):
        session_from_dict({"custom_op_libraries": [named]})


def test_a_library_stands_once_and_brings_providers_of_any_name() -> None:
    with pytest.raises(SpecError, match="twice"):
        session_from_dict({"provider_libraries": ["a.so", f"a.so@sha256:{'1' * 64}"]})
    chain = {"providers": [{"name": "MyExecutionProvider"}]}
    assert session_from_dict({**chain, "provider_libraries": ["a.so"]}).requested_providers
    with pytest.raises(SpecError, match="MyExecutionProvider"):
        session_from_dict(chain)
