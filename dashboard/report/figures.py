"""The plots of a report: those of the pages, with fewer points where there are very many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from core.api.searching import answer_of, evaluations_of
from core.api.sweeping import supported_percentile
from core.evidence.comparison import Comparison
from core.evidence.evaluations import Evaluation, reported_ratio
from core.evidence.measurement import Trial
from core.evidence.verdict import is_rejected
from core.show import comparison_text, verdict
from core.show.report.subjects import (
    About,
    AboutComparison,
    AboutDifference,
    AboutFleet,
    AboutLoad,
    AboutSearch,
    AboutSweep,
    AboutTrial,
    AboutUpgrade,
)
from core.show.sheets import searches
from core.spec import spec_from_dict
from core.spec.effort import DEFAULT_MARGIN
from core.spec.question import question_from_dict
from core.wire.profile import profile_from_dict
from dashboard.charts import (
    compare_charts,
    explain_charts,
    fleet_charts,
    latency_charts,
    load_charts,
    load_cost_charts,
    profile_charts,
    search_charts,
    search_evaluation_charts,
    sweep_charts,
    timeline_charts,
)

MAX_POINTS = 4000  # of latencies over time, of all sides together
MAX_STEPS = 1000  # of one side's distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure with its heading, and its text for screen readers."""

    title: str
    figure: go.Figure
    alt: str
    spare: bool = False  # may be left out to keep the file small


def plots_of(about: About) -> list[Plot]:
    """Return the plots of a report; none if there is nothing to draw."""
    match about:
        case AboutTrial():
            return list(_trial(about))
        case AboutLoad():
            return list(_load(about))
        case AboutComparison():
            return list(_comparison_figures(about.comparison, about.trials))
        case AboutSearch():
            return list(_search(about))
        case AboutSweep():
            return list(_curve(about))
        case AboutDifference():
            return list(_explanation_figures(about))
        case AboutUpgrade():
            return list(_upgrade(about))
        case AboutFleet():
            return list(_fleet(about))
    return []  # a scorecard is a table


def _upgrade(about: AboutUpgrade) -> Iterator[Plot]:
    contrasts = [{**row.contrast, "baseline": "old"} for row in about.rows if row.contrast is not None]
    if not contrasts:
        return
    labels = {row.contrast["candidate"]: row.item.model for row in about.rows if row.contrast is not None}
    info = compare_charts.forest_info(
        contrasts,
        {**labels, "old": "old runtime"},
        baseline="old",
        margin=contrasts[0].get("margin", DEFAULT_MARGIN),
        muted=[one["candidate"] for one in contrasts if is_rejected(one)],
    )
    yield Plot(title="Speed in the new runtime", figure=compare_charts.forest(info), alt=_forest_alt(info))


def _trial(about: AboutTrial) -> Iterator[Plot]:
    trial, comparison = about.trial, about.comparison
    if trial.kind == "profile":
        yield from _profile(trial)
        return
    contrasts = verdict.contrasts_of(comparison, trial.id) if comparison is not None else []
    if comparison is not None and any(one.get("ratio") for one in contrasts):
        info = compare_charts.trial_forest_info(comparison, contrasts)
        yield Plot(title="Speed", figure=compare_charts.forest(info), alt=_forest_alt(info))
    against = contrasts[0]["baseline"] if contrasts else ""
    names = comparison_text.labels(comparison) if comparison is not None else {}
    baseline = [one for one in about.beside if one.id == against]
    sides = [latency_charts.side(trial, "this trial" if baseline else "")]
    sides += [latency_charts.side(one, names.get(one.id, "")) for one in baseline]
    others = [latency_charts.side(one, names.get(one.id, "")) for one in about.beside if one.id != against]
    yield from _samples(sides, others)


def _load(about: AboutLoad) -> Iterator[Plot]:
    result = about.result
    point, limit = load_charts.main_point(result), load_charts.latency_limit(result)
    info = load_charts.rate_info(result)
    rates = {one["rate_per_s"] for one in result["points"]}
    if len(rates) > 1 and result["batching"] is None and not result["together"]:
        yield Plot(
            title="Latency against rate",
            figure=load_charts.rates(info),
            alt=f"{info.y_title} against requests per second: {load_charts.summary(result['points'])}",
        )
    if result["batching"] is not None and result["batching"]["service_times"]:
        yield Plot(
            title="Service times",
            figure=load_cost_charts.service_times(result["batching"]),
            alt="Service time and samples per second by samples of a call",
        )
    if result["together"]:
        yield Plot(
            title="Latency alone and together",
            figure=load_cost_charts.together(result),
            alt="Latency of each model alone and at the same time as the others",
        )
    own = [load_charts.runs_of(result)[one] for one in (point["runs"] if point is not None else [])][:1]
    for run in own:
        course = load_charts.course_info(run, limit)
        if course.at_s:
            yield Plot(
                title="Latency over time" if course.measured else "Requests over time",
                figure=load_charts.course(course),
                alt="One run over time: latency, arrivals, completions and the queue",
                spare=True,
            )
    shares = load_charts.distribution_info(load_charts.runs_at(result, point), load_charts.labels_of(result))
    if shares:
        yield Plot(
            title="Distribution",
            figure=load_charts.distribution(shares, limit=limit, tail=True),
            alt="Share of the requests at or below each latency",
        )


def _comparison_figures(comparison: Comparison, trials: Sequence[Trial]) -> Iterator[Plot]:
    info = compare_charts.comparison_forest_info(comparison)
    if info is not None:
        yield Plot(title="Speed", figure=compare_charts.forest(info), alt=_forest_alt(info))
    by_id, names = {one.id: one for one in trials}, comparison_text.labels(comparison)
    ordered = [by_id[one] for one in comparison_text.order(comparison) if one in by_id]
    yield from _samples([latency_charts.side(one, names[one.id]) for one in ordered if one.result])


