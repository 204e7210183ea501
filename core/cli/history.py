"""The command `history`: lists trials, and prunes raw measurements."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from decimal import Decimal
from typing import Annotated, Any, Literal

import typer

from core.api.history import LISTED, Filter, model_filter
from core.api.history import history as listed
from core.api.session import Session, clean_up
from core.cli.output import Format, Json, Wide, one_format, print_json, print_lines
from core.cli.sheets import print_parts
from core.show.sheets import Line
from core.show.sheets import history as sheets
from core.show.table import csv_text, md_text
from core.show.words import counted
from core.store import PruneResult, Store
from core.store.tags import split
from core.wire.errors import SpecError
from core.wire.units import size

_AGES_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def history(
    *,
    model: Annotated[
        str | None,
        typer.Option(
            help="Only trials of this model: its name in the list, its path or its hash.", show_default=False
        ),
    ] = None,
    grade: Annotated[
        str | None,
        typer.Option(
            help="Only trials of comparisons with these grades.", metavar="A,B,C,D,F", show_default=False
        ),
    ] = None,
    state: Annotated[
        Literal["COMPLETE", "FAIL", "CANCELLED", "RUNNING", "WAITING", "DAMAGED"] | None,
        typer.Option(help="Only trials in this state.", show_default=False),
    ] = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            help="Only trials that changed this setting, or changed it to this value. Repeatable.",
            metavar="NAME[=VALUE]",
            show_default=False,
        ),
    ] = None,
    error: Annotated[
        str | None,
        typer.Option(help="Only trials whose error contains this text.", metavar="TEXT", show_default=False),
    ] = None,
    starred: Annotated[bool, typer.Option("--starred", help="Only trials with a star; see `tag`.")] = False,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived trials; see `tag`.")] = False,
    mine: Annotated[bool, typer.Option("--mine", help="Only trials that you started; see `share`.")] = False,
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Only trials with this label; separate several with commas. Repeatable.", show_default=False
        ),
    ] = None,
    search: Annotated[
        str,
        typer.Option(
            help="Only trials with all these words in ID, model, settings, search, owner, error, "
            "labels or note.",
            metavar="WORDS",
            show_default=False,
        ),
    ] = "",
    limit: Annotated[
        int | None,
        typer.Option(
            help=f"Most trials to list, newest first. Default: {LISTED}.", min=1, show_default=False
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Instead of listing, delete the raw measurements (every inference, every block) "
            "of the oldest comparisons and shrink the store. Needs --older-than, --keep-size "
            "or both; results, pinned baselines and profiles stay.",
        ),
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            help="With --prune: comparisons that ended longer ago than this.",
            metavar="90d|12w|36h",
            show_default=False,
        ),
    ] = None,
    keep_size: Annotated[
        str | None,
        typer.Option(
            help="With --prune: the oldest comparisons, until this much raw data is left.",
            metavar="500MiB",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --prune: show what would be deleted, and change nothing.")
    ] = False,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
) -> None:
    """List trials, newest first, or delete the raw measurements of old ones."""
    one_format(format_, json_=json_)
    before, keep_bytes = _prune_limits(prune, older_than, keep_size, dry_run=dry_run, limit=limit)
    conditions: dict[str, Any] = dict(
        grade=grade,
        state=state,
        changed=changed or [],
        error=error,
        starred=starred,
        archived=archived,
        mine=mine,
        labels=split(label or []),
        search=search,
    )
    wanted = Filter(**conditions)
    if prune and wanted.asked:
        raise SpecError(
            "`--prune` applies to all trials of a model, and takes no other filter.",
            hint="Remove all filters but --model.",
        )
    if prune:
        store = Store()
        clean_up(store)  # marks trials of commands that were killed
        of = model_filter(store, model)
        done = store.prune(before=before, keep_bytes=keep_bytes, dry_run=dry_run, **of)
        if json_:
            print_json({"dry_run": dry_run, **asdict(done)})
        else:
            print_lines(_pruned_lines(done, dry_run=dry_run))
        return
    with Session() as session:
        result = listed(model=model, limit=limit or LISTED, session=session, **conditions)
    trials = result.record.trials
    if json_:
        print_json(result.to_dict())
    elif format_ == "csv":
        print_lines([csv_text(result.table())])
    elif format_ == "md":
        print_lines([md_text(result.table())])
    elif not trials and wanted.asked:
        print_lines(["No trial matches."])
    elif not trials:
        nothing = Line("No trials yet. Measure one: ortune tune digits_cnn")
        print_parts([nothing, *sheets.rescued(session.store.rescued())])
    else:
        print_parts(result.sheet().parts)


def _prune_limits(
    prune: bool, older_than: str | None, keep_size: str | None, *, dry_run: bool, limit: int | None
) -> tuple[float | None, int | None]:
    """Return the limits of pruning: a time in seconds since the epoch, and a size in bytes."""
    if not prune:
        given = {"--older-than": older_than, "--keep-size": keep_size, "--dry-run": dry_run}
        if alone := next((flag for flag, value in given.items() if value not in (None, False)), None):
            raise SpecError(f"`{alone}` applies to `--prune` only.", hint="Add --prune.")
        return None, None
    if older_than is None and keep_size is None:
        raise SpecError(
            "`--prune` needs an age or a size.",
            hint="Add --older-than 90d, --keep-size 500MiB, or both; add --dry-run to see the effect first.",
        )
    if limit is not None:
        raise SpecError(
            "`--limit` is for the list; `--prune` applies to all trials.",
            hint="Remove --limit; use --older-than or --keep-size.",
        )
    before = None if older_than is None else time.time() - _age_s(older_than)
    return before, None if keep_size is None else _bytes(keep_size)


def _age_s(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _AGES_S:
        raise SpecError(
            f"`--older-than` takes hours, days or weeks, but got `{text[:40]}`.",
            hint="Write for example 90d.",
        )
    return int(match[1]) * _AGES_S[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in _SIZES:
        raise SpecError(
            f"`--keep-size` takes a size with its unit, but got `{text[:40]}`.",
            hint="Write for example 500MiB or 2GiB.",
        )
    return int(Decimal(match[1]) * _SIZES[match[2]])


def _pruned_lines(done: PruneResult, *, dry_run: bool) -> list[str]:
    lost, are = ("would lose", "would be") if dry_run else ("lost", "are")
    trials, baselines = len(done.trials), done.baselines_kept
    lines = [f"No trial {lost} raw measurements."]
    if trials:
        lines = [
            f"{counted(trials, 'trial')} {lost} raw measurements ({size(done.samples_bytes)}); "
            "the results stay."
        ]
    if done.compressed:
        lines.append(
            f"The raw measurements of {counted(done.compressed, 'trial')} of an earlier version {are} "
            "compressed, without loss."
        )
    if baselines:
        lines.append(f"{counted(baselines, 'pinned baseline')} kept raw measurements.")
    left, smaller = size(done.kept_bytes), size(done.freed_bytes)
    if dry_run:
        return [
            *lines,
            f"Raw measurements left: {left}; the store would be about {smaller} smaller. "
            "Nothing was changed.",
        ]
    return [
        *lines,
        f"Raw measurements left: {left}; the store is {smaller} smaller and now takes "
        f"{size(done.file_bytes)}.",
    ]
