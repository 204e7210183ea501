"""Settings by name to a spec: the rows of the settings table with values as text or as Python values.

The command line and the Python API give the same names. Each value is text, as on the command line (`2m`,
`5%`, `cuda`), or a Python value; the spec validates it. Reads only files of lines for inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from core.api.references import keeps_model, read_text
from core.spec import CRITERIA, WorkloadSpec, spec_from_dict
from core.spec.checks import feed_range
from core.spec.settings import ENTRIES, SETTINGS, TrialSetting
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.spec.strict_yaml import MAX_CHARACTERS
from core.spec.text_values import numbers, seconds, share, whole_number
from core.wire.errors import SpecError, nearest
from core.wire.files import expand_home

# name of a setting (or "provider_options") -> its value; absent: not given
Given = Mapping[str, Any]

EFFORT = "protocol.effort"  # name of the effort setting
OPERATORS = "custom_op_libraries"  # name of the setting of custom operator libraries
INPUTS = ("batch_size", "dims", "feeds", "image_mean", "image_std", "seed")  # settings of what a model reads

_SECTION = dict.fromkeys(("attribute", "session", *ENTRIES), "session")
_SHORT_PROVIDERS = {name.removesuffix("ExecutionProvider").lower(): name for name in KNOWN_PROVIDERS}
_SHORT_PROVIDERS |= {"trt": "TensorrtExecutionProvider", "directml": "DmlExecutionProvider"}


def given_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as settings by name: `effort` for `protocol.effort`; `None` is not given.

    Raises:
        SpecError: there is no such setting.
    """
    given = {EFFORT if name == "effort" else name: one for name, one in settings.items() if one is not None}
    known = {"provider_options", *(setting.name for setting in SETTINGS)}
    for name in given:
        if name not in known:
            raise SpecError(
                f"There is no setting `{name[:80]}`.{nearest(name, known)}",
                hint="Use the names of the settings table.",
            )
    return given


def inputs_of(settings: Mapping[str, Any]) -> tuple[WorkloadSpec, tuple[str, ...]]:
    """Return the workload of settings of inputs, and the custom operator libraries.

    Raises:
        SpecError: a value is invalid, or a setting does not concern inputs.
    """
    given = given_of(settings)
    libraries = tuple(_listed(given.pop(OPERATORS, ())))
    if others := sorted(set(given) - set(INPUTS)):
        raise SpecError(
            f"`{others[0]}` does not concern the inputs.", hint=f"Use {', '.join((*INPUTS, OPERATORS))}."
        )
    return spec_from_dict(spec_data({}, "model", given)).workload, libraries


def spec_data(config: Mapping[str, Any], model: str | None, given: Given) -> dict[str, Any]:
    """Apply settings to a configuration and return plain data for `spec_from_dict`.

    Settings extend mappings (dimensions, config entries, fixed values) and replace everything else. A variant
    keeps its own model, and so does a model that is used as a configuration.

    Raises:
        SpecError: there is no model, or a value is invalid.
    """
    data: dict[str, Any] = {name: dict(config.get(name, {})) for name in _SECTIONS}
    if model is not None and not keeps_model(config):
        data["model"]["path"] = model
    if not data["model"].get("path"):
        raise SpecError("No model is given.", hint="Give the path or the name of a model.")
    for setting in SETTINGS:
        if setting.name in given:
            _apply(data, setting, given[setting.name])
    _apply_provider_options(data["session"], given.get("provider_options", []))
    for name in ("engine", *CRITERIA):
        if name in config:
            data.setdefault(name, config[name])
    return {name: part for name, part in data.items() if part}


_SECTIONS = ("model", "session", "workload", "protocol")


def _apply(data: dict[str, Any], setting: TrialSetting, value: Any) -> None:
    if setting.target == "trial":
        data[setting.name] = value
        return
    part = data[_SECTION.get(setting.target, setting.target)]
    if setting.name == "providers":
        part["providers"] = _chain(part.get("providers", []), _listed(value))
    elif setting.name == "feeds":
        _apply_inputs(part, _listed(value))
    elif setting.kind == "mapping":
        part[setting.name] = {**part.get(setting.name, {}), **_entries(setting, value)}
    elif (entries := ENTRIES.get(setting.target)) is not None:
        text = ("1" if value else "0") if setting.kind == "bool" else str(_typed(setting, value))
        part[entries] = {**part.get(entries, {}), setting.name: text}
    else:
        part[setting.field] = _typed(setting, value)


def _listed(value: Any) -> Sequence[Any]:
    """Return one text, one path or several of them as texts."""
    listed = [value] if isinstance(value, str | PurePath) else value
    return [str(one) if isinstance(one, PurePath) else one for one in listed]


