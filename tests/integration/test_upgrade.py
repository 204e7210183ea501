"""The command `upgrade`, run for real: two runtimes, refused models, gates, and an interruption."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import core.run.upgrade
from core.api.session import Session
from core.api.stored import load_result
from core.api.upgrading import upgrade
from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.evidence.upgrade import UpgradeRecord
from core.run.job_log import this_process
from core.run.runtime_check import FILE_NAME
from core.run.upgrade import put, put_end, upgrades
from core.store import STORE_NAME, Store
from core.wire.errors import INTERRUPTED, Cancelled
from tests import other_runtimes, simulated_clock, tiny_models
from tests.command_line import CommandLine, Done
from tests.fresh_environment import fresh_environment
from tests.other_runtimes import needs_older_onnxruntime
from tests.simulated_clock import Model
from tests.waiting import WAIT_S

QUICK = ("--runs", "20", "--warmup-runs", "2", "--quiet")
SAME = ("--from", "own", "--to", "same")


@pytest.fixture(scope="module")
def capabilities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a worker found of the runtime `same`, after the first test that asked one."""
    return tmp_path_factory.mktemp("known") / FILE_NAME


@pytest.fixture
def line(cli: CommandLine, capabilities: Path) -> Iterator[CommandLine]:
    """A command line with a runtime `same` of the installed version."""
    other_runtimes.add(cli.home, "same")
    kept = cli.home / "runtimes" / "same" / FILE_NAME
    if capabilities.exists():
        shutil.copy(capabilities, kept)
    yield cli
    if kept.exists():
        shutil.copy(kept, capabilities)


def broken_model(path: Path) -> Path:
    path.write_bytes(b"\x08\x0a not a model")
    return path


