"""Load tests: `load` sends requests to a configuration and tells how it keeps up; `load_job` is its job."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import in_runtimes, without_runtimes
from core.api.models import ModelLike, reference
from core.api.requests import Config, check_spec, labels, named, spec_of, with_sizes
from core.api.results import Result
from core.api.session import OnProgress, Session, Status, default_session, ended_trial
from core.api.settings import EFFORT, given_of
from core.evidence.comparison import DEFAULT_LABEL, Configuration
from core.evidence.load.arrivals import kinds_of
from core.evidence.load.load_types import Kind
from core.evidence.measurement import Trial
from core.run import job_types
from core.run.job import Job
from core.run.load.prepared import read_trace
from core.run.load.questions import SEVERAL_TURNS
from core.run.plan import check_batching, check_dims, feed_plan, resolve_batch
from core.run.preparation import Resolved, inspect_model
from core.run.variants import variant_of
from core.show import load_text
from core.show.format import about
from core.show.sheets import loads
from core.show.table import Table
from core.spec import TrialSpec, changed
from core.spec.axes import RUNTIME
from core.spec.load import (
    MOST_CONFIGURATIONS,
    MOST_TOGETHER,
    QUESTIONS,
    ArrivalsSpec,
    LoadLimit,
    LoadSpec,
    Question,
    checked_sizes,
    load_from_dict,
    parse_load_limit,
    parse_sizes,
    parse_time,
    process_named,
)
from core.store import ModelRecord
from core.wire import engines
from core.wire.errors import SpecError, error_from_record
from core.wire.files import expand_home
from core.wire.runtime import OWN

# a load test has its own duration and sizes of requests, and it stops by its own rules
_UNUSED = (EFFORT, "margin", "runs", "warmup_runs", "tolerance")

START_S = 1.5  # of a fresh process, roughly

Sizes = Mapping[int, float] | str | int  # see `parse_sizes`


# --- arguments ----------------------------------------------------------------------------------------------


def _configs(name: str, value: object) -> Any:
    """Return one configuration, or a list of several."""
    if isinstance(value, list | tuple):
        return arguments.configs(name, value)
    return arguments.config(name, value)


def _rates(name: str, value: object) -> list[float]:
    """Return rates in requests per second; a single number is a list of one."""
    value = arguments.python_value(value)
    if isinstance(value, Real | str):
        value = [value]
    return [arguments.number(name, one) for one in arguments.listed(name, value)]


def _sizes(name: str, value: object) -> dict[int, float]:
    """Return sizes with their probabilities: a number, a text for `parse_sizes`, or a dictionary."""
    value = arguments.python_value(value)
    if isinstance(value, str):
        return parse_sizes(value, what=name)
    if isinstance(value, Mapping):
        found = {
            arguments.whole(name, size): arguments.number(name, weight) for size, weight in value.items()
        }
        return checked_sizes(found, what=name)
    return checked_sizes({arguments.whole(name, value): 1.0}, what=name)


def _dims(name: str, value: object) -> dict[str, dict[int, float]]:
    return {dim: _sizes(f"{name}[{dim}]", one) for dim, one in arguments.mapping(name, value).items()}


def limits_of(name: str, value: object) -> list[LoadLimit]:
    """Return limits: texts for `parse_load_limit`, or limits; a single one is a list of one."""
    if isinstance(value, LoadLimit):
        value = [value]
    found = arguments.listed(name, value)
    return [
        one if isinstance(one, LoadLimit) else parse_load_limit(arguments.text(name, one)) for one in found
    ]


def _timeout(name: str, value: object) -> float:
    """Return seconds; texts such as `500ms` are read."""
    return parse_time(value, what=name) if isinstance(value, str) else arguments.number(name, value)


def _arrivals(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, ArrivalsSpec):
        return {"process": value.process, **value.model_dump(exclude_defaults=True)}
    if isinstance(value, Mapping):
        return {"process": "poisson", **arguments.mapping(name, value)}
    return {"process": process_named(arguments.text(name, value))}


# --- the call -----------------------------------------------------------------------------------------------


@arguments.checked(
    config=_configs,
    rate=_rates,
    arrivals=_arrivals,
    duration_s=arguments.duration,
    limits=limits_of,
    timeout_s=_timeout,
    rows=_sizes,
    sizes=_dims,
    trace=arguments.path,
    find_max=arguments.switch,
    find_batching=arguments.switch,
    together=arguments.switch,
    turns=partial(arguments.whole, low=1),
)
def load(
    model: ModelLike | None = None,
    config: Config | Sequence[Config] = None,
    *,
    rate: float | Sequence[float] | None = None,
    arrivals: str | Mapping[str, Any] = "poisson",
    duration_s: float | str | None = None,
    limits: str | Sequence[str] = (),
    timeout_s: float | str | None = None,
    rows: Sizes | None = None,
    sizes: Mapping[str, Sizes] | None = None,
    trace: str | Path | None = None,
    find_max: bool = False,
    find_batching: bool = False,
    together: bool = False,
    turns: int | None = None,
    budget_s: int | str | None = None,
    seed: int = 0,
    wait_quiet_s: float = 0.0,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Trial]:
    """Send requests at scheduled times, whether or not earlier ones are answered, and measure the latency.

    Latency is the time from the scheduled arrival of a request to its completion. With `find_max` the answer
    is the highest rate within the limits, with `find_batching` the best dynamic batching at a rate, with
    `together` what several models cost each other on this machine.

    Args:
        model: see `tune`.
        config: configuration to start from, see `tune`; or a list of up to four. They are compared at the
            same rates in interleaved turns, or run `together`.
        rate: requests per second, or a list of rates. With `together` one for each configuration.
        arrivals: `poisson`, `constant`, `bursts`, `ramp`, `steps`, `diurnal`; or a dictionary with `process`
            and its parameters, for example `{"process": "bursts", "on_s": 1, "off_s": 3}`.
        duration_s: seconds that count, of each configuration and rate, after the warm-up. None: 30, or the
            length of the trace.
        limits: texts such as `p99<=20ms` and `timeouts<=0.1%`.
        timeout_s: a request that waits longer is dropped, in seconds. None: every request is served.
        rows: samples of a request: a number, `1-8` (equally likely), or size -> weight. None: the batch size
            of the configuration.
        sizes: free dimension -> its sizes, as `rows`.
        trace: CSV or JSON Lines file of recorded requests to replay. With `rate`, its times are scaled.
        find_max: find the highest rate within `limits`.
        find_batching: find the best dynamic batching at `rate`.
        together: run all configurations at the same time.
        turns: runs of each configuration and rate, which share `duration_s`. None: 1, or 6 where several are
            compared.
        budget_s: seconds for the search of `find_max` or `find_batching`, without its confirmation.
        seed: of the arrivals, the sizes of requests, and random inputs.
        wait_quiet_s: see `tune`.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`. Settings of comparisons, such as `effort`, have no use here. Of several values
            of `runtime` each configuration runs once in every runtime, unless it is one of several and names
            its own.

    Raises:
        SpecError: the traffic, a limit or a setting is invalid.
        ModelError: there is no such model.
        TunerError: the test failed or was cancelled. `Session.last` has what the store kept.
    """
    session = session or default_session()
    given = {**({"seed": seed} if seed else {}), **given_of(settings)}
    _refuse_unused(given)
    question = _question(find_max=find_max, find_batching=find_batching, together=together)
    asked: dict[str, Any] = {
        "question": question,
        "arrivals": {"process": arrivals} if isinstance(arrivals, str) else arrivals,  # the default is text
        "rates": rate or (),
        "duration_s": duration_s,
        "limits": tuple(limits),
        "timeout_s": timeout_s,
        "rows": rows or {},
        "dims": sizes or {},
        "turns": turns,
        "budget_s": budget_s,
        "seed": seed,
    }
    if trace is not None:
        asked |= _replay(asked, trace)
    wanted = load_from_dict({name: one for name, one in asked.items() if one is not None})
    configurations, assumed = _configurations(session, model, config, given, wanted)
    job = load_job(session, configurations, wanted, wait_quiet_s=wait_quiet_s)
    session.note(_announcement(wanted, configurations))
    return _run(session, job, assumed, on_progress, cancel)


def _refuse_unused(given: Mapping[str, Any]) -> None:
    for name in _UNUSED:
        if name in given:
            shown = "effort" if name == EFFORT else name
            raise SpecError(f"`{shown}` does not concern a load test.", hint="Leave it out.")


def _question(*, find_max: bool, find_batching: bool, together: bool) -> Question:
    named: Mapping[Question, bool] = {"limit": find_max, "batching": find_batching, "together": together}
    asked = [name for name, on in named.items() if on]
    if len(asked) > 1:
        raise SpecError(
            "`find_max`, `find_batching` and `together` contradict each other.", hint="Choose one of them."
        )
    return asked[0] if asked else "traffic"


def _replay(asked: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return what a trace changes: the arrivals, and the duration if none is given.

    Raises:
        SpecError: other arrivals are given, or the trace cannot be used.
    """
    if asked["arrivals"] not in ({"process": "poisson"}, {"process": "trace"}):
        raise SpecError("A trace has its own arrivals.", hint="Leave out either the arrivals or the trace.")
    found: dict[str, Any] = {"arrivals": {"process": "trace", "path": str(expand_home(path))}}
    if asked["duration_s"] is None:
        kept = ("limits", "rates", "timeout_s")
        wanted = load_from_dict(found | {name: asked[name] for name in kept if asked[name] is not None})
        trace = read_trace(wanted)
        assert trace is not None, path
        stretched = trace.length_s(min(wanted.rates, default=None))
        found["duration_s"] = max(1.0, stretched - wanted.warmup_s + 1e-3)
    return found


def _configurations(
    session: Session,
    model: ModelLike | None,
    config: Config | Sequence[Config],
    given: Mapping[str, Any],
    wanted: LoadSpec,
) -> tuple[list[Configuration], dict[str, Any]]:
    """Return the configurations with their labels, and the sources of assumed sizes."""
    refs: list[Any] = list(config) if isinstance(config, list | tuple) else [config]
    asked, given = without_runtimes(given)
    if len(refs) <= 1:
        ref = refs[0] if refs else None
        spec = spec_of(model, ref, {**given, RUNTIME: asked[:1]} if asked else given, session)
        specs = [spec.model_copy(update={RUNTIME: OWN}) if asked else spec]  # `in_runtimes` sets it again
    else:
        together = wanted.question == "together"
        common = reference(model, session)
        specs = named(refs, model=common, given=given, session=session, different_models=together)
    specs, assumed = with_sizes(specs, session, varied=list(wanted.dims))
    if len(refs) <= 1 and not isinstance(refs[0] if refs else None, str):
        told = ["configuration" if changed(specs[0]) else DEFAULT_LABEL]
    else:
        told = _without_folders(labels(refs, specs))
    specs, told = in_runtimes(specs, told, asked, note=session.note)
    return [
        Configuration(spec=spec, label=label, role="candidate" if number or len(specs) == 1 else "baseline")
        for number, (spec, label) in enumerate(zip(specs, told, strict=True))
    ], assumed


def _without_folders(told: Sequence[str]) -> list[str]:
    """Return labels with paths as file names, if these are distinct."""
    short = [Path(one).name if "/" in one else one for one in told]
    return short if len({*short}) == len(short) else list(told)


def _announcement(wanted: LoadSpec, configurations: Sequence[Configuration]) -> str:
    names = ", ".join(one.label for one in configurations)
    said = f"{names}: {QUESTIONS[wanted.question]}; {load_text.traffic_words(wanted)}"
    if wanted.limits:
        said += f"; limits: {', '.join(one.words for one in wanted.limits)}"
    seconds = _expected_s(wanted, len(configurations))
    return said if seconds is None else f"{said}; about {about(seconds)}"


def _expected_s(wanted: LoadSpec, configurations: int) -> float | None:
    """Return the expected duration in seconds; None: a search ends when it has its answer."""
    together = wanted.question == "together"
    if wanted.question not in ("traffic", "together"):
        return None
    turns = wanted.turns or (SEVERAL_TURNS if configurations > 1 else 1)
    points = configurations + 1 if together else configurations * max(1, len(wanted.rates))
    return points * (wanted.effective_duration_s + turns * (wanted.warmup_s + START_S))


# --- the job ------------------------------------------------------------------------------------------------


def load_job(
    session: Session,
    configurations: Sequence[Configuration],
    load: LoadSpec,
    *,
    model_name: str | None = None,
    wait_quiet_s: float = 0.0,
) -> Job:
    """Return the checked job of a load test; see `job_types.load`.

    Args:
        session: holds the result.
        configurations: one or more; several are compared at the same rates, or run together.
        load: what is asked.
        model_name: None: the file's.
        wait_quiet_s: longest wait for an idle machine, in seconds.

    Raises:
        TunerError: a configuration cannot run, the requests do not fit its model, or the session does not
            admit it.
    """
    _check_number(configurations, load)
    trace = read_trace(load)
    records, batches = [], dict[str, int]()
    for one in configurations:
        session.admit(one.spec)  # before anything reveals what lies at a path
        found = inspect_model(one.spec, session.store, session.inspect)
        kinds = kinds_of(load)[0] if trace is None else trace.kinds
        if found is not None and trace is None and not load.rows:
            batches[one.label] = batch = resolve_batch(one.spec.workload, found.record.info)
            kinds = [replace(kind, rows=batch) for kind in kinds]
        if found is not None:
            check_batching(one.spec.dynamic_batching, found.record.info)
            _check_requests(found, load, kinds)
            records.append(found.record)
        for first in {kind.feed: kind for kind in reversed(kinds)}.values():  # each file of inputs
            check_spec(session, _sized(one.spec, first))
    _check_models(records, load)
    if load.question != "together" and len({*batches.values()}) > 1:
        sizes = ", ".join(f"{label}: {batch}" for label, batch in batches.items())
        raise SpecError(
            f"The configurations have different batch sizes ({sizes}), so their requests would differ.",
            hint="Set the samples of a request with `rows`.",
        )
    return job_types.load(configurations, load, model_name=model_name, wait_quiet_s=wait_quiet_s, trace=trace)


def _check_number(configurations: Sequence[Configuration], load: LoadSpec) -> None:
    many, rates = len(configurations), len(load.rates)
    low, high = {"together": (2, MOST_TOGETHER), "batching": (1, 1)}.get(
        load.question, (1, MOST_CONFIGURATIONS)
    )
    if not low <= many <= high:
        takes = f"{low}" if low == high else f"{low} to {high}"
        raise SpecError(
            f"A load test of {QUESTIONS[load.question]} takes {takes} configuration{'s' * (high > 1)}; got "
            f"{many}.",
            hint="Name that many configurations.",
        )
    if load.question == "together" and rates != many:
        raise SpecError(
            f"{many} configurations together need {many} rates, but got {rates}.",
            hint="Give one rate for each configuration, in the same order.",
        )
    if load.question == "batching" and not engines.can(configurations[0].spec.engine, "settings"):
        raise SpecError(
            "Dynamic batching joins inputs for a session of ONNX Runtime only; got the engine "
            f"`{configurations[0].spec.engine}`.",
            hint=f"Use the engine `{engines.DEFAULT}`.",
        )
    if load.question == "batching" and rates != 1:
        raise SpecError(
            f"The best dynamic batching is found at one rate, but got {rates}.", hint="Give one rate."
        )


def _check_requests(found: Resolved, load: LoadSpec, kinds: Sequence[Kind]) -> None:
    """Refuse requests that the model cannot take."""
    info = found.record.info
    names = dict.fromkeys(name for one in kinds for name in one.dims)
    check_dims(dict.fromkeys([*load.dims, *names], 1), info, found.record.name)
    for kind in kinds:
        try:
            feed_plan(_sized(found.spec, kind).workload, info)
        except SpecError as error:
            if len(kinds) == 1 and not load.rows and not kind.dims:
                raise  # the configuration itself does not fit
            dims = "".join(f", {name}={size}" for name, size in kind.dims.items())
            samples = f"{kind.rows} sample{'s' * (kind.rows != 1)}"
            raise SpecError(
                f"A request of {samples}{dims} does not fit the model: {error.message}",
                hint="Change the sizes of the requests.",
            ) from None


def _sized(spec: TrialSpec, kind: Kind) -> TrialSpec:
    """Return the configuration with the inputs of one size of request."""
    changes: dict[str, Any] = {"batch_size": kind.rows, "dims": {**spec.workload.dims, **kind.dims}}
    workload = spec.workload.model_copy(update=changes | ({"feeds": kind.feed} if kind.feed else {}))
    return spec.model_copy(update={"workload": workload})


def _check_models(records: Sequence[ModelRecord], load: LoadSpec) -> None:
    """Refuse to compare different models: only `together` runs several."""
    if load.question == "together":
        return
    roots = {(variant_of(one) or {}).get("root", one.content_sha256): one.name for one in records}
    if len(roots) > 1:
        raise SpecError(
            f"The configurations run different models: {', '.join(roots.values())}.",
            hint="Compare configurations of one model, or run several models `together`.",
        )


# --- the result ---------------------------------------------------------------------------------------------


def _run(
    session: Session,
    job: Job,
    assumed: Mapping[str, Any],
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Result[Trial]:
    trial_id = job.follow or job.id
    session.last = load_test_result(session, trial_id, assumed)  # for an interrupted run
    status = session.run(job, on_progress=on_progress, cancel=cancel)
    result = session.last = load_test_result(session, trial_id, assumed, status)
    if (error := result.record.error) is not None:
        raise error_from_record(error)
    return result


def load_test_result(
    session: Session, trial_id: str, assumed: Mapping[str, Any] | None = None, status: Status | None = None
) -> Result[Trial]:
    """Return the result of a load test.

    Args:
        session: holds it.
        trial_id: its ID.
        assumed: sources of assumed sizes, for the document.
        status: how its job ended, for a store that could not save its end.
    """
    store = session.store
    return Result(
        kind="load",
        id=trial_id,
        read=lambda: ended_trial(store, trial_id, status),
        document=lambda trial: {**trial.to_dict(), **(assumed or {})},
        content=loads.load_sheet,
        says=_verdict,
        numbers=_numbers,
        store=store,
        refs=[trial_id],
    )


def _verdict(trial: Trial) -> str:
    found = load_text.load_of(trial)
    return loads.load_sheet(trial).headline if found is None else load_text.answer(found)


def _numbers(trial: Trial) -> Table:
    """Return the points of a load test.

    Raises:
        SpecError: it has no result.
    """
    found = load_text.load_of(trial)
    if found is None:
        raise SpecError("This load test has no result, so it has no table.", hint="Use `to_dict()`.")
    return loads.points(found)
