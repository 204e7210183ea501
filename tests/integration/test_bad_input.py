"""Every bad input gets one or two clear lines and exit code 2; nothing is lost, nothing is left running."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.evidence.measurement import Trial
from core.process.machine_queue import MachineQueue
from core.store import Store
from tests import tiny_models
from tests.command_line import CommandLine, Done

pytestmark = pytest.mark.usefixtures("jobs_at_once")

QUICK = ("--runs", "5", "--warmup-runs", "1")


def beginning(folder: Path, home: Path) -> CommandLine:
    """A command line whose store contains one earlier trial, which every test must find again."""
    line = CommandLine(folder, home)
    Store(line.home / "ortune.db").create_trial(earlier_trial())
    return line


@pytest.fixture
def cli(tmp_path: Path, acquainted: Path) -> CommandLine:
    """A command line of its own."""
    return beginning(tmp_path, acquainted)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """One for all that is refused before anything changes."""
    return beginning(tmp_path_factory.mktemp("refused"), acquainted)


def earlier_trial() -> Trial:
    return Trial(
        id="feedbeef00000000",
        kind="measure",
        state="COMPLETE",
        spec={"model": {"path": "m.onnx"}},
        model_name="m",
        model_sha256="0" * 64,
        key="k",
        created_at=1.0,
        result={"latencies_s": [0.5, 0.25]},
    )


def refused(cli: CommandLine, *args: str, words: str, cwd: Path | None = None) -> Done:
    """Run, and check all that must be true for any bad input."""
    done = cli.run(*args, cwd=cwd)
    assert done.code == 2, done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    lines = [line for line in done.err.splitlines() if line.startswith(("Error: ", "Hint: "))]
    assert [line.partition(":")[0] for line in lines] in (["Error", "Hint"], ["Error"])
    assert done.err.splitlines() == lines  # and nothing beside them
    assert words in done.err
    store_is_intact(cli)
    return done


def store_is_intact(cli: CommandLine) -> None:
    path = cli.home / "ortune.db"
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    assert Store(path).trial(earlier_trial().id) == earlier_trial()


# --- models -----------------------------------------------------------------------------------------------


def folder(path: Path) -> Path:
    path.mkdir()
    return path


MODELS: dict[str, tuple[Any, str]] = {
    "not an ONNX file": (tiny_models.not_onnx, "not"),
    "an opset newer than this ORT": (tiny_models.newer_opset, "opset"),
    "external data outside the folder": (tiny_models.external_data_outside, "outside"),
    "an input that is no tensor": (tiny_models.sequence_input, "items"),
    "a model that fails when it runs": (tiny_models.failing_run, ""),
    "a folder": (folder, "model.onnx"),
    "no file at all": (lambda path: path, "model.onnx"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_bad_model_is_refused(line: CommandLine, tmp_path: Path, name: str) -> None:
    make, words = MODELS[name]
    refused(line, "tune", made(make, tmp_path), *QUICK, "--quiet", words=words)


def made(make: Any, tmp_path: Path) -> str:
    (tmp_path / "models").mkdir()
    return str(make(tmp_path / "models" / "model.onnx"))


def test_a_bad_model_is_refused_by_inspect_too(line: CommandLine, tmp_path: Path) -> None:
    make, words = MODELS["external data outside the folder"]
    refused(line, "inspect", made(make, tmp_path), words=words)


def test_a_bad_model_becomes_a_failed_trial_and_with_json_a_document(
    cli: CommandLine, tmp_path: Path
) -> None:
    path = tiny_models.unknown_operator(tmp_path / "model.onnx")
    done = cli.run("tune", str(path), "--json", "--quiet")
    assert done.code == 2
    assert done.document["state"] == "FAIL"
    assert done.document["error"]["type"] == "ModelError"
    assert len(done.err.splitlines()) == 2
    newest = Store(cli.home / "ortune.db").trials()[0]
    assert newest.id == done.document["trial"]
    assert newest.state == "FAIL"
    store_is_intact(cli)


# --- dimensions, batch, feeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch-size", "0"], "batch_size"),
        (["--batch-size", "-1"], "batch_size"),
        (["--batch-size", "two"], "whole number"),
        (["--batch-size", "99999999"], "batch_size"),
        (["--runs", "0"], "runs"),
        (["--dim", "nope=3"], "no free dimension `nope`"),
        (["--dim", "batch=3", "--batch-size", "4"], "batch"),
        (["--feed", "nope=3"], "no input `nope`"),
        (["--feed", "x=abc"], "its value is text"),
        (["--feed", "x=[1, 2, 3]"], "shape"),
        (["--feed", "x=[[1, 2], [3]]"], "regular"),
        (["--feed", "missing.npz"], "missing.npz"),
        (["--provider", "nope"], "Unknown execution provider"),
        (["--provider", "openvino"], "OpenVINOExecutionProvider"),
        (["--provider", "cuda", "--provider-option", "cuda.nope=1"], "nope"),
        (["--session-config", "session.nope=1"], "session.nope"),
        (["--disable-optimizer", "Nope"], "Nope"),
        (["--graph-optimization-level", "FAST"], "graph_optimization_level"),
        (["--precision", "fp8"], "precision"),
        (["--intra-op-num-threads", "100000"], "intra_op_num_threads"),
        (["--intra-op-num-threads", "2", "--intra-op-thread-affinities", "0"], "affinities"),
        (["--preset", "nope"], "Unknown preset"),
        (["--config", "nope.yaml"], "nope.yaml"),
        (["--config", "preset:nope"], "Unknown preset"),
        (["--config", "0123456789"], "no trial"),
        (["--config", "preset:default", "--preset", "default"], "contradict"),
        (["--nope"], "--nope"),
        (["--batch-size"], "--batch-size"),
        (["extra"], "extra"),
    ],
    ids=repr,
)
def test_a_bad_option_is_refused(
    line: CommandLine, mlp: str, tmp_path: Path, args: list[str], words: str
) -> None:
    refused(line, "tune", mlp, *QUICK, "--quiet", *args, words=words, cwd=tmp_path)


def test_a_missing_free_dimension_is_named_with_the_option_that_sets_it(
    line: CommandLine, tmp_path: Path
) -> None:
    path = tiny_models.sum_free(tmp_path / "free.onnx")
    refused(line, "tune", str(path), "--quiet", words="--dim")


def test_an_image_that_is_not_there_or_is_no_image_is_refused(line: CommandLine, tmp_path: Path) -> None:
    path = str(tiny_models.conv(tmp_path / "conv.onnx"))
    refused(line, "tune", path, "--feed", "missing.png", "--quiet", words="missing.png", cwd=tmp_path)
    (tmp_path / "text.png").write_text("no image")
    refused(line, "tune", path, "--feed", "text.png", "--quiet", words="text.png", cwd=tmp_path)


def test_a_fixed_batch_model_refuses_another_batch(line: CommandLine, tmp_path: Path) -> None:
    path = tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=2)
    refused(line, "tune", str(path), "--batch-size", "8", "--quiet", words="fixed at 2")


def test_a_feed_of_the_wrong_type_is_refused(line: CommandLine, tmp_path: Path) -> None:
    path = tiny_models.identity(tmp_path / "int.onnx", "int64")
    refused(line, "tune", str(path), "--feed", "x=1.5", "--quiet", words="int64")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((3, 16), np.float32)}, "3 samples, but the batch is 4"),
        ({"x": np.zeros((4, 17), np.float32)}, "shape"),
        ({"y": np.zeros((4, 16), np.float32), "z": np.zeros(1)}, "no array `x`"),
        ({"x": np.full((4, 16), "a")}, "<U1"),
    ],
    ids=["too few rows", "wrong shape", "wrong name", "wrong type"],
)
def test_an_npz_that_does_not_fit_is_refused(
    line: CommandLine, mlp: str, tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    np.savez(tmp_path / "feeds.npz", **arrays)
    args = ("tune", mlp, "--batch-size", "4", "--feed", "feeds.npz", "--quiet")
    refused(line, *args, words=words, cwd=tmp_path)


def test_an_npz_of_python_objects_is_never_unpickled(line: CommandLine, mlp: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.array([{"a": 1}], dtype=object))
    refused(line, "tune", mlp, "--feed", "feeds.npz", "--quiet", words="plain arrays", cwd=tmp_path)


def test_cuda_without_libraries_names_what_is_missing(line: CommandLine, mlp: str) -> None:
    try:
        gpu = subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0
    except FileNotFoundError:
        gpu = False
    if gpu:
        pytest.skip("CUDA loads here")
    done = refused(line, "tune", mlp, "--provider", "cuda", "--quiet", words="CUDAExecutionProvider")
    assert "Hint: " in done.err


# --- YAML -------------------------------------------------------------------------------------------------

YAML: dict[str, tuple[str, str]] = {
    "an unknown key": ("schema: 1\nmodel: {path: mlp.onnx}\nsession: {intra_threads: 2}\n", "intra_threads"),
    "a wrong type": ("schema: 1\nmodel: {path: mlp.onnx}\nworkload: {batch_size: '2'}\n", "batch_size"),
    "a duplicate key": ("schema: 1\nmodel: {path: mlp.onnx}\nmodel: {path: other.onnx}\n", "twice"),
    "a python tag": (
        "schema: 1\nmodel:\n  path: !!python/object/apply:os.system ['touch pwned']\n",
        "!!python/object/apply:os.system",
    ),
    "another schema": ("schema: 2\nmodel: {path: mlp.onnx}\n", "schema"),
    "no schema": ("model: {path: mlp.onnx}\n", "schema"),
    "another model's hash": (
        f"schema: 1\nmodel: {{path: mlp.onnx, sha256: {'ab' * 32}}}\n",
        "another model",
    ),
    "a hash that YAML takes for a number": (
        f"schema: 1\nmodel: {{path: mlp.onnx, sha256: {'1' * 64}}}\n",
        "sha256",
    ),
    "no mapping": ("- a\n", "mapping"),
    "no YAML": ("a: [", "YAML"),
    "an alias": ("schema: 1\nmodel: &m {path: mlp.onnx}\n", "references"),
    "nothing": ("", "mapping"),
}


@pytest.mark.parametrize("name", YAML)
def test_a_bad_configuration_is_refused(line: CommandLine, tmp_path: Path, name: str) -> None:
    text, words = YAML[name]
    tiny_models.mlp(tmp_path / "mlp.onnx")
    (tmp_path / "config.yaml").write_text(text)
    refused(line, "tune", "--config", "config.yaml", "--quiet", words=words, cwd=tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_a_configuration_made_for_another_model_is_refused_for_the_one_given(
    line: CommandLine, tmp_path: Path
) -> None:
    path = tiny_models.mlp(tmp_path / "mlp.onnx")
    (tmp_path / "config.yaml").write_text(f"schema: 1\nmodel: {{path: x.onnx, sha256: {'cd' * 32}}}\n")
    args = ("tune", str(path), "--config", "config.yaml", "--quiet")
    refused(line, *args, words="another model", cwd=tmp_path)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00\x01", b"\x00" * 100], ids=["not UTF-8", "zeros"])
def test_a_binary_configuration_is_refused(line: CommandLine, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.yaml").write_bytes(data)
    refused(line, "tune", "mlp.onnx", "--config", "config.yaml", words="", cwd=tmp_path)


# --- other commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "Missing command"),
        (["nope"], "nope"),
        (["tune"], "No model"),
        (["inspect"], "MODEL"),
        (["inspect", "nope"], "nope"),
        (["inspect", "a\nb\x1b[31m"], r"a b\x1b[31m"),
        (["export", "0123456789"], "no trial"),
        (["export", "ab"], "no trial"),
        (["export", "feedbeef", "--format", "xml"], "xml"),
        (["export", "feedbeef", "-o", "no/such/folder/x.yaml"], "cannot be written"),
        (["export", "feedbeef", "--format", "python"], "input shapes"),
        (["export", "feedbeef", "--format", "python", "--all"], "YAML"),
        (["history", "--limit", "0"], "limit"),
        (["history", "--model", "nope"], "nope"),
        (["convert", "resnet19"], "Did you mean"),
        (["convert", "resnet18", "--opset", "99", "-q"], "99"),
        (["convert", "resnet18", "--opset", "x"], "whole number"),
        (["sweep", "mlp.onnx", "--batch-size", "1,x"], "whole numbers"),
        (["sweep", "mlp.onnx", "--batch-size", "0,1"], "batch_size"),
        (["sweep", "mlp.onnx", "--dim", "nope=1,2"], "nope"),
        (["sweep", "mlp.onnx", "--vary", "intra_op_num_thread=1,2"], "Did you mean `intra_op_num_threads`"),
        (["sweep", "mlp.onnx", "--vary", "batch_size=1,2", "--vary", "batch_size=4"], "swept twice"),
        (["sweep", "mlp.onnx", "--vary", "execution_mode=ORT_PARALEL"], "Did you mean `ORT_PARALLEL`"),
        (["sweep", "mlp.onnx", "--vary", f"batch_size={','.join(map(str, range(1, 400)))}"], "at most 256"),
        (["sweep", "mlp.onnx", "--vary", "model=nothing"], "is not a variant"),
        (["sweep", "mlp.onnx", "--batch-size", "1,2", "--line", "-3"], "milliseconds above 0"),
        (["sweep", "mlp.onnx", "--batch-size", "1,2", "--percentile", "p59"], "Did you mean"),
        (["profile", "mlp.onnx", "--top", "0"], "top"),
    ],
    ids=repr,
)
def test_a_bad_command_is_refused(line: CommandLine, mlp: str, args: list[str], words: str) -> None:
    refused(line, *args, words=words, cwd=Path(mlp).parent)


def test_wrong_usage_with_json_is_a_document_too(line: CommandLine) -> None:
    done = line.run("tune", "--json", "--bogus")
    assert done.code == 2
    assert done.document["state"] == "FAIL"
    assert "--bogus" in done.document["error"]["message"]


# --- the store --------------------------------------------------------------------------------------------


def test_a_store_from_a_newer_version_is_refused_and_stays_as_it_is(cli: CommandLine) -> None:
    path = cli.home / "ortune.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA user_version = 9999")
    db.close()
    before = digest(path)
    done = cli.run("history")
    assert done.code == 2
    assert "newer" in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 2
    assert digest(path) == before


def test_a_corrupt_store_is_kept_aside_and_the_next_command_works(cli: CommandLine) -> None:
    path = cli.home / "ortune.db"
    for extra in cli.home.glob("ortune.db-*"):
        extra.unlink()
    path.write_bytes(b"this is no database" * 1000)
    before = digest(path)
    done = cli.run("history")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 2
    (aside,) = cli.home.glob("ortune.db.corrupt-*")
    assert digest(aside) == before
    assert aside.name in done.err
    assert cli.run("history").code == 0


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_home_that_cannot_be_made_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cli.environment["ORTUNE_HOME"] = str(tmp_path / "file" / "home")
    done = cli.run("history")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 2


def test_a_full_disk_loses_nothing_and_says_so(cli: CommandLine, tmp_path: Path) -> None:
    """No file may grow: to the process that is a disk without space."""
    path = tiny_models.mlp(tmp_path / "mlp.onnx")
    limit = (
        "import resource, os, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    done = cli.run_alone("tune", str(path), *QUICK, "--quiet", prefix=(sys.executable, "-c", limit))
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) <= 2
    store_is_intact(cli)


# --- before the queue -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("tune", "mlp.onnx", "--dim", "foo=4"), "no free dimension `foo`"),
        (("tune", "gone.onnx"), "gone.onnx"),
        (("tune", "mlp.onnx", "--feed", "gone.npz"), "no input file"),
        (("tune", "mlp.onnx", "--engine", "torch-eager"), "PyTorch"),
        (("profile", "mlp.onnx", "--dim", "foo=4"), "no free dimension `foo`"),
        (("profile", "mlp.onnx", "--engine", "torch-eager"), "cannot be profiled"),
        (("compare", "mlp.onnx", "--candidate", "torch:eager"), "PyTorch"),
        (("compare", "mlp.onnx", "--candidate", "preset:edge", "--dim", "foo=4"), "no free dimension `foo`"),
        (("accuracy", "mlp.onnx", "--data", "gone.npz"), "gone.npz"),
        (("sweep", "mlp.onnx", "--batch-size", "1,2", "--feed", "gone.npz"), "no input file"),
    ],
    ids=repr,
)
def test_what_is_known_to_be_wrong_is_told_while_somebody_else_has_the_machine(
    line: CommandLine, mlp: str, args: tuple[str, ...], words: str
) -> None:
    with MachineQueue(line.queue).turn("Ada", "measure resnet"):
        refused(line, *args, words=words, cwd=Path(mlp).parent)


def test_no_candidate_that_could_run_is_bad_input_and_no_cancellation(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    """The missing provider is found late and cancels the baseline; the command must not report Ctrl-C."""
    (tmp_path / "no.yaml").write_text(
        f"schema: 1\nmodel: {{path: {mlp}}}\nsession: {{providers: [{{name: OpenVINOExecutionProvider}}]}}\n"
    )
    done = cli.run("compare", "--candidate", str(tmp_path / "no.yaml"), *QUICK, "--quiet")
    assert done.code == 2, done.err
    assert "OpenVINO" in done.err
    np.savez(tmp_path / "few.npz", x=np.zeros((1, 16), np.float32))
    rows = ("--batch-size", "4", "--feed", str(tmp_path / "few.npz"))
    done = cli.run("compare", mlp, "--candidate", "preset:edge", *QUICK, *rows, "--quiet")
    assert done.code == 2, done.err
    assert "1 samples" in done.err
