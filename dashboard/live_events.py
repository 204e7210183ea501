"""What a page shows of a job while it runs, as one small event: text, progress, intervals so far. Pure.

The server builds an event at most a few times a second, and sends it to all browsers that look on
(`server.live`); the browser draws it in place (`widgets.live_view`). No Streamlit, no clock, no store here.
Texts are plain: only code spans in backticks are marked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict

from core.evidence.comparison import Comparison
from core.run.job import Status
from core.show import interim
from dashboard.charts import compare_charts, live_pictures
from dashboard.charts.live_pictures import Picture
from dashboard.widgets import live_text
from dashboard.widgets.live_text import Field
from dashboard.widgets.queue_text import progress, step_text, waiting_text

ACTIVE = ("WAITING", "RUNNING")
RACING = "rounds"  # stage of a race in which its intervals still shrink
LIVE_MOST = 16  # a curve of more points is progress alone while it runs


class Line(TypedDict, total=False):
    """One line of text."""

    text: str
    icon: str  # name of a Material symbol
    color: str  # of a badge: "green", "orange", "gray" or "red"; empty: it is no badge
    strong: bool
    small: bool


class Event(TypedDict, total=False):
    """What is shown now, as a whole: whoever gets one needs none of those before."""

    ended: bool  # nothing follows: the page draws the result
    state: Literal["waiting", "measuring", "ended"]
    share: float | None  # of the progress bar; None: there is no bar
    text: str  # under the bar
    lines: list[Line]  # what is known so far
    ratio: str  # the ratio so far, for the bar of the page
    caption: str  # above the pictures
    pictures: list[Picture]


ENDED: Event = {"ended": True, "state": "ended"}


def of_job(status: Status | None, what: str, *, name: str = "", more: str = "") -> Event:
    """Return the event of a job that has no numbers until its end.

    Args:
        status: where it stands; None: it is known no more.
        what: the job, in a sentence: "this pair".
        name: what stands before its step; empty: nothing.
        more: what stands after it.
    """
    if status is None or status.state not in ACTIVE:
        return ENDED
    share, text = progress(status, what)
    return _shown(status, share, f"{name}: {text}{more}" if name else f"{text}{more}")


def elsewhere(text: str) -> Event:
    """Return the event of a job that another process does, of which only the end will be known."""
    return {"ended": False, "state": "measuring", "share": 0.0, "text": text}


def of_trial(status: Status, field: Field, margin: float) -> Event:
    """Return the event of a trial that races: its latency, and its ratio to each reference so far.

    Args:
        status: where it stands.
        field: who races.
        margin: of equivalence.
    """
    share, text = progress(status, "this one")
    live, racing = status.live, status.stage == RACING
    if racing and live:
        text = step_text(replace(status, total=0))  # the line below counts the rounds
    event = _shown(status, share, text)
    if live:
        found = live_text.contrasts_of(live, status.id)
        event["lines"] = [{"text": live_text.words(live, status.id, field, racing=racing)}]
        event["ratio"] = interim.sentence(found[0]) if found else ""
        event["pictures"] = _intervals(found, field.labels, margin, per_row=field.per_row)
    return event


def _intervals(
    found: Sequence[Mapping[str, Any]], labels: Mapping[str, str], margin: float, **how: Any
) -> list[Picture]:
    known = [one for one in found if interim.is_known(one)]
    if not known:
        return []
    info = compare_charts.of_one(known, labels, margin=margin, final=False, **how)
    alt = "; ".join(interim.sentence(one, labels.get(one["baseline"], "the baseline")) for one in known)
    return [live_pictures.forest(info, f"Speed with its 95 % interval: {alt}", said=True)]


def of_race(
    status: Status, comparison: Comparison, field: Field, *, margin: float, failed: Mapping[str, str]
) -> Event:
    """Return the event of a race: every interval and p50 so far, and who has failed.

    Args:
        status: where it stands.
        comparison: that runs.
        field: who races.
        margin: of equivalence.
        failed: trial -> why it left.
    """
    if status.state == "WAITING":
        event = _shown(status, 0.0, waiting_text(status, "this race"))
    else:
        share = min(1.0, status.done / status.total) if status.total else 0.0
        event = _shown(status, share, running_text(status))
        _add_forest(event, comparison, status.live or {}, field, margin)
    event["lines"] = [
        {
            "icon": "error",
            "text": f"{field.labels.get(trial, trial[:8])} failed: {why} The others go on.",
        }
        for trial, why in failed.items()
    ]
    return event


def running_text(status: Status) -> str:
    """Words for a race that runs: its step, rounds made and expected, time."""
    live = status.live or {}
    if status.stage == RACING and live.get("predicted_rounds"):
        text = live_text.rounds_text(live, racing=True)
        return step_text(replace(status, stage=text, total=0, eta_s=None))
    return step_text(replace(status, eta_s=None))


def _add_forest(
    event: Event, comparison: Comparison, live: Mapping[str, Any], field: Field, margin: float
) -> None:
    contrasts = [one for one in live.get("contrasts") or [] if one["candidate"] != comparison.baseline]
    against = contrasts[0]["baseline"] if contrasts else comparison.baseline
    contrasts = [one for one in contrasts if one["baseline"] == against and interim.is_known(one)]
    if not 0 < len(contrasts) <= LIVE_MOST:
        return
    named = {trial: _with_p50(name, live, trial, field) for trial, name in field.labels.items()}
    found = [{**one, "label": named.get(one["candidate"], one.get("label"))} for one in contrasts]
    info = compare_charts.forest_info(
        found, field.labels, baseline=against, margin=margin, per_row=field.per_row, final=False
    )
    unit = " per row" if field.per_row else ""
    event["caption"] = (
        f"Speed{unit} against {named.get(against, 'the baseline')}; 95 % intervals change at each interim "
        "analysis. The band holds differences that do not matter. Verdicts are given at the end."
    )
    alt = f"Ratio and interval of {len(contrasts)} configurations after {live.get('rounds', 0)} rounds"
    event["pictures"] = [live_pictures.forest(info, alt)]


def _with_p50(name: str, live: Mapping[str, Any], trial: str, field: Field) -> str:
    text = live_text.p50_text(live, trial, field)
    return f"{name} · p50 {text}" if text else name


def _shown(status: Status, share: float, text: str) -> Event:
    waiting = status.state == "WAITING"
    return {
        "ended": False,
        "state": "waiting" if waiting else "measuring",
        "share": round(share, 3),
        "text": text,
    }
