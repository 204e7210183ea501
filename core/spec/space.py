"""The search space: the distinct configurations, and the combinations left out, with the reasons.

An axis is a setting with the values to try; a configuration is an index into each axis. Of combinations that
differ only in settings without effect, one is kept; the same rules disable widgets on pages. The rules are
evaluated once per combination of the few settings that they read, so that hundreds of thousands of
combinations take a fraction of a second. Pure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from core.spec import (
    CPU_PROVIDER,
    ModelRef,
    TrialSpec,
    belongs,
    differing,
    effective,
    is_provider_option,
    ort_default,
    with_changes,
    without_effect_where,
)
from core.spec.settings import (
    SETTINGS,
    Place,
    ProviderOption,
    Value,
    short,
    short_value,
    trial_setting,
    value_words,
)
from core.spec.settings.provider_options import NEEDS_BINDING, searched_options
from core.spec.text_values import ON_OFF
from core.wire.errors import SpecError, nearest

STREAMS, STREAM_TYPE, THREADS = "streams", "stream_type", "intra_op_num_threads"
MODEL = "model"  # the axis of variants; its values are their names, None the model itself
MOST_DISTINCT = 200_000
# Settings that keep the start's value where the space would exceed MOST_DISTINCT (many CPUs, a free batch, a
# GPU), in this order: the first is least likely to change a latency.
LEAST_LIKELY = (
    *("use_deterministic_compute", "session.set_denormal_as_zero", "session.force_spinning_stop"),
    *("disable_synchronize_execution_providers", "CUDAExecutionProvider.fuse_conv_bias"),
    *("CUDAExecutionProvider.arena_extend_strategy", "CUDAExecutionProvider.cudnn_conv_use_max_workspace"),
    *("execution_order", "session.inter_op.allow_spinning", "session.dynamic_block_base"),
    *("session.intra_op.spin_duration_us", "CUDAExecutionProvider.prefer_nhwc", "enable_mem_pattern"),
    *("memory.enable_memory_arena_shrinkage", "inter_op_num_threads", "execution_mode"),
)
DEFAULT_WORDS = "ONNX Runtime's default"

Choice = tuple[int, ...]  # for each axis the index of its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A setting, free dimension or MODEL that varies. In a search its first value is that of the start."""

    name: str
    values: tuple[Value | None, ...]


@dataclass(frozen=True, kw_only=True)
class Space:
    """The distinct configurations, beginning with the start of the search."""

    base: TrialSpec
    axes: tuple[Axis, ...]
    choices: tuple[Choice, ...]
    combinations: int
    left_out: Mapping[str, int]  # reason -> combinations; with `choices` they make `combinations`
    models: Mapping[str, ModelRef] = field(default_factory=dict)  # values of the axis MODEL
    unvaried: tuple[str, ...] = ()  # settings kept at the start's value, to limit the size

    def changes(self, choice: Choice) -> dict[str, Value | None]:
        """Return the settings in which a configuration differs from the start."""
        pairs = zip(self.axes, choice, strict=True)
        return {axis.name: axis.values[index] for axis, index in pairs if index}

    def spec(self, choice: Choice) -> TrialSpec:
        """Return the spec of a configuration."""
        changed = self.changes(choice)
        model = changed.pop(MODEL, None)
        base = self.base
        if model is not None:
            base = base.model_copy(update={"model": self.models[str(model)]})
        return with_changes(base, changed) if changed else base

    def label(self, choice: Choice) -> str:
        """Return the settings that differ from ONNX Runtime's default, in short form."""
        return changes_words(changes_from_default(self.base, self.changes(choice)))

    def canonical(self, asked: Choice) -> Choice:
        """Return the equivalent configuration whose settings without effect have the start's values."""
        reasons = _reasons(self.base, self.axes, dict(enumerate(asked)))
        return tuple(0 if a.name in reasons else i for a, i in zip(self.axes, asked, strict=True))

    @cached_property
    def known(self) -> frozenset[Choice]:
        """The configurations as a set."""
        return frozenset(self.choices)

    def find(self, values: Mapping[str, Any]) -> Choice | None:
        """Return the configuration with these values; None: it is not in this space."""
        try:
            choice = tuple(
                axis.values.index(_plain(values[axis.name])) if axis.name in values else 0
                for axis in self.axes
            )
        except ValueError:
            return None
        named = {axis.name for axis in self.axes}
        return choice if set(values) <= named and choice in self.known else None


