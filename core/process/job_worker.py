"""Run one job in a worker process: start, progress, time limit, cancel, reply.

`contestant_workers` starts the processes that are timed.

`run_job` is the only way ORTune opens a model: in a fresh process group that has ended, with all its
children, when the function returns. Output outside the protocol is never a reply; the end of standard error
is kept for the message of a crash. This module does not depend on what a job does.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from core import wire
from core.process import runtimes, scratch
from core.process.confinement import confined
from core.process.reply_checks import check_times, checked_reply
from core.process.time_limit import TimeLimit
from core.process.worker_watch import Watch
from core.wire import Reply, variables
from core.wire.channel import MAX_LINE_BYTES, BrokenChannel, RequestChannel
from core.wire.errors import Cancelled, TunerError, WorkerError
from core.wire.files import ROOT
from core.wire.runtime import OWN

TICK_S = 0.1  # how late a cancel, a time-out or a dead worker is noticed; ten wake-ups a second cost nothing
TERM_GRACE_S = 1.0  # between SIGTERM and SIGKILL
EXIT_GRACE_S = 3.0  # for a worker to exit by itself after its reply
STDERR_TAIL_BYTES = 4096
CHUNK_BYTES = 1 << 16
MOST_PROGRESS = 200.0  # progress messages of a worker at once, and then per second
PROGRESS_RATE = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a worker: `done` of `total` steps of `stage`; a total of 0 means unknown."""

    stage: str
    done: int
    total: int
    text: str = ""


class Run(Protocol):
    """The signature of `run_job`; the progress callback and the cancel event may be bound already."""

    def __call__(
        self, job: wire.Request[Reply], payload: Mapping[str, Any], /, *args: Any, **options: Any
    ) -> Reply:
        """Run `job`; options are those of `run_job`."""


def refuse_worker(*_: object, **__: object) -> NoReturn:
    """Stand in for `Run` where no worker may start, so that a running measurement is not disturbed.

    Raises:
        WorkerError: always.
    """
    raise WorkerError("No worker may be started now.")


def run_job(
    job: wire.Request[Reply],
    payload: Mapping[str, Any],
    *,
    on_progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    timeout_s: float = 600.0,
    command: Sequence[str] | None = None,
    runtime: str = OWN,
) -> Reply:
    """Run `job` in a worker of its own and return the reply.

    Args:
        job: what to do.
        payload: its plan, plain JSON data.
        on_progress: called in this thread for every step that the worker reports.
        cancel: set it from any thread to stop the worker.
        timeout_s: seconds from the start of the process to its reply.
        command: the worker's command line, for tests; None: `python -m core.worker`.
        runtime: the runtime to run it in, see `runtimes`; another than ORTune's own takes only the jobs of
            `wire.IN_ANY_RUNTIME`.

    Raises:
        SpecError: there is no such runtime.
        Cancelled: `cancel` was set.
        WorkerError: the worker crashed, hung, or sent an invalid reply.
        TunerError: the error that the worker reported.
    """
    assert runtime == OWN or job in wire.IN_ANY_RUNTIME, f"`{job}` needs ORTune's own libraries"
    if cancel is not None and cancel.is_set():
        raise _cancelled(job)
    with contextlib.ExitStack() as ends:
        temporary = _temporary_folder(ends)
        environment = worker_environment(job, runtime=runtime) | temporary
        named = partial(external_locations, cancel=cancel)
        asked = ends.enter_context(confined(job, payload, temporary.get("TMPDIR", ""), named))
        program = list(command) if command is not None else worker_command(runtime)
        process = _start(program, environment, umask=-1 if job == wire.EXPORT else PRIVATE)
        answered, began = False, time.monotonic()
        try:
            with _Conversation(job, asked.payload, process, on_progress) as conversation:
                conversation.on_tick = Watch(process.pid, asked.folders, processes=asked.processes).look
                reply = conversation.answer(cancel, timeout_s)
            answered, waited_s = True, time.monotonic() - began
        finally:
            _end(process, answered=answered)
        checked_reply(reply, job, f"The worker for `{job}`", asked.payload)
        check_times(reply, job, waited_s, f"The worker for `{job}`")
        return cast(Reply, asked.publish(reply))


