"""Load tests: arrivals, sizes of requests, latency limits, dynamic batching, and what is asked.

`LoadSpec` is one load test of one or more configurations. Texts are those of the command line; a limit reads
`p99<=20ms` or `timeouts<=0.1%`. Pure; all errors are `SpecError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, model_serializer, model_validator

from core.spec.validation import Spec, validated
from core.wire.errors import SpecError, nearest, range_rule

Process = Literal["poisson", "constant", "bursts", "ramp", "steps", "diurnal", "trace"]
PROCESSES: Mapping[Process, str] = MappingProxyType(
    {
        "poisson": "independent requests at a constant mean rate",
        "constant": "equal intervals",
        "bursts": "Poisson arrivals in on periods, none in off periods; the mean is the rate",
        "ramp": "Poisson arrivals whose rate rises evenly from a share of the rate to the rate",
        "steps": "Poisson arrivals at increasing shares of the rate, each for the same time",
        "diurnal": "Poisson arrivals whose rate follows a day, compressed into the duration",
        "trace": "recorded time stamps from a CSV or JSON Lines file",
    }
)
Question = Literal["traffic", "limit", "batching", "together"]
QUESTIONS: Mapping[Question, str] = MappingProxyType(
    {
        "traffic": "latency at the given rates",
        "limit": "the highest rate within the limits",
        "batching": "the best dynamic batching at a rate",
        "together": "several models at the same time on this machine",
    }
)
MOST_RATE, MOST_DURATION_S, MOST_REQUESTS = 50_000.0, 86_400, 2_000_000
MOST_KINDS = 64  # different request sizes: each has its own inputs in memory
MOST_CONFIGURATIONS = 4
MOST_TOGETHER = 3
MOST_RATES, MOST_LIMITS = 12, 8
DEFAULT_DURATION_S = 30.0

# --- a limit ------------------------------------------------------------------------------------------------

_LIMIT = re.compile(r"\s*(?:p([0-9]{1,2}(?:\.[0-9]{1,3})?)|(timeouts))\s*(?:<=|≤|<)\s*(.+?)\s*")
_TIME = re.compile(r"([0-9]*\.?[0-9]+)\s*(s|ms|µs|μs|us)")  # both letters mu
_SHARE = re.compile(r"([0-9]*\.?[0-9]+)\s*(%)?")
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "μs": 1e-6, "us": 1e-6}
_LIMIT_HINT = "Write for example `p99<=20ms`, `p99.9<=50ms` or `timeouts<=0.1%`."


class LoadLimit(Spec):
    """The largest share of requests that may be bad: slower than `at_most_s`, or timed out."""

    share: float  # 0.01 for p99
    at_most_s: float | None = None  # latency from the scheduled arrival; None: a limit on timeouts

    @model_validator(mode="after")
    def _check(self) -> LoadLimit:
        if not 0 < self.share < 1:
            raise SpecError(
                f"A limit must allow a share of requests between 0 and 1, but got {self.share:g}.",
                hint=_LIMIT_HINT,
            )
        if self.at_most_s is not None and not 0 < self.at_most_s <= MOST_DURATION_S:
            raise SpecError(f"A latency limit must be above 0 s; got {self.at_most_s:g} s.", hint=_LIMIT_HINT)
        return self

    @property
    def percentile(self) -> float:
        """The percentile as a share: 0.99 for p99."""
        return round(1 - self.share, 9)

    @property
    def text(self) -> str:
        """The limit as the command line reads it: `p99<=20ms`."""
        if self.at_most_s is None:
            return f"timeouts<={100 * self.share:.6g}%"
        return f"p{100 * self.percentile:.6g}<={1e3 * self.at_most_s:.6g}ms"

    @property
    def words(self) -> str:
        """The limit for people: `p99 ≤ 20 ms`."""
        if self.at_most_s is None:
            return f"timeouts ≤ {100 * self.share:.6g} %"
        return f"p{100 * self.percentile:.6g} ≤ {1e3 * self.at_most_s:.6g} ms"


def parse_load_limit(text: str) -> LoadLimit:
    """Read `p99<=20ms`, `p99.9<=1s` or `timeouts<=0.1%`.

    Raises:
        SpecError: it is no such limit, or out of range.
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise SpecError(f"`{text[:40]}` is no limit of a load test.", hint=_LIMIT_HINT)
    percent, timeouts, value = match[1], match[2], match[3]
    if timeouts:
        share = _SHARE.fullmatch(value)
        if share is None:
            raise SpecError(f"`{value[:20]}` is no share of timeouts.", hint=_LIMIT_HINT)
        return validated(LoadLimit, {"share": float(share[1]) / (100 if share[2] else 1)})
    at_most_s = parse_time(value, what=f"p{percent}")
    return validated(LoadLimit, {"share": round(1 - float(percent) / 100, 9), "at_most_s": at_most_s})


