"""Settings of a spec as text: those that differ from the defaults or between two specs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from core.evidence.measurement import Trial, model_text
from core.show import format
from core.spec import TrialSpec, changed, differing, is_provider_option, requested_value, spec_from_dict
from core.spec.settings import TrialSetting, Value, short, short_value, trial_setting, value_words
from core.spec.space import MODEL, changes_words
from core.wire.engines import ENGINES
from core.wire.errors import SpecError
from core.wire.runtime import runtime
from core.wire.units import provider as short_provider

RUNTIME = "runtime"  # name of the setting
OTHER_VERSION = "settings of another version"
_PROTOCOL_NAMES = ("protocol.effort", "budget_s", "margin", "runs", "timeout_s")  # equal within a comparison


def changes_text(trial: Trial) -> str:
    """Return the non-default settings of a trial; empty: none."""
    try:
        changes = changes_of(spec_from_dict(trial.spec))
    except SpecError:
        return OTHER_VERSION
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def changes_of(spec: TrialSpec) -> dict[str, str]:
    """Return the non-default settings of `spec` as text, including provider options."""
    return {name: _change_text(value) for name, value in changed_values(spec).items()}


def _change_text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return "→".join(map(str, value)) if isinstance(value, tuple) else value_words(value)


def changed_values(spec: TrialSpec) -> dict[str, Any]:
    """Return the non-default settings of `spec`; a provider's option has the name `PROVIDER.OPTION`."""
    names = [name for name in changed(spec) if name != "provider_options"]
    options = {
        f"{one.name}.{key}": text for one in spec.session.providers for key, text in one.options.items()
    }
    return {name: requested_value(spec, name) for name in names} | options


def summary(spec: TrialSpec) -> list[str]:
    """Return `name value` for every setting of `spec` that differs from the default, in table order."""
    return [full for _, full in chips(spec)]


def chips(spec: TrialSpec) -> list[tuple[str, str]]:
    """Return `short name value` and the full name with its value, for every non-default setting."""
    found = []
    for name in changed(spec):
        if name == "provider_options":
            options = {k: v for p in spec.session.providers for k, v in p.options.items()}
            found.append((f"{name} {format.value(options)}",) * 2)
        else:
            value = requested_value(spec, name)
            found.append((_chip(name, value), f"{name} {format.value(value)}"))
    return found + _batching_chip(spec)


def _batching_chip(spec: TrialSpec) -> list[tuple[str, str]]:
    """Return the chip of the dynamic batching; empty: there is none."""
    batching = spec.dynamic_batching
    return [] if batching is None else [(f"batching {batching.short}", f"dynamic_batching {batching.words}")]


def chips_of(changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the same for the changes of a configuration of a search."""
    return [(changes_words({name: value}), f"{name} {text(name, value)}") for name, value in changes.items()]


def words(trial: Trial) -> str:
    """Return what distinguishes a trial: its model's type unless an FP32 original, then its chips."""
    try:
        settings = [text for text, _ in chips(spec_from_dict(trial.spec))]
    except SpecError:
        settings = [OTHER_VERSION]
    told = model_text(trial.result).replace("`", "")  # lists show them raw
    return ", ".join([*([told] if told else []), *settings]) or "defaults"


class Difference(NamedTuple):
    """A setting that differs between two specs."""

    target: str  # of the setting
    chip: str  # short name and value
    full: str  # full name and value


def differences(spec: TrialSpec, other: TrialSpec) -> list[Difference]:
    """Return every setting of `spec` that differs in `other`, in table order."""
    found = []
    for name, value in differing(spec, other).items():
        if is_provider_option(name):
            provider, _, option = name.partition(".")
            own = format.value(value)
            found.append(Difference("session", f"{short_provider(provider)}.{option} {own}", f"{name} {own}"))
        elif name not in _PROTOCOL_NAMES:
            row = trial_setting(name)
            short_text = runtime_chip(spec, other) if name == RUNTIME else chip(row, value)
            found.append(Difference(row.target, short_text, f"{name} {text(name, value)}"))
    if spec.dynamic_batching != other.dynamic_batching:
        [(short_text, full)] = _batching_chip(spec) or [("batching off", "dynamic_batching off")]
        found.append(Difference("batching", short_text, full))
    return found


def runtime_chip(spec: TrialSpec, other: TrialSpec) -> str:
    """Return the chip of the runtime of `spec`, with its hash where `other` differs in the hash alone."""
    same_name = runtime(spec.runtime).name == runtime(other.runtime).name
    if same_name and spec.runtime != other.runtime:
        return f"{short(RUNTIME)} {format.value(spec.runtime)}"
    return _chip(RUNTIME, spec.runtime)


def chip(setting: TrialSetting, value: Value | None) -> str:
    """Return the short name of a setting with its value: `threads 2`."""
    if setting.name == RUNTIME:
        return _chip(RUNTIME, value)
    return f"{setting.short} {short_value(text(setting.name, value))}"


def _chip(name: str, value: object) -> str:
    """Return the short name of a setting with its short value; of a runtime without its hash."""
    told = format.value(value)
    if name == RUNTIME:
        told = told.partition(" (")[0]
    return f"{short(name)} {short_value(told)}"


def short_words(changes: Mapping[str, Any]) -> str:
    """Return settings with their values in short form: `threads 1, graph BASIC, arena off`.

    Args:
        changes: name of a setting, of a provider's option or of the axis of variants -> value.
    """
    return ", ".join(text for name, value in changes.items() for text in _short(name, value))


def short_changes(trial: Trial) -> str:
    """Return the non-default settings of a trial in short form."""
    try:
        spec = spec_from_dict(trial.spec)
    except SpecError:
        return OTHER_VERSION
    return short_words(changed_values(spec))


def _short(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        begin = "" if name == "dims" else f"{short(name)} "
        return [f"{begin}{key}={one}" for key, one in value.items()]
    return [format.value(value) if name == MODEL else _chip(name, value)]


def text(name: str, value: Value | None) -> str:
    """Return the value of a setting as readable text."""
    return ENGINES[str(value)].label if name == "engine" else format.value(value)
