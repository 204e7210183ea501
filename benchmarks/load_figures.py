"""Figures of load tests for docs/benchmarks.md: rows from benchmarks/records/load.jsonl.

A question without a record has one row that says so.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import queues
from benchmarks.figures import STATES, Row, days, machine_key, met, percent, share, text
from benchmarks.journal import RECORDS, merged
from core.evidence.load.bounds import Clusters, Counted, judge
from core.evidence.load.queueing import MOST_SHARE_OF_P50
from core.spec.load import LoadLimit

RECORD = RECORDS / "load.jsonl"
NOT_MEASURED = "not measured"
MOST_P50_S, MOST_P99_S = 150e-6, 500e-6  # that the harness may add on the idle machine
MOST_ERROR = 0.05  # of the open loop's p99, beside the truth
MOST_PASSES = 0.07  # of the segments at the true limit
SIZES = (1000, 3000)  # requests of a segment
SHARE = 0.99
FAILED = "failed"

Record = dict[str, Any]
About = Mapping[str, Any]


def rows_of(head: Mapping[str, Any], rows: Sequence[Record]) -> Iterator[Row]:
    """The figures of one part of the record."""
    for kind, make in _KINDS.items():
        own = [row for row in rows if row["kind"] == kind]
        if own:
            about = {
                "date": days(own),
                "machine": machine_key(head["machine"]),
                "script": f"load.py {kind}",
                "question": f"load-{kind}",
            }
            yield from make([row for row in own if row["state"] != FAILED], about)
            yield from _failed([row for row in own if row["state"] == FAILED], len(own), about)
        else:
            yield missing(f"load-{kind}", f"load.py {kind}")


def missing(question: str, script: str) -> Row:
    """The row of a question whose record does not exist."""
    return Row(
        question=question,
        measure="all figures",
        condition="",
        n="0",
        estimate="–",
        met=NOT_MEASURED,
        script=script,
        note="There is no record yet.",
    )


def _failed(rows: Sequence[Record], n: int, about: About) -> Iterator[Row]:
    if rows:
        yield Row(
            measure="runs that failed",
            condition="all",
            n=str(n),
            estimate=str(len(rows)),
            target="0",
            met="no",
            note=f"The first: {rows[0].get('error', '')[:150]}".replace("|", "/").replace("\n", " "),
            **about,
        )


def _groups(rows: Sequence[Record], *names: str) -> Iterator[tuple[str, tuple[Any, ...], list[Record]]]:
    """State, values of the keys, and the rows that have them; in the order of states and of the record."""
    for state in STATES:
        inside = [row for row in rows if row["state"] == state]
        for values in dict.fromkeys(tuple(row[name] for name in names) for row in inside):
            yield state, values, [row for row in inside if tuple(row[name] for name in names) == values]


def machine_facts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The largest steal and load of other programs, as further columns."""
    steals = [row["steal"] for row in rows if row.get("steal") is not None]
    others = [row["others"] for row in rows if row.get("others") is not None]
    return {
        "steal, largest": f"{percent(max(steals), 2)} %" if steals else "–",
        "other programs": f"{text(max(others))} cores" if others else "–",
    }


# --- the harness --------------------------------------------------------------------------------------------


