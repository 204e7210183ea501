"""Imported files on the terminal: always labelled as imported, never part of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from core.cli.options import Given
from core.cli.output import print_json
from core.cli.sheets import print_sheet
from core.process.job_worker import run_job
from core.run.importing import import_evidence
from core.show import documents
from core.show.sheets import imported as sheets
from core.store import Store
from core.wire.errors import SpecError
from core.wire.profile import profile_from_dict


def refuse_beside_import(others: Sequence[object], given: Given) -> None:
    """Refuse `--import` together with options of a run.

    Raises:
        SpecError: there are such options.
    """
    if given or any(one for one in others):
        raise SpecError(
            "`--import` shows a file, and takes no model, configuration or setting.",
            hint="Remove the model, the configuration and the settings.",
        )


def show_imported(
    store: Store, file: Path, *, wanted: Literal["profile", "summary"], top: int = 20, json_: bool = False
) -> None:
    """Read `file`, store its content, and print it.

    Args:
        store: saves it.
        file: to import.
        wanted: kind of content that the command shows.
        top: rows of the tables of a profile.
        json_: print JSON.

    Raises:
        SpecError: the file cannot be read, or holds the other kind of content.
    """
    one = import_evidence(store, file, run_job, wanted=wanted)
    data = store.shelf.data(one.id)
    if json_:
        print_json(documents.imported(store, one))
    elif one.kind == "profile":
        profile = profile_from_dict(data)
        print_sheet(sheets.profiled(one.label, profile, top=top, format_=one.format, at=one.created_at))
    else:
        print_sheet(sheets.summary(one.label, data, at=one.created_at))
