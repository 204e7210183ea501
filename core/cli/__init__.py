"""The jobs of ORTune without a browser: same store, same scheduler, same results.

Here the commands come together and every expected error becomes one or two lines. `measure`, `compare`,
`library` and others hold the commands, `racing` what those that race share, `options` turns options into a
spec, `tables` results into text, `watch` shows progress, `output` writes and knows the exit codes.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from core import __version__
from core.cli import accuracy as cli_accuracy
from core.cli import backup as cli_backup
from core.cli import check as cli_check
from core.cli import compare as cli_compare
from core.cli import grid
from core.cli import library as cli_library
from core.cli import measure as cli_measure
from core.cli import node_errors as cli_node_errors
from core.cli import transform as cli_transform
from core.cli import variants as cli_variants
from core.cli import why as cli_why
from core.cli.output import complain, exit_code, print_json
from core.cli.watch import Interrupted, signals
from core.store import home
from core.wire.errors import Cancelled, SpecError, TunerError, WorkerError, record_from_error

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure, compare, profile and tune ONNX Runtime. Every command takes -h.",
)
app.command()(cli_measure.bench)
app.command()(cli_compare.compare)
app.command()(cli_measure.profile)
app.command()(cli_measure.sweep)
app.command()(cli_why.why)
app.command()(cli_accuracy.accuracy)
app.command()(cli_check.check)
app.command(cls=cli_transform.InOrder)(cli_transform.transform)
app.command()(cli_node_errors.node_errors)
app.command(name="inspect")(cli_library.inspect_model)
app.command()(cli_library.export)
app.command()(cli_library.emit)
app.command()(cli_library.history)
app.command()(cli_library.show)
app.add_typer(cli_variants.app, name="variants")
app.command()(cli_library.machine)
app.command()(cli_backup.backup)
app.command()(cli_backup.restore)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ORTune {__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version.", show_default=False
        ),
    ] = False,
) -> None:
    pass


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; every expected error becomes one or two lines."""
    as_json = "--json" in argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    try:
        with signals(), grid.terminal():
            _check_arguments(argv)
            code = app(args=list(argv), prog_name=_program(), standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TunerError as error:
        return _failed(error, as_json=as_json)
    except Interrupted as interrupted:
        return _stopped(interrupted, as_json=as_json)
    except typer.TyperException as error:
        hint = f"See `{_program()} -h`, or -h after a command."
        return _failed(SpecError(error.format_message(), hint=hint), as_json=as_json)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # a bug: one line as well, and the rest where it can be sent on
        return _failed(_unexpected(error), as_json=as_json)


def _check_arguments(argv: Sequence[str]) -> None:
    """Refuse bytes that are no text: neither the store nor JSON takes them."""
    for one in argv:
        if any("\ud800" <= character <= "\udfff" for character in one):
            shown = one.encode("utf-8", "backslashreplace").decode()[:80]
            raise SpecError(f"`{shown}` is not UTF-8 text.", hint="Rename the file, or write it in UTF-8.")


def _unexpected(error: Exception) -> TunerError:
    """Put into words what no command foresaw; the traceback of a bug goes to a file in ORTune's folder."""
    if isinstance(error, OSError) and error.filename is not None:  # of a path that somebody gave
        return SpecError(
            f"`{error.filename}` cannot be used: {error.strerror or error}.",
            hint="Check the path and its permissions.",
        )
    said = " ".join(str(error).split())[:300]
    words = f"ORTune failed unexpectedly: {type(error).__name__}" + (f": {said}." if said else ".")
    hint = "Report this with the command that you gave."
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = home() / "last-error.txt"
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8", errors="replace")
        hint = f"Report this with the file `{path}`."
    return WorkerError(words, hint=hint)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "ortune" if name == "ortune" else "python -m core"


def _failed(error: TunerError, *, as_json: bool) -> int:
    """Say what went wrong before there was a trial; with `--json` also as the one document."""
    record = record_from_error(error)
    if as_json:
        print_json({"trial": None, "state": "FAIL", "error": record})
    complain(record["message"], record["hint"])
    return exit_code(record)


def _stopped(interrupted: Interrupted, *, as_json: bool) -> int:
    record = record_from_error(Cancelled(f"Stopped by {interrupted}.", hint="Start it again."))
    if as_json:
        print_json({"error": record, **(interrupted.document or {"trial": None}), "state": "CANCELLED"})
    complain(record["message"], record["hint"])
    return interrupted.exit_code