def _harness(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for state, (subject, rate), own in _groups(rows, "subject", "rate"):
        for name, most_s in (("p50", MOST_P50_S), ("p99", MOST_P99_S)):
            mean, low, high = queues.mean_interval([row[f"extra_{name}_s"] for row in own])
            latency_s = statistics.median(row[f"latency_{name}_s"] for row in own)
            target = {"target": f"≤ {1e6 * most_s:.0f} µs", "met": met(mean, low, high, most=most_s)}
            rejected = sum(row["extra_p50_s"] > MOST_SHARE_OF_P50 * row["latency_p50_s"] for row in own)
            yield Row(
                measure=f"latency that the harness adds, {name}",
                condition=f"{STATES[state]}; {subject}; {rate:,.0f} requests/s",
                n=_count(own, "run"),
                **_numbers((mean, low, high), 1e6, 0),
                unit="µs",
                more={
                    "requests": f"{sum(row['n'] for row in own):,}",
                    "same percentile of the latency": f"{text(1e3 * latency_s, 3)} ms",
                    "runs that ORTune rejects": f"{rejected} of {len(own)}",
                    **machine_facts(own),
                },
                **(target if state == "quiet" else {}),
                **about,
            )


def _count(rows: Sequence[object], what: str) -> str:
    return f"{len(rows)} {what}" + ("s" if len(rows) > 1 else "")


def _numbers(values: tuple[float, float | None, float | None], factor: float, digits: int) -> dict[str, Any]:
    """Estimate and interval as texts."""
    mean, low, high = values
    found = {"estimate": text(factor * mean, digits)}
    if low is not None and high is not None:
        found |= {"low": text(factor * low, digits), "high": text(factor * high, digits)}
    return found


# --- coordinated omission -----------------------------------------------------------------------------------

LOOPS: Mapping[str, str] = {
    "truth": "p99, truth: ideal queue with these stalls",
    "open": "p99, open loop of ORTune",
    "closed": "p99, closed loop of one caller",
}


def _omission(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for state, (subject,), own in _groups(rows, "subject"):
        condition = f"{STATES[state]}; {subject}"
        for name, measure in LOOPS.items():
            requests = sum(row["closed_n" if name == "closed" else "open_n"] for row in own)
            p50_s = statistics.median(row[f"{name}_p50_s"] for row in own)
            yield Row(
                measure=measure,
                condition=condition,
                n=_count(own, "run"),
                **_numbers(queues.mean_interval([row[f"{name}_p99_s"] for row in own]), 1e3, 1),
                unit="ms",
                more={
                    "requests": f"{requests:,}",
                    "p50": f"{text(1e3 * p50_s, 2)} ms",
                    **machine_facts(own),
                },
                **about,
            )
        for name in ("open", "closed"):
            errors = [row[f"{name}_p99_s"] / row["truth_p99_s"] - 1 for row in own]
            mean, low, high = queues.mean_interval(errors)
            aimed = state == "quiet" and name == "open"
            yield Row(
                measure=f"error of p99, {LOOPS[name][5:]}",
                condition=condition,
                n=_count(own, "run"),
                **_numbers((mean, low, high), 100, 1),
                unit="%",
                target=f"within {MOST_ERROR:.0%}".replace("%", " %") if aimed else "",
                met=met(mean, low, high, least=-MOST_ERROR, most=MOST_ERROR) if aimed else "",
                **about,
            )


# --- false passes -------------------------------------------------------------------------------------------

Rule = Callable[[Counted, float], bool]  # a segment and its limit in seconds -> it passes
_LIMIT = LoadLimit(share=round(1 - SHARE, 9), at_most_s=1.0)


def by_ortune(segment: Counted, limit_s: float) -> bool:
    """Whether ORTune's rule passes a segment."""
    limit = _LIMIT.model_copy(update={"at_most_s": limit_s})
    return judge(limit, Clusters([segment]))["verdict"] == "PASS"


def by_mlperf(segment: Counted, limit_s: float) -> bool:
    """Whether the rule of LoadGen passes a segment, as if requests were independent."""
    bad = sum(one > limit_s for one in segment.value_s)
    return bad <= queues.most_bad(len(segment.value_s), 1 - SHARE)


RULES: Mapping[str, Rule] = {"ORTune": by_ortune, "MLPerf's LoadGen": by_mlperf}


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """The counted requests of a long run."""

    row: Record
    at_s: Sequence[float]
    latency_s: Sequence[float]
    limit_s: float  # the true limit: its own p99

    @classmethod
    def of(cls, row: Record) -> LongRun:
        """Read a line of the record; the arrivals are made again from their seed.

        Raises:
            ValueError: there are not as many arrivals as latencies.
        """
        warmup_s, latency_s = row["warmup_s"], queues.unpacked(row["latencies"])
        every_s = queues.poisson(row["rate"], warmup_s + row["seconds"], row["seed"])
        at_s = [at for at in every_s if round(1e9 * at) >= round(1e9 * warmup_s)]
        if len(at_s) != len(latency_s):
            raise ValueError(f"{len(at_s):,} arrivals, but {len(latency_s):,} latencies in the record")
        limit_s = queues.percentile(latency_s, SHARE)
        return cls(row=row, at_s=at_s, latency_s=latency_s, limit_s=limit_s)

    def passed(self, size: int, rule: Rule) -> tuple[int, int]:
        """Segments that a rule passes at the true limit, and all of them."""
        segments = [
            Counted(at_s=own, value_s=self.latency_s[part], from_s=own[0], until_s=own[-1])
            for part in queues.segments(len(self.at_s), size)
            if (own := self.at_s[part])
        ]
        return sum(rule(one, self.limit_s) for one in segments), len(segments)

    def in_worst_second(self) -> float:
        """The largest share of its slow requests that arrived in one second: a burst of background load."""
        slow = [at for at, one in zip(self.at_s, self.latency_s, strict=True) if one > self.limit_s]
        return max(Counter(map(int, slow)).values(), default=0) / max(1, len(slow))


def _passes(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for state in STATES:
        runs = [LongRun.of(row) for row in rows if row["state"] == state]
        if not runs:
            continue
        counted = {
            (index, size, name): run.passed(size, rule)
            for index, run in enumerate(runs)
            for size in SIZES
            for name, rule in RULES.items()
        }
        loads = list(dict.fromkeys(run.row["utilization"] for run in runs))
        for load in (*loads, None) if len(loads) > 1 else loads:
            chosen = [i for i, run in enumerate(runs) if load in (None, run.row["utilization"])]
            words = "both" if load is None else f"{100 * load:.0f} % of capacity"
            subject = f"{STATES[state]}; {runs[0].row['subject']}; {words}"
            for size in SIZES:
                for name in RULES:
                    own = [counted[i, size, name] for i in chosen]
                    count, n = sum(one for one, _ in own), sum(one for _, one in own)
                    if n:
                        condition = f"{subject}; {size:,} requests"
                        yield _share_passed(condition, [runs[i] for i in chosen], (name, count, n), about)


def _share_passed(condition: str, runs: Sequence[LongRun], found: tuple[str, int, int], about: About) -> Row:
    name, count, n = found
    rows = [run.row for run in runs]
    aimed = name == "ORTune" and rows[0]["state"] == "quiet"
    worst = max(run.in_worst_second() for run in runs)
    return Row(
        measure=f"segments at the true limit that pass, rule of {name}",
        condition=condition,
        target=f"≤ {100 * MOST_PASSES:.0f} %" if aimed else "",
        more={
            "requests/s": _span([row["rate"] for row in rows], 0, ""),
            "limit (p99)": _span([1e3 * run.limit_s for run in runs], 2, " ms"),
            "slow requests in the worst second": f"{percent(worst, 0)} %",
            **machine_facts(rows),
        },
        note=f"{count} of {n} segments",
        **share(count, n, **({"most": MOST_PASSES} if aimed else {})),
        **about,
    )


# --- the highest rate ---------------------------------------------------------------------------------------


def _limit(rows: Sequence[Record], about: About) -> Iterator[Row]:
    for state, (subject, limit), own in _groups(rows, "subject", "limit"):
        condition = f"{STATES[state]}; {subject}; {limit}".replace("<=", " ≤ ").replace("ms", " ms")
        aimed = state == "quiet"
        known: dict[str, Any] = {"condition": condition, **about}
        confirmed = [row["confirmed_per_s"] for row in own if row["confirmed_per_s"]]
        yield Row(
            measure="answers that confirm a rate",
            n=str(len(own)),
            estimate=str(len(confirmed)),
            target="all" if aimed else "",
            met=met(len(confirmed), least=len(own)) if aimed else "",
            note="" if len(confirmed) == len(own) else own[0].get("words", ""),
            more={
                "capacity of a closed loop": _range([row["capacity_per_s"] for row in own]),
                "wall time, longest": f"{text(max(row['wall_s'] for row in own), 1)} s",
                **machine_facts(own),
            },
            **known,
        )
        if confirmed:
            failed = [row["failed_per_s"] for row in own if row["failed_per_s"]]
            yield Row(
                measure="highest confirmed rate, mean",
                n=_count(confirmed, "answer"),
                **_numbers(queues.mean_interval(confirmed), 1, 0),
                unit="requests/s",
                more={"range": _range(confirmed), "lowest failed rate": _range(failed)},
                **known,
            )
        if len(confirmed) > 1:  # of fewer, no two can contradict each other
            answers = [(row["confirmed_per_s"] or 0.0, row["failed_per_s"] or math.inf) for row in own]
            count = queues.disjoint(answers)
            yield Row(
                measure="pairs of answers of which one confirms what the other fails",
                n=str(math.comb(len(own), 2)),
                estimate=str(count),
                target="0" if aimed else "",
                met=met(count, most=0) if aimed else "",
                **known,
            )


def _range(values: Sequence[float]) -> str:
    """`310 to 340/s`."""
    return _span(values, 0, "/s") if values else "–"


def _span(values: Sequence[float], digits: int, unit: str) -> str:
    """The smallest to the largest value; one value if they are equal."""
    return " to ".join(dict.fromkeys(text(one, digits) for one in (min(values), max(values)))) + unit


_KINDS: Mapping[str, Callable[[Sequence[Record], About], Iterator[Row]]] = {
    "harness": _harness,
    "omission": _omission,
    "passes": _passes,
    "limit": _limit,
}


def every_row() -> list[Row]:
    """All rows, in the order of their questions."""
    found: list[Row] = []
    parts = merged(RECORD) if RECORD.exists() else []
    for head, rows in parts:
        if not head["options"]["short"]:
            found += rows_of(head, rows)
    known = {row.question for row in found if row.met != NOT_MEASURED}
    if not found:
        found = [missing(f"load-{kind}", f"load.py {kind}") for kind in _KINDS]
    return [row for row in found if row.met != NOT_MEASURED or row.question not in known]
