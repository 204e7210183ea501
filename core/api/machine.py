"""This machine: `machine` describes it, `self_test` measures its noise, `peaks` its peak speed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from core import wire
from core.api import arguments
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.evidence.noise_check import evaluate
from core.evidence.roofline import peaks_of
from core.process.job_worker import run_job
from core.process.machine_queue import MachineQueue
from core.run.job_types import peaks as peaks_job
from core.run.job_types import self_test as self_test_job
from core.show import documents, frames
from core.show.sheets import models_and_machines
from core.show.sheets import peaks as peak_sheets
from core.wire.provenance import facts_in_words


def machine() -> Result[wire.Environment]:
    """Return the facts of this machine, which providers load on it, and its queue; a worker reads the facts.

    Raises:
        WorkerError: the worker crashed or hung.
    """
    found, queue = run_job(wire.ENVIRONMENT, {}), MachineQueue().entries()
    return Result(
        kind="machine",
        id=found["fingerprint"],
        read=lambda: found,
        document=lambda one: documents.machine(one, queue),
        content=lambda one: models_and_machines.machine(one, queue),
        says=_summary,
    )


def _summary(facts: wire.Environment) -> str:
    """Return processor and cores."""
    found = dict(facts_in_words(facts))
    return "; ".join(found[name] for name in ("processor", "cores") if name in found)


@arguments.checked()
def self_test(
    *,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Mapping[str, Any]]:
    """Compare ONNX Runtime's default with itself, and return the noise of this machine.

    Args:
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        TunerError: a worker failed, or the test was cancelled.
    """
    session = session or default_session()
    found = result_of(session.run(self_test_job(), on_progress=on_progress, cancel=cancel))
    result = session.last = Result(
        kind="self-test",
        id=str(found["fingerprint"]),
        read=lambda: found,
        document=documents.noise_check,
        content=lambda one: models_and_machines.noise_check_sheet(evaluate(one)),
        numbers=lambda one: frames.noise(evaluate(one)),
    )
    return result


@arguments.checked()
def peaks(
    threads: int = 0,
    *,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> Result[Mapping[str, Any]]:
    """Measure the peak speed of this machine: a matrix product and a memory copy.

    Args:
        threads: another number of threads to measure, besides 1 and ONNX Runtime's default. 0: none.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.

    Raises:
        TunerError: the worker failed, or the measurement was cancelled.
    """
    session = session or default_session()
    found = result_of(session.run(peaks_job(threads), on_progress=on_progress, cancel=cancel))
    result = session.last = Result(
        kind="peaks",
        id=str(found["fingerprint"]),
        read=lambda: found,
        document=documents.peaks,
        content=peak_sheets.peaks,
        says=lambda one: peak_sheets.headline(peaks_of(one)),
        numbers=lambda one: frames.peaks(peaks_of(one)),
    )
    return result
