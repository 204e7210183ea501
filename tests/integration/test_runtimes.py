"""Runtimes on the real command line: added from wheels, checked, removed; nothing stays of what failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import ortune
from core.cli.output import EXIT_BAD_INPUT, EXIT_CANCELLED, EXIT_FAILED
from core.process import runtimes
from core.wire.errors import Cancelled, SpecError
from core.wire.runtime import LOCK_NAME
from tests import other_runtimes, tiny_wheels
from tests.command_line import CommandLine
from tests.small_disks import small_disk
from tests.waiting import wait_until, wait_until_gone

SLEEPS = "#!/bin/sh\nexec sleep 600\n"


def offline(line: CommandLine, wheels: Path) -> CommandLine:
    """Let pip find wheels in a folder only, and no `uv`."""
    line.environment |= {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "PATH": str(wheels / "bin"),
    }
    return line


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_wheels.index(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Any:
    """A command line with the runtime `ort118`, and the document of its addition."""
    line = offline(CommandLine(tmp_path_factory.mktemp("added")), wheels)
    done = line.run("runtimes", "add", "ort118", "--package", "onnxruntime==1.18.*", "--json")
    assert done.code == 0, done.err
    return line, done.document


@pytest.fixture
def line(tmp_path: Path, wheels: Path) -> CommandLine:
    return offline(CommandLine(tmp_path), wheels)


@pytest.fixture
def stalled(line: CommandLine, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that adds a runtime with a `uv` that never ends."""
    uv = tmp_path / "uv" / "uv"
    uv.parent.mkdir()
    uv.write_text(SLEEPS)
    uv.chmod(0o755)
    line.environment["PATH"] = f"{uv.parent}{os.pathsep}/usr/bin{os.pathsep}/bin"
    process = line.start("runtimes", "add", "one", "--package", "onnxruntime")
    wait_until(lambda: sleeping(process), "It never began.")
    yield process
    process.kill()
    process.communicate()


