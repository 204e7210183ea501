"""Schedules of requests: arrival processes, sizes of requests, and recorded traces.

A schedule is a Poisson process of unit rate whose time is rescaled by the cumulated rate. The same seed at
another rate therefore gives the same arrivals, stretched, and the same sizes in the same order, so that
configurations and rates are compared under the same traffic.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from core.evidence.load.load_types import Arrivals, Kind
from core.spec.load import MOST_KINDS, MOST_REQUESTS, ArrivalsSpec, LoadSpec
from core.wire.errors import SpecError

MOST_ROWS = 4096  # samples of one request
DAY_PARTS = 1440  # parts of constant rate that a day is made of: minutes
_NS = 1e9


# --- sizes of requests --------------------------------------------------------------------------------------


def kinds_of(load: LoadSpec) -> tuple[list[Kind], list[float]]:
    """Return the sizes of requests and their probabilities: every combination of rows and dimensions."""
    names = sorted(load.dims)
    axes = [load.row_sizes, *(load.dims[name] for name in names)]
    found, weights = [], []
    for combination in itertools.product(*(sorted(axis.items()) for axis in axes)):
        (rows, _), *sizes = combination
        found.append(Kind(rows=rows, dims={name: size for name, (size, _) in zip(names, sizes, strict=True)}))
        weights.append(math.prod(weight for _, weight in combination))
    total = math.fsum(weights)
    return found, [one / total for one in weights]


# --- arrival processes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded requests; the first arrives at 0."""

    name: str
    at_s: Sequence[float]  # ascending
    kind: Sequence[int]  # index of its `Kind`
    kinds: Sequence[Kind] = field(default_factory=lambda: [Kind(rows=1)])

    @property
    def rate(self) -> float | None:
        """Mean requests per second; None for fewer than two requests, or all at the same time."""
        length = self.at_s[-1]
        return (len(self.at_s) - 1) / length if length > 0 else None

    def length_s(self, rate: float | None) -> float:
        """Return the seconds until the last request; a rate rescales them, None leaves them as recorded."""
        return self.at_s[-1] * (1.0 if rate is None else (self.rate or rate) / rate)


def schedule(
    arrivals: ArrivalsSpec,
    *,
    rate: float | None,
    seconds: float,
    weights: Sequence[float],
    seed: int,
    trace: Trace | None = None,
) -> Arrivals:
    """Return the scheduled arrivals of one run in [0, `seconds`).

    The mean rate is `rate`; for a ramp and for steps the last rate is. Bursts begin with an on period. A day
    begins and ends with its lowest rate.

    Args:
        arrivals: the process.
        rate: requests/s; None: a trace as recorded.
        seconds: length of the run, the warm-up included.
        weights: probability of each size, as of `kinds_of`; a trace has its own sizes.
        seed: of the arrivals and the sizes, which are independent of each other.
        trace: the recorded requests, for arrivals of a trace; a rate rescales their time.

    Raises:
        SpecError: more than 2,000,000 requests, or a trace that has no rate to scale.
    """
    if arrivals.process == "trace":
        assert trace is not None
        return _replayed(trace, rate, seconds)
    assert rate is not None
    expected = rate * seconds
    if expected > MOST_REQUESTS:
        raise _too_many(expected)
    if arrivals.process == "constant":
        at_s: Iterable[float] = (i / rate for i in range(math.ceil(expected)))
    else:
        clock = random.Random(f"{seed}: arrivals")  # noqa: S311
        total, time_of = _rescaling(arrivals, rate, seconds)
        at_s = map(time_of, itertools.takewhile(lambda count: count < total, _unit_rate(clock)))
    end = seconds * _NS
    at_ns = array("q", [ns for ns in (round(_NS * one) for one in at_s) if ns < end])
    if len(at_ns) > MOST_REQUESTS:
        del at_ns[MOST_REQUESTS:]
    return Arrivals(at_ns=at_ns, kind=_chosen(weights, len(at_ns), seed))


def _unit_rate(clock: random.Random) -> Iterator[float]:
    draw, log = clock.random, math.log
    return itertools.accumulate(-log(1.0 - draw()) for _ in itertools.repeat(None))


def _chosen(weights: Sequence[float], n: int, seed: int) -> array[int]:
    if len(weights) == 1:
        return array("H", bytes(2 * n))
    draws = random.Random(f"{seed}: sizes")  # noqa: S311
    return array("H", draws.choices(range(len(weights)), weights, k=n))


