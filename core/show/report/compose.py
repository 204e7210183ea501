"""Composes a report from a loaded result, with the texts of sheets and pages. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core import __version__
from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial
from core.evidence.profile_sentence import remarks, sentence
from core.evidence.quality import quality, quality_of_search
from core.evidence.roofline import peaks_of
from core.evidence.upgrade import headline as upgrade_headline
from core.evidence.upgrade import intervals_text
from core.evidence.verdict import Color, Grade, icon_and_color, is_rejected
from core.run.best_point import rank_points
from core.run.search import search_provenance
from core.run.search.stored import answer_of
from core.show import comparison_text, export, load_text, verdict
from core.show.format import duration, when
from core.show.glossary import TERMS
from core.show.report import File, Price, Report, Section, cost, fleets, signed
from core.show.report.subjects import (
    About,
    AboutComparison,
    AboutDifference,
    AboutFleet,
    AboutLoad,
    AboutScorecard,
    AboutSearch,
    AboutSweep,
    AboutTrial,
    AboutUpgrade,
)
from core.show.runtime_text import runtime_text
from core.show.setting_chips import changes_text
from core.show.sheets import (
    Fact,
    Line,
    Note,
    Part,
    Sheet,
    comparisons,
    differences,
    loads,
    models_and_machines,
    scorecards,
    searches,
    sweeps,
    upgrades,
)
from core.show.sheets import trials as sheets
from core.spec import yaml_from_spec
from core.spec.axes import point_name
from core.spec.effort import DEFAULT_MARGIN
from core.spec.load import QUESTIONS
from core.spec.question import question_from_dict
from core.store import PRUNED, Store
from core.wire.errors import TunerError
from core.wire.output_check import OUTPUTS_DIFFER, breach
from core.wire.profile import profile_from_dict

TOP = 15  # rows of the node table
_ROUNDS = (
    "Every launch starts a fresh process of each configuration. In every round each process runs one "
    "short block, in random order, while the others are paused; ratios are taken within a round. Two "
    "copies of ONNX Runtime's default run in the same rounds; their difference is noise (the A/A test)."
)
_LOAD_METHOD = (
    "Requests arrive at scheduled times, whether or not earlier ones are answered. Latency is the time from "
    "the scheduled arrival to the completion. Client and server share the CPUs of one machine; no network "
    "is involved.",
    "Every run says what the harness added: the ideal queue is replayed with the scheduled arrivals and the "
    "measured service times. A run in which the harness adds more than 10 % of p50 is not a measurement.",
    "Bounds on the share of slow requests are one-sided, with 95 % confidence, from the spread between equal "
    "parts of a run, because requests that follow each other are dependent.",
)
_UPGRADE = (
    "Each model has one comparison: the old and the new runtime run the same configuration in the same "
    "rounds. Outputs are compared on equal inputs, with each other and with the unoptimized original model."
)
_OLDER_ROUNDS = "Measured in interleaved rounds, one process per configuration."


def compose(
    about: About,
    store: Store,
    *,
    price: Price | None = None,
    recorded: str = "",
    signature: Section | None = None,
) -> Report:
    """Return the report on a result.

    Args:
        about: the result, from `subjects.find`.
        store: finds the search of a trial.
        price: of an hour of the machine; None: no costs.
        recorded: the demo's note that it was not measured here.
        signature: from `signed.section`, with the digests; None: of the file that the store keeps.
    """
    signature = signature or signed.section(about, store)
    match about:
        case AboutLoad():
            found = _load(about, store)
        case AboutTrial():
            found = _trial(about, store, price)
        case AboutComparison():
            found = _comparison(about, store, price)
        case AboutSearch():
            found = _search(about, store, price)
        case AboutSweep():
            found = _sweep(about, store, price)
        case AboutScorecard():
            found = _scorecard(about, price)
        case AboutDifference():
            found = _difference(about, store, price)
        case AboutUpgrade():
            found = _upgrade(about, store)
        case AboutFleet():
            found = fleets.report_parts(about.summary)
    return Report(**{**found, "recorded": recorded, "signature": signature})


# --- kinds of results ---------------------------------------------------------------------------------------


def _trial(about: AboutTrial, store: Store, price: Price | None) -> dict[str, Any]:
    trial, comparison = about.trial, about.comparison
    result = trial.facts
    labels = comparison_text.labels(comparison) if comparison is not None else {}
    if trial.kind == "profile" and trial.result is not None:
        measured = store.peaks(trial.fingerprint)
        peaks = [] if measured is None else peaks_of(measured)
        sheet = sheets.profiled(trial, profile_from_dict(trial.result["profile"]), top=TOP, peaks=peaks)
    else:
        sheet = sheets.measured(trial, labels) if result else sheets.failed(trial)
    said, color, support = verdict.trial_verdict(trial, comparison)
    return {
        "kind": "Profile" if trial.kind == "profile" else "Trial",
        "id": trial.id,
        "title": _subject_text(trial),
        "measured_at": trial.finished_at or trial.created_at,
        "verdict": said,
        "color": color,
        "support": support,
        "rejected": _rejected(result),
        "result": [_section("Result", sheet)],
        "cost": _cost([(_short(trial), result), *_named(about.beside, labels)], price),
        "method": [*_method(comparison), *_machine([trial])],
        "caveats": [*_notes(sheet), *_caveats([trial, *about.beside], comparison)],
        "files": [_file(trial, store)],
        "tool_version": _version(result),
    }


def _load(about: AboutLoad, store: Store) -> dict[str, Any]:
    trial, result = about.trial, about.result
    sheet, said = loads.load_sheet(trial), load_text.answer(result)
    fresh = [one for one in result["points"] if one["fresh"]]
    spoiled = [one for one in fresh if load_text.has_no_answer(one)]
    asked = load_text.question_of(result)
    models = ", ".join(dict.fromkeys(one["model"] for one in result["configurations"]))
    return {
        "kind": "Load test",
        "id": trial.id,
        "title": f"{models}: {QUESTIONS[asked.question] if asked is not None else 'load test'}",
        "measured_at": trial.finished_at or trial.created_at,
        "verdict": said,
        "color": load_text.color(result),
        "support": [load_text.traffic_words(asked)] if asked is not None else [],
        "rejected": load_text.point_words(spoiled[0]) if spoiled and len(spoiled) == len(fresh) else "",
        "result": [_section("Result", sheet, without=[said])],
        "method": [Section(title="Method", parts=[Line(one) for one in _LOAD_METHOD]), *_machine([trial])],
        "caveats": [*_notes(sheet, without=[said]), *_caveats([trial], None)],
        "files": [_file(trial, store)],
        "tool_version": _version(trial.facts),
    }


def _comparison(about: AboutComparison, store: Store, price: Price | None) -> dict[str, Any]:
    comparison, trials = about.comparison, about.trials
    labels = comparison_text.labels(comparison)
    sheet = (
        comparisons.comparison_sheet(comparison, trials)
        if comparison.result
        else Sheet("", [comparisons.configurations(comparison, trials)])
    )
    rejected = _rejected(comparison.facts)
    said = comparison_text.comparison_verdict(comparison)
    first = comparison_text.against_reference(comparison).get(
        next(iter(comparison_text.order(comparison)), "")
    )
    return {
        "kind": "Comparison",
        "id": comparison.id,
        "title": comparison_text.title(comparison),
        "measured_at": comparison.finished_at or comparison.created_at,
        "verdict": said,
        "color": "red"
        if rejected
        else "gray"
        if first is None or comparison_text.is_open(comparison)
        else icon_and_color(first)[1],
        "support": comparison_text.facts(comparison) if comparison.result else [],
        "rejected": rejected,
        "result": [_section("Result", sheet, without=[said])],
        "cost": _cost(_named(trials, labels), price),
        "method": [*_method(comparison), *_machine(trials)],
        "caveats": [*_notes(sheet, without=[said]), *_caveats(trials, comparison)],
        "files": _files(trials, store, labels),
        "tool_version": _version(*(one.facts for one in trials)),
    }


def _search(about: AboutSearch, store: Store, price: Price | None) -> dict[str, Any]:
    record = about.record
    answer: Any = answer_of(record)
    sheet = searches.search_sheet(record)
    said = searches.search_verdict(record)
    first = [said] if answer is None else searches.first_sentences(answer)
    trials = list(about.trials.values())
    told = {"ORT default": (answer or {}).get("default"), "answer": (answer or {}).get("winner")}
    names = {one["trial"]: name for name, one in told.items() if one}
    is_turned_down = bool(answer) and answer["outcome"] == "REJECTED"
    comparison_ids = [one.comparison for one in trials if one.comparison]
    comparison = verdict.stored_comparison(store, comparison_ids[0]) if comparison_ids else None
    return {
        "kind": "Search",
        "id": record.id,
        "title": f"{record.model_name}: {question_from_dict(record.question).words}",
        "measured_at": record.finished_at or record.created_at,
        "verdict": said,
        "color": searches.COLORS[answer["outcome"]] if answer else "gray",
        "support": [found.label] if answer and (found := quality_of_search(answer)) else [],
        "rejected": said if is_turned_down else "",
        "result": [_section("Answer", sheet, without=first), *_evaluations_section(about)],
        "cost": _cost(_named(trials, names), price),
        "method": [*_method(comparison), *_machine(trials)],
        "caveats": [*_notes(sheet, without=first), *_caveats(trials, comparison)],
        "files": _files(trials, store, names),
        "tool_version": _version(*(one.facts for one in trials)),
    }


def _evaluations_section(about: AboutSearch) -> list[Section]:
    """Return the table of all evaluated configurations; the sheet shows only the best."""
    if len(about.record.tried) <= searches.EVALUATIONS_SHOWN:
        return []
    return [
        Section(
            title=searches.EVALUATIONS_TITLE,
            parts=[searches.evaluation_table(about.record, most=TOP * 4)],
        )
    ]


def _sweep(about: AboutSweep, store: Store, price: Price | None) -> dict[str, Any]:
    comparison, points = about.comparison, about.points
    busy = {comparison.id: words} if (words := verdict.background_load_text(comparison.result)) else {}
    rejected = _rejected(comparison.facts)
    stands = rank_points(
        points, line_s=None, margin=float(comparison.protocol.get("margin") or DEFAULT_MARGIN)
    )
    said = sweeps.sentence(points, stands)
    labels = {one.trial: point_name(one.values) for one in points}
    parts: list[Part] = [*sheets.grade(comparison.facts), sweeps.points(points, stands, busy)]
    return {
        "kind": "Curve",
        "id": comparison.id,
        "title": f"{comparison.model_name} over {' and '.join(one.name for one in about.axes)}",
        "measured_at": comparison.finished_at or comparison.created_at,
        "verdict": "Rejected: the points are not ranked." if rejected else said,
        "color": "red" if rejected else "blue",
        "support": comparison_text.facts(comparison) if comparison.result else [],
        "rejected": rejected,
        "result": [Section(title="Points", parts=parts)],
        "cost": _cost(_named([one for one in about.trials if one.id in labels], labels), price),
        "method": [*_method(comparison), *_machine(about.trials)],
        "caveats": [*comparison_text.cautions(comparison), *_caveats(about.trials, comparison)],
        "files": _files([one for one in about.trials if one.id in labels], store, labels),
        "tool_version": _version(*(one.facts for one in about.trials)),
    }


_UNDER_LOAD = "Under load: the upper 95 % bound of the share of slower requests is within that of the limit"


def _scorecard(about: AboutScorecard, price: Price | None) -> dict[str, Any]:
    found = [scorecards.scorecard(row) for row in about.rows]
    states = [row.state for row in about.rows]
    color: Color = "green" if "MET" in states else "red" if set(states) == {"MISSED"} else "gray"
    named = [
        (f"{row.subject.label}, batch {size}", dict(results[0]))
        for row in about.rows
        for size, results in row.evidence.results.items()
        if results
    ]
    busy = [words for _, result in named if (words := verdict.background_load_text(result))]
    return {
        "kind": "Scorecard",
        "id": about.name,
        "title": f"Scorecard of {', '.join(dict.fromkeys(row.subject.label for row in about.rows))}",
        "measured_at": max((one.finished_at or one.created_at for one in about.trials), default=None),
        "verdict": scorecards.headline(about.rows),
        "color": color,
        "support": [
            "Met: the whole 95 % interval is within the limit",
            *[_UNDER_LOAD] * any(one.target.load is not None for row in about.rows for one in row.judged),
        ],
        "rejected": "",
        "result": [
            Section(title=one.headline, parts=[part for part in one.parts if not isinstance(part, Note)])
            for one in found
        ],
        "cost": _cost(named, price),
        "method": [Section(title="Method", parts=[Line(_ROUNDS)]), *_machine(about.trials)],
        "caveats": [
            *(text for one in found for text in _notes(one)),
            *dict.fromkeys(f"Measured {words}. {verdict.BUSY_MEANING}" for words in busy),
        ],
        "files": [
            File(
                name=row.subject.label,
                text=yaml_from_spec(row.subject.spec, measured=row.measured, environment=None),
            )
            for row in about.rows
        ],
        "tool_version": _version(*(result for _, result in named)),
    }


def _upgrade(about: AboutUpgrade, store: Store) -> dict[str, Any]:
    sheet, said = upgrades.upgrade(about.record, about.rows), upgrade_headline(about.rows)
    covered = intervals_text(about.rows)
    trials = list(about.trials)
    labels = {row.after.id: row.item.model for row in about.rows if row.after is not None}
    return {
        "kind": "Upgrade",
        "id": about.record.id,
        "title": about.record.title,
        "measured_at": max((one.finished_at or one.created_at for one in trials), default=None),
        "verdict": said,
        "color": upgrades.overall_color(about.rows),
        "support": [covered] if covered else [],
        "rejected": "",
        "result": [_section("Result", sheet, without=[said, covered])],
        "method": [
            Section(title="Method", parts=[Line(_ROUNDS), Line(_UPGRADE)]),
            *_without_libraries(_machine(trials)),
        ],
        "caveats": [*_notes(sheet, without=[said]), *_caveats(trials, None)],
        "files": _files([one for one in trials if one.id in labels], store, labels),
        "tool_version": _version(*(one.facts for one in trials)),
    }


def _without_libraries(sections: Sequence[Section]) -> list[Section]:
    """Return the facts of the machine without the libraries, which are those of one runtime only."""
    return [
        Section(
            title=one.title, parts=[part for part in one.parts if getattr(part, "name", "") != "libraries"]
        )
        for one in sections
    ]


def _difference(about: AboutDifference, store: Store, price: Price | None) -> dict[str, Any]:
    of, found = about.pair, about.found
    sheet = differences.explained(of, found, top=TOP)
    trials = [of.baseline, of.candidate]
    comparison = verdict.stored_comparison(store, of.candidate.comparison)
    names = {of.baseline.id: "baseline", of.candidate.id: "candidate"}
    said = sentence(found)
    own = verdict.contrasts_of(comparison, of.candidate.id) if comparison is not None else []
    contrast = next((one for one in own if one["baseline"] == of.baseline.id), None)
    rejected = _rejected(contrast, comparison)
    return {
        "kind": "Explanation",
        "id": f"{of.baseline.id} {of.candidate.id}",
        "title": f"Why {_subject_text(of.candidate)} and {_subject_text(of.baseline)} differ",
        "measured_at": of.candidate.finished_at or of.candidate.created_at,
        "verdict": said,
        "color": "red" if rejected else found.end.verdict.color,
        "support": [] if found.end.raced else ["Not measured in the same rounds, so there is no verdict"],
        "rejected": rejected,
        "result": [
            Section(
                title="Where the difference comes from" if found.end.decided else "Compared results",
                parts=[
                    Fact("baseline", _subject_text(of.baseline)),
                    Fact("candidate", _subject_text(of.candidate)),
                    *(part for part in sheet.parts if not isinstance(part, Note | Line)),
                ],
            )
        ],
        "cost": _cost(_named(trials, names), price),
        "method": [*_method(comparison), *_machine(trials)],
        "caveats": [*(remarks(found) if found.end.decided else []), *_caveats(trials, comparison)],
        "files": _files(trials, store, names),
        "tool_version": _version(*(one.facts for one in trials)),
    }


# --- parts of several kinds ---------------------------------------------------------------------------------


def _rejected(result: Mapping[str, Any] | None, comparison: Comparison | None = None) -> str:
    """Return why the verdict is rejected; empty: it is valid."""
    found = result or {}
    own = next(iter(found.get("contrasts") or []), None) if "contestants" not in found else None
    hit = next((one for one in (found, own) if one and is_rejected(one)), None)
    if hit is None:
        return ""
    whole = comparison.facts if comparison is not None else found
    reason = hit.get("holds_reason") or found.get("grade_reason") or whole.get("grade_reason") or ""
    remedy = found.get("remedy") or whole.get("remedy") or verdict.MEASURE_BETTER
    return f"{reason} {remedy}".strip()


def _subject_text(trial: Trial) -> str:
    return f"{trial.model_name}: {changes_text(trial) or 'ONNX Runtime default'}"


def _short(trial: Trial) -> str:
    return f"this trial ({changes_text(trial) or 'default'})"


def _section(title: str, sheet: Sheet, *, without: Sequence[str] = ()) -> Section:
    """Return a sheet without its notes, which are listed as caveats, and without the texts of the top."""
    kept = [part for part in sheet.parts if not _is_note(part) and getattr(part, "text", None) not in without]
    return Section(title=title, parts=kept)


def _is_note(part: Part) -> bool:
    if isinstance(part, Note):
        return part.text.startswith("note: ") or part.text.startswith(OUTPUTS_DIFFER.upper())
    return isinstance(part, Line) and part.text.startswith(("Explain: ", "Export: ", "Report: "))


def _notes(sheet: Sheet, *, without: Sequence[str] = ()) -> list[str]:
    texts = [part.text for part in sheet.parts if isinstance(part, Note) and _is_note(part)]
    return [text.removeprefix("note: ") for text in texts if text not in without]


def _caveats(trials: Iterable[Trial], comparison: Comparison | None) -> list[str]:
    """Return further caveats: background load, exceeded tolerances, fallbacks, pruned measurements."""
    found = []
    good = quality(comparison.result) if comparison is not None else None
    if comparison is not None and good is not None and good.color != Grade.A.color:
        found.append(" ".join([f"{good.label}.", *verdict.quality_details(comparison.result)]))
    for trial in trials:
        name = changes_text(trial) or "default"
        if why := breach(trial.facts):
            found.append(f"{OUTPUTS_DIFFER}, {name}: {why}")
        if trial.facts.get("fallback"):
            found.append(f"Fallback, {name}: {trial.facts.get('fallback_reason') or ''}")
        if PRUNED in trial.facts:
            found.append(f"The raw measurements of {name} were pruned; the results are kept.")
    return list(dict.fromkeys(verdict.sentence(one) for one in found))


def _method(comparison: Comparison | None) -> list[Section]:
    """Return the protocol of the comparison."""
    if comparison is None or not comparison.result:
        return []
    protocol, result = comparison.protocol, comparison.facts
    seeds = protocol.get("seed")
    parts: list[Part] = [
        Fact("comparison", f"{comparison.id}, {when(comparison.finished_at or comparison.created_at)}"),
        Fact("rounds", f"{verdict.rounds_words(result)}, {duration(result.get('wall_s'))}"),
        Fact("effort", f"{protocol.get('precision', '')}: until ±{100 * protocol.get('target', 0):.2g} %"),
        Fact("budget", duration(protocol.get("budget_s"))),
        Fact("equivalence margin", f" {100 * (protocol.get('margin') or 0):g} %"),
        *([Fact("seed", str(seeds))] if seeds is not None else []),
        *(Fact("A/A test", text) for text in verdict.self_test_lines(comparison)),
        Line(_ROUNDS if result.get("generations") else _OLDER_ROUNDS),
        Line(
            "All intervals are 95 % intervals. "
            f"Those of ratios: {comparison_text.intervals_text(comparison)}."
        ),
        Line(f"{TERMS['ratio']} {TERMS['undisturbed rounds']}"),
    ]
    return [Section(title="Method", parts=parts)]


def _machine(trials: Iterable[Trial]) -> list[Section]:
    """Return the machine with ORTune's own libraries where a trial ran in them, and the other runtimes."""
    known = sorted((one for one in trials if one.facts.get("environment")), key=runtime_text)
    if not known:
        return []
    found: Any = known[0].facts["environment"]
    others = dict.fromkeys(text for one in known if (text := runtime_text(one)))
    parts = [*models_and_machines.machine_facts(found), *(Fact("runtime", text) for text in others)]
    return [Section(title="Machine", parts=parts)]


def _cost(found: Sequence[cost.Named], price: Price | None) -> Section | None:
    return cost.section(found, price) if price is not None else None


def _named(trials: Iterable[Trial], labels: Mapping[str, str]) -> list[cost.Named]:
    return [(labels.get(one.id, one.id[:12]), one.facts) for one in trials]


def _files(trials: Iterable[Trial], store: Store, labels: Mapping[str, str]) -> list[File]:
    return [_file(one, store, labels.get(one.id, "")) for one in trials]


def _file(trial: Trial, store: Store, label: str = "") -> File:
    name = f"{label or _subject_text(trial)} (trial {trial.id[:12]})"
    try:
        return File(name=name, text=export.export_yaml(trial, found=search_provenance(store, trial)))
    except TunerError as error:
        return File(name=name, missing=f"{error.message} {error.hint}".strip())


def _version(*results: Mapping[str, Any]) -> str:
    known = dict.fromkeys(str(one["tool_version"]) for one in results if one.get("tool_version"))
    return ", ".join(known) or __version__
