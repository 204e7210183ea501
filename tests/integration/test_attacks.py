"""A hostile library of a custom operator tries to leave its sandbox, and fails. See also tests/faults."""

from __future__ import annotations

import json
import os
import resource
import signal
import tempfile
import threading
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core import wire
from core.process import scratch, worker_watch
from core.process.confinement import PLANS, nested_plan
from core.process.contestant_workers import Workers
from core.process.job_worker import run_job
from core.spec.datasets import dataset_from_dict, dataset_plan
from core.wire.errors import TunerError
from core.wire.variables import ALLOW_LIBRARIES, SANDBOX
from tests import attacks, libraries
from tests.attacks import Target, needs_sandbox
from tests.builders import feed_plan, one_input
from tests.command_line import CommandLine
from tests.quantizing import DYNAMIC
from tests.small_disks import small_disk
from tests.waiting import WAIT_S, is_alive, wait_until_gone

pytestmark = needs_sandbox

LEAST = {"read": 14, "write": 18, "network": 17, "others": 15, "processes": 13, "kernel": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("libraries")
    libraries.compiled(made, attacks.LIBRARY, "attacker.cpp", "-O1")
    return made


@pytest.fixture
def target(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv(ALLOW_LIBRARIES, str(folder))
    with attacks.target(tmp_path) as one:
        yield one


def message(model: Path) -> str:
    """What the parent says of a worker that loads the model."""
    asked = {"path": str(model), "custom_op_libraries": [attacks.LIBRARY]}
    with pytest.raises(TunerError) as caught:
        run_job(wire.LOAD_CHECK, asked, timeout_s=WAIT_S)
    return caught.value.message


def attempt(target: Target, *attempts: str) -> str:
    """What the parent says of a worker that makes an attempt."""
    return message(libraries.attacker(target.folder / "m.onnx", *attempts))


@pytest.mark.parametrize("name", LEAST)
def test_no_attempt_leaves_the_sandbox(target: Target, name: str) -> None:
    said = message(target.model(name))
    assert len(attacks.reported(said)) >= LEAST[name], said
    assert attacks.successes(said) == []
    assert target.text not in said
    target.check_untouched()


def test_without_the_sandbox_the_secret_is_read(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests can fail."""
    monkeypatch.setenv(SANDBOX, "off")
    said = message(target.model("read"))
    assert f"open=0:{target.text}" in said
    assert attacks.successes(said)[:3] == ["open", "openat", "openat2"]


def test_without_the_sandbox_the_listener_is_reached(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX, "off")
    assert {"tcp4", "unix", "datagram", "pair"} <= set(attacks.successes(message(target.model("network"))))
    target.listeners[0].accept()[0].close()


def test_without_the_sandbox_a_process_is_killed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX, "off")
    message(target.model("others", "kill"))
    assert target.decoy.wait(60) != 0


@pytest.mark.parametrize("name", ["escape", "exit"])
def test_what_a_library_says_steers_no_terminal(target: Target, name: str) -> None:
    said = message(target.model(name))
    assert said.isprintable()
    assert "exit code 7" in said or "\\x1b" in said


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ('{"ok":{"version":"1","creation_s":NaN,"libraries":{}}}', "must be a number"),
        ('{"ok":{"version":"1","creation_s":-1,"libraries":{}}}', "must not be negative"),
        ('{"ok":{"version":[],"creation_s":1,"libraries":{}}}', "wrong shape"),
        ('{"ok":{"version":"1","creation_s":1,"libraries":{},"more":1' + "0" * 400 + "}}", "60 digits"),
        ('{"ok":{"version":"1","creation_s":1,"libraries":{},"more":' + "[" * 60 + "]" * 60 + "}}", "levels"),
    ],
)
def test_a_forged_reply_that_cannot_be_is_refused(target: Target, forged: str, words: str) -> None:
    assert words in message(libraries.attacker(target.folder / "m.onnx", "forge", forged))


def test_texts_of_a_forged_reply_steer_no_terminal(target: Target, folder: Path, tmp_path: Path) -> None:
    """It has the right shape, so it is believed; what it says is shown as text."""
    said = "\\u001b[2J\\u202e<script>[red]"
    forged = f'{{"ok":{{"version":"{said}","creation_s":1,"libraries":{{"{said}":"{said}"}}}}}}'
    line = CommandLine(tmp_path / "user")
    line.environment[ALLOW_LIBRARIES] = str(folder)
    model = str(libraries.attacker(target.folder / "m.onnx", "forge", forged))
    for option in ((), ("--json",)):
        done = line.run("inspect", model, "--load", "--custom-op-library", attacks.LIBRARY, *option)
        assert done.code == 0, done.err
        assert "<script>[red]" in done.out
        assert not set("\x1b\u202e") & {*done.out, *done.err}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("flood", '{"id":1,"live":{"stage":"x","done":1,"total":2,"text":""}}'),
        ("endless", ""),
    ],
)
def test_a_flood_of_messages_is_cut(target: Target, name: str, line: str) -> None:
    assert "more than 33,554,432 bytes" in message(libraries.attacker(target.folder / "m.onnx", name, line))


# --- the jobs -----------------------------------------------------------------------------------------------


def session() -> Any:
    return {**wire.default_session_plan(), "custom_op_libraries": [attacks.LIBRARY]}


def contestant(model: Path) -> Any:
    return {
        **{"engine": "onnxruntime", "model_path": str(model), "torch": None, "session": session()},
        **{
            "feeds": feed_plan(one_input(shape=(2, 4))),
            "use_io_binding": False,
            "warmup_runs": 0,
            "cpus": [],
        },
    }


def plan_of(job: str, model: Path, folder: Path) -> Any:
    """A plan of a job that makes a session of the model."""
    one, path, feeds = contestant(model), str(model), [feed_plan(one_input(shape=(2, 4)))]
    named: dict[str, Any] = {"model_path": path, "session": session()}
    own = {"custom_op_libraries": [attacks.LIBRARY]}
    step = {"step": "int8_dynamic", "options": DYNAMIC, "feeds": feeds, "calibration": None, **own}
    np.savez(folder / "data.npz", x=np.zeros((4, 4), np.float32), labels=np.zeros(4, np.int64))
    plans: Mapping[str, Any] = {
        wire.LOAD_CHECK: {"path": path, **own},
        wire.PROFILE: {
            **named,
            "feeds": feeds[0],
            "use_io_binding": False,
            "runs": 1,
            "trace_path": f"{folder}/t",
        },
        wire.TRANSFORM: {
            "path": path,
            "reference": path,
            "output": f"{folder}/o.onnx",
            **step,
            "step": "simplify",
        },
        wire.ACCURACY: {
            **{**named, "inputs": [one_input(shape=(2, 4))], "batch_axes": {"x": 0}, "values": {}, "seed": 0},
            **{"output": "", "scores_path": f"{folder}/scores.npz"},
            "dataset": dataset_plan(dataset_from_dict({"path": f"{folder}/data.npz"})),
        },
        wire.NODE_ERRORS: {"float_path": path, "quantized_path": path, **step},
        wire.EXPLAIN: {"sides": [one, one], "fingerprint": "", "output": f"{folder}/passes.json"},
        wire.PROFILED_PASS: {
            **{"side": one, "folder": str(folder), "runs": 0, "optimized": f"{folder}/o.onnx"},
            **{"done": 0, "total": 1},
        },
        wire.SAMPLES: {"plan": one, "folder": str(folder), "most_bytes": 1 << 20},
        wire.ANSWERS: {"plan": one, "outputs": ""},
        wire.GRAPH: {**named, "output": f"{folder}/graphs.json"},
        wire.SAVE_GRAPH: {**named, "graph_path": f"{folder}/o.onnx"},
        wire.LOADGEN: {
            **{
                "plan": one,
                "scenario": "Offline",
                "duration_s": 0.1,
                "min_queries": 1,
                "rate": 1.0,
                "seed": 0,
            },
            **{"limit_s": 1.0, "percentile": 0.9, "samples_per_query": 1, "streams": 1, "timeout_s": 60.0},
        },
        wire.LOAD: one,
    }
    return plans[job]


def loads_libraries(plan: Any) -> bool:
    """Whether a plan, or one in it, names libraries of operators."""
    hints = typing.get_type_hints(plan)
    inner = [one for hint in hints.values() if (one := nested_plan(hint)) is not None]
    return "custom_op_libraries" in hints or any(map(loads_libraries, inner))


def answer(job: Any, plan: Any) -> str:
    """What the parent says of a job."""
    try:
        if job != wire.LOAD:
            return json.dumps(run_job(job, plan, timeout_s=WAIT_S))
        with Workers(threading.Event()) as workers:
            return json.dumps(workers.start("one").ask(wire.LOAD, plan, timeout_s=WAIT_S))
    except TunerError as error:
        return error.message


WITH_LIBRARIES = sorted(
    job for job, plan in PLANS.items() if loads_libraries(plan) and job != wire.PREPARE_TRAFFIC
)  # a worker that prepares traffic has loaded its model before


@pytest.mark.parametrize("job", WITH_LIBRARIES)
@pytest.mark.parametrize("sandbox", ["", "off"])
def test_no_job_that_loads_a_library_reads_the_secret(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Any, sandbox: str
) -> None:
    monkeypatch.setenv(SANDBOX, sandbox)
    (folder := tmp_path / "outputs").mkdir()
    model = libraries.attacker_after_product(target.folder / "m.onnx", "read", str(target.secret))
    said = answer(job, plan_of(job, model, folder))
    if "not installed" in said:
        pytest.skip(said)
    if sandbox == "off":  # so the test can fail
        assert f"open=0:{target.text}" in said
    else:
        assert len(attacks.reported(said)) >= LEAST["read"], said
        assert attacks.successes(said) == []
        assert target.text not in said
        target.check_untouched()


# --- siblings and processes that are left -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["read", "write", "others"])
@pytest.mark.parametrize("sandbox", ["", "off"])
def test_the_files_and_the_process_of_a_sibling_are_out_of_reach(
    target: Target, monkeypatch: pytest.MonkeyPatch, name: str, sandbox: str
) -> None:
    monkeypatch.setenv(SANDBOX, sandbox)
    innocent = libraries.attacker(target.folder / "innocent.onnx", "none")
    with Workers(threading.Event()) as workers:
        hostile, sibling = workers.start("hostile"), workers.start("sibling")
        assert sibling.folder is not None
        (sibling.folder / "outputs").write_text("of the sibling")
        what = str(sibling.pid) if name == "others" else str(sibling.folder / "outputs")
        # without a sandbox the attempts on its parent would end it, too, before it reports
        alone = ["kill"] if (name, sandbox) == ("others", "off") else []
        model = libraries.attacker(target.folder / "hostile.onnx", name, what, *alone)
        with pytest.raises(TunerError) as caught:
            hostile.ask(wire.LOAD, contestant(model), timeout_s=WAIT_S)
        said = caught.value.message
        if sandbox == "off":
            assert {"read": "open", "write": "write", "others": "kill"}[name] in attacks.successes(said)
            return
        assert len(attacks.reported(said)) >= LEAST[name], said
        assert set(attacks.successes(said)) <= {"affinity"}  # of a younger process, see docs/limits.md
        assert [one.name for one in sibling.folder.iterdir()] == ["outputs"]
        assert (sibling.folder / "outputs").read_text() == "of the sibling"
        assert sibling.ask(wire.LOAD, contestant(innocent), timeout_s=WAIT_S)["batch_size"] == 2


@pytest.mark.parametrize("sandbox", ["", "off"])
def test_no_process_is_left_behind(target: Target, monkeypatch: pytest.MonkeyPatch, sandbox: str) -> None:
    """It would lead a session of its own, so that no signal to the worker's group reaches it."""
    monkeypatch.setenv(SANDBOX, sandbox)
    found = attacks.reported(attempt(target, "leave"))
    if sandbox == "off":
        pid = int(found["left"].removeprefix("0:"))
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
    else:
        assert found == {"left": "1"}


# --- threads, files, space, logs ----------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count files at each look."""
    monkeypatch.setattr(worker_watch, "PAUSE_S", 0.0)
    monkeypatch.setattr(worker_watch, "PAUSES_PER_COUNT", 0.0)


@pytest.fixture
def own_temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for all temporary files of this process."""
    (made := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


STAY = "600"  # seconds that a worker stays after its attempt, so that its parent sees it
LEAVE = "0"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "limit", "words"),
    [
        ("threads", "MOST_THREADS", "because it started more than 300 threads"),
        ("many", "MOST_FILES", "because it made more than 300 files"),
        ("nest", "MOST_DEPTH", "nested more than 300 deep"),
    ],
)
def test_who_takes_too_much_is_ended_in_words(
    target: Target, own_temporary: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: str, words: str
) -> None:
    with monkeypatch.context() as lower:
        lower.setattr(worker_watch, limit, 300)
        assert words in attempt(target, name, "400", STAY)
    assert list(own_temporary.iterdir()) == []
    monkeypatch.setattr(worker_watch, "MOST_DEPTH", 1000)
    assert attacks.successes(attempt(target, name, "400", LEAVE))  # so the test can fail


@pytest.mark.parametrize(("name", "count"), [("large", "10"), ("hidden", "10"), ("many", "1500")])
def test_who_fills_a_disk_is_ended_in_words(
    target: Target, monkeypatch: pytest.MonkeyPatch, name: str, count: str
) -> None:
    """10 files hold 80 MiB; those of `hidden` have no names."""
    with small_disk("size=256m,nr_inodes=3000") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        if name == "many":
            monkeypatch.setattr(worker_watch, "RESERVE_BYTES", 0)
        assert "because it fills the disk" in attempt(target, name, count, STAY)
        assert list(disk.iterdir()) == []
        assert os.statvfs(disk).f_ffree > 2_900
        assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize > 250 << 20
        monkeypatch.setattr(worker_watch.Watch, "look", lambda self: None)
        assert attacks.successes(attempt(target, name, count, LEAVE)) == ["disk"]  # so the test can fail


@pytest.mark.parametrize(("name", "count"), [("large", "1000"), ("many", "100000")])
def test_a_disk_that_is_full_before_the_parent_looks_is_told_and_free_afterwards(
    target: Target, monkeypatch: pytest.MonkeyPatch, name: str, count: str
) -> None:
    monkeypatch.setattr(worker_watch.Watch, "look", lambda self: None)
    with small_disk("size=64m,nr_inodes=3000") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        assert attacks.reported(attempt(target, name, count, LEAVE)).popitem()[1] == "28"  # ENOSPC
        assert list(disk.iterdir()) == []
        assert attacks.successes(attempt(target, "many", "10", LEAVE)) == ["disk"]


def test_folders_5000_deep_with_names_that_are_no_text_are_removed(
    target: Target, own_temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch.Watch, "look", lambda self: None)
    assert attacks.successes(attempt(target, "nest", "5000", LEAVE)) == ["nest"]
    assert list(own_temporary.iterdir()) == []


def test_a_long_log_of_a_contestant_is_ended_in_words(
    target: Target, own_temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = contestant(libraries.attacker(target.folder / "m.onnx", "log", "16", STAY))
    with monkeypatch.context() as lower:
        lower.setattr(worker_watch, "MOST_LOG_BYTES", 4 << 20)
        assert "because it wrote more than 4 MiB to its log" in answer(wire.LOAD, plan)
    assert list(own_temporary.iterdir()) == []
    plan = contestant(libraries.attacker(target.folder / "m.onnx", "log", "16", LEAVE))
    assert attacks.successes(answer(wire.LOAD, plan)) == ["log"]  # so the test can fail


def test_a_long_log_of_a_job_takes_no_memory_of_the_parent(target: Target) -> None:
    plan = contestant(libraries.attacker(target.folder / "m.onnx", "log", "256", LEAVE))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert attacks.successes(answer(wire.ANSWERS, {"plan": plan, "outputs": ""})) == ["log"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 << 10  # KiB


def test_abandoned_folders_of_an_attack_go_at_the_next_start(own_temporary: Path) -> None:
    left = own_temporary / f"{scratch.PREFIX}{'0' * 16}"
    (left / "in").mkdir(parents=True)
    (Path(os.fsdecode(os.fsencode(left / "in") + b"/\xff\n"))).touch()
    assert scratch.remove_abandoned() == 1
    assert list(own_temporary.iterdir()) == []
