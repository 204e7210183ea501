"""The command `graph`: the nodes of a model or of its optimized graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from core.api.references import config_from
from core.api.settings import spec_data
from core.cli.options import CONFIG, Given, Model, with_settings
from core.cli.output import Json, Quiet, Wide, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, job_result, scheduler, watch
from core.evidence.graph_changes import changes
from core.evidence.graph_facts import Row, errors, rows, times
from core.process.job_worker import run_job
from core.run import job_types
from core.run.graph import check_drawable, draw_optimized, optimized_graph, own_graph
from core.run.node_errors import located
from core.run.preparation import resolve_trial
from core.show import documents
from core.show.sheets.graphs import changes_words
from core.show.sheets.graphs import graph as sheet
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord, Store
from core.wire.errors import SpecError, WorkerError, nearest
from core.wire.graph import Graphs
from core.wire.profile import Profile, profile_from_dict


@with_settings
def graph(
    model: Model = None,
    *,
    config: Annotated[
        str | None,
        typer.Option(
            help="Configuration of the session that optimizes the graph.", metavar=CONFIG, show_default=False
        ),
    ] = None,
    optimized: Annotated[
        bool,
        typer.Option(
            "--optimized", help="Show the graph after ONNX Runtime's optimizations; this creates a session."
        ),
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option(help="ID of a profile of this model, to add the time of each node.", metavar="TRIAL"),
    ] = None,
    op_type: Annotated[
        list[str] | None,
        typer.Option(help="Only nodes of this operator type. Repeatable.", metavar="T", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of rows of the table.", min=1)] = 200,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show a model as a graph of nodes, before or after ONNX Runtime optimizes it.

    Lists each node with its operator, type, shape and weights. `--optimized` adds which nodes of the model it
    replaces and which nodes were inserted; `--profile` adds its time and provider.
    """
    store = Store()
    expert = bool(given.get("expert"))
    base = config_from(config, store, other_model=model is not None, expert=expert)
    spec = spec_from_dict(spec_data(base, model, given))
    check_drawable(spec)
    record = resolve_trial(spec, store, run_job).record
    taken = _profile(store, profile, record)
    found = _graphs(store, spec, record, optimized=optimized, quiet=quiet, json_=json_)
    side = found.optimized if optimized else found.model
    assert side is not None, record.name  # `_graphs` sets it or raises
    located_errors = located(store, record)
    units = errors(side, located_errors.savings.units) if located_errors is not None else {}
    ran = None if taken is None else times(side, taken)
    listed = rows(side, ran, units)
    shown = _of_type(listed, op_type or [])
    remarks = [*found.notes, *side.notes]
    if json_:
        print_json(
            documents.graph(
                record,
                found,
                shown,
                count=len(listed),
                optimized=optimized,
                profile=profile,
                ran=ran,
            )
        )
    else:
        print_sheet(
            sheet(
                record.name,
                shown,
                of=len(listed),
                changed=_changed(found) if optimized else None,
                found=ran,
                remarks=remarks,
                most=top,
            )
        )


def _profile(store: Store, trial_id: str | None, record: ModelRecord) -> Profile | None:
    """Return the requested profile.

    Raises:
        StoreError: the trial does not exist.
        SpecError: it is not a profile, or is of another model.
    """
    if trial_id is None:
        return None
    trial = store.trial(trial_id)
    if trial.kind != "profile" or trial.state != "COMPLETE":
        raise SpecError(
            f"The trial `{trial.id[:12]}` ({trial.kind}, {trial.state}) holds no profile.",
            hint="Profile the model with `ortune profile`, and give the ID of that trial.",
        )
    if trial.model_sha256 != record.content_sha256:
        raise SpecError(
            f"The profile `{trial.id[:12]}` is of `{trial.model_name}`, not of `{record.name}`.",
            hint="Give the ID of a profile of this model.",
        )
    return profile_from_dict(trial.facts["profile"])


def _graphs(
    store: Store, spec: TrialSpec, record: ModelRecord, *, optimized: bool, quiet: bool, json_: bool
) -> Graphs:
    if not optimized:
        return own_graph(store, record, run_job)
    with scheduler(store) as service:
        fingerprint = service.environment()["fingerprint"]
        found = optimized_graph(store, spec, record, fingerprint=fingerprint)
        if found is None:
            look = partial(draw_optimized, store, spec, environment=service.environment)
            job = job_types.task(look, kind="graph", what=f"graph of {record.name}", specs=(spec,))
            job_result(watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet)), json_=json_)
            found = optimized_graph(store, spec, record, fingerprint=fingerprint)
    if found is None or found.optimized is None:
        raise WorkerError("The graph was not kept.", hint="Run the command again.")
    return found


def _changed(found: Graphs) -> str:
    assert found.optimized is not None, "requested"
    return changes_words(changes(found.model, found.optimized), found.model.count, found.optimized.count)


def _of_type(listed: Sequence[Row], wanted: Sequence[str]) -> list[Row]:
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
