"""Processes of configurations, forked and fresh: how they start, what they inherit, how they end."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from core.process.contestant_workers import SharedForkServer, Workers
from core.wire.errors import Cancelled
from tests import tiny_models
from tests.integration.test_benchmark import session_plan
from tests.integration.test_contestant import contestant_plan
from tests.integration.test_worker import ROOT
from tests.waiting import WAIT_S, is_alive, wait_until_gone

ALLOWED_PACKAGES = {"core", "numpy", "onnxruntime", "cython_runtime"}  # the last is numpy.random's
NOT_IN_A_MEASUREMENT = {
    "onnx", "torch", "pydantic", "msgspec", "psutil", "pandas", "streamlit", "PIL", "yaml", "pynvml",
}  # fmt: skip

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="contestants are forked on Linux")

# One more command, `probe`, reads the state of a process; `crash` ends it as native code would.
WITH_PROBE = """
import ctypes, os, signal, sys
import core.worker.__main__ as worker
import core.worker.measure.contestant as contestant

def probe(self, arguments):
    import random
    import numpy as np
    return {
        "modules": sorted(sys.modules),
        "threads": len(os.listdir("/proc/self/task")),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "oom": int(open("/proc/self/oom_score_adj").read()),
        "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "random": [random.random(), float(np.random.rand())],
        "telemetry": os.environ["ORT_DISABLE_TELEMETRY"],
    }

def crash(self, arguments):
    print("about to crash", file=sys.stderr, flush=True)
    os.abort() if arguments["how"] == "abort" else ctypes.string_at(0)

contestant._COMMANDS.update(probe=probe, crash=crash)
worker.main()
"""
WITH_A_GIBIBYTE = """
import core.worker.__main__ as worker
from core.wire import limits
limits.memory_limit = lambda: 1 << 30
worker.main()
"""


class Line:
    """JSON lines over a socket."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.replies = end.makefile("rb")

    def ask(self, command: str, arguments: Any = None, descriptors: tuple[int, ...] = ()) -> dict[str, Any]:
        message = json.dumps({"do": command, "with": arguments}).encode() + b"\n"
        if descriptors:
            socket.send_fds(self.socket, [message], list(descriptors))
        else:
            self.socket.sendall(message)
        return json.loads(self.replies.readline() or b'{"gone": true}')

    def close(self) -> None:
        self.replies.close()
        self.socket.close()


class Contestant(Line):
    """The parent's end of the connection to a process."""

    def __init__(self, end: socket.socket, pid: int) -> None:
        super().__init__(end)
        self.pid = pid

    def ok(self, command: str, arguments: Any = None) -> dict[str, Any]:
        reply = self.ask(command, arguments)
        assert "ok" in reply, reply
        return reply["ok"]


class Server(Line):
    """A fork server, or with `job` another worker that talks over a socket."""

    def __init__(self, folder: Path, *command: str, job: str = "forkserver") -> None:
        ours, theirs = socket.socketpair()
        self.log: IO[bytes] = (folder / f"{job}.log").open("ab")
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *(command or ("-c", WITH_PROBE))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self.log,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": str(ROOT), "ORTUNE_SANDBOX": "off"},
                start_new_session=True,
            )
            assert self.process.stdin is not None
            request = {"do": job, "with": {"fd": theirs.fileno()}}
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        super().__init__(ours)
        self.contestants: list[Contestant] = []
        if job == "forkserver":
            assert json.loads(self.replies.readline()) == {"ok": {}}
        self.folder = folder

    def fork(self) -> Contestant:
        ours, theirs = socket.socketpair()
        with theirs, (self.folder / "contestant.log").open("ab") as log:
            reply = self.ask("fork", descriptors=(theirs.fileno(), log.fileno()))
        contestant = Contestant(ours, reply["ok"]["pid"])
        self.contestants.append(contestant)
        return contestant

    def reap(self, pid: int) -> int:
        """The wait status of a process that is about to end."""
        deadline = time.monotonic() + WAIT_S
        while (status := self.ask("reap", {"pid": pid})["ok"]["status"]) is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return int(status)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.log.close()
        for contestant in self.contestants:
            contestant.close()
        self.close()


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Server]:
    """A fork server that a test may end."""
    server = Server(tmp_path)
    yield server
    server.end()
    for contestant in server.contestants:
        wait_until_gone(contestant.pid)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.end()


