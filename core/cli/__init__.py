"""The command line of ORTune, with the store, scheduler and results of the dashboard.

This module holds the table of commands and reports every expected error in one or two lines. It imports the
module of a command only when that command runs. `options` makes options from the settings table, `watch`
provides the session and shows progress, `sheets` and `terminal_width` turn results into text, and `output`
writes documents and defines the exit codes.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from core import __version__
from core.cli import sandbox_option, terminal_width
from core.cli.help_groups import Group, Grouped
from core.cli.output import exit_code, note, print_error, print_json
from core.cli.signals import Interrupted, loading, signals
from core.wire.errors import (
    Cancelled,
    SpecError,
    TunerError,
    WorkerError,
    record_from_error,
    refuse_surrogates,
    unexpected_words,
)


@dataclass(frozen=True, slots=True)
class Command:
    """The location of a command; its module is imported only when the command runs."""

    module: str  # in `core.cli`
    name: str  # of the function, or of a Typer with subcommands
    help: str  # the first line of its docstring
    cls: str = ""  # of the command, in its module; empty: `Grouped`
    workers: bool = False  # starts workers
    sub: tuple[str, ...] = ()  # of a group: the commands that start workers


COMMANDS = {
    "tune": Command(
        "tune",
        "tune",
        "Measure one configuration of a model and compare it with ONNX Runtime's default.",
        workers=True,
    ),
    "compare": Command(
        "compare",
        "compare",
        "Compare configurations of a model with a baseline under the same conditions.",
        workers=True,
    ),
    "search": Command(
        "search",
        "search",
        "Find the best configuration within limits and a time budget, and confirm it in fresh processes.",
        workers=True,
    ),
    "searches": Command(
        "search", "studies", "List, show, export and delete searches; `search --resume` continues one."
    ),
    "profile": Command(
        "tune",
        "profile",
        "Show where an inference spends its time.",
        workers=True,
    ),
    "sweep": Command(
        "sweep",
        "sweep",
        "Measure one or two settings at several values, all under the same conditions.",
        workers=True,
    ),
    "load": Command(
        "load",
        "load",
        "Measure the latency of a configuration under traffic that does not wait for it.",
        workers=True,
    ),
    "explain": Command(
        "explain",
        "explain",
        "Show where the difference between two results comes from.",
        workers=True,
    ),
    "upgrade": Command(
        "upgrade",
        "upgrade",
        "Compare models in two versions of ONNX Runtime before changing from one to the other.",
        workers=True,
    ),
    "graph": Command(
        "graph",
        "graph",
        "Show a model as a graph of nodes, before or after ONNX Runtime optimizes it.",
        workers=True,
    ),
    "accuracy": Command(
        "accuracy",
        "accuracy",
        "Measure the accuracy of models on labelled data.",
        workers=True,
    ),
    "scorecard": Command(
        "scorecard",
        "scorecard",
        "Check a configuration against its targets, and show which are met.",
        workers=True,
    ),
    "transform": Command(
        "transform",
        "transform",
        "Create a variant of a model: steps in the order of their options.",
        "InOrder",
        workers=True,
    ),
    "node-errors": Command(
        "node_errors",
        "node_errors",
        "Show how much error each quantized operator adds, and how much time it saves.",
        workers=True,
    ),
    "inspect": Command(
        "models",
        "inspect_model",
        "Show inputs, outputs, dimensions and operators of a model.",
        workers=True,
    ),
    "convert": Command(
        "models",
        "convert",
        "Convert a PyTorch or TensorFlow model to ONNX, and compare their outputs.",
        workers=True,
    ),
    "export": Command(
        "export",
        "export",
        "Export a result as YAML, as code, for other tools, or as a bundle with its model.",
        workers=True,
    ),
    "verify": Command(
        "verify",
        "verify",
        "Check that a recorded configuration runs here, with the same outputs and as fast.",
        workers=True,
    ),
    "provenance": Command(
        "provenance",
        "provenance",
        "Check the digests of a result from its model to the file it was exported to.",
    ),
    "sign": Command("keys", "sign", "Sign a YAML file or a bundle; `verify` checks the signature."),
    "keys": Command(
        "keys", "app", "Create keys that sign, and list, trust and remove the public keys of others."
    ),
    "report": Command(
        "report",
        "report",
        "Write a stored result as one self-contained HTML file, or as Markdown.",
        workers=True,
    ),
    "history": Command(
        "history", "history", "List trials, newest first, or delete the raw measurements of old ones."
    ),
    "tag": Command(
        "tagging", "tag", "Star, label, note or archive trials; without an option, show their tags."
    ),
    "share": Command("tagging", "share", "Show results to everyone who uses this store."),
    "unshare": Command("tagging", "unshare", "Make results private: only you and admins see them."),
    "delete": Command(
        "tagging", "delete", "Delete trials with their raw measurements, files and tags; running trials stay."
    ),
    "show": Command("show", "show", "Show a stored result, or why there is none."),
    "variants": Command("variants", "app", "List, rename and delete variants; `transform` creates them."),
    "machine": Command(
        "machine",
        "machine",
        "Show this machine, which providers load on it and who waits for it, or measure its noise or peak "
        "speed.",
        workers=True,
    ),
    "runtimes": Command(
        "runtimes",
        "app",
        "Add, list, check and remove runtimes: environments with another ONNX Runtime.",
        sub=("add", "check"),
    ),
    "fleet": Command(
        "fleet",
        "app",
        "Ask many machines at once: set up a fleet, ask its hosts, and compare their answers.",
        sub=("host", "run", "resume"),
    ),
    "schema": Command(
        "schema",
        "schema",
        "Print the JSON Schema of what commands print with --json, or write all of them to files.",
    ),
    "glossary": Command("glossary", "glossary", "Explain the terms that ORTune uses."),
    "audit": Command(
        "audit", "audit", "Show or export the audit log: who measured, changed, deleted and exported."
    ),
    "backup": Command(
        "backup",
        "backup",
        "Copy the result store to one file, even while it is in use, and check every row of the copy.",
    ),
    "restore": Command(
        "backup", "restore", "Replace the result store with a backup, and keep a copy of the current store."
    ),
}


# Names before 1.0 -> current names. `export` is absent because it is a different command now.
RENAMED = {
    "bench": "tune",
    "check": "scorecard",
    "emit": "export",
    "mark": "tag",
    "studies": "searches",
    "why": "explain",
}


class Commands(Group):
    """The commands of the table; each is built when it is requested."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment] # names; `get_command` builds

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: D102
        if cmd_name in RENAMED:
            note(f"`{cmd_name}` is called `{RENAMED[cmd_name]}` now; the old name still works.")
            cmd_name = RENAMED[cmd_name]
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        with loading():
            module = import_module(f"core.cli.{command.module}")
        found = getattr(module, command.name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False, rich_markup_mode=None)
            cls = getattr(module, command.cls) if command.cls else Grouped
            alone.command(name=cmd_name, cls=cls)(found)
            found = alone
        built = typer.main.get_command(found)
        built.name = cmd_name
        parts: Any = built
        for one in [parts.commands[name] for name in command.sub] or ([built] if command.workers else []):
            sandbox_option.add_to(one)
        return built

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure, compare, profile and tune ONNX Runtime. Every command has -h.",
)


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
    """Run one command line and return its exit code; report every expected error in one or two lines."""
    as_json = "--json" in argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    try:
        with signals(), terminal_width.terminal():
            for one in argv:
                refuse_surrogates(one)
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
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:  # a bug: one line, and a traceback file for the report
        return _failed(_unexpected(error), as_json=as_json)


