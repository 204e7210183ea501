"""The nodes of a model: its graph before and after optimization, and the error of each quantized operator."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.api import arguments
from core.api.models import ModelLike, reference
from core.api.requests import Config, spec_of
from core.api.results import Result
from core.api.session import OnProgress, Session, default_session, result_of
from core.api.settings import given_of, inputs_of
from core.evidence.graph_changes import changes
from core.evidence.graph_facts import GraphRow, ProfileMatch, errors, rows, times
from core.evidence.node_savings import choices
from core.process.job_worker import Run
from core.run import job_types
from core.run.graph import check_drawable, draw_optimized, optimized_graph, own_graph
from core.run.graph import optimized_at as optimized_at
from core.run.graph_layout import Layout as Layout
from core.run.graph_layout import layout as layout
from core.run.job import Job
from core.run.node_errors import Located, check_inputs, locate_errors, located, quantized_from
from core.run.node_errors import located_at as located_at
from core.run.preparation import resolve_trial
from core.show import documents
from core.show.sheets import Sheet, graphs
from core.show.sheets.quantized import quantization_sheet
from core.spec import TrialSpec, WorkloadSpec
from core.store import ModelRecord, Store
from core.store.library import resolve_model
from core.wire.errors import SpecError, WorkerError, nearest
from core.wire.graph import Graphs
from core.wire.profile import Profile, profile_from_dict

LISTED_NODES = 200  # rows of the table of a graph

# --- the graph ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownGraph:
    """A graph with what is known of its nodes."""

    model: ModelRecord
    graphs: Graphs
    optimized: bool  # the graph after ONNX Runtime's optimizations, not the model's own
    nodes: Sequence[GraphRow]  # those that were asked for
    count: int  # of all nodes
    profile: str | None = None  # trial with times of the nodes
    ran: ProfileMatch | None = None  # the times


@arguments.checked()
def graph(
    model: ModelLike | None = None,
    config: Config = None,
    *,
    optimized: bool = False,
    profile: arguments.Ref | None = None,
    op_types: str | Collection[str] = (),
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[ShownGraph]:
    """Return the nodes of a model, before or after ONNX Runtime optimizes it.

    Args:
        model: see `tune`.
        config: configuration of the session that optimizes the graph, see `tune`.
        optimized: after the optimizations; creates a session unless that was done before.
        profile: result or ID of a profile of this model, for the time of each node.
        op_types: only nodes of these operators, in any case, with or without domain. Empty: all.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: see `tune`.

    Raises:
        SpecError: a setting is invalid, the trial is no profile of this model, or no node has the operator.
        ModelError: there is no such model, or it has more nodes than can be drawn.
        TunerError: the session could not be created, or the job was cancelled.
    """
    session = session or default_session()
    profile_id = None if profile is None else arguments.ident("profile", profile)
    store, spec = session.store, spec_of(model, config, given_of(settings), session)
    session.admit(spec)
    check_drawable(spec)
    record = resolve_trial(spec, store, session.inspect).record
    profiled = None if profile_id is None else _profile_of(store, profile_id, record)
    if optimized:
        found = _optimized(session, spec, record, on_progress, cancel)
    else:
        found = own_graph(store, record, session.inspect)
    side = found.optimized if optimized else found.model
    assert side is not None, record.name  # `_optimized` refuses it
    quantized = located(store, record)
    ran = None if profiled is None else times(side, profiled)
    nodes = rows(side, ran, {} if quantized is None else errors(side, quantized.savings.units))
    shown = ShownGraph(
        model=record,
        graphs=found,
        optimized=optimized,
        nodes=_of_type(nodes, op_types),
        count=len(nodes),
        profile=profile_id,
        ran=ran,
    )
    result = session.last = Result(
        kind="graph",
        id=record.content_sha256,
        read=lambda: shown,
        document=_graph_document,
        content=graph_sheet,
    )
    return result


def graph_job(session: Session, spec: TrialSpec, record: ModelRecord) -> Job:
    """Return the checked job that creates the session of `spec` for `record` and stores its optimized graph.

    Raises:
        SpecError: another engine runs it, or the session does not admit it.
    """
    session.admit(spec)
    check_drawable(spec)
    work = partial(draw_optimized, session.store, spec, environment=session.scheduler.environment)
    return job_types.task(work, kind="graph", what=f"graph of {record.name}", specs=(spec,))


def graph_sheet(shown: ShownGraph, *, top: int = LISTED_NODES) -> Sheet:
    """Return counts, changes and `top` rows of nodes."""
    before, after = shown.graphs.model, shown.graphs.optimized
    changed = None
    if shown.optimized:
        assert after is not None, "requested"
        changed = graphs.changes_words(changes(before, after), before.count, after.count)
    side = after if shown.optimized and after is not None else before
    return graphs.graph(
        shown.model.name,
        shown.nodes,
        of=shown.count,
        changed=changed,
        found=shown.ran,
        remarks=[*shown.graphs.notes, *side.notes],
        most=top,
    )


def _graph_document(shown: ShownGraph) -> Mapping[str, Any]:
    return documents.graph(
        shown.model,
        shown.graphs,
        shown.nodes,
        count=shown.count,
        optimized=shown.optimized,
        profile=shown.profile,
        ran=shown.ran,
    )


def _profile_of(store: Store, trial_id: str, record: ModelRecord) -> Profile:
    trial = store.trial(trial_id)
    if trial.kind != "profile" or trial.state != "COMPLETE":
        raise SpecError(
            f"The trial `{trial.id[:12]}` ({trial.kind}, {trial.state}) holds no profile.",
            hint="Profile the model with `profile`, and give the ID of that trial.",
        )
    if trial.model_sha256 != record.content_sha256:
        raise SpecError(
            f"The profile `{trial.id[:12]}` is of `{trial.model_name}`, not of `{record.name}`.",
            hint="Give the ID of a profile of this model.",
        )
    return profile_from_dict(trial.facts["profile"])


def _optimized(
    session: Session,
    spec: TrialSpec,
    record: ModelRecord,
    on_progress: OnProgress | None,
    cancel: threading.Event | None,
) -> Graphs:
    store, fingerprint = session.store, session.fingerprint
    found = optimized_graph(store, spec, record, fingerprint=fingerprint)
    if found is None:
        result_of(session.run(graph_job(session, spec, record), on_progress=on_progress, cancel=cancel))
        found = optimized_graph(store, spec, record, fingerprint=fingerprint)
    if found is None or found.optimized is None:
        raise WorkerError("The graph was not kept.", hint="Run the command again.")
    return found


def _of_type(listed: Sequence[GraphRow], wanted: Collection[str]) -> list[GraphRow]:
    """Return the nodes of these operators; names in any case, with or without domain.

    Raises:
        SpecError: the graph has no node of such an operator.
    """
    known = {one.node.op_type for one in listed}
    names = {name.lower() for name in known} | {name.rpartition(".")[2].lower() for name in known}
    for one in wanted:
        if one.lower() not in names:
            raise SpecError(
                f"The graph has no node of the operator `{one[:40]}`.{nearest(one, sorted(known))}",
                hint=f"Choose among {', '.join(sorted(known)[:20])}.",
            )
    asked = {one.lower() for one in wanted}
    return [
        one
        for one in listed
        if not asked or {one.node.op_type.lower(), one.node.op_type.rpartition(".")[2].lower()} & asked
    ]


# --- errors of quantized operators --------------------------------------------------------------------------


@arguments.checked(variant=arguments.model)
def node_errors(
    variant: ModelLike,
    *,
    again: bool = False,
    session: Session | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **settings: Any,
) -> Result[Located]:
    """Return how much error each quantized operator adds, and how much time it saves.

    Args:
        variant: a quantized variant; see `tune`.
        again: measure again, even if a result is stored; other `settings` always measure again.
        session: see `tune`.
        on_progress: see `tune`.
        cancel: see `tune`.
        settings: of the inputs (`batch_size`, `dims`, `feeds`, `image_mean`, `image_std`, `seed`), and
            `custom_op_libraries`.

    Raises:
        SpecError: the last step of the variant is no quantization, or a setting is invalid.
        ModelError: there is no such variant, or its float model is gone.
        TunerError: a worker failed, or the job was cancelled.
    """
    session = session or default_session()
    store = session.store
    workload, libraries = inputs_of(settings)
    record = resolve_model(store, reference(variant, session), run=session.inspect)
    quantized = quantized_from(store, record)  # refuses other variants also if an answer is stored
    found = None if again else located(store, record)
    if found is None or given_of(settings):
        job = node_errors_job(session, record, workload, libraries)
        result_of(session.run(job, on_progress=on_progress, cancel=cancel))
        found = located(store, record)
    if found is None:
        raise WorkerError("The errors of the operators were not kept.", hint="Run the command again.")
    answer, curve = found, choices(found.savings)
    result = session.last = Result(
        kind="node-errors",
        id=record.content_sha256,
        read=lambda: answer,
        document=lambda one: documents.node_errors(record.name, one, curve),
        content=lambda one: quantization_sheet(record.name, one, curve, quantized.step.type.flag),
    )
    return result


def node_errors_job(
    session: Session, record: ModelRecord, workload: WorkloadSpec, libraries: Sequence[str] = ()
) -> Job:
    """Return the checked job that locates the errors of the quantized variant `record`.

    Args:
        session: holds the models and receives the answer.
        record: the variant.
        workload: inputs, and the batch that is timed.
        libraries: custom operator libraries, by their names in the operator's folder.

    Raises:
        SpecError: its last step is no quantization, or the models do not take these inputs.
        ModelError: its float model is gone.
    """
    check_inputs(quantized_from(session.store, record), record, workload, libraries)

    def look(run: Run) -> Mapping[str, Any]:
        return locate_errors(
            session.store,
            record,
            run=run,
            fingerprint=session.fingerprint,
            workload=workload,
            libraries=libraries,
        )

    what = f"errors of {record.name}"
    return job_types.task(look, kind="node_errors", what=what, libraries=libraries)
