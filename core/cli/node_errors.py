"""The command `node-errors`: where a quantized variant's error comes from, and what each operator saves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from core.cli.grid import visible
from core.cli.library import job_result
from core.cli.options import Given, with_feeds, workload_of
from core.cli.output import Json, Quiet, Wide, print_json, print_lines
from core.cli.sheets import table
from core.cli.transform import sizes
from core.cli.watch import Progress, scheduler, watch
from core.evidence.fed import fed_words
from core.evidence.node_savings import Choice, Unit, choices, halving
from core.process.runner import Run
from core.run import kinds
from core.run.node_errors import Located, check_workload, locate_errors, located, quantized_from
from core.store import Store
from core.store.library import resolve_model
from core.wire.errors import WorkerError
from core.wire.units import DASH, significant
from core.wire.units import ms_number as ms

CURVE_ROWS = 12  # of a long curve, spread over it


@with_feeds
def node_errors(
    variant: Annotated[
        str, typer.Argument(help="A quantized variant: its path, name or hash.", metavar="VARIANT")
    ],
    *,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            help="Size of a free dimension of the feeds. Repeatable.", metavar="NAME=N", show_default=False
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Look again even where it is known.")] = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
    given: Given,
) -> None:
    """Show what quantizing each operator costs in accuracy and saves in time.

    Every operator is quantized alone, and the outputs are compared with the float model's; then both models
    are profiled in turns. The curve leaves out the worst bargain first: `transform` takes its list as
    `exclude_nodes`.
    """
    store = Store()
    workload = workload_of(given, sizes(dim or []))
    record = resolve_model(store, variant)
    quantized = quantized_from(store, record)  # refuses what is no quantization before anybody waits
    known = None if again else located(store, record)
    found = known if known is not None and not (given or dim) else None
    if found is None:
        check_workload(quantized.before, record, workload)
        with scheduler(store) as service:

            def look(run: Run) -> dict[str, Any]:
                machine = service.environment()
                return locate_errors(
                    store, record, run=run, fingerprint=machine["fingerprint"], workload=workload
                )

            job = kinds.task(look, kind="node_errors", what=f"errors of {record.name}")
            job_result(watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet)), json_=json_)
        found = located(store, record)
    if found is None:
        raise WorkerError("The errors of the operators were not kept.", hint="Run the command again.")
    curve = choices(found.savings)
    if json_:
        print_json(_document(record.name, found, curve))
    else:
        flag = quantized.step.type.flag
        print_lines(_lines(record.name, found, curve, flag))


def _document(name: str, found: Located, curve: Sequence[Choice]) -> dict[str, Any]:
    return {
        "state": "COMPLETE",
        "error": None,
        "variant": name,
        **asdict(found.savings),
        "curve": [asdict(one) for one in curve],
        "halving": list(curve[halving(curve)].blocked),
        "fed": [one.to_dict() for one in found.fed],
        "notes": list(found.notes),
    }


def _lines(name: str, found: Located, curve: Sequence[Choice], flag: str) -> list[str]:
    of = found.savings
    head = ("operator", "type", "error alone", "in the variant", "saves ms", "± ms")
    lines = [
        visible(f"{name}: error {_percent(of.whole)} of the float model's outputs (relative L2)"),
        "",
        *table(head, [_row(one) for one in of.units], left=2),
        "",
    ]
    if of.timed:
        lines += [
            f"  saved elsewhere: {ms(of.elsewhere_s, 3)} ms (below zero: conversions cost that much)",
            "",
        ]
    best = halving(curve)
    step = max(1, -(-len(curve) // CURVE_ROWS))
    shown = sorted({*range(0, len(curve), step), best, len(curve) - 1})
    rows = [
        (str(len(curve[at].blocked)), _percent(curve[at].error), ms(curve[at].saved_s, 3)) for at in shown
    ]
    lines += table(("left in float", "expected error", "saves ms"), rows)
    if blocked := curve[best].blocked:
        option = f"--option {flag.removeprefix('--')}.exclude_nodes={','.join(blocked)}"
        halves = 2 * curve[best].error <= curve[0].error
        what = "To halve the error" if halves else "The least error with something quantized"
        lines += ["", visible(f"  {what}: transform … {flag} {option}")]
    return [
        *lines,
        *(visible(f"  fed: {fed_words(one)}") for one in found.fed),
        *(visible(f"  note: {one}") for one in found.notes),
    ]


def _row(unit: Unit) -> tuple[str, ...]:
    inside = DASH if unit.accumulated is None else _percent(unit.accumulated)
    return (
        visible(unit.name),
        unit.op_type,
        _percent(unit.error),
        inside,
        ms(unit.saved_s, 3),
        ms(unit.half_width_s, 2),
    )


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)} %"
