"""Sheet of the error added and the time saved by quantizing each operator. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from core.evidence.input_description import input_text
from core.evidence.node_savings import Choice, Savings, halving_choice
from core.run.node_errors import Located
from core.show.sheets import Note, Sheet
from core.show.sheets.trials import notes
from core.show.sheets.variants import native_libraries_text
from core.show.table import Column, Table, tabulate, texts
from core.wire.units import ms_number as ms
from core.wire.units import significant

CURVE_ROWS = 12  # of a long curve, evenly spread


def quantization_sheet(name: str, found: Located, curve: Sequence[Choice], flag: str) -> Sheet:
    """Return the sheet: error and time of each operator, and which operators to keep in float.

    Args:
        name: of the variant.
        found: errors and times.
        curve: `node_savings.choices` of them.
        flag: command-line option of the step that created the variant.
    """
    of, best = found.savings, halving_choice(curve)
    step = max(1, -(-len(curve) // CURVE_ROWS))
    shown = sorted({*range(0, len(curve), step), best, len(curve) - 1})
    elsewhere = (
        f"time saved in all other nodes: {ms(of.elsewhere_s, 3)} ms (negative: added conversions cost "
        "this much)"
    )
    return Sheet(
        f"{name}: error {_percent(of.whole)} of the float model's outputs (relative L2)",
        [
            operators(of),
            *([Note(elsewhere, apart=True)] if of.timed else []),
            Table(
                columns=texts("kept in float", "expected error", "saves ms"),
                rows=[
                    (str(len(curve[at].blocked)), _percent(curve[at].error), ms(curve[at].saved_s, 3))
                    for at in shown
                ],
            ),
            *_advice(curve, best, flag),
            *(Note(f"input: {input_text(one)}") for one in found.fed),
            *notes([*found.notes, *native_libraries_text(found.libraries)]),
        ],
    )


def _advice(curve: Sequence[Choice], best: int, flag: str) -> list[Note]:
    blocked = curve[best].blocked
    if not blocked:
        return []
    option = f"--option {flag.removeprefix('--')}.exclude_nodes={','.join(blocked)}"
    halves = 2 * curve[best].error <= curve[0].error
    what = "To halve the error" if halves else "For the smallest error with at least one operator quantized"
    return [Note(f"{what}: transform … {flag} {option}", apart=True)]


def operators(found: Savings, chosen: Choice | None = None) -> Table:
    """Return the table of quantized operators with their errors and saved times.

    Args:
        found: of a variant.
        chosen: operators to keep in float, marked in the browser.
    """
    blocked = set(chosen.blocked if chosen is not None else ())
    return tabulate(
        found.units,
        (Column("operator", tells=True), lambda one: one.name),
        (Column("type"), lambda one: one.op_type),
        (Column("in float", on="browser"), lambda one: bool(set(one.nodes) & blocked)),
        (Column("error alone", "share", help=_ALONE), lambda one: one.error),
        (Column("in the variant", "share", help=_INSIDE), lambda one: one.accumulated),
        (
            Column("saves", "ms", help="Time saved per run. Negative: the integer version is slower."),
            lambda one: one.saved_s,
        ),
        (Column("±", "ms", help="Half the 95 % interval."), lambda one: one.half_width_s),
        (
            Column("ms per % error", "number", on="browser", help="Time saved per error added."),
            lambda one: _saved_text(one.saved_per_error),
        ),
        (
            Column("weights", "bytes", on="browser", unit="KiB", help="In the float model."),
            lambda one: one.weight_bytes,
        ),
    )


_ALONE = "Error of the model's outputs if only this operator is quantized."
_INSIDE = "Error of the operator's output in the full variant, including the error of its inputs."


def _saved_text(saved_per_error: float | None) -> float | None:
    if saved_per_error is None or math.isinf(saved_per_error):
        return None
    return saved_per_error * 1e3 / 100


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)} %"
