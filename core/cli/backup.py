"""The commands `backup` and `restore`: copy the result store and restore it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from core.api.session import clean_up
from core.cli.output import Json, print_json, print_lines
from core.show.words import counted
from core.store import STORE_NAME, CheckResult, Store, home, lost_by_restore
from core.store import restore as restored
from core.wire.errors import StoreError
from core.wire.files import expand_home
from core.wire.units import size


def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File to write. Default: ortune-backup-DATE-TIME.db in this folder.", show_default=False
        ),
    ] = None,
    *,
    json_: Json = False,
) -> None:
    """Copy the result store to one file, even while it is in use, and check every row.

    The file does not hold models, variants, traces and accuracy scores: copy ORTune's folder to keep them.
    """
    store = Store()
    target = expand_home(file or time.strftime("ortune-backup-%Y%m%d-%H%M%S.db")).absolute()
    found = store.backup(target)
    file_bytes = target.stat().st_size
    if json_:
        print_json({"file": str(target), "file_bytes": file_bytes, **asdict(found), "damaged": found.damaged})
        return
    print_lines(
        [
            f"Wrote {target} ({size(file_bytes)}): {_content(found)}.",
            f"It does not hold models, variants, traces and scores: these are files in {store.folder}.",
        ]
    )


def restore(
    file: Annotated[Path, typer.Argument(help="File that `backup` wrote.")],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Replace the store even if it holds results that the backup lacks."),
    ] = False,
    json_: Json = False,
) -> None:
    """Replace the result store with a backup, and keep a copy of the current store.

    If the store holds results that the backup lacks, ORTune asks first. Without a terminal it refuses, unless
    --force is given.
    """
    _check_idle()
    source = expand_home(file)
    if not force:
        _check_newer(source, ask=not json_ and sys.stdin.isatty() and sys.stderr.isatty())
    kept = restored(source)
    store = Store()
    found = store.check()
    if json_:
        previous = str(kept) if kept is not None else None
        print_json(
            {"store": str(store.path), "previous": previous, **asdict(found), "damaged": found.damaged}
        )
        return
    before = [f"The previous store is kept as {kept}."] if kept is not None else []
    print_lines([f"{store.path} now holds {_content(found)}.", *before])


def _check_newer(source: Path, *, ask: bool) -> None:
    """Refuse to replace results that the backup lacks, unless the user agrees.

    Raises:
        StoreError: there are such results, and the user did not agree.
    """
    lost = lost_by_restore(source)
    if not lost:
        return
    told = f"The store holds {counted(lost, 'result')} that `{source}` lacks."
    if not (ask and typer.confirm(f"{told} Replace it? A copy of the current store is kept.", err=True)):
        raise StoreError(told, hint="Make a `backup` first, then add --force.")


def _check_idle() -> None:
    """Refuse during a measurement, whose result could not be stored in the replaced store.

    Raises:
        StoreError: a trial waits or runs, or the store is of a newer version.
    """
    path = home() / STORE_NAME
    if not path.exists():
        return
    try:
        store = Store(path)
        clean_up(store)
        active = [*store.trials(state="RUNNING", limit=1), *store.trials(state="WAITING", limit=1)]
    except StoreError:
        if path.exists():  # else it was damaged and has been renamed
            raise
        return
    if active:
        raise StoreError(
            f"Trial `{active[0].id}` is {active[0].state.lower()}: its result would be lost.",
            hint="Wait until it has ended, or cancel it.",
        )


def _content(found: CheckResult) -> str:
    trials, comparisons, accuracies = found.trials[0], found.comparisons[0], found.accuracies[0]
    said = f"{counted(trials, 'trial')}, {counted(comparisons, 'comparison')}, {accuracies} of accuracy, "
    said += f"{found.studies[0]} search" + ("es" if found.studies[0] != 1 else "")
    return f"{said}; {found.damaged} damaged" if found.damaged else f"{said}; no damage found"
