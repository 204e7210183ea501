"""Figures of several streams for docs/benchmarks.md: rows from benchmarks/records/streams.jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import TIMES, Row, days, machine_key, percent, text, three
from benchmarks.journal import RECORDS, merged
from benchmarks.load_figures import missing

RECORD = RECORDS / "streams.jsonl"
QUESTION, SCRIPT = "streams", "streams.py"


def every_row() -> list[Row]:
    """All rows, in the order of the record."""
    parts = merged(RECORD) if RECORD.exists() else []
    return [row for head, rows in parts for row in rows_of(head, rows)] or [missing(QUESTION, SCRIPT)]


def rows_of(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """The figures of one part of the record."""
    for row in rows:
        low, high = row["ratio_low"], row["ratio_high"]
        others, steal, fairness = row["others"], row["steal"], row["fairness"]
        yield Row(
            question=QUESTION,
            measure="samples/s of the best streams × threads over ORT default",
            condition=row["model"],
            n=f"{row['generations']} launches",
            estimate=text(row["ratio"]),
            low="" if low is None else text(low),
            high="" if high is None else text(high),
            unit=TIMES,
            date=days([row]),
            machine=machine_key(head["machine"]),
            script=SCRIPT,
            more={
                "best": row["best"],
                "verdict": row["verdict"],
                "samples/s": three(row["rate_per_s"]),
                "by default": three(row["default_per_s"]),
                "slowest of fastest stream": "–" if fairness is None else f"{percent(fairness, 0)} %",
                "steal": "–" if steal is None else f"{percent(steal, 2)} %",
                "other programs": "–" if others is None else f"{text(others)} cores",
            },
            note="" if row["holds"] else "Rejected by the A/A control.",
        )
