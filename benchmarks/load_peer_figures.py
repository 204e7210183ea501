"""Figures of load generators side by side, for docs/benchmarks.md, from benchmarks/records/load_peers.jsonl.

Questions without a record have one row that says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import Row, days, machine_key, percent, text
from benchmarks.journal import RECORDS, merged
from benchmarks.load_figures import NOT_MEASURED, missing
from benchmarks.load_peers import CLIENT, ORTUNE, TIE, errors, hides, smaller

RECORD = RECORDS / "load_peers.jsonl"
QUESTIONS: Mapping[str, str] = {"latency": "load-peers", "lateness": "load-lateness"}


def every_row() -> list[Row]:
    """All rows, in the order of the record."""
    found: list[Row] = []
    for head, rows in merged(RECORD) if RECORD.exists() else []:
        found += rows_of(head, rows)
    known = {row.question for row in found}
    return found + [
        missing(question, f"load_peers.py {kind}")
        for kind, question in QUESTIONS.items()
        if question not in known
    ]


def rows_of(head: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """The figures of one part of the record."""
    versions = head.get("versions", {})
    for kind, question in QUESTIONS.items():
        own = [row for row in rows if row["kind"] == kind]
        dated = [row for row in own if "at" in row]
        if not dated:
            continue
        about = {
            "question": question,
            "date": days(dated),
            "machine": machine_key(head["machine"]),
            "script": f"load_peers.py {kind}",
        }
        if kind == "latency":
            yield from _latency(own, about, versions)
        else:
            yield from _lateness(own, about)


def _latency(
    rows: Sequence[dict[str, Any]], about: Mapping[str, Any], versions: Mapping[str, str]
) -> Iterator[Row]:
    for condition in dict.fromkeys(row["condition"] for row in rows):
        own = [row for row in rows if row["condition"] == condition]
        found = [row for row in own if not row.get("missing")]
        for name in ("p50", "p99"):
            for row in found:
                yield _error(row, name, smaller(found, name) if row["generator"] == ORTUNE else None, about)
        for row in own:
            if row.get("missing"):
                yield Row(
                    measure="error of what a generator reports",
                    condition=f"{condition}; {row['generator']}",
                    n="0",
                    estimate="–",
                    met=NOT_MEASURED,
                    note="Not installed where this was measured.",
                    **about,
                )


def _error(row: Mapping[str, Any], name: str, better: Sequence[str] | None, about: Mapping[str, Any]) -> Row:
    reported, truth = 1e3 * row["reported"][name], 1e3 * row["truth"][name]
    notes = []
    if name == "p99" and hides(row):
        notes.append("Its p99 is below the range of such schedules.")
    if row["generator"] == CLIENT:
        notes.append("Its schedule is known, so its truth begins there, too.")
    if better:
        notes.append(f"Smaller: {', '.join(better)}.")
    low, middle, high = (text(1e3 * one, 1) for one in row["unhindered_p99"])
    return Row(
        measure=f"error of the reported {name}",
        condition=f"{row['condition']}; {row['generator']}",
        n=f"{row['n']:,} requests",
        estimate=percent(errors(row)[name]),
        unit="%",
        target="" if better is None else f"smallest error (±{percent(TIE)} points)",
        met="" if better is None else "no" if better else "yes",
        more={
            "reported": f"{text(reported)} ms",
            "truth": f"{text(truth)} ms",
            "beyond the ideal queue": f"{percent(errors(row, 'ideal')[name])} %",
            "p99 of a schedule that does not wait": f"{middle} ms ({low} to {high})" if name == "p99" else "",
            "requests/s": f"{text(row['rate'], 1)} of {text(row['asked_rate'], 1)}",
            "steal": f"{percent(row['steal'], 2)} %",
        },
        note=" ".join(notes),
        **about,
    )


def _lateness(rows: Sequence[dict[str, Any]], about: Mapping[str, Any]) -> Iterator[Row]:
    for row in rows:
        for name in ("p50", "p99"):
            issue = row.get("issue_late")
            yield Row(
                measure=f"how late an inference starts, {name}",
                condition=f"{row['asked_rate']:,} requests/s; {row['generator']}",
                n=f"{row['n']:,} requests",
                estimate=text(1e6 * row["late"][name], 0),
                unit="µs",
                more={
                    "issued late": f"{text(1e6 * issue[name], 0)} µs" if issue else "–",
                    "steal": f"{percent(row['steal'], 2)} %",
                },
                **about,
            )
