"""The question of a search: objective, limits, time budget, and settings that may vary.

Pure. Texts are those of the command line; a study keeps the question as plain data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

from pydantic import Field, field_serializer, field_validator, model_validator

from core.spec.load import LoadTarget, parse_load_target
from core.spec.metrics import METRICS, OBJECTIVES
from core.spec.settings import SETTINGS, TrialSetting, Value, trial_setting, value_words
from core.spec.space import MODEL
from core.spec.targets import TargetSpec, check_targets, target_from_dict
from core.spec.text_values import ON_OFF
from core.spec.validation import Spec, validated
from core.wire.errors import SpecError, nearest, range_rule
from core.wire.runtime import runtime_text

Strategy = Literal["race", "random"]
STRATEGIES: Mapping[Strategy, str] = MappingProxyType(
    {
        "race": "Bayesian optimization after a balanced design",
        "random": "configurations in random order",
    }
)
OLD_STRATEGIES = ("grid", "optuna-tpe")  # of 1.0: on average `race` finds as much or more
_METRIC_OF: Mapping[str, str] = {  # short name -> metric
    "latency": "latency_p50",
    **{one.short: one.name for one in METRICS.values() if one.short},
}
OBJECTIVE_NAMES = ", ".join(  # for error messages
    "latency (p50)" if name == "latency_p50" else METRICS[name].short for name in OBJECTIVES
)
DEFAULT_BUDGET_S = 60
LEAST_BUDGET_S, MOST_BUDGET_S = 5, 86_400


class Question(Spec):
    """The goal of a search. `objective` has the weight of each metric in the logarithm of the speed-up."""

    objective: dict[str, float] = Field(default_factory=lambda: {"latency_p50": 1.0})
    limits: tuple[TargetSpec, ...] = Field(default=(), strict=False)
    accuracy_drop: float | None = None  # the accuracy may be lower than the original's by this share
    load: LoadTarget | None = (
        None  # run after the confirmation, beyond the budget; as a target of a scorecard
    )
    same_latency: bool = False  # the p50 may be no longer than that of ONNX Runtime's default
    budget_s: int = DEFAULT_BUDGET_S
    vary: dict[str, list[Any]] = Field(default_factory=dict)  # empty: all settings with values to try
    runtimes: tuple[str, ...] = Field(default=(), strict=False)  # vary besides the settings; empty: none
    variants: Literal["none", "existing", "make"] = "existing"  # make: create those that need the model only
    fix: tuple[str, ...] = Field(default=(), strict=False)  # settings that keep the value of the start
    without: tuple[str, ...] = Field(default=(), strict=False)  # settings or values that are never tried
    strategy: Strategy = "race"
    extend: bool = False  # may exceed the budget where that is too short for a confirmation
    give_way: bool = False  # other jobs of this machine may run between its comparisons
    warm_start: bool = True  # starts with what earlier studies of the same model found
    seed: int = 0

    @field_validator("strategy", mode="before")
    @classmethod
    def _replace_old_strategy(cls, name: Any) -> Any:
        return "race" if name in OLD_STRATEGIES else name

    @field_validator("load", mode="before")
    @classmethod
    def _read_load(cls, text: Any) -> Any:
        return parse_load_target(text) if isinstance(text, str) else text

    @field_serializer("load", when_used="json")
    def _load_as_text(self, load: LoadTarget | None) -> str | None:
        return None if load is None else load.text

    @model_validator(mode="after")
    def _check(self) -> Question:
        _check_objective(self.objective)
        check_targets(self.limits)
        _check_contradictions(self)
        if not LEAST_BUDGET_S <= self.budget_s <= MOST_BUDGET_S:
            raise SpecError(
                f"{range_rule('The time of a search in seconds', LEAST_BUDGET_S, MOST_BUDGET_S)}; "
                f"got {self.budget_s:,}.",
                hint="30 s to 5 minutes suit a small model.",
            )
        if self.accuracy_drop is not None and not 0 <= self.accuracy_drop < 1:
            raise SpecError(
                f"The accuracy may fall by 0 to 100 %, but got {100 * self.accuracy_drop:g} %.",
                hint="Write for example `accuracy>=-0.5%`.",
            )
        return self

    @property
    def per_row(self) -> bool:
        """Whether the batch size may vary, because the objective is per sample."""
        return any(METRICS[name].per_sample for name in self.objective)

    @property
    def streams(self) -> bool:
        """Whether streams may vary: of all numbers of the rounds, the objective is throughput alone."""
        return {name for name in self.objective if METRICS[name].by_rounds} == {"throughput"}

    @property
    def metrics(self) -> set[str]:
        """All metrics of the question."""
        return {*self.objective, *(one.about.name for one in self.limits)}

    @property
    def accuracy(self) -> bool:
        """Whether the question needs labelled data."""
        return self.accuracy_drop is not None or any(one.about.source == "accuracy" for one in self.limits)

    @property
    def words(self) -> str:
        """The objective in words."""
        parts = [
            OBJECTIVES[name] if weight == 1 else f"{OBJECTIVES[name]} ({100 * weight:.0f} %)"
            for name, weight in self.objective.items()
        ]
        return " and ".join(parts)

    @property
    def limit_words(self) -> list[str]:
        """Every limit in words, `p99 latency ≤ 3 ms`, without the one under load."""
        found = [f"{one.what} {one.limit_words}" for one in self.limits]
        if self.accuracy_drop is not None:
            found.append(f"accuracy ≥ the original's − {100 * self.accuracy_drop:g} pp")
        return [*found, "p50 latency no higher than the default"] if self.same_latency else found


def question_from_dict(data: Mapping[str, Any]) -> Question:
    """Build a question from plain data; raises `SpecError` like `spec_from_dict`."""
    return validated(Question, data)


def _check_objective(objective: Mapping[str, float]) -> None:
    for name, weight in objective.items():
        if name not in OBJECTIVES:
            raise SpecError(
                f"There is no objective `{name[:40]}`.{nearest(name, [*_METRIC_OF, *OBJECTIVES])}",
                hint=f"Use one of {OBJECTIVE_NAMES}.",
            )
        if not (0 < weight <= 1 and math.isfinite(weight)):
            raise SpecError(
                f"A weight must be above 0 and at most 1, but `{name}` has {weight:g}.",
                hint="Write for example `latency:0.7,memory:0.3`.",
            )
    if not objective or not math.isclose(sum(objective.values()), 1.0, abs_tol=1e-6):
        raise SpecError(
            f"The weights of the objectives must add up to 1, but got {sum(objective.values()):g}.",
            hint="Write for example `latency:0.7,memory:0.3`.",
        )


def _check_contradictions(question: Question) -> None:
    """Refuse contradicting limits; `check_targets` checks those on one metric."""
    if wrong := next((one.load for one in question.limits if one.load is not None), None):
        raise SpecError(
            f"`{wrong.text}` is no constraint of the search itself, because it needs a load test.",
            hint="Give it as `load`; the search runs it after the confirmation.",
        )
    if question.accuracy_drop is not None and any(one.metric == "accuracy" for one in question.limits):
        raise SpecError(
            "There are two limits on the accuracy, one of them relative to the original.",
            hint="Keep one of them.",
        )


# --- texts --------------------------------------------------------------------------------------------------

_LIMIT = re.compile(r"\s*([A-Za-z_0-9]+)\s*(?:@\s*([0-9]*\.?[0-9]+))?\s*(<=|>=|≤|≥|<|>|=)\s*(.+?)\s*")


def parse_objective(text: str) -> dict[str, float]:
    """Read `latency`, `p99`, `throughput`, or two with weights: `latency:0.7,memory:0.3`.

    Raises:
        SpecError: no such objective, or weights that do not add up to 1.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found: dict[str, float] = {}
    for part in parts:
        name, _, weight = part.partition(":")
        name = _METRIC_OF.get(name.strip().lower(), name.strip().lower())
        if name in found:
            raise SpecError(f"The objective `{name[:40]}` is given twice.", hint="Remove one of them.")
        try:
            found[name] = float(weight) if weight else 1.0 / len(parts)
        except ValueError:
            raise SpecError(
                f"`{weight[:20]}` is no weight of `{name}`.",
                hint="Write for example `latency:0.7,memory:0.3`.",
            ) from None
    if len(found) > 2:
        raise SpecError(
            f"A search has at most two objectives, but got {len(found)}.",
            hint="Turn the others into limits.",
        )
    _check_objective(found)
    return found