def external_locations(model: Path, cancel: threading.Event | None = None) -> list[str]:
    """Return the files of external data that a model names, as a worker reads them; they are untrusted.

    Raises:
        TunerError: the model cannot be read.
    """
    plan: wire.ExternalDataPlan = {"path": str(model)}
    return run_job(wire.EXTERNAL_DATA, plan, cancel=cancel)["locations"]


def worker_command(runtime: str = OWN) -> list[str]:
    """The command line of a worker in a runtime; raises like `runtimes.record`."""
    if runtime != OWN:
        return runtimes.command(runtime)
    # -P: a file called queue.py in the user's folder must not replace the standard library's
    return [sys.executable, "-P", "-m", "core.worker"]


PRIVATE = 0o077  # the umask of workers; an export writes where the user says, so it keeps the user's

INHERITED_VARIABLES = (
    # what a program of this user needs; a name that ends in * matches every variable with that prefix
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "LC_*", "TZ", "XDG_*"),
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*"),
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_*", "OPENBLAS_*", "DNNL_*", "ONEDNN_*", "OPENVINO_*"),
    *("CUDA_*", "CUDNN_*", "NVIDIA_*", "TENSORRT_*", "ROCR_*", "HIP_*", "HSA_*", "MIGRAPHX_*"),
    *("ORT_*", "ORTUNE_*", "TORCH*", "PYTORCH_*", "TRITON_*", "TF_*", "CC", "CXX"),
    # Windows starts no Python without these
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"),
    *("USERPROFILE", "NUMBER_OF_PROCESSORS", "PROCESSOR_*"),
)
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
NETWORK_VARIABLES: Mapping[str, Sequence[str]] = {
    # job that downloads -> its network variables; a proxy's address may hold a password
    wire.EXPORT: _NETWORK,
    wire.INSTALL: (*_NETWORK, "PIP_*", "UV_*", "NETRC", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
}
EXTRA_NAMES_VARIABLE = variables.WORKER_ENV  # further names with commas between them
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|_KEY$", re.IGNORECASE)


def is_inherited(name: str, *, also: Collection[str] = ()) -> bool:
    """Whether workers get the environment variable `name`; `also` holds more patterns, in upper case.

    Models and data are untrusted, and so are the libraries that read them: workers get no secrets of the
    server.
    """
    listed = any(fnmatchcase(name.upper(), pattern) for pattern in INHERITED_VARIABLES)
    added = any(fnmatchcase(name.upper(), pattern) for pattern in also)
    return added or (listed and not _SECRET.search(name))


def worker_environment(job: str = "", *, runtime: str = OWN) -> dict[str, str]:
    """The environment variables of a worker: the parent's that it needs, and this package's path."""
    also = {name.strip().upper() for name in os.environ.get(EXTRA_NAMES_VARIABLE, "").split(",")}
    also.update(NETWORK_VARIABLES.get(job, ()))
    environment = {name: text for name, text in os.environ.items() if is_inherited(name, also=also)}
    if runtime != OWN:
        kept = runtimes.without_own_python(list(environment))
        return {name: environment[name] for name in kept} | {
            "PYTHONPATH": runtimes.code_path(),
            "PYTHONNOUSERSITE": "1",
        }
    if ROOT.name not in ("site-packages", "dist-packages"):  # not installed: found by path
        path = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([path] if path else [])])
    return environment


def _temporary_folder(ends: contextlib.ExitStack) -> dict[str, str]:
    """A folder for the worker's temporary files, removed after it ends: a killed worker cannot clean up."""
    try:
        return {"TMPDIR": str(ends.enter_context(scratch.folder()))}
    except OSError:  # a full disk: most jobs need none
        return {}


def _start(command: list[str], environment: Mapping[str, str], *, umask: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
            umask=umask,
            start_new_session=True,  # one process group, so that children of the worker end with it
        )
    except OSError as error:
        raise not_started(error) from error


