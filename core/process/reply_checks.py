"""Checks of what a worker says: its process runs foreign native code, so its messages are not trusted.

`checked_reply` refuses a reply with the wrong fields, with numbers that cannot be, with text that cannot be
stored, or with a path that its plan does not name. `check_times` refuses times longer than the parent waited.
A library inside a timed process can still report shorter times than it used: no check outside it can tell.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from core import wire
from core.wire import Reply
from core.wire.errors import WorkerError

MOST_DEPTH = 32  # of lists and objects in each other
MOST_NUMBER = (1 << 63) - 1  # what the store and readers of JSON hold
CLOCK_STEP_S = 0.25  # clocks of two processes, and a reply that waits for its reader
HINT = "Do not use this model: a file or library of it may be hostile. Else report it with `ortune machine`."

_NEVER_NEGATIVE = re.compile(
    r"(_ns|_bytes|^(seconds|wall_s|window_s|started_s|creation_s|session_creation_s|run_s|plain_s))$"
)
_COUNTS = frozenset(
    {
        *("rows", "classes", "nodes", "parameters", "runs", "passes", "batch_size", "not_finite", "opset"),
        *("nodes_before", "nodes_after", "optimized_nodes", "samples_per_s", "queries", "inferences"),
        *("stream_runs", "stream_completed", "error_seeds", "cpu_s_per_run", "operations"),
    }
)
_PATHS: Mapping[Any, tuple[str, ...]] = {
    # reply -> its paths, each of which the plan names, or lies in a folder that the plan names
    wire.ModelInfo: ("path",),
    wire.ProfileReply: ("trace_path",),
    wire.ExportReply: ("path", "pt2"),
    wire.TransformReply: ("path",),
    wire.AccuracyReply: ("scores_path",),
    wire.NamedModelReply: ("path",),
    wire.PassReply: ("profile",),
    wire.ExplainReply: ("output",),
    wire.GraphReply: ("output",),
    wire.InstallReply: ("python",),
}


def checked_reply(
    reply: Mapping[str, Any], request: wire.Request[Reply], who: str, plan: Mapping[str, Any] | None = None
) -> Reply:
    """Return `reply` unchanged, after a check that it has the reply type of `request` and can be true.

    Args:
        reply: from another process.
        request: that is replied to.
        who: the sender, for the message.
        plan: arguments of the request; None: the reply holds no paths.

    Raises:
        WorkerError: a field is missing or holds something else, or a value that cannot be.
    """
    try:
        msgspec.convert(reply, request.reply)  # the converted reply is dropped: it has 1.0 for 1
    except (msgspec.ValidationError, UnicodeError, SystemError, RecursionError) as error:
        # UnicodeError: no text; SystemError: no double; RecursionError: lists in lists
        raise WorkerError(
            f"{who} answered `{request}` with a reply of the wrong shape: {error}.",
            hint="Check the installation with `ortune machine`.",
        ) from error
    wrong = next(_wrong_values(reply, "", ""), "") or _wrong_path(reply, request, plan or {})
    if wrong:
        raise WorkerError(f"{who} answered `{request}` with a value that cannot be: {wrong}.", hint=HINT)
    return cast(Reply, reply)


def check_times(
    reply: Mapping[str, Any],
    request: wire.Request[Any],
    waited_s: float,
    who: str,
    *,
    loaded_s: float = 0.0,
) -> None:
    """Refuse times of a reply that are longer than the parent has waited for it.

    Args:
        reply: a checked one.
        request: that is replied to.
        waited_s: from the request to the reply, by the parent's clock.
        who: the sender, for the message.
        loaded_s: how long the parent waited for the load before: without runs, a warm-up expects the first
            run again, which was part of the load.

    Raises:
        WorkerError: a time, or the sum of the latencies of one stream, is longer.
    """
    for name, seconds in _times(reply, request):
        longest_s = max(waited_s, loaded_s) if name == "median_ns" else waited_s
        if seconds > longest_s * 1.001 + CLOCK_STEP_S:
            raise WorkerError(
                f"{who} answered `{request}` with times that cannot be: `{name}` is {seconds:,.3f} s, "
                f"but the reply came after {longest_s:,.3f} s.",
                hint=HINT,
            )


def _times(reply: Mapping[str, Any], request: wire.Request[Any]) -> Iterator[tuple[str, float]]:
    fields = getattr(request.reply, "__annotations__", {})  # a `dict` has none
    known = {name: reply[name] for name in fields if name in reply}
    latencies, start = known.get("latencies_ns", []), 0
    for count in known.get("stream_runs") or [len(latencies)]:
        yield "latencies_ns", sum(latencies[start : start + count]) / 1e9
        start += count
    for name in ("unprofiled_latencies_ns", "plain_ns"):
        yield name, sum(known.get(name, [])) / 1e9
    for name in ("session_creation_s", "window_s", "idle_wall_s", "seconds"):
        yield name, known.get(name) or 0.0
    for name in ("first_run_ns", "refill_ns", "median_ns"):
        yield name, (known.get(name) or 0) / 1e9
    yield "counters.wall_s", known.get("counters", {}).get("wall_s", 0.0)


# --- values -------------------------------------------------------------------------------------------------


def _wrong_values(value: Any, name: str, place: str, depth: int = 0) -> Iterator[str]:
    """Yield what is wrong with a value of JSON; `name` is the nearest key."""
    where = f"`{place[1:201]}`"
    if isinstance(value, str):
        if not value.isascii() and _has_surrogates(value):
            yield f"{where} is no valid text"
    elif isinstance(value, int | float):
        if rule := _wrong_number(value, name):
            yield f"{where} {rule}, but is {_shown(value)}"
    elif depth > MOST_DEPTH:
        yield f"{where} has more than {MOST_DEPTH} levels"
    elif isinstance(value, Mapping):
        for key, one in value.items():
            if _has_surrogates(key):
                yield f"{where} has a key that is no valid text"
            yield from _wrong_values(one, key, f"{place}.{key[:100]}", depth + 1)
    elif isinstance(value, list):
        yield from _wrong_items(value, name, place, depth)


def _wrong_items(value: list[Any], name: str, place: str, depth: int) -> Iterator[str]:
    kinds = set(map(type, value))
    if kinds and kinds <= {int, float}:  # latencies: by their ends, which is fast
        ends = value if any(one != one for one in value) else [min(value), max(value)]
        value = [one for one in ends if _wrong_number(one, name)][:1]
    for one in value:
        yield from _wrong_values(one, name, f"{place}[]", depth + 1)


def _wrong_number(value: float, name: str) -> str:
    """The rule that a number breaks; empty: none."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a number"
    if abs(value) > MOST_NUMBER and isinstance(value, int):
        return f"must be at most {MOST_NUMBER:,}"
    if value < 0 and (name in _COUNTS or _NEVER_NEGATIVE.search(name)):
        return "must not be negative"
    if name == "pid" and value < 2:
        return "must be a process ID"
    return ""


