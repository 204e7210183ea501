"""The sandbox of workers: what the kernel refuses inside it, and which rules each job gets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process import worker_output, worker_watch
from core.process.confinement import PLANS, confined, confined_load, fork_server_rules
from core.process.contestant_workers import Workers
from core.process.job_worker import external_locations, run_job
from core.process.model_files import external_files
from core.run.fleet import on_host
from core.wire import limits
from core.wire import sandbox as rules_of
from core.wire.errors import ModelError, SpecError, TunerError, WorkerError
from core.wire.files import home
from core.worker import sandbox
from core.worker.__main__ import JOBS
from core.worker.make.installation import program_environment
from docs.generator import tree
from tests import tiny_models
from tests.command_line import CommandLine
from tests.integration.test_streams import contestant_plan, two_cpus
from tests.waiting import WAIT_S

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    sandbox.offer()["landlock"] < 6 or not sandbox.offer()["seccomp"],
    reason="this kernel has no Landlock of version 6, or no seccomp",
)

SYSTEM_V = ("semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl", "shmget")
# Each attempt is an expression; the reply holds "done", or the name of the error.
TRY = """
import ctypes, json, os, resource, shutil, signal, socket, subprocess, sys, tempfile, threading
from pathlib import Path
from core.worker import sandbox
from core.worker.__main__ import JOBS
asked = json.loads(sys.argv[1])
sandbox.enter(asked["rules"])
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
def thread():
    one = threading.Thread(target=lambda: None)
    one.start()
    one.join()
found = {}
for attempt in asked["attempts"]:
    try:
        exec(attempt)
        found[attempt] = "done"
    except BaseException as error:
        found[attempt] = type(error).__name__
