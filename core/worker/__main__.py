"""The worker process: one job in on stdin, JSON lines out on what was stdout, then exit.

Run as `python -m core.worker`. The job is one JSON line; stdin then stays open, and its end means that the
parent is gone. File descriptor 1 is moved away at the start and replaced by stderr, so that a library that
prints cannot break the protocol. Each job imports its own modules when it starts: a measuring worker loads
numpy and onnxruntime and nothing else. This is the one place that catches every exception of a job.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from core.wire import Progress, limits
from core.wire.errors import TunerError, WorkerError, record_from_exception
from core.worker import lifeline

# The payload is a TypedDict of `wire`, built by the parent.
Job = Callable[[Any, Progress], Mapping[str, Any]]


def _environment(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.machine.environment import describe

    return describe(progress)


def _inspect(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.models import inspect_model

    return inspect_model(payload["path"])


def _load(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.session.loading import loads

    limits.cap_memory()
    return loads(payload["path"])


def _profile(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure import profile

    _cap_memory(payload)
    return profile(payload, progress)


def _export(payload: Any, progress: Progress) -> Mapping[str, Any]:
    if payload["source"] == "tensorflow":  # never in one process with torch
        from core.worker.make.tensorflow_export import export_tensorflow

        return export_tensorflow(payload, progress)
    from core.worker.make.export import export

    return export(payload, progress)


def _transform(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.make.transform import transform

    limits.cap_memory()
    return transform(payload, progress)


def _accuracy(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.data.accuracy import accuracy

    _cap_memory(payload)
    return accuracy(payload, progress)


def _node_errors(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.make.transform.node_errors import node_errors

    limits.cap_memory()
    return node_errors(payload, progress)


def _forkserver(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.forkserver import serve

    serve(payload["fd"])
    return {}


def _contestant(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.contestant import serve

    serve(payload["fd"])
    return {}


def _explain(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.explain import explain

    return explain(payload, progress)


def _cap_memory(plan: Any) -> None:
    """On the CPU a runaway allocation becomes an error; a GPU driver needs address space without limit."""
    if all(provider["name"] == "CPUExecutionProvider" for provider in plan["session"]["providers"]):
        limits.cap_memory()


JOBS: dict[str, Job] = {
    "environment": _environment,
    "inspect": _inspect,
    "load": _load,
    "profile": _profile,
    "export": _export,
    "transform": _transform,
    "accuracy": _accuracy,
    "node_errors": _node_errors,
    "forkserver": _forkserver,
    "contestant": _contestant,
    "explain": _explain,
}


def main() -> None:
    """Do the one job that stands on stdin and leave."""
    protocol = _claim_stdout()
    faulthandler.enable(file=os.dup(2))  # a crash leaves its Python stack in the parent's hands
    lifeline.die_with_parent()
    request = sys.stdin.buffer.readline()
    with contextlib.suppress(BrokenPipeError):  # nobody is left to hear it
        _send(protocol, _answer(request, protocol))
    os._exit(0)  # the answer is out: no destructor of a native library may turn it into a crash


def _claim_stdout() -> TextIO:
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return protocol


def _send(protocol: TextIO, line: str) -> None:
    protocol.write(line + "\n")
    protocol.flush()


def _line(**event: Any) -> str:
    return json.dumps(event, separators=(",", ":"))


def _answer(request: bytes, protocol: TextIO) -> str:
    """Do the job; whatever happens, return the line that says so."""

    def progress(stage: str, done: int, total: int, text: str = "") -> None:
        _send(protocol, _line(event="progress", stage=stage, done=done, total=total, text=text))

    try:
        job, payload = _parse(request)
        if job is not _forkserver:  # that one must have one thread only, and watches stdin itself
            lifeline.offer_to_oom_killer()
            lifeline.exit_when_stdin_closes()
        return _line(event="result", value=job(payload, progress))
    except Exception as error:
        if not isinstance(error, TunerError | MemoryError):
            traceback.print_exc()
        return _line(event="error", error=record_from_exception(error))


def _parse(request: bytes) -> tuple[Job, Any]:
    try:
        message = json.loads(request)
        return JOBS[message["job"]], message["payload"]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkerError(
            f"The worker was sent no job that it knows: {request[:80]!r}.",
            hint="Start workers through ORTune's commands.",
        ) from error


if __name__ == "__main__":
    main()
