"""Updates of a running load test as events: the run, its latency and queue so far, and the rates done.

Pure functions; no Streamlit, no clock, no store. See `live_events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api.session import Status
from core.evidence.load.load_types import Point
from core.show.load_text import NOT_A_MEASUREMENT, is_rejected, limit_of
from dashboard import format
from dashboard.charts import live_charts
from dashboard.charts.load_charts import VERDICTS
from dashboard.live_events import ENDED, Event, Line
from dashboard.widgets.live_text import waiting_text, whole

WHAT = "this load test"
MOST_POINTS = 6  # finished rates in words, the newest ones
CLOSED = ("capacity", "service times")  # stages without arrivals: calls follow each other at once
STAGES: Mapping[str, str] = {
    "capacity": "capacity, closed loop",
    "probe": "short run",
    "confirm": "confirmation in a fresh process",
    "traffic": "traffic",
    "service times": "service times by batch size",
    "together": "all models at the same time",
}


def of_load(status: Status | None) -> Event:
    """Return the event of a load test: progress, the present run, and the rates that are done.

    Args:
        status: of the job; None: it is no longer known.
    """
    if status is None or status.state not in ("WAITING", "RUNNING"):
        return ENDED
    if status.state == "WAITING":
        return {"ended": False, "state": "waiting", "share": 0.0, "text": waiting_text(status, WHAT)}
    so_far: Mapping[str, Any] | None = (status.live or {}).get("load")
    event: Event = {"ended": False, "state": "measuring", "share": 0.0}
    if so_far is None:
        return {**event, "text": f"{status.stage or 'starting'} · {whole(status.elapsed_s)} so far"}
    limits = [limit_of(one) for one in so_far.get("limits") or []]
    limit_s = next((one.at_most_s for one in limits if one is not None and one.at_most_s), None)
    return {
        **event,
        "share": round(_share(status, so_far), 3),
        "text": _text(status, so_far),
        "lines": _lines(so_far),
        "pictures": []
        if so_far["stage"] in CLOSED
        else [*live_charts.load(so_far["course"], limit_s, end_s=so_far["duration_s"])],
    }


def _share(status: Status, so_far: Mapping[str, Any]) -> float:
    runs, duration_s = so_far["runs"], so_far["duration_s"]
    if runs:
        within = min(1.0, so_far["elapsed_s"] / duration_s) if duration_s else 0.0
        return float(min(1.0, (so_far["run"] - 1 + within) / runs))
    return min(1.0, status.done / status.total) if status.total else 0.0


def _text(status: Status, so_far: Mapping[str, Any]) -> str:
    runs = f" of {so_far['runs']}" if so_far["runs"] else ""
    parts = [f"run {so_far['run']}{runs}", STAGES.get(so_far["stage"], so_far["stage"])]
    if so_far["rate_per_s"]:
        parts.append(f"{format.brief(so_far['rate_per_s'])} requests/s")
    if so_far["duration_s"]:
        parts.append(f"{so_far['elapsed_s']:.0f} of {so_far['duration_s']:.0f} s")
    text = " · ".join([*parts, f"{whole(status.elapsed_s)} so far"])
    return text[:1].upper() + text[1:]


def _lines(so_far: Mapping[str, Any]) -> list[Line]:
    p50, p99, queue = so_far["p50_s"], so_far["p99_s"], so_far["queue"]
    if so_far["stage"] in CLOSED:
        return [{"text": "Calls follow each other at once; nothing waits.", "small": True}]
    told = [f"{queue:,} request{'s' * (queue != 1)} waiting"]
    if p50 is not None:
        told.insert(0, f"p50 {format.ms(p50)}" + (f" · p99 {format.ms(p99)}" if p99 is not None else ""))
    lines: list[Line] = [{"text": " · ".join([*told, "not final"]), "strong": True}]
    if so_far["label"]:
        lines.append({"text": str(so_far["label"]), "small": True})
    if done := point_words(so_far["points"]):
        lines.append({"text": f"Done: {done}", "small": True})
    return lines


def point_words(points: Sequence[Point]) -> str:
    """Return the newest finished rates with their verdicts: `200/s passed · 400/s saturated`."""
    told = []
    for one in points[-MOST_POINTS:]:
        word = VERDICTS[one["verdict"]][1] if one["verdict"] else "done"
        if one["outcome"] != "complete":
            word = one["outcome"]
        elif is_rejected(one):
            word = NOT_A_MEASUREMENT
        told.append(f"{format.brief(round(one['rate_per_s'], 2))}/s {word}")
    return " · ".join(told)