def _too_many(requests: float) -> SpecError:
    return SpecError(
        f"{requests:,.0f} requests are more than {MOST_REQUESTS:,}, the most of one run.",
        hint="Shorten the duration, or lower the rate.",
    )


# Each returns the number of arrivals that a rate of `rate` makes in the run on average, and the time at which
# the cumulated rate reaches a number of arrivals.
_Rescaling = tuple[float, Callable[[float], float]]


def _rescaling(spec: ArrivalsSpec, rate: float, seconds: float) -> _Rescaling:
    match spec.process:
        case "bursts":
            return _bursts(spec, rate, seconds)
        case "ramp":
            return _ramp(spec.from_share, rate, seconds)
        case "steps":
            shares = [
                spec.from_share + (1 - spec.from_share) * i / (spec.steps - 1) for i in range(spec.steps)
            ]
            return _parts(shares, rate, seconds)
        case "diurnal":
            return _parts(_day(spec.low_share), rate, seconds)
    return rate * seconds, lambda count: count / rate


def _bursts(spec: ArrivalsSpec, rate: float, seconds: float) -> _Rescaling:
    cycle = spec.on_s + spec.off_s
    each = rate * cycle  # arrivals of one on period
    whole, rest = divmod(seconds, cycle)

    def time_of(count: float) -> float:
        cycles, left = divmod(count, each)
        return cycles * cycle + left / each * spec.on_s

    return each * (whole + min(1.0, rest / spec.on_s)), time_of


def _ramp(from_share: float, rate: float, seconds: float) -> _Rescaling:
    first, slope = from_share * rate, (1 - from_share) * rate / seconds
    if slope <= 0:
        return rate * seconds, lambda count: count / rate

    def time_of(count: float) -> float:  # of first*t + slope*t²/2, without cancellation
        return 2 * count / (first + math.sqrt(first * first + 2 * slope * count))

    return (first + rate) / 2 * seconds, time_of


def _day(low_share: float) -> list[float]:
    """Return the rate of each minute of a day as shares of the mean: a cosine, lowest at midnight."""
    swing = (1 - low_share) / (1 + low_share)
    return [1 - swing * math.cos(2 * math.pi * (i + 0.5) / DAY_PARTS) for i in range(DAY_PARTS)]


def _parts(shares: Sequence[float], rate: float, seconds: float) -> _Rescaling:
    """Rescale through equal parts with constant rates; the counts must come in ascending order."""
    each = seconds / len(shares)
    cumulated = [0.0, *itertools.accumulate(share * rate * each for share in shares)]
    part = 0

    def time_of(count: float) -> float:
        nonlocal part
        while part < len(shares) - 1 and count >= cumulated[part + 1]:
            part += 1
        return each * part + (count - cumulated[part]) / (shares[part] * rate)

    return cumulated[-1], time_of


def _replayed(trace: Trace, rate: float | None, seconds: float) -> Arrivals:
    scale = 1.0
    if rate is not None:
        if trace.rate is None:
            raise SpecError(
                f"`{trace.name}` has no rate: all its requests arrive at the same time.",
                hint="Leave out the rate, or use a longer trace.",
            )
        scale = trace.rate / rate
    end = seconds * _NS
    at_ns = array("q", itertools.takewhile(lambda ns: ns < end, (round(_NS * scale * t) for t in trace.at_s)))
    if len(at_ns) > MOST_REQUESTS:
        raise _too_many(len(at_ns))
    return Arrivals(at_ns=at_ns, kind=array("H", trace.kind[: len(at_ns)]))


# --- traces -------------------------------------------------------------------------------------------------

_TRACE_HINT = "Write a CSV file with the columns `time,rows`, or JSON Lines with these keys."
_TIMES, _ROWS, _FEEDS = ("time", "timestamp"), ("rows", "samples"), ("feed",)