def changes_words(changes: Mapping[str, Any]) -> str:
    """Return settings with their values in one short line; without settings `DEFAULT_WORDS`."""
    parts = []
    for name, value in changes.items():
        told = value_words(value)
        parts.append(told if name == MODEL else f"{short(name)} {short_value(told)}")
    return ", ".join(parts) or DEFAULT_WORDS


def reference(start: TrialSpec) -> TrialSpec:
    """Return the baseline of a search: the ORT default, without I/O binding."""
    return with_changes(ort_default(start), {"use_io_binding": None})


def changes_from_default(
    start: TrialSpec, changes: Mapping[str, Any], *, default: TrialSpec | None = None
) -> dict[str, Any]:
    """Return all settings of a configuration that differ from ONNX Runtime's default, for any start.

    They describe a configuration of a search completely, because its ratio is relative to that default.

    Args:
        start: from which the search starts.
        changes: the settings in which the configuration differs from the start.
        default: the measured default; None: `reference`.
    """
    values = {name: _plain(value) for name, value in changes.items()}
    model = values.pop(MODEL, None)
    found = differing(with_changes(start, values) if values else start, default or reference(start))
    return found if model is None else {MODEL: model, **found}


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def search_axes(base: TrialSpec, place: Place) -> list[Axis]:
    """Return an axis for every setting with values to try; the value of `base` comes first.

    A setting with one value is no axis.
    """
    rows = [row for row in SETTINGS if belongs(row.name, base.engine)]
    found = [_axis(base, row.name, row.search_values(row, place)) for row in rows]
    chains = place.providers if belongs("provider_options", base.engine) else ()
    chained = dict.fromkeys(name for chain in chains for name in chain)
    found += [_option_axis(provider, option) for provider in chained for option in searched_options(provider)]
    return [one for one in found if len(one.values) > 1]


def _option_axis(provider: str, option: ProviderOption) -> Axis:
    """The axis of a provider's option; None leaves it at the provider's default."""
    opposite = {"0": "1", "1": "0", "False": "True", "True": "False"}
    values = (opposite[option.default],) if option.kind == "bool" else option.choices
    others = [value for value in values if value != option.default]
    return Axis(name=f"{provider}.{option.name}", values=(None, *others))


def _axis(base: TrialSpec, name: str, values: Sequence[Value | None]) -> Axis:
    return Axis(name=name, values=tuple(dict.fromkeys((effective(base, name), *values))) if values else ())


def axes_from_user(base: TrialSpec, vary: Mapping[str, Sequence[Value | None]]) -> list[Axis]:
    """Return the axes that the user names, and no others; each includes the start's value.

    Raises:
        SpecError: a setting of the measurement, or a value that the setting does not accept.
    """
    found = []
    for name, listed in vary.items():
        values = [_plain(value) for value in listed]  # chains of providers come as lists from a file
        if name != MODEL:
            row = trial_setting(name)
            if row.target == "protocol":
                raise SpecError(
                    f"`{name}` is a setting of the measurement, so it cannot vary.",
                    hint="Give it once, as an option.",
                )
            for value in values:
                with_changes(base, {name: value})
            found.append(_axis(base, name, values))
        else:
            found.append(Axis(name=MODEL, values=tuple(dict.fromkeys((None, *values)))))
    return found


def check_any_varies(axes: Sequence[Axis]) -> None:
    """Refuse a space in which nothing varies.

    Raises:
        SpecError: nothing is left to vary.
    """
    if not any(len(one.values) > 1 for one in axes):
        raise SpecError(
            "Nothing is left to vary: every setting has one value.",
            hint="Give a setting two values, or exclude and fix fewer.",
        )


def space(
    base: TrialSpec,
    axes: Sequence[Axis],
    *,
    models: Mapping[str, ModelRef] | None = None,
    threads: int | None = None,
) -> Space:
    """Return all distinct configurations over `axes`.

    Configurations with more streams × threads than usable CPUs are left out, except the start.

    Args:
        base: the start; settings without an axis keep its values.
        axes: each with at least one value, the start's first.
        models: the values of the axis MODEL.
        threads: usable CPUs, within affinity and quota; None: unknown, so no limit.

    Raises:
        SpecError: more than 200,000 distinct configurations.
    """
    axes = [one for one in axes if len(one.values) > 1]
    parts, left = _split_space(base, axes, threads)
    distinct = _distinct(axes, parts)
    if distinct > MOST_DISTINCT:
        raise SpecError(
            f"A search takes at most {MOST_DISTINCT:,} distinct configurations, but got {distinct:,}.",
            hint="Vary fewer settings, or exclude some values.",
        )
    choices = [
        _choice(len(axes), {**picked, **dict(zip(effect, rest, strict=True))})
        for picked, effect in parts
        for rest in itertools.product(*(range(len(axes[i].values)) for i in effect))
    ]
    choices.sort(key=any)  # the start first; sorting keeps the order of the others
    return Space(
        base=base,
        axes=tuple(axes),
        choices=tuple(choices),
        combinations=math.prod(len(one.values) for one in axes),
        left_out=dict(sorted(left.items(), key=lambda one: -one[1])),
        models=models or {},
    )


