"""The command `show`."""

from __future__ import annotations

from typing import Annotated

import typer

from core.api.measuring import comparison_sheet, trial_sheet
from core.api.session import Session, clean_up
from core.api.upgrading import upgrade_result
from core.cli.output import Json, Wide, print_json
from core.cli.sheets import print_sheet
from core.store import Store
from core.wire.errors import StoreError


def show(
    ref: Annotated[
        str,
        typer.Argument(
            help="ID of a trial, a comparison or an upgrade, or its first 6 or more characters.",
            metavar="TRIAL",
        ),
    ],
    *,
    top: Annotated[int, typer.Option(help="Number of rows of the tables of a profile.", min=1)] = 20,
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """Show a stored result, or why there is none."""
    store = Store()
    clean_up(store)
    try:
        trial = store.trial(ref)
    except StoreError as unknown:
        _show_comparison(store, ref, unknown, json_=json_)
        return
    if json_:
        print_json(trial.to_dict())
    else:
        print_sheet(trial_sheet(store, trial, top=top))


def _show_comparison(store: Store, ref: str, unknown: StoreError, *, json_: bool) -> None:
    try:
        comparison = store.comparison(ref)
    except StoreError:
        _show_upgrade(store, ref, unknown, json_=json_)
        return
    if json_:
        trials = store.trials_of(comparison.id)
        print_json({**comparison.to_dict(), "trials": [trial.to_dict() for trial in trials]})
    else:
        print_sheet(comparison_sheet(store, comparison))


def _show_upgrade(store: Store, ref: str, unknown: StoreError, *, json_: bool) -> None:
    result = upgrade_result(Session(store), ref)
    try:
        document = result.to_dict()
    except StoreError:
        raise unknown from None
    if json_:
        print_json(document)
    else:
        print_sheet(result.sheet())