@pytest.fixture
def server(running: Server, tmp_path: Path) -> Iterator[Server]:
    """The fork server that tests share, with the processes and the log of this one."""
    running.folder = tmp_path
    yield running
    for contestant in running.contestants:
        contestant.close()
        wait_until_gone(contestant.pid)
    running.contestants.clear()


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    return contestant_plan(tiny_models.mlp(tmp_path / "m.onnx"), batch=3)


def log_of(server: Server) -> str:
    return (server.folder / "contestant.log").read_text(encoding="utf-8")


# -- state of a process ------------------------------------------------------------------------------------


def test_a_forked_contestant_loads_and_measures(server: Server, plan: Any) -> None:
    contestant = server.fork()
    assert contestant.ok("load", plan)["batch_size"] == 3
    assert len(contestant.ok("warm")["latencies_ns"]) == 2
    block = contestant.ok("block", {"block_ns": 1_000_000, "min_runs": 10, "max_runs": 10_000})
    assert len(block["latencies_ns"]) >= 10
    assert log_of(server) == ""


def test_a_contestant_begins_alone_with_one_thread_its_channel_and_its_log(server: Server) -> None:
    server.fork()
    contestant = server.fork()
    probe = contestant.ok("probe")
    assert probe["threads"] == 1
    assert probe["parent"] == server.process.pid
    assert probe["group"] == contestant.pid
    assert probe["oom"] == 1000
    assert probe["sigterm"]
    assert probe["telemetry"] == "1"
    log = str(server.folder / "contestant.log")
    descriptors = [str(entry.readlink()) for entry in Path(f"/proc/{contestant.pid}/fd").iterdir()]
    assert sorted(name.split(":")[0] for name in descriptors) == sorted(["/dev/null", log, log, "socket"])


def test_the_server_has_one_thread_and_leaks_no_descriptors(server: Server) -> None:
    tasks, descriptors = (Path(f"/proc/{server.process.pid}/{what}") for what in ("task", "fd"))
    server.fork()
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        server.fork()
    assert len(list(tasks.iterdir())) == 1
    assert len(list(descriptors.iterdir())) == before


def test_aa_controls_do_not_draw_the_same_random_numbers(server: Server) -> None:
    one, other = (server.fork().ok("probe")["random"] for _ in range(2))
    assert one[0] != other[0]
    assert one[1] != other[1]


