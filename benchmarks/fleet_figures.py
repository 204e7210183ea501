"""Figures of a fleet for docs/benchmarks.md: rows from benchmarks/records/fleet.jsonl.

A question without a record has one row that says so.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import TIMES, Row, days, machine_key, met, percent, share, text, three
from benchmarks.intervals import bootstrap
from benchmarks.journal import RECORDS, merged
from benchmarks.load_figures import machine_facts, missing

RECORD = RECORDS / "fleet.jsonl"
MOST_EXTRA_S = 1.0
MOST_IDLE = 0.01  # of a core, for each host
MOST_CALLED = 0.05
MOST_WIDER = 1.1
MOST_AGAIN = 0.01  # of the model, written when it is asked again
CALLED = ("FASTER", "SLOWER")
LEAST = 5  # results for an interval

Record = Mapping[str, Any]
About = Mapping[str, Any]


def every_row() -> list[Row]:
    """All rows, in the order of their questions."""
    parts = merged(RECORD) if RECORD.exists() else []
    found: list[Row] = []
    for kind in KINDS:
        own = [row for head, rows in parts for row in rows_of_kind(head, kind, _of(kind, rows))]
        found += own or [missing(f"fleet-{kind}", f"fleet.py --only {kind}")]
    return found


def _of(kind: str, rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if row["kind"] == kind]


def rows_of_kind(head: Record, kind: str, rows: Sequence[Record]) -> Iterator[Row]:
    """The figures of one kind in one part of the record; none without results."""
    if rows:
        about = {
            "question": f"fleet-{kind}",
            "date": days(rows),
            "machine": machine_key(head["machine"]),
            "script": f"fleet.py --only {kind}",
        }
        yield from KINDS[kind](rows, about)


def median_of(values: Sequence[float], digits: int, *, most: float | None = None) -> dict[str, Any]:
    """Return n, the median with its bootstrap interval, and whether it is at most `most`."""
    found, low, high = float(statistics.median(values)), None, None
    if len(values) >= LEAST:
        low, high = bootstrap(values, lambda chosen: float(statistics.median(chosen)))
    return {
        "n": str(len(values)),
        "estimate": text(found, digits),
        "low": "" if low is None else text(low, digits),
        "high": "" if high is None else text(high, digits),
        "met": "" if most is None else met(found, low, high, most=most),
    }


def quiet_of(rows: Sequence[Record]) -> str:
    """How many results are of an idle machine."""
    return f"{sum(row['quiet'] for row in rows)} of {len(rows)}"


def _seconds(rows: Sequence[Record], name: str, digits: int = 2) -> str:
    return f"{text(statistics.median(row[name] for row in rows), digits)} s"


# --- the questions ------------------------------------------------------------------------------------------


def _extra(rows: Sequence[Record], about: About) -> Iterator[Row]:
    ways = (
        ("fleet_s", "a running scheduler and host", MOST_EXTRA_S),
        ("embedded_s", "an embedded cluster", None),
    )
    for way, condition, most in ways:
        yield Row(
            measure="seconds that a fleet of one host adds to a comparison, median",
            condition=condition,
            **median_of([row[way] - row["plain_s"] for row in rows], 2, most=most),
            unit="s",
            target="" if most is None else f"≤ {most:g} s",
            more={
                "the command without a fleet": _seconds(rows, "plain_s"),
                "with it": _seconds(rows, way),
                **machine_facts(rows),
            },
            **about,
        )
    yield Row(
        measure="start of the embedded cluster alone, median",
        condition="a fresh process",
        **median_of([row["cluster_s"] for row in rows], 2),
        unit="s",
        more=machine_facts(rows),
        note="Includes the import of Dask.",
        **about,
    )


_STATES = {"idle": "nothing is asked", "measuring": "a question measures"}
_PROCESSES = {
    "host": "the host",
    "scheduler": "the scheduler",
    "question": "the process of a question",
    "client": "the client",
}


def _idle(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for state, condition in _STATES.items():
        own = [row for row in rows if row["state"] == state]
        for name, words in _PROCESSES.items():
            shares = [100 * row["shares"][name] for row in own if name in row["shares"]]
            if not shares:
                continue
            most = 100 * MOST_IDLE if name == "host" else None
            yield Row(
                measure=f"CPU time of {words}, median",
                condition=condition,
                **median_of(shares, 2, most=most),
                unit="% of a core",
                target="" if most is None else f"≤ {most:g} %",
                more={"interval": _seconds(own, "seconds", 0), **machine_facts(own)},
                **about,
            )


_SIDES = {"beside": "beside an idle scheduler and host", "without": "without them"}


def _aa(rows: Sequence[Record], about: About) -> Iterator[Row]:
    sides = {side: [row for row in rows if row["side"] == side] for side in _SIDES}
    for side, condition in _SIDES.items():
        own = sides[side]
        if own:
            aimed = {"most": MOST_CALLED} if side == "beside" else {}
            yield Row(
                measure="comparisons of identical models called FASTER or SLOWER",
                condition=condition,
                target=f"≤ {percent(MOST_CALLED, 0)} %" if aimed else "",
                more={
                    "idle machine": quiet_of(own),
                    **machine_facts(own),
                },
                **share(sum(row["verdict"] in CALLED for row in own), len(own), **aimed),
                **about,
            )
    pairs = [
        math.log(beside["half_width"] / without["half_width"])
        for beside, without in zip(sides["beside"], sides["without"], strict=False)
        if beside["half_width"] and without["half_width"]
    ]
    if pairs:
        yield _wider(pairs, rows, about)


def _wider(pairs: Sequence[float], rows: Sequence[Record], about: About) -> Row:
    """The geometric mean of the ratios of half-widths."""
    found, low, high = math.exp(statistics.fmean(pairs)), None, None
    if len(pairs) >= LEAST:
        low, high = bootstrap(pairs, lambda chosen: math.exp(statistics.fmean(chosen)))
    return Row(
        measure="half-width of the interval, with over without",
        condition="pairs of comparisons, one after the other",
        n=str(len(pairs)),
        estimate=text(found),
        low="" if low is None else text(low),
        high="" if high is None else text(high),
        unit=TIMES,
        target=f"≤ {MOST_WIDER:g}{TIMES}",
        met=met(found, low, high, most=MOST_WIDER),
        more=machine_facts(rows),
        **about,
    )


def _parts(
    rows: Sequence[Record], names: Mapping[str, tuple[str, str, int]], condition: str, about: About
) -> Iterator[Row]:
    """One row for each number of a result: name -> measure, unit, decimals."""
    for name, (measure, unit, digits) in names.items():
        yield Row(
            measure=f"{measure}, median",
            condition=condition,
            **median_of([row[name] for row in rows], digits),
            unit=unit,
            more=machine_facts(rows),
            **about,
        )


_OF_HOSTS = {
    "begin_s": ("from the command until the last host has begun", "s", 1),
    "collect_s": ("from the last host's answer until the client has all", "s", 1),
    "seconds": ("the whole command", "s", 1),
    "scheduler_cpu_s": ("CPU time of the scheduler", "s", 1),
    "client_cpu_s": ("CPU time of the client", "s", 1),
    "scheduler_peak_mib": ("peak memory of the scheduler", "MiB", 0),
    "client_peak_mib": ("peak memory of the client", "MiB", 0),
}


def _hosts(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for key in dict.fromkeys((row["hosts"], row["question_s"]) for row in rows):
        own = [row for row in rows if (row["hosts"], row["question_s"]) == key]
        kib = three(statistics.median(row["document_kib"] for row in own))
        condition = f"{key[0]} simulated hosts; answers of {kib} KiB after {key[1]:g} s"
        yield from _parts(own, _OF_HOSTS, condition, about)


_OF_MODEL = {
    "first_s": ("the whole command, the model is sent", "s", 1),
    "second_s": ("the whole command, asked again", "s", 1),
    "client_peak_mib": ("peak memory of the client", "MiB", 0),
    "scheduler_peak_mib": ("peak memory of the scheduler", "MiB", 0),
    "host_peak_mib": ("peak memory of a host, largest", "MiB", 0),
}


def _model(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for key in dict.fromkeys((row["hosts"], row["megabytes"]) for row in rows):
        own = [row for row in rows if (row["hosts"], row["megabytes"]) == key]
        condition = f"{key[1]:,} MB to {key[0]} hosts"
        yield from _parts(own, _OF_MODEL, condition, about)
        if rates := [one for row in own if (one := rate_of(row)) is not None]:
            yield Row(
                measure="rate of the transfer to all hosts, median",
                condition=condition,
                **median_of(rates, 0),
                unit="MB/s",
                more=machine_facts(own),
                note="In the time that the first command takes longer than the second.",
                **about,
            )
        again = [100 * row["second_megabytes"] / (row["hosts"] * row["megabytes"]) for row in own]
        yield Row(
            measure="share of the model that the hosts write when asked again, median",
            condition=condition,
            **median_of(again, 2, most=100 * MOST_AGAIN),
            unit="%",
            target=f"≤ {percent(MOST_AGAIN, 0)} %",
            more=machine_facts(own),
            **about,
        )


def rate_of(row: Record) -> float | None:
    """MB/s to all hosts; None if the second command took no less time."""
    took_s: float = row["first_s"] - row["second_s"]
    return row["hosts"] * row["megabytes"] / took_s if took_s > 0 else None


KINDS: Mapping[str, Callable[[Sequence[Record], About], Iterator[Row]]] = {
    "extra": _extra,
    "idle": _idle,
    "aa": _aa,
    "hosts": _hosts,
    "model": _model,
}