def _shown(value: float) -> str:
    text = f"{value}" if isinstance(value, float) or abs(value) < 1 << 200 else "longer than 60 digits"
    return text[:80]


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


# --- paths --------------------------------------------------------------------------------------------------


def _wrong_path(reply: Mapping[str, Any], request: wire.Request[Any], plan: Mapping[str, Any]) -> str:
    for name in _PATHS.get(request.reply, ()):
        allowed = _may_run if name == "python" else _may_name
        if reply[name] and not allowed(reply[name], plan):
            return f"`{name}` is `{reply[name][:200]}`, which the job was not given"
    beside = [one["location"] for one in reply["external_data"]] if request.reply is wire.ModelInfo else []
    beside += reply["files"] if request.reply is wire.TransformReply else []
    for one in beside:
        if not is_below(one):
            return f"the file `{one[:200]}` is not beside the model"
    return ""


def is_below(location: str) -> bool:
    """Whether a relative path stays in its folder."""
    parts = re.split(r"[/\\]", location)
    return bool(location) and "\0" not in location and not Path(location).is_absolute() and ".." not in parts


def _may_name(path: str, plan: Mapping[str, Any]) -> bool:
    """Whether a path is one of the plan's, or a file in its folder for files of the job."""
    if "\0" in path:
        return False
    if os.path.abspath(path) in {os.path.abspath(one) for one in _texts(plan) if "\0" not in one}:  # noqa: PTH100
        return True
    folder = plan.get("folder")
    if not folder or ".." in Path(path).parts or not Path(path).is_relative_to(folder):
        return False
    return os.path.realpath(path).startswith(os.path.realpath(folder) + os.sep) and Path(path).is_file()


def _may_run(path: str, plan: Mapping[str, Any]) -> bool:
    """Whether an interpreter lies in the environment that the job was told to make or to describe."""
    return not plan.get("folder") or (
        ".." not in Path(path).parts and Path(path).is_relative_to(plan["folder"])
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