def _unexpected(error: Exception) -> TunerError:
    """Report an unexpected error; write the traceback of a bug to a file in ORTune's folder."""
    if isinstance(error, OSError) and error.filename is not None:  # of a path from the command line
        return SpecError(
            f"`{error.filename}` cannot be used: {error.strerror or error}.",
            hint="Check the path and its permissions.",
        )
    from core.wire.files import home, written_whole

    hint = "Report this with the command that you ran."
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        path = home() / "last-error.txt"
        with written_whole(path) as part:
            text = "".join(traceback.format_exception(error))
            part.write_text(text, encoding="utf-8", errors="replace")
        hint = f"Report this with the file `{path}`."
    return WorkerError(unexpected_words(error), hint=hint)


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "ortune" if name == "ortune" else "python -m core"


def _failed(error: TunerError, *, as_json: bool) -> int:
    """Report an error that occurred before there was a trial; with `--json`, also as the document."""
    record = record_from_error(error)
    if as_json:
        print_json({"trial": None, "state": "FAIL", "error": record})
    print_error(record["message"], record["hint"])
    return exit_code(record)


def _stopped(interrupted: Interrupted, *, as_json: bool) -> int:
    record = record_from_error(Cancelled(f"Stopped by {interrupted}.", hint=interrupted.hint))
    if as_json:
        print_json({"error": record, **(interrupted.document or {"trial": None}), "state": "CANCELLED"})
    print_error(record["message"], record["hint"])
    return interrupted.exit_code