def _entries(setting: TrialSetting, value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return _values(setting, [_pair(setting.flag, one) for one in _listed(value)])


def _typed(setting: TrialSetting, value: Any) -> Any:
    """Return the value of a text; the spec validates every other value."""
    if not isinstance(value, str):
        return value
    if setting.kind == "choice" and value not in setting.choices:
        choices = ", ".join(setting.choices)
        raise SpecError(
            f"`{setting.flag}` accepts {choices}, but got `{value[:40]}`.{nearest(value, setting.choices)}",
            hint="Choose one of them.",
        )
    if setting.name == "budget_s":
        return seconds(setting.flag, value)
    if setting.kind == "float":
        return share(setting.flag, value)
    if setting.kind == "int":
        return whole_number(setting.flag, value)
    if setting.name in ("image_mean", "image_std"):
        return numbers(setting.flag, value)
    return value


_OF_DIMENSIONS = ("--dim", "--free-dimension-override")  # a dimension name may contain `=`


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if flag in _OF_DIMENSIONS else text.partition("=")
    if not equals or not name:
        raise SpecError(f"`{flag}` takes NAME=VALUE, but got `{text[:80]}`.", hint="Write both, with a `=`.")
    return name, value


def _values(setting: TrialSetting, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name in found:
            raise SpecError(f"`{setting.flag} {name}` is given twice.", hint="Give it once.")
        sized = setting.flag in _OF_DIMENSIONS
        found[name] = whole_number(f"{setting.flag} {name}", text) if sized else text
    return found


def provider_name(text: str) -> str:
    """Return ONNX Runtime's name for `text`, which may be short (`cuda`) and in any case."""
    short = text.lower().removesuffix("executionprovider")
    return _SHORT_PROVIDERS.get(short, text)


def _chain(before: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a new provider chain; providers of the old chain keep their options."""
    options = {one["name"]: one.get("options", {}) for one in before}
    return [
        {"name": name, "options": options.get(name, {})}
        for text in names
        for name in [provider_name(part) for part in text.split(",")]
    ]


def _apply_provider_options(session: dict[str, Any], texts: Sequence[str]) -> None:
    chain = [
        {"name": one["name"], "options": {**one.get("options", {})}} for one in session.get("providers", [])
    ]
    by_name = {one["name"]: one["options"] for one in chain}
    for text in texts:
        address, value = _pair("--provider-option", text)
        short, dot, key = address.partition(".")
        name = provider_name(short)
        if not dot or not key:
            raise SpecError(
                f"`--provider-option` takes PROVIDER.KEY=VALUE, but got `{text[:80]}`.",
                hint="Write for example `cuda.use_tf32=0`.",
            )
        if name not in by_name:
            raise SpecError(
                f"`{name}` is not in the provider chain, but `--provider-option` sets its `{key}`."
                f"{nearest(name, by_name)}",
                hint=f"Add `--provider {short}`.",
            )
        by_name[name][key] = value
    if texts:
        session["providers"] = chain


# --- inputs ------------------------------------------------------------------------------------------------


def _apply_inputs(workload: dict[str, Any], texts: Sequence[str]) -> None:
    """Apply `NAME=VALUE`, a fixed input, or the source of all other inputs."""
    values = dict(workload.get("feed_values", {}))
    sources = [text for text in texts if _is_source(text)]
    if len(sources) > 1:
        raise SpecError(
            f"`--feed` names {len(sources)} sources, `{sources[0]}` and `{sources[1]}`.",
            hint="Give one .npz, image or folder; write fixed values as NAME=VALUE.",
        )
    fixed: set[str] = set()
    for text in texts:
        if text in sources:
            workload["feeds"] = text
            continue
        name, value = _pair("--feed", text)
        if name in fixed:
            raise SpecError(f"`--feed {name}` is given twice.", hint="Give each input one value.")
        fixed.add(name)
        values[name] = _input_value(name, value)
    if values:
        workload["feed_values"] = values


def _is_source(text: str) -> bool:
    try:
        return "=" not in text or Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or with a zero byte: a value
        return False


def _input_value(name: str, text: str) -> Any:
    """Read a number, `true` or `false`, nested JSON lists of them, or a range of random values."""
    if len(text) > MAX_CHARACTERS:
        raise SpecError(f"The value of `--feed {name}` is too long.", hint="Put it into an .npz.")
    plain = text.strip()
    if plain in ("True", "False"):
        return plain == "True"
    if plain.startswith("@"):
        return _lines(name, plain[1:])
    if feed_range(name, plain) is not None:
        return plain
    try:
        return json.loads(plain)
    except (ValueError, RecursionError):
        pass
    try:
        return float(plain)  # `.5` and `1.` are not JSON
    except ValueError:
        if plain and plain[0] not in '[{"':
            return text  # the input's type is checked when the model is known
        raise SpecError(
            f"`--feed {name}` takes a number, true, false, a JSON list, a range or text, but got "
            f"`{text[:40]}`.",
            hint="Write a range as `random:0..30521`; give a file without a name: `--feed feeds.npz`.",
        ) from None


def _lines(name: str, path: str) -> list[str]:
    """Return the lines of a text file; the configuration stores the lines, not the path."""
    lines = read_text(expand_home(path), what=f"file of lines for `--feed {name}`").splitlines()
    if not lines or len(lines) > MAX_INPUT_LINES:
        raise SpecError(
            f"`--feed {name}=@{path[:80]}` must have 1 to {MAX_INPUT_LINES:,} lines, but has {len(lines):,}.",
            hint="Give one line for each sample of the batch.",
        )
    return lines


MAX_INPUT_LINES = 10_000  # every file of the configuration contains them