def _forest_alt(info: compare_charts.ForestInfo) -> str:
    return f"Speed versus {info.baseline} with 95 % intervals; the band is the equivalence margin"


def _samples(
    sides: Sequence[latency_charts.Side], beside: Sequence[latency_charts.Side] = ()
) -> Iterator[Plot]:
    if not any(one.result.get("latencies_s") for one in sides):
        return
    info = timeline_charts.timeline_info(sides, beside, limit=MAX_POINTS)
    yield Plot(
        title="Latency over time",
        figure=timeline_charts.timeline(info),
        alt="Latency of the runs over time, with disturbances beneath",
        spare=True,
    )
    yield Plot(
        title="Distribution",
        figure=latency_charts.latency_ecdf(sides, limit=MAX_STEPS),
        alt="Share of runs at or below each latency",
    )


def _profile(trial: Trial) -> Iterator[Plot]:
    if trial.result is None:
        return
    result = trial.result
    ran = profile_charts.ProviderNames(
        requested=tuple(result["requested_providers"]),
        effective=tuple(result["effective_providers"]),
        fallback=bool(result["fallback"]),
    )
    profile = profile_from_dict(result["profile"])
    yield Plot(
        title="Time by operator",
        figure=profile_charts.bars(profile_charts.operator_info(profile, ran)),
        alt="Self time per run by operator type",
    )


def _search(about: AboutSearch) -> Iterator[Plot]:
    record = about.record
    answer: Any = answer_of(record)
    objective = question_from_dict(record.question).objective
    tried = evaluations_of(record)

    ratio_of = reported_ratio(objective, answer)
    if answer:
        shown = answer["winner"] or next(iter(answer["others"]), None)
        if shown and shown["gains"]:
            info = search_charts.speedups_info(shown["gains"])
            yield Plot(
                title="All metrics" if answer["winner"] else "Best configuration",
                figure=search_charts.intervals(info),
                alt=search_charts.SPEEDUPS_ALT,
            )
        yield from _grounds(record.spec, answer, tried, ratio_of)
    parallel = search_evaluation_charts.parallel_info(tried, ratio_of, answer["effects"] if answer else [])
    if len(parallel.gains) >= 2 and parallel.dimensions:
        yield Plot(
            title=searches.EVALUATIONS_TITLE,
            figure=search_evaluation_charts.parallel(parallel),
            alt=search_evaluation_charts.parallel_alt(parallel),
            spare=True,
        )


def _grounds(spec: dict[str, Any], answer: Any, tried: Sequence[Evaluation], ratio_of: Any) -> Iterator[Plot]:
    if answer["effects"]:
        margin = spec_from_dict(spec).protocol.margin
        yield Plot(
            title="Effects",
            figure=search_charts.intervals(search_charts.effects_info(answer["effects"], margin=margin)),
            alt="Average effects of settings, with 95 % intervals",
        )
    for cost in search_charts.costs(answer["front"], answer["objective"])[:1]:
        info = search_charts.front_info(answer["front"], tried, ratio_of, cost=cost, winner=answer["winner"])
        yield Plot(
            title="Pareto front",
            figure=search_charts.front(info),
            alt=search_charts.front_alt(info),
        )
    if any(one["ratio"] for one in answer["course"]):
        yield Plot(
            title="Progress",
            figure=search_charts.course(answer["course"]),
            alt=search_charts.COURSE_ALT,
        )


def _curve(about: AboutSweep) -> Iterator[Plot]:
    complete = [one for one in about.points if one.latency]
    if not complete:
        return
    percentile = supported_percentile(complete)
    x, series = about.axes[0].name, about.axes[1].name if len(about.axes) > 1 else ""
    shown = list(dict.fromkeys(["p50_s", percentile]))[-1 if series else -2 :]
    for title, y in (("Latency", shown), ("Throughput", "throughput")):
        info = sweep_charts.curve_info(complete, x=x, y=y, series=series)
        yield Plot(
            title=title,
            figure=sweep_charts.curve(info),
            alt=f"{title} over {x} at {len(complete)} measured points; bands: 95 % intervals",
        )


def _fleet(about: AboutFleet) -> Iterator[Plot]:
    for section in about.summary.sections:
        of, found = section.matrix, section.portability
        title = f"Question {of.question}"
        if found is not None and len(found.hosts) > 1 and len(of.configurations) > 1:
            info = fleet_charts.regret_info(of, found, about.summary.run.hosts)
            yield Plot(
                title=f"{title}: regret by host and configuration",
                figure=fleet_charts.regrets(info),
                alt=fleet_charts.regret_alt(info),
            )
        elif (gains := fleet_charts.gain_info(of)) is not None:
            yield Plot(
                title=f"{title}: speed-up by host",
                figure=fleet_charts.gains(gains),
                alt=fleet_charts.gain_alt(gains),
            )


def _explanation_figures(about: AboutDifference) -> Iterator[Plot]:
    if not about.found.end.decided:
        return
    unit = "row" if about.found.end.per_row else "run"
    yield Plot(
        title="From the baseline to the candidate",
        figure=explain_charts.steps(explain_charts.steps_info(about.found), unit=unit),
        alt="The difference of the two results, part by part; the lines are 95 % intervals",
    )
    yield Plot(
        title="Both results by part",
        figure=explain_charts.sides(about.found),
        alt=explain_charts.SIDES_TITLE,
    )
