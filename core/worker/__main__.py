"""The worker process: reads one request from stdin (`wire.channel`), writes its reply to stdout, and exits.

Run as `python -m core.worker`. The request names a job. Stdin then stays open; its end means that the
parent has exited. File descriptor 1 is moved at the start and replaced by stderr, so that a library that
prints cannot break the protocol. Each job imports its own modules when it starts: a measuring worker loads
numpy and onnxruntime and nothing else.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

from core import wire
from core.wire import Progress, limits
from core.wire import sandbox as sandbox_rules
from core.wire.channel import Command, obey
from core.wire.errors import WorkerError
from core.worker import lifeline, sandbox


def _environment(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.machine.environment import describe

    return describe(progress)


def _inspect(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.models import inspect_model

    return inspect_model(payload["path"], any_version=payload.get("any_version", False))


def _external_data(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.models import external_locations

    limits.cap_memory()
    return external_locations(payload["path"])


def _loads(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.session.job_session import load_model

    limits.cap_memory()
    return load_model(payload["path"], payload.get("custom_op_libraries", []))


def _profile(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.profiling import profile

    _cap_memory(payload)
    return profile(payload, progress)


def _export(payload: Any, progress: Progress) -> Mapping[str, Any]:
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
    with _single_threaded_numpy():
        from core.worker.measure.contestant import serve

    serve(payload["fd"], after_load=lifeline.exit_when_stdin_closes)
    return {}


@contextlib.contextmanager
def _single_threaded_numpy() -> Iterator[None]:
    """Import numpy without threads: a contestant enters its sandbox when it loads, with a single thread."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _explain(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.explain import explain

    return explain(payload, progress)


def _profiled_pass(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.profiled_pass import profiled_pass

    return profiled_pass(payload, progress)


def _named_model(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.explain import named_model

    limits.cap_memory()
    return named_model(payload)


def _samples(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.samples import record

    _cap_memory(payload["plan"])
    return record(payload)


def _answers(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.samples import answers

    _cap_memory(payload["plan"])
    return answers(payload)


def _settings(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.machine.unknown_settings import unknown_settings

    return unknown_settings(payload)


def _capabilities(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.machine.loading import require_onnxruntime

    require_onnxruntime()
    from core.worker.machine.capabilities import capabilities

    return capabilities(payload)


def _read_profile(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.profile_reading import read_profile

    limits.cap_memory()
    return read_profile(payload)


def _install(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.make.installation import install

    return install(payload, progress)


def _peaks(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.peaks import peaks

    limits.cap_memory()
    return peaks(payload, progress)


def _import(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.imported import read_import

    limits.cap_memory()
    return read_import(payload["path"])


def _graph(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.models.graph_job import describe_graphs

    limits.cap_memory()
    return describe_graphs(payload, progress)


def _save_graph(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.session.job_session import save_graph

    _cap_memory(payload)
    return save_graph(payload)


def _layout(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.models.graph_layout import lay_out

    return lay_out(payload)


def _loadgen(payload: Any, progress: Progress) -> Mapping[str, Any]:
    from core.worker.measure.loadgen import run_loadgen

    _cap_memory(payload["plan"])
    return run_loadgen(payload, progress)


def _cap_memory(plan: Any) -> None:
    """Limit memory so that a runaway allocation raises; GPU drivers need unlimited address space."""
    if all(provider["name"] == "CPUExecutionProvider" for provider in plan["session"]["providers"]):
        limits.cap_memory()


JOBS: dict[str, Command] = {
    wire.ENVIRONMENT: _environment,
    wire.INSPECT: _inspect,
    wire.EXTERNAL_DATA: _external_data,
    wire.LOAD_CHECK: _loads,
    wire.PROFILE: _profile,
    wire.EXPORT: _export,
    wire.TRANSFORM: _transform,
    wire.ACCURACY: _accuracy,
    wire.NODE_ERRORS: _node_errors,
    wire.EXPLAIN: _explain,
    wire.PROFILED_PASS: _profiled_pass,
    wire.NAMED_MODEL: _named_model,
    wire.SAMPLES: _samples,
    wire.ANSWERS: _answers,
    wire.SETTINGS: _settings,
    wire.CAPABILITIES: _capabilities,
    wire.READ_PROFILE: _read_profile,
    wire.INSTALL: _install,
    wire.PEAKS: _peaks,
    wire.IMPORT: _import,
    wire.GRAPH: _graph,
    wire.SAVE_GRAPH: _save_graph,
    wire.LAYOUT: _layout,
    wire.LOADGEN: _loadgen,
    wire.FORKSERVER: _forkserver,
    wire.CONTESTANT: _contestant,
}


def main() -> None:
    """Read the request from stdin, do its job, write the reply, and exit."""
    protocol = _claim_stdout()
    faulthandler.enable(file=os.dup(2))  # the parent reads the Python stack of a crash here
    lifeline.die_with_parent()
    request = sys.stdin.buffer.readline()
    with contextlib.suppress(BrokenPipeError):  # the parent has exited
        jobs = {name: partial(_do, job) for name, job in JOBS.items()}
        obey(request, jobs, partial(_send, protocol), who="worker")
    os._exit(0)  # the reply is sent: a destructor of a native library must not crash now


def _claim_stdout() -> BinaryIO:
    protocol = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return protocol


def _send(protocol: BinaryIO, line: bytes) -> None:
    protocol.write(line)
    protocol.flush()


def _do(job: Command, payload: Any, progress: Progress) -> Mapping[str, Any]:
    rules = payload.pop(sandbox_rules.KEY, None) if isinstance(payload, dict) else None
    if job is not _forkserver:
        lifeline.set_oom_victim()
    if job is _transform:
        from core.worker import spare_process

        spare_process.prepare(rules, "core.worker.models.checking", "load_by_default")
    try:
        sandbox.enter_required(rules)
    except WorkerError as error:
        sys.stderr.write(f"{error}\n")  # who talks over a socket has no other place to say it
        raise
    if job not in (_forkserver, _contestant):  # both have a single thread, the latter until it loads
        lifeline.exit_when_stdin_closes()
    with sandbox.refusals(rules):
        return job(payload, progress)


if __name__ == "__main__":
    main()
