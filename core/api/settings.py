"""Settings by name to a spec: the rows of the settings table with values as text or as Python values.

The command line and the Python API give the same names. Each value is text, as on the command line (`2m`,
`5%`, `cuda`), or a Python value; the spec validates it. Reads only files of lines for inputs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from core.api import arguments
from core.api.asked_runtimes import one_runtime
from core.api.references import keeps_model, read_text
from core.spec import BESIDE_SECTIONS, WorkloadSpec, spec_from_dict
from core.spec.axes import RUNTIME
from core.spec.checks import feed_range
from core.spec.question import find_setting, nearest_setting, parse_value
from core.spec.settings import ENTRIES, SETTINGS, TrialSetting, Value
from core.spec.settings.provider_options import KNOWN_PROVIDERS
from core.spec.space import MODEL
from core.spec.strict_yaml import MAX_CHARACTERS
from core.spec.text_values import numbers, seconds, share
from core.spec.validation import shown
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
                f"There is no setting `{name[:80]}`.{nearest_setting(name, known)}",
                hint="`docs/reference/settings.md` lists all settings.",
            )
    return given


def inputs_of(settings: Mapping[str, Any]) -> tuple[WorkloadSpec, tuple[str, ...]]:
    """Return the workload of settings of inputs, and the custom operator libraries.

    Raises:
        SpecError: a value is invalid, or a setting does not concern inputs.
    """
    given = given_of(settings)
    libraries = tuple(arguments.texts(OPERATORS, given.pop(OPERATORS, ())))
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
    for name in BESIDE_SECTIONS:
        if name in config:
            data.setdefault(name, config[name])
    return {name: part for name, part in data.items() if part}


_SECTIONS = ("model", "session", "workload", "protocol", "openvino")


def _apply(data: dict[str, Any], setting: TrialSetting, value: Any) -> None:
    if setting.target == "trial":
        data[setting.name] = _typed(setting, value)
        return
    part = data[_SECTION.get(setting.target, setting.target)]
    if setting.name == "providers":
        part["providers"] = _chain(_providers_of(part), value)
    elif setting.name == "feeds":
        _apply_inputs(part, _sources(value))
    elif setting.kind == "mapping":
        before = arguments.mapping(setting.name, part.get(setting.field, {}))
        part[setting.field] = {**before, **_entries(setting, value)}
    elif (entries := ENTRIES.get(setting.target)) is not None:
        typed = _typed(setting, value)
        text = str(int(typed)) if setting.kind == "bool" else str(typed)
        part[entries] = {**arguments.mapping(entries, part.get(entries, {})), setting.name: text}
    else:
        part[setting.field] = _typed(setting, value)


def _sources(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        raise SpecError(
            f"`feeds` takes a path or texts NAME=VALUE, but got {shown(value)}.",
            hint="Save arrays with `numpy.savez` and give the path; give single values as `feed_values`.",
        )
    return [
        arguments.path("feeds", one) if isinstance(one, PurePath) else arguments.text("feeds", one)
        for one in arguments.listed("feeds", value)
    ]


def _entries(setting: TrialSetting, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str | list | tuple):
        return _values(setting, [_pair(setting.name, one) for one in arguments.texts(setting.name, value)])
    found = arguments.mapping(setting.name, value)
    if setting.name not in _OF_DIMENSIONS:
        return found
    return {name: arguments.whole(f"{setting.name}[{name!r}]", size) for name, size in found.items()}


def _typed(setting: TrialSetting, value: Any) -> Any:
    """Return a value as the spec has it: of its type, and read if it is a text; the spec checks its range."""
    name = setting.field
    if name == RUNTIME:
        return one_runtime(value)
    if setting.name == "budget_s":
        return arguments.whole(name, seconds(name, value) if isinstance(value, str) else value)
    if setting.name in ("image_mean", "image_std"):
        return numbers(name, value) if isinstance(value, str) else _numbers(name, value)
    match setting.kind:
        case "bool":
            return arguments.switch(name, value)
        case "int":
            return arguments.whole(name, value)
        case "float":
            return share(name, value) if isinstance(value, str) else arguments.number(name, value)
        case "choice":
            return arguments.choice(*setting.choices)(name, value)
        case "list":
            return arguments.texts(name, value)
        case _:
            return arguments.text(name, value)


def _numbers(name: str, value: Any) -> list[float]:
    return [arguments.number(name, one) for one in arguments.listed(name, value)]


def values_to_try(name: str, values: Any) -> tuple[str, list[Value | None]]:
    """Return a setting's name and the values that vary, which may be texts as on the command line.

    `name` is a setting, a free dimension or `model`; what else it is, the model decides later.

    Raises:
        SpecError: a value that the setting does not take.
    """
    row = None
    with contextlib.suppress(SpecError):  # a dimension, or unknown: checked against the model later
        row = find_setting(name)
    if isinstance(values, str):
        values = [one.strip() for one in values.split(",")]
    elif isinstance(values, bool | int | float):
        values = [values]
    found = [_value_to_try(name, row, one) for one in arguments.listed(name, values)]
    return (name if row is None else row.name), found


def _value_to_try(name: str, row: TrialSetting | None, value: Any) -> Value | None:
    if value is None:
        return None
    if name == MODEL:
        return arguments.text(name, value)
    if row is None:
        return arguments.whole(name, value, low=0)
    if isinstance(value, str):
        return parse_value(row, value)
    if row.name == "providers":
        return tuple(provider_name(one) for one in arguments.texts(name, value))
    if row.kind in ("mapping", "list"):  # the spec refuses what it does not take
        return tuple(value) if isinstance(value, list) else value
    chosen: Value = _typed(row, value)
    return chosen


_OF_DIMENSIONS = ("dims", "free_dimension_overrides")  # a dimension name may contain `=`


def _pair(setting: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=") if setting in _OF_DIMENSIONS else text.partition("=")
    if not equals or not name:
        raise SpecError(
            f"`{setting}` takes NAME=VALUE, but got `{text[:80]}`.", hint="Write both, with a `=`."
        )
    return name, value


def _values(setting: TrialSetting, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name in found:
            raise SpecError(f"`{name}` of `{setting.name}` is given twice.", hint="Give it once.")
        sized = setting.name in _OF_DIMENSIONS
        found[name] = arguments.whole(f"{setting.name} {name}", text) if sized else text
    return found


def provider_name(text: str) -> str:
    """Return ONNX Runtime's name for `text`, which may be short (`cuda`) and in any case."""
    short = text.lower().removesuffix("executionprovider")
    return _SHORT_PROVIDERS.get(short, text)