def sleeping(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The installing programs of a command."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [one for one in children if one.cmdline()[:1] == ["sleep"]]
    except psutil.Error:
        return []


def content(line: CommandLine) -> list[str]:
    folder = line.home / "runtimes"
    return sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []


def test_packages_are_installed_locked_and_recorded(added: Any) -> None:
    line, document = added
    record = document["runtime"]
    assert not document["existed"]
    assert record["versions"] == {"numpy": "1.26.4", "onnxruntime": "1.18.0"}
    assert record["providers"] == ["CPUExecutionProvider"]
    assert record["managed"]
    assert record["packages"] == ["onnxruntime==1.18.*"]
    assert "built for numpy 1" in record["notes"][0]
    assert record["python_version"].startswith(f"3.{sys.version_info.minor}.")
    assert record["size_bytes"] > 1000
    folder = line.home / "runtimes" / "ort118"
    assert {one.name for one in folder.iterdir()} == {"environment", LOCK_NAME, "runtime.json"}
    lock = (folder / LOCK_NAME).read_text()
    assert "onnxruntime==1.18.0 --hash=sha256:" in lock
    assert content(line) == ["ort118"]


def test_the_same_request_finds_it_and_another_is_refused(added: Any) -> None:
    line, document = added
    again = line.run("runtimes", "add", "ort118", "--package", "onnxruntime==1.18.*", "--json")
    assert again.code == 0
    assert again.document["existed"]
    assert again.document["runtime"] == document["runtime"]
    other = line.run("runtimes", "add", "ort118", "--package", "onnxruntime")
    assert other.code == EXIT_BAD_INPUT
    assert "exists already, with `onnxruntime==1.18.*`" in other.err


def test_a_lock_file_installs_the_same_content(added: Any, line: CommandLine) -> None:
    home, document = added
    lock = home.home / "runtimes" / "ort118" / LOCK_NAME
    done = line.run("runtimes", "add", "copy", "--lock", str(lock), "--json")
    assert done.code == 0, done.err
    assert done.document["runtime"]["sha256"] == document["runtime"]["sha256"]
    assert (line.home / "runtimes" / "copy" / LOCK_NAME).read_text() == lock.read_text()


def test_a_wrong_hash_in_a_lock_file_is_refused_and_leaves_nothing(
    added: Any, line: CommandLine, tmp_path: Path
) -> None:
    home, _ = added
    text = (home.home / "runtimes" / "ort118" / LOCK_NAME).read_text()
    lock = tmp_path / "lock"
    first = text.index("sha256:") + len("sha256:")
    lock.write_text(text[:first] + "0" * 64 + text[first + 64 :])
    done = line.run("runtimes", "add", "copy", "--lock", str(lock))
    assert done.code == EXIT_BAD_INPUT
    assert "another hash" in done.err
    assert content(line) == []


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_installs_the_same_content_as_pip(added: Any, line: CommandLine, tmp_path: Path) -> None:
    _, document = added
    line.environment |= {
        "PATH": os.environ["PATH"],
        "UV_OFFLINE": "1",
        "UV_FIND_LINKS": line.environment["PIP_FIND_LINKS"],
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "UV_NO_CONFIG": "1",
    }
    done = line.run("runtimes", "add", "ort118", "--package", "onnxruntime==1.18.*", "--json")
    assert done.code == 0, done.err
    record = done.document["runtime"]
    assert record["installer"].startswith("uv ")
    assert record["sha256"] == document["runtime"]["sha256"]
    python = Path(record["python"])
    files = [one for one in python.parent.parent.rglob("*.py") if not one.is_symlink()]
    assert files
    assert {one.stat().st_nlink for one in files} == {1}  # a change here reaches no other environment


def test_packages_without_an_engine_and_packages_that_do_not_exist_are_refused(line: CommandLine) -> None:
    done = line.run("runtimes", "add", "one", "--package", "onnxruntime-ep-tiny")
    assert done.code == EXIT_BAD_INPUT
    assert "`onnxruntime-ep-tiny 1.0`" in done.err
    assert content(line) == []


def test_a_cancelled_addition_leaves_nothing(line: CommandLine, stalled: subprocess.Popen[str]) -> None:
    [program] = sleeping(stalled)
    assert content(line)[0].startswith(".draft-")
    stalled.send_signal(signal.SIGINT)
    assert stalled.wait() == EXIT_CANCELLED
    wait_until_gone(program.pid)
    assert content(line) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a program with its parent")
def test_a_killed_addition_ends_its_programs_and_the_next_removes_its_draft(
    line: CommandLine, stalled: subprocess.Popen[str]
) -> None:
    [program] = sleeping(stalled)
    stalled.kill()
    stalled.wait()
    wait_until_gone(program.pid)
    [draft] = content(line)
    assert draft.startswith(".draft-")
    listed = line.run("runtimes", "list", "--json")
    assert listed.document["runtimes"] == []
    done = line.run("runtimes", "add", "mine", "--python", sys.executable, "-q")
    assert done.code == 0, done.err
    assert content(line) == ["mine"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_said_and_nothing_stays(line: CommandLine) -> None:
    with small_disk() as home:
        line.live_in(home)
        done = line.run("runtimes", "add", "one", "--package", "onnxruntime")
        assert done.code == EXIT_BAD_INPUT
        assert "disk is full" in done.err
        assert content(line) == []


# --- existing environments ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A command line with the runtime `mine`: an existing environment with the installed ONNX Runtime."""
    line = CommandLine(tmp_path_factory.mktemp("same"))
    python = other_runtimes.add(tmp_path_factory.mktemp("elsewhere"), "x")["python"]
    done = line.run("runtimes", "add", "mine", "--python", python, "--json")
    assert done.code == 0, done.err
    assert not done.document["runtime"]["managed"]
    assert "lock_sha256" not in done.document["runtime"]
    return line


def test_a_check_runs_a_model_and_names_versions_and_providers(same: CommandLine) -> None:
    done = same.run("runtimes", "check", "mine", "--json")
    assert done.code == 0, done.err
    found = done.document
    assert found["runs"]["onnxruntime"] == ""
    assert found["ir_version"] >= 10
    assert found["opsets"][""] >= 20
    assert found["changed"] == []
    assert any(name.startswith("onnxruntime") for name in found["engines"])
    assert any(one["name"] == "CPUExecutionProvider" for one in found["environment"]["providers"])
    assert found["settings"] > 100
    text = same.run("runtimes", "check", "mine").out
    assert "works" in text.splitlines()[0]
    assert found["sha256"] in text


def test_an_existing_environment_stays_when_its_runtime_is_removed(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    python = Path(other_runtimes.add(tmp_path / "elsewhere", "x")["python"])
    assert line.run("runtimes", "add", "mine", "--python", str(python), "-q").code == 0
    refused = line.run("runtimes", "remove", "mine")
    assert refused.code == EXIT_BAD_INPUT
    assert "its environment stays" in refused.err
    done = line.run("runtimes", "remove", "mine", "--yes", "--json")
    assert done.document["removed"] == "mine"
    assert python.exists()
    assert content(line) == []
    assert line.run("runtimes", "check", "mine").code == EXIT_BAD_INPUT


def test_an_environment_without_an_engine_is_refused(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    done = line.run("runtimes", "add", "bare", "--python", str(tmp_path / "bare" / "bin" / "python"))
    assert done.code == EXIT_BAD_INPUT
    assert "has neither" in done.err
    assert content(line) == []


def test_a_changed_environment_is_found_out(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    record = other_runtimes.add(line.home, "same")
    assert line.run("runtimes", "check", "same", "-q").code == 0
    other_runtimes.change(line.home, "same")
    done = line.run("runtimes", "check", "same")
    assert done.code == EXIT_FAILED
    assert "has changed since it was added" in done.out
    assert record["sha256"][:12] in done.out


# --- removal ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [None, "", "{", "[]", '{"name": "other"}'])
def test_a_damaged_runtime_is_said_and_can_be_removed(line: CommandLine, record: str | None) -> None:
    folder = line.home / "runtimes" / "bad"
    folder.mkdir(parents=True)
    if record is not None:
        (folder / "runtime.json").write_text(record)
    done = line.run("runtimes", "add", "bad", "--package", "onnxruntime")
    assert done.code == EXIT_BAD_INPUT
    assert "runtimes remove bad" in done.err
    assert line.run("runtimes", "list", "--json").document["runtimes"] == []
    assert line.run("runtimes", "remove", "bad", "--yes").code == 0
    assert content(line) == []


def test_a_runtime_in_use_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    record = other_runtimes.add(tmp_path, "same")
    waits = "import sys; print('runs', flush=True); sys.stdin.read() # core.worker"
    command = [record["python"], "-c", waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"  # before, the system may not tell its command line
        with pytest.raises(SpecError, match=rf"in use by process {process.pid}"):
            ortune.remove_runtime("same")
        assert Path(record["python"]).exists()
        process.communicate()
    ortune.remove_runtime("same")
    assert runtimes.records() == []


def test_a_link_is_removed_and_not_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    target = tmp_path / "target"
    other_runtimes.add(target, "one")
    (tmp_path / "home" / "runtimes").mkdir(parents=True)
    (tmp_path / "home" / "runtimes" / "two").symlink_to(target / "runtimes" / "one")
    ortune.remove_runtime("two")
    assert (target / "runtimes" / "one" / "runtime.json").exists()
    assert runtimes.records() == []


@pytest.mark.parametrize("name", ["own", "../x", "nobody"])
def test_only_runtimes_are_removed(line: CommandLine, name: str) -> None:
    done = line.run("runtimes", "remove", name, "--yes")
    assert done.code == EXIT_BAD_INPUT
    assert done.err.startswith("Error:")


# --- the API ------------------------------------------------------------------------------------------------


def test_a_script_adds_lists_checks_and_cancels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    with ortune.Session(tmp_path / "ortune.db") as session:
        result = ortune.add_runtime("mine", python=sys.executable, session=session)
        assert not result.record.existed
        assert ortune.add_runtime("mine", python=sys.executable, session=session).record.existed
        assert [one["name"] for one in ortune.runtimes().record] == ["mine"]
        assert list(ortune.runtimes().to_frame()["name"]) == ["mine"]
        cancel = threading.Event()
        cancel.set()
        with pytest.raises(Cancelled):
            ortune.add_runtime("other", "onnxruntime", session=session, cancel=cancel)
        with pytest.raises(SpecError, match="packages"):
            ortune.add_runtime("other", 3, session=session)  # type: ignore[arg-type]
    assert [one["name"] for one in runtimes.records()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.home.mkdir(parents=True)
    (line.home / "runtimes").write_text("a file")
    done = line.run("runtimes", "add", "mine", "--python", sys.executable)
    assert done.code == EXIT_BAD_INPUT
    assert "cannot be written" in done.err
