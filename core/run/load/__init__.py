"""Performs a load test: prepares its configurations, runs their schedules, and returns the result.

Every run has fresh processes (`serving`). Several configurations or rates take turns in random order, and
runs of one turn have the same arrivals. `questions` decides what runs next; `core.evidence.load` computes
every number. No queue, no store of trials: the scheduler owns those, and calls `perform_load` at this job's
turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from core import __version__
from core.evidence.comparison import Configuration
from core.evidence.load.load_result import load_result, requests_of
from core.evidence.load.load_types import RawRun
from core.run.job import Ending, Outcome, Service
from core.run.load.prepared import PreparedService, prepare_services
from core.run.load.questions import LoadRun
from core.run.preparation import describe, describe_runtime, environment_of
from core.spec.load import LoadSpec
from core.wire import Environment
from core.wire.errors import Cancelled, TunerError, WorkerError

MOST_KEPT = 500_000  # requests whose times are stored


def perform_load(
    trial: str, configurations: Sequence[Configuration], load: LoadSpec, service: Service
) -> Outcome:
    """Run a load test, and return how its trial ended.

    A cancelled or failed test keeps the runs before it as its result.

    Args:
        trial: id of the trial that represents it, of the first configuration.
        configurations: what serves, in the order of the result.
        load: what is asked.
        service: store, workers and callbacks.

    Raises:
        Cancelled: before the first run.
        TunerError: no configuration can be prepared.
    """
    prepared = prepare_services(trial, configurations, load, service)
    machine, notes = describe(partial(environment_of, service.environment, prepared[0].spec.runtime))
    for one in prepared:
        used, _ = describe_runtime(service.environment, one.spec.runtime)
        if used is not None:
            one.facts["libraries"] = used["libraries"]
    test = LoadRun(prepared, load, service)
    error: TunerError | None = None
    try:
        test.run()
    except TunerError as raised:
        if not test.raws:
            raise
        error = raised
    result = _result(prepared, load, test, machine, notes)
    if isinstance(error, Cancelled) or service.cancel.is_set():
        whole = error or Cancelled("The load test was cancelled.", hint="Start it again for a result.")
        return _outcome(trial, Ending(state="CANCELLED", error=whole, result=result))
    error = error or _failure(test.raws)
    if error is not None:
        return _outcome(trial, Ending(state="FAIL", error=error, result=result))
    return _outcome(trial, Ending(state="COMPLETE", result=result))


def _outcome(trial: str, ending: Ending) -> Outcome:
    return Outcome(whole=Ending(state=ending.state, error=ending.error), trials={trial: ending})


def _failure(raws: Sequence[RawRun]) -> TunerError | None:
    """The error of a test in which a worker failed under load."""
    failed = next((one for one in raws if one.outcome == "failed"), None)
    if failed is None:
        return None
    served = sum(1 for end in failed.end_ns if end)
    return WorkerError(
        f"{failed.reason.rstrip('.')}, after {served:,} requests.",
        hint="The result holds what was measured before.",
    )


def _result(
    prepared: Sequence[PreparedService],
    load: LoadSpec,
    test: LoadRun,
    machine: Environment | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    kept, too_many = requests_of(test.raws, most=MOST_KEPT)
    first = prepared[0]
    return {
        "model": first.model,
        "load": load_result(load, test.record),
        "requests": kept,
        "requested_providers": first.requested_providers,
        "effective_providers": first.facts["effective_providers"],
        "batch_size": first.rows,
        "notes": [*first.notes, *notes, *([too_many] if too_many else [])],
        "seed": load.seed,
        "environment": machine,
        "fingerprint": machine["fingerprint"] if machine is not None else "",
        "tool_version": __version__,
    }
