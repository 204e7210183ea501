"""The commands `backup` and `restore`: copy the result store and restore it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from core.api.session import clean_up
from core.cli.output import Json, print_error, print_json, print_lines
from core.show.words import counted
from core.spec.text_values import seconds
from core.store import STORE_NAME, BackupFolder, CheckResult, Store, home, lost_by_restore
from core.store import restore as restored
from core.store.database import remove_drafts
from core.wire.errors import SpecError, StoreError, TunerError
from core.wire.files import expand_home
from core.wire.units import size

KEPT = 20  # backups in a folder
PREFIX = "ortune-backup-"


def backup(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="File to write. Default: ortune-backup-DATE-TIME.db in this folder. "
            "With --every: folder of the backups.",
            show_default=False,
        ),
    ] = None,
    *,
    every: Annotated[
        str | None,
        typer.Option(
            help="Make a backup in the folder now and after each such time, until Ctrl-C.",
            metavar="10m",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            help=f"With --every: delete the oldest backups beyond this number. Default: {KEPT}.",
            min=1,
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Copy the result store to one file, even while it is in use, and check every row of the copy.

    The file does not hold models, variants, traces and accuracy scores: copy ORTune's folder to keep them.
    """
    if every is not None:
        every_s = _interval_s(every, file, json_=json_)
        assert file is not None
        _repeat(Store(), BackupFolder(expand_home(file).absolute(), keep or KEPT), every_s)
    if keep is not None:
        raise SpecError("`--keep` applies to `--every` only.", hint="Add --every 10m.")
    store = Store()
    target = expand_home(file or time.strftime(f"{PREFIX}%Y%m%d-%H%M%S.db")).absolute()
    remove_drafts(target.parent, target.name if file else PREFIX)
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


def _interval_s(every: str, folder: Path | None, *, json_: bool) -> int:
    """Return the time between two backups, and check the options that belong to it."""
    every_s = seconds("--every", every)
    if every_s < 1:
        raise SpecError(
            f"`--every` takes 1 second or more, but got `{every}`.", hint="Write for example 10m."
        )
    if folder is None:
        raise SpecError("`--every` needs a folder.", hint="Write: ortune backup FOLDER --every 10m.")
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"`{folder}` is no folder.", hint="With --every, name a folder for the backups.")
    if json_:
        raise SpecError("`--every` does not end, so it has no JSON document.", hint="Remove --json.")
    return every_s


def _repeat(store: Store, folder: BackupFolder, every_s: int) -> NoReturn:
    """Make backups until a signal; one that fails is reported, and the next one is tried at its time."""
    due = time.monotonic()  # the time of day may be set back
    while True:
        try:
            made = folder.add(store)
        except TunerError as error:
            print_error(error.message, error.hint or "The next backup is tried at its time.")
        else:
            removed = f" Deleted {counted(made.removed, 'older backup')}." if made.removed else ""
            removed = " No older backup is deleted." if made.found.damaged else removed
            size_text = size(made.path.stat().st_size)
            print_lines([f"Wrote {made.path} ({size_text}): {_content(made.found)}.{removed}"])
        now = time.monotonic()
        due += every_s * (int((now - due) // every_s) + 1)  # times that a long copy took are left out
        time.sleep(due - now)


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
    # the process of what ran when the backup was made may live, but it does not run these rows any more
    store.interrupt_orphans(lambda process, created_at: False)
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
        StoreError: a trial, comparison or search waits or runs, or the store is of a newer version.
    """
    path = home() / STORE_NAME
    if not path.exists():
        return
    try:
        store = Store(path)
        clean_up(store)
        active = store.unfinished()
    except StoreError:
        if path.exists():  # else it was damaged and has been renamed
            raise
        return
    if active:
        raise StoreError(
            f"`{active[0]}` has not ended yet: its result would be lost.",
            hint="Wait until it has ended, or cancel it.",
        )


def _content(found: CheckResult) -> str:
    trials, comparisons, accuracies = found.trials[0], found.comparisons[0], found.accuracies[0]
    said = f"{counted(trials, 'trial')}, {counted(comparisons, 'comparison')}, {accuracies} of accuracy, "
    said += f"{found.studies[0]} search" + ("es" if found.studies[0] != 1 else "")
    return f"{said}; {found.damaged} damaged" if found.damaged else f"{said}; no damage found"
