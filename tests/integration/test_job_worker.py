"""A worker that misbehaves in every way we could think of, and one that does its job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from core import wire
from core.process import job_worker, time_limit
from core.process.job_worker import Progress, run_job
from core.wire.errors import Cancelled, ModelError, WorkerError
from tests.builders import export_plan
from tests.waiting import WAIT_S, wait_until, wait_until_gone

ROOT = Path(__file__).parents[2]
WORK = wire.Request("work", dict)
SAYS = """
import json, os, signal, sys, time
def say(**message):
    print(json.dumps({"id": 1, **message}), flush=True)
"""


@pytest.fixture
def worker(tmp_path):
    """Write a worker script and return its command line."""

    def make(code: str) -> list[str]:
        script = tmp_path / "worker.py"
        script.write_text(SAYS + textwrap.dedent(code))
        return [sys.executable, str(script)]

    return make


def pid_from(folder: Path) -> int:
    path = folder / "pid"
    wait_until(lambda: path.exists() and path.read_text(), "the worker never wrote its pid")
    return int(path.read_text())


def test_answer_and_progress_come_through(worker):
    command = worker("""
        request = json.loads(sys.stdin.readline())
        assert request["with"].pop("sandbox")["network"] is False
        say(live={"stage": "runs", "done": 3, "total": 9, "text": "half"})
        say(ok={"got": request})
    """)
    seen: list[Progress] = []
    value = run_job(WORK, {"runs": 3}, command=command, on_progress=seen.append)
    assert value == {"got": {"id": 1, "do": "work", "with": {"runs": 3}}}
    assert seen == [Progress(stage="runs", done=3, total=9, text="half")]


def test_error_of_the_worker_arrives_as_the_same_class(worker):
    command = worker("""
        error = {"type": "ModelError", "message": "It is no model.", "hint": "Export it again."}
        say(error=error)
    """)
    with pytest.raises(ModelError, match="model") as caught:
        run_job(WORK, {}, command=command)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"version": "1.31.1"}, "missing required field `creation_s`"),
        ({"version": 1, "creation_s": 0.5}, r"Expected `str`, got `int` - at `\$.version`"),
        ({"version": "1", "creation_s": 1 << 2000, "libraries": {}}, "convert"),
        ({"\udcff": 1}, "surrogates not allowed"),
    ],
)
def test_a_reply_of_the_wrong_shape_is_an_error_that_names_the_field(worker, reply, words):
    with pytest.raises(WorkerError, match=rf"`load_check`.*{words}"):
        run_job(wire.LOAD_CHECK, {}, command=worker(f"say(ok={reply!r})"))


def test_a_reply_is_returned_as_it_came(worker):
    command = worker("say(ok={'version': '1', 'creation_s': 1, 'libraries': {}, 'more': [1]})")
    reply = run_job(wire.LOAD_CHECK, {}, command=command)
    assert repr(reply) == "{'version': '1', 'creation_s': 1, 'libraries': {}, 'more': [1]}"


def test_noise_around_the_protocol_is_ignored_when_a_result_comes(worker):
    command = worker("""
        print("Welcome to libnoise 1.0")
        print(json.dumps(["no", "event"]))
        say(live={"stage": 3})
        say(ok="not an object")
        sys.stdout.buffer.write(b"\\xff\\xfe broken text\\n")
        print("[" * 100_000)
        say(ok={"ok": True})
    """)
    assert run_job(WORK, {}, command=command) == {"ok": True}


def test_noise_instead_of_an_answer_is_quoted(worker):
    command = worker('print("Segments loaded: 12"); sys.stderr.write("a warning\\n")')
    with pytest.raises(WorkerError, match=r"12`.*warning"):
        run_job(WORK, {}, command=command)


def test_last_line_without_newline_counts_as_noise(worker):
    command = worker('sys.stdout.write("half a mess"); sys.stdout.flush()')
    with pytest.raises(WorkerError, match="mess"):
        run_job(WORK, {}, command=command)


def test_early_exit_tells_the_code_and_the_last_words(worker):
    command = worker('sys.stderr.write("first\\nImportError: no numpy\\n\\n"); sys.exit(3)')
    with pytest.raises(WorkerError, match=r"\b3\b.*ImportError"):
        run_job(WORK, {}, command=command)


def test_stderr_flood_neither_blocks_nor_fills_the_message(worker):
    command = worker("""
        for i in range(200_000):
            sys.stderr.write(f"warning number {i} of very many that nobody reads\\n")
        sys.exit(1)
    """)
    with pytest.raises(WorkerError, match="199999") as caught:
        run_job(WORK, {}, command=command)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSEGV, r"crashed \(SIGSEGV\)"),
        (signal.SIGABRT, r"crashed \(SIGABRT\)"),
        (signal.SIGKILL, r"was killed \(SIGKILL\), probably because memory ran out"),
        (signal.SIGILL, r"SIGILL\), because this CPU lacks an instruction"),
    ],
)
def test_crash_names_the_signal_and_the_stage(worker, number, words):
    command = worker(f"""
        say(live={{"stage": "warmup", "done": 0, "total": 1, "text": ""}})
        os.kill(os.getpid(), {int(number)})
        time.sleep(60)
    """)
    with pytest.raises(WorkerError, match=words + ".*stage `warmup`") as caught:
        run_job(WORK, {}, command=command)
    assert caught.value.hint.endswith(".")


def test_real_segfault_leaves_out_the_stack_of_pythons_own_report(worker):
    command = worker("""
        import ctypes, faulthandler
        faulthandler.enable()
        sys.stderr.write("loading the library\\n")
        sys.stderr.flush()
        ctypes.string_at(0)
    """)
    with pytest.raises(WorkerError, match=r"SIGSEGV.*last output: loading the library") as caught:
        run_job(WORK, {}, command=command)
    assert "worker.py" not in caught.value.message


def test_hang_is_ended_by_the_time_limit_with_all_its_children(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(job_worker, "TERM_GRACE_S", 0.3)
    command = worker(f"""
        import subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        say(live={{"stage": "runs", "done": 1, "total": 9, "text": ""}})
        while True:
            time.sleep(1)
    """)
    begun: list[Progress] = []  # the time is over once there is progress, however long Python takes to start
    late = SimpleNamespace(monotonic=lambda: time.monotonic() + WAIT_S * bool(begun), sleep=time.sleep)
    monkeypatch.setattr(time_limit, "time", late)
    monkeypatch.setattr(time_limit, "MOST_LOOK_S", WAIT_S)
    with pytest.raises(WorkerError, match=rf"\b{WAIT_S:g} s.*`runs`"):
        run_job(WORK, {}, command=command, timeout_s=WAIT_S, on_progress=begun.append)
    wait_until_gone(pid_from(tmp_path))


def test_cancel_ends_a_busy_worker_at_once(worker, tmp_path):
    command = worker(f"""
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        while True:
            pass
    """)
    cancel = threading.Event()
    raised: list[BaseException] = []

    def job() -> None:
        try:
            run_job(WORK, {}, command=command, cancel=cancel)
        except Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    pid = pid_from(tmp_path)
    cancel.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert isinstance(raised[0], Cancelled)
    assert not psutil.pid_exists(pid)  # reaped, not even a zombie


def test_cancel_set_before_the_start_starts_nothing(tmp_path):
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        run_job(WORK, {}, command=["/no/such/program"], cancel=cancel)


def test_program_that_cannot_start_is_a_worker_error():
    with pytest.raises(WorkerError, match="started"):
        run_job(WORK, {}, command=["/no/such/program"])


def test_answer_of_twenty_megabytes_arrives_whole(worker):
    command = worker("""
        say(ok={"latencies_ns": list(range(2_000_000, 4_500_000))})
    """)
    value = run_job(WORK, {}, command=command)
    assert value["latencies_ns"] == list(range(2_000_000, 4_500_000))


def test_large_request_to_a_worker_that_answers_without_reading_does_not_block(worker):
    command = worker('say(ok={"read": 0})')
    assert run_job(WORK, {"values": "x" * 5_000_000}, command=command) == {"read": 0}


def test_large_request_arrives_whole(worker):
    command = worker("""
        payload = json.loads(sys.stdin.readline())["with"]
        say(ok={"length": len(payload["values"])})
    """)
    assert run_job(WORK, {"values": "x" * 5_000_000}, command=command) == {"length": 5_000_000}


def test_worker_that_will_not_leave_after_its_answer_is_ended(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(job_worker, "EXIT_GRACE_S", 0.3)
    command = worker(f"""
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        say(ok={{"ok": 1}})
        time.sleep(600)
    """)
    assert run_job(WORK, {}, command=command) == {"ok": 1}
    wait_until_gone(pid_from(tmp_path))


def test_crash_after_the_answer_does_not_take_the_answer_back(worker):
    command = worker("""
        say(ok={"ok": 1})
        os.kill(os.getpid(), signal.SIGSEGV)
    """)
    assert run_job(WORK, {}, command=command) == {"ok": 1}


def test_child_that_keeps_the_pipes_open_does_not_hide_a_crash(worker, tmp_path):
    command = worker(f"""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(tmp_path / "pid")!r}, "w").write(str(child.pid))
        os.kill(os.getpid(), signal.SIGSEGV)
    """)
    with pytest.raises(WorkerError, match="SIGSEGV"):
        run_job(WORK, {}, command=command, timeout_s=120)
    wait_until_gone(pid_from(tmp_path))


def test_failing_progress_callback_leaves_no_process(worker, tmp_path):
    command = worker(f"""
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        say(live={{"stage": "runs", "done": 1, "total": 9, "text": ""}})
        time.sleep(600)
    """)

    def broken(_: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_job(WORK, {}, command=command, on_progress=broken)
    wait_until_gone(pid_from(tmp_path))


def test_no_file_descriptor_and_no_zombie_is_left(worker):
    command = worker("say(ok={})")
    run_job(WORK, {}, command=command)
    process = psutil.Process()
    before, children = process.num_fds(), len(process.children())
    for _ in range(5):
        run_job(WORK, {}, command=command)
    assert process.num_fds() == before
    assert len(process.children()) == children


def test_real_worker_refuses_a_job_that_it_does_not_know():
    with pytest.raises(WorkerError, match="request"):
        run_job(wire.Request("dance", dict), {})


def test_files_in_the_users_folder_do_not_replace_modules(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise SystemExit('hijacked')")
    code = (
        "from core import wire\nfrom core.process.job_worker import run_job\n"
        "from core.wire.errors import ModelError\n"
        "try:\n    run_job(wire.INSPECT, {'path': 'missing.onnx'})\nexcept ModelError:\n    print('fine')\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


def test_killed_parent_takes_its_worker_along(tmp_path):
    """The worker's stdin ends with the parent: nothing keeps the machine busy for nobody."""
    script = tmp_path / "parent.py"
    script.write_text(
        "import json, subprocess, sys, threading, time, psutil\n"
        "from core import wire\nfrom core.process import job_worker\n"
        "plan = json.loads(sys.argv[1])\n"
        "threading.Thread(target=job_worker.run_job, args=(wire.EXPORT, plan), daemon=True).start()\n"
        "while not psutil.Process().children():\n    time.sleep(0.01)\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    plan = export_plan(tmp_path / "out.onnx", name="vit_b_16")
    parent = subprocess.Popen(
        [sys.executable, str(script), json.dumps(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
    wait_until_gone(pid)


@pytest.mark.parametrize("ends", ["cancelled", "answered", "crashed"])
def test_what_a_worker_leaves_among_temporary_files_goes_with_it(worker, tmp_path, monkeypatch, ends):
    """One that is killed cannot tidy up, and neither can the libraries that it uses."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    last = {
        "cancelled": "while True: time.sleep(1)",
        "answered": "say(ok={})",
        "crashed": "os.kill(os.getpid(), signal.SIGKILL)",
    }[ends]
    command = worker(f"""
        import tempfile
        open(os.path.join(tempfile.mkdtemp(prefix="left-"), "large"), "wb").write(bytes(10000))
        open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
        {last}
    """)
    cancel = threading.Event()
    thread = threading.Thread(target=lambda: (pid_from(tmp_path), cancel.set()))
    if ends == "cancelled":
        thread.start()
    with contextlib.suppress(Cancelled, WorkerError):
        run_job(WORK, {}, command=command, cancel=cancel)
    assert pid_from(tmp_path)
    assert list((tmp_path / "tmp").rglob("*")) == []


def test_a_worker_runs_where_it_can_have_no_folder_of_its_own(worker, tmp_path, monkeypatch):
    monkeypatch.setattr("core.process.scratch.folder", no_folder)
    command = worker('say(ok={"ok": 1})')
    assert run_job(WORK, {}, command=command) == {"ok": 1}


@contextlib.contextmanager
def no_folder():
    raise OSError(28, "No space left on device")
    yield