def fit_axes(
    base: TrialSpec, axes: Sequence[Axis], *, threads: int | None = None
) -> tuple[list[Axis], tuple[str, ...]]:
    """Return the axes that fit the size limit of a search, and the names of the settings that do not vary.

    Axes of `LEAST_LIKELY` are removed, in that order, until at most 200,000 configurations remain. A space
    that is small enough is unchanged. `threads` as for `space`.
    """
    axes = [one for one in axes if len(one.values) > 1]
    parts, _ = _split_space(base, axes, threads)
    unvaried: list[str] = []
    at = {one.name: i for i, one in enumerate(axes)}
    for name in LEAST_LIKELY:
        if _distinct(axes, parts) <= MOST_DISTINCT:
            break
        if (gone := at.get(name)) is None:
            continue
        unvaried.append(name)
        parts = [(picked, [i for i in free if i != gone]) for picked, free in parts if not picked.get(gone)]
    return [one for one in axes if one.name not in unvaried], tuple(unvaried)


def unvaried_words(names: Sequence[str]) -> list[str]:
    """Return the sentence on settings that do not vary because there are too many; empty: all vary."""
    if not names:
        return []
    return [
        f"The search space is limited to {MOST_DISTINCT:,} distinct configurations, so these settings do not "
        f"vary: {', '.join(map(short, names))}. Choose others to vary."
    ]


Part = tuple[dict[int, int], list[int]]  # indexes on the ruling axes; free axes that then have an effect


