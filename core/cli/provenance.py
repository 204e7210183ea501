"""The command `provenance`: checks the digests from a model to an exported file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from core.api.provenance import provenance as check
from core.api.session import Session
from core.cli.keys import Trust
from core.cli.output import EXIT_FAILED, EXIT_UNDECIDED, Json, Wide, print_json
from core.cli.sheets import print_sheet

EXITS: Mapping[str, int] = {"INTACT": 0, "BROKEN": EXIT_FAILED, "INCOMPLETE": EXIT_UNDECIDED}


def provenance(
    ref: Annotated[
        str,
        typer.Argument(
            help="ID of a trial, or a YAML file or bundle.", metavar="TRIAL|X.yaml|X.zip", show_default=False
        ),
    ],
    *,
    trust: Trust = None,
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """Check the digests of a result from its model to the file it was exported to.

    ORTune compares each recorded digest with what is there now: model, variant, stored result, raw
    measurements, and the file. Nothing is measured.

    Exit codes: 0 every digest matches · 1 a digest differs · 2 bad input · 3 a link is missing here.
    """
    with Session() as session:
        result = check(ref, trust=trust, session=session)
        if json_:
            print_json(result.to_dict())
        else:
            print_sheet(result.sheet())
    raise typer.Exit(EXITS[result.record.state])