@pytest.mark.parametrize("bound", [False, True])
def test_a_contestant_holds_numpy_and_onnxruntime_only(
    server: Server, plan: Any, tmp_path: Path, bound: bool
) -> None:
    contestant = server.fork()
    path = str(tmp_path / "o")
    contestant.ok("load", plan | {"use_io_binding": bound})
    contestant.ok("block", {"block_ns": 1, "min_runs": 1, "max_runs": 1})
    contestant.ok("save_outputs", {"path": path})
    contestant.ok("compare_outputs", {"path": path})
    modules = set(contestant.ok("probe")["modules"])
    packages = {name.split(".")[0] for name in modules}
    baseline = subprocess.run(  # a .pth file of the environment may load something into every process
        [sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        check=True,
    )
    packages -= {name.split(".")[0] for name in json.loads(baseline.stdout)}
    third_party = {name for name in packages - set(sys.stdlib_module_names) if not name.startswith("_")}
    assert third_party == ALLOWED_PACKAGES
    assert not packages & NOT_IN_A_MEASUREMENT
    core = {name for name in modules if name.startswith("core.")}
    assert {name.split(".")[1] for name in core} == {"wire", "worker"}
    loaded = {name.split(".")[2] for name in core if name.startswith("core.worker.")}
    assert loaded == {"__main__", "forkserver", "lifeline", "measure", "sandbox", "session"}


def test_a_fresh_process_serves_the_same_commands(tmp_path: Path, plan: Any) -> None:
    fresh = Server(tmp_path, job="contestant")
    try:
        reply = fresh.ask("load", plan)["ok"]
        assert reply["batch_size"] == 3
        assert fresh.ask("block", {"block_ns": 1, "min_runs": 2, "max_runs": 2})["ok"]["latencies_ns"]
        fresh.close()
        assert fresh.process.wait(WAIT_S) == 0
    finally:
        fresh.end()


def test_a_fork_is_loaded_before_a_fresh_process_is(server: Server, plan: Any, tmp_path: Path) -> None:
    def fork_is_first() -> bool:
        began = time.perf_counter()
        server.fork().ok("load", plan)
        forked_s = time.perf_counter() - began
        began = time.perf_counter()
        fresh = Server(tmp_path, job="contestant")
        try:
            assert "ok" in fresh.ask("load", plan)
            return forked_s < time.perf_counter() - began
        finally:
            fresh.end()

    assert any(fork_is_first() for _ in range(5)), "background load may delay one of them, not five"


@pytest.mark.skipif(
    tuple(map(int, platform.release().split("-")[0].split(".")[:2])) < (5, 14),
    reason="older kernels cannot make libraries resident",
)
def test_memory_above_the_baseline_is_the_same_forked_and_fresh(
    server: Server, plan: Any, tmp_path: Path
) -> None:
    contestant = server.fork()
    forked = contestant.ok("load", plan), contestant.ok("footprint", {"runs": 3})
    fresh = Server(tmp_path, job="contestant")
    try:
        other = fresh.ask("load", plan)["ok"], fresh.ask("footprint", {"runs": 3})["ok"]
    finally:
        fresh.end()
    assert forked[0]["exact_memory"]
    assert abs(forked[0]["load_peak_rss_bytes"] - other[0]["load_peak_rss_bytes"]) < 1 << 20
    assert abs(forked[1]["run_peak_rss_bytes"] - other[1]["run_peak_rss_bytes"]) < 1 << 20


def test_contestants_in_threads_of_their_own_compute_the_same(server: Server, tmp_path: Path) -> None:
    """Thread pools are started after the fork; a pool that came over would hang here."""
    plan = contestant_plan(
        tiny_models.conv(tmp_path / "c.onnx", size=64),
        session=session_plan(attributes={"intra_op_num_threads": 3}),
    )
    one, other = server.fork(), server.fork()
    path = str(tmp_path / "o")
    for contestant in (one, other):
        contestant.ok("load", plan)
        assert contestant.ok("probe")["threads"] == 3
    one.ok("save_outputs", {"path": path})
    assert other.ok("compare_outputs", {"path": path})["max_abs"] == 0.0


def test_allocating_more_than_the_container_has_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    server = Server(tmp_path, "-c", WITH_A_GIBIBYTE)
    try:
        contestant = server.fork()
        greedy = contestant_plan(tiny_models.huge_memory(tmp_path / "m.onnx", gibibytes=2))
        error = contestant.ask("load", greedy)["error"]
        assert error["type"] == "WorkerError"
        assert "out of memory" in error["message"]
        contestant.ok("load", contestant_plan(tiny_models.mul(tmp_path / "s.onnx")))
    finally:
        server.end()


# -- how it ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "number"), [("abort", signal.SIGABRT), ("null", signal.SIGSEGV)])
def test_a_crash_is_seen_by_the_end_of_the_channel_and_by_reaping(
    server: Server, how: str, number: int
) -> None:
    crashing, other = server.fork(), server.fork()
    assert crashing.ask("crash", {"how": how}) == {"gone": True}
    assert os.waitstatus_to_exitcode(server.reap(crashing.pid)) == -number
    assert os.waitstatus_to_exitcode(server.reap(crashing.pid)) == -number  # the same at each request
    said = log_of(server)
    assert said.startswith("about to crash")
    assert "in crash" in said  # Python's own report of where
    assert other.ok("probe")["threads"] == 1


def test_the_end_of_its_channel_ends_a_contestant(server: Server, plan: Any) -> None:
    contestant = server.fork()
    contestant.ok("load", plan)
    assert server.ask("reap", {"pid": contestant.pid})["ok"] == {"status": None}
    contestant.close()
    assert server.reap(contestant.pid) == 0


def test_a_killed_contestant_leaves_no_zombie_once_reaped(server: Server) -> None:
    contestant = server.fork()
    os.kill(contestant.pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(server.reap(contestant.pid)) == -signal.SIGKILL
    assert not Path(f"/proc/{contestant.pid}").exists()


def busy_and_stopped(server: Server, tmp_path: Path) -> list[int]:
    """One process in a run that takes minutes, one that is frozen, one that waits."""
    slow = contestant_plan(tiny_models.slow(tmp_path / "slow.onnx"))
    busy, stopped, waiting = server.fork(), server.fork(), server.fork()
    busy.socket.sendall(json.dumps({"do": "load", "with": slow}).encode() + b"\n")
    os.kill(stopped.pid, signal.SIGSTOP)
    return [busy.pid, stopped.pid, waiting.pid]


def close_socket(server: Server) -> None:
    server.close()


def close_stdin(server: Server) -> None:
    assert server.process.stdin is not None
    server.process.stdin.close()


def terminate(server: Server) -> None:
    server.process.terminate()


def kill(server: Server) -> None:
    server.process.kill()


@pytest.mark.parametrize(
    ("leave", "code"),
    [(close_socket, 0), (close_stdin, 0), (terminate, 128 + signal.SIGTERM), (kill, -signal.SIGKILL)],
)
def test_no_contestant_outlives_its_server_busy_or_stopped(
    doomed: Server, tmp_path: Path, leave: Any, code: int
) -> None:
    pids = busy_and_stopped(doomed, tmp_path)
    assert all(map(is_alive, pids))
    leave(doomed)
    assert doomed.process.wait(WAIT_S) == code
    for pid in pids:
        wait_until_gone(pid)


PARENT = """
import json, os, socket, subprocess, sys
ours, theirs = socket.socketpair()
worker = subprocess.Popen(
    [sys.executable, "-m", "core.worker"], stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]
)
worker.stdin.write(json.dumps({"do": "forkserver", "with": {"fd": theirs.fileno()}}).encode() + b"\\n")
worker.stdin.flush()
theirs.close()
replies = ours.makefile("rb")
replies.readline()
channel, far = socket.socketpair()
socket.send_fds(ours, [b'{"do": "fork"}\\n'], [far.fileno(), 2])
pid = json.loads(replies.readline())["ok"]["pid"]
os.kill(pid, 19)
print(worker.pid, pid, flush=True)
sys.stdin.read()
"""


def test_a_killed_parent_leaves_neither_server_nor_frozen_contestant() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ORTUNE_SANDBOX": "off"},
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        parent.kill()
    for pid in pids:
        wait_until_gone(pid)


# A child that takes its time before it requests to die with its parent, as on a busy machine.
WITH_A_SLOW_CHILD = """
import os, time
import core.worker.__main__ as worker
from core.worker import lifeline

tie = lifeline.die_with_parent

def late(parent=None):
    time.sleep(0.3 if parent is not None else 0)
    tie(parent)

lifeline.die_with_parent = late
worker.main()
"""


@pytest.mark.parametrize("leave", [kill, terminate, close_socket, close_stdin])
def test_a_contestant_that_is_frozen_as_soon_as_it_is_known_ends_with_its_server(
    tmp_path: Path, leave: Callable[[Server], None]
) -> None:
    """Frozen before it could request to die with its parent, it would stay for ever."""
    server = Server(tmp_path, "-c", WITH_A_SLOW_CHILD)
    try:
        pids = []
        for _ in range(3):
            contestant = server.fork()
            os.kill(contestant.pid, signal.SIGSTOP)
            pids.append(contestant.pid)
        leave(server)
        server.process.wait(WAIT_S)
        for pid in pids:
            wait_until_gone(pid)
    finally:
        server.end()
        for contestant in server.contestants:  # a failing test leaves no process behind either
            with contextlib.suppress(ProcessLookupError):
                os.kill(contestant.pid, signal.SIGKILL)


def test_a_child_that_dies_before_it_is_tied_is_answered_and_reaped(tmp_path: Path) -> None:
    dies = WITH_A_SLOW_CHILD.replace("tie(parent)", "os._exit(3) if parent is not None else tie()")
    server = Server(tmp_path, "-c", dies)
    try:
        contestant = server.fork()
        assert os.waitstatus_to_exitcode(server.reap(contestant.pid)) == 3
    finally:
        server.end()


# -- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", [b"nonsense", b'{"do": "sing"}', b'{"do": ["fork"]}', b"[]"])
def test_a_request_it_does_not_know_is_refused_and_it_goes_on(server: Server, line: bytes) -> None:
    server.socket.sendall(line + b"\n")
    error = json.loads(server.replies.readline())["error"]
    assert error["type"] == "WorkerError"
    assert server.fork().ok("probe")["threads"] == 1


def test_only_its_own_children_are_reaped(server: Server) -> None:
    error = server.ask("reap", {"pid": 1})["error"]
    assert (error["type"], " 1" in error["message"]) == ("WorkerError", True)
    assert server.fork().ok("probe")["threads"] == 1


def test_a_fork_without_its_descriptors_is_refused(server: Server) -> None:
    assert server.ask("fork")["error"]["type"] == "WorkerError"
    with (server.folder / "one").open("wb") as log:
        assert "got 1" in server.ask("fork", descriptors=(log.fileno(),))["error"]["message"]
    assert server.fork().ok("probe")["threads"] == 1


def test_several_requests_in_one_packet_are_answered_in_order(server: Server) -> None:
    contestant = server.fork()
    for number in (7, 8, 9):
        request = {"id": number, "do": "reap", "with": {"pid": contestant.pid}}
        server.socket.sendall(json.dumps(request).encode() + b"\n")
    answers = [json.loads(server.replies.readline()) for _ in range(3)]
    assert answers == [{"id": number, "ok": {"status": None}} for number in (7, 8, 9)]


def test_a_reply_says_which_request_it_is_for(server: Server, tmp_path: Path) -> None:
    """Errors too; what is no request has none to name."""
    contestant = server.fork()
    for line, number in (
        (b'{"id": 4, "do": "sing"}', 4),
        (b'{"id": 5, "do": "fork"}', 5),  # without its descriptors
        (b'{"do": "sing"}', None),
        (b"nonsense", None),
    ):
        server.socket.sendall(line + b"\n")
        answer = json.loads(server.replies.readline())
        assert (answer["id"], list(answer)) == (number, ["id", "error"])
    contestant.socket.sendall(b'{"id": 11, "do": "block", "with": {"block_ns": 1, "min_runs": 1}}\n')
    answer = json.loads(contestant.replies.readline())
    assert (answer["id"], list(answer)) == (11, ["id", "error"])


class TestPreloaded:
    """One fork server for consecutive comparisons."""

    def test_comparisons_share_it_until_it_fails(self) -> None:
        with SharedForkServer() as fork_server:
            pids = []
            for _ in range(2):
                with Workers(threading.Event(), fork_server) as workers:
                    assert workers.start("one").freeze()
                    pids.append(fork_server.server(workers.cancel).pid)
                    assert pids[-1] in workers.pids  # it does not count as another process
            os.kill(pids[-1], signal.SIGKILL)
            os.waitid(os.P_PID, pids[-1], os.WEXITED | os.WNOWAIT)
            with Workers(threading.Event(), fork_server) as workers:
                workers.start("one")
                pids.append(fork_server.server(workers.cancel).pid)
        assert pids[0] == pids[1] != pids[2]
        assert not psutil.pid_exists(pids[2])

    def test_the_end_of_a_comparison_leaves_no_worker_in_it(self) -> None:
        with SharedForkServer() as fork_server:
            with Workers(threading.Event(), fork_server) as workers:
                pid = workers.start("one").pid
            assert not psutil.pid_exists(pid)
            cancelled = threading.Event()
            cancelled.set()
            with Workers(cancelled, fork_server) as workers, pytest.raises(Cancelled):
                workers.start("two")
            with Workers(threading.Event(), fork_server) as workers:
                assert workers.start("three").alive