print(json.dumps(found))
"""


def attempts(of: Mapping[str, Any], *lines: str, code: str = TRY) -> dict[str, str]:
    """What becomes of each line in a process in the sandbox."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, json.dumps({"rules": of, "attempts": lines})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """A folder that the rules name, and one that they do not name, with a file each."""
    found = {name: tmp_path / name for name in ("own", "read", "other")}
    for one in found.values():
        one.mkdir()
        (one / "file").write_text("content")
    return found


def confined_to(places: Mapping[str, Path], **changed: Any) -> rules_of.Rules:
    return rules_of.rules(read=[str(places["read"])], scratch=str(places["own"]), **changed)


# --- what the kernel refuses --------------------------------------------------------------------------------


def test_only_named_files_are_read_and_only_own_ones_written(places: Mapping[str, Path]) -> None:
    own, read, other = (str(places[one]) for one in ("own", "read", "other"))
    allowed = [
        f"assert Path('{own}/file').read_text() == 'content'",
        f"Path('{own}/new').write_text('x')",
        f"Path('{own}/new').rename('{own}/moved')",
        f"Path('{own}/moved').unlink()",
        f"Path('{own}/folder').mkdir()",
        f"assert Path('{read}/file').read_text() == 'content'",
        f"assert tempfile.gettempdir() == '{own}'",
        "tempfile.TemporaryFile().close()",
        "assert Path('/proc/cpuinfo').read_text()",
        "assert Path('/proc/self/status').read_text()",
        "import sqlite3",
    ]
    refused = [
        f"Path('{other}/file').read_text()",
        f"os.listdir('{other}')",
        f"Path('{other}/new').write_text('x')",
        f"Path('{other}/file').unlink()",
        f"Path('{read}/file').write_text('x')",
        f"Path('{read}/new').write_text('x')",
        f"os.truncate('{other}/file', 0)",
        f"os.rename('{own}/file', '{other}/moved')",
        f"Path('/proc/self/root{other}/file').read_text()",
        f"os.chmod('{other}/file', 0o666)",
        f"os.utime('{other}/file')",
        f"os.chown('{other}/file', 0, 0)",
        f"os.setxattr('{other}/file', 'user.x', b'x')",
        f"os.symlink('{other}/file', '{own}/link')",
        f"os.mkfifo('{own}/pipe')",
        "Path('/etc/shadow').read_text()",
        "os.listdir(Path.home())",
        f"os.listdir('{ROOT}')",
    ]
    found = attempts(confined_to(places), *allowed, *refused)
    assert {line: found[line] for line in allowed} == dict.fromkeys(allowed, "done")
    assert {line: found[line] for line in refused} == dict.fromkeys(refused, "PermissionError")
    linked = f"os.link('{other}/file', '{own}/linked')"
    assert attempts(confined_to(places), linked) == {linked: "OSError"}
    assert (places["other"] / "file").read_text() == "content"
    assert {one.name for one in places["other"].iterdir()} == {"file"}


def test_no_network_and_no_signal_reaches_the_outside(places: Mapping[str, Path]) -> None:
    machine = sandbox._MACHINES[os.uname().machine][1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused = [
            f"socket.create_connection(('127.0.0.1', {port}), 1)",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
            "socket.socket(socket.AF_INET6)",
            "socket.socket(socket.AF_UNIX)",
            "os.kill(os.getppid(), 0)",
            "os.kill(os.getppid(), signal.SIGKILL)",
            f"resource.prlimit({os.getpid()}, resource.RLIMIT_CPU, (1, 1))",
            f"os.setpriority(os.PRIO_PROCESS, {os.getpid()}, 5)",
            f"os.sched_setscheduler({os.getpid()}, os.SCHED_IDLE, os.sched_param(0))",
            f"Path('/proc/{os.getpid()}/environ').read_text()",
            f"Path('/proc/{os.getpid()}/maps').read_text()",
            f"os.readlink('/proc/{os.getpid()}/fd/0')",
            f"Path('/proc/{os.getpid()}/oom_score_adj').write_text('1000')",
            f"call({sandbox._FORBIDDEN['ptrace'][machine]}, 16, os.getppid(), 0, 0)",
            *(f"call({sandbox._FORBIDDEN[name][machine]}, 0, 0, 0, 0, 0)" for name in SYSTEM_V),
            f"call({sandbox._PRCTL[machine]}, 4, 0, 0, 0, 0)",  # PR_SET_DUMPABLE
        ]
        allowed = [
            "socket.socketpair()",
            "os.kill(os.getpid(), 0)",
            "resource.getrlimit(resource.RLIMIT_CPU)",
        ]
        found = attempts(confined_to(places), *allowed, *refused)
    assert {line: found[line] for line in allowed} == dict.fromkeys(allowed, "done")
    assert {line: found[line] for line in refused} == dict.fromkeys(refused, "PermissionError")


def test_no_process_is_started_and_none_leaves_its_group(places: Mapping[str, Path]) -> None:
    refused = ["os.fork()", "subprocess.run(['/bin/true'])", "os.execv('/bin/true', ['true'])"]
    refused += (
        ["os.setsid()", "os.setpgid(0, 0)", "os.unshare(os.CLONE_NEWUSER)"]
        if sys.version_info
        >= (
            3,
            12,
        )
        else ["os.setsid()", "os.setpgid(0, 0)"]
    )
    found = attempts(confined_to(places), *refused, "thread()")
    assert found == {**dict.fromkeys(refused, "PermissionError"), "thread()": "done"}
    found = attempts(
        confined_to(places, processes=True), "subprocess.run(['/bin/true'], check=True)", "os.setsid()"
    )
    assert list(found.values()) == ["done", "PermissionError"]


@pytest.mark.parametrize("name", sorted(sandbox._FORBIDDEN))
def test_each_forbidden_call_has_the_number_of_this_machine(name: str) -> None:
    """The numbers stand in the kernel's headers, where they are installed."""
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.is_file():
        pytest.skip("the kernel's headers are not installed")
    known = dict(
        line.split()[1:3] for line in header.read_text().splitlines() if line.startswith("#define __NR_")
    )
    if f"__NR_{name}" in known:
        assert sandbox._FORBIDDEN[name][0] == int(known[f"__NR_{name}"])


def test_limits_cannot_be_raised(places: Mapping[str, Path]) -> None:
    lines = [
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)",
        "assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == 1 << 20",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))",
        f"open('{places['own']}/large', 'wb').write(bytes(2 << 20))",
        "files = [open('/dev/null') for _ in range(5000)]",
    ]
    found = attempts(confined_to(places, file_bytes=1 << 20), *lines)
    assert list(found.values()) == ["done", "done", "ValueError", "OSError", "OSError"]
    assert (places["own"] / "large").stat().st_size <= 1 << 20


