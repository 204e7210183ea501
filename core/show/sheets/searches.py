"""Sheets of a search: result as a sentence, its basis, evaluated configurations. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.evidence.evaluations import (
    MAX_INTERVAL_FACTOR,
    Evaluation,
    ReportedSpeedup,
    confirmed_configurations,
    confirmed_gains,
    reported_speedup,
)
from core.evidence.quality import quality_of_search
from core.evidence.result_types import (
    Confirmed,
    EffectRecord,
    FailureGroup,
    LimitJudged,
    SearchResult,
    SearchUnderLoad,
    SpeedUpNumbers,
)
from core.evidence.streams import latency_words
from core.evidence.targets import STATE_WORDS as LIMIT_WORDS
from core.evidence.verdict import Color, Verdict, interval_texts, ratio_places, ratio_text
from core.run.search.stored import answer_of, evaluations_of
from core.show import setting_chips
from core.show.format import duration, percent, short, when
from core.show.runtime_text import runtime_of
from core.show.sheets import Fact, Line, Note, Part, Sheet
from core.show.table import Abridged, Column, Table, tabulate
from core.show.verdict import background_load_text
from core.show.words import counted, state_words
from core.spec import settings
from core.spec.metrics import METRICS
from core.spec.question import question_from_dict
from core.spec.space import DEFAULT_WORDS, STREAMS, changes_words
from core.store import StudyRecord
from core.wire.units import DASH, ci, ms, size

COLORS: Mapping[str, Color] = {
    "FOUND": "green",
    "NO_DIFFERENCE": "blue",
    "NONE_KEEPS_LIMITS": "orange",
    "UNDECIDED": "gray",
    "REJECTED": "red",
}
EVALUATIONS_TITLE = "All evaluated configurations"
EVALUATIONS_SHOWN = 8  # evaluated configurations on a terminal
EFFECTS_SHOWN = 8
REASONS_SHOWN = 3  # reasons of failed configurations
REASON_LIMIT = 160  # characters of a reason


def speedup_parts(gain: SpeedUpNumbers) -> tuple[str, str]:
    """Return a speed-up and its interval as texts: ("1.42× faster", "95 % CI [1.38, 1.46]")."""
    ratio, low, high = gain["ratio"], gain["ratio_low"], gain["ratio_high"]
    metric = METRICS.get(gain["metric"])  # None: of two weighted ones
    better, worse = (metric.better, metric.worse) if metric is not None else ("better", "worse")
    if low is None or high is None:
        return f"about {ratio_text(ratio)}×", "no interval"
    if gain["verdict"] == Verdict.SLOWER:
        ratio, low, high, better = 1 / ratio, 1 / high, 1 / low, worse
    factor, lower, upper = interval_texts(ratio, low, high)
    if gain["verdict"] == Verdict.EQUIVALENT:
        return f"{factor}×, no difference", ci(lower, upper)
    if gain["verdict"] == Verdict.UNDECIDED:
        return "undecided", f"between {lower}× and {upper}×"
    return f"{factor}× {better}", ci(lower, upper)


def speedup_text(gain: SpeedUpNumbers) -> str:
    """Return a speed-up as text: `1.42× faster, 95 % CI [1.38, 1.46]`."""
    return ", ".join(speedup_parts(gain))


def sentence(answer: SearchResult | Mapping[str, Any]) -> str:
    """Return the result of a search in one sentence, equally prominent for every outcome."""
    winner: Confirmed | None = answer["winner"]
    match answer["outcome"]:
        case "FOUND" if winner is not None:
            short, span = speedup_parts(winner["gain"])
            rated = quality_of_search(answer)
            grade = f", grade {rated.grade}" if rated is not None else ""
            kept = "; it meets all constraints" if answer["limits"] else ""
            found = f"{short} than ONNX Runtime's default, {span}, confirmed in fresh processes{grade}{kept}"
            if answer.get("busy"):
                return f"Under background load: {found}; on an idle machine it may be slower."
            return f"{found}."
        case "NO_DIFFERENCE":
            margin = answer.get("margin")
            by = "" if margin is None else f" by more than {100 * margin:g} %"
            return f"No configuration beats ONNX Runtime's default{by}{_nearest(answer)}."
        case "NONE_KEEPS_LIMITS":
            return f"No evaluated configuration meets the constraints: {', '.join(answer['limits'])}."
        case "REJECTED":
            return "The confirmation was rejected: its A/A control failed."
    if winner is None:
        why, enough = answer.get("why_open"), answer.get("enough_s")
        more = f" {enough:,} s would be enough." if enough else ""
        return f"{why or 'Nothing was confirmed.'}{more}"
    short, span = speedup_parts(winner["gain"])
    reported_speedup = span if winner["gain"]["verdict"] == Verdict.UNDECIDED else f"{short}, {span}"
    return f"Undecided: the best is {reported_speedup} versus ONNX Runtime's default{_open(winner)}."


def _nearest(answer: Mapping[str, Any]) -> str:
    others: Sequence[Confirmed] = answer["others"]
    if not others:
        return ""
    gain = others[0]["gain"]
    words = speedup_parts(gain)[1] if gain["verdict"] == Verdict.UNDECIDED else speedup_text(gain)
    return f": the best of {answer['tried']} evaluated is {words}"


def _open(winner: Confirmed) -> str:
    unknown = [one["limit"] for one in winner["limits"] if one["state"] == "UNKNOWN"]
    return f"; not known yet: {', '.join(unknown)}" if unknown else ""


def search_sheet(record: StudyRecord) -> Sheet:
    """Return the sheet of a search with its result, or its progress."""
    question = question_from_dict(record.question)
    headline = f"{record.model_name} · search {record.id} · {question.words}"
    answer: Any = answer_of(record)
    if answer is None:
        return Sheet(headline, _unfinished(record))
    parts: list[Part] = [Note(line, "orange") for line in answer.get("remarks", ())]
    parts.append(Note(sentence(answer), COLORS[answer["outcome"]]))
    if load := answer.get("load"):
        parts += under_load(load)
    parts += [Note(line) for line in first_lines(answer)]
    if (winner := answer["winner"]) is not None:
        parts += _card(winner, answer["default"])
    parts += _evaluation_facts(record, answer)
    if effects_ := answer["effects"]:
        parts += [
            Line("Effects of the settings, over all evaluated configurations:", apart=True),
            effects(effects_[:EFFECTS_SHOWN]),
        ]
        parts += [Note(_pair_words(one)) for one in answer["pairs"][:3]]
    parts += [
        Line("Evaluated configurations, best first:", apart=True),
        evaluation_table(record, most=EVALUATIONS_SHOWN),
    ]
    parts += [Note(note, apart=number == 0) for number, note in enumerate(answer["notes"])]
    return Sheet(headline, parts)


def under_load(load: SearchUnderLoad) -> list[Part]:
    """Return the answer under load, and what was run in order."""
    parts: list[Part] = [Note(load["words"], load_color(load))]
    if len(load["tested"]) > 1:
        parts.append(load_table(load))
    return parts


def load_color(load: SearchUnderLoad) -> Color:
    """Return the colour of the answer under load."""
    if load["passed"] is not None:
        return "green"
    return "red" if load["tested"] and all(one["state"] == "MISSED" for one in load["tested"]) else "gray"


def load_table(load: SearchUnderLoad) -> Table:
    """Return the configurations that were run under load, the fastest first."""
    return tabulate(
        load["tested"],
        (Column("configuration", key="configuration", tells=True), lambda one: changes_words(one["changes"])),
        (Column("state", key="state"), lambda one: LIMIT_WORDS[one["state"]]),
        (
            Column("one caller", key="gain"),
            lambda one: DASH if one["gain"] is None else speedup_text(one["gain"]),
        ),
        (Column("numbers", key="why", narrow=True), lambda one: one["why"]),
        (Column("load test", "id", key="trial"), lambda one: one["trial"]),
    )


def first_lines(answer: SearchResult | Mapping[str, Any]) -> list[str]:
    """Return the lines before the details of a result: why configurations failed."""
    groups = answer.get("failures") or []
    rest = len(groups) - REASONS_SHOWN
    more = [f"{counted(rest, 'more reason')} in the table"] if rest > 0 else []
    return [*map(failure_words, groups[:REASONS_SHOWN]), *more]


def failure_words(one: FailureGroup) -> str:
    """Return failures with reason and common setting: `11 failed: Invalid rank, all with io_binding on`."""
    reason = short(" ".join(one["reason"].split()).rstrip("."), REASON_LIMIT)
    shared = (
        f", {'all ' * (one['count'] > 1)}with {changes_words(one['settings'])}" if one["settings"] else ""
    )
    return f"{one['count']} failed: {reason}{shared}"


def _unfinished(record: StudyRecord) -> list[Part]:
    state = state_words(record)
    seen = evaluations_of(record)
    found: list[Part] = [Note(f"No result: {state}. {counted(len(seen), 'configuration')} evaluated.")]
    if record.error is not None:
        found.append(Note(record.error["message"], "orange"))
    if record.state not in ("RUNNING", "WAITING"):
        found.append(Note(f"Continue it: `search --resume {record.id}`."))
    return [*found, evaluation_table(record, most=EVALUATIONS_SHOWN)] if seen else found


def _card(winner: Confirmed, default: Confirmed | None) -> list[Part]:
    parts: list[Part] = [Fact("changed", changes_words(winner["changes"]))]
    for metric, text in numbers(winner, default):
        parts.append(Fact(metric, text))
    parts += [Fact("constraint", limit_words(one), _limit_color(one)) for one in winner["limits"]]
    return [*parts, Fact("trial", winner["trial"]), Fact("comparison", winner["comparison"])]


def numbers(winner: Confirmed, default: Confirmed | None) -> list[tuple[str, str]]:
    """Return the numbers of a confirmed configuration versus the ORT default: `p50`, `3.4 → 2.4 ms`."""
    before = default["measurements"] if default is not None else {}
    found = []
    kind = _latency_kind(winner["changes"])
    rows = (("latency_p50", f"p50{kind}"), ("latency_p95", f"p95{kind}"), ("cpu_s", "CPU per sample"))
    for metric, name in rows:
        own = winner["measurements"].get(metric)
        if own:
            other = before.get(metric)
            change = f"{ms(other)} → {ms(own)}, {percent(own / other - 1, 0)}" if other else ms(own)
            found.append((name, change))
    own = winner["measurements"].get("peak_rss")
    if own:
        other = before.get("peak_rss")
        found.append(("memory added by the session", f"{size(other)} → {size(own)}" if other else size(own)))
    return found


def limit_words(one: LimitJudged) -> str:
    """Return a constraint and its result: `p99 latency ≤ 3 ms: Met, kept with a probability of 98 %`."""
    return f"{one['limit']}: {LIMIT_WORDS[one['state']]}{probability_text(one['probability'])}"


def probability_text(probability: float | None) -> str:
    """Return the probability that a constraint is met; empty: not measured."""
    if probability is None:
        return ""
    shown = min(99, max(1, round(100 * probability)))
    bound = "more than " if probability > 0.995 else "less than " if probability < 0.005 else ""
    return f", kept with a probability of {bound}{shown} %"


def _limit_color(one: LimitJudged) -> Color:
    return {"MET": "green", "MISSED": "red"}.get(one["state"], "gray")  # type: ignore[return-value]


def _evaluation_facts(record: StudyRecord, answer: Any) -> list[Part]:
    space = answer["space"]
    failed = f", {answer['failed']} of them failed or had wrong outputs" if answer["failed"] else ""
    parts: list[Part] = [
        Fact(
            "evaluated",
            f"{answer['tried']} of {space['distinct']:,} configurations{failed}, in {time_words(answer)}",
        ),
        Fact("space", space_words(space)),
        Fact("controls", controls_words(answer["controls"])),
    ]
    if answer["limits"]:
        parts.insert(0, Fact("constraints", ", ".join(answer["limits"])))
    if ran_in := runtime_of(record.spec, None):
        parts.insert(0, Fact("runtime", ran_in))
    if load := answer.get("load"):
        parts.append(Fact("load tests", f"{duration(load['seconds'])}, in addition to the budget"))
    if (found := quality_of_search(answer)) is not None:
        parts.append(Fact("grade", found.words, found.color))
    if busy := background_load_text(answer):
        parts.append(Fact("", f"Measured {busy}."))
    return parts


def time_words(answer: SearchResult | Mapping[str, Any]) -> str:
    """Return the used part of the time budget: `38 s of 41 s`, or by how much it was exceeded."""
    took, given = duration(answer["wall_s"]), duration(answer["budget_s"])
    if answer["wall_s"] <= answer["budget_s"] or took == given:
        return f"{took} of {given}"
    over = duration(answer["wall_s"] - answer["budget_s"])
    return f"{took}, {over} over the budget of {given}"


def space_words(space: Mapping[str, Any]) -> str:
    """Return the numbers of combinations and of distinct ones, and the most frequent reason to skip one."""
    text = f"{space['distinct']:,} distinct configurations ({space['combinations']:,} combinations)"
    reason = next(iter(space["left_out"]), "")
    return f"{text}; most frequent reason to skip one: {reason}" if reason else text


def controls_words(controls: Mapping[str, Any]) -> str:
    """Return the result of the hidden A/A controls."""
    if not controls["pairs"]:
        return "no hidden A/A control"
    largest = controls["largest"]
    far = f", the largest difference {largest:.3f}×" if largest else ""
    apart = controls["apart"]
    said = "none differed" if not apart else f"{apart} differed although they are equal"
    return f"{counted(controls['pairs'], 'hidden A/A pair')}: {said}{far}"


def _pair_words(one: Mapping[str, Any]) -> str:
    names = " and ".join(
        changes_words({name: value}) for name, value in zip(one["settings"], one["values"], strict=True)
    )
    span = ci(f"{one['ratio_low']:.2f}", f"{one['ratio_high']:.2f}")
    return f"{names} together: {one['ratio']:.2f}× of the combined single effects, {span}"


# --- tables -------------------------------------------------------------------------------------------------


def effects(found: Sequence[EffectRecord]) -> Table:
    """Return the effect of each value of a setting versus the start value, over all evaluations."""
    places = ratio_places((one["ratio"], one["ratio_low"], one["ratio_high"]) for one in found)
    return tabulate(
        found,
        (Column("setting", key="setting"), lambda one: _setting(one["setting"])),
        (Column("value", key="value"), lambda one: settings.value_words(one["value"])),
        (Column("versus", key="against"), lambda one: settings.value_words(one["against"])),
        (Column("speed-up", right=True), lambda one: f"{one['ratio']:.{places}f}×"),
        (
            Column("95 %", right=True),
            lambda one: f"[{one['ratio_low']:.{places}f}, {one['ratio_high']:.{places}f}]",
        ),
        (Column("ratio", "number", key="ratio", on="none"), lambda one: one["ratio"]),
        (Column("ratio_low", "number", key="ratio_low", on="none"), lambda one: one["ratio_low"]),
        (Column("ratio_high", "number", key="ratio_high", on="none"), lambda one: one["ratio_high"]),
        (Column("effect"), _effect_words),
    )


def _effect_words(one: EffectRecord) -> str:
    if one["ratio_low"] > 1:
        return "better"
    if one["ratio_high"] < 1:
        return "worse"
    near = max(one["ratio_high"], 1 / max(one["ratio_low"], 1e-9)) < 1.02
    return "none" if near else "unknown"


def evaluation_table(record: StudyRecord, *, most: int | None = None) -> Table:
    """Return all evaluated configurations, the best first, with state and reason.

    Args:
        record: of the search.
        most: rows; None: all.
    """
    question = question_from_dict(record.question)
    rows = [
        (one, reported_speedup(one, question.objective, confirmed_gains(record.answer)))
        for one in evaluations_of(record)
    ]
    rows.sort(key=lambda row: (bool(row[0].failed), -(row[1].ratio if row[1] is not None else -math.inf)))
    confirmed = {changes_words(one["changes"]): one for one in confirmed_configurations(answer_of(record))}
    return tabulate(
        rows[:most],
        (
            Column("configuration", key="configuration", tells=True, on="terminal"),
            lambda row: _configuration(row[0]),
        ),
        (Column("configuration", tells=True, on="browser"), lambda row: changes_words(row[0].changes)),
        (Column("state", key="state"), lambda row: _state(row[0], confirmed)),
        (Column("speed-up", right=True), lambda row: _speedup_cell(row[1])),
        (Column("95 %", right=True), lambda row: _interval(row[1])),
        (
            Column("speed-up", "number", key="gain", on="none"),
            lambda row: _number(row[1], "ratio"),
        ),
        (
            Column("gain_low", "number", key="gain_low", on="none"),
            lambda row: _number(row[1], "low"),
        ),
        (
            Column("gain_high", "number", key="gain_high", on="none"),
            lambda row: _number(row[1], "high"),
        ),
        (Column("p50", "ms", key="p50_ms", help=_P50_HELP), lambda row: row[0].value("latency_p50")),
        (
            Column("peak memory", "bytes", key="peak_rss_bytes", more=True),
            lambda row: row[0].value("peak_rss"),
        ),
        (
            Column("launches", "count", key="launches", more=True),
            lambda row: _number(row[1], "launches"),
        ),
        (Column("looks", "count", key="looks", on="none"), lambda row: len(row[0].looks)),
        (Column("reason", key="reason", narrow=True), lambda row: row[0].failed),
        drop=("launches", "peak memory", "p50", "reason"),
    )


_P50_HELP = (
    "Of configurations with several streams: service latency under that many callers, not user latency."
)


def _latency_kind(changes: Mapping[str, Any]) -> str:
    """Return what the latencies of a configuration with several streams are called, after a space."""
    count = changes.get(STREAMS, 1)
    return f" {latency_words({'streams': {'count': count}})}" if count > 1 else ""


def _configuration(one: Evaluation) -> str:
    full = ", ".join(line for _, line in setting_chips.chips_of(one.changes))
    return Abridged(full or DEFAULT_WORDS, setting_chips.short_words(one.changes) or DEFAULT_WORDS)


def _setting(name: str) -> str:
    return Abridged(name.removeprefix("session."), settings.short(name))


def _state(one: Evaluation, confirmed: Mapping[str, Confirmed]) -> str:
    if (found := confirmed.get(changes_words(one.changes))) is not None:
        return "confirmed" if not found["error"] else "not confirmed"
    if one.failed:
        return "failed"
    stages = {look.stage for look in one.looks}
    return "elimination round" if "heat" in stages else "screened"


def _number(one: ReportedSpeedup | None, name: str) -> Any:
    return None if one is None else getattr(one, name)


def _speedup_cell(one: ReportedSpeedup | None) -> str:
    """Return the speed-up; without an interval it is marked as an estimate of a few launches."""
    if one is None:
        return "–"
    return f"≈ {one.ratio:.2f}×" if one.low is None else f"{one.ratio:.3f}×"


def _interval(one: ReportedSpeedup | None) -> str:
    if one is None or one.low is None or one.high is None:
        return ""
    return "not known yet" if one.high > MAX_INTERVAL_FACTOR * one.low else f"[{one.low:.3f}, {one.high:.3f}]"


def studies(records: Sequence[StudyRecord]) -> Table:
    """Return searches, one per row."""
    return tabulate(
        records,
        (Column("search", "id", key="study"), lambda one: one.id),
        (Column("model", key="model"), lambda one: one.model_name),
        (Column("question", key="question"), lambda one: _question(one)),
        (Column("state", key="state"), state_words),
        (Column("answer", key="answer"), _short_answer),
        (Column("evaluated", "count", key="tried"), lambda one: sum(not data["twin"] for data in one.tried)),
        (Column("took", right=True), lambda one: duration(one.wall_s)),
        (Column("wall_s", "number", key="wall_s", on="none"), lambda one: one.wall_s),
        (Column("when"), lambda one: when(one.created_at)),
        drop=("when", "evaluated", "took"),
    )


def _question(one: StudyRecord) -> str:
    question = question_from_dict(one.question)
    load = [] if question.load is None else [question.load.words]
    return ", ".join([question.words, *question.limit_words, *load])


def _short_answer(one: StudyRecord) -> str:
    if one.answer is None:
        return ""
    winner = one.answer["winner"]
    match one.answer["outcome"]:
        case "FOUND":
            return speedup_text(winner["gain"])
        case "NO_DIFFERENCE":
            return "none beats the default"
        case "NONE_KEEPS_LIMITS":
            return "none meets the constraints"
    return str(one.answer["outcome"]).lower()


def search_verdict(record: StudyRecord) -> str:
    """Return the answer of a search in one sentence, or its state."""
    answer = answer_of(record)
    if answer is None:
        return f"No result: {state_words(record)}."
    return " ".join(first_sentences(answer))


def first_sentences(answer: SearchResult | Mapping[str, Any]) -> list[str]:
    """Return the result in one sentence, and the answer under load where the question asks for it."""
    load = answer.get("load")
    return [sentence(answer)] if load is None else [sentence(answer), load["words"]]
