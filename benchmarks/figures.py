"""Figures of docs/benchmarks.md as rows, computed from the records or read from reported.csv.

A row is one figure of one condition. `benchmarks/tables.py` formats the rows. A figure without raw data comes
from benchmarks/records/reported.csv and says so in its column *Source*.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import aa, budgets, busy, coverage, grids, intervals, repeat  # noqa: E402
from benchmarks import experiment as lab  # noqa: E402
from benchmarks.filling import KIND, NOT_QUIET  # noqa: E402
from benchmarks.journal import RECORDS, merged  # noqa: E402
from benchmarks.models import SMALLEST  # noqa: E402
from benchmarks.printed import GOAL, KINDS, share_of  # noqa: E402
from benchmarks.scenes import SLOW  # noqa: E402
from benchmarks.search import WORTH  # noqa: E402
from core.run.launches.budget import GRACE_S  # noqa: E402

REPORTED = RECORDS / "reported.csv"
RECORDED = "records"
MINUS = "−"  # in front of a number
TIMES = "×"

STATES: Mapping[str, str] = {
    "quiet": "idle",
    "burner": "1 background process",
    "burners": "2 background processes",
    "browser": "browser on the dashboard",
    NOT_QUIET: "not idle, though meant to be",
}
MODELS: Mapping[str, str] = {
    "0.03": "digits_cnn, 0.014 ms",
    "0.3": "conv net, 0.25 ms",
    "1": "conv net, 1 ms",
    "10": "conv net, 10 ms",
    "100": "conv net, 110 ms",
    "larger": "the four conv nets",
    "all": "all five models",
}
NAMES: Mapping[str, str] = {
    "control_flow": "control_flow (int64 inputs, a Loop with an If)",
    "tiny_transformer": "tiny_transformer (sequence 128)",
    "mobilenet_v3_small": "MobileNetV3-Small",
    "resnet18": "ResNet-18",
    "efficientnet_b0": "EfficientNet-B0",
    "squeezenet1_1": "SqueezeNet 1.1",
    "shufflenet_v2_x1_0": "ShuffleNet v2 ×1.0",
}
STRATEGIES: Mapping[str, str] = {
    "race": "ORTune search",
    "random": "random screening, same comparison and confirmation",
    "optuna": "Optuna TPE loop in one process",
    "optuna-tpe": "Optuna TPE as search strategy",
    "olive": "Olive's own pass",
    "sequential grid": "sequential grid (10 warm-ups, 20 inferences)",
}
# These records name their machine but not their day; the days are those of the commits that added them.
LIVE_DAYS: Mapping[int, str] = {15: "2026-11-23", 20: "2026-11-25"}
GRID_DAYS: Mapping[str, str] = {"squeezenet1_1": "2026-11-24", "shufflenet_v2_x1_0": "2026-11-24"}
GRID_DAY, REPLAY_DAY, OLD_REPLAY_DAY = "2026-11-23", "2026-11-25", "2026-11-23"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of one condition, as text."""

    question: str
    measure: str
    condition: str
    n: str
    estimate: str
    low: str = ""
    high: str = ""
    unit: str = ""
    target: str = ""
    met: str = ""
    date: str = ""
    machine: str = ""
    script: str = ""
    source: str = RECORDED
    note: str = ""
    more: Mapping[str, str] = field(default_factory=dict)


# --- numbers ------------------------------------------------------------------------------------------------


def text(value: float, digits: int = 2) -> str:
    """A number with so many decimals, thousands apart, and a minus that is one."""
    shown = f"{value:,.{digits}f}"
    return MINUS + shown[1:] if shown.startswith("-") and float(shown.replace(",", "")) else shown.lstrip("-")


def percent(value: float, digits: int = 1) -> str:
    """A share in percent, without its unit."""
    return text(100 * value, digits)