def parse_limits(texts: Sequence[str]) -> dict[str, Any]:
    """Read `p99<=3ms`, `memory<=100MiB`, `sensitivity@0.6>=98%`, `accuracy>=-0.5%` as parts of a question.

    Raises:
        SpecError: no such metric, a comparison the wrong way round, or a limit that cannot be read.
    """
    found: dict[str, Any] = {"limits": []}
    for text in texts:
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise SpecError(
                f"`{text[:60]}` is no limit.", hint="Write for example `p99<=3ms` or `memory<=100MiB`."
            )
        name, threshold, sign, value = match.groups()
        metric = _METRIC_OF.get(name.lower(), name.lower())
        if metric not in METRICS:
            known = list(dict.fromkeys([*_METRIC_OF, *METRICS]))
            raise SpecError(
                f"There is no metric `{name[:40]}`.{nearest(name, known)}",
                hint=f"Use one of {', '.join(known)}.",
            )
        if metric == "accuracy" and value.startswith(("-", "−")):
            found["accuracy_drop"] = _parse_accuracy_drop(sign, value)
            continue
        data: dict[str, Any] = {"metric": metric, _END[sign]: _parse_share(metric, value)}
        if threshold is not None:
            data["threshold"] = float(threshold)
        found["limits"].append(target_from_dict(data))
    return found


_END = {
    "<=": "at_most",
    "≤": "at_most",
    "<": "at_most",
    ">=": "at_least",
    "≥": "at_least",
    ">": "at_least",
} | {"=": "at_most"}


