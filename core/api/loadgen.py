"""A cross-check of a load test with MLCommons' LoadGen: `loadgen`. LoadGen-compatible, unofficial."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from core.api import arguments
from core.api.load import limits_of
from core.api.models import ModelLike
from core.api.requests import Config, check_spec, spec_of, with_sizes
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.api.settings import given_of
from core.evidence.load.loadgen_result import LoadGenResult
from core.run import job_types
from core.run.job import Job
from core.run.load.loadgen import SCENARIOS, LoadGenTest, cross_check, loadgen_plan
from core.show import documents
from core.show.sheets import loadgen as sheets
from core.spec import TrialSpec
from core.spec.load import LoadLimit
from core.wire.errors import SpecError

SERVER = "Server"
DEFAULT_DURATION_S = 60.0
_BY_NAME = {name.lower(): name for name in SCENARIOS}


def _scenarios(name: str, value: object) -> list[str]:
    """Return scenarios by their names in any case; an unknown one stays, and is refused later."""
    return [_BY_NAME.get(one.lower(), one) for one in arguments.texts(name, value)]


@arguments.checked(
    scenario=_scenarios,
    rate=partial(arguments.number, low=0),
    duration_s=arguments.duration,
    limits=limits_of,
)
def loadgen(
    model: ModelLike | None = None,
    config: Config = None,
    *,
    scenario: str | Sequence[str] = "SingleStream",
    rate: float | None = None,
    duration_s: float | str = DEFAULT_DURATION_S,
    limits: str | Sequence[str] = (),
    seed: int = 0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[LoadGenResult]:
    """Let MLCommons' LoadGen send requests to a configuration, as a cross-check.

    The result is "LoadGen-compatible, unofficial", because MLPerf's rules prescribe more, and it is not
    stored. LoadGen runs in a process of its own with a time limit; it needs the package `mlcommons-loadgen`.

    Args:
        model: see `tune`.
        config: see `tune`.
        scenario: `SingleStream`, `MultiStream`, `Server`, `Offline`, or a list of them; each is a test.
        rate: queries per second, for `Server`.
        duration_s: least duration of each test, in seconds.
        limits: latency limit of `Server`, such as `p99<=20ms`.
        seed: of LoadGen's schedule.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`.

    Raises:
        SpecError: a value is invalid, or the package is not installed.
        TunerError: LoadGen crashed, did not end, or was cancelled.
    """
    session = session or default_session()
    [spec], _ = with_sizes([spec_of(model, config, given_of(settings), session)], session)
    common = LoadGenTest(
        scenario=SERVER, duration_s=float(duration_s), seed=seed, streams=spec.workload.streams
    )
    scenarios = [scenario] if isinstance(scenario, str) else list(scenario)  # the default is text
    tests = _tests(scenarios, common, rate, cast(Sequence[LoadLimit], limits))
    job = loadgen_job(session, spec, tests)
    session.last = None  # a stored result of an earlier call
    found: Any = result_of(session.run(job, on_progress=on_progress, cancel=cancel))
    session.last = result = loadgen_result(found)
    return result


def loadgen_job(session: Session, spec: TrialSpec, tests: Sequence[LoadGenTest]) -> Job:
    """Return the checked job of a cross-check with LoadGen, one test for each entry.

    Raises:
        TunerError: a test is impossible, the configuration cannot run, or the session does not admit it.
    """
    for one in tests:  # values only; the worker's plan comes later
        loadgen_plan(cast(Any, {"engine": spec.engine}), one)
    check_spec(session, spec)

    def work(run: Any) -> Mapping[str, Any]:
        return cross_check(spec, tests, store=session.store, run=run)

    return job_types.task(work, kind="loadgen", what="cross-check with LoadGen", specs=[spec])


def _tests(
    scenarios: Sequence[str], common: LoadGenTest, rate: float | None, limits: Sequence[LoadLimit]
) -> list[LoadGenTest]:
    """Return a test for each scenario; the rate and the limit are those of Server.

    Raises:
        SpecError: a rate or a limit without Server, several limits, or one on timeouts.
    """
    latency = [one for one in limits if one.at_most_s is not None]
    if len(latency) < len(limits) or len(latency) > 1:
        raise SpecError("LoadGen takes one limit, on the latency.", hint="Give one such as `p99<=20ms`.")
    if SERVER not in scenarios and (rate is not None or latency):
        raise SpecError(
            f"Only LoadGen's scenario {SERVER} has a rate and a limit.",
            hint=f"Leave them out, or add the scenario {SERVER}.",
        )
    server = replace(common, rate=rate)
    if latency:
        server = replace(server, limit_s=latency[0].at_most_s, percentile=latency[0].percentile)
    return [server if one == SERVER else replace(common, scenario=one) for one in scenarios]


def loadgen_result(found: LoadGenResult) -> Result[LoadGenResult]:
    """Return the result of a cross-check."""
    return Result(
        kind="loadgen",
        id="",
        read=lambda: found,
        document=documents.loadgen,
        content=sheets.loadgen_sheet,
        rows=sheets.table,
    )
