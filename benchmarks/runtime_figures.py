"""Figures of runtimes for docs/benchmarks.md: rows from benchmarks/records/runtimes.jsonl.

A question without a record has one row that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import TIMES, Row, days, machine_key, percent, share, text
from benchmarks.fleet_figures import CALLED, median_of, quiet_of
from benchmarks.journal import RECORDS, merged
from benchmarks.load_figures import machine_facts, missing
from benchmarks.runtimes import MOST_CALLED, PACKAGES, REFERENCE

RECORD = RECORDS / "runtimes.jsonl"

Record = Mapping[str, Any]
About = Mapping[str, Any]


def every_row() -> list[Row]:
    """All rows, in the order of their questions."""
    parts = merged(RECORD) if RECORD.exists() else []
    found: list[Row] = []
    for kind in KINDS:
        own = [row for head, rows in parts for row in rows_of_kind(head, kind, rows)]
        found += own or [missing(f"runtime-{kind}", "runtimes.py")]
    return found


def rows_of_kind(head: Record, kind: str, rows: Sequence[Record]) -> Iterator[Row]:
    """The figures of one kind in one part of the record; none without results."""
    own = [row for row in rows if row["kind"] == kind]
    if own:
        dated = [row for row in own if "at" in row] or [row for row in rows if "at" in row]
        about = {
            "question": f"runtime-{kind}",
            "date": days(dated) if dated else "",
            "machine": machine_key(head["machine"]),
            "script": "runtimes.py",
        }
        yield from KINDS[kind](own, about)


def _versions(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for row in rows:
        for runtime, found in row["contrasts"].items():
            p50_s = row["p50_s"].get(runtime)
            low, high = found["ratio_low"], found["ratio_high"]
            yield Row(
                measure=f"speed relative to {PACKAGES[REFERENCE]}",
                condition=f"{row['model']}; {PACKAGES.get(runtime, runtime)}",
                n=f"{found['generations']} launches",
                estimate=text(found["ratio"]),
                low=text(low) if low and high else "",
                high=text(high) if low and high else "",
                unit=TIMES,
                more={
                    "verdict": found["verdict"],
                    "p50": "–" if p50_s is None else f"{text(1e3 * p50_s, 3)} ms",
                    **machine_facts([row]),
                },
                note="" if found["holds"] else "Rejected by the A/A control.",
                **about,
            )


def _same(rows: Sequence[Record], about: About) -> Iterator[Row]:
    models = list(dict.fromkeys(row["model"] for row in rows))
    for condition, own in [
        *((name, [row for row in rows if row["model"] == name]) for name in models),
        ("all", rows),
    ]:
        aimed = {"most": MOST_CALLED} if condition == "all" else {}
        yield Row(
            measure="comparisons of equal environments called FASTER or SLOWER",
            condition=condition,
            target=f"≤ {percent(MOST_CALLED, 0)} %" if aimed else "",
            more={"idle machine": quiet_of(own), **machine_facts(own)},
            **share(sum(row["verdict"] in CALLED for row in own), len(own), **aimed),
            **about,
        )


_STARTS = {
    "one more process of a launch": ("other_s", "own_s"),
    "the fork server, once per comparison": ("other_server_s", "own_server_s"),
}


def _start(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for condition, (other, own) in _STARTS.items():
        yield Row(
            measure="extra seconds in another interpreter, median",
            condition=condition,
            **median_of([row[other] - row[own] for row in rows], 3),
            unit="s",
            more={
                "in ORTune's own": f"{median_of([row[own] for row in rows], 3)['estimate']} s",
                **machine_facts(rows),
            },
            **about,
        )


KINDS: Mapping[str, Callable[[Sequence[Record], About], Iterator[Row]]] = {
    "versions": _versions,
    "same": _same,
    "start": _start,
}
