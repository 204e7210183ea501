"""The command that explains: why one result is faster than another, as a table and a sentence."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from core import wire
from core.cli.grid import visible
from core.cli.output import Json, Quiet, Wide, complain, exit_code, print_json, print_lines
from core.cli.sheets import table
from core.cli.signals import Interrupted
from core.cli.watch import Progress, scheduler, watch
from core.evidence.profile_difference import Difference, EndToEnd, Move, Row
from core.evidence.profile_grouping import Group, GroupNode
from core.evidence.profile_sentence import remarks, sentence
from core.run import kinds
from core.run.explanation import TIMEOUT_S, Pair, explain_plan, explained, pair
from core.show.words import short
from core.store import Store
from core.wire.errors import ErrorRecord
from core.wire.units import DASH

_WIDE = 44  # characters of a cell that holds names of nodes


def why(
    baseline: Annotated[str, typer.Argument(help="Id of a measured trial.", metavar="BASELINE")],
    candidate: Annotated[str, typer.Argument(help="Id of the trial to explain by it.", metavar="CANDIDATE")],
    *,
    top: Annotated[int, typer.Option(help="Rows of the table of nodes.", min=1)] = 15,
    again: Annotated[
        bool, typer.Option("--again", help="Profile both again, even where that was done before.")
    ] = False,
    wide: Wide = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where the difference of two results comes from.

    Both configurations are profiled in turns, in passes of their own, and their nodes are matched through
    ONNX Runtime's fusions. The parts, the unexplained one included, add up to the difference of the two p50.
    Two that never raced together have no verdict: it is said how to race them.
    """
    store = Store()
    of = pair(store, baseline, candidate)
    found = None if again else explained(store, of)
    error = None
    if found is None:
        error = _explain(store, of, quiet=quiet)
        found = explained(store, of) if error is None else None
    if json_:
        print_json(_document(of, found, error))
    elif found is not None:
        print_lines(_lines(of, found, top))
    if error is not None:
        complain(error["message"], error["hint"])
    raise typer.Exit(exit_code(error))


def _explain(store: Store, of: Pair, *, quiet: bool) -> ErrorRecord | None:
    """Run the job, and return what went wrong; None: nothing."""
    try:
        with scheduler(store) as service:
            plan = explain_plan(store, of, fingerprint=service.environment()["fingerprint"])
            job = kinds.worker(wire.EXPLAIN, plan, what=of.what, timeout_s=TIMEOUT_S)
            return watch(service, service.submit(job), Progress(sys.stderr, quiet=quiet)).error
    except Interrupted as interrupted:
        interrupted.document = _document(of, None, None)
        raise


def _document(of: Pair, found: Difference | None, error: ErrorRecord | None) -> dict[str, Any]:
    names = {"baseline": of.baseline.id, "candidate": of.candidate.id}
    if found is None:
        return {**names, "state": "FAIL", "error": error}
    return {**names, "state": "COMPLETE", "error": None, "sentence": sentence(found), **found.to_dict()}


# --- as text ------------------------------------------------------------------------------------------------


def _lines(of: Pair, found: Difference, top: int) -> list[str]:
    """The sentence, the parts, what moved, the nodes, and how to read it all."""
    unit = "row" if found.end.per_row else "run"
    groups = found.groups[:top]
    hidden = len(found.groups) - len(groups)
    return [
        visible(of.what),
        "",
        visible(sentence(found)),
        *([] if found.end.raced else [f"Race them: {_race_command(of)}"]),
        "",
        *table(
            (f"ms per {unit}", "baseline", "candidate", "difference", "±", "share", "nodes"),
            [*(_row(found, row) for row in found.rows), _total(found.end)],
        ),
        "",
        *_moves(found),
        *table(
            (
                "nodes of the baseline",
                "nodes of the candidate",
                "part",
                "baseline",
                "candidate",
                "difference",
            ),
            [_group(one, found.end) for one in groups],
            left=3,
        ),
        *([f"({hidden} more groups of nodes; --top shows more)"] if hidden > 0 else []),
        "",
        *(f"  note: {visible(note)}" for note in remarks(found)),
    ]


def _race_command(of: Pair) -> str:
    other = " --different-models" if of.different_models else ""
    return f"python -m core compare --baseline {of.baseline.id} --candidate {of.candidate.id}{other}"


def _row(found: Difference, row: Row) -> tuple[str, ...]:
    nodes = (
        f"{row.baseline_nodes} → {row.candidate_nodes}" if row.baseline_nodes + row.candidate_nodes else ""
    )
    return (
        f"{row.label} (inserted)" if row.kind == "inserted" else row.label,
        *_times(found.end, row),
        DASH if row.half_width_s is None else _ms(found.end, row.half_width_s),
        _share(found.share(row)),
        nodes,
    )


def _total(end: EndToEnd) -> tuple[str, ...]:
    return ("p50 of the results", *_times(end, end), "", "100.0 %" if end.difference_s else "", "")


def _times(end: EndToEnd, part: EndToEnd | Row | Group | Move) -> tuple[str, str, str]:
    difference = _ms(end, part.difference_s)
    return (
        _ms(end, part.baseline_s),
        _ms(end, part.candidate_s),
        difference if difference.startswith("-") else f"+{difference}",
    )


def _ms(end: EndToEnd, seconds: float) -> str:
    """Milliseconds with as many decimals as show four digits of the smaller p50: columns of one precision."""
    decimals = max(0, 3 - math.floor(math.log10(1e3 * min(end.baseline_s, end.candidate_s))))
    return f"{round(seconds * 1e3, decimals) + 0.0:,.{decimals}f}"  # + 0.0: no minus before a zero


def _share(share: float | None) -> str:
    return "" if share is None else f"{round(share, 3) + 0.0:.1%}".replace("%", " %")


def _moves(found: Difference) -> list[str]:
    if not found.moves:
        return []
    rows = [
        (
            move.label,
            f"{'+'.join(map(short, move.baseline))} → {'+'.join(map(short, move.candidate))}",
            str(move.nodes),
            *_times(found.end, move),
        )
        for move in found.moves
    ]
    head = ("moved", "providers", "nodes", "baseline", "candidate", "difference")
    return [*table(head, rows, left=2), ""]


def _group(one: Group, end: EndToEnd) -> tuple[str, ...]:
    return (
        _names(one.baseline),
        _names(one.candidate),
        f"{one.label} (inserted)" if one.kind == "inserted" else one.label,
        *_times(end, one),
    )


def _names(nodes: Iterable[GroupNode]) -> str:
    text = visible(", ".join(" / ".join([*node.path, node.name]) + _count(node) for node in nodes))
    return text if len(text) <= _WIDE else f"{text[: _WIDE // 2]}…{text[-_WIDE // 2 + 1 :]}"


def _count(node: GroupNode) -> str:
    return f" ×{node.nodes}" if node.nodes > 1 else ""
