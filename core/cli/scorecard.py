"""The command `scorecard`: measures a configuration as its targets require, and judges each target."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Annotated

import typer

from core.api import judging
from core.cli.options import Given, WaitQuiet, wait_quiet_s, with_settings
from core.cli.output import EXIT_FAILED, EXIT_UNDECIDED, Json, Quiet, Wide, print_error, print_json
from core.cli.sheets import print_sheet
from core.cli.watch import Progress, started
from core.evidence.targets import State

EXITS: Mapping[State, int] = {"MET": 0, "MISSED": EXIT_FAILED, "UNKNOWN": EXIT_UNDECIDED}


@with_settings
def scorecard(
    config: Annotated[
        str,
        typer.Argument(
            help="YAML file with targets, or ID of a trial that has targets.",
            metavar="X.yaml|TRIAL",
            show_default=False,
        ),
    ],
    *,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Reuse earlier measurements of this machine.")
    ] = False,
    wait_quiet: WaitQuiet = None,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Check a configuration against its targets, and show which are met.

    ORTune compares the configuration with ONNX Runtime's default at each batch size that a target names,
    measures the accuracy on labelled data where a target needs it, and runs load tests for targets under
    load. A target is met when the whole 95 % interval lies within the limit, missed when it lies outside, and
    unknown in between. Options change the configuration.

    Exit codes: 0 all targets are met · 1 a target is missed, or a worker failed · 2 bad input · 3 no target
    is missed, but one is not yet known · 130 Ctrl-C.
    """
    patience_s = wait_quiet_s(wait_quiet)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        card = partial(judging.scorecard, config, reuse=reuse, wait_quiet_s=patience_s)
        result = card(session=session, **given)
    found = result.record
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())
    for error in found.errors:
        print_error(error["message"], error["hint"])
    raise typer.Exit(EXITS[found.row.state])
