"""Libraries of native code behind the operator switch: operators, providers, and their traces in results."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from core import wire
from core.cli.output import EXIT_BAD_INPUT
from core.process.job_worker import run_job
from core.spec import spec_from_yaml
from core.spec.steps import STEPS, step_type
from core.store import Store
from core.wire.access import library_note
from core.wire.errors import ModelError, ProviderError, SpecError
from core.wire.variables import ALLOW_LIBRARIES
from tests import libraries
from tests.builders import feed_plan, one_input
from tests.command_line import CommandLine
from tests.libraries import needs_compiler

CPU, TEST = "CPUExecutionProvider", "TestExecutionProvider"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operator's folder."""
    made = tmp_path_factory.mktemp("libraries")
    if libraries.COMPILER is not None:
        libraries.compiled(made, "libtwice.so", "custom_op.cpp")
        libraries.compiled(made, "libtestep.so", "plugin_provider.cpp")
    return made


@pytest.fixture
def open_door(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ALLOW_LIBRARIES, str(folder))
    return folder


@pytest.fixture
def command(tmp_path: Path, folder: Path) -> CommandLine:
    line = CommandLine(tmp_path)
    line.environment[ALLOW_LIBRARIES] = str(folder)
    return line


def answers(model: Path, *, providers: tuple[str, ...] = (CPU,), **named: list[str]) -> wire.AnswersReply:
    """Run a model once in a worker, with the libraries that are named."""
    session: Any = {
        **wire.default_session_plan(),
        "providers": [{"name": name, "options": {}} for name in providers],
        **named,
    }
    plan: Any = {
        "engine": "onnxruntime",
        "model_path": str(model),
        "torch": None,
        "session": session,
        "feeds": feed_plan(one_input(shape=(2, 4))),
        "use_io_binding": False,
        "warmup_runs": 0,
        "cpus": [],
    }
    asked: wire.AnswersPlan = {"plan": plan, "outputs": ""}
    return run_job(wire.ANSWERS, asked)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- in a worker --------------------------------------------------------------------------------------------


@needs_compiler
def test_a_library_brings_its_operator_and_says_so(open_door: Path, tmp_path: Path) -> None:
    model, digest = libraries.twice(tmp_path / "twice.onnx"), sha256(open_door / "libtwice.so")
    reply = answers(model, custom_op_libraries=[f"libtwice.so@sha256:{digest}"])
    assert reply["effective_providers"] == [CPU]
    assert [note for note in reply["notes"] if "`libtwice.so`" in note and digest in note]


def test_without_a_library_the_operator_and_the_door_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"`Twice` .*`test\.ops`") as caught:
        answers(libraries.twice(tmp_path / "twice.onnx"))
    assert ALLOW_LIBRARIES in caught.value.hint
    assert "--custom-op-library" in caught.value.hint


@needs_compiler
def test_a_worker_holds_to_the_door_whatever_the_plan_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = libraries.twice(tmp_path / "twice.onnx")
    monkeypatch.delenv(ALLOW_LIBRARIES, raising=False)
    with pytest.raises(SpecError) as caught:
        answers(model, custom_op_libraries=["libtwice.so"])
    assert ALLOW_LIBRARIES in caught.value.hint
    monkeypatch.setenv(ALLOW_LIBRARIES, str(tmp_path))
    with pytest.raises(SpecError, match=r"`libtwice\.so`"):
        answers(model, custom_op_libraries=["libtwice.so"])
    monkeypatch.setenv(ALLOW_LIBRARIES, str(folder))
    with pytest.raises(SpecError, match=r"`libtwice\.so`"):
        answers(model, custom_op_libraries=[f"libtwice.so@sha256:{'0' * 64}"])


@needs_compiler
def test_a_library_of_the_other_kind_is_refused_in_words(open_door: Path, tmp_path: Path) -> None:
    model = libraries.twice(tmp_path / "twice.onnx")
    with pytest.raises(SpecError, match=r"`libtestep\.so`"):
        answers(model, custom_op_libraries=["libtestep.so"])
    with pytest.raises(SpecError, match=r"`libtwice\.so`"):
        answers(model, provider_libraries=["libtwice.so"])


@needs_compiler
def test_a_provider_of_a_library_stands_in_the_chain(open_door: Path, tmp_path: Path) -> None:
    model = libraries.twice(tmp_path / "twice.onnx")
    named = {"custom_op_libraries": ["libtwice.so"], "provider_libraries": ["libtestep.so"]}
    assert answers(model, providers=(TEST, CPU), **named)["effective_providers"] == [TEST, CPU]
    with pytest.raises(ProviderError, match="OtherExecutionProvider") as caught:
        answers(model, providers=("OtherExecutionProvider",), **named)
    assert "`libtestep.so`" in caught.value.hint


# --- from the command line, and exported files --------------------------------------------------------------