def parse_time(text: str, *, what: str) -> float:
    """Read `20ms`, `1.5 s` or `200us` as seconds.

    Raises:
        SpecError: no number, or no unit.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"`{what}` takes a time with a unit, but got `{text[:20]}`.", hint="Write for example `20ms`."
        )
    return float(match[1]) * _SECONDS[match[2]]


# --- arrivals -----------------------------------------------------------------------------------------------


class ArrivalsSpec(Spec):
    """How requests arrive. The rate is requests per second, not samples; it is part of the load test."""

    process: Process = "poisson"
    on_s: float = 1.0  # bursts: length of an on period
    off_s: float = 1.0  # bursts: length of an off period
    from_share: float = 0.1  # ramp and steps: the first rate, as a share of the rate
    steps: int = 5  # steps: number of equal steps up to the rate
    low_share: float = 0.25  # diurnal: the lowest rate of the day, as a share of the highest
    path: str = ""  # trace: the file

    @model_validator(mode="after")
    def _check(self) -> ArrivalsSpec:
        for name, low, high in (
            ("on_s", 0.001, 3600.0),
            ("off_s", 0.0, 3600.0),
            ("from_share", 0.0, 1.0),
            ("low_share", 0.0, 1.0),
            ("steps", 2, 50),
        ):
            if not low <= getattr(self, name) <= high:
                raise SpecError(
                    f"{range_rule(f'`arrivals.{name}`', low, high)}; got {getattr(self, name):g}.",
                    hint="Choose a value in that range.",
                )
        if (self.process == "trace") != bool(self.path):
            raise SpecError(
                "Arrivals of a trace need its file, and only they have one.",
                hint="Give the trace's CSV or JSON Lines file.",
            )
        return self


def process_named(name: str) -> Process:
    """Return the arrival process of that name.

    Raises:
        SpecError: there is none.
    """
    for one in PROCESSES:
        if one == name:
            return one
    raise SpecError(
        f"There are no arrivals `{name[:40]}`.{nearest(name, PROCESSES)}",
        hint=f"Use one of {', '.join(PROCESSES)}.",
    )


# --- sizes of requests --------------------------------------------------------------------------------------


def parse_sizes(text: str, *, what: str) -> dict[int, float]:
    """Read the sizes of requests: `4`, `1-8` (equally likely), or `1:0.7,8:0.3` with weights.

    Returns:
        Size -> probability; they add up to 1.

    Raises:
        SpecError: no such text, a size below 1, or more than 64 sizes.
    """
    hint = "Write `4`, `1-8` (equally likely) or `1:0.7,8:0.3` (with weights)."
    found: dict[int, float] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?(?::([0-9]*\.?[0-9]+))?", part)
        if match is None:
            raise SpecError(f"`{what}` has no size `{part[:20]}`.", hint=hint)
        low, high, weight = int(match[1]), int(match[2] or match[1]), float(match[3] or 1)
        sizes = range(low, high + 1)
        if not sizes or len(sizes) + len(found) > MOST_KINDS:
            raise SpecError(
                f"`{what}` may have 1 to {MOST_KINDS} different sizes, but `{part}` has {len(sizes):,}.",
                hint=hint,
            )
        for size in sizes:
            found[size] = found.get(size, 0.0) + weight / (len(sizes) if match[3] else 1)
    return checked_sizes(found, what=what)


def checked_sizes(sizes: Mapping[int, float], *, what: str) -> dict[int, float]:
    """Return sizes with their weights scaled to probabilities.

    Raises:
        SpecError: none, too many, one below 1, or a weight that is negative or not finite.
    """
    total = math.fsum(sizes.values())
    if not sizes or len(sizes) > MOST_KINDS or min(sizes) < 1 or not (0 < total < math.inf):
        raise SpecError(
            f"`{what}` needs 1 to {MOST_KINDS} sizes from 1, with weights above 0.",
            hint="Write for example `1-8`.",
        )
    if min(sizes.values()) < 0:
        raise SpecError(f"A weight of `{what}` is below 0.", hint="Write for example `1:0.7,8:0.3`.")
    return {size: weight / total for size, weight in sorted(sizes.items()) if weight}


def sizes_text(sizes: Mapping[int, float]) -> str:
    """Return sizes as the command line reads them."""
    if len(sizes) == 1:
        return str(next(iter(sizes)))
    ordered, even = sorted(sizes), len({round(one, 9) for one in sizes.values()}) == 1
    if even and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ",".join(f"{size}:{sizes[size]:.4g}" for size in ordered)


def _sizes(data: Mapping[Any, Any]) -> dict[int, float]:
    return {int(size): float(weight) for size, weight in data.items()}


# --- dynamic batching ---------------------------------------------------------------------------------------


class BatchingSpec(Spec):
    """Dynamic batching in front of a session; the keys are Triton's, times in microseconds as there.

    Waiting requests are joined in their order, up to `max_batch_size` samples. A batch starts when it is full
    or has a preferred size, or when its first request has waited `max_queue_delay_microseconds`.
    """

    max_batch_size: int  # samples, 2 to 4096
    max_queue_delay_microseconds: int = 0  # longest wait of the first request of a batch, up to 10,000,000
    preferred_batch_size: tuple[int, ...] = Field(default=(), strict=False)  # sizes that start at once

    @model_validator(mode="after")
    def _check(self) -> BatchingSpec:
        if not 2 <= self.max_batch_size <= 4096:
            raise SpecError(
                f"{range_rule('`dynamic_batching.max_batch_size`', 2, 4096)}; got {self.max_batch_size:,}.",
                hint="Leave `dynamic_batching` out to run each request alone.",
            )
        if not 0 <= self.max_queue_delay_microseconds <= 10_000_000:
            raise SpecError(
                f"{range_rule('`dynamic_batching.max_queue_delay_microseconds`', 0, 10_000_000)}; got "
                f"{self.max_queue_delay_microseconds:,}.",
                hint="A few milliseconds (2000) are usual.",
            )
        for size in self.preferred_batch_size:
            if not 1 <= size <= self.max_batch_size:
                raise SpecError(
                    f"A preferred batch size must be 1 to {self.max_batch_size}, the largest; got {size}.",
                    hint="Remove it, or raise `max_batch_size`.",
                )
        return self

    @property
    def max_delay_s(self) -> float:
        """Longest time that the first request of a batch waits for others, in seconds."""
        return self.max_queue_delay_microseconds / 1e6

    @property
    def short(self) -> str:
        """`8, 2 ms`: the largest batch and the delay."""
        return f"{self.max_batch_size}, {1e3 * self.max_delay_s:.4g} ms"

    @property
    def words(self) -> str:
        """`up to 8 samples, delay 2 ms`."""
        preferred = (
            f", preferred {', '.join(map(str, self.preferred_batch_size))}"
            if self.preferred_batch_size
            else ""
        )
        return f"up to {self.max_batch_size} samples, delay {1e3 * self.max_delay_s:.4g} ms{preferred}"


def batching_from_dict(data: Mapping[str, Any]) -> BatchingSpec:
    """Build dynamic batching from plain data; raises `SpecError` like `spec_from_dict`."""
    return validated(BatchingSpec, data)


# --- a load test --------------------------------------------------------------------------------------------


class LoadSpec(Spec):
    """What one load test asks. Configurations are not part of it; `rates` has one per configuration or point.

    traffic: every configuration at every rate, in interleaved turns. limit: the highest rate within `limits`.
    batching: the best dynamic batching of one configuration at `rates[0]`. together: all configurations at
    the same time, configuration i at `rates[i]`.
    """

    question: Question = "traffic"
    arrivals: ArrivalsSpec = Field(default_factory=ArrivalsSpec)
    rates: tuple[float, ...] = Field(default=(), strict=False)  # requests/s; empty: a trace as recorded
    duration_s: float | None = (
        None  # counted, for each configuration and rate; None: see `effective_duration_s`
    )
    limits: tuple[LoadLimit, ...] = Field(default=(), strict=False)
    timeout_s: float | None = None  # a request that waits longer is dropped; None: all are run
    rows: dict[int, float] = Field(
        default_factory=dict, strict=False
    )  # samples of a request -> weight; empty: 1
    dims: dict[str, dict[int, float]] = Field(
        default_factory=dict, strict=False
    )  # dimension -> size -> weight
    turns: int | None = None  # of each configuration and rate; None: 1 alone, 6 where several are compared
    budget_s: float | None = None  # limit and batching: time for the search, without the confirmation
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> LoadSpec:
        self._check_numbers()
        if self.question in ("limit", "batching") and not any(one.at_most_s for one in self.limits):
            raise SpecError(
                f"A load test that looks for {QUESTIONS[self.question]} needs a latency limit.",
                hint=_LIMIT_HINT,
            )
        if self.question == "limit" and (self.rates or self.arrivals.process not in ("poisson", "constant")):
            raise SpecError(
                "The highest rate is found with Poisson or constant arrivals, and no rate is given.",
                hint="Leave out the rate, and use `poisson`.",
            )
        if self.question != "limit" and not self.rates and self.arrivals.process != "trace":
            raise SpecError("A load test needs a rate.", hint="Give requests per second, for example 100.")
        if any(one.at_most_s is None for one in self.limits) and self.timeout_s is None:
            raise SpecError("A limit on timeouts needs a timeout.", hint="Give one, for example `1s`.")
        return self

    def _check_numbers(self) -> None:
        if len(self.rates) > MOST_RATES or any(not 0.01 <= one <= MOST_RATE for one in self.rates):
            raise SpecError(
                f"A load test takes up to {MOST_RATES} rates of 0.01 to {MOST_RATE:,.0f} requests/s; got "
                f"{', '.join(f'{one:g}' for one in self.rates[:20])}.",
                hint="Give fewer or other rates.",
            )
        for name, low, high in (
            ("duration_s", 1.0, MOST_DURATION_S),
            ("timeout_s", 1e-4, 3600.0),
            ("budget_s", 5.0, MOST_DURATION_S),
            ("turns", 1, 60),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise SpecError(
                    f"{range_rule(f'`{name}`', low, high)}; got {value:g}.",
                    hint="Choose a value in that range.",
                )
        if len(self.limits) > MOST_LIMITS:
            raise SpecError(
                f"A load test has at most {MOST_LIMITS} limits, but got {len(self.limits)}.",
                hint="Remove some.",
            )
        wanted = max(self.rates, default=0.0) * self.effective_duration_s
        if wanted > MOST_REQUESTS:
            raise SpecError(
                f"{wanted:,.0f} requests are more than {MOST_REQUESTS:,}, the most of one run.",
                hint="Shorten the duration.",
            )
        if self.rows:
            checked_sizes(self.rows, what="rows")
        for name, sizes in self.dims.items():
            checked_sizes(sizes, what=name)
        if math.prod(len(one) for one in (self.rows or {1: 1.0}, *self.dims.values())) > MOST_KINDS:
            raise SpecError(
                f"Requests may have at most {MOST_KINDS} different sizes.", hint="Give fewer sizes, or steps."
            )

    @model_serializer(mode="plain", when_used="json")
    def _plain(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "question": self.question,
            "arrivals": self.arrivals.model_dump(exclude_defaults=True),
        }
        data["limits"] = [one.text for one in self.limits]
        data["rows"] = {str(size): weight for size, weight in self.rows.items()}
        data["dims"] = {name: {str(k): v for k, v in sizes.items()} for name, sizes in self.dims.items()}
        for name in ("rates", "duration_s", "timeout_s", "turns", "budget_s", "seed"):
            data[name] = list(self.rates) if name == "rates" else getattr(self, name)
        return {name: value for name, value in data.items() if value not in (None, {}, [])}

    @model_validator(mode="before")
    @classmethod
    def _read_texts(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        found = dict(data)
        if isinstance(found.get("limits"), list | tuple):
            texts = found["limits"]
            found["limits"] = tuple(parse_load_limit(one) if isinstance(one, str) else one for one in texts)
        if isinstance(found.get("rows"), Mapping):
            found["rows"] = _sizes(found["rows"])
        if isinstance(found.get("dims"), Mapping):
            found["dims"] = {
                name: _sizes(sizes) if isinstance(sizes, Mapping) else sizes
                for name, sizes in found["dims"].items()
            }
        if isinstance(found.get("rates"), list | tuple):
            found["rates"] = tuple(float(one) for one in found["rates"])
        return found

    @property
    def effective_duration_s(self) -> float:
        """Counted seconds of each configuration and rate."""
        return DEFAULT_DURATION_S if self.duration_s is None else self.duration_s

    @property
    def latency_limit(self) -> LoadLimit | None:
        """The first limit on the latency."""
        return next((one for one in self.limits if one.at_most_s is not None), None)

    @property
    def warmup_s(self) -> float:
        """Seconds at the start of a run that do not count: 2, or five times the largest latency limit.

        Source: the protocol of ORTune's load tests; a queue forgets its start within a few busy periods.
        """
        return max(2.0, 5.0 * max((one.at_most_s or 0.0 for one in self.limits), default=0.0))

    @property
    def row_sizes(self) -> dict[int, float]:
        """Samples of a request -> probability."""
        return checked_sizes(self.rows, what="rows") if self.rows else {1: 1.0}


def load_from_dict(data: Mapping[str, Any]) -> LoadSpec:
    """Build a load test from plain data; raises `SpecError` like `spec_from_dict`."""
    return validated(LoadSpec, data)


# --- a target under load ------------------------------------------------------------------------------------

_TARGET = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/s\s+with\s+(.+)")


class LoadTarget(Spec):
    """A target of a configuration under load, of the scorecard: `200/s with p99<=20ms`."""

    rate: float  # requests/s, Poisson arrivals; a request has the configuration's batch size
    limit: LoadLimit

    @property
    def text(self) -> str:
        """As the YAML file and the command line write it: `200/s with p99<=20ms`."""
        return f"{self.rate:.6g}/s with {self.limit.text}"

    @property
    def what(self) -> str:
        """The limited percentile at the rate, for people: `p99 at 200 requests/s`."""
        return f"p{100 * self.limit.percentile:.6g} at {self.rate:,.6g} requests/s"

    @property
    def limit_words(self) -> str:
        """The limit alone: `≤ 20 ms`."""
        return f"≤ {1e3 * (self.limit.at_most_s or 0.0):,.6g} ms"

    @property
    def words(self) -> str:
        """For people: `200 requests/s with p99 ≤ 20 ms`."""
        return f"{self.rate:.6g} requests/s with {self.limit.words}"


def parse_load_target(text: str) -> LoadTarget:
    """Read `200/s with p99<=20ms`.

    Raises:
        SpecError: it is no such target, or out of range.
    """
    match = _TARGET.fullmatch(text)
    if match is None:
        raise SpecError(f"`{text[:60]}` is no target under load.", hint="Write `200/s with p99<=20ms`.")
    rate = float(match[1])
    if not 0.01 <= rate <= MOST_RATE:
        raise SpecError(
            f"{range_rule('The rate of a target', 0.01, MOST_RATE)} requests/s; got {rate:g}.",
            hint="Write `200/s with p99<=20ms`.",
        )
    limit = parse_load_limit(match[2])
    if limit.at_most_s is None:
        raise SpecError("A target under load limits a latency.", hint="Write `200/s with p99<=20ms`.")
    return LoadTarget(rate=rate, limit=limit)