def three(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def met(
    estimate: float,
    low: float | None = None,
    high: float | None = None,
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> str:
    """Whether a target is met: by the whole interval, by the estimate alone, or not."""
    if not least <= estimate <= most:
        return "no"
    whole = least <= (estimate if low is None else low) and (estimate if high is None else high) <= most
    return "yes" if whole else "estimate"


def machine_key(described: str) -> str:
    """The short name of a machine of the records: its processor and the build of its kernel."""
    found = re.search(r"fc-(v\d+)", described)
    return f"EPYC {found[1]}" if found else "EPYC"


def days(rows: Sequence[Mapping[str, Any]]) -> str:
    """The day, or the days, of some results."""
    found = sorted({datetime.fromtimestamp(row["at"], UTC).date().isoformat() for row in rows})
    return " to ".join(dict.fromkeys((found[0], found[-1])))


def share(count: int, n: int, **target: float) -> dict[str, Any]:
    """Estimate, interval and judgement of a share."""
    low, high = intervals.share_interval(count, n)
    known = met(count / n, low, high, **target) if target else ""
    return {
        "n": str(n),
        "estimate": percent(count / n),
        "low": percent(low),
        "high": percent(high),
        "unit": "%",
        "met": known,
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a record without heads."""
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- reported -----------------------------------------------------------------------------------------------


def reported(path: Path = REPORTED) -> list[Row]:
    """The figures whose raw data was not kept."""
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    return [Row(**row, source="reported") for row in rows]


# --- repeated comparisons of identical models ---------------------------------------------------------------


def aa_rows() -> Iterator[Row]:
    """Comparisons of identical models: false alarms, coverage, width."""
    for head, rows in merged(RECORDS / "aa.jsonl"):
        comparisons = [row for row in rows if row["kind"] == KIND]
        for state, words in STATES.items():
            inside = [row for row in comparisons if row["state"] == state]
            groups = {name: [row for row in inside if row["subject"] == name] for name in MODELS}
            groups["larger"] = [row for row in inside if row["subject"] != SMALLEST]
            groups["all"] = inside
            for name, chosen in groups.items():
                if chosen:
                    about: dict[str, Any] = {
                        "date": days(chosen),
                        "machine": machine_key(head["machine"]),
                        "script": "aa.py",
                    }
                    yield from _aa_cell(f"{words}; {MODELS[name]}", chosen, about, (name, state))


def _aa_cell(
    condition: str, rows: Sequence[dict[str, Any]], about: Mapping[str, Any], cell: tuple[str, str]
) -> Iterator[Row]:
    cells, grades = aa.Cells.of(rows), [row["grade"] for row in rows]
    counts = cell[1] != NOT_QUIET  # "idle" comparisons with other load have no target
    most, least = ({"most": aa.MOST_CALLED}, {"least": aa.LEAST_COVERED}) if counts else ({}, {})
    yield Row(
        question="false-alarms",
        measure="identical models called FASTER or SLOWER",
        condition=condition,
        target="≤ 5 %" if counts else "",
        **share(cells.called, cells.n, **most),
        **about,
    )
    yield Row(
        question="coverage-of-1",
        measure="95 % intervals that contain the true ratio 1",
        condition=condition,
        target="≥ 93 %" if counts else "",
        **share(cells.covered, cells.known, **least),
        **about,
    )
    runs_ms = [1e3 * row["run_s"] for row in rows]
    widths = [row["half_width"] for row in rows if row["half_width"] is not None]
    yield Row(
        question="half-width",
        measure="half-width of the 95 % interval, median",
        condition=condition,
        n=str(len(widths)),
        estimate=percent(statistics.median(widths), 2),
        unit="%",
        more={
            "wall time, median": f"{text(statistics.median(row['wall_s'] for row in rows), 1)} s",
            "grades A / B / C / F": " / ".join(percent(grades.count(one) / len(rows), 0) for one in "ABCF")
            + " %",
            "latency, median": "–"
            if cell[0] in ("larger", "all")
            else f"{three(statistics.median(runs_ms))} ms",
        },
        **about,
    )
    scores = [z for row in rows if (z := intervals.z_score(row, 1.0)) is not None]
    target = cell == (SMALLEST, "quiet")
    if len(scores) > 2:
        yield _deviation(condition, scores, about, target=target)


def _deviation(
    condition: str,
    scores: Sequence[float],
    about: Mapping[str, Any],
    *,
    target: bool,
    df: int = 0,
    found: float | None = None,
    note: str = "",
) -> Row:
    found, df = intervals.deviation(scores) if found is None else found, df or len(scores) - 1
    low, high = intervals.deviation_interval(found, df)
    inside = {"least": repeat.NARROW, "most": repeat.WIDE}
    return Row(
        question="z-scores",
        measure="standard deviation of the z-scores",
        condition=condition,
        n=str(len(scores)),
        estimate=text(found),
        low=text(low),
        high=text(high),
        target="0.85 to 1.15" if target else "",
        met=met(found, low, high, **inside) if target else "",
        note=note,
        **about,
    )


PAIRS: Mapping[str, str] = {
    repeat.LIKE: "identical models (digits_cnn)",
    repeat.SLOWER: "a model 4.9 % slower (conv net, 1.5 ms)",
}


def repeat_rows() -> Iterator[Row]:
    """The same comparison thirty times: contradictions, z-scores, verdicts."""
    for head, rows in merged(RECORDS / "repeat.jsonl"):
        comparisons = [row for row in rows if row["kind"] == "duel"]
        about: dict[str, Any] = {
            "date": days(comparisons),
            "machine": machine_key(head["machine"]),
            "script": "repeat.py",
        }
        long = [row for row in rows if row["kind"] == "truth"]
        truth = intervals.truth_of(long)
        slower, low, high = (1 / one - 1 for one in (truth.ratio, truth.high, truth.low))
        yield Row(
            question="repeat",
            measure="true slow-down, from long comparisons",
            condition=PAIRS[repeat.SLOWER],
            n=str(truth.comparisons),
            estimate=percent(slower),
            low=percent(low),
            high=percent(high),
            unit="%",
            **about,
        )
        groups = []
        for subject, words in PAIRS.items():
            chosen = [row for row in comparisons if row["subject"] == subject]
            true = 1.0 if subject == repeat.LIKE else truth.ratio
            scores = [z for row in chosen if (z := intervals.z_score(row, true)) is not None]
            groups.append(scores)
            yield from _repeated(words, chosen, true, about)
            note = "The script's target is for both pairs together."
            yield _deviation(f"30 times: {words}", scores, about, target=True, note=note)
        df = sum(len(one) - 1 for one in groups)
        pooled = math.sqrt(sum((len(one) - 1) * intervals.deviation(one) ** 2 for one in groups) / df)
        both = [score for one in groups for score in one]
        yield _deviation("30 times: both pairs together", both, about, target=True, df=df, found=pooled)


def _repeated(
    condition: str, rows: Sequence[dict[str, Any]], true: float, about: Mapping[str, Any]
) -> Iterator[Row]:
    opposite, apart = repeat.contradictions(rows)
    pairs = str(math.comb(len(rows), 2))
    known: dict[str, Any] = {"condition": condition, "target": "0", **about}
    ratios, verdicts = [row["ratio"] for row in rows], [row["verdict"] for row in rows]
    for measure, count in (("contradictory verdicts", opposite), ("disjoint 95 % intervals", apart)):
        yield Row(
            question="repeat",
            measure=f"pairs of comparisons with {measure}",
            n=pairs,
            estimate=str(count),
            met=met(count, most=0),
            note="About 0.5 % of pairs are disjoint by chance." if count == apart and count else "",
            **known,
        )
    covered = sum(row["ratio_low"] <= true <= row["ratio_high"] for row in rows)
    yield Row(
        question="repeat",
        measure="95 % intervals that contain the true ratio",
        condition=condition,
        **share(covered, len(rows)),
        **about,
    )
    yield Row(
        question="repeat",
        measure="spread of the reported ratio (standard deviation)",
        condition=condition,
        n=str(len(rows)),
        estimate=percent(intervals.spread(ratios), 2),
        unit="%",
        note=f"{lab.counts(verdicts, lab.VERDICTS)}; ratio {min(ratios):.4f} to {max(ratios):.4f}; "
        f"half-width {percent(statistics.median(row['half_width'] for row in rows), 2)} % and wall time "
        f"{text(statistics.median(row['wall_s'] for row in rows), 1)} s (medians).",
        **about,
    )


# --- background load ----------------------------------------------------------------------------------------

SUBJECTS: Mapping[str, str] = {
    "1 thread, 1 ms": "1 thread, conv net of 1 ms",
    "1 thread, 10 ms": "1 thread, conv net of 10 ms",
    "basic optimizations": "basic graph optimizations, 1 ms",
    "arena off": "memory arena off, 10 ms",
    "spinning off": "spinning off, 1 ms",
    busy.EXTRA: "5 % more work, 1.4 ms",
}
GROUPS: Mapping[str, str] = {
    busy.THREADS: "number of threads (2 pairs)",
    busy.REST: "optimization level, arena, spinning, 5 % more work (4 pairs)",
}


def busy_rows() -> Iterator[Row]:
    """Verdicts under background load against those of the idle machine."""
    for head, rows in merged(RECORDS / "busy.jsonl"):
        comparisons = [row for row in rows if row["kind"] == KIND]
        about: dict[str, Any] = {
            "date": days(comparisons),
            "machine": machine_key(head["machine"]),
            "script": "busy.py",
        }
        truths = {}
        for name in SUBJECTS:
            own = [row for row in comparisons if row["subject"] == name]
            truths[name] = busy.quiet_verdict([row["verdict"] for row in own if row["state"] == "quiet"])
            for state, words in STATES.items():
                chosen = [row for row in own if row["state"] == state]
                if chosen:
                    yield _busy_pair(f"{words}; {SUBJECTS[name]}", chosen, about)
        for kind, group in GROUPS.items():
            for state in busy.STATES[1:]:
                own = [row for row in comparisons if busy.is_of(row, kind, state)]
                called = [(row["verdict"], truths[row["subject"]]) for row in own]
                called = [one for one in called if one[0] in lab.CALLED and one[1] != "UNDECIDED"]
                for what, test in (
                    ("the opposite", busy.reversed_here),
                    ("EQUIVALENT", busy.not_there),
                ):
                    count = sum(test(*one) for one in called)
                    yield Row(
                        question="reversals",
                        measure=f"FASTER or SLOWER under load, {what} on the idle machine",
                        condition=f"{STATES[state]}; {group}",
                        note=f"{count} of {len(called)} decided, {len(own)} comparisons",
                        **share(count, len(called)),
                        **about,
                    )


def _busy_pair(condition: str, rows: Sequence[dict[str, Any]], about: Mapping[str, Any]) -> Row:
    ratios = [row["ratio"] for row in rows]
    others = [row["others"] for row in rows if row["others"] is not None]
    return Row(
        question="load-pairs",
        measure="speed-up over ORT default, median",
        condition=condition,
        n=str(len(rows)),
        estimate=text(statistics.median(ratios), 3),
        unit=TIMES,
        more={
            "range": f"{text(min(ratios), 3)} to {text(max(ratios), 3)}",
            "verdicts": lab.counts([row["verdict"] for row in rows], lab.VERDICTS),
            "latency, median": f"{three(statistics.median(1e3 * row['run_s'] for row in rows))} ms",
            "other programs": f"{text(statistics.median(others))} cores",
        },
        **about,
    )


# --- budgets ------------------------------------------------------------------------------------------------


def budget_rows() -> Iterator[Row]:
    """Accuracy per time budget, and whether budgets are kept."""
    for head, rows in merged(RECORDS / "budgets.jsonl"):
        about: dict[str, Any] = {
            "date": days(rows),
            "machine": machine_key(head["machine"]),
            "script": "budgets.py",
        }
        for row in rows:
            yield _budget(row, about)
        ran = [row for row in rows if row["race_s"] is not None]
        kept = sum(row["race_s"] <= budgets.OVERRUN * row["budget_s"] + GRACE_S for row in ran)
        yield Row(
            question="budgets",
            measure="comparisons that end within the budget, a tenth and 1 s",
            condition="idle; all models and efforts",
            target="100 %",
            **share(kept, len(ran), least=1.0),
            **about,
        )
        off = [row["predicted_s"] / row["shown_s"] - 1 for row in ran if row["predicted_s"] is not None]
        right = sum(abs(one) <= budgets.RIGHT for one in off)
        signed = [f"{'+' if one > 0 else MINUS}{abs(one):.0%}" for one in (min(off), max(off))]
        yield Row(
            question="budgets",
            measure="predictions of the duration within ±20 %",
            condition="idle; all models and efforts",
            target="≥ 80 %",
            note=f"Off by {signed[0][:-1]} % to {signed[1][:-1]} %. A comparison ends when its answer is "
            "known, and the noise it will meet is not known before.",
            **share(right, len(off), least=budgets.LEAST_RIGHT),
            **about,
        )


def _budget(row: Mapping[str, Any], about: Mapping[str, Any]) -> Row:
    latency_ms = three(1e3 * row["p50_s"]) if row["p50_s"] else three(float(row["subject"]))
    most_s = budgets.OVERRUN * row["budget_s"] + GRACE_S
    condition = f"{latency_ms} ms; {row['precision']}"
    known: dict[str, Any] = {
        "question": "budgets",
        "measure": "time used",
        "condition": condition,
        "n": "1",
        **about,
    }
    more = {"budget": f"{row['budget_s']:g} s"}
    if row["race_s"] is None:
        note = f"Refused after {row['shown_s']:.0f} s: too short for a p50."
        return Row(estimate="–", note=note, more=more, **known)
    launches = row["generations"]
    more |= {
        "inferences": f"{row['runs']:,}",
        "launches × rounds": f"{launches} × {text(row['rounds'] / launches, 1)}",
        "half-width": f"±{percent(row['half_width'], 2)} %",
        "verdict": row["verdict"],
    }
    return Row(
        estimate=text(row["race_s"], 1),
        unit="s",
        target=f"≤ {most_s:g} s",
        met=met(row["race_s"], most=most_s),
        more=more,
        **known,
    )


# --- coverage of printed intervals --------------------------------------------------------------------------

SCENES: Mapping[str, str] = {
    "": "simulated",
    SLOW: "simulated, slow modes",
    "real, quiet": "real, idle",
    "real, burner": "real, 1 background process",
}


def coverage_rows() -> Iterator[Row]:
    """How often each kind of printed interval contains the true value."""
    parts = merged(RECORDS / "coverage.jsonl")
    machine = machine_key(parts[0][0]["machine"])
    rows = [row for _, own in parts for row in own]
    for kind, what in KINDS.items():
        for prefix, words in SCENES.items():
            own = [row for row in rows if coverage.group_of(row["scene"]) == prefix]
            found = share_of(own, kind)
            known: dict[str, Any] = {
                "measure": what,
                "condition": words,
                "date": days(own),
                "machine": machine,
            }
            known |= {"question": "interval-coverage", "script": "coverage.py"}
            if not found.n:
                if found.without:
                    yield Row(n="0", estimate="no interval", **known)
                continue
            apart = max(1, round(found.apart))
            low, high = intervals.share_interval(round(found.held / found.n * apart), apart)
            n = f"{found.n:,}" if apart == found.n else f"{found.n:,} ({apart:,} independent)"
            yield Row(
                n=n,
                estimate=percent(found.held / found.n),
                low=percent(low),
                high=percent(high),
                unit="%",
                target="≥ 93 %",
                met=met(found.held / found.n, low, high, least=GOAL),
                note=coverage.REASONS.get(kind, coverage.UNKNOWN) if found.misses else "",
                **known,
            )


# --- searches -----------------------------------------------------------------------------------------------


def grid_rows() -> Iterator[Row]:
    """The best of 36 configurations of each recorded model."""
    for name in grids.recorded():
        with gzip.open(RECORDS / grids.TRUTH.format(name=name)) as file:
            data = json.loads(file.read())
        labels = data.pop("labels")
        del data["grid"]
        truth = grids.Truth(space=None, **data)  # type: ignore[arg-type]
        gain = math.exp(truth.centers(truth.held_back)[truth.best])
        label = labels[truth.best] if truth.best else "the default"
        yield Row(
            question="grids",
            measure="speed-up of the best configuration over ORT default",
            condition=NAMES.get(name, name),
            n=str(len(truth.ratios)),
            estimate=text(gain),
            unit=TIMES,
            date=GRID_DAYS.get(name, GRID_DAY),
            machine=machine_key(truth.machine),
            script="grids.py",
            more={
                "best configuration": label.replace("ORT_ENABLE_BASIC", "graph optimizations BASIC"),
                "latency by default": f"{three(1e3 * truth.run_s)} ms",
                "exhaustive grid, 12 launches": f"{12 * truth.wall_s / len(truth.ratios):.0f} s",
            },
            note="Nothing is faster than the default." if gain < 1 else "",
        )


def live_rows() -> Iterator[Row]:
    """Real searches and other tuners, scored against the recorded grids."""
    rows = read(RECORDS / "search-live.jsonl")
    groups: dict[tuple[int, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["budget_s"], row["model"], row["strategy"]), []).append(row)
    order = list(STRATEGIES)
    for (budget_s, model, strategy), own in sorted(
        groups.items(), key=lambda one: (one[0][0], one[0][1], order.index(one[0][2]))
    ):
        condition = f"{budget_s} s; {NAMES.get(model, model)}; {STRATEGIES[strategy]}"
        yield _live(condition, own)
    for budget_s in LIVE_DAYS:
        for strategy in ("race", "random"):
            chosen = [row for row in rows if (row["budget_s"], row["strategy"]) == (budget_s, strategy)]
            for model in (*dict.fromkeys(row["model"] for row in chosen), None):
                own = [row for row in chosen if model in (None, row["model"])]
                if own:
                    words = "both models" if model is None else NAMES.get(model, model)
                    yield _live_cover(f"{budget_s} s; {words}; {STRATEGIES[strategy]}", own, strategy)


def _live_about(own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    day = LIVE_DAYS[own[0]["budget_s"]]
    return {"date": day, "machine": machine_key(own[0]["machine"]), "script": "search.py live"}


def _live(condition: str, own: Sequence[Mapping[str, Any]]) -> Row:
    regrets = [row["regret"] for row in own]
    low, high = intervals.bootstrap(regrets, statistics.fmean)
    counted = Counter(row["outcome"] for row in own)
    answers = ", ".join(f"{n} {what}" for what, n in counted.most_common()).replace("_", " ")
    sure = [row for row in own if row["outcome"] == "FOUND" and row.get("low") is not None]
    apart = sum(a["high"] < b["low"] or b["high"] < a["low"] for a, b in combinations(sure, 2))
    shares = [row["own_share"] for row in own if "own_share" in row]
    busy_ones = sum(bool(row.get("busy")) for row in own)
    return Row(
        question="search-live",
        measure="regret, mean",
        condition=condition,
        n=str(len(own)),
        estimate=percent(statistics.fmean(regrets), 2),
        low=percent(low, 2),
        high=percent(high, 2),
        unit="%",
        more={
            "answers": answers if sure else f"{len(own)}, without an interval",
            "FOUND pairs with disjoint intervals": f"{apart} of {math.comb(len(sure), 2)}" if sure else "–",
            "wall time, longest": f"{text(max(row['wall_s'] for row in own), 1)} s",
            "own work, largest": f"{percent(max(shares))} %" if shares else "–",
            "steal, largest": f"{percent(max(row['steal'] for row in own), 2)} %",
        },
        note=f"{busy_ones} with a background-load warning." if busy_ones else "",
        **_live_about(own),
    )


def _live_cover(condition: str, own: Sequence[Mapping[str, Any]], strategy: str) -> Row:
    covers = [row["covers"] for row in own if row.get("covers") is not None]
    target = {"least": GOAL} if strategy == "race" else {}
    return Row(
        question="search-live-coverage",
        measure="printed 95 % intervals that contain the recorded speed-up",
        condition=condition,
        target="≥ 93 %" if target else "",
        note=f"{sum(covers)} of {len(covers)}",
        **share(sum(covers), len(covers), **target),
        **_live_about(own),
    )


def replay_rows() -> Iterator[Row]:
    """Searches replayed on the recorded grids: each model, against the sequential grid, and all together."""
    every = read(RECORDS / "search-replay.jsonl")
    rows = [row for row in every if "goal" in row]
    for row in rows:
        when = "search's time" if row["goal"] else "a tenth of the grid's time"
        yield _replay("search-replay", row, f"{_at(row)} ({when})")
    searches = [row for row in rows if row["strategy"] == "race"]
    for row in searches:
        yield _behind(row, next(one for one in rows if _same(one, row) and one is not row))
    yield from _together(rows)
    for row in every:
        if "goal" not in row:
            yield _replay("search-replay-old", row, _at(row))


def _at(row: Mapping[str, Any]) -> str:
    return f"{NAMES.get(row['model'], row['model'])}; {percent(row['share'], 0)} %"


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one["model"], one["share"]) == (other["model"], other["share"])


def _replay_about(row: Mapping[str, Any]) -> dict[str, Any]:
    new = "goal" in row
    machine = machine_key(row["machine"]) if new else "EPYC"
    return {
        "date": REPLAY_DAY if new else OLD_REPLAY_DAY,
        "machine": machine,
        "script": "search.py replay --goal" if new else "search.py replay",
    }


def _replay(question: str, row: Mapping[str, Any], condition: str) -> Row:
    found = "found" in row
    more = {
        "time used": f"{text(row['seconds'], 1)} s",
        "FOUND": f"{percent(row['found'], 0)} %" if found else "–",
    }
    if "goal" in row:
        more["false FOUND"] = str(row["false_found"]) if found else "–"
    more["intervals that contain the true value"] = f"{row['covers']} of {row['intervals']}" if found else "–"
    more["regret ≤ 2 %"] = f"{percent(row['within_2'])} %"
    return Row(
        question=question,
        measure="regret, mean",
        condition=f"{condition}; {STRATEGIES[row['strategy']]}",
        n=str(row["seeds"]),
        estimate=percent(row["regret"], 2),
        low=percent(row["regret_low"], 2),
        high=percent(row["regret_high"], 2),
        unit="%",
        more=more,
        **_replay_about(row),
    )


def _behind(row: Mapping[str, Any], grid: Mapping[str, Any]) -> Row:
    behind = row["regret"] - grid["regret"]
    when = "search's time" if row["goal"] else "a tenth of the grid's time"
    outside = "" if row["goal"] else "The target is for the search's time; a tenth is shorter."
    return Row(
        question="search-behind",
        measure="regret behind the sequential grid",
        condition=f"{_at(row)} ({when})",
        n=str(row["seeds"]),
        estimate=percent(behind, 2),
        unit="%",
        target="≤ 1 %",
        met=met(behind, most=0.01),
        note=outside if behind > 0.01 else "",
        **_replay_about(row),
    )


def _together(rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    about: dict[str, Any] = {"question": "search-replay-all", **_replay_about(rows[0])}
    for when, words in (("goal", "search's time"), ("tenth", "a tenth of the grid's time")):
        for strategy in ("race", "sequential grid"):
            own = [row for row in rows if row[when] and row["strategy"] == strategy]
            mean = statistics.fmean(row["regret"] for row in own)
            worst = max(own, key=lambda row: float(row["regret"]))
            aimed = when == "goal" and strategy == "race"
            yield Row(
                measure="regret, mean of the models",
                condition=f"{words}; {STRATEGIES[strategy]}",
                n=str(len(own)),
                estimate=percent(mean, 2),
                unit="%",
                target="≤ 2 %" if aimed else "",
                met=met(mean, most=0.02) if aimed else "",
                note=f"Worst: {NAMES.get(worst['model'], worst['model'])}, {percent(worst['regret'], 2)} %.",
                **about,
            )
        own = [row for row in rows if row[when] and row["strategy"] == "race"]
        yield from _answers(own, words, about, aimed=when == "goal")
    every = [row for row in rows if row["strategy"] == "race"]
    yield from _answers(every, "both times", about, aimed=False)


def _answers(
    own: Sequence[Mapping[str, Any]], words: str, about: Mapping[str, Any], *, aimed: bool
) -> Iterator[Row]:
    worth = [row for row in own if row["worth"]]
    shares = {
        f"FOUND where a configuration is at least {WORTH:.0%} faster".replace("%", " %"): (
            sum(round(row["found"] * row["seeds"]) for row in worth),
            sum(row["seeds"] for row in worth),
            {"least": 0.9},
            "≥ 90 %",
        ),
        "FOUND of a configuration that is not faster": (
            sum(row["false_found"] for row in own),
            sum(row["seeds"] for row in own),
            {"most": 0.025},
            "≤ 2.5 %",
        ),
        "intervals that contain the true value": (
            sum(row["covers"] for row in own),
            sum(row["intervals"] for row in own),
            {"least": GOAL},
            "≥ 93 %",
        ),
    }
    for measure, (count, n, target, said) in shares.items():
        wanted = target if aimed else {}
        yield Row(
            measure=measure,
            condition=f"{words}; {STRATEGIES['race']}",
            target=said if aimed else "",
            **share(count, n, **wanted),
            **about,
        )


def every_row() -> list[Row]:
    """All rows, in the order of their makers; reported ones come last."""
    makers = (
        aa_rows,
        repeat_rows,
        busy_rows,
        budget_rows,
        coverage_rows,
        grid_rows,
        live_rows,
        replay_rows,
    )
    return [row for maker in makers for row in maker()] + reported()
