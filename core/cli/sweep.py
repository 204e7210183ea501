"""The command `sweep`."""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Annotated

import typer

from core.api import sweeping
from core.api.results import Result
from core.api.sweeping import PERCENTILES, Axis, Sweep
from core.cli.options import Config, Given, Model, Preset, WaitQuiet, start_of, wait_quiet_s, with_settings
from core.cli.output import (
    EXIT_UNDECIDED,
    Format,
    Json,
    Quiet,
    Wide,
    combined_exit_code,
    one_format,
    print_error,
    print_json,
    print_lines,
)
from core.cli.sheets import print_parts
from core.cli.signals import Interrupted
from core.cli.watch import Progress, started
from core.evidence.quality import quality
from core.evidence.verdict import is_rejected
from core.show.table import csv_text, md_text
from core.spec.axes import BATCH, THREADS, parse_values, parse_vary
from core.wire.errors import SpecError


@with_settings
def sweep(
    model: Model = None,
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of a setting, of a free dimension, or of `model` (its variants) to "
            "measure. Give it twice for all combinations.",
            metavar="NAME=A,B,…",
            show_default=False,
        ),
    ] = None,
    line: Annotated[
        str | None,
        typer.Option(
            help="Latency limit in ms. Points above it are marked, and the best point is one below it.",
            metavar="MS",
            show_default=False,
        ),
    ] = None,
    percentile: Annotated[
        str | None,
        typer.Option(
            help="Percentile that the limit applies to. Default: p95 if every point has enough "
            "inferences for it, else p50.",
            metavar="|".join(PERCENTILES),
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    preset: Preset = None,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Reuse points that were measured before on this machine.")
    ] = False,
    wait_quiet: WaitQuiet = None,
    format_: Format = "text",
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Measure one or two settings at several values, all under the same conditions.

    Give `--vary NAME=A,B,…` once or twice, or lists: `--batch-size 1,2,4,8 --intra-op-num-threads 1,2`,
    `--dim NAME=64,128`. All points run in the same rounds, with ONNX Runtime's default on the workload of
    the first.

    Exit codes: 0 done · 1 a worker failed · 2 bad input · 3 the result is rejected (grade F) · 130 Ctrl-C.
    """
    one_format(format_, json_=json_)
    patience_s = wait_quiet_s(wait_quiet)
    limit_s = _latency_limit_s(line)
    given, axes = _split_axes(given, lists_alone=bool(vary))
    axes = [*map(parse_vary, vary or []), *axes]
    start = start_of(config, preset)
    with started(Progress(sys.stderr, quiet=quiet)) as session:
        measure = partial(sweeping.sweep, model, axes, start, limit_s=limit_s, percentile=percentile)
        measure = partial(measure, reuse=reuse, wait_quiet_s=patience_s)
        try:
            result = measure(session=session, **given)
        except Interrupted:
            if not json_ and session.last is not None:
                print_parts([session.last.table()])
            raise
    report_sweep(result, "json" if json_ else format_)


def _latency_limit_s(text: str | None) -> float | None:
    """Read `--line` in seconds."""
    if text is None:
        return None
    try:
        ms = float(text.strip().removesuffix("ms"))
    except ValueError:
        ms = math.nan
    if not 0 < ms < math.inf:
        raise SpecError(
            f"`--line` takes milliseconds above 0, but got `{text[:40]}`.",
            hint="Write for example `--line 5`.",
        )
    return ms / 1e3


def _split_axes(given: Given, *, lists_alone: bool) -> tuple[Given, list[Axis]]:
    """Move the varied settings from the options to axes: batch size, threads and dimensions with lists.

    A single batch size or thread number is an axis of one point, unless `lists_alone` keeps it as an option.
    """
    rest, axes = dict(given), []
    for name in (BATCH, THREADS):
        if name in rest and ("," in rest[name] or not lists_alone):
            axes.append(Axis(name=name, values=parse_values(rest.pop(name), name=name)))
    dims = []
    for text in rest.pop("dims", []):
        name, equals, values = text.rpartition("=")
        if equals and "," in values:
            axes.append(Axis(name=name, values=parse_values(values, name=name)))
        else:
            dims.append(text)
    return (rest | {"dims": dims} if dims else rest), axes


def report_sweep(result: Result[Sweep], kind: str) -> None:
    """Print a sweep as `text`, `json`, `csv` or `md`; end the command if a point failed or it is rejected."""
    found = result.record
    if kind == "json":
        print_json(result.to_dict())
    elif kind == "csv":
        print_lines([csv_text(found.table())])
    elif kind == "md":
        print_lines([md_text(found.table())])
    else:
        print_parts(found.parts())
    ended = found.ended()
    errors = [one.trial.error for one in ended if one.trial.error is not None]
    if errors:
        print_error(f"{len(errors)} of {len(ended)} points failed. {errors[0]['message']}", errors[0]["hint"])
        raise typer.Exit(combined_exit_code(errors))
    facts = found.comparison.facts if found.comparison is not None else {}
    if is_rejected(facts):
        rated = quality(facts)
        assert rated is not None  # a rejected result has a grade
        print_error(f"{rated.label}. {facts['grade_reason']}", facts["remedy"])
        raise typer.Exit(EXIT_UNDECIDED)