def parse_trace(text: str, *, name: str) -> Trace:
    """Read recorded requests: CSV with a header, or JSON Lines.

    `time` is seconds (from any start) or ISO 8601; `rows` (optional) the samples of the request. Any other
    column is a free dimension of the model with the size that the request has; an empty field gives none.
    Names are case-insensitive for `time` and `rows`. `feed` is not read.

    Args:
        text: the whole file.
        name: of the file, for errors.

    Raises:
        SpecError: empty, no column `time`, a time that goes backwards, a size that is no number from 1, too
            many requests or sizes; with the number of the line.
    """
    at_s, kind = array("d"), array("H")
    kinds: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
    first: float | None = None
    for line, record in _records(text, name):
        at = _time(record, name, line)
        first = at if first is None else first
        if at_s and at - first < at_s[-1]:
            raise _bad(
                name,
                line,
                f"the time {record['time']} is before that of the request above",
                "Sort the requests by time.",
            )
        key = _size(record.get("rows"), "rows", name, line, largest=MOST_ROWS), _dims(record, name, line)
        at_s.append(at - first)
        kind.append(kinds.setdefault(key, len(kinds)))
        if len(kinds) > MOST_KINDS:
            raise _bad(name, line, f"more than {MOST_KINDS} different sizes of requests", "Round the sizes.")
        if len(at_s) > MOST_REQUESTS:
            raise _bad(name, line, f"more than {MOST_REQUESTS:,} requests", "Use a shorter trace.")
    if not at_s:
        raise SpecError(f"The trace `{name}` has no requests.", hint=_TRACE_HINT)
    return Trace(
        name=name, at_s=at_s, kind=kind, kinds=[Kind(rows=rows, dims=dict(dims)) for rows, dims in kinds]
    )


def _bad(name: str, line: int, what: str, hint: str = _TRACE_HINT) -> SpecError:
    return SpecError(f"The trace `{name}` is unreadable at line {line:,}: {what}.", hint=hint)


def _records(text: str, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    text = text.removeprefix("\ufeff")  # as some programs begin a CSV file
    lines = text.lstrip()
    if lines.startswith(("{", "[")):
        yield from _json_lines(text, name)
    elif lines:
        yield from _csv_lines(text, name)


def _json_lines(text: str, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, one in enumerate(text.splitlines(), 1):
        if not one.strip():
            continue
        try:
            found = json.loads(one)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _bad(name, line, f"`{one.strip()[:40]}` is no JSON object")
        yield line, {_column(key): value for key, value in found.items()}


def _csv_lines(text: str, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    delimiter = max(",;\t", key=text.lstrip().split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    try:
        for fields in reader:
            values = [one.strip() for one in fields]
            if not any(values):
                continue
            if not names:
                names = [_column(one) for one in values]
                if "time" not in names:
                    raise _bad(
                        name, reader.line_num, f"the header `{','.join(values)[:60]}` has no column `time`"
                    )
                if len(set(names)) < len(names):
                    raise _bad(name, reader.line_num, "two columns have the same name")
            elif len(values) > len(names):
                raise _bad(name, reader.line_num, f"{len(values)} fields, but the header has {len(names)}")
            else:
                yield reader.line_num, dict(zip(names, values, strict=False))
    except csv.Error as error:
        raise _bad(name, reader.line_num, str(error)) from None


def _column(name: str) -> str:
    name = name.strip()
    low = name.lower()
    return "time" if low in _TIMES else "rows" if low in _ROWS else "feed" if low in _FEEDS else name


def _time(record: Mapping[str, Any], name: str, line: int) -> float:
    value = record.get("time")
    found = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str):
        found = _seconds(value)
    if not math.isfinite(found):
        shown = "no time" if value in (None, "") else f"`{str(value)[:40]}` is no time"
        raise _bad(name, line, shown, "Write seconds, or ISO 8601 such as 2026-03-01T12:00:00.250Z.")
    return found


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _size(value: Any, what: str, name: str, line: int, *, largest: int = 10_000_000) -> int:
    if value is None or value == "":
        return 1
    try:
        size = int(value) if not isinstance(value, float) or value.is_integer() else 0
    except (TypeError, ValueError, OverflowError):
        size = 0
    if isinstance(value, bool) or not 1 <= size <= largest:
        wrong = f"`{what}` must be a whole number from 1 to {largest:,}, but is `{str(value)[:20]}`"
        hint = "Remove columns that are no dimension of the model." if what != "rows" else _TRACE_HINT
        raise _bad(name, line, wrong, hint)
    return size


def _dims(record: Mapping[str, Any], name: str, line: int) -> tuple[tuple[str, int], ...]:
    return tuple(
        (key, _size(value, key, name, line))
        for key, value in sorted(record.items())
        if key not in ("time", "rows", "feed") and value not in (None, "")
    )
