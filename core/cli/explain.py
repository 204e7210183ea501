"""The command `explain`: where the difference between two results comes from."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core import wire
from core.cli.output import Json, Quiet, Wide, exit_code, print_error, print_json
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.run import job_types
from core.run.explanation import TIMEOUT_S, Pair, explain_plan, explained, pair, with_its_baseline
from core.show import documents
from core.show.sheets.differences import explained as sheet
from core.store import Store
from core.wire.errors import ErrorRecord, SpecError


def explain(
    trials: Annotated[
        list[str],
        typer.Argument(
            help="ID of the trial to explain; before it, the one to compare with. Default: its own baseline.",
            metavar="[BASELINE] TRIAL",
        ),
    ],
    *,
    top: Annotated[int, typer.Option(help="Number of rows of the table of nodes.", min=1)] = 15,
    again: Annotated[
        bool, typer.Option("--again", help="Profile both again, even if an explanation is stored.")
    ] = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where the difference between two results comes from.

    ORTune profiles both configurations in turns, in separate runs, and matches their nodes through ONNX
    Runtime's fusions. The parts, including an unexplained one, add up to the difference that the comparison
    measured. If the comparison is undecided, the output says how to measure longer.
    """
    store = Store()
    if len(trials) > 2:
        raise SpecError(
            f"`explain` compares two trials, but got {len(trials)}.", hint="Give one trial, or two."
        )
    of = pair(store, *trials) if len(trials) == 2 else with_its_baseline(store, trials[0])
    found = None if again else explained(store, of)
    error = None
    if found is None:
        error = _explain(store, of, quiet=quiet)
        found = explained(store, of) if error is None else None
    if json_:
        print_json(documents.explanation(store, of, found, error))
    elif found is not None:
        print_sheet(sheet(of, found, top=top, comparison=documents.longer_comparison(store, of, found)))
    if error is not None:
        print_error(error["message"], error["hint"])
    raise typer.Exit(exit_code(error))


def _explain(store: Store, of: Pair, *, quiet: bool) -> ErrorRecord | None:
    """Run the job and return its error; None: it succeeded."""
    try:
        with scheduler(store) as service:
            plan = explain_plan(store, of, fingerprint=service.environment()["fingerprint"])
            job = job_types.worker(wire.EXPLAIN, plan, what=of.what, timeout_s=TIMEOUT_S)
            return watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet)).error
    except Interrupted as interrupted:
        interrupted.document = documents.explanation(store, of, None)
        raise
