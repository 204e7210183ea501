"""Settings of a spec in words, as the dashboard writes them: what is asked for, what sets two apart. Pure."""

from __future__ import annotations

from core.evidence.measurement import Trial, model_words
from core.show import format
from core.spec import TrialSpec, asked, changed, effective, spec_from_dict
from core.spec.knobs import KNOBS, Knob, Value
from core.wire.engines import ENGINES

_OF_THE_RACE = ("protocol.precision", "budget_s", "margin", "runs", "timeout_s")  # alike for all who race


def summary(spec: TrialSpec) -> list[str]:
    """Return `name value` for everything `spec` asks for beyond the defaults, in the table's order."""
    lines = []
    for name in changed(spec):
        if name == "provider_options":
            options = {k: v for p in spec.session.providers for k, v in p.options.items()}
            lines.append(f"{name} {format.value(options)}")
        else:
            lines.append(f"{name} {format.value(asked(spec, name))}")
    return lines


def asked_for(trial: Trial) -> list[str]:
    """Return what sets a trial apart: what its model is where it is no FP32 original, then `summary`.

    Raises:
        SpecError: the stored spec is not one this version understands.
    """
    told = model_words(trial.result)
    return [*([told] if told else []), *summary(spec_from_dict(trial.spec))]


def differences(spec: TrialSpec, other: TrialSpec) -> list[tuple[str, str]]:
    """Return target and `name value` for every setting of `spec` that differs in `other`, in table order."""
    found: list[tuple[str, str]] = [
        (k.target, f"{short_name(k)} {text(k.name, own)}")
        for k in KNOBS
        if k.name not in _OF_THE_RACE and (own := effective(spec, k.name)) != effective(other, k.name)
    ]
    own_options, other_options = _options(spec), _options(other)
    return found + [
        ("session", f"{name} {own_options.get(name, 'default')}")
        for name in dict.fromkeys([*own_options, *other_options])
        if own_options.get(name) != other_options.get(name)
    ]


def short_name(setting: Knob) -> str:
    """Return the name of a setting without what the whole table has in common."""
    return setting.field.removeprefix("session.")


def text(name: str, value: Value | None) -> str:
    """Return the value of a setting as people write it."""
    if name == "engine":
        return ENGINES[str(value)].label
    return "default" if value is None else format.value(value)


def _options(spec: TrialSpec) -> dict[str, str]:
    return {
        f"{format.provider(provider.name)}.{name}": value
        for provider in spec.session.providers
        for name, value in provider.options.items()
    }
