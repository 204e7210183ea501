"""The command `machine`: machine facts, the self-test and the peak speed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from core import wire
from core.cli.output import EXIT_UNDECIDED, Json, Quiet, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, job_result, scheduler, watch
from core.evidence.noise_check import evaluate
from core.evidence.verdict import Grade
from core.process.job_worker import run_job
from core.run import job_types
from core.show import documents
from core.show.sheets import models_and_machines
from core.show.sheets import peaks as peak_sheets
from core.store import Store
from core.wire.errors import SpecError


def machine(
    *,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test",
            help="Compare ONNX Runtime's default with itself, to measure the noise of this machine.",
        ),
    ] = False,
    peaks: Annotated[
        bool,
        typer.Option(
            "--peaks",
            help="Measure the peak speed of this machine: a matrix product and a memory copy. "
            "`profile` compares operators with it.",
        ),
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show this machine and which providers load on it, or measure its noise or peak speed.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the self-test is rejected (grade F) · 130 Ctrl-C.
    """
    if self_test and peaks:
        raise SpecError("`--self-test` and `--peaks` contradict each other.", hint="Run one after the other.")
    if peaks:
        _peaks(json_=json_, quiet=quiet)
        return
    if self_test:
        _self_test(json_=json_, quiet=quiet)
        return
    environment = run_job(wire.ENVIRONMENT, {})
    if json_:
        print_json(environment)
    else:
        print_sheet(models_and_machines.machine(environment))


def _peaks(*, json_: bool, quiet: bool) -> None:
    with scheduler(Store()) as service:
        status = watch(service, service.submit(job_types.peaks()), Progress(sys.stderr, quiet=quiet))
    result = job_result(status, json_=json_)
    if json_:
        print_json(documents.peaks(result))
    else:
        print_sheet(peak_sheets.peaks(result))


def _self_test(*, json_: bool, quiet: bool) -> None:
    with scheduler(Store()) as service:
        status = watch(service, service.submit(job_types.self_test()), Progress(sys.stderr, quiet=quiet))
    result = job_result(status, json_=json_)
    said = evaluate(result)
    if json_:
        print_json(documents.noise_check(result))
    else:
        print_sheet(models_and_machines.noise_check_sheet(said))
    if said.grade == Grade.F:
        raise typer.Exit(EXIT_UNDECIDED)
