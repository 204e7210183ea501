"""Bundles made and verified for real: the same machine, another one, and everything that goes wrong."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

import core
from core import wire
from core.api import session as sessions
from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.cli.sheets import lines
from core.evidence.verification import Speedup, transfer
from core.process.job_worker import run_job
from core.run import verify as verifying
from core.run.bundle import CONFIG, INPUTS, MANIFEST, OUTPUTS, SCRIPT
from core.run.scheduler import Scheduler
from core.show.sheets.verifications import DIFFERS, PARTS, WORDS, as_markdown, state_text, verification_sheet
from core.spec.strict_yaml import dump_yaml, load_strict
from core.store import STORE_NAME, Store
from core.wire.errors import StoreError
from core.wire.plain_data import plain
from core.worker.measure import samples
from tests import simulated_clock, tiny_models
from tests.builders import feed_plan, one_input
from tests.command_line import CommandLine, Done
from tests.fresh_environment import fresh_environment, onnxruntime_distribution
from tests.small_disks import small_disk

# besides ONNX Runtime
NEEDED_BY_VERIFY = ("typer", "rich", "PyYAML", "pydantic", "msgspec", "psutil", "filelock", "onnx")
OTHER_ONNXRUNTIME = "ORTUNE_TEST_ONNXRUNTIME"  # a folder with another version than the installed one
NEWER_ENTRY = "session.intra_op.spin_backoff_max"  # younger than ONNX Runtime 1.22
OF_TRIAL = ("--intra-op-num-threads", "1", "--session-config", "session.set_denormal_as_zero=1")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line on whose store a trial of the digits was measured."""
    return CommandLine(tmp_path_factory.mktemp("verify"), acquainted)


@pytest.fixture(scope="module")
def trial(line: CommandLine) -> str:
    done = line.run(
        "tune", "digits_cnn", "--runs", "40", "--warmup-runs", "2", "--quiet", "--json", *OF_TRIAL
    )
    assert done.document["state"] == "COMPLETE", done.err
    return str(done.document["trial"])


