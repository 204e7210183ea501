"""The commands `tag`, `share`, `unshare` and `delete`: what users change about results."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from core.api.session import clean_up
from core.cli.output import Json, print_json, print_lines
from core.show.sheets import history
from core.show.words import counted
from core.store import Change, Deletion, Store, Visibility
from core.store.tags import split
from core.wire.errors import SpecError
from core.wire.units import visible

Trials = Annotated[
    list[str],
    typer.Argument(help="Trial IDs, or their first 6 or more characters.", metavar="TRIAL..."),
]


def tag(
    trials: Trials,
    *,
    star: Annotated[bool | None, typer.Option("--star/--no-star", help="Add or remove the star.")] = None,
    archive: Annotated[
        bool | None,
        typer.Option("--archive/--no-archive", help="Hide the trial from lists, or show it again."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Add a label; separate several with commas. Repeatable.", show_default=False),
    ] = None,
    no_label: Annotated[
        list[str] | None,
        typer.Option(
            help="Remove a label; separate several with commas. Repeatable.",
            metavar="LABEL",
            show_default=False,
        ),
    ] = None,
    note: Annotated[str | None, typer.Option(help='Write a note; "" removes it.', show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Star, label, note or archive trials; without an option, show their tags."""
    change = Change(
        starred=star,
        archived=archive,
        add=tuple(split(label or [])),
        remove=tuple(split(no_label or [])),
        note=note,
    )
    store = Store()
    ids = [store.trial_id(one) for one in trials]
    if not change.is_nothing:
        store.mark(ids, change)
    now = store.marks(ids)
    if json_:
        print_json({"marks": {one: history.tags_of(now, one).to_dict() for one in ids}})
        return
    print_lines([visible(f"{one[:12]}  {history.tags_text(now.get(one)) or 'no tags'}") for one in ids])


Results = Annotated[
    list[str],
    typer.Argument(
        help="IDs of trials, comparisons, searches or accuracies, or their first 6 or more characters; or "
        "names of models.",
        metavar="RESULT...",
    ),
]


def share(results: Results, *, json_: Json = False) -> None:
    """Show results to everyone who uses this store.

    New results are shared until `unshare`. All trials of a comparison are shared together, and all results of
    a search.
    """
    _share(results, private=False, json_=json_)


def unshare(results: Results, *, json_: Json = False) -> None:
    """Make results private: only you and admins see them.

    This holds for people who log in to the dashboard. A user of the machine who can read the
    file of the store sees all rows.
    """
    _share(results, private=True, json_=json_)


def _share(results: list[str], *, private: bool, json_: bool) -> None:
    store = Store()
    ids = store.share([store.result_id(one) for one in results], private=private)
    now = store.visibility(ids)
    if json_:
        print_json({"visibility": {one: now.get(one, Visibility()).to_dict() for one in ids}})
        return
    who = f"private to {', '.join(sorted({one.person for one in now.values()}))}" if private else "shared"
    print_lines([visible(f"{counted(len(ids), 'result')} {'are' if len(ids) > 1 else 'is'} {who}.")])


def delete(
    trials: Trials,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and change nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Delete trials with their raw measurements, files and tags; running trials stay."""
    store = Store()
    clean_up(store)  # marks trials of commands that were killed
    ids = [store.trial_id(one) for one in trials]
    found = store.deletion(ids)
    if not dry_run:
        _ask(found, yes=yes)
        found = store.delete_finished(ids)
    if json_:
        print_json({"dry_run": dry_run, **asdict(found)})
    else:
        print_lines([f"{'Would delete' if dry_run else 'Deleted'} {history.deletion_in_words(found)}."])


def _ask(found: Deletion, *, yes: bool) -> None:
    """Ask for confirmation on a terminal.

    Raises:
        SpecError: there is no terminal.
        typer.Abort: the answer is no.
    """
    if yes or found.unfinished:  # unfinished trials are refused anyway
        return
    if not sys.stdin.isatty():
        raise SpecError(
            f"`delete` would delete {history.deletion_in_words(found)}, and needs a confirmation.",
            hint="Add --yes to confirm, or --dry-run to see what would be deleted.",
        )
    typer.confirm(f"Delete {history.deletion_in_words(found)}? This cannot be undone.", abort=True, err=True)