def _split_space(
    base: TrialSpec, axes: Sequence[Axis], threads: int | None
) -> tuple[list[Part], dict[str, int]]:
    """Split the space by the axes that the rules read; count what is left out: reason -> combinations."""
    ruling = _axes_read_by_rules(base, axes)
    free = [i for i in range(len(axes)) if i not in ruling]
    left: dict[str, int] = {}
    parts: list[Part] = []
    weight = math.prod(len(axes[i].values) for i in free)
    for indexes in itertools.product(*(range(len(axes[i].values)) for i in ruling)):
        picked = dict(zip(ruling, indexes, strict=True))
        reasons = _reasons(base, axes, picked)
        chosen = [axes[i].name for i, index in picked.items() if index]
        if folded := [name for name in chosen if name in reasons]:
            _count(left, folded[0], reasons, weight)
            continue
        if chosen and (why := _streams_excluded(base, axes, picked, threads)):
            left[why] = left.get(why, 0) + weight
            continue
        in_effect, rest = [], weight
        for i in free:
            if axes[i].name in reasons:
                size = len(axes[i].values)
                _count(left, axes[i].name, reasons, rest - rest // size)
                rest //= size
            else:
                in_effect.append(i)
        parts.append((picked, in_effect))
    return parts, left


def _distinct(axes: Sequence[Axis], parts: Sequence[Part]) -> int:
    return sum(math.prod(len(axes[i].values) for i in free) for _, free in parts)


def _choice(size: int, picked: Mapping[int, int]) -> Choice:
    return tuple(picked.get(i, 0) for i in range(size))


def _count(left: dict[str, int], name: str, reasons: Mapping[str, str], number: int) -> None:
    if number:
        text = f"`{name}` has no effect: {reasons[name]}"
        left[text] = left.get(text, 0) + number


def _reasons(base: TrialSpec, axes: Sequence[Axis], picked: Mapping[int, int]) -> dict[str, str]:
    values = {axes[i].name: axes[i].values[index] for i, index in picked.items()}
    reasons = without_effect_where(lambda name: _effective_value(base, values, name))
    for name in (one.name for one in axes if is_provider_option(one.name)):
        provider, _, option = name.partition(".")
        if provider not in _effective_value(base, values, "providers"):
            reasons[name] = f"{provider} is not among the chosen providers"
        elif option in NEEDS_BINDING and not _effective_value(base, values, "use_io_binding"):
            reasons[name] = "a CUDA graph needs I/O binding"
    return reasons


def _streams_excluded(
    base: TrialSpec, axes: Sequence[Axis], picked: Mapping[int, int], threads: int | None
) -> str:
    """Return why a combination cannot have its streams; empty: it can.

    Without a number of threads, ONNX Runtime's own choice shares the CPUs among all streams.
    """
    values = {axes[i].name: axes[i].values[index] for i, index in picked.items()}
    streams = _effective_value(base, values, STREAMS)
    if streams == 1:
        return ""
    if threads is not None and streams * max(1, _effective_value(base, values, THREADS)) > threads:
        return f"`{STREAMS}` × `{THREADS}` exceed the {threads} usable CPU{'s' * (threads != 1)}"
    of_processes = _effective_value(base, values, STREAM_TYPE) == "processes"
    if of_processes and _effective_value(base, values, "providers") != (CPU_PROVIDER,):
        return f"streams of the type `processes` run on {CPU_PROVIDER} only"
    return ""


def _effective_value(base: TrialSpec, values: Mapping[str, Any], name: str) -> Any:
    return values[name] if name in values and values[name] is not None else effective(base, name)


def _axes_read_by_rules(base: TrialSpec, axes: Sequence[Axis]) -> list[int]:
    """The axes that the rules read, found by evaluating the rules."""
    ruling: list[int] = []
    while True:
        seen: set[str] = set()
        for picked in itertools.product(*(range(len(axes[i].values)) for i in ruling)):
            values = {axes[i].name: axes[i].values[index] for i, index in zip(ruling, picked, strict=True)}
            without_effect_where(partial(_record_read, base, values, seen))
        if any(is_provider_option(axis.name) for axis in axes):
            seen |= {"providers", "use_io_binding"}
        if effective(base, STREAMS) != 1 or any(axis.name == STREAMS for axis in axes):
            seen |= {STREAMS, STREAM_TYPE, THREADS, "providers"}
        found = [i for i, axis in enumerate(axes) if axis.name in seen or i in ruling]
        if found == ruling:
            return ruling
        ruling = found


def _record_read(base: TrialSpec, values: Mapping[str, Any], seen: set[str], name: str) -> Any:
    seen.add(name)
    return _effective_value(base, values, name)


# --- values that the user excludes --------------------------------------------------------------------------


def without(axes: Sequence[Axis], forbidden: Sequence[str]) -> list[Axis]:
    """Return the axes without some settings or single values.

    Args:
        axes: with the values to try.
        forbidden: names of settings (they keep the start's value), `NAME=VALUE`, or a value alone such as
            `ORT_PARALLEL`, `FP16` or the name of a variant.

    Raises:
        SpecError: nothing of that name varies.
    """
    left = list(axes)
    for text in forbidden:
        name, equals, value = text.partition("=")
        before = sum(len(one.values) for one in left)
        names = {one.name for one in axes}
        if not equals and name in names:
            left = [one for one in left if one.name != name]
        else:
            left = [
                _without_value(one, value if equals else name) if not equals or one.name == name else one
                for one in left
            ]
        if sum(len(one.values) for one in left) == before:
            shown = [*names, *(str(v) for one in axes for v in one.values if isinstance(v, str))]
            raise SpecError(
                f"`{text[:80]}` does not vary here.{nearest(text, shown)}",
                hint=f"Leave it out, or use one of {', '.join(sorted(names))}.",
            )
    return [one for one in left if len(one.values) > 1]


def _without_value(axis: Axis, text: str) -> Axis:
    """The axis without a value; the start's value stays, because all others are compared with it."""
    gone = [value for value in axis.values[1:] if text.lower() in _spellings(value)]
    return Axis(name=axis.name, values=tuple(value for value in axis.values if value not in gone))


def _spellings(value: Value | None) -> set[str]:
    """Texts that name a value, in lower case; a provider names every chain with it."""
    if isinstance(value, bool):
        return {text for text, on in ON_OFF.items() if on is value}
    one_text = value_words(value).lower()
    if isinstance(value, tuple):
        names = {one.lower() for one in value}
        return {one_text, *names, *(one.removesuffix("executionprovider") for one in names)}
    return {one_text, str(value).lower()}