@pytest.fixture(scope="module")
def bundled(line: CommandLine, trial: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundled") / "digits.zip"
    done = line.run("export", trial, "--format", "bundle", "-o", str(path))
    assert done.code == 0, done.err
    return path


@pytest.fixture
def rebuilt(bundled: Path, tmp_path: Path) -> Callable[..., Path]:
    """The bundle with some files replaced, and hashes that fit them: somebody's own bundle."""

    def build(config: Callable[[dict[str, Any]], None] | None = None, **files: bytes) -> Path:
        path = tmp_path / "other.zip"
        with zipfile.ZipFile(bundled) as archive:
            held = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(held.pop(MANIFEST))
        held |= files
        if config is not None:
            data = load_strict(held[CONFIG].decode())
            config(data)
            held[CONFIG] = dump_yaml(data).encode()
        for one in manifest["files"]:
            data = held[one["path"]]
            one |= {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        model = held[manifest["model"]["path"]]
        manifest["model"]["sha256"] = hashlib.sha256(model).hexdigest()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in held.items():
                archive.writestr(name, data)
            archive.writestr(MANIFEST, json.dumps(manifest))
        return path

    return build


def verify(line: CommandLine, path: Path, *more: str) -> Done:
    done = line.run("verify", str(path), "--quiet", "--json", *more)
    assert "Traceback" not in done.err
    return done


def tuned(line: CommandLine, model: str, *options: str) -> str:
    """A trial on the simulated clock: what a bundle records, its export runs for real."""
    short = ("--runs", "30", "--warmup-runs", "1", "--quiet", "--json")
    with simulated_clock.machine():
        done = line.run("tune", model, *short, *options)
    assert done.document["state"] == "COMPLETE", done.err
    return str(done.document["trial"])


def check_of(done: Done, name: str) -> dict[str, Any]:
    return next(one for one in done.document["checks"] if one["name"] == name)


# --- a bundle -----------------------------------------------------------------------------------------------


def test_the_same_trial_gives_the_same_bytes(
    line: CommandLine, trial: str, bundled: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.zip"
    assert line.run("export", trial, "--format", "bundle", "-o", str(again)).code == 0
    assert again.read_bytes() == bundled.read_bytes()
    for kept in Store(line.home / STORE_NAME).artifacts(trial, "sample*"):
        kept.unlink()  # recorded anew, it is the same
    done = line.run("export", trial, "--format", "bundle", "-o", str(again), "--json")
    assert done.document["size_bytes"] == again.stat().st_size
    assert again.read_bytes() == bundled.read_bytes()


def test_its_script_needs_onnxruntime_alone_and_runs_from_any_folder(bundled: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundled) as archive:
        archive.extractall(tmp_path / "b")
    assert "onnxruntime" in (tmp_path / "b" / "requirements.txt").read_text()
    python = fresh_environment(tmp_path / "alone", [onnxruntime_distribution()])
    assert importable(python, "onnxruntime", "onnx", "core", "pip") == ["onnxruntime"]
    script = [str(python), "-I", str(tmp_path / "b" / SCRIPT)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "logits [1, 10]" in done.stdout
    assert done.stdout.rstrip().endswith(": 0.0"), "what differs from the recorded outputs"


def test_verify_needs_neither_browser_nor_torch(bundled: Path, tmp_path: Path) -> None:
    """On a target that has ONNX Runtime, the package `core`, and what reads options, files and models."""
    target = target_machine(tmp_path, onnxruntime_distribution())
    python = Path(target.python)
    absent = ("streamlit", "plotly", "pandas", "torch", "onnxslim", "dashboard")
    assert importable(python, "core", *absent, environment=target.environment) == ["core"]

    compared = target.run_alone("verify", str(bundled), "--quiet", "--json")
    assert compared.code in (0, 1, EXIT_UNDECIDED), compared.err
    found = compared.document
    assert (found["runs"]["state"], found["same"]["state"]) == ("YES", "YES")
    assert {one["here"] for one in found["differences"]} <= {"absent"}, "only packages that were left out"
    assert found["fast"]["state"] in ("HOLDS", "DIFFERS", "UNDECIDED")
    assert "Traceback" not in compared.err


def test_an_older_onnxruntime_in_an_environment_of_its_own(
    line: CommandLine, bundled: Path, rebuilt: Callable[..., Path], tmp_path: Path
) -> None:
    """Not a claim of another version, as below: another one answers, and drops what it does not know."""
    other = os.environ.get(OTHER_ONNXRUNTIME)
    if not other:
        pytest.skip(f"no other ONNX Runtime ({OTHER_ONNXRUNTIME}=FOLDER, made by `pip install --target`)")
    [version] = {
        one.version for one in importlib.metadata.distributions(path=[other]) if one.name == "onnxruntime"
    }
    assert version != importlib.metadata.version(onnxruntime_distribution())
    target = target_machine(tmp_path, "numpy", "flatbuffers", "protobuf", "packaging", path=[other])

    looked = target.run_alone("verify", str(bundled), "--no-measure", "--quiet", "--json")
    assert looked.code == 0, looked.err
    check = check_of(looked, "ONNX Runtime")
    assert check["state"] == "NOTE"
    assert version in check["here"]
    assert looked.document["same"]["state"] == "YES"
    compared = target.run_alone("verify", str(bundled), "--quiet", "--json")
    assert compared.code in (0, 1, EXIT_UNDECIDED), compared.err
    assert compared.document["fast"]["state"] in ("HOLDS", "DIFFERS", "UNDECIDED")

    def newer(data: dict[str, Any]) -> None:
        data["session"]["execution_order"] = "MEMORY_EFFICIENT"
        data["session"]["session_config_entries"] = {NEWER_ENTRY: "1"}

    refused = target.run_alone("verify", str(rebuilt(newer)), "--no-measure", "--quiet", "--json")
    assert refused.code == EXIT_FAILED
    assert NEWER_ENTRY in refused.document["runs"]["why"]


def target_machine(folder: Path, *distributions: str, path: Sequence[str] = ()) -> CommandLine:
    """A command line in its own environment with the package `core` and the requirements of `verify`."""
    code = folder / "code"
    code.mkdir()
    (code / "core").symlink_to(Path(core.__file__).parent)
    target = CommandLine(folder)
    target.python = str(fresh_environment(folder / "target", [*distributions, *NEEDED_BY_VERIFY]))
    target.environment["PYTHONPATH"] = os.pathsep.join([str(code), *path])
    return target


def importable(python: Path, *names: str, environment: dict[str, str] | None = None) -> list[str]:
    """Which of the modules that Python finds."""
    code = (
        "import importlib.util, sys; "
        "print(*(one for one in sys.argv[1:] if importlib.util.find_spec(one) is not None))"
    )
    held = environment or {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-P", "-c", code, *names]
    return subprocess.run(command, env=held, capture_output=True, text=True, check=True).stdout.split()


def test_a_bundle_needs_a_file(line: CommandLine, trial: str) -> None:
    done = line.run("export", trial, "--format", "bundle")
    assert done.code == EXIT_BAD_INPUT
    assert "path of a file" in done.err


def test_weights_beside_the_model_come_along_and_a_model_that_changed_is_not_bundled(
    cli: CommandLine, tmp_path: Path
) -> None:
    model = tiny_models.external_data(tmp_path / "m.onnx")
    trial, path = tuned(cli, str(model)), tmp_path / "m.zip"
    assert cli.run("export", trial, "--format", "bundle", "-o", str(path)).code == 0
    with zipfile.ZipFile(path) as archive:
        assert {"model/m.onnx", "model/weights.bin"} <= set(archive.namelist())
    tiny_models.mlp(model, hidden=8)
    refused = tmp_path / "refused.zip"
    told = cli.run("export", trial, "--format", "bundle", "-o", str(refused))
    assert told.code == EXIT_BAD_INPUT
    assert model.name in told.err
    assert not refused.exists()
    for one in (model, tmp_path / "weights.bin"):
        one.unlink()
    found = verify(cli, path, "--no-measure")
    assert (found.document["runs"]["state"], found.document["same"]["state"]) == ("YES", "YES"), found.out


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_leaves_nothing_half_written(line: CommandLine, trial: str) -> None:
    with small_disk("size=100k") as disk:
        path = disk / "b.zip"
        done = line.run("export", trial, "--format", "bundle", "-o", str(path))
        assert done.code == EXIT_BAD_INPUT
        assert os.strerror(errno.ENOSPC) in done.err
        assert list(disk.iterdir()) == []


@pytest.mark.slow
def test_a_model_of_gigabytes_is_never_held_in_memory(line: CommandLine, trial: str, tmp_path: Path) -> None:
    """3 GiB of weights, most of them a hole in the file, with room for 1.5 GiB in this process."""
    program = f"""
import resource
from dataclasses import replace
from pathlib import Path
from core.process.job_worker import run_job
from core.run.bundle import opening, writing
from core.show.export.bundle import bundle_texts
from core.store import Store
store = Store(Path({str(line.home / "ortune.db")!r}))
held = writing.contents(store, store.trial({trial!r}), run=run_job)
big = Path({str(tmp_path / "big.bin")!r})
with big.open("wb") as file:
    file.truncate(3 << 30)
held = replace(held, sources={{**held.sources, "model/big.bin": big}})
limit = 1536 << 20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
path = Path({str(tmp_path / "big.zip")!r})
written = writing.write(path, held, bundle_texts(held), store=store)
assert written > 3 << 30, written
opening.check(path)
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    if shutil.disk_usage(tmp_path).free < 8 << 30:
        pytest.skip("needs 8 GiB of disk")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=line.environment,
        check=False,
        timeout=300,
    )
    for name in ("big.zip", "big.bin"):
        (tmp_path / name).unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    assert "peak" in done.stdout


# --- on the same machine ------------------------------------------------------------------------------------


def test_on_the_same_machine_it_runs_and_answers_the_same(line: CommandLine, bundled: Path) -> None:
    done = verify(line, bundled, "--no-measure")
    found = done.document
    assert done.code == 0, done.out
    assert (found["state"], found["runs"]["state"], found["same"]["state"]) == ("NOT_MEASURED", "YES", "YES")
    assert found["same"]["error"]["max_rel"] == 0
    assert found["fast"]["state"] == "NOT_MEASURED"
    assert found["differences"] == []
    assert {one["state"] for one in found["checks"]} <= {"OK", "NOTE"}
    assert check_of(done, "settings")["here"] == "2 known"
    assert lines(verification_sheet(found))[0].endswith(WORDS["NOT_MEASURED"])


@pytest.fixture(scope="module")
def verified_once(
    line: CommandLine, bundled: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Done, Path]:
    """The bundle measured on this machine, and the file of this machine's own numbers."""
    kept = tmp_path_factory.mktemp("kept") / "baseline.json"
    done = verify(line, bundled, "--margin", "900%", "--record", str(kept))
    assert done.document["recorded_to"] == str(kept), done.err
    return done, kept


def test_a_comparison_says_whether_the_speedup_is_reproduced_by_both_intervals(
    line: CommandLine, verified_once: tuple[Done, Path]
) -> None:
    done, _ = verified_once
    found = done.document
    (gain,) = found["fast"]["gains"]
    assert gain["here"] is not None
    # the machine may be too busy for a verdict: what is said is what both intervals say
    recorded, here = Speedup(**gain["recorded"]), Speedup(**gain["here"])
    expected = transfer(gain["against"], recorded, here, margin=9)
    assert gain == plain(expected)
    assert recorded.ratio > 0
    assert gain["state"] != "NOT_MEASURED"
    failed = EXIT_FAILED if expected.is_slower else 0
    assert done.code == (EXIT_UNDECIDED if gain["state"] == "UNDECIDED" else failed)
    assert Store(line.home / STORE_NAME).trial(found["trial"]).state == "COMPLETE"


def test_less_gain_than_recorded_targets_and_own_numbers_of_before_are_all_judged(
    line: CommandLine, rebuilt: Callable[..., Path], verified_once: tuple[Done, Path]
) -> None:
    def slower(data: dict[str, Any]) -> None:
        (one,) = data["measured"]["contrasts"]
        one |= {"ratio": 900.0, "ratio_low": 890.0, "ratio_high": 910.0}  # beyond any noise of this machine
        one |= {"holds": True, "grade": "A", "contradicted": False}
        data["targets"] = [
            {"metric": "model_size", "at_most": "1 MB"},
            {"metric": "latency_p50", "at_most": "1 us"},
        ]

    kept = str(verified_once[1])
    done = verify(line, rebuilt(slower), "--against", kept, "--fail-if-slower", "900%")
    (gain,) = done.document["fast"]["gains"]
    size, latency = (one["state"] for one in done.document["targets"])
    assert size == "MET"
    assert latency in ("MISSED", "UNKNOWN")  # unknown: too few runs, or a busy machine
    change = done.document["change"]
    assert change["state"] in ("HOLDS", "UNDECIDED")  # undecided: the machine was too busy for a verdict
    assert change["changed"] == []
    assert change["cpus"] > 0
    if gain["here"]["doubt"] or gain["between"] is None:
        assert done.code in (EXIT_FAILED, EXIT_UNDECIDED)
    else:
        assert (gain["state"], done.code) == ("DIFFERS", EXIT_FAILED)


# --- another answer, another model --------------------------------------------------------------------------


def test_a_changed_answer_is_told_with_how_much(
    line: CommandLine, rebuilt: Callable[..., Path], tmp_path: Path
) -> None:
    with zipfile.ZipFile(rebuilt()) as archive:
        archive.extract("samples/outputs.npz", tmp_path)
    kept = dict(np.load(tmp_path / "samples" / "outputs.npz"))
    kept["arr_1"] = kept["arr_1"] * np.float32(1.25)
    np.savez(tmp_path / "changed.npz", *(kept[name] for name in ("arr_0", "arr_1")))
    path = rebuilt(**{"samples/outputs.npz": (tmp_path / "changed.npz").read_bytes()})
    done = verify(line, path, "--no-measure")
    assert done.code == EXIT_FAILED
    assert done.document["same"]["state"] == "NO"
    assert done.document["same"]["error"]["max_rel"] == pytest.approx(0.2, rel=0.01)


def test_a_changed_model_answers_otherwise(
    line: CommandLine, rebuilt: Callable[..., Path], bundled: Path
) -> None:
    with zipfile.ZipFile(bundled) as archive:
        model = onnx.load_model_from_string(archive.read("model/digits_cnn.onnx"))
    weight = max(model.graph.initializer, key=lambda one: len(one.raw_data))
    weight.raw_data = (np.frombuffer(weight.raw_data, np.float32) * np.float32(1.5)).tobytes()
    path = rebuilt(**{"model/digits_cnn.onnx": model.SerializeToString()})
    done = verify(line, path, "--no-measure")
    assert (done.code, done.document["same"]["state"]) == (EXIT_FAILED, "NO")


def npz(**arrays: Any) -> bytes:
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"no archive",
        npz(arr_0=np.array(["logits"]), other=np.zeros(3)),
        npz(arr_0=np.array(["logits", "more"]), arr_1=np.zeros(3)),
    ],
)
def test_outputs_that_nobody_recorded_are_told_and_no_error(
    square: Path, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "outputs.npz").write_bytes(data)
    session: Any = {
        **wire.default_session_plan(),
        "providers": [{"name": "CPUExecutionProvider", "options": {}}],
    }
    plan: Any = {
        **{"engine": "onnxruntime", "model_path": str(square), "torch": None, "session": session},
        **{
            "feeds": feed_plan(one_input(shape=(3, 2))),
            "use_io_binding": False,
            "warmup_runs": 0,
            "cpus": [],
        },
    }
    reply = samples.answers({"plan": plan, "outputs": str(tmp_path / "outputs.npz")})
    assert reply["unusable"]
    assert reply["error"] is None


@pytest.mark.parametrize(
    ("name", "data"), [(OUTPUTS, b"no archive"), (INPUTS, npz(image=np.zeros((2, 2), np.float32)))]
)
def test_a_sample_of_no_use_says_nothing_of_the_configuration(
    line: CommandLine, rebuilt: Callable[..., Path], name: str, data: bytes
) -> None:
    done = verify(line, rebuilt(**{name: data}))
    assert (done.code, done.document["state"]) == (EXIT_UNDECIDED, "UNDECIDED")
    assert done.document["runs"]["state"] == "UNKNOWN"
    assert done.document["same"]["why"] in done.document["runs"]["why"]
    assert done.document["fast"]["state"] == "NOT_MEASURED"


def test_a_full_disk_is_no_configuration_that_does_not_run(
    line: CommandLine, bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk = StoreError("There is no room.", hint="Free disk space.")

    def full(*_: Any) -> None:
        raise full_disk

    monkeypatch.setattr(verifying, "prepare_trial", full)
    done = line.run("verify", str(bundled), "--no-measure", "--quiet", "--json")
    assert done.code == EXIT_BAD_INPUT
    assert done.document["error"]["message"] == full_disk.message
    assert "runs" not in done.document


def test_a_model_that_is_not_the_one_in_the_yaml_is_named(
    line: CommandLine, bundled: Path, tmp_path: Path, mlp: str
) -> None:
    with zipfile.ZipFile(bundled) as archive:
        archive.extract(CONFIG, tmp_path)
    (tmp_path / "model").mkdir()
    shutil.copyfile(mlp, tmp_path / "model" / "digits_cnn.onnx")
    done = verify(line, tmp_path / CONFIG, "--no-measure")
    assert done.code == EXIT_BAD_INPUT
    assert done.document["error"]["type"] == "SpecError"
    assert "digits_cnn" in done.document["error"]["message"]


def test_a_file_that_was_changed_is_refused_before_anybody_waits_in_the_queue(
    line: CommandLine, bundled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "Scheduler", lambda *_, **__: pytest.fail("It waits."))
    path = tmp_path / "changed.zip"
    with zipfile.ZipFile(bundled) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            after.writestr(name, before.read(name) + b"#" * (name == CONFIG))
    done = verify(line, path)
    assert done.code == EXIT_BAD_INPUT
    assert CONFIG in done.document["error"]["message"]


def test_a_yaml_alone_says_what_it_cannot_tell(line: CommandLine, trial: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    assert line.run("export", trial, "-o", str(path)).code == 0
    done = verify(line, path, "--no-measure")
    assert done.code == EXIT_UNDECIDED
    assert done.document["runs"]["state"] == "YES"
    assert done.document["same"]["state"] == "UNKNOWN"
    assert done.document["same"]["why"]


def test_a_yaml_without_anything_measured_says_so(line: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("schema: 1\nmodel: {path: digits_cnn}\nprotocol: {runs: 20, warmup_runs: 1}\n")
    done = verify(line, path)
    assert done.code == EXIT_UNDECIDED
    assert {one["name"]: one["state"] for one in done.document["checks"]}["machine"] == "UNKNOWN"
    assert verifying.DEFAULT in done.document["fast"]["why"]


# --- another machine ----------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """This machine, as if some of its facts were others: where the parent is told of them."""

    def be(change: Callable[[dict[str, Any]], None]) -> None:
        describe = Scheduler._describe

        def changed(self: Scheduler, *args: Any, **how: Any) -> Any:
            facts = json.loads(json.dumps(describe(self, *args, **how)))
            change(facts)
            return facts

        monkeypatch.setattr(Scheduler, "_describe", changed)

    return be


def test_what_differs_between_the_machines_stands_fact_by_fact(
    line: CommandLine, bundled: Path, elsewhere: Callable[..., None]
) -> None:
    def smaller(facts: dict[str, Any]) -> None:
        facts["cpu"] |= {"allowed": [0], "quota": 0.5, "usable": 1}
        facts["kernel"] = "6.1.0-other"

    elsewhere(smaller)
    done = verify(line, bundled, "--no-measure")
    assert done.code == 0
    found = {one["name"]: one["here"] for one in done.document["differences"]}
    assert found["kernel"] == "6.1.0-other"
    assert found["CPU quota"] == "0.5"
    assert check_of(done, "machine")["state"] == "NOTE"
    assert DIFFERS in "\n".join(lines(verification_sheet(done.document)))


def test_the_same_machine_with_another_onnxruntime_is_no_other_machine(
    line: CommandLine, bundled: Path, elsewhere: Callable[..., None]
) -> None:
    elsewhere(lambda facts: facts["libraries"].update(onnxruntime="1.99.0"))
    done = verify(line, bundled, "--no-measure")
    assert [one["name"] for one in done.document["differences"]] == ["onnxruntime"]
    assert check_of(done, "machine")["here"] == "this machine with different software"


def test_threads_that_do_not_fit_are_noted(
    line: CommandLine, rebuilt: Callable[..., Path], elsewhere: Callable[..., None]
) -> None:
    elsewhere(lambda facts: facts["cpu"].update(allowed=[0], quota=1.0, usable=1))
    path = rebuilt(lambda data: data["session"].update(intra_op_num_threads=4))
    found = check_of(verify(line, path, "--no-measure"), "threads")
    assert found["state"] == "NOTE"
    assert found["why"]


def test_a_process_that_may_use_one_cpu_is_another_machine(line: CommandLine, bundled: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    one = str(min(os.sched_getaffinity(0)))
    done = line.run_alone(
        "verify", str(bundled), "--no-measure", "--json", "--quiet", prefix=["taskset", "-c", one]
    )
    assert done.code == 0, done.err
    assert ("allowed CPUs", "1") in {(one["name"], one["here"]) for one in done.document["differences"]}


def test_a_target_without_the_provider_does_not_run(line: CommandLine, rebuilt: Callable[..., Path]) -> None:
    def gpu(data: dict[str, Any]) -> None:
        data["session"]["providers"] = [{"name": "OpenVINOExecutionProvider", "options": {}}]

    done = verify(line, rebuilt(gpu), "--no-measure")
    assert done.code == EXIT_FAILED
    assert done.document["runs"]["state"] == "NO"
    assert "OpenVINOExecutionProvider" in done.document["runs"]["why"]
    assert done.document["same"]["state"] == "UNKNOWN"


def test_another_onnxruntime_says_which_settings_it_does_not_know(
    line: CommandLine,
    bundled: Path,
    elsewhere: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(facts: dict[str, Any]) -> None:
        name = next(name for name in facts["libraries"] if name.startswith("onnxruntime"))
        facts["libraries"][name] = "1.5.0"

    elsewhere(older)
    service = Scheduler._service

    def old(self: Scheduler, *args: Any) -> Any:
        from dataclasses import replace

        found = service(self, *args)

        def run(job: Any, payload: Any, **how: Any) -> Any:
            if job == wire.SETTINGS:
                return {"version": "1.5.0", "searched": 1, "unknown": payload["keys"]}
            return found.run(job, payload, **how)

        return replace(found, run=run)

    monkeypatch.setattr(Scheduler, "_service", old)
    done = verify(line, bundled)
    assert done.code == EXIT_FAILED
    assert "`session.set_denormal_as_zero`" in done.document["runs"]["why"]
    assert check_of(done, "ONNX Runtime")["state"] == "NOTE"
    assert "1.5.0" in check_of(done, "ONNX Runtime")["here"]
    assert done.document["fast"]["state"] == "NOT_MEASURED"


def test_the_installed_onnxruntime_is_asked_what_it_knows() -> None:
    asked: wire.SettingsPlan = {
        "attributes": ["intra_op_num_threads", "no_such_attribute"],
        "enums": {"execution_mode": ["ORT_SEQUENTIAL"], "graph_optimization_level": ["ORT_ENABLE_NEVER"]},
        "keys": ["session.intra_op.allow_spinning", "session.no_such_entry"],
        "optimizers": ["ConstantFolding", "NoSuchFusion"],
    }
    reply = run_job(wire.SETTINGS, asked)
    assert reply["searched"] > 0
    assert reply["unknown"] == [
        "no_such_attribute",
        "graph_optimization_level ORT_ENABLE_NEVER",
        "session.no_such_entry",
        "NoSuchFusion",
    ]


def test_every_setting_of_the_table_is_known_here() -> None:
    from core.spec.settings import KNOWN_CONFIG_ENTRIES, SETTINGS
    from core.spec.settings.config_entries import KNOWN_OPTIMIZERS

    asked: wire.SettingsPlan = {
        "attributes": [one.name for one in SETTINGS if one.target == "attribute"],
        "enums": {},
        "keys": [
            *(one.name for one in SETTINGS if one.target in ("config_entry", "run_entry")),
            *KNOWN_CONFIG_ENTRIES,
        ],
        "optimizers": list(KNOWN_OPTIMIZERS),
    }
    of_other_builds = {"mlas.enable_gemm_fastmath_arm64_bfloat16"}
    assert set(run_job(wire.SETTINGS, asked)["unknown"]) <= of_other_builds


# --- for build machines -------------------------------------------------------------------------------------


def test_junit_has_a_case_for_each_question(line: CommandLine, rebuilt: Callable[..., Path]) -> None:
    path = rebuilt(lambda data: data["session"].update(providers=[{"name": "OpenVINOExecutionProvider"}]))
    done = line.run("verify", str(path), "--no-measure", "--quiet", "--format", "junit")
    suite = ElementTree.fromstring(done.out)
    cases = {one.get("name"): one for one in suite}
    assert done.code == EXIT_FAILED
    assert int(suite.get("failures") or 0) == len(suite.findall("*/failure")) >= 1
    assert cases["runs"].find("failure") is not None
    assert cases["same speed"].find("skipped") is not None
    found = line.run("verify", str(path), "--no-measure", "--quiet", "--format", "json").document
    assert f"| {PARTS[0][1]} | {state_text('NO')} |" in as_markdown(found)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--format", "junit", "--json"), "contradict each other"),
        (("--fail-if-slower", "5%"), "needs a baseline"),
        (("--no-measure", "--record", "x.json"), "needs a measurement"),
        (("--margin", "wide"), "takes a share"),
        (("--margin", "5"), "below 1 or a percentage"),
        (("--against", "nowhere.json"), "cannot be read"),
    ],
)
def test_bad_options_are_refused(line: CommandLine, bundled: Path, more: tuple[str, ...], words: str) -> None:
    done = line.run("verify", str(bundled), *more)
    assert done.code == EXIT_BAD_INPUT
    assert words in done.err


def test_a_damaged_bundle_is_refused_in_one_line(line: CommandLine, bundled: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.zip"
    path.write_bytes(bundled.read_bytes()[:-300])
    done = line.run("verify", str(path), "--json")
    assert done.code == EXIT_BAD_INPUT
    assert done.document["error"]["type"] == "SpecError"
    assert path.name in done.document["error"]["message"]
    assert list((line.home / "cache").glob("bundles/*")) == []
    assert line.run("verify", str(path), "--format", "json").document == done.document


# --- then and now -------------------------------------------------------------------------------------------


def test_own_numbers_of_another_machine_are_refused_before_anything_is_measured(
    line: CommandLine, bundled: Path, verified_once: tuple[Done, Path], elsewhere: Callable[..., None]
) -> None:
    elsewhere(lambda facts: facts.update(kernel="6.1.0-other"))
    comparisons = len(Store(line.home / STORE_NAME).comparisons())
    refused = line.run("verify", str(bundled), "--against", str(verified_once[1]), "--quiet")
    assert refused.code == EXIT_BAD_INPUT
    assert "6.1.0-other" in refused.err
    assert len(Store(line.home / STORE_NAME).comparisons()) == comparisons


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not a recorded baseline"),
        ("[", "not a recorded baseline"),
        ('{"baseline": 2}', "made by a newer version"),
        ('{"baseline": 1, "speed": {"ratio": -1}}', "not a recorded baseline"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(
    line: CommandLine, bundled: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "b.json").write_text(text)
    done = line.run("verify", str(bundled), "--against", str(tmp_path / "b.json"))
    assert done.code == EXIT_BAD_INPUT
    assert words in done.err


def test_what_it_is_called_is_that_of_the_file() -> None:
    assert verifying.Request(path=Path("/tmp/x.zip")).label == "x.zip"


# --- what else was recorded ---------------------------------------------------------------------------------


def test_the_old_baseline_is_measured_again(cli: CommandLine, mlp: str, tmp_path: Path) -> None:
    slow = tmp_path / "slow.yaml"
    slow.write_text(f"schema: 1\nmodel: {{path: {mlp}}}\nsession: {{enable_mem_pattern: false}}\n")
    trial = tuned(cli, mlp, "--intra-op-num-threads", "1", "--baseline", str(slow))
    path = tmp_path / "b.zip"
    assert cli.run("export", trial, "--format", "bundle", "-o", str(path)).code == 0
    with zipfile.ZipFile(path) as archive:
        kept = json.loads(archive.read(MANIFEST))["baseline"]
    assert kept["spec"]["session"] == {"enable_mem_pattern": False}
    with simulated_clock.machine():
        found = verify(cli, path).document
    default, baseline = found["fast"]["gains"]
    assert default["against"] == verifying.DEFAULT
    assert str(slow)[:60] in baseline["against"]  # a name of 80 characters at most
    assert default["here"] is not None
    assert baseline["here"] is not None
    comparison = Store(cli.home / STORE_NAME).comparison(found["comparison"])
    assert {one.role for one in comparison.contestants} == {"candidate", "baseline", "anchor"}


@pytest.mark.parametrize("bound", [False, True], ids=["every-type-of-numpy", "bfloat16"])
def test_inputs_of_every_type_are_recorded_and_fed_again(
    cli: CommandLine, tmp_path: Path, bound: bool
) -> None:
    path = tmp_path / "m.onnx"
    model = tiny_models.identity(path, "bfloat16") if bound else tiny_models.every_dtype(path)
    more = ["--io-binding"] if bound else []  # numpy has no bfloat16
    trial, bundle = tuned(cli, str(model), *more), tmp_path / "m.zip"
    assert cli.run("export", trial, "--format", "bundle", "-o", str(bundle)).code == 0
    found = verify(cli, bundle, "--no-measure")
    assert (found.code, found.document["same"]["state"]) == (0, "YES"), found.out


def test_what_was_fed_from_a_file_is_fed_from_the_sample(cli: CommandLine, mlp: str, tmp_path: Path) -> None:
    feeds = tmp_path / "feeds.npz"
    name = cli.run("inspect", mlp, "--json").document["inputs"][0]["name"]
    np.savez(feeds, **{name: np.random.default_rng(3).normal(size=(4, 16)).astype(np.float32)})
    trial, path = tuned(cli, mlp, "--feed", str(feeds), "--batch-size", "4"), tmp_path / "m.zip"
    assert cli.run("export", trial, "--format", "bundle", "-o", str(path)).code == 0
    feeds.unlink()
    found = verify(cli, path, "--no-measure")
    assert (found.code, found.document["same"]["state"]) == (0, "YES"), found.out
    assert found.document["same"]["error"]["rows"] == 4


def test_numbers_that_cannot_be_kept_do_not_cost_the_answer(
    line: CommandLine, bundled: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "is a folder.json"
    folder.mkdir()
    with simulated_clock.machine():
        done = verify(line, bundled, "--record", str(folder))
    assert done.code == EXIT_BAD_INPUT
    assert done.document["runs"]["state"] == "YES"
    assert done.document["recorded_to"] is None
    assert folder.name in done.document["error"]["message"]
    assert sorted(one.name for one in tmp_path.iterdir()) == [folder.name]
