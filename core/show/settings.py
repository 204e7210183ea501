"""Settings of a spec in words, as the dashboard writes them: what is asked for, what sets two apart. Pure."""

from __future__ import annotations

from core.evidence.measurement import Trial, model_words
from core.show import format
from core.spec import TrialSpec, asked, changed, differing, is_provider_option, spec_from_dict
from core.spec.knobs import Knob, Value, knob
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
    found = []
    for name, value in differing(spec, other).items():
        if is_provider_option(name):
            provider, _, option = name.partition(".")
            own = "default" if value is None else value
            found.append(("session", f"{format.provider(provider)}.{option} {own}"))
        elif name not in _OF_THE_RACE:
            row = knob(name)
            found.append((row.target, f"{short_name(row)} {text(name, value)}"))
    return found


def short_name(setting: Knob) -> str:
    """Return the name of a setting without what the whole table has in common."""
    return setting.field.removeprefix("session.")


def text(name: str, value: Value | None) -> str:
    """Return the value of a setting as people write it."""
    if name == "engine":
        return ENGINES[str(value)].label
    return "default" if value is None else format.value(value)
