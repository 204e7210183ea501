"""The command `upgrade`: compares models in two versions of ONNX Runtime."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.api import upgrading
from core.api.results import Result
from core.api.upgrading import Upgrade
from core.cli.compare import check_slower_limit
from core.cli.options import Config, Given, Preset, WaitQuiet, start_of, wait_quiet_s, with_settings_but
from core.cli.output import (
    EXIT_FAILED,
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    check_output_path,
    combined_exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.report import write_report
from core.cli.sheets import print_sheet
from core.cli.signals import Interrupted
from core.cli.watch import Progress, started
from core.evidence.upgrade import State, UpgradeRow
from core.show.output_types import UpgradeLimit
from core.show.sheets import upgrades
from core.show.table import csv_text, md_text
from core.spec.text_values import share


@with_settings_but("runtime")
def upgrade(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Path, library name, sample name or hash of a model, or a folder with models. Repeatable.",
            metavar="MODEL|FOLDER",
        ),
    ],
    *,
    from_: Annotated[
        str,
        typer.Option(
            "--from", help="Runtime in use: a name from `ortune runtimes list`, or `own`.", metavar="NAME"
        ),
    ],
    to: Annotated[str, typer.Option("--to", help="Runtime to change to.", metavar="NAME")],
    config: Config = None,
    preset: Preset = None,
    fail_if_slower: Annotated[
        str | None,
        typer.Option(
            help="Exit code 1 if a model is significantly slower in the new runtime by more than this, 3 if "
            "that is undecided.",
            metavar="SHARE|N%",
            show_default=False,
        ),
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Reuse results of earlier upgrades with the same models, settings and runtimes, for example "
            "of an interrupted one.",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Also write a report: Markdown if the name ends in .md, else HTML.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    wait_quiet: WaitQuiet = None,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Compare models in two versions of ONNX Runtime before changing from one to the other.

    Each model runs in both runtimes in the same rounds, with ONNX Runtime's defaults or the settings of
    --config and of options. The table shows whether it is faster or slower, whether its outputs stay equal,
    and what it needs. The intervals of all models hold together with 95 %, so that a count of slower models
    is not due to chance. A model that a version refuses is a result, not an error of the command.

    Exit codes: 0 every model runs in the new runtime with equal outputs (with --fail-if-slower: and none is
    slower than allowed) · 1 a model fails in the new runtime, its outputs differ, or it is slower than
    allowed · 2 bad input · 3 with --fail-if-slower: a model may be slower than allowed · 130 Ctrl-C; finished
    models are kept, and --reuse continues.
    """
    one_format(format_, json_=json_)
    limit = None if fail_if_slower is None else share("--fail-if-slower", fail_if_slower)
    patience_s = wait_quiet_s(wait_quiet)
    if report is not None:
        check_output_path(report)
    start = start_of(config, preset)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        check = partial(upgrading.upgrade, models, from_, to, start, reuse=reuse, wait_quiet_s=patience_s)
        try:
            result = check(session=session, **given)
        except Interrupted as interrupted:
            _print_partial(session.last, interrupted, json_=json_)
            raise
    _show(result, limit, "json" if json_ else format_)
    if report is not None:
        write_report([result.id], report)
    raise typer.Exit(_exit_code(result.record.rows, limit))


def _print_partial(result: Result[Upgrade] | None, interrupted: Interrupted, *, json_: bool) -> None:
    if result is None:
        return
    interrupted.hint = "Finished models are kept. Start it again with `--reuse`."
    interrupted.document = {**result.to_dict(), "fail_if_slower": None}
    if not json_:
        print_sheet(result.sheet())


def _show(result: Result[Upgrade], limit: float | None, kind: str) -> None:
    found = result.record.rows
    if kind == "json":
        gate = None if limit is None else asdict(slower_limit(found, limit))
        print_json({**result.to_dict(), "fail_if_slower": gate})
    elif kind == "csv":
        print_lines([csv_text(upgrades.models(found))])
    elif kind == "md":
        print_lines([md_text(upgrades.models(found))])
    else:
        print_sheet(result.sheet())


def _exit_code(found: Sequence[UpgradeRow], limit: float | None) -> int:
    """Report what fails, and return the exit code."""
    broken = [row for row in found if row.fails]
    gate = None if limit is None else slower_limit(found, limit)
    for row in broken:
        why = row.outputs_reason if row.outputs_differ else row.error["message"] if row.error else ""
        print_error(
            f"{row.item.model}: {'outputs differ' if row.outputs_differ else row.state.word}. {why}", ""
        )
    if gate is not None and gate.broken:
        print_error(
            f"{', '.join(gate.broken)}: more than {100 * gate.limit:g} % slower in the new runtime.", ""
        )
    if broken or (gate is not None and gate.broken):
        errors = [row.error for row in found]
        unusable = all(row.state == State.UNUSABLE for row in found)
        return combined_exit_code(errors) if unusable else EXIT_FAILED
    if gate is not None and gate.open:
        names = ", ".join(gate.open)
        print_error(
            f"{names}: may be more than {100 * gate.limit:g} % slower in the new runtime.",
            "Use more --effort, or a larger --budget.",
        )
        return EXIT_UNDECIDED
    return 0


def slower_limit(found: Sequence[UpgradeRow], limit: float) -> UpgradeLimit:
    """Return which models are slower in the new runtime by more than `limit`, and which may be.

    A model that fails in one of the runtimes has no ratio: it is neither. See `compare.check_slower_limit`.
    """
    broken: list[str] = []
    still_open: list[str] = []
    for row in found:
        if row.state != State.COMPARED or row.comparison is None:
            continue
        judged = check_slower_limit(row.comparison, limit)
        if judged.broken:
            broken.append(row.item.model)
        elif judged.open:
            still_open.append(row.item.model)
    return UpgradeLimit(limit=limit, passed=not broken and not still_open, broken=broken, open=still_open)
