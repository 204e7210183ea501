"""What really ran, as rows and words: providers with their nodes, the Casts of an FP16 copy. No Streamlit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard import format

Result = Mapping[str, Any]


def placement_rows(result: Result) -> list[dict[str, Any]]:
    """Return one row per provider that was asked for or took part: loaded, nodes, time, share of time."""
    placement: Mapping[str, Mapping[str, Any]] = result.get("placement") or {}
    total = sum(float(part.get("time_s") or 0) for part in placement.values())
    names = dict.fromkeys([*result["requested_providers"], *result["effective_providers"], *placement])
    rows = []
    for name in names:
        part = placement.get(name, {})
        time_s = part.get("time_s")
        rows.append(
            {
                "Provider": format.provider(name),
                "Asked for": "yes" if name in result["requested_providers"] else "no, ORT adds it",
                "Loaded": "yes" if name in result["effective_providers"] else "no",
                "Nodes": int(part.get("nodes") or 0) if placement else None,
                "After fusion": int(part.get("ran_nodes") or 0) if placement else None,
                "Time per run (ms)": None if time_s is None else float(time_s) * 1e3,
                "Share of node time": None if time_s is None or not total else float(time_s) / total,
            }
        )
    return rows


def cast_lines(casts: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return icon and words on the Casts of an FP16 copy, and on the precision that it computed in."""
    if not casts:
        return []
    lines = []
    if casts["inserted_casts"]:
        words = (
            f"ONNX Runtime inserted {casts['inserted_casts']} Cast nodes: "
            f"{format.ms(casts['inserted_cast_s'])} per run, "
            f"{casts['inserted_cast_share']:.0%} of the node time."
        )
        lines.append((":material/swap_horiz:", words))
    if casts["computes_in_float32"]:
        operators = ", ".join(f"{count} {name}" for name, count in casts["float32_ops"].items())
        words = f"Computed in FP32 although the model is FP16: {operators}."
        lines.append((":material/warning:", f"{words} This provider gains nothing from FP16."))
    return lines
