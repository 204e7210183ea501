"""What quantizing each operator of a variant costs and saves, as a sheet. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from core.evidence.fed import fed_words
from core.evidence.node_savings import Choice, Unit, halving
from core.run.node_errors import Located
from core.show.sheets import Note, Sheet, Table
from core.show.sheets.trials import notes
from core.wire.units import DASH, significant
from core.wire.units import ms_number as ms

CURVE_ROWS = 12  # of a long curve, spread over it


def bargains(name: str, found: Located, curve: Sequence[Choice], flag: str) -> Sheet:
    """What quantizing each operator costs and saves, and what to leave in float.

    Args:
        name: of the variant.
        found: errors and times.
        curve: `node_savings.choices` of them.
        flag: of the step that made the variant, on the command line.
    """
    of, best = found.savings, halving(curve)
    step = max(1, -(-len(curve) // CURVE_ROWS))
    shown = sorted({*range(0, len(curve), step), best, len(curve) - 1})
    elsewhere = f"saved elsewhere: {ms(of.elsewhere_s, 3)} ms (below zero: conversions cost that much)"
    return Sheet(
        f"{name}: error {_percent(of.whole)} of the float model's outputs (relative L2)",
        [
            Table(
                head=("operator", "type", "error alone", "in the variant", "saves ms", "± ms"),
                rows=[_row(one) for one in of.units],
                left=2,
            ),
            *([Note(elsewhere, apart=True)] if of.timed else []),
            Table(
                head=("left in float", "expected error", "saves ms"),
                rows=[
                    (str(len(curve[at].blocked)), _percent(curve[at].error), ms(curve[at].saved_s, 3))
                    for at in shown
                ],
            ),
            *_advice(curve, best, flag),
            *(Note(f"fed: {fed_words(one)}") for one in found.fed),
            *notes(found.notes),
        ],
    )


def _advice(curve: Sequence[Choice], best: int, flag: str) -> list[Note]:
    blocked = curve[best].blocked
    if not blocked:
        return []
    option = f"--option {flag.removeprefix('--')}.exclude_nodes={','.join(blocked)}"
    halves = 2 * curve[best].error <= curve[0].error
    what = "To halve the error" if halves else "The least error with something quantized"
    return [Note(f"{what}: transform … {flag} {option}", apart=True)]


def _row(unit: Unit) -> tuple[str, ...]:
    inside = DASH if unit.accumulated is None else _percent(unit.accumulated)
    return (
        unit.name,
        unit.op_type,
        _percent(unit.error),
        inside,
        ms(unit.saved_s, 3),
        ms(unit.half_width_s, 2),
    )


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)} %"
