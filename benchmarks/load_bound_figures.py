"""Figures of latency limits on simulated queues for docs/benchmarks.md: the rule, and searches for a rate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, percent, share, text
from benchmarks.journal import RECORDS
from benchmarks.load_figures import MOST_PASSES, missing

RECORD, SEARCHES = RECORDS / "load_bounds.json", RECORDS / "load_limits.json"
OTHER_RULES: Mapping[str, str] = {
    "at the limit": "spread at the limit only",
    "independent": "as if independent",
}
Cells = Sequence[Mapping[str, Any]]


def every_row() -> list[Row]:
    """All rows, in the order of the records."""
    return [
        *_read(RECORD, rows_of, "load-bounds", "load_bounds.py"),
        *_read(SEARCHES, search_rows, "load-search-simulated", "load_limits.py"),
    ]


def _read(
    path: Path, make: Callable[[Cells, Mapping[str, Any]], Iterator[Row]], question: str, script: str
) -> list[Row]:
    if not path.exists():
        return [missing(question, script)]
    document = json.loads(path.read_text(encoding="utf-8"))
    at = document.get("at")
    date = "" if at is None else datetime.fromtimestamp(at, UTC).date().isoformat()
    about = {"question": question, "script": script, "date": date, "machine": "simulated"}
    return list(make(document["rows"], about))


def search_rows(cells: Cells, about: Mapping[str, Any]) -> Iterator[Row]:
    """How often a search for the highest rate confirms one above the true one."""
    for cell in cells:
        ratio = cell["ratio"]
        yield Row(
            measure="searches that confirm a rate above the true one",
            condition=cell["queue"],
            target=f"≤ {100 * MOST_PASSES:.0f} %",
            more={
                "confirmed rate / true rate, median": "–" if ratio is None else text(ratio),
                "confirm no rate": str(cell["none"]),
                "runs, mean": text(cell["runs"], 1),
            },
            **share(cell["false"], cell["searches"], most=MOST_PASSES),
            **about,
        )


def rows_of(cells: Cells, about: Mapping[str, Any]) -> Iterator[Row]:
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
            measure="runs at the true limit that pass",
            condition=f"{cell['queue']}; {cell['requests']:,} requests",
            target=f"≤ {100 * MOST_PASSES:.0f} %" if aimed else "",
            more={
                **{name: f"{percent(passes[rule] / runs)} %" for rule, name in OTHER_RULES.items()},
                "passes at 90 % of the rate": power.get(0.9, "–"),
                "at 85 %": power.get(0.85, "–"),
                "p99 intervals that contain it": f"{percent(cell['contain'] / cell['intervals'])} %"
                if cell["intervals"]
                else "–",
            },
            note="" if aimed else "The load changes too seldom for runs of 1,000 requests; no target.",
            **share(passes["ORTune"], runs, **({"most": MOST_PASSES} if aimed else {})),
            **about,
        )
