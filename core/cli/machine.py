"""The command `machine`: machine facts and the queue, the self-test and the peak speed."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from core.api import machine as machines
from core.api.results import Result
from core.cli.output import EXIT_UNDECIDED, Json, Quiet, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.evidence.noise_check import evaluate
from core.evidence.verdict import Grade
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
    """Show this machine, which providers load on it and who waits for it, or measure its noise or peak speed.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the self-test is rejected (grade F) · 130 Ctrl-C.
    """
    if self_test and peaks:
        raise SpecError("`--self-test` and `--peaks` contradict each other.", hint="Run one after the other.")
    result: Result[Any]
    if self_test or peaks:
        with started(Progress(sys.stderr, quiet=quiet)) as session:
            measure = machines.self_test if self_test else machines.peaks
            result = measure(session=session)
    else:
        result = machines.machine()
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
    if self_test and evaluate(result.record).grade == Grade.F:
        raise typer.Exit(EXIT_UNDECIDED)