def _parse_share(metric: str, value: str) -> Any:
    """`output_error<=1%` is a plain number in the table."""
    if METRICS[metric].quantity == "number":
        try:
            number = float(value.removesuffix("%"))
        except ValueError:
            return value
        if value.endswith("%"):
            return number / 100
        if number >= 1:
            raise SpecError(
                f"A limit on `{metric}` is a share below 1 or a percentage, but got `{value[:40]}`.",
                hint=f"Write {number:g}% or {number / 100:g}.",
            )
        return number
    return value


def _parse_accuracy_drop(sign: str, value: str) -> float:
    digits = value.lstrip("-−").strip()
    try:
        drop = float(digits.removesuffix("%").strip())
    except ValueError:
        drop = math.nan
    if _END[sign] != "at_least" or sign == "=" or not math.isfinite(drop):
        raise SpecError(
            f"`accuracy{sign}{value[:20]}` cannot be read.", hint="Write for example `accuracy>=-0.5%`."
        )
    return drop / 100 if digits.endswith("%") else drop


def parse_settings(texts: Sequence[str], flag: str) -> dict[str, list[Value | None]]:
    """Read `NAME=A,B,C` of `--vary` or `--fix`; `flag` is empty on a page.

    Raises:
        SpecError: no such setting, or a value that it does not accept; the nearest name is offered.
    """
    found: dict[str, list[Value | None]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        parts = [part.strip() for part in values.split(",")]
        if not equals or not all(parts):
            what = "an empty value" if any(parts) else "no values"
            raise SpecError(
                f"`{f'{flag} {text[:60]}'.strip()}` has {what}.",
                hint=f"Write `{f'{flag} intra_op_num_threads=1,2,4'.strip()}`.",
            )
        if name == MODEL:
            found[name] = [*parts]
        else:
            row = find_setting(name)
            found[row.name] = [parse_value(row, part) for part in parts]
    return found


def settings_texts(vary: Mapping[str, Sequence[Value | None]]) -> list[str]:
    """Return what `parse_settings` reads, one text for each setting."""
    return [f"{name}={','.join(map(value_words, values))}" for name, values in vary.items()]


def find_setting(name: str) -> TrialSetting:
    """Return the setting that a user names: by its name in the table or that of its option.

    Raises:
        SpecError: there is none; the nearest name is offered.
    """
    by_flag = {one.flag.removeprefix("--"): one for one in SETTINGS}
    plain = name.removeprefix("--").replace("_", "-")
    known = {one.name for one in SETTINGS}
    if name in known:
        return trial_setting(name)
    if plain in by_flag:
        return by_flag[plain]
    raise SpecError(
        f"Unknown setting `{name[:60]}`.{nearest_setting(name, {*known, *by_flag})}",
        hint="`docs/reference/settings.md` lists all settings.",
    )


def nearest_setting(name: str, known: Iterable[str]) -> str:
    """Return the question whether another setting is meant; a short name of a table means its setting."""
    meant = next((one.name for one in SETTINGS if one.short == name), None)
    return nearest(name, known) if meant is None else f" Did you mean `{meant}`?"


def parse_value(setting: TrialSetting, text: str) -> Value | None:
    """Read one value of a setting; the text `default` unsets it.

    Raises:
        SpecError: the setting does not accept it; the nearest one is offered.
    """
    if text.lower() in ("default", "auto"):
        value: Value | None = setting.default
        return value
    if setting.kind == "bool":
        if text.lower() not in ON_OFF:
            raise SpecError(
                f"`{setting.name}` must be on or off, but got `{text[:40]}`.", hint="Write `on` or `off`."
            )
        return ON_OFF[text.lower()]
    if setting.kind == "int":
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise SpecError(
                f"`{setting.name}` takes whole numbers, but got `{text[:40]}`.",
                hint="Write for example 1,2,4.",
            )
        return int(text)
    if setting.kind == "choice":
        found = next((one for one in setting.choices if str(one).lower() == text.lower()), None)
        if found is None:
            raise SpecError(
                f"`{setting.name}` has no value `{text[:40]}`.{nearest(text, map(str, setting.choices))}",
                hint=f"Use one of {', '.join(map(str, setting.choices))}.",
            )
        chosen: Value = found
        return chosen
    if setting.name == "providers":
        return tuple(text.split("+"))
    if setting.name == "runtime":
        return runtime_text(text)
    raise SpecError(
        f"`{setting.name}` cannot vary on the command line.", hint="Set it with its own option instead."
    )


# --- predefined questions -----------------------------------------------------------------------------------

PRESETS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "lowest latency": ("The lowest p50 latency.", {"objective": {"latency_p50": 1.0}}),
        "most samples per second": (
            "The highest throughput; batch size and streams may vary.",
            {"objective": {"throughput": 1.0}},
        ),
        "least CPU for the same latency": (
            "The lowest CPU time at a latency no higher than ONNX Runtime's default, for batteries "
            "and shared servers.",
            {"objective": {"cpu_s": 1.0}, "same_latency": True},
        ),
        "smallest that keeps the answers": (
            "The smallest model whose outputs stay within 2 % of the original's.",
            {
                "objective": {"model_size": 1.0},
                "limits": [{"metric": "output_error", "at_most": 0.02}],
            },
        ),
    }
)
assert set(STRATEGIES) == set(get_args(Strategy))