@needs_compiler
def test_a_comparison_keeps_the_hash_and_what_leaves_names_it(
    command: CommandLine, folder: Path, tmp_path: Path
) -> None:
    model, digest = libraries.twice(tmp_path / "twice.onnx"), sha256(folder / "libtwice.so")
    library = f"libtwice.so@sha256:{digest}"
    done = command.run(
        *("tune", str(model), "--custom-op-library", "libtwice.so"),
        *("--intra-op-num-threads", "1", "--runs", "30", "--json"),
    )
    assert done.code in (0, 3), done.err  # 3: nobody is faster
    document = done.document
    assert document["spec"]["session"]["custom_op_libraries"] == [library]
    compared = Store(command.home / "ortune.db").trials_of(document["comparison"])
    sessions = [one.spec["session"] for one in compared]
    assert {"custom_op_libraries": [library]} in sessions, "the default needs it, too"
    assert document["libraries"]["libtwice.so"] == f"sha256:{digest}"
    assert any(digest in note for note in document["notes"])
    assert document["output_error"]["max_abs"] == 0.0

    text = command.run("export", document["trial"], "--format", "yaml", "--all").out
    assert spec_from_yaml(text).session.custom_op_libraries == (library,)
    assert digest in " ".join(yaml.safe_load(text)["measured"]["notes"])
    _check_bundle(command, document["trial"], tmp_path, digest)


def _check_bundle(command: CommandLine, trial: str, tmp_path: Path, digest: str) -> None:
    """It names the library without containing it; `verify` and the script use their own allowed folders."""
    bundle = tmp_path / "bundle.zip"
    assert command.run("export", trial, "--format", "bundle", "--output", str(bundle)).code == 0
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        assert not [name for name in names if ".so" in name]
        readme = archive.read("README.md").decode()
        archive.extractall(tmp_path / "unpacked")
    assert [text for text in (digest, ALLOW_LIBRARIES) if text not in readme] == []

    def verified(door: str | None) -> dict[str, Any]:
        command.environment.pop(ALLOW_LIBRARIES, None)
        if door is not None:
            command.environment[ALLOW_LIBRARIES] = door
        return command.run("verify", str(bundle), "--no-measure", "--json").document

    door = command.environment[ALLOW_LIBRARIES]
    script = [sys.executable, str(tmp_path / "unpacked" / "run.py")]
    ran = subprocess.run(script, env=command.environment, capture_output=True, text=True, check=True)
    assert ran.stdout.rstrip().endswith(": 0.0"), "what differs from the recorded outputs"
    assert _check(verified(door))["state"] == "OK"
    closed = _check(verified(None))
    assert closed["state"] == "NO"
    assert ALLOW_LIBRARIES in closed["why"]
    other = tmp_path / "other"
    other.mkdir()
    libraries.compiled(other, "libtwice.so", "custom_op.cpp", "-DFACTOR=3.0f")
    another = _check(verified(str(other)))
    assert another["state"] == "NO"
    assert another["why"] != closed["why"]


def _check(document: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in document["checks"] if one["name"] == "library libtwice.so")