def test_it_cannot_be_entered_beside_another_thread(places: Mapping[str, Path]) -> None:
    """Landlock holds for the thread that enters it, so another one would stay free."""
    code = (
        "import json, sys, threading; from core.worker import sandbox\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "sandbox.enter(json.loads(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, json.dumps(confined_to(places))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a thread runs already" in done.stderr


@pytest.mark.parametrize("named", ["PYTHONPATH", "LD_LIBRARY_PATH"])
def test_a_folder_of_libraries_never_opens_the_home(
    places: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """A search path may name a folder that holds the home folder or ORTune's own."""
    parent = places["other"]
    for name in ("user/.ssh", "user/ortune", "libraries", "one-1.0.dist-info"):
        (parent / name).mkdir(parents=True)
        (parent / name / "file").write_text("content")
    monkeypatch.setenv("HOME", str(parent / "user"))
    monkeypatch.setenv("ORTUNE_HOME", str(parent / "user" / "ortune"))
    monkeypatch.setenv(named, str(parent), prepend=os.pathsep)
    lines = [f"Path('{parent}/{one}/file').read_text()" for one in ("user/.ssh", "user/ortune", "libraries")]
    found = attempts(confined_to(places), *lines)
    assert list(found.values()) == ["PermissionError", "PermissionError", "done"]


@pytest.mark.parametrize("version", range(8))
def test_an_older_kernel_confines_what_it_can(places: Mapping[str, Path], version: int) -> None:
    """The kernel that runs the test knows all versions; 0 stands for one without Landlock."""
    offered = f"sandbox.offer = lambda: {{'landlock': {version}, 'seccomp': True, 'lacks': []}}"
    own, other = places["own"], places["other"]
    lines = [
        f"Path('{own}/new').write_text('x')",
        f"Path('{own}/new').rename('{own}/moved')",
        f"Path('{other}/file').read_text()",
        f"Path('{other}/new').write_text('x')",
        "os.fork()",
        "socket.socket()",
    ]
    found = attempts(confined_to(places), *lines, code=TRY.replace("asked =", f"{offered}\nasked ="))
    outside = "PermissionError" if version else "done"
    assert list(found.values()) == ["done", "done", outside, outside, "PermissionError", "PermissionError"]


@pytest.mark.parametrize("version", range(8))
def test_what_an_older_kernel_lacks_is_said(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    class Kernel:
        def syscall(self, *arguments: Any) -> int:
            return version or -1

    monkeypatch.setattr(sandbox, "_LIBC", Kernel())
    lacks = sandbox.offer()["lacks"]
    assert ("truncation of files" in lacks) == (0 < version < 3)
    assert ("TCP in Landlock" in lacks) == (version < 4)
    assert ("signals and abstract sockets" in lacks) == (version < 6)
    assert any(one.startswith("files") for one in lacks) == (version < 1)


def test_a_system_without_any_means_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_LIBC", None)
    assert sandbox.offer()["landlock"] == 0
    assert not sandbox.offer()["seccomp"]
    sandbox.enter(rules_of.rules())  # does nothing


def test_a_limit_that_was_lower_stays(places: Mapping[str, Path]) -> None:
    code = TRY.replace(
        "sandbox.enter(", "resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, -1))\nsandbox.enter("
    )
    line = "assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 1 << 30"
    assert attempts(confined_to(places), line, code=code) == {line: "done"}


# --- workers ------------------------------------------------------------------------------------------------


def test_a_worker_without_rules_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_of, "is_off", lambda: True)  # the parent sends none; its workers are not told
    with pytest.raises(WorkerError, match="no rules of its sandbox"):
        run_job(wire.INSPECT, {"path": str(tiny_models.mul(tmp_path / "m.onnx"))})
    with Workers(threading.Event()) as workers, pytest.raises(WorkerError, match="no rules of its sandbox"):
        workers.start("one")


@pytest.mark.parametrize("job", sorted(JOBS))
def test_no_job_is_done_without_rules(job: str) -> None:
    """Whatever job is added: it enters the sandbox before it does anything."""
    request = json.dumps({"id": 1, "do": job, "with": {}}) + "\n"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "core.worker"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=request,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert "no rules of its sandbox" in json.loads(done.stdout)["error"]["message"]


def test_every_job_of_the_table_is_sent_rules() -> None:
    """Rules come from one place, which asks no job whether it wants them."""
    for job in (one for one in JOBS if one not in PLANS and one not in (wire.FORKSERVER, wire.CONTESTANT)):
        with confined(job, {}, "", no_files) as asked:
            assert set(asked.payload[rules_of.KEY]) == set(rules_of.Rules.__annotations__)


def test_without_a_sandbox_only_where_the_operator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_SANDBOX", "off")
    assert run_job(wire.INSPECT, {"path": str(tiny_models.mul(tmp_path / "m.onnx"))})["nodes"] == 1
    with Workers(threading.Event()) as workers:
        worker = workers.start("one")
        plan = contestant_plan(tiny_models.mlp(tmp_path / "n.onnx"))
        loaded = worker.ask(wire.LOAD, plan, timeout_s=WAIT_S)
    assert rules_of.NOTE in loaded["notes"]


def test_no_result_is_marked_where_the_sandbox_is_on(tmp_path: Path) -> None:
    with Workers(threading.Event()) as workers:
        plan = contestant_plan(tiny_models.mlp(tmp_path / "n.onnx"))
        assert rules_of.NOTE not in workers.start("one").ask(wire.LOAD, plan, timeout_s=WAIT_S)["notes"]


def test_each_form_of_a_result_is_marked_where_the_sandbox_is_off(cli: CommandLine, mlp: str) -> None:
    """What measures and what reads only: in the text, in the document, beside a table for machines."""
    quick = ("--runs", "20", "--warmup-runs", "1")
    tune, inspect = ["tune", mlp, *quick], ["inspect", mlp]
    variant = ["transform", mlp, "--simplify", "--name", "smaller"]
    for command in [tune, inspect, ["graph", mlp, "--optimized"], ["profile", mlp, "--runs", "1"], variant]:
        shown = cli.run(*command, rules_of.FLAG)
        assert "without a sandbox" in " ".join(shown.out.split()), command
        assert "without a sandbox" in shown.err, command
    for command in [tune, inspect]:
        assert cli.run(*command, "--json", rules_of.FLAG).document["no_sandbox"] is True, command
    assert "no_sandbox" not in cli.run(*inspect, "--json").document
    table = cli.run("sweep", mlp, *quick, "--batch-size", "1", "--format", "csv", "--quiet", rules_of.FLAG)
    assert "without a sandbox" in table.err
    assert "sandbox" not in table.out


def test_a_question_to_a_host_does_not_turn_off_its_sandbox() -> None:
    asked: Any = {
        "key": "0" * 16,
        "arguments": ["tune", "m.onnx", "--no-sandbox"],
        "parcels": {},
        "texts": {},
    }
    with pytest.raises(SpecError, match="an option of the host"):
        on_host._start(asked)


WITH_WORKERS = {
    *("tune", "compare", "search", "profile", "sweep", "load", "explain", "upgrade", "graph", "accuracy"),
    *("scorecard", "transform", "node-errors", "inspect", "convert", "export", "verify", "report", "machine"),
    *("runtimes add", "runtimes check", "fleet host", "fleet run", "fleet resume"),
}


@pytest.mark.parametrize("node", tree.nodes(), ids=lambda node: node.name)
def test_the_commands_that_start_workers_take_the_option(node: tree.Node) -> None:
    expected = node.name in WITH_WORKERS
    assert any(rules_of.FLAG in one.opts for one in node.parameters) == expected


def test_a_worker_that_fills_the_disk_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_watch, "RESERVE_BYTES", 1 << 60)  # no disk has as much
    monkeypatch.setattr(worker_watch, "FILLING_BYTES", 1 << 16)
    code = (
        "import os, time; open(os.environ['TMPDIR'] + '/large', 'wb').write(bytes(1 << 20)); time.sleep(600)"
    )
    with pytest.raises(WorkerError, match="fills the disk") as caught:
        run_job(wire.PEAKS, {"threads": [1]}, command=[sys.executable, "-c", code])
    assert caught.value.hint
    with Workers(threading.Event()) as workers:
        worker = workers.start("one")
        assert worker.folder is not None
        (worker.folder / "large").write_bytes(bytes(1 << 20))
        with pytest.raises(WorkerError, match="fills the disk"):
            worker.ask(wire.WARM, {}, timeout_s=WAIT_S)
        assert not worker.alive


CRASHING = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a worker enters its sandbox with a single thread
from core.worker import __main__ as worker
from core.worker.models import checking
checking.load_by_default = lambda *paths: ...
worker.main()
"""


@pytest.mark.parametrize("crashes", [True, False])
def test_a_model_that_crashes_by_default_is_found_in_the_sandbox(tmp_path: Path, crashes: bool) -> None:
    """The worker can start no process; one that it forked before tries the model."""
    model = str(tiny_models.mlp(tmp_path / "m.onnx"))
    feeds = contestant_plan(Path(model))["feeds"]
    plan: wire.TransformPlan = {
        **{"path": model, "output": str(tmp_path / "n.onnx"), "step": "simplify", "options": {}},
        **{"reference": model, "feeds": [feeds], "calibration": None},
    }  # type: ignore[typeddict-item]
    code = CRASHING.replace("...", "os.abort()" if crashes else "open(os.devnull)")
    reply = run_job(wire.TRANSFORM, plan, command=[sys.executable, "-P", "-c", code])
    assert any("crash" in one for one in reply["notes"]) is crashes
    assert reply["path"] == str(tmp_path / "n.onnx")
    assert Path(reply["path"]).is_file()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}


@two_cpus
@pytest.mark.parametrize("how", ["forked", "fresh", "processes"])
def test_every_contestant_is_confined(tmp_path: Path, how: str) -> None:
    plan = contestant_plan(tiny_models.mlp(tmp_path / "m.onnx"))
    if how == "processes":
        plan |= {"streams": 2, "stream_type": "processes"}
    with Workers(threading.Event()) as workers:
        worker = workers.start("one", fresh_process=how == "fresh")
        worker.ask(wire.LOAD, plan, timeout_s=WAIT_S)
        group = [
            int(one.name)
            for one in Path("/proc").iterdir()
            if one.name.isdigit() and _group_of(int(one.name)) == worker.pid
        ]
        assert len(group) == (2 if how == "processes" else 1)
        for pid in group:
            found = status_of(pid)
            assert found["NoNewPrivs"] == "1"
            assert found["Seccomp_filters"] == "2"
            for name in ("CapEff", "CapPrm", "CapBnd"):
                assert int(found[name], 16) & ~0b100 == 0 or os.geteuid() != 0
            _, soft, hard, *_ = next(
                line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "Max data" in line
            ).rsplit(maxsplit=3)
            assert soft == hard != "unlimited"
            if how == "processes":
                assert int(hard) == limits.memory_limit() // 2


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def test_the_files_of_a_contestant_are_gone_with_it(tmp_path: Path) -> None:
    with Workers(threading.Event()) as workers:
        worker = workers.start("one")
        worker.ask(wire.LOAD, contestant_plan(tiny_models.mlp(tmp_path / "m.onnx")), timeout_s=WAIT_S)
        folder = worker.folder
        assert folder is not None
        worker.ask(wire.SAVE_OUTPUTS, {"path": str(tmp_path / "outputs.npz")}, timeout_s=WAIT_S)
        assert (tmp_path / "outputs.npz").stat().st_size > 0
        worker.kill()
        assert not folder.exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "folder", "gone", "a\0b", "x" * 5000])
def test_external_data_elsewhere_is_not_readable(tmp_path: Path, name: str) -> None:
    """The names come from the model, so they are untrusted."""
    (tmp_path / "secret").write_text("secret")
    (folder := tmp_path / "model").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "folder").mkdir()
    (folder / "weights").write_text("weights")
    (model := folder / "m.onnx").write_bytes(b"location")
    assert external_files(model, lambda _: ["weights", name]) == [str(folder / "weights")]


def test_a_model_reads_its_external_data_and_nothing_else_of_its_folder(tmp_path: Path) -> None:
    model = tiny_models.external_data(tmp_path / "m.onnx")
    (tmp_path / "other").write_text("private")
    info = run_job(wire.INSPECT, {"path": str(model)})
    with confined(wire.INSPECT, {"path": str(model)}, "", external_locations) as asked:
        named = [one["location"] for one in info["external_data"]]
        assert named
        assert asked.payload["sandbox"]["read"] == [str(model), *(str(tmp_path / one) for one in named)]


def test_a_model_without_external_data_costs_no_further_worker(tmp_path: Path) -> None:
    def refuse(model: Path) -> list[str]:
        raise AssertionError

    model = tiny_models.mul(tmp_path / "m.onnx")
    assert external_files(model, refuse) == []


def no_files(model: Path) -> list[str]:
    return []


# --- the rules of jobs --------------------------------------------------------------------------------------


def test_only_jobs_that_need_them_get_network_and_processes() -> None:
    export = {"source": "torchvision", "pretrained": True, "path": "", "output": ""}
    for job, plan, network, processes in (
        (wire.INSPECT, {"path": "m.onnx"}, False, False),
        (wire.PEAKS, {"threads": [1]}, False, False),
        (wire.ENVIRONMENT, {}, False, True),
        (wire.EXPORT, export, True, False),
        (wire.EXPORT, {**export, "pretrained": False}, False, False),
        (wire.EXPORT, {**export, "source": "pt2"}, False, False),
        (wire.INSTALL, {"folder": "x/y", "python": "", "packages": [], "lock": ""}, True, True),
    ):
        with confined(job, plan, "", no_files) as asked:
            found = asked.payload["sandbox"]
        assert (job, found["network"], found["processes"]) == (job, network, processes)
    server = fork_server_rules()
    assert (server["network"], server["restricts_files"]) == (False, False)


def test_downloads_write_no_cache_that_runs_code_of_other_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", "/shared/uv")
    monkeypatch.setenv("TORCH_HOME", str(home() / "torch"))
    caches = {one: str(home() / "cache" / one) for one in ("pip", "uv")}
    plan: dict[str, Any] = {"folder": "/x/y", "python": "", "packages": [], "lock": ""}
    with confined(wire.INSTALL, plan, "", no_files) as asked:
        assert asked.payload["sandbox"]["write"] == ["/x", *caches.values()]
    variables = program_environment()
    assert {one: variables[f"{one.upper()}_CACHE_DIR"] for one in caches} == caches
    plan = {"source": "torchvision", "pretrained": True, "path": "", "output": ""}
    with confined(wire.EXPORT, plan, "", no_files) as asked:
        assert asked.payload["sandbox"]["write"] == [str(home() / "torch" / "hub" / "checkpoints")]


def test_an_output_is_moved_from_a_folder_of_its_own(tmp_path: Path) -> None:
    plan = {
        "trace_path": "",
        "graph_path": str(tmp_path / "graph.onnx"),
        "model_path": "m.onnx",
        "session": {"providers": [], "config_entries": {}, "run_config_entries": {}},
    }
    with confined(wire.SAVE_GRAPH, plan, "", no_files) as asked:
        draft = Path(asked.payload["graph_path"])
        assert draft.parent.parent == tmp_path
        assert str(tmp_path) not in asked.payload["sandbox"]["write"]
        draft.write_text("graph")
        draft.with_name("graph.onnx.data").write_text("weights")
        assert asked.publish({"path": str(draft)}) == {"path": str(tmp_path / "graph.onnx")}
    assert {one.name for one in tmp_path.iterdir()} == {"graph.onnx", "graph.onnx.data"}


@pytest.mark.parametrize("left", ["other.onnx", "graph.onnx"])
def test_a_foreign_output_is_refused(tmp_path: Path, left: str) -> None:
    plan = {
        "graph_path": str(tmp_path / "graph.onnx"),
        "model_path": "m.onnx",
        "session": {"providers": [], "config_entries": {}, "run_config_entries": {}},
    }
    with confined(wire.SAVE_GRAPH, plan, "", no_files) as asked:
        Path(asked.payload["graph_path"]).with_name(left).symlink_to("/etc/passwd")
        with pytest.raises(WorkerError, match=r"no output of its job"):
            asked.publish({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["graph.py", "graph", "store.db", "graphs.onnx"])
def test_a_file_with_a_name_that_no_output_has_is_refused(tmp_path: Path, name: str) -> None:
    """A worker must not replace other files of the target's folder."""
    (draft := tmp_path / "draft").mkdir()
    (draft / name).write_text("x")
    (tmp_path / name).write_text("precious")
    with pytest.raises(WorkerError, match="no output of its job"):
        worker_output.publish(*os.scandir(draft), tmp_path / "graph.onnx")
    assert (tmp_path / name).read_text() == "precious"


def test_a_refused_file_is_told_in_words(tmp_path: Path) -> None:
    """A link in the data leads to a file that no rule names."""
    (folder := tmp_path / "data").mkdir()
    (tmp_path / "secret.npz").write_bytes(b"secret")
    (folder / "rows.npz").symlink_to(tmp_path / "secret.npz")
    model = contestant_plan(tiny_models.mlp(tmp_path / "m.onnx"))
    plan = {**model, "feeds": {**model["feeds"], "source": "images", "path": str(folder)}}
    with Workers(threading.Event()) as workers, pytest.raises(TunerError):
        workers.start("one").ask(wire.LOAD, plan, timeout_s=WAIT_S)
    assert confined_load(plan, "", no_files)["sandbox"]["read"][-1] == str(folder)
    with pytest.raises(TunerError) as caught, sandbox.refusals(rules_of.rules()):
        raise ModelError("`x` cannot be read: Permission denied.", hint="Check it.")
    assert "--no-sandbox" in caught.value.hint
    with pytest.raises(WorkerError, match=r"refused to open `/x`"), sandbox.refusals(rules_of.rules()):
        raise PermissionError(13, "Permission denied", "/x")