def _providers_of(session: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the provider chain of a configuration."""
    found = arguments.listed("providers", session.get("providers", []))
    for one in found:
        if not isinstance(one, Mapping) or "name" not in one:
            hint = 'Write for example [{"name": "CPUExecutionProvider"}].'
            arguments.refuse("config['session']['providers']", "a list of dictionaries", one, hint)
        arguments.mapping("options", one.get("options", {}))
    return found


def _chain(before: Sequence[Mapping[str, Any]], value: Any) -> list[dict[str, Any]]:
    """Return a new provider chain of names and (name, options) pairs.

    Providers of the old chain keep their options, which those of a pair extend.
    """
    old = {one["name"]: one.get("options", {}) for one in before}
    given = value.items() if isinstance(value, Mapping) else arguments.listed("providers", value)
    chain = []
    for one in given:
        names, options = one if isinstance(one, tuple | list) and len(one) == 2 else (one, {})
        if not isinstance(names, str):
            arguments.refuse(
                "providers",
                "names of execution providers, or pairs of name and options",
                one,
                'Write for example ["cpu"] or [("CUDAExecutionProvider", {"device_id": 0})].',
            )
        added = arguments.mapping(f"providers[{names!r}]", options)
        for name in map(provider_name, names.split(",")):
            chain.append({"name": name, "options": {**old.get(name, {}), **added}})
    return chain


def _apply_provider_options(session: dict[str, Any], value: Any) -> None:
    texts = arguments.texts("provider_options", value)
    if not texts:
        return
    chain = [{"name": one["name"], "options": {**one.get("options", {})}} for one in _providers_of(session)]
    by_name = {one["name"]: one["options"] for one in chain}
    for text in texts:
        address, value = _pair("provider_options", text)
        short, dot, key = address.partition(".")
        name = provider_name(short)
        if not dot or not key:
            raise SpecError(
                f"`provider_options` takes PROVIDER.KEY=VALUE, but got `{text[:80]}`.",
                hint="Write for example `cuda.use_tf32=0`.",
            )
        if name not in by_name:
            raise SpecError(
                f"`{name}` is not in the provider chain, but `provider_options` sets its `{key}`."
                f"{nearest(name, by_name)}",
                hint=f"Add `{short}` to `providers`.",
            )
        by_name[name][key] = value
    session["providers"] = chain


# --- inputs ------------------------------------------------------------------------------------------------


def _apply_inputs(workload: dict[str, Any], texts: Sequence[str]) -> None:
    """Apply `NAME=VALUE`, a fixed input, or the source of all other inputs."""
    values = dict(workload.get("feed_values", {}))
    sources = [text for text in texts if _is_source(text)]
    if len(sources) > 1:
        raise SpecError(
            f"`feeds` names {len(sources)} sources, `{sources[0]}` and `{sources[1]}`.",
            hint="Give one .npz, image or folder; write fixed values as NAME=VALUE.",
        )
    fixed: set[str] = set()
    for text in texts:
        if text in sources:
            workload["feeds"] = text
            continue
        name, value = _pair("feeds", text)
        if name in fixed:
            raise SpecError(f"The input `{name}` is given twice.", hint="Give each input one value.")
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
        raise SpecError(f"The value of the input `{name}` is too long.", hint="Put it into an .npz.")
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
            f"The input `{name}` takes a number, true, false, a JSON list, a range or text, but got "
            f"`{text[:40]}`.",
            hint="Write a range as `random:0..30521`; give a file without a name, such as `feeds.npz`.",
        ) from None


def _lines(name: str, path: str) -> list[str]:
    """Return the lines of a text file; the configuration stores the lines, not the path."""
    lines = read_text(expand_home(path), what=f"file of lines for the input `{name}`").splitlines()
    if not lines or len(lines) > MAX_INPUT_LINES:
        raise SpecError(
            f"The file of `{name}=@{path[:80]}` must have 1 to {MAX_INPUT_LINES:,} lines, "
            f"but has {len(lines):,}.",
            hint="Give one line for each sample of the batch.",
        )
    return lines


MAX_INPUT_LINES = 10_000  # every file of the configuration contains them