def test_a_closed_door_ends_it_before_it_waits(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    line.environment.pop(ALLOW_LIBRARIES, None)
    model = libraries.twice(tmp_path / "twice.onnx")
    done = line.run("tune", str(model), "--custom-op-library", "libtwice.so")
    assert done.code != 0
    assert f"{ALLOW_LIBRARIES}=FOLDER" in done.err


# --- models that are loaded, changed, and inspected ---------------------------------------------------------

NAMED = ("--custom-op-library", "libtwice.so")


@needs_compiler
def test_a_model_is_loaded_with_its_library(command: CommandLine, folder: Path, tmp_path: Path) -> None:
    model, digest = str(libraries.twice(tmp_path / "twice.onnx")), sha256(folder / "libtwice.so")
    loaded = command.run("inspect", model, "--load", *NAMED, "--json").document["loads"]
    assert f"`libtwice.so` (sha256:{digest})" in loaded
    alone = command.run("inspect", model, "--load")
    assert alone.code == 2
    assert "`Twice`" in alone.err
    unused = command.run("inspect", model, *NAMED)
    assert unused.code == 2
    assert "`load`" in unused.err
    del command.environment[ALLOW_LIBRARIES]
    assert ALLOW_LIBRARIES in command.run("inspect", model, "--load", *NAMED).err


@needs_compiler
def test_variants_and_their_errors_know_the_library(
    command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, here = tmp_path / "own", tmp_path / "here"
    own.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    command.environment[ALLOW_LIBRARIES] = str(own)
    model = str(libraries.between_products(tmp_path / "m.onnx"))
    brought = {"libtwice.so": f"sha256:{sha256(libraries.compiled(own, 'libtwice.so', 'custom_op.cpp'))}"}
    made = command.run("transform", model, "--simplify", "--int8-dynamic", *NAMED, "--name", "q", "--json")
    assert made.code == 0, made.err
    assert [one["variant"]["libraries"] for one in made.document["steps"]] == [brought, brought]
    assert 0 < made.document["steps"][-1]["variant"]["error"]["max_rel"] < 0.05
    said = command.run("transform", model, "--simplify", "--int8-dynamic", *NAMED, "--json").document
    assert (said["reused"], len(said["steps"])) == (2, 2)

    assert "`Twice`" in command.run("node-errors", "q").err
    found = command.run("node-errors", "q", *NAMED, "--json")
    assert found.code == 0, found.err
    document = found.document
    assert (document["libraries"], document["timed"]) == (brought, True)
    assert {name for unit in document["units"] for name in unit["nodes"]} == {"first", "second"}
    assert library_note("libtwice.so", brought["libtwice.so"].removeprefix("sha256:")) in " ".join(
        command.run("node-errors", "q").out.split()
    )

    libraries.compiled(own, "libtwice.so", "custom_op.cpp", "-DFACTOR=3.0f")
    again = command.run("transform", model, "--simplify", *NAMED, "--json").document
    assert again["reused"] == 0, "another library computes otherwise"
    assert list(here.iterdir()) == [], "tools leave no files where the command was given"


@needs_compiler
def test_graphs_are_saved_with_operators_of_a_library(command: CommandLine, tmp_path: Path) -> None:
    model = str(libraries.between_products(tmp_path / "m.onnx"))
    steps = ("--fix-dims", "--dim", "batch=2", "--optimize", "--ort-format")
    made = command.run("transform", model, *steps, *NAMED, "--json")
    assert made.code == 0, made.err
    assert [one["variant"]["error"]["max_abs"] for one in made.document["steps"]] == [0.0, 0.0, 0.0]
    assert made.document["path"].endswith(".ort")
    loaded = command.run("inspect", made.document["path"], "--load", *NAMED)
    assert "libtwice.so" in loaded.out


@pytest.mark.parametrize("step", [one.kind for one in STEPS if one.no_libraries])
def test_steps_whose_tools_take_no_library_say_so(command: CommandLine, tmp_path: Path, step: str) -> None:
    model = str(libraries.between_products(tmp_path / "m.onnx"))
    done = command.run("transform", model, step_type(step).flag, *NAMED)
    assert done.code == 2
    assert step_type(step).title in done.err


# --- text ---------------------------------------------------------------------------------------------------


def test_text_is_fed_and_said_to_be_fixed(command: CommandLine, tmp_path: Path) -> None:
    model, wanted = libraries.identity_text(tmp_path / "t.onnx", ["batch", 1]), ["first", "second"]
    (tmp_path / "lines.txt").write_text("first\nsecond\n")
    args = ("--feed", f"x=@{tmp_path}/lines.txt", "--batch-size", "2", "--runs", "30", "--json")
    done = command.run("tune", str(model), *args)
    assert done.code == 0, done.err
    document = done.document
    assert document["spec"]["workload"]["feed_values"] == {"x": wanted}
    assert document["inputs"] == [{"name": "x", "dtype": "string", "shape": [2, 1]}]
    assert json.dumps(wanted) in document["fed"][0]["values"]


def test_text_that_nobody_gave_is_not_made_up(tmp_path: Path) -> None:
    model = libraries.identity_text(tmp_path / "t.onnx", ["batch"])
    line = CommandLine(tmp_path)
    wrong = ((), ("x=5",), ("x=random:0..1",), (f"x=@{tmp_path}/none.txt",))
    refused = [line.run("tune", str(model), *(("--feed", *one) if one else ())) for one in wrong]
    assert {one.code for one in refused} == {EXIT_BAD_INPUT}
    assert all("`x`" in one.err or " x" in one.err for one in refused)
    assert len({one.err for one in refused}) == len(wrong), "each has a rule of its own"


# --- onnxruntime-extensions ---------------------------------------------------------------------------------


def test_onnxruntime_extensions_is_such_a_library(tmp_path: Path) -> None:
    extensions = pytest.importorskip(
        "onnxruntime_extensions", reason="onnxruntime-extensions is not installed"
    )
    folder = tmp_path / "door"
    folder.mkdir()
    (folder / "extensions.so").write_bytes(Path(extensions.get_library_path()).read_bytes())
    line = CommandLine(tmp_path)
    line.environment[ALLOW_LIBRARIES] = str(folder)
    model = libraries.upper(tmp_path / "upper.onnx")
    done = line.run(
        *("tune", str(model), "--custom-op-library", "extensions.so", "--feed", "x=hello"),
        *("--runs", "30", "--json"),
    )
    assert done.code == 0, done.err
    facts = done.document
    assert facts["libraries"]["extensions.so"] == f"sha256:{sha256(folder / 'extensions.so')}"
    assert facts["outputs"] == [{"name": "y", "dtype": "string", "shape": [1]}]