def random_model(path: Path) -> Path:
    """Adds random numbers to its input."""
    shape = [1, 4]
    graph = helper.make_graph(
        [
            helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise"),
            helper.make_node("Add", ["x", "noise"], ["y"], name="add"),
        ],
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def record(line: CommandLine, ref: str) -> UpgradeRecord:
    (found,) = upgrades(Store(line.home / STORE_NAME), ref)
    return found


# --- results


def test_a_folder_of_models_in_two_runtimes(line: CommandLine, tmp_path: Path, mlp: str) -> None:
    models = tmp_path / "models"
    (models / "deep").mkdir(parents=True)
    (models / "mlp.onnx").write_bytes(Path(mlp).read_bytes())
    random_model(models / "deep" / "random.onnx")
    broken_model(models / "broken.onnx")
    (models / "notes.txt").write_text("no model")
    report = tmp_path / "report.md"
    done = line.run("upgrade", str(models), *SAME, *QUICK, "--json", "--report", str(report))
    assert done.code == EXIT_FAILED  # one model is broken
    by_name = {one["model"]: one for one in done.document["models"]}
    assert list(by_name) == ["broken.onnx", "random.onnx", "mlp.onnx"]
    assert by_name["broken.onnx"]["state"] == "UNUSABLE"
    assert by_name["broken.onnx"]["error"]["message"] in done.err.replace("\n", " ")
    mlp_row = by_name["mlp.onnx"]
    assert (mlp_row["state"], mlp_row["outputs_differ"], mlp_row["between"]["breach"]) == (
        "COMPARED",
        False,
        False,
    )
    assert mlp_row["contrast"]["candidate"] == mlp_row["new"]["trial"]
    assert mlp_row["simultaneous"] == done.document["family"] == 3
    random = by_name["random.onnx"]
    assert random["outputs_differ"] is None
    assert "RandomNormalLike" in random["outputs_reason"]
    sides = [done.document[one] for one in ("old", "new")]
    assert [one["name"] for one in sides] == ["own", "same"]
    assert sides[0]["onnxruntime"] == sides[1]["onnxruntime"]
    assert done.document["changes"] == []  # the same version
    store = Store(line.home / STORE_NAME)
    assert {one.study for one in store.comparisons()} == {done.document["study"]}
    text = report.read_text()
    assert "mlp.onnx" in text
    assert "cannot be compared" in text
    ref = done.document["upgrade"][:8]
    reported = line.run("report", ref, "--format", "md")
    assert reported.code == 0
    assert "3 models" in reported.out
    shown = line.run("show", ref, "--json").document
    assert shown["models"] == done.document["models"]
    assert "3 models" in line.run("show", ref).out
    unknown = line.run("show", "f" * 16)
    assert unknown.code == EXIT_BAD_INPUT


@needs_older_onnxruntime
def test_a_model_that_the_new_runtime_cannot_read_is_a_result(
    line: CommandLine, tmp_path: Path, mlp: str
) -> None:
    other_runtimes.add(line.home, "older", older=True)
    model = onnx.load(mlp)
    model.ir_version = 12
    onnx.save(model, tmp_path / "new.onnx")
    paths = (mlp, str(tmp_path / "new.onnx"))
    done = line.run("upgrade", *paths, "--from", "own", "--to", "older", *QUICK, "--json")
    assert done.code == EXIT_FAILED
    fits, refused = done.document["models"]
    assert (fits["state"], refused["state"]) == ("COMPARED", "REFUSED")
    assert "IR version 12" in refused["error"]["message"]
    assert "IR version 12" in done.err
    assert refused["new"]["state"] == "FAIL"
    kinds = {one["kind"] for one in done.document["changes"]}
    assert {"setting", "model format"} <= kinds
    back = line.run("upgrade", paths[1], "--from", "older", "--to", "own", *QUICK, "--json")
    assert back.code == 0
    assert back.document["models"][0]["state"] == "ONLY_NEW"


def test_a_gate_has_an_exit_code(line: CommandLine, mlp: str) -> None:
    def costs(label: str, plan: object) -> Model:
        return Model(run_s=0.0012 if label == "new runtime" else 0.001)

    args = ("upgrade", mlp, *SAME, "--effort", "quick", "--quiet", "--json", "--fail-if-slower")
    with simulated_clock.machine(costs):
        failed, passed = line.run(*args, "5%"), line.run(*args, "50%", "--reuse")
    assert failed.document["models"][0]["verdict"] == "SLOWER"
    assert (failed.code, failed.document["fail_if_slower"]["broken"]) == (EXIT_FAILED, ["mlp.onnx"])
    assert "mlp.onnx: more than 5 % slower in the new runtime" in failed.err
    assert (passed.code, passed.document["fail_if_slower"]["passed"]) == (0, True)


def test_an_open_gate_is_undecided(line: CommandLine, mlp: str) -> None:
    def costs(label: str, plan: object) -> Model:
        return Model(run_s=0.00105 if label == "new runtime" else 0.001, between=0.1)

    with simulated_clock.machine(costs):
        done = line.run("upgrade", mlp, *SAME, "--budget", "10s", "--quiet", "--fail-if-slower", "5%")
    assert done.code == EXIT_UNDECIDED, done.err
    assert "may be more than 5 % slower" in done.err


# --- refused


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--from", "own", "--to", "own"), "Both runtimes are `own`"),
        (("--from", "own", "--to", "sane"), "There is no runtime `sane`. Did you mean `same`?"),
        ((*SAME, "--fail-if-slower", "5"), "Write `5%`"),
        ((*SAME, "--engine", "torch-eager"), "An upgrade compares versions of ONNX Runtime"),
        ((*SAME, "--config", "preset:default", "--preset", "edge"), "contradict"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    line: CommandLine, mlp: str, args: tuple[str, ...], told: str
) -> None:
    done = line.run("upgrade", mlp, *args)
    assert done.code == EXIT_BAD_INPUT
    assert told in done.err
    assert upgrades(Store(line.home / STORE_NAME), "") == []


def test_a_size_that_the_model_has_not_is_bad_input(line: CommandLine, mlp: str) -> None:
    done = line.run("upgrade", mlp, *SAME, *QUICK, "--dim", "gone=3", "--json")
    assert done.code == EXIT_BAD_INPUT
    assert done.document["models"][0]["state"] == "UNUSABLE"
    assert "`gone`" in done.err


def test_a_runtime_without_onnxruntime_is_refused_and_the_upgrade_has_failed(
    line: CommandLine, mlp: str
) -> None:
    python = fresh_environment(line.home / "runtimes" / "bare" / "environment", ["numpy"])
    kept = line.home / "runtimes" / "same" / "runtime.json"
    changed = {**json.loads(kept.read_text()), "name": "bare", "python": str(python)}
    (line.home / "runtimes" / "bare" / "runtime.json").write_text(json.dumps(changed))
    done = line.run("upgrade", mlp, "--from", "own", "--to", "bare")
    assert done.code == EXIT_BAD_INPUT
    assert "`bare`" in done.err
    (found,) = upgrades(Store(line.home / STORE_NAME), "")
    assert found.state == "FAIL"


def test_models_that_do_not_exist_are_refused(line: CommandLine, tmp_path: Path) -> None:
    done = line.run("upgrade", str(tmp_path / "gone.onnx"), *SAME)
    assert done.code == EXIT_BAD_INPUT
    (tmp_path / "empty").mkdir()
    done = line.run("upgrade", str(tmp_path / "empty"), *SAME)
    assert done.code == EXIT_BAD_INPUT
    assert "holds no model" in done.err


# --- interrupted


def test_a_signal_leaves_no_process_and_a_document_of_what_was_measured(line: CommandLine, mlp: str) -> None:
    process = line.start("upgrade", mlp, *SAME, "--json", "--runs", "200000")
    assert process.stderr is not None
    assert any(re.search(r": 1/1 .*rounds [1-9]", text) for text in process.stderr), "it ended before"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert line.left_over() == []
    assert process.returncode == 128 + signal.SIGINT
    stopped = Done(code=process.returncode, out=out, err=err).document
    assert (stopped["state"], [one["state"] for one in stopped["models"]]) == ("CANCELLED", ["CANCELLED"])
    assert stopped["error"]["type"] == "Cancelled"
    assert record(line, stopped["upgrade"]).state == "CANCELLED"


def test_a_cancelled_upgrade_keeps_its_finished_models(
    line: CommandLine, tmp_path: Path, mlp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ORTUNE_HOME", "ORTUNE_QUEUE"):
        monkeypatch.setenv(name, line.environment[name])
    models = [mlp, str(tiny_models.mlp(tmp_path / "second.onnx", hidden=8))]
    with simulated_clock.machine(), Session() as session:

        def put_and_cancel(store: Store, record: UpgradeRecord) -> None:
            put(store, record)
            if len(record.items) == 1:
                session.scheduler.cancel(session.scheduler.active()[0].id)

        monkeypatch.setattr(core.run.upgrade, "put", put_and_cancel)
        with pytest.raises(Cancelled):
            upgrade(models, "own", "same", runs=20, session=session)
        assert session.last is not None
        kept = session.last.record
        monkeypatch.undo()
        monkeypatch.setenv("ORTUNE_HOME", line.environment["ORTUNE_HOME"])
        monkeypatch.setenv("ORTUNE_QUEUE", line.environment["ORTUNE_QUEUE"])
        again = upgrade(models, "own", "same", runs=20, reuse=True, session=session)
    assert (kept.record.state, [str(one.state) for one in kept.rows]) == (
        "CANCELLED",
        ["COMPARED", "NOT_MEASURED"],
    )
    assert [one.item.reused for one in again.record.rows] == [True, False]
    assert again.verdict.startswith("2 models: ")
    assert list(again.to_frame()["model"]) == ["mlp.onnx", "second.onnx"]
    found = load_result(again.id[:8], session=session)
    assert (found.kind, found.verdict, found.to_dict()) == ("upgrade", again.verdict, again.to_dict())


def test_an_upgrade_whose_process_was_killed_is_interrupted(tmp_path: Path) -> None:
    store = Store(tmp_path / STORE_NAME)
    facts: dict[str, Any] = {"created_at": time.time(), "config": "", "names": ("own", "same"), "family": 1}
    own = this_process()
    gone_process = f"{own.rpartition('/')[0]}/1.0"  # another process had this number before
    for name, process in (("a" * 16, gone_process), ("b" * 16, own)):
        put(store, UpgradeRecord(version=1, id=name, models=("m",), process=process, **facts))
    gone, alive = upgrades(store, "")
    assert gone.error is not None
    assert (gone.state, gone.error["message"].endswith(INTERRUPTED), alive.state) == ("FAIL", True, "RUNNING")
    put_end(store, "b" * 16, "CANCELLED", None)
    assert [one.state for one in upgrades(store, "b")] == ["CANCELLED"]


def test_results_of_an_earlier_upgrade_are_reused_if_asked(
    line: CommandLine, tmp_path: Path, mlp: str
) -> None:
    other = str(tiny_models.mlp(tmp_path / "second.onnx", hidden=8))
    with simulated_clock.machine():
        first = line.run("upgrade", mlp, other, *SAME, *QUICK, "--json").document
        again = line.run("upgrade", mlp, *SAME, *QUICK, "--json", "--reuse").document
        changed = line.run(
            "upgrade", mlp, *SAME, *QUICK, "--json", "--reuse", "--intra-op-num-threads", "1"
        ).document
        wider = line.run(
            "upgrade", mlp, other, str(random_model(tmp_path / "r.onnx")), *SAME, *QUICK, "--json", "--reuse"
        ).document
    (reused,) = again["models"]
    assert (reused["reused"], reused["comparison"]) == (True, first["models"][0]["comparison"])
    assert reused["between"] == first["models"][0]["between"]
    assert [one["models"][0]["reused"] for one in (first, changed)] == [False, False]
    # two intervals that held together with 95 % do not hold together with a third
    assert [one["reused"] for one in wider["models"]] == [False, False, False]
