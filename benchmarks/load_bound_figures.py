"""Figures of the rule for a latency limit on simulated queues, from benchmarks/records/load_bounds.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.figures import Row, percent, share
from benchmarks.journal import RECORDS
from benchmarks.load_figures import MOST_PASSES, missing

RECORD = RECORDS / "load_bounds.json"
QUESTION, SCRIPT = "load-bounds", "load_bounds.py"
OTHER_RULES: Mapping[str, str] = {
    "at the limit": "spread at the limit only",
    "independent": "as if independent",
}


def every_row() -> list[Row]:
    """All rows, in the order of the record."""
    if not RECORD.exists():
        return [missing(QUESTION, SCRIPT)]
    document = json.loads(RECORD.read_text(encoding="utf-8"))
    at = document.get("at")
    date = "" if at is None else datetime.fromtimestamp(at, UTC).date().isoformat()
    return list(rows_of(document["rows"], date))


def rows_of(cells: Sequence[Mapping[str, Any]], date: str) -> Iterator[Row]:
    """False passes at the true limit of each queue and length of run."""
    for cell in cells:
        if cell["scale"] != 1.0:
            continue
        runs, passes = cell["runs"], cell["passes"]
        power = {
            one["scale"]: f"{percent(one['passes']['ORTune'] / one['runs'], 0)} %"
            for one in cells
            if (one["queue"], one["requests"]) == (cell["queue"], cell["requests"])
        }
        aimed = cell["recurs"]
        yield Row(
            question=QUESTION,
            measure="runs at the true limit that pass",
            condition=f"{cell['queue']}; {cell['requests']:,} requests",
            target=f"≤ {100 * MOST_PASSES:.0f} %" if aimed else "",
            date=date,
            machine="simulated",
            script=SCRIPT,
            more={
                **{name: f"{percent(passes[rule] / runs)} %" for rule, name in OTHER_RULES.items()},
                "passes at 90 % of the rate": power.get(0.9, "–"),
                "at 85 %": power.get(0.85, "–"),
                "p99 intervals that contain it": f"{percent(cell['contain'] / cell['intervals'])} %"
                if cell["intervals"]
                else "–",
            },
            note="" if aimed else "The load changes too seldom to be seen in one run.",
            **share(passes["ORTune"], runs, **({"most": MOST_PASSES} if aimed else {})),
        )
