"""Imported files on the terminal: always labelled as imported, never part of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from core.api.importing import import_result, imported_sheet
from core.api.session import Session
from core.cli.options import Given
from core.cli.output import print_json
from core.cli.sheets import print_sheet
from core.wire.errors import SpecError


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


def show_imported(file: Path, *, wanted: Literal["profile", "summary"], top: int = 20, json_: bool) -> None:
    """Read `file`, store its content, and print it.

    Args:
        file: to import.
        wanted: kind of content that the command shows.
        top: rows of the tables of a profile.
        json_: print JSON.

    Raises:
        SpecError: the file cannot be read, or holds the other kind of content.
    """
    session = Session()
    result = import_result(file, wanted, session=session)
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(imported_sheet(session.store, result.record, top=top))
