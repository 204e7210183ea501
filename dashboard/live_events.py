"""Updates of a running job as small events: text, progress, intervals so far. Pure functions.

The server builds an event at most a few times a second and sends it to all connected browsers
(`server.live`); the browser draws it in place (`widgets.live_view`). No Streamlit, no clock, no store here.
Texts are plain: code spans in backticks are the only markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

from core.api import live
from core.api.session import Entry, Status
from core.api.sweeping import Measured
from core.evidence.comparison import Comparison
from core.evidence.evaluations import best_text
from core.show import interim
from core.show.words import ANOTHER_PERSON, start_words
from core.spec.space import changes_words
from dashboard import format
from dashboard.charts import compare_charts, live_charts
from dashboard.charts.live_charts import Picture
from dashboard.widgets import live_text
from dashboard.widgets.live_text import ComparedConfigurations, progress, step_text, waiting_text, whole

ACTIVE = ("WAITING", "RUNNING")
ROUNDS_STAGE = "rounds"  # stage of a comparison in which more rounds narrow its intervals
MAX_LIVE_POINTS = 16  # a running sweep with more points shows its progress only


class Line(TypedDict, total=False):
    """One line of text."""

    text: str
    icon: str  # name of a Material Symbol
    color: str  # of a badge: "green", "orange", "gray" or "red"; empty: no badge
    strong: bool
    small: bool
    age_s: float  # since its measurement; the browser shows it and counts on


class Event(TypedDict, total=False):
    """The complete state to show; it does not depend on earlier events."""

    ended: bool  # the last event: the page draws the result
    state: Literal["waiting", "measuring", "ended"]
    share: float | None  # of the progress bar; None: no bar
    text: str  # below the bar
    lines: list[Line]  # findings so far
    ratio: str  # ratio so far, for the bar at the top of the page
    more: list[Line]  # lines for a second place
    caption: str  # above the plots
    pictures: list[Picture]


ENDED: Event = {"ended": True, "state": "ended"}


def of_job(status: Status | None, what: str, *, name: str = "", more: str = "") -> Event:
    """Return the event of a job that has no numbers until it ends.

    Args:
        status: of the job; None: it is no longer known.
        what: the job, in a sentence: "this pair".
        name: text before its step; empty: none.
        more: text after it.
    """
    if status is None or status.state not in ACTIVE:
        return ENDED
    share, text = progress(status, what)
    return _shown(status, share, f"{name}: {text}{more}" if name else f"{text}{more}")


def of_other_process(doing: str) -> Event:
    """Return the event of a job that another process runs, of which only the end will be known."""
    text = f"{doing}; shown here when it is done."
    return {"ended": False, "state": "measuring", "share": 0.0, "text": text}


def of_trial(status: Status, field: ComparedConfigurations, margin: float) -> Event:
    """Return the event of a running trial: its latency, and its ratio to each reference so far.

    Args:
        status: of the job.
        field: the compared configurations.
        margin: of equivalence.
    """
    share, text = progress(status, "this one")
    so_far, measuring = status.live, status.stage == ROUNDS_STAGE
    if measuring and so_far:
        text = step_text(replace(status, total=0))  # the line below counts the rounds
    event = _shown(status, share, text)
    if so_far:
        found = live_text.contrasts_of(so_far, status.id)
        event["lines"] = [{"text": live_text.words(so_far, status.id, field, measuring=measuring)}]
        event["ratio"] = interim.sentence(found[0]) if found else ""
        event["pictures"] = [
            *_intervals(found, field.labels, margin, per_row=field.per_row),
            *_courses(so_far, field, [status.id]),
        ]
    return event


def _intervals(
    found: Sequence[Mapping[str, Any]],
    labels: Mapping[str, str],
    margin: float,
    *,
    per_row: bool,
    hollow: bool = False,
) -> list[Picture]:
    known = [one for one in found if interim.is_known(one)]
    if not known:
        return []
    info = compare_charts.reference_forest_info(known, labels, margin=margin, per_row=per_row, final=False)
    alt = "; ".join(interim.sentence(one, labels.get(one["baseline"], "the baseline")) for one in known)
    return [live_charts.forest(info, f"Speed with its 95 % interval: {alt}", hollow=hollow, said=True)]


def _courses(
    so_far: Mapping[str, Any], field: ComparedConfigurations, trials: Sequence[str]
) -> list[Picture]:
    """Return the plot of these ratios over time; empty before one of them has changed."""
    told = so_far.get("course") or {}
    known = {field.labels.get(one, "this trial"): told[one] for one in trials if told.get(one)}
    if max((len(steps) for steps in known.values()), default=0) < 2:
        return []
    against = next(one["baseline"] for one in so_far["contrasts"])
    return [live_charts.ratios(known, field.labels.get(against, "the baseline"))]


def of_comparison(
    status: Status,
    comparison: Comparison,
    field: ComparedConfigurations,
    *,
    margin: float,
    failed: Mapping[str, str],
) -> Event:
    """Return the event of a running comparison: every interval and p50 so far, and the failed configurations.

    Args:
        status: of the job.
        comparison: the running one.
        field: the compared configurations.
        margin: of equivalence.
        failed: trial -> reason.
    """
    if status.state == "WAITING":
        event = _shown(status, 0.0, waiting_text(status, "this comparison"))
    else:
        share = min(1.0, status.done / status.total) if status.total else 0.0
        event = _shown(status, share, running_text(status))
        _add_forest(event, comparison, status.live or {}, field, margin)
    event["lines"] = [
        {
            "icon": "error",
            "text": (
                f"{field.labels.get(trial, trial[:8])} failed: {why} The other configurations continue."
            ),
        }
        for trial, why in failed.items()
    ]
    return event


def running_text(status: Status) -> str:
    """Describe a running comparison: its step, completed and expected rounds, time."""
    so_far = status.live or {}
    if status.stage == ROUNDS_STAGE and so_far.get("predicted_rounds"):
        text = live_text.rounds_text(so_far, measuring=True)
        return step_text(replace(status, stage=text, total=0, eta_s=None))
    return step_text(replace(status, eta_s=None))


def _add_forest(
    event: Event,
    comparison: Comparison,
    so_far: Mapping[str, Any],
    field: ComparedConfigurations,
    margin: float,
) -> None:
    contrasts = [one for one in so_far.get("contrasts") or [] if one["candidate"] != comparison.baseline]
    against = contrasts[0]["baseline"] if contrasts else comparison.baseline
    contrasts = [one for one in contrasts if one["baseline"] == against and interim.is_known(one)]
    if not 0 < len(contrasts) <= MAX_LIVE_POINTS:
        return
    named = {trial: _with_p50(name, so_far, trial, field) for trial, name in field.labels.items()}
    found = [{**one, "label": named.get(one["candidate"], one.get("label"))} for one in contrasts]
    info = compare_charts.forest_info(
        found, field.labels, baseline=against, margin=margin, per_row=field.per_row, final=False
    )
    unit = " per sample" if field.per_row else ""
    event["caption"] = (
        f"Interim: speed{unit} versus {named.get(against, 'the baseline')}, 95 % "
        "intervals. Band: equivalence margin."
    )
    alt = f"Ratio and interval of {len(contrasts)} configurations after {so_far.get('rounds', 0)} rounds"
    event["pictures"] = [
        live_charts.forest(info, alt),
        *_courses(so_far, field, [one["candidate"] for one in contrasts]),
    ]


def _with_p50(name: str, so_far: Mapping[str, Any], trial: str, field: ComparedConfigurations) -> str:
    text = live_text.speed_text(so_far, trial, field)
    return f"{name} · {text}" if text else name


def add_points(event: Event, points: Sequence[Measured], axes: Sequence[str]) -> Event:
    """Add the numbers of each point of a sweep so far to the event of its comparison.

    Args:
        event: of the comparison.
        points: of the sweep, with their numbers so far.
        axes: names of the one or two axes.
    """
    known = sum(one.latency is not None for one in points)
    if not known:
        return event
    said: Line = {
        "small": True,
        "text": f"{known} of {len(points)} points so far. The intervals of the curve follow at the end.",
    }
    series = axes[1] if len(axes) > 1 else ""
    curves = [live_charts.curve(points, x=axes[0], y=y, series=series) for y in ("p50_s", "throughput")]
    return {
        **event,
        "lines": [*event.get("lines", []), said],
        "pictures": [*event.get("pictures", []), *curves],
    }


# --- a search -----------------------------------------------------------------------------------------------


def of_search(status: Status, now: float) -> Event:
    """Return the event of a search: the best so far, the number of evaluations, the time left.

    Args:
        status: of the job.
        now: seconds since the epoch.
    """
    share, text = search_progress(status, now)
    event = _shown(status, share, text)
    if so_far := status.live:
        short, rest = best_words(so_far)
        event["lines"] = [
            {"text": short, "strong": True},
            {"text": rest, "small": True},
            {"text": f"{evaluation_words(so_far)} · dotted: ONNX Runtime's default", "small": True},
        ]
        event["pictures"] = [
            live_charts.gains(so_far["points"], so_far["front"]),
            live_charts.course(so_far["course"]),
        ]
    return event


def search_progress(status: Status, now: float) -> tuple[float, str]:
    """Return the share of the time used and its description; `now` in seconds since the epoch."""
    if status.state == "WAITING":
        return 0.0, waiting_text(status, "this search")
    so_far = status.live
    if so_far is None:
        return 0.0, f"Starting · {whole(status.elapsed_s)} so far"
    left_s = max(0.0, so_far["ends_at"] - now)
    step = status.stage
    if status.total:
        step += f" {status.done:,} of {status.total:,}"
    doing = str(so_far["doing"] or "plans")
    ends = f"at most {whole(left_s)} left" if left_s else "the time is over; the last comparison ends"
    parts = [doing[:1].upper() + doing[1:], step, f"{whole(status.elapsed_s)} so far", ends]
    share = 1 - left_s / so_far["budget_s"] if so_far["budget_s"] else 0.0
    return min(1.0, max(0.0, share)), " · ".join(part for part in parts if part)


def best_words(so_far: Mapping[str, Any]) -> tuple[str, str]:
    """Describe the best so far and the data behind it; nothing is final."""
    best = so_far["best"]
    if best is None:
        return "Nothing evaluated yet", "Screening has started."
    return f"Best so far {best_text(best)}", f"{changes_words(best['changes'])} · not final"


def evaluation_words(so_far: Mapping[str, Any]) -> str:
    """Say how many configurations were evaluated and how many remain."""
    tried, distinct = so_far["tried"], so_far["distinct"]
    return f"{tried:,} evaluated · {max(0, distinct - tried):,} of {distinct:,} left"


# --- the machine's queue ------------------------------------------------------------------------------------

_OWN: Mapping[str, Line] = {
    "WAITING": {"text": "Run waiting", "icon": "hourglass_empty", "color": "orange"},
    "RUNNING": {"text": "Running", "icon": "speed", "color": "green"},
    "COMPLETE": {"text": "Run finished", "icon": "check_circle", "color": "green"},
    "FAIL": {"text": "Run failed", "icon": "error", "color": "red"},
    "CANCELLED": {"text": "Run cancelled", "icon": "cancel", "color": "gray"},
}


MOST_ENTRIES = 8  # jobs of others that the sidebar lists


def of_queue(own: Status | None, entries: Sequence[Entry], starting: Sequence[Status]) -> Event:
    """Return the event of the machine's queue: the visitor's own job, and in `more` the other jobs.

    Args:
        own: status of the visitor's job; None: there is none.
        entries: of the machine's queue, without the visitor's job.
        starting: jobs of this server whose queue entry may not be written yet.
    """
    lines: list[Line] = []
    active = own is not None and own.state in ACTIVE
    if own is not None:
        percent = 10 * round(10 * progress(own, "yours")[0])  # coarse: the page of the job shows it exactly
        step: list[Line] = [{"text": f"{percent} % done", "small": True}] if active and percent else []
        lines = [_OWN[own.state], {"text": own.what, "small": True}, *step]
    more = [line for entry in entries[:MOST_ENTRIES] for line in _entry(entry)]
    if len(entries) > MOST_ENTRIES:
        more.append({"text": f"and {len(entries) - MOST_ENTRIES} more jobs", "small": True})
    if not more and not active:
        more = _idle(starting)
    return {"ended": False, "state": "waiting", "lines": lines, "more": more}


def _entry(entry: Entry) -> list[Line]:
    who = ANOTHER_PERSON if entry.private else entry.person or entry.owner
    since: Line = {
        "text": f"{who}, since {format.when(entry.since)[11:]}",
        "small": True,
    }
    if entry.running:
        return [
            {"text": "Measuring", "icon": "speed", "color": "green"},
            {"text": entry.what, "small": True},
            since,
        ]
    return [
        {"text": f"Waiting, place {entry.place}", "icon": "hourglass_empty", "color": "orange"},
        {"text": entry.what, "small": True},
        since,
        {"text": start_words(entry.starts_in_s, basis=False).capitalize(), "small": True},
    ]


def _idle(starting: Sequence[Status]) -> list[Line]:
    if not starting:
        return [{"text": "Nothing is being measured", "icon": "bedtime", "color": "gray"}]
    return [
        {"text": "Starting", "icon": "hourglass_empty", "color": "orange"},
        {"text": starting[0].what, "small": True},
    ]


# --- estimates ----------------------------------------------------------------------------------------------

DEFAULT = "ONNX Runtime's default"


def of_estimate(
    status: Status | None,
    told: Mapping[str, Any],
    wanted: str,
    *,
    is_default: bool,
    margin: float,
    age_s: float = 0.0,
) -> Event:
    """Return the event of an estimate of the present settings, with the estimates before it.

    Args:
        status: of the live comparison; None: there is none.
        told: its newest estimate for this visitor.
        wanted: key of the present settings.
        is_default: they are ONNX Runtime's defaults, the baseline of every estimate.
        margin: of equivalence.
        age_s: of `told` in seconds; shown once the live comparison has ended.
    """
    if status is None or status.state not in ACTIVE:
        return _ended_estimate(status, told, wanted, margin, age_s)
    event: Event = {"ended": False, "state": "measuring", "pictures": []}
    is_known = told.get("key") == wanted
    error, contrasts = told.get("error"), told.get("contrasts")
    if is_default and not error:
        event["lines"] = [
            _estimate_line("These are ORT's defaults. Change a setting to see its effect.", small=True)
        ]
    elif not is_known or not (contrasts or error):
        behind = f" behind {status.holder}" if status.state == "WAITING" and status.holder else ""
        event["state"] = "waiting"
        event["lines"] = [
            _estimate_line(f"Estimate: {'waits' if behind else 'starts'}{behind} …", small=True)
        ]
    elif error:
        event["lines"] = [_failure(error)]
    else:
        _add_estimate(event, told, margin)
    if is_known and contrasts and not error:
        event["ratio"] = f"estimate: {interim.sentence(contrasts[0])}"
    event["pictures"] = [*event["pictures"], *estimates_plot(told)]
    return event


def _ended_estimate(
    status: Status | None, told: Mapping[str, Any], wanted: str, margin: float, age_s: float
) -> Event:
    """Return the event of an ended live comparison: its last estimate with its age, and the trail."""
    event: Event = {"ended": True, "state": "ended", "ratio": "", "pictures": estimates_plot(told)}
    if status is not None and status.error is not None and status.state == "FAIL":
        return {**event, "lines": [_failure(status.error)]}
    rests = _estimate_line("Live preview paused. Change a setting to resume.", small=True)
    if told.get("key") != wanted or not told.get("contrasts") or told.get("error"):
        return {**event, "lines": [rests]}
    _add_estimate(event, told, margin)
    first, *others = event["lines"]
    event["lines"] = [rests, {**first, "small": True, "age_s": age_s}, *others]
    event["pictures"] = [*event["pictures"], *estimates_plot(told)]
    return event


def _estimate_line(text: str, **how: bool) -> Line:
    return {"icon": "bolt", "text": text, **how}  # type: ignore[typeddict-item] # keys of a line


def _failure(error: Mapping[str, Any]) -> Line:
    return {"icon": "error", "text": " ".join(str(error.get(one) or "") for one in ("message", "hint"))}


def _add_estimate(event: Event, told: Mapping[str, Any], margin: float) -> None:
    [contrast] = told["contrasts"]
    said = f"Estimate: {interim.sentence(contrast, DEFAULT)}"
    point = next((one for one in told.get("trail") or [] if one["key"] == told["key"]), None)
    if point is not None:
        callers = point.get("streams", 1)
        kind = f" service latency under {callers} callers" if callers > 1 else ""
        said += f" · p50{kind} about {format.ms(point['p50_s'])} · about {format.rate(point['rows_per_s'])}"
    launches = told.get("launches") or 0
    rests_on = f"{launches} launches; outputs are not compared. Press Run to confirm."
    if contrast["ratio"] is None:
        rests_on = f"{launches} of {live.LEAST_LAUNCHES} launches for a first interval."
    event["lines"] = [_estimate_line(said), {"text": rests_on, "small": True}]
    labels = {live.WISH: told["label"], live.DEFAULT: DEFAULT}
    event["pictures"] = _intervals([contrast], labels, margin, per_row=False, hollow=True)


def estimates_plot(told: Mapping[str, Any]) -> list[Picture]:
    """Return the plot of all estimates so far; empty with fewer than two."""
    points = told.get("trail") or []
    return [live_charts.trail(points, str(told.get("key")))] if len(points) > 1 else []


def _shown(status: Status, share: float, text: str) -> Event:
    waiting = status.state == "WAITING"
    return {
        "ended": False,
        "state": "waiting" if waiting else "measuring",
        "share": round(share, 3),
        "text": text,
    }