def not_started(error: OSError) -> WorkerError:
    """Return the error of a worker that the system, which lacks memory or descriptors, did not start."""
    return WorkerError(
        f"The worker process could not be started: {error.strerror or error}.",
        hint="Free memory or processes on this machine, or raise its limits (`ulimit`), and try again.",
    )


def _cancelled(job: str) -> Cancelled:
    return Cancelled(f"The job `{job}` was cancelled.", hint="Start it again when you want its result.")


class _Conversation:
    """The three pipes of one worker, read and written without ever blocking on one of them."""

    def __init__(
        self,
        job: str,
        payload: Mapping[str, Any],
        process: subprocess.Popen[bytes],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.job = job
        self.most_bytes = getattr(job, "most_bytes", MAX_LINE_BYTES)
        self.process = process
        self.on_progress = on_progress
        self.on_tick: Callable[[], None] = lambda: None  # called at every look; it may raise
        self.progress_left = MOST_PROGRESS
        self.progress_at = time.monotonic()
        self.channel_state = RequestChannel()
        self.unsent = memoryview(self.channel_state.request(job, payload))
        self.stderr_tail = b""
        self.noise = ""
        self.stage = ""
        self.selector = selectors.DefaultSelector()

    def __enter__(self) -> _Conversation:
        for pipe, event in (
            (self.process.stdin, selectors.EVENT_WRITE),
            (self.process.stdout, selectors.EVENT_READ),
            (self.process.stderr, selectors.EVENT_READ),
        ):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self.selector.register(pipe, event)
        return self

    def __exit__(self, *_: object) -> None:
        self.selector.close()

    def answer(self, cancel: threading.Event | None, timeout_s: float) -> dict[str, Any]:
        """Exchange messages until the worker has replied, failed, exited, or must be stopped."""
        limit = TimeLimit(timeout_s)
        while True:
            if cancel is not None and cancel.is_set():
                raise _cancelled(self.job)
            if limit.left_s() <= 0:
                raise self._timed_out(timeout_s)
            self._look()
            left = _has_exited(self.process)
            self._exchange()
            if (reply := self._reply()) is not None:
                return reply
            if left and self._drained():
                raise self._no_answer()

    def _look(self) -> None:
        try:
            self.on_tick()
        except WorkerError:
            _kill_group(self.process, signal.SIGKILL)  # at once: it would go on in the time that others get
            raise

    def _exchange(self) -> None:
        """Move bytes for up to one tick."""
        for key, _ in self.selector.select(TICK_S):
            if key.fileobj is self.process.stdin:
                self._send(key)
            else:
                self._receive(key)

    def _drained(self) -> bool:
        """Whether the output of an exited worker is read; a child of it may keep the pipes open for ever."""
        return not any(event & selectors.EVENT_READ for _, event in self.selector.select(0))

    def _send(self, key: selectors.SelectorKey) -> None:
        try:
            self.unsent = self.unsent[os.write(key.fd, self.unsent[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # exited without reading: its status is the error
            self.unsent = self.unsent[:0]
        if not self.unsent:
            self.selector.unregister(key.fileobj)  # but stays open: its end tells the worker that we are gone

    def _receive(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(key.fileobj)
        elif key.fileobj is self.process.stderr:
            self.stderr_tail = (self.stderr_tail + data)[-STDERR_TAIL_BYTES:]
        else:
            try:
                self.channel_state.receive_bytes(data)
            except BrokenChannel as flood:
                raise WorkerError(
                    f"The worker for `{self.job}` answered with more than {self.most_bytes:,} bytes.",
                    hint="Use fewer runs, or a smaller model.",
                ) from flood

    def _reply(self) -> dict[str, Any] | None:
        """Return the worker's reply, or raise its error; keep other output (prints of libraries) as noise."""
        while True:
            try:
                return self.channel_state.reply(self._progress)
            except BrokenChannel as broken:
                self.noise = self.noise or shortened(broken.noise or b"")

    def _progress(self, stage: str, done: int, total: int, text: str = "") -> None:
        self.stage = stage
        now = time.monotonic()
        self.progress_left = min(MOST_PROGRESS, self.progress_left + (now - self.progress_at) * PROGRESS_RATE)
        self.progress_at = now
        if self.progress_left < 1:  # a flood: the reply still comes
            return
        self.progress_left -= 1
        if self.on_progress is not None:
            self.on_progress(Progress(stage=stage, done=done, total=total, text=text))

    def _timed_out(self, timeout_s: float) -> WorkerError:
        return WorkerError(
            f"The worker for `{self.job}` did not finish within {timeout_s:g} s{self._where()}.",
            hint="Raise the time limit (`timeout_s`), or ask for fewer runs or a smaller batch.",
        )

    def _where(self) -> str:
        return f"; it was at stage `{self.stage}`" if self.stage else ""

    def _no_answer(self) -> TunerError:
        code = _exit_code(self.process)
        self.noise = self.noise or shortened(self.channel_state.unfinished_line)
        said = last_words(self.stderr_tail)
        if code < 0:
            return crash_error(self.job, -code, self._where(), said)
        if self.noise:
            return WorkerError(
                f"The worker for `{self.job}` answered with something that is no result: "
                f"`{self.noise}`.{said}",
                hint="Look for a library or a sitecustomize file that prints when Python starts.",
            )
        return WorkerError(
            f"The worker for `{self.job}` ended with exit code {code} and no result{self._where()}.{said}",
            hint="Check the installation with `ortune machine`.",
        )


_CRASH_HINTS: Mapping[str, tuple[str, str]] = {
    # signal -> (what it usually means, what to do)
    "SIGKILL": (
        ", probably because memory ran out",
        "Use a smaller batch or model, or give this machine or container more memory.",
    ),
    "SIGILL": (
        ", because this CPU lacks an instruction that the library uses",
        "Install an ONNX Runtime build made for this CPU.",
    ),
    "SIGBUS": (
        ", usually because a mapped model file shrank or a disk is full",
        "Check the model file and the free disk space.",
    ),
}


def crash_error(job: str, number: int, where: str, said: str) -> WorkerError:
    """Return the error of a worker that signal `number` ended."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    cause, hint = _CRASH_HINTS.get(
        name, ("", "Try fewer settings, for example no graph optimizations, to find the one that crashes it.")
    )
    verb = "was killed" if name == "SIGKILL" else "crashed"
    error = WorkerError(f"The worker for `{job}` {verb} ({name}){cause}{where}.{said}", hint=hint)
    error.signal = name
    return error


def last_words(stderr: bytes) -> str:
    """Return a sentence with the last output before Python's own report of a crash."""
    last = _last_line(stderr)
    return f" Its last output: {last}" if last else ""


def _last_line(stderr: bytes) -> str:  # the report itself gives only the place
    said = stderr.decode(errors="replace").split("Fatal Python error:")[0]
    lines = [line.strip() for line in said.splitlines()]
    return _clipped(next((line for line in reversed(lines) if line), ""), 300)


def shortened(line: bytes) -> str:
    """Return the beginning of an invalid message, to quote it in an error."""
    return _clipped(line[:400].decode(errors="replace").strip(), 80)


def _clipped(text: str, limit: int) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    """Check without reaping where the system allows it: the process id of a zombie is not reused."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return process.returncode is not None or (
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    )


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    """Reap an exited worker, after the last of its children, and return its exit code."""
    _kill_group(process, signal.SIGKILL)
    return process.wait()


def _wait_exit(process: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline, pause = time.monotonic() + seconds, 0.001
    while not _has_exited(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return True


def _kill_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[bytes], *, answered: bool) -> None:
    """End the whole process group and reap it; a worker that has replied may exit by itself first."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()
    if process.returncode is not None:
        return
    if not (answered and _wait_exit(process, EXIT_GRACE_S)):
        _kill_group(process, signal.SIGTERM)
        _wait_exit(process, TERM_GRACE_S)
    _kill_group(process, signal.SIGKILL)
    process.wait()
