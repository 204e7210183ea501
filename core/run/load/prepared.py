"""Prepares the configurations of a load test: model, session, and the inputs of every kind of request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core import wire
from core.evidence.comparison import Configuration
from core.evidence.load.arrivals import Trace, kinds_of, parse_trace
from core.evidence.load.load_types import Kind, LoadConfiguration
from core.evidence.record import Entry
from core.run.comparison import entry_of
from core.run.job import Service as JobService
from core.run.load import serving
from core.run.plan import check_batching, feed_plan, resolve_batch
from core.run.preparation import model_notes, prepare_trial, resolve_trial
from core.run.variants import model_facts
from core.spec import TrialSpec
from core.spec.load import BatchingSpec, LoadSpec
from core.wire.errors import SpecError
from core.wire.files import expand_home, open_regular

MOST_TRACE_BYTES = 256 << 20  # two million requests with their sizes


@dataclass(slots=True, kw_only=True)
class PreparedService:
    """One configuration, ready to serve; `facts` is its part of the result."""

    index: int
    spec: TrialSpec
    entry: Entry
    info: wire.ModelInfo
    kinds: Sequence[Kind]
    weights: Sequence[float]
    feeds: Sequence[wire.FeedPlan]
    trace: Trace | None
    batching: BatchingSpec | None
    facts: LoadConfiguration
    model: Any
    requested_providers: list[str]
    rows: int  # samples of a request of the configuration itself
    notes: list[str]

    def service(self, load: LoadSpec, batching: BatchingSpec | None = None) -> serving.Service:
        """Return it for a run, with other dynamic batching than its own where given."""
        limits = [one.at_most_s for one in load.limits if one.at_most_s is not None]
        return serving.Service(
            index=self.index,
            entry=self.entry,
            kinds=self.kinds,
            feeds=self.feeds,
            streams=self.spec.workload.streams,
            batching=batching or self.batching,
            timeout_s=load.timeout_s,
            limit_s=max(limits, default=None),
            load_timeout_s=float(self.spec.protocol.timeout_s),
        )

    def of_sizes(self, rows: Sequence[int]) -> PreparedService:
        """Return it with one kind of request for each number of samples."""
        kinds = [Kind(rows=one) for one in rows]
        feeds = [feeds_of(self.spec, kind, self.info) for kind in kinds]
        weights = [1 / len(kinds)] * len(kinds)
        return replace(self, kinds=kinds, feeds=feeds, weights=weights, trace=None, batching=None)


def prepare_services(
    trial: str, configurations: Sequence[Configuration], load: LoadSpec, service: JobService
) -> list[PreparedService]:
    """Prepare all configurations.

    Raises:
        Cancelled: the job was cancelled.
        TunerError: one cannot be prepared, or the trace cannot be read.
    """
    trace = read_trace(load)
    found = []
    for index, one in enumerate(configurations):
        resolved = resolve_trial(one.spec, service.store, service.run)
        if index == 0:
            service.on_resolved(trial, resolved)
        resolved = replace(resolved, spec=_with_some_sizes(resolved.spec, load, trace))
        ready = prepare_trial(resolved, service.store, service.run)
        check_batching(resolved.spec.dynamic_batching, ready.info)
        spec, rows = resolved.spec, resolve_batch(resolved.spec.workload, ready.info)
        kinds, weights = _kinds(load, trace, rows)
        entry = replace(entry_of(one.label, resolved, ready), shapes=())
        found.append(
            PreparedService(
                index=index,
                spec=spec,
                entry=entry,
                info=ready.info,
                kinds=kinds,
                weights=weights,
                feeds=[feeds_of(spec, kind, ready.info) for kind in kinds],
                trace=trace,
                batching=spec.dynamic_batching,
                facts={
                    "label": one.label,
                    "spec": spec.to_dict(),
                    "model": resolved.record.name,
                    "streams": spec.workload.streams,
                    "stream_type": spec.workload.stream_type,
                    "effective_providers": [],
                    "error": "",
                },
                model=model_facts(resolved.record),
                requested_providers=list(spec.session.requested_providers),
                rows=rows,
                notes=model_notes(resolved, ready),
            )
        )
    return found


def feeds_of(spec: TrialSpec, kind: Kind, info: wire.ModelInfo) -> wire.FeedPlan:
    """Return the inputs of one kind of request.

    Raises:
        SpecError: the model does not take requests of that size.
    """
    changes: dict[str, Any] = {"batch_size": kind.rows, "dims": {**spec.workload.dims, **kind.dims}}
    if kind.feed:
        changes["feeds"] = kind.feed
    return feed_plan(spec.workload.model_copy(update=changes), info)


def _kinds(load: LoadSpec, trace: Trace | None, rows: int) -> tuple[Sequence[Kind], Sequence[float]]:
    if trace is not None:
        return trace.kinds, [1 / len(trace.kinds)] * len(trace.kinds)
    kinds, weights = kinds_of(load)
    if not load.rows:
        kinds = [replace(one, rows=rows) for one in kinds]
    return kinds, weights


def _with_some_sizes(spec: TrialSpec, load: LoadSpec, trace: Trace | None) -> TrialSpec:
    """The spec with a size for every dimension that the traffic varies, for the warm-up."""
    likely = {name: max(sizes, key=lambda size: sizes[size]) for name, sizes in load.dims.items()}
    first = dict(trace.kinds[0].dims) if trace is not None else likely
    dims = {**first, **spec.workload.dims}
    workload = spec.workload.model_copy(update={"dims": dims})
    return spec.model_copy(update={"workload": workload}) if dims != spec.workload.dims else spec


def read_trace(load: LoadSpec) -> Trace | None:
    """Read the trace of a load test; None: its arrivals are no trace.

    Raises:
        SpecError: there is no such file, or it cannot be read as a trace.
    """
    if not load.arrivals.path:
        return None
    path = expand_home(load.arrivals.path)
    try:
        with open_regular(path) as file:
            data = file.read(MOST_TRACE_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"The trace `{path}` cannot be read: {error.strerror or error}.", hint="Give another file."
        ) from error
    if len(data) > MOST_TRACE_BYTES:
        raise SpecError(
            f"The trace `{path}` has more than {MOST_TRACE_BYTES >> 20} MiB.", hint="Give a part of it."
        )
    return parse_trace(data.decode("utf-8-sig", errors="replace"), name=path.name)
