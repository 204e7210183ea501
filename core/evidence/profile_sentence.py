"""Texts on the difference of two results: one sentence, and remarks on its numbers. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from core.evidence.fusion_difference import operators_text
from core.evidence.node_matching import GroupNode
from core.evidence.profile_difference import OUTSIDE, Difference, DifferenceRow
from core.evidence.verdict import Verdict
from core.wire.units import ms, provider

NAMED_SHARE = 0.05  # of the whole difference, from which a part is named
BACK_SHARE = 0.01  # the same for a part that opposes it
MOST_NAMED, MOST_BACK = 3, 2
UNSEEN_SHARE = 0.25  # of the difference not reproduced by the passes, from which it is mentioned
LEAST_INSTRUMENT_S = 5e-8  # a smaller overhead is not mentioned
NOT_SCALED = 0.995  # factors above it are displayed as 1
SEEN_SHARE = 0.5  # of the difference that the passes must reproduce to explain it

_SIDES = ("baseline", "candidate")


def sentence(difference: Difference) -> str:
    """Return a sentence on why one result is faster than the other, or why that is not known.

    "The candidate takes 1.2 ms less per run (1.42× faster, 95 % CI [1.38, 1.46]): 62 % of the speed-up is
    in Conv (Conv → FusedConv) and 20 % in MatMul; 3 inserted Reorder nodes cost 4 % of it back."

    A part is named only where the passes agree on the sign of its difference.
    """
    end = difference.end
    if end.verdict not in (Verdict.FASTER, Verdict.SLOWER) or not end.difference_s:
        return _nothing_to_explain(difference)
    less = end.difference_s < 0
    begin = (
        f"The candidate takes {ms(abs(end.difference_s), 3)} {'less' if less else 'more'} per "
        f"{'sample' if end.per_row else 'run'} ({end.words})"
    )
    if doubt := _invalid_reason(difference):
        return f"{begin}, but {doubt}"
    return " ".join([f"{begin}: {_parts(difference)}.", *_further_remarks(difference)])


def _nothing_to_explain(difference: Difference) -> str:
    end = difference.end
    if end.verdict == Verdict.EQUIVALENT:
        return f"No difference to explain: {end.words}."
    how = " Measure longer." if end.raced else " Compare them."
    return f"Nothing to explain yet, because it is not known which one is faster: {end.words}.{how}"


def _invalid_reason(difference: Difference) -> str:
    """Return the reason why the passes cannot explain the results; empty: they can."""
    whole, seen = difference.end.difference_s, difference.seen_s
    scatter = difference.seen_half_width_s
    if scatter is None or scatter > abs(whole):
        width = "an unknown amount" if scatter is None else f"±{ms(scatter, 3)}"
        return (
            f"the interval of the difference in the profiled passes is too wide ({width}) to attribute "
            "it to nodes. Explain it again on an idle machine."
        )
    if seen / whole < SEEN_SHARE and abs(seen - whole) > scatter:
        again = "the opposite" if seen / whole < 0 else f"only {ms(abs(seen), 3)} of it"
        return (
            f"the profiled passes showed {again}: the machine or its background load had changed. "
            "Measure both again, then explain them."
        )
    return ""


# --- parts --------------------------------------------------------------------------------------------------


def _parts(difference: Difference) -> str:
    gain = difference.end.difference_s < 0
    rows = [row for row in difference.rows if row.clear and row.kind != "unseen"]
    rows.sort(key=lambda row: -abs(row.difference_s))
    shares = [(row, difference.share(row) or 0.0) for row in rows]
    named = [(row, share) for row, share in shares if share >= NAMED_SHARE][:MOST_NAMED]
    against = [(row, -share) for row, share in shares if share <= -BACK_SHARE][:MOST_BACK]
    text = _named(difference, named) if named else _no_clear_part(difference, gain=gain)
    if against:
        text += "; " + " and ".join(_against(row, share, gain=gain) for row, share in against)
    return text


def _named(difference: Difference, named: Sequence[tuple[DifferenceRow, float]]) -> str:
    parts = [f"{_percent(share)} {_where(row)}{_kernels(difference, row)}" for row, share in named]
    first, rest = parts[0].split(" ", 2), parts[1:]
    whole = "speed-up" if difference.end.difference_s < 0 else "slowdown"
    return _listed([f"{first[0]} {first[1]} of the {whole} is {first[2]}", *rest])


def _kernels(difference: Difference, row: DifferenceRow) -> str:
    """Return " (Conv → FusedConv)" where the two sides run an operator by different nodes."""
    groups = [one for one in difference.groups if (one.label, one.kind) == (row.label, "operator")]
    before = _slowest(node for one in groups for node in one.baseline)
    after = _slowest(node for one in groups for node in one.candidate)
    return f" ({before} → {after})" if before and after and before != after else ""


def _slowest(nodes: Iterable[GroupNode]) -> str:
    """Return the type of node that takes the most time; empty: there are no nodes."""
    times: dict[str, float] = defaultdict(float)
    for node in nodes:
        times[node.op_type] += node.self_s
    return max(times, key=lambda op_type: times[op_type], default="")


def _no_clear_part(difference: Difference, *, gain: bool) -> str:
    rows = [row for row in difference.rows if row.kind not in ("outside", "unseen")]
    largest = max(rows, key=lambda row: difference.share(row) or 0.0, default=None)
    share = difference.share(largest) if largest is not None else None
    word = "speed-up" if gain else "slowdown"
    if largest is None or not share or share <= 0:
        return f"no operator shows a clear part of the {word}"
    return (
        f"no operator shows a clear part of the {word}; the largest is {_percent(share)} {_where(largest)}, "
        "which is within the scatter of the passes"
    )


def _where(row: DifferenceRow) -> str:
    match row.kind:
        case "outside":
            return OUTSIDE
        case "unmatched":
            return "in nodes that could not be matched"
        case "inserted":
            return f"in inserted {row.label} nodes ({row.baseline_nodes} → {row.candidate_nodes})"
    return f"in {row.label}"


def _against(row: DifferenceRow, share: float, *, gain: bool) -> str:
    """Return a text on a part that opposes the difference: it reduces the speed-up or the slowdown."""
    verb = ("costs", "cost") if gain else ("saves", "save")
    of_it = f"{_percent(share)} of it back" if gain else f"{_percent(share)} of it"
    if row.kind == "inserted" and not row.baseline_nodes:
        one = row.candidate_nodes == 1
        return f"{row.candidate_nodes} inserted {row.label} node{'' if one else 's'} {verb[not one]} {of_it}"
    if row.kind == "inserted":
        counts = f"{row.baseline_nodes} → {row.candidate_nodes}"
        return f"inserted {row.label} nodes ({counts}) {verb[1]} {of_it}"
    names = {"outside": ("time outside the nodes", 0), "unmatched": ("nodes that could not be matched", 1)}
    name, plural = names.get(row.kind, (row.label, 0))
    return f"{name} {verb[plural]} {of_it}"


# --- remarks ------------------------------------------------------------------------------------------------


def _further_remarks(difference: Difference) -> list[str]:
    more = []
    unseen = difference.share(difference.rows[-1]) or 0.0
    if unseen >= UNSEEN_SHARE:
        more.append(f"{_percent(unseen)} of the difference was not reproduced in the profiled passes.")
    if difference.moves:
        more.append(_moved(difference))
    if all(difference.versions):
        more += _fused(difference)
    return more


def _fused(difference: Difference) -> list[str]:
    """Return a sentence on every clear fusion that one of two versions makes and the other does not."""
    found = []
    for one in difference.fusions:
        share = difference.share(one) or 0.0
        if one.fuses == "neither" or not one.clear or abs(share) < NAMED_SHARE:
            continue
        sides = (one.candidate, one.baseline) if one.fuses == "candidate" else (one.baseline, one.candidate)
        version = difference.versions[one.fuses == "candidate"]
        fused, plain = map(operators_text, sides)
        times = f"{one.groups} times" if one.groups > 1 else "once"
        whole = "speed-up" if difference.end.difference_s < 0 else "slowdown"
        part = f"{_percent(share)} of the {whole}" if share > 0 else f"against {_percent(-share)} of it"
        found.append(f"{version} fuses {plain} into {fused} {times}: {part}.")
    return found[:MOST_NAMED]


def _moved(difference: Difference) -> str:
    count = sum(move.nodes for move in difference.moves)
    first = difference.moves[0]
    before, after = (" and ".join(map(provider, side)) for side in (first.baseline, first.candidate))
    share = math.fsum(difference.share(move) or 0.0 for move in difference.moves)
    others = (
        ", and others elsewhere" if len({(m.baseline, m.candidate) for m in difference.moves}) > 1 else ""
    )
    return (
        f"{count} node{'s' * (count != 1)} moved from {before} to {after}{others}: {_percent(share)} of the "
        "difference."
    )


def remarks(difference: Difference) -> list[str]:
    """Return remarks on how the numbers were computed and on their limits."""
    one, other = difference.runs
    end = difference.end
    runs = f"{one}" if one == other else f"{one} and {other}"
    notes = [f"{difference.passes} passes of each side in turns, {runs} runs each."]
    if end.raced:
        notes.append(
            f"The whole {'sample' if end.per_row else 'run'}: the baseline's p50, {ms(end.baseline_s)}, "
            "and for the candidate that p50 divided by the ratio of the paired rounds, "
            f"{ms(end.candidate_s)}. The candidate's own p50 over all measurements is "
            f"{ms(end.candidate_p50_s)}."
        )
    if difference.instrument_s > LEAST_INSTRUMENT_S:
        own = ms(difference.instrument_s, 2)
        notes.append(f"{own} of profiler overhead was subtracted from each node call.")
    for name, scale in zip(_SIDES, difference.scales, strict=True):
        if scale < NOT_SCALED:
            notes.append(
                f"With the profiler on, the nodes of the {name} took longer than a whole run without "
                f"it, so their times were scaled by {scale:.2f}."
            )
    if difference.overlapping:
        notes.append("Nodes ran in parallel, so their times add up to more than a run.")
    if difference.host_timed:
        notes.append(
            "Times of CUDA and TensorRT nodes cover the kernel launches only; GPU execution counts as "
            "outside the nodes."
        )
    for name, known in zip(_SIDES, difference.origins_known, strict=True):
        if not known:
            notes.append(
                f"ONNX Runtime could not save the optimized graph of the {name}, so fused nodes are not "
                "matched."
            )
    return [*notes, *difference.notes]


# --- numbers ------------------------------------------------------------------------------------------------


def _listed(parts: Sequence[str]) -> str:
    """Return "one", "one and two" or "one, two and three"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if abs(share) >= 0.095 else f"{share * 100:.1f} %".replace(".0 %", " %")
