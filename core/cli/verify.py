"""The command `verify`: checks run, outputs and speed of a recorded configuration on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core.api import exporting
from core.api.asked_runtimes import one_runtime
from core.api.results import Result
from core.cli.keys import Trust
from core.cli.options import WaitQuiet, wait_quiet_s
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Json,
    Quiet,
    Wide,
    check_output_path,
    exit_code,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.evidence.verification import MARGIN
from core.show.sheets.verifications import as_junit, as_markdown
from core.spec.text_values import seconds, share
from core.wire.errors import SpecError, TunerError, record_from_error

EXITS: Mapping[str, int] = {
    **{"CONFIRMED": 0, "NOT_MEASURED": 0},  # all requested checks match the recording
    **{"FAILED": EXIT_FAILED, "UNDECIDED": EXIT_UNDECIDED},
}


def verify(
    file: Annotated[
        Path,
        typer.Argument(
            help="Bundle (`export --format bundle`) or YAML file; a YAML file holds no recorded outputs.",
            metavar="X.zip|X.yaml",
            show_default=False,
        ),
    ],
    *,
    no_measure: Annotated[
        bool,
        typer.Option(
            "--no-measure",
            help="Check facts and outputs only, without measuring, for example on a build machine.",
        ),
    ] = False,
    margin: Annotated[
        str,
        typer.Option(
            help="A speed-up within this margin of the recorded one counts as reproduced.",
            metavar="SHARE|N%",
        ),
    ] = f"{100 * MARGIN:g}%",
    effort: Annotated[
        Literal["quick", "standard", "publish"] | None,
        typer.Option(help="Effort of the measurement. Default: the recorded one.", show_default=False),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Longest time to measure. Default: that of the effort.",
            metavar="SECONDS|30s|2m",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Write the numbers of this machine to a file, for --against.",
            metavar="BASELINE.json",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Compare with numbers that --record wrote on this machine; those of another "
            "machine are refused.",
            metavar="BASELINE.json",
            show_default=False,
        ),
    ] = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            help="With --against: exit code 1 if significantly slower by more than this, 3 if "
            "that is undecided. Default: the margin.",
            metavar="SHARE|N%",
            show_default=False,
        ),
    ] = None,
    expert: Annotated[
        bool,
        typer.Option("--expert", help="Let the file turn on `expert`. Use it only for files that you trust."),
    ] = False,
    require_signature: Annotated[
        bool,
        typer.Option(
            "--require-signature",
            help="Refuse the file unless a key of the trust file signed it.",
        ),
    ] = False,
    signed_by: Annotated[
        list[str] | None,
        typer.Option(
            help="Refuse the file unless this name of the trust file signed it. Repeatable: one of them.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    trust: Trust = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            help="Environment to verify in: own, or one from `runtimes list`. Default: the one of the "
            "recorded name.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    wait_quiet: WaitQuiet = None,
    format_: Annotated[
        Literal["text", "json", "junit", "md"],
        typer.Option("--format", help="junit: XML for CI systems. md: tables for a document."),
    ] = "text",
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check that a recorded configuration runs here, with the same outputs and as fast.

    ORTune first checks what needs no measuring: the model's hash, ONNX Runtime's version, providers that
    load, known settings, numbers of threads, and differences between the machines. Then it runs the model
    once and compares the outputs with the recorded ones. Last, it measures the speed-up over ONNX Runtime's
    default and, if it was recorded, over the old baseline; REPRODUCED (in JSON: HOLDS) and DIFFERS use both
    95 % intervals.

    Exit codes: 0 reproduced, or faster than recorded (with --no-measure: all checks passed) · 1 it does not
    run, outputs differ, the speed-up is smaller, a target is missed, it is slower than allowed, or a worker
    failed · 2 bad input, a changed file, a signature that is wrong or not as required, or a baseline of
    another machine · 3 something is unknown or undecided · 130 Ctrl-C.
    """
    kind = _kind(format_, json_=json_)
    try:
        allowed = share("--margin", margin)
        limit = None if fail_if_slower is None else share("--fail-if-slower", fail_if_slower)
        if record is not None:
            check_output_path(record)
        with started(Progress(sys.stderr, quiet=quiet)) as session:
            result = exporting.verify(
                file,
                measure=not no_measure,
                margin=allowed,
                effort=effort,
                budget_s=None if budget is None else seconds("--budget", budget),
                record=record,
                against=against,
                fail_if_slower=limit,
                expert=expert,
                require_signature=require_signature,
                signed_by=signed_by or (),
                trust=trust,
                runtime=one_runtime(runtime) if runtime else None,
                wait_quiet_s=wait_quiet_s(wait_quiet),
                session=session,
            )
    except TunerError as error:
        if format_ == "json" and not json_:  # `--json` needs no note
            print_json({"trial": None, "state": "FAIL", "error": record_from_error(error)})
        raise
    _print(result, kind)
    document = result.record
    if document["error"] is not None:
        print_error(document["error"]["message"], document["error"]["hint"])
        raise typer.Exit(exit_code(document["error"]))
    raise typer.Exit(EXITS[document["state"]])


def _kind(format_: str, *, json_: bool) -> str:
    if json_ and format_ not in ("text", "json"):
        raise SpecError(f"`--json` and `--format {format_}` contradict each other.", hint="Give one of them.")
    return "json" if json_ else format_


def _print(result: Result[Mapping[str, Any]], kind: str) -> None:
    match kind:
        case "json":
            print_json(result.to_dict())
        case "junit":
            print_lines([as_junit(result.record)])
        case "md":
            print_lines([as_markdown(result.record)])
        case _:
            print_sheet(result.sheet())
