from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny_models
from tests.integration.test_benchmark import make_plan, profile_plan
from tests.waiting import WAIT_S, is_alive, wait_until_gone

ROOT = Path(__file__).resolve().parents[2]

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux ends orphans by a signal")

Worker = subprocess.Popen[bytes]


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout, worker.stderr):
            if pipe is not None:
                pipe.close()


def start(workers: list[Worker], *command: str) -> Worker:
    worker = subprocess.Popen(
        [sys.executable, *(command or ("-m", "core.worker"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORTUNE_SANDBOX": "off"},
    )
    workers.append(worker)
    return worker


def send(worker: Worker, job: str, payload: Any) -> None:
    assert worker.stdin is not None
    worker.stdin.write(json.dumps({"id": 7, "do": job, "with": payload}).encode() + b"\n")
    worker.stdin.flush()


def messages(worker: Worker) -> list[dict[str, Any]]:
    """All messages until the worker ends; stdin stays open meanwhile, as the protocol requires."""
    assert worker.stdout is not None
    return [json.loads(line) for line in worker.stdout]


def ask(workers: list[Worker], job: str, payload: Any) -> dict[str, Any]:
    """The last message of a worker that does `job`."""
    worker = start(workers)
    send(worker, job, payload)
    answer = messages(worker)[-1]
    assert worker.wait(WAIT_S) == 0
    return answer


def with_job(body: str) -> tuple[str, str]:
    """A command line: the real worker with one more job, `extra`, of the given body."""
    lines = "\n    ".join(body.strip().splitlines())
    return "-c", (
        f"import core.worker.__main__ as worker\ndef extra(payload, progress):\n    {lines}\n"
        f"worker.JOBS['extra'] = extra\nworker.main()\n"
    )


def wait_for_progress(worker: Worker, stage: str) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        if json.loads(line).get("live", {}).get("stage") == stage:
            return
    raise AssertionError("the worker left before that stage")


# -- the protocol ------------------------------------------------------------------------------------------


def test_a_job_goes_out_and_its_answer_comes_back(workers: list[Worker], tmp_path: Path) -> None:
    worker = start(workers)
    model = tiny_models.mlp(tmp_path / "m.onnx")
    send(worker, "profile", profile_plan(model, tmp_path / "trace.json", batch=3, runs=10))
    seen = messages(worker)
    assert [list(one) for one in seen] == [["id", "live"]] * (len(seen) - 1) + [["id", "ok"]]
    assert {one["id"] for one in seen} == {7}
    assert len(seen[-1]["ok"]["unprofiled_latencies_ns"]) == 10
    assert seen[-1]["ok"]["batch_size"] == 3
    assert worker.wait(WAIT_S) == 0


def test_stray_prints_of_any_kind_do_not_break_the_protocol(workers: list[Worker]) -> None:
    worker = start(
        workers,
        *with_job("""
import os
print("noise", flush=True)
os.write(1, b"raw noise\\n")
os.system("echo noise of a child")
progress("half", 1, 2)
return {"done": True}
"""),
    )
    send(worker, "extra", {})
    assert messages(worker) == [
        {"id": 7, "live": {"stage": "half", "done": 1, "total": 2, "text": ""}},
        {"id": 7, "ok": {"done": True}},
    ]
    assert worker.stderr is not None
    noise = worker.stderr.read()
    assert b"raw noise" in noise
    assert b"noise of a child" in noise


def test_an_error_of_ours_crosses_with_type_message_and_hint(workers: list[Worker], tmp_path: Path) -> None:
    plan = profile_plan(tiny_models.mlp(tmp_path / "m.onnx"), tmp_path / "trace.json")
    answer = ask(workers, "profile", plan | {"model_path": str(tmp_path / "none.onnx")})
    assert answer["id"] == 7
    assert answer["error"]["type"] == "ModelError"
    assert "no model file" in answer["error"]["message"]
    assert answer["error"]["hint"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('surprise')", "KeyError: 'surprise'"),
        ("raise MemoryError('Unable to allocate 1 TiB')", "out of memory: Unable to allocate 1 TiB"),
        ("raise MemoryError", "out of memory."),
        ("return {'not json': object()}", "not JSON serializable"),
    ],
)
def test_an_unexpected_error_is_a_worker_error_with_its_words(
    workers: list[Worker], body: str, message: str
) -> None:
    worker = start(workers, *with_job(body))
    send(worker, "extra", {})
    answer = messages(worker)[-1]
    assert answer["id"] == 7
    assert answer["error"]["type"] == "WorkerError"
    assert message in answer["error"]["message"]
    assert worker.wait(WAIT_S) == 0


@pytest.mark.parametrize("request_line", [b"nonsense\n", b'{"do": "sing", "with": {}}\n', b"[]\n", b"{}\n"])
def test_a_job_it_does_not_know_is_refused(workers: list[Worker], request_line: bytes) -> None:
    worker = start(workers)
    assert worker.stdin is not None
    worker.stdin.write(request_line)
    worker.stdin.flush()
    assert "no request that it knows" in messages(worker)[-1]["error"]["message"]


def test_a_crash_leaves_its_signal_and_its_stack(workers: list[Worker]) -> None:
    worker = start(workers, *with_job("import ctypes\nctypes.string_at(0)"))
    send(worker, "extra", {})
    assert messages(worker) == []
    assert worker.wait(WAIT_S) == -signal.SIGSEGV
    assert worker.stderr is not None
    assert b"in extra" in worker.stderr.read()


# -- what it loads and what it may use ---------------------------------------------------------------------


@needs_linux
@pytest.mark.parametrize(
    ("provider", "capped"), [("CPUExecutionProvider", True), ("CUDAExecutionProvider", False)]
)
def test_memory_is_capped_on_the_cpu_only(workers: list[Worker], provider: str, capped: bool) -> None:
    worker = start(
        workers,
        *with_job("""
import resource
before = resource.getrlimit(resource.RLIMIT_DATA)
worker._cap_memory({"session": {"providers": [{"name": payload}]}})
after = resource.getrlimit(resource.RLIMIT_DATA)
return {"changed": after != before, "hard": after[1] == before[1]}
"""),
    )
    send(worker, "extra", provider)
    assert messages(worker)[-1]["ok"] == {"changed": capped, "hard": True}


@needs_linux
def test_the_worker_offers_itself_to_the_oom_killer(workers: list[Worker]) -> None:
    worker = start(workers, *with_job("return {'score': open('/proc/self/oom_score_adj').read().strip()}"))
    send(worker, "extra", {})
    assert messages(worker)[-1]["ok"] == {"score": "1000"}


# -- it never outlives its parent --------------------------------------------------------------------------


def test_the_end_of_stdin_ends_a_busy_worker_at_once(workers: list[Worker], tmp_path: Path) -> None:
    worker = start(
        workers,
        *with_job("""
from core.worker.measure.inference import prepare
from core.worker.session import build_session
inference = prepare(build_session(payload["model_path"], payload["session"]), payload)
progress("run", 0, 1)
inference.call()
"""),
    )
    send(worker, "extra", make_plan(tiny_models.slow(tmp_path / "m.onnx")))
    wait_for_progress(worker, "run")
    assert worker.poll() is None
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(WAIT_S) == 70


def test_the_end_of_stdin_before_a_job_ends_the_worker(workers: list[Worker]) -> None:
    worker = start(workers)
    assert worker.stdin is not None
    worker.stdin.close()
    assert worker.wait(WAIT_S) in (0, 70)


PARENT = """
import json, subprocess, sys
worker = subprocess.Popen([sys.executable, "-m", "core.worker"], stdin={stdin}, stdout=subprocess.PIPE)
{send}
for line in worker.stdout:
    if b"load" in line:
        print(worker.pid, flush=True)
"""


@needs_linux
@pytest.mark.parametrize("stdin_stays_open", [False, True])
def test_a_killed_parent_leaves_no_worker(
    workers: list[Worker], tmp_path: Path, stdin_stays_open: bool
) -> None:
    """With stdin kept open by somebody else, only the parent-death signal can end the worker."""
    plan = profile_plan(tiny_models.slow(tmp_path / "m.onnx"), tmp_path / "trace.json")
    job = {"do": "profile", "with": plan}
    line = json.dumps(job).encode() + b"\n"
    code = (
        PARENT.format(stdin="None", send="")
        if stdin_stays_open
        else PARENT.format(
            stdin="subprocess.PIPE", send=f"worker.stdin.write({line!r})\nworker.stdin.flush()"
        )
    )
    parent = start(workers, "-c", code)
    assert parent.stdin is not None
    assert parent.stdout is not None
    if stdin_stays_open:
        parent.stdin.write(line)
        parent.stdin.flush()
    pid = int(parent.stdout.readline())
    try:
        assert is_alive(pid)
        parent.kill()
        wait_until_gone(pid)
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_worker_writes_nothing_into_the_home_of_its_user(tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would keep its database there; CI is unset because it silences it, too."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "XDG_CACHE_HOME")}
    (home := tmp_path / "home").mkdir()
    plan = profile_plan(tiny_models.mul(tmp_path / "m.onnx"), tmp_path / "trace.json")
    request = {"do": "profile", "with": plan}
    with subprocess.Popen(
        [sys.executable, "-m", "core.worker"],
        env=environment | {"HOME": str(home), "ORT_DISABLE_TELEMETRY": "0", "ORTUNE_SANDBOX": "off"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()
        assert b'"ok"' in worker.stdout.read()
    assert list(home.rglob("*")) == []
