"""Targets of a configuration: a metric, its limit, and the conditions under which the limit applies.

`TargetSpec` is one target of a YAML file: a limit on a metric, or on the latency under load. Limits have a
unit ("3 ms", "100 MiB", "98 %"): a bare number in a YAML file is in SI units, a bare text is refused where it
is ambiguous. Pure; all errors are `SpecError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from core.spec.load import LoadTarget, parse_load_target
from core.spec.metrics import METRICS, UNDER_LOAD, Metric, MetricName, Quantity
from core.spec.settings import check_range, trial_setting
from core.spec.validation import Spec, validated
from core.wire.errors import SpecError, nearest
from core.wire.units import brief, size_scale

MOST_TARGETS = 50

# --- limits as text -----------------------------------------------------------------------------------------

UNITS: Mapping[Quantity, Mapping[str, Decimal]] = {
    "time": {"s": Decimal(1), "ms": Decimal("1e-3"), "µs": Decimal("1e-6")},
    "rate": {"/s": Decimal(1)},
    "size": {
        "GB": Decimal(10**9),
        "MB": Decimal(10**6),
        "kB": Decimal(10**3),
        "GiB": Decimal(2**30),
        "MiB": Decimal(2**20),
        "KiB": Decimal(2**10),
        "B": Decimal(1),
    },
    "share": {"%": Decimal("0.01")},
    "number": {},
}
_ALIASES = {
    "us": "µs",
    "μs": "µs",
    "samples/s": "/s",
    "rows/s": "/s",
    "inferences/s": "/s",
    "b": "B",
}  # both letters mu
_NUMBER = re.compile(
    r"([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]*\.?[0-9]+|[0-9]+\.)(?:[eE]([+-]?[0-9]{1,2}))?"
)


def parse_limit(metric: Metric, text: str) -> float:
    """Read a limit: `3 ms`, `100 MiB`, `98 %`, `0.98`, `2,000/s`.

    Times and sizes need their unit: a bare `3` could be seconds or milliseconds.

    Raises:
        SpecError: no number, no unit where several are possible, or a unit that this metric lacks.
    """
    plain = text.strip()
    match = _NUMBER.match(plain)
    if match is None:
        raise SpecError(
            f"A limit of `{metric.name}` must be a number with a unit, but got `{plain[:40]}`.",
            hint=f"Write for example `{metric.example}`.",
        )
    number = Decimal(match[1].replace(",", "")).scaleb(int(match[2] or 0))
    return float(number * _factor(metric, plain[match.end() :].strip()))


def _factor(metric: Metric, unit: str) -> Decimal:
    units = UNITS[metric.quantity]
    if not unit and len(units) < 2:
        return Decimal(1)
    if not unit:
        raise SpecError(
            f"A limit of `{metric.name}` needs a unit: {', '.join(units)}.",
            hint=f"Write for example `{metric.example}`.",
        )
    meant = _ALIASES.get(unit.lower(), unit)
    found = next((factor for name, factor in units.items() if name.lower() == meant.lower()), None)
    if found is None:
        raise SpecError(
            f"`{metric.name}` has no unit `{unit[:20]}`.{nearest(unit, units)}",
            hint=f"Write for example `{metric.example}`.",
        )
    return found


def limit_text(metric: Metric, value: float) -> str:
    """Return a limit in its usual unit; `parse_limit` returns exactly `value`."""
    exact = Decimal(repr(value))
    written = [(_digits(exact / factor), unit) for unit, factor in UNITS[metric.quantity].items()]
    exactly = [
        (digits, unit)
        for digits, unit in written
        if float(Decimal(digits) * UNITS[metric.quantity][unit]) == value
    ]
    if not exactly:
        return _digits(exact)
    digits, unit = min(exactly, key=lambda one: (one[0].startswith("0."), len(one[0])))
    return f"{digits}{unit}" if unit.startswith("/") else f"{digits} {unit}"


def _limit_shown(metric: Metric, value: float) -> str:
    """A limit in the unit in which `targets.quantity` shows the measured value."""
    if metric.quantity == "time":
        return f"{brief(value * 1e3)} ms"
    if metric.quantity == "size":
        scale, unit = size_scale(value)
        return f"{brief(value / scale)} {unit}"
    return limit_text(metric, value)


def _digits(number: Decimal) -> str:
    return format(number.normalize(), "f")


# --- one target ---------------------------------------------------------------------------------------------


class TargetSpec(Spec):
    """One target: a metric with one of `at_most` and `at_least`, as the metric requires, or `load` alone."""

    metric: MetricName | None = None
    load: LoadTarget | None = None  # a rate with a latency limit: `200/s with p99<=20ms`
    at_most: float | None = None
    at_least: float | None = None
    batch_size: int | None = None  # batch size at which it applies; absent: the configuration's
    threshold: float | None = None  # decision threshold; absent: the dataset's
    positive_class: int | str | None = None  # name or number of the class; absent: the dataset's

    @model_validator(mode="before")
    @classmethod
    def _read_limits(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if isinstance(data.get("load"), str):
            data = {**data, "load": parse_load_target(data["load"])}
        name = data.get("metric")
        if not isinstance(name, str):
            return data
        if name not in METRICS:
            raise SpecError(
                f"There is no metric `{name[:40]}`.{nearest(name, METRICS)}",
                hint=f"Use one of {', '.join(METRICS)}.",
            )
        return {
            key: parse_limit(METRICS[name], value)
            if key in ("at_most", "at_least") and isinstance(value, str)
            else value
            for key, value in data.items()
        }

    @model_validator(mode="after")
    def _check(self) -> TargetSpec:
        if self.load is not None:
            self._check_load()
            return self
        if self.metric is None:
            raise SpecError(
                "`metric` is missing in a target.",
                hint="Write for example `{metric: latency_p99, at_most: 3 ms}` or "
                "`{load: 200/s with p99<=20ms}`.",
            )
        self._check_limit()
        self._check_conditions()
        return self

    def _check_load(self) -> None:
        others = [
            name for name in type(self).model_fields if name != "load" and getattr(self, name) is not None
        ]
        if others:
            raise SpecError(
                f"A target under load takes no `{others[0]}`.",
                hint="Write `{load: 200/s with p99<=20ms}` as a target of its own.",
            )

    def _check_limit(self) -> None:
        right, wrong = ("at_most", "at_least") if self.about.smaller_is_better else ("at_least", "at_most")
        if getattr(self, wrong) is not None:
            raise SpecError(
                f"`{self.metric}` is better when it is {'smaller' if right == 'at_most' else 'larger'}, but "
                f"the target says `{wrong}`.",
                hint=f"Write `{right}: {self.about.example}`.",
            )
        value = getattr(self, right)
        if value is None:
            raise SpecError(
                f"The target on `{self.metric}` has no limit.", hint=f"Add `{right}: {self.about.example}`."
            )
        top = 1.0 if self.about.source == "accuracy" else math.inf
        if not (0 < value <= top and math.isfinite(value)):
            range_ = "above 0 and at most 1" if top == 1 else "above 0"
            raise SpecError(
                f"A limit of `{self.metric}` must be {range_}, but got {value:g}.",
                hint=f"Write for example `{self.about.example}`.",
            )

    def _check_conditions(self) -> None:
        allowed = {
            "batch_size": self.about.at_batch,
            "threshold": self.about.at_threshold,
            "positive_class": self.about.of_class,
        }
        for name, fits in allowed.items():
            if getattr(self, name) is not None and not fits:
                raise SpecError(
                    f"`{name}` does not apply to `{self.metric}`.",
                    hint=f"Leave `{name}` out of this target.",
                )
        if self.batch_size is not None:
            check_range(trial_setting("batch_size"), self.batch_size)
        positive = self.positive_class
        if (isinstance(positive, int) and positive < 0) or positive == "":
            raise SpecError(
                f"`positive_class` must be a name or a number from 0, but got {positive!r}.",
                hint="Give the number or name of a class.",
            )
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise SpecError(
                f"`threshold` must be 0 to 1; got {self.threshold:g}.",
                hint="Give the probability from which a sample counts as the class.",
            )

    @model_serializer(mode="wrap", when_used="json")
    def _limit_as_text(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        if self.load is not None:
            return {"load": self.load.text}
        for name in ("at_most", "at_least"):
            if data.get(name) is not None and self.about.quantity != "number":
                data[name] = limit_text(self.about, data[name])
        return data

    @property
    def about(self) -> Metric:
        """The metric's row of the table; that of `UNDER_LOAD` for a target under load."""
        return UNDER_LOAD if self.metric is None else METRICS[self.metric]

    @property
    def limit(self) -> float:
        """The limit, in SI units; under load the share of requests that may be slower."""
        if self.load is not None:
            return self.load.limit.share
        limit = self.at_most if self.at_least is None else self.at_least
        assert limit is not None  # `_check_limit`
        return limit

    @property
    def what(self) -> str:
        """The metric with its conditions in words: `p99 latency at batch 1`, `p99 at 200 requests/s`."""
        if self.load is not None:
            return self.load.what
        words = [self.about.title]
        if self.positive_class is not None:
            words.append(f"of class {self.positive_class}")
        if self.batch_size is not None:
            words.append(f"at batch {self.batch_size:,}")
        if self.threshold is not None:
            words.append(f"at threshold {self.threshold:g}")
        return " ".join(words)

    @property
    def limit_words(self) -> str:
        """The limit with its direction, in the unit of what is measured: `≤ 3 ms`, `≥ 98 %`."""
        if self.load is not None:
            return self.load.limit_words
        return f"{'≤' if self.about.smaller_is_better else '≥'} {_limit_shown(self.about, self.limit)}"


def check_targets(targets: Sequence[TargetSpec]) -> None:
    """Refuse too many targets, and two for the same metric and conditions.

    Raises:
        SpecError: more than 50, or two limits on the same metric and conditions.
    """
    if len(targets) > MOST_TARGETS:
        raise SpecError(
            f"A configuration has at most {MOST_TARGETS} targets, but got {len(targets)}.",
            hint="Remove the least important ones.",
        )
    seen: set[tuple[object, ...]] = set()
    for one in targets:
        conditions = (
            (one.what,)
            if one.load is not None
            else (one.metric, one.batch_size, one.threshold, type(one.positive_class), one.positive_class)
        )
        if conditions in seen:
            raise SpecError(
                f"There are two targets on the {one.what}.", hint="Keep the stricter one of the two."
            )
        seen.add(conditions)


def target_from_dict(data: Mapping[str, Any]) -> TargetSpec:
    """Build one target from plain data.

    Raises:
        SpecError: an unknown key or metric, a wrong type, a limit that cannot be read or is out of range.
    """
    return validated(TargetSpec, data)
