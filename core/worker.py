"""The worker process: one job in on stdin, JSON lines out on what was stdout, then exit.

Run as `python -m core.worker`. The job is one JSON line; stdin then stays open, and its end means that the
parent is gone. File descriptor 1 is moved away at the start and replaced by stderr, so that a library that
prints cannot break the protocol. Each job imports its own modules when it starts: a measuring worker loads
numpy and onnxruntime and nothing else. This is the one place that catches every exception of a job.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from core import lifeline, limits
from core.errors import TunerError, WorkerError, record_from_error
from core.wire import Progress

# The payload is a TypedDict of `wire`, built by the parent.
Job = Callable[[Any, Progress], Mapping[str, Any]]


def _environment(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.environment import describe

    return describe(progress)


def _inspect(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.models import inspect_model

    return inspect_model(payload["path"])


def _measure(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.benchmark import measure

    _cap_memory(payload)
    return measure(payload, progress)


def _profile(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.benchmark import profile

    _cap_memory(payload)
    return profile(payload, progress)


def _export(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.export import export

    return export(payload, progress)


def _fp16(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.transform import fp16

    return fp16(**payload, progress=progress)


def _cap_memory(plan: Any) -> None:
    """On the CPU a runaway allocation becomes an error; a GPU driver needs address space without limit."""
    if all(provider["name"] == "CPUExecutionProvider" for provider in plan["session"]["providers"]):
        limits.cap_memory()


JOBS: dict[str, Job] = {
    "environment": _environment,
    "inspect": _inspect,
    "measure": _measure,
    "profile": _profile,
    "export": _export,
    "fp16": _fp16,
}


def main() -> None:
    """Do the one job that stands on stdin and leave."""
    protocol = _claim_stdout()
    faulthandler.enable(file=os.dup(2))  # a crash leaves its Python stack in the parent's hands
    lifeline.die_with_parent()
    lifeline.offer_to_oom_killer()
    request = sys.stdin.buffer.readline()
    lifeline.exit_when_stdin_closes()
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
        return _line(event="result", value=job(payload, progress))
    except TunerError as error:
        return _line(event="error", error=record_from_error(error))
    except MemoryError as error:
        return _line(event="error", error=record_from_error(_out_of_memory(error)))
    except Exception as error:
        traceback.print_exc()
        unexpected = WorkerError(
            f"The worker failed unexpectedly: {type(error).__name__}: {error}",
            hint="Report this with the log of the dashboard.",
        )
        return _line(event="error", error=record_from_error(unexpected))


def _parse(request: bytes) -> tuple[Job, Any]:
    try:
        message = json.loads(request)
        return JOBS[message["job"]], message["payload"]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkerError(
            f"The worker was sent no job that it knows: {request[:80]!r}.",
            hint="Start workers through ORTune's commands.",
        ) from error


def _out_of_memory(error: MemoryError) -> WorkerError:
    detail = str(error).strip().rstrip(".")
    return WorkerError(
        "The worker ran out of memory" + (f": {detail}." if detail else "."),
        hint="Use a smaller batch, smaller dimensions or a smaller model.",
    )


if __name__ == "__main__":
    main()
