"""Requests for runtimes: names, packages, lock files, and the words of installing programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.run.runtimes.creation import checked
from core.run.runtimes.interpreters import bases
from core.wire.errors import SpecError, StoreError, TunerError, WorkerError
from core.wire.runtime import is_requirement, lock_line, locked, wheel_name
from core.worker.make import installation, interpreters
from tests import tiny_wheels

SHA = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        "onnxruntime",
        "onnxruntime==1.30.*",
        "onnxruntime-gpu[cuda] >=1.20, <1.22",
        "openvino ~= 2026.1",
        "numpy<2; python_version < '3.12'",
    ],
)
def test_requirements_are_names_with_versions(text: str) -> None:
    assert is_requirement(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-r /etc/passwd",
        "--index-url=http://x",
        "a @ https://x/y.whl",
        "git+https://x",
        "a==1\n-e .",
        "a b",
    ],
)
def test_options_and_addresses_are_no_requirements(text: str) -> None:
    assert not is_requirement(text)
    with pytest.raises(SpecError):
        checked("one", packages=[text or " "])


def test_the_name_of_a_wheel_is_its_distribution() -> None:
    assert (
        wheel_name("/a/onnxruntime_ep_x-1.30.0-cp311-cp311-manylinux_2_28_x86_64.whl") == "onnxruntime-ep-x"
    )
    assert wheel_name("x-1.0-2-py3-none-any.whl") == "x"
    assert wheel_name("x.whl") == ""


def test_a_lock_file_names_versions_and_local_wheels() -> None:
    text = f"# made by uv\nNumPy==2.4.0 \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{SHA}\n"
    text += lock_line("onnxruntime", "file:///a/onnxruntime-1.30.0-py3-none-any.whl", SHA) + "\n"
    assert locked(text) == {"numpy": "2.4.0", "onnxruntime": "1.30.0"}
    assert locked(lock_line("a", "==1.0", SHA)) == {"a": "1.0"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no package"),
        ("numpy==2.0", "no hash"),
        (f"numpy>=2.0 --hash=sha256:{SHA}", "lines such as"),
        (f"numpy==2.0 --hash=sha256:{SHA[:-1]}", "lines such as"),
        (f"a @ https://x/a-1-py3-none-any.whl --hash=sha256:{SHA}", "lines such as"),
        (f"--index-url http://x\na==1 --hash=sha256:{SHA}", "--index-url"),
    ],
)
def test_other_lines_of_a_lock_file_are_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        locked(text)


@pytest.mark.parametrize("name", ["own", "", "Ort", "../x", f"a@sha256:{SHA}", "a" * 41])
def test_a_new_runtime_needs_a_free_and_valid_name(name: str) -> None:
    with pytest.raises(SpecError, match="name"):
        checked(name, packages=["onnxruntime"])


def test_a_request_names_one_source(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="one of these"):
        checked("one")
    with pytest.raises(SpecError, match="one of these"):
        checked("one", packages=["onnxruntime"], python="/usr/bin/python3")
    with pytest.raises(SpecError, match="base interpreter"):
        checked("one", python="/a/python", base="/b/python")
    found = checked("one", packages=[" openvino "], base="relative/python")
    assert found.packages == ("openvino",)
    assert Path(found.base).is_absolute()


def test_a_wheel_must_be_one(tmp_path: Path) -> None:
    path = tiny_wheels.wheel(tmp_path, "onnxruntime", "1.0", {})
    assert checked("one", packages=[str(path)]).packages == (str(path),)
    path.write_text("no archive")
    with pytest.raises(SpecError, match="ZIP"):
        checked("one", packages=[str(path)])
    with pytest.raises(SpecError, match="No such file"):
        checked("one", packages=[str(tmp_path / "a-1-py3-none-any.whl")])
    with pytest.raises(SpecError, match="no name of a wheel"):
        checked("one", packages=[str(tmp_path / "a.whl")])


def test_a_lock_file_must_be_text_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        checked("one", lock=str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="no text"):
        checked("one", lock=str(tmp_path / "binary"))
    (tmp_path / "lock").write_text(lock_line("a", "==1.0", SHA))
    assert checked("one", lock=str(tmp_path / "lock")).lock.startswith("a==1.0")


# --- words of programs --------------------------------------------------------------------------------------


def test_output_of_programs_becomes_plain_text() -> None:
    text = "\x1b[31mERROR:\x1b[0m \x1b]0;title\x07 <b onclick='x'>no</b>\t match\x00\u202e"
    assert installation.readable(text) == "ERROR: no match"


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("OSError: [Errno 28] No space left on device", StoreError, "disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", SpecError, "another hash"),
        ("NewConnectionError: Failed to establish", WorkerError, "cannot be reached"),
        ("ERROR: No matching distribution found for onnxruntime==9", SpecError, "No package fits"),
        ("/usr/bin/python3: No module named ensurepip", SpecError, "ensurepip"),
        ("ERROR: boom", WorkerError, "status 3: ERROR: boom"),
        ("", WorkerError, "it said nothing"),
    ],
)
def test_failures_of_programs_are_told_in_words(line: str, kind: type[TunerError], says: str) -> None:
    with pytest.raises(kind, match=says) as failed:
        installation._explain("pip", 3, [line] if line else [])
    assert type(failed.value) is kind
    assert failed.value.hint


def test_the_reason_of_uv_stands_behind_its_error() -> None:
    said = ["Resolved", "error: Failed to download `numpy`", "cause: Hash mismatch for `numpy`"]
    with pytest.raises(SpecError, match="Failed to download `numpy` cause: Hash mismatch"):
        installation._explain("uv", 1, said)


def test_older_versions_of_onnx_runtime_need_an_older_numpy() -> None:
    lock = "\n".join([lock_line("onnxruntime", "==1.18.0", SHA), lock_line("numpy", "==2.4.0", SHA)])
    assert "built for numpy 1" in installation._older_numpy(lock, ["onnxruntime"])
    assert installation._older_numpy(lock, ["onnxruntime", "numpy==2.4.0"]) == ""
    assert installation._older_numpy(lock.replace("1.18.0", "1.19.0"), ["onnxruntime"]) == ""
    assert installation._older_numpy(lock.replace("2.4.0", "1.26.4"), ["onnxruntime"]) == ""


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "openvino"])
def test_an_engine_is_among_the_packages(name: str) -> None:
    installation._check_engine({"numpy": "2.4.0", name: "1.0"})


def test_packages_without_an_engine_are_refused() -> None:
    with pytest.raises(SpecError, match="`onnxruntime-ep-openvino 1"):
        installation._check_engine({"onnxruntime-ep-openvino": "1.0", "numpy": "2.4.0"})


# --- interpreters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("", "There is no interpreter"),
        ("#!/bin/sh\necho 3.12\n", "is no Python interpreter"),
        ("#!/bin/sh\nexit 1\n", "is no Python interpreter"),
        ('#!/bin/sh\necho \'{"version": [3, 9, 2], "implementation": "CPython"}\'\n', "3.10 or newer"),
        ('#!/bin/sh\necho \'{"version": [3, 11, 1], "implementation": "PyPy"}\'\n', "needs CPython"),
        (
            '#!/bin/sh\necho \'{"version": [3, 11, 1], "implementation": "CPython", "machine": "vax", '
            '"bits": 32}\'\n',
            "made for vax with 32 bits",
        ),
    ],
)
def test_other_programs_are_no_interpreters(tmp_path: Path, program: str, says: str) -> None:
    path = tmp_path / "python"
    if program:
        path.write_text(program)
        path.chmod(0o755)
    with pytest.raises(SpecError, match=says):
        interpreters.ask(str(path))


def test_a_folder_and_a_file_that_may_not_run_are_no_interpreters(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is a folder"):
        interpreters.ask(str(tmp_path))
    (tmp_path / "python").write_text("")
    with pytest.raises(SpecError, match="cannot be started"):
        interpreters.ask(str(tmp_path / "python"))


def test_interpreters_are_found_by_their_names_and_old_ones_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    programs = [
        "bin/python3.9",
        "bin/python3.10",
        "bin/python3.13-config",
        ".pyenv/versions/3.13.1/bin/python3.13",
    ]
    for one in programs:
        path = tmp_path / one
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o755)
    own, *others = bases()
    assert own.path == ""
    assert [one.label for one in others] == ["Python 3.10", "Python 3.13"]
    assert others[1].path == str(tmp_path / ".pyenv/versions/3.13.1/bin/python3.13")
