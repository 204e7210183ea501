"""The providers that ran, as rows and text, and the Casts of an FP16 copy. Uses no Streamlit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.show.table import Column, Table, Value, tabulate
from core.wire.units import ms, provider

Result = Mapping[str, Any]


def placement(result: Result) -> Table:
    """Return one row per requested or used provider: loaded, nodes, time, share of node time."""
    ran: Mapping[str, Mapping[str, Any]] = result.get("placement") or {}
    total = sum(float(part.get("time_s") or 0) for part in ran.values())
    names = dict.fromkeys([*result["requested_providers"], *result["effective_providers"], *ran])

    def nodes(key: str) -> Callable[[str], Value]:
        return lambda name: ran.get(name, {}).get(key, 0) if ran else None

    def time(name: str) -> float | None:
        return ran.get(name, {}).get("time_s")

    return tabulate(
        names,
        (Column("provider", tells=True), provider),
        (
            Column("requested"),
            lambda name: "yes" if name in result["requested_providers"] else "no, added by ORT",
        ),
        (Column("loaded"), lambda name: "yes" if name in result["effective_providers"] else "no"),
        (Column("nodes", "count"), nodes("nodes")),
        (Column("after fusion", "count"), nodes("ran_nodes")),
        (Column("time", "ms", per="run"), time),
        (
            Column("share of node time", "share", bar=True),
            lambda name: None if not total or (found := time(name)) is None else found / total,
        ),
    )


def cast_lines(casts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return icon and text on the Casts of an FP16 copy and on its compute precision."""
    if not casts:
        return []
    lines = []
    if casts["inserted_casts"]:
        words = (
            f"ONNX Runtime inserted {casts['inserted_casts']} Cast nodes: "
            f"{ms(casts['inserted_cast_s'])} per run, "
            f"{casts['inserted_cast_share']:.0%} of the node time."
        )
        lines.append((":material/swap_horiz:", words))
    if casts["computes_in_float32"]:
        operators = ", ".join(f"{count} {name}" for name, count in casts["float32_ops"].items())
        words = f"Computed in FP32 although the model is FP16: {operators}."
        lines.append((":material/warning:", f"{words} This provider has no speed-up from FP16."))
    return lines
