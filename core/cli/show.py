"""The command `show`."""

from __future__ import annotations

from typing import Annotated

import typer

from core.cli.output import Json, Wide, print_json
from core.cli.sheets import print_sheet
from core.evidence.measurement import Trial
from core.evidence.roofline import peaks_of
from core.run.job_log import clean_up
from core.show.sheets import Line, Sheet, comparisons
from core.show.sheets import trials as sheets
from core.store import Store
from core.wire.errors import StoreError
from core.wire.profile import profile_from_dict


def show(
    ref: Annotated[
        str,
        typer.Argument(
            help="ID of a trial or a comparison, or its first 6 or more characters.", metavar="TRIAL"
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
    elif trial.result is None:
        print_sheet(sheets.failed(trial))
    elif trial.kind == "profile":
        measured = store.peaks(trial.fingerprint)
        peaks = [] if measured is None else peaks_of(measured)
        print_sheet(sheets.profiled(trial, profile_from_dict(trial.result["profile"]), top=top, peaks=peaks))
    else:
        sheet = sheets.measured(trial, _labels(store, trial))
        print_sheet(Sheet(sheet.headline, [*sheet.parts, *_incomplete_reason(trial)]))


def _show_comparison(store: Store, ref: str, unknown: StoreError, *, json_: bool) -> None:
    try:
        comparison = store.comparison(ref)
    except StoreError:
        raise unknown from None
    trials = store.trials_of(comparison.id)
    if json_:
        print_json({**comparison.to_dict(), "trials": [trial.to_dict() for trial in trials]})
    elif comparison.result:
        print_sheet(comparisons.comparison_sheet(comparison, trials))
    else:
        print_sheet(
            Sheet(
                f"comparison {comparison.id} · {comparison.state}",
                [comparisons.configurations(comparison, trials)],
            )
        )


def _labels(store: Store, trial: Trial) -> dict[str, str]:
    """Return the labels of the trials in its comparison."""
    try:
        return {one.trial: one.label for one in store.comparison(trial.comparison).contestants}
    except StoreError:  # deleted, or stored by a version without comparisons
        return {}


def _incomplete_reason(trial: Trial) -> list[Line]:
    """Return why a trial with numbers is not complete."""
    if trial.error is None:
        return []
    told = f"{trial.state}: {trial.error['message']} {trial.error['hint']}".strip()
    return [Line(told, "red", apart=True)]
