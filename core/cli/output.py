"""Output of commands: lines or one JSON document on stdout, errors on stderr, the exit code.

Exit codes: 0 done · 1 a worker crashed, hung or ran out of memory · 2 wrong usage, bad input or an unusable
store · 3 undecided, or the budget is too small for a number · 130 stopped by Ctrl-C (143 by SIGTERM).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from core import FORMAT_VERSION
from core.cli import terminal_width
from core.cli.help_groups import OUTPUT
from core.wire import sandbox
from core.wire.errors import ErrorRecord, SpecError, unwritable
from core.wire.files import written_whole
from core.wire.plain_data import plain
from core.wire.units import visible

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_UNDECIDED, EXIT_CANCELLED = 1, 2, 3, 130

Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Write one JSON document to stdout and nothing else.", rich_help_panel=OUTPUT
    ),
]
Wide = Annotated[
    bool,
    typer.Option(
        "--wide",
        help="Show all columns of tables, even beyond the width of the terminal.",
        callback=terminal_width.widen,
        rich_help_panel=OUTPUT,
    ),
]
Format = Annotated[
    Literal["text", "csv", "md"],
    typer.Option(
        "--format",
        help="csv: full numbers, with units in the column names. md: the whole table in Markdown.",
        rich_help_panel=OUTPUT,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Write no progress to stderr.", rich_help_panel=OUTPUT)
]


def exit_code(record: ErrorRecord | None) -> int:
    """Return the exit code of an error; None: success."""
    if record is None:
        return 0
    codes = {"WorkerError": EXIT_FAILED, "Cancelled": EXIT_CANCELLED, "BudgetError": EXIT_UNDECIDED}
    return codes.get(record["type"], EXIT_BAD_INPUT)


def combined_exit_code(records: Iterable[ErrorRecord | None]) -> int:
    """Return the exit code of several results.

    A configuration that was cancelled because another one failed counts only if there is no other error.
    """
    codes = {exit_code(record) for record in records}
    if EXIT_FAILED in codes:
        return EXIT_FAILED
    return max(codes - {EXIT_CANCELLED} - {0}, default=max(codes, default=0))


def print_error(message: str, hint: str) -> None:
    """Write an error to stderr in at most two lines, for any message."""
    typer.echo(f"Error: {visible(' '.join(message.split()))}", err=True)
    if hint:
        typer.echo(f"Hint: {visible(' '.join(hint.split()))}", err=True)


def note(text: str) -> None:
    """Write a remark to stderr in one line."""
    typer.echo(f"Note: {visible(' '.join(text.split()))}", err=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Write the one document of a command with `--json`, the version of its format first.

    It is marked where workers run without a sandbox.
    """
    print_data({"format_version": FORMAT_VERSION, **sandbox.mark(), **document})


def print_data(data: Mapping[str, Any]) -> None:
    """Write JSON that is no document of a command."""
    typer.echo(json.dumps(plain(data), separators=(",", ":")))


def print_lines(lines: Sequence[str]) -> None:
    """Write lines of text."""
    typer.echo("\n".join(lines))


def one_format(format_: str, *, json_: bool) -> None:
    """Refuse two output formats.

    Raises:
        SpecError: `--json` with another `--format`.
    """
    if json_ and format_ != "text":
        raise SpecError(f"`--json` and `--format {format_}` contradict each other.", hint="Give one of them.")


def check_output_path(path: Path) -> None:
    """Refuse an invalid output path before the work: name too long, folder missing or not writable.

    Raises:
        SpecError: nothing can be written there.
    """
    try:
        path.lstat()
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise unwritable(path, error) from None
    except OSError as error:
        raise unwritable(path, error) from None


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all; an old file stays if it cannot be written.

    Raises:
        SpecError: it cannot be written.
    """
    try:
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from None
