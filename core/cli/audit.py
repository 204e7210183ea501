"""The command `audit`: show, check and export the audit log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_args

import typer

from core.cli.output import Json, check_output_path, note, print_json, print_lines
from core.cli.sheets import print_parts
from core.show.table import Column, Table, tabulate
from core.show.words import counted
from core.store import audit as log
from core.wire.errors import SpecError, StoreError, unwritable
from core.wire.files import written_whole

ACTIONS = get_args(log.Action)
LISTED = 50


def audit(
    *,
    since: Annotated[
        str | None,
        typer.Option(help="Only from this UTC date or time on.", metavar="2026-01-31", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="Only before this UTC date or time.", metavar="2026-01-31T18:00", show_default=False
        ),
    ] = None,
    person: Annotated[
        str | None, typer.Option(help="Only what this person did.", metavar="NAME", show_default=False)
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(help=f"Only this action: {', '.join(ACTIONS)}.", metavar="NAME", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Most lines to show, the newest.")] = LISTED,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Write all matching lines to this file, one JSON object per line.",
            show_default=False,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Show or export the audit log: who measured, changed, deleted and exported.

    Every line holds the hash of the line before it. The command checks all of them, and ends with exit code 2
    if a line was changed or removed.
    """
    if action is not None and action not in ACTIONS:
        raise SpecError(f"There is no action `{action[:40]}`.", hint=f"Use one of {', '.join(ACTIONS)}.")
    wanted = log.entries(
        since=_seconds("--since", since), until=_seconds("--until", until), who=person, action=action
    )
    checked = log.check()
    if output is not None:
        _export(wanted, output)
        shown = []
    else:
        shown = list(deque(wanted, maxlen=limit))
    if json_:
        lines = [{key: value for key, value in asdict(one).items() if key != "text"} for one in shown]
        print_json({**asdict(checked), "entries": lines})
    elif output is None:
        _print(shown, checked)
    if checked.problems:
        raise StoreError(
            " ".join(checked.problems[:5]),
            hint="Compare it with an exported copy.",
        )


def _print(shown: list[log.Entry], checked: log.AuditCheck) -> None:
    if not shown:
        print_lines(["No line matches." if checked.lines else "The audit log is empty."])
        return
    print_parts([_table(shown)])
    if not checked.problems:
        print_lines(["", f"{counted(checked.lines, 'line')} checked: none was changed or removed."])


def _table(shown: list[log.Entry]) -> Table:
    return tabulate(
        shown,
        (Column("time", tells=True), lambda one: one.time[:19].replace("T", " ")),
        (Column("person"), lambda one: one.who),
        (Column("action"), lambda one: one.action),
        (Column("what"), lambda one: one.what),
        (Column("details"), _details),
        solid=("time",),
        drop=("details",),
    )


def _details(one: log.Entry) -> str:
    parts = [one.more.get(name) for name in ("through", "address", "file")]
    ids = one.more.get("ids", [])
    if ids:
        parts.append(", ".join(str(name)[:12] for name in ids[:3]) + (" …" if len(ids) > 3 else ""))
    return " · ".join(str(part) for part in parts if part)


def _export(wanted: Iterable[log.Entry], output: Path) -> None:
    check_output_path(output)
    count = 0
    try:
        with written_whole(output) as part, part.open("w", encoding="ascii") as file:
            for count, one in enumerate(wanted, start=1):  # noqa: B007 - counted
                file.write(one.text + "\n")
    except OSError as error:
        raise unwritable(output, error) from None
    log.record("export", f"{counted(count, 'line')} of the audit log", file=output.name)
    note(f"Wrote {counted(count, 'line')} to {output}.")


def _seconds(flag: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise SpecError(
            f"`{flag}` takes a date or a time, but got `{text[:40]}`.",
            hint="Write for example 2026-01-31, or 2026-01-31T18:00.",
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
