"""The commands `backup` and `restore`: a copy of the result store, and the way back."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from core.cli.output import Json, print_json, print_lines
from core.run.ledger import settle
from core.show.words import counted
from core.store import STORE_NAME, Checked, Store, home, lost_by_restore
from core.store import restore as restored
from core.wire.errors import StoreError
from core.wire.files import expanded
from core.wire.units import size


def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="The file to write; default: ortune-backup-DATE-TIME.db in this folder.", show_default=False
        ),
    ] = None,
    *,
    json_: Json = False,
) -> None:
    """Copy the result store to one file, while others may use it, and check every row of it.

    Models, variants, traces and scores of accuracies are files of their own in ORTune's folder: copy that
    folder to keep them too.
    """
    store = Store()
    target = expanded(file or time.strftime("ortune-backup-%Y%m%d-%H%M%S.db")).absolute()
    found = store.backup(target)
    file_bytes = target.stat().st_size
    if json_:
        print_json({"file": str(target), "file_bytes": file_bytes, **asdict(found), "damaged": found.damaged})
        return
    print_lines(
        [
            f"Wrote {target} ({size(file_bytes)}): {_content(found)}.",
            f"Models, variants, traces and scores are files in {store.folder} and no part of it.",
        ]
    )


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also where the store holds results that the backup has not.")
    ] = False,
    json_: Json = False,
) -> None:
    """Put a backup in the place of the result store; the present one is kept beside it.

    Where the store holds results that the backup has not, a terminal is asked first; without one it is
    refused, unless --force is given.
    """
    _check_idle()
    source = expanded(file)
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
    before = [f"What was there before is kept as {kept}."] if kept is not None else []
    print_lines([f"{store.path} holds {_content(found)} now.", *before])


def _check_newer(source: Path, *, ask: bool) -> None:
    """Refuse to replace results that the backup has not, unless a person agrees.

    Raises:
        StoreError: there are some, and nobody agreed.
    """
    lost = lost_by_restore(source)
    if not lost:
        return
    told = f"The store holds {counted(lost, 'result')} that `{source}` has not."
    if not (ask and typer.confirm(f"{told} Replace it? The present one is kept beside it.", err=True)):
        raise StoreError(told, hint="Make a `backup` of it first; add --force to replace it in any case.")


def _check_idle() -> None:
    """Refuse while somebody measures: the result would find no row to go to.

    Raises:
        StoreError: a trial waits or runs; or the store is of a newer version.
    """
    path = home() / STORE_NAME
    if not path.exists():
        return
    try:
        store = Store(path)
        settle(store)
        active = [*store.trials(state="RUNNING", limit=1), *store.trials(state="WAITING", limit=1)]
    except StoreError:
        if path.exists():  # else it was damaged, and is kept under another name
            raise
        return
    if active:
        raise StoreError(
            f"Trial `{active[0].id}` is {active[0].state.lower()}: its result would be lost.",
            hint="Wait until it has ended, or cancel it.",
        )


def _content(found: Checked) -> str:
    trials, races, accuracies = found.trials[0], found.comparisons[0], found.accuracies[0]
    said = f"{counted(trials, 'trial')}, {counted(races, 'race')}, {accuracies} of accuracy, "
    said += f"{found.studies[0]} search" + ("es" if found.studies[0] != 1 else "")
    return f"{said}; {found.damaged} damaged" if found.damaged else f"{said}; all whole"
