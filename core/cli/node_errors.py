"""The command `node-errors`: error added and time saved by each quantized operator."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from core.cli.options import Again, Given, operators_of, with_input_options, workload_of
from core.cli.output import Json, Quiet, Wide, print_json
from core.cli.sheets import print_sheet
from core.cli.transform import sizes
from core.cli.watch import Progress, job_result, scheduler, watch
from core.evidence.node_savings import choices
from core.process.job_worker import Run
from core.run import job_types
from core.run.node_errors import check_inputs, locate_errors, located, quantized_from
from core.show import documents
from core.show.sheets.quantized import quantization_sheet
from core.store import Store
from core.store.library import resolve_model
from core.wire.errors import WorkerError


@with_input_options
def node_errors(
    variant: Annotated[
        str, typer.Argument(help="Quantized variant: its path, name or hash.", metavar="VARIANT")
    ],
    *,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            help="Size of a free dimension of the inputs. Repeatable.", metavar="NAME=N", show_default=False
        ),
    ] = None,
    again: Again = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show how much error each quantized operator adds, and how much time it saves.

    ORTune quantizes every operator alone, compares the outputs with those of the float model, and profiles
    both models in turns. The curve first excludes the operators that save the least time for the error they
    add; pass its list to `transform` as `exclude_nodes`.
    """
    store = Store()
    workload, libraries = workload_of(given, sizes(dim or [])), operators_of(given)
    record = resolve_model(store, variant)
    quantized = quantized_from(store, record)  # refuses other variants before the job waits in the queue
    known = None if again else located(store, record)
    found = known if known is not None and not (given or dim) else None
    if found is None:
        check_inputs(quantized, record, workload, libraries)
        with scheduler(store) as service:

            def look(run: Run) -> dict[str, Any]:
                machine = service.environment()
                return locate_errors(
                    store,
                    record,
                    run=run,
                    fingerprint=machine["fingerprint"],
                    workload=workload,
                    libraries=libraries,
                )

            job = job_types.task(look, kind="node_errors", what=f"errors of {record.name}")
            job_result(watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet)), json_=json_)
        found = located(store, record)
    if found is None:
        raise WorkerError("The errors of the operators were not kept.", hint="Run the command again.")
    curve = choices(found.savings)
    if json_:
        print_json(documents.node_errors(record.name, found, curve))
    else:
        flag = quantized.step.type.flag
        print_sheet(quantization_sheet(record.name, found, curve, flag))
