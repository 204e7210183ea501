"""Conversion between widget values and a `TrialSpec`: pure functions of mappings, no Streamlit.

Every setting of `core.spec.settings` has one widget key, `knob.<name>`. A widget value is always plain: a
number, text, a bool, a list of names, or None. Three-state settings are "default", "on" or "off", because
"ONNX Runtime's default" is not the same request as "on".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from core import wire
from core.api.requests import Size
from core.api.settings import INPUTS, spec_data
from core.spec import TrialSpec, WorkloadSpec, requested_value, spec_from_dict
from core.spec.checks import feed_range
from core.spec.load import BatchingSpec, batching_from_dict
from core.spec.settings import (
    ENTRIES,
    PROVIDER_OPTIONS,
    SETTINGS,
    TrialSetting,
    is_whole_number,
    trial_setting,
)
from core.wire.errors import SpecError, range_rule
from core.wire.feeding import STRING

DEFAULT, ON, OFF = "default", "on", "off"
RANDOM, NPZ, IMAGES = "random", "npz", "images"

FEEDS_SOURCE = "knob.feeds"
FEEDS_PATH = "knob.feeds.path"
RUNTIME = "knob.runtime"
BATCHING = "knob.dynamic_batching"  # no setting and no widget: JSON of the loaded configuration's batching

LIBRARIES = ("custom_op_libraries", "provider_libraries")
OPTIONS = ("option.", "options.")  # prefixes of the widget keys of provider options
SIZES = ("dim.", "value.")  # and of sizes and fixed values of inputs
_SPECIAL = ("providers", "dims", "feeds", "feed_values")  # several widgets, or a list of its own
_OF_RUNTIME = ("attribute", *ENTRIES, "openvino")  # targets for which a runtime has a default


def key(name: str) -> str:
    """Return the widget key of setting `name`."""
    return f"knob.{name}"


def option_key(provider: str, option: str) -> str:
    """Return the widget key of one provider option."""
    return f"option.{provider}.{option}"


def free_options_key(provider: str) -> str:
    """Return the widget key of the options of a provider without a table, one `name=value` per line."""
    return f"options.{provider}"


def dim_key(dim: str) -> str:
    """Return the widget key of the size of a free dimension."""
    return f"dim.{dim}"


def value_key(input_name: str) -> str:
    """Return the widget key of the fixed value of an input."""
    return f"value.{input_name}"


def is_tristate(setting: TrialSetting) -> bool:
    """Whether a runtime chooses the default of a switch."""
    return setting.kind == "bool" and setting.target in _OF_RUNTIME


def _is_list_of_names(setting: TrialSetting) -> bool:
    return setting.kind == "list" and setting.target == "session"


def defaults() -> dict[str, Any]:
    """Return the widget values that set nothing, by widget key."""
    return {key(k.name): _default(k) for k in SETTINGS if k.name not in _SPECIAL} | {
        key("providers"): [],
        FEEDS_SOURCE: RANDOM,
        FEEDS_PATH: "",
        BATCHING: "",
    }


def _default(setting: TrialSetting) -> Any:
    if is_tristate(setting):
        return DEFAULT
    if setting.kind == "bool":
        return bool(setting.default)
    if _is_list_of_names(setting):
        return []
    if setting.target in _OF_RUNTIME:
        return "" if setting.kind in ("choice", "text", "mapping") else None  # empty: the runtime's default
    if setting.kind == "text":
        return setting.default or ""
    return setting.default if setting.kind in ("int", "float", "choice") else ""


def dim_values(sizes: Mapping[str, Size]) -> dict[str, int]:
    """Return the widget values of proposed sizes, by widget key."""
    return {dim_key(dim): one.size for dim, one in sizes.items()}


def as_proposed(values: Mapping[str, Any], sizes: Mapping[str, Size]) -> dict[str, Size]:
    """Return the free dimensions that still have their proposed size, with that size."""
    return {dim: one for dim, one in sizes.items() if values.get(dim_key(dim), one.size) == one.size}


def in_range(name: str, value: float, low: float, high: float) -> None:
    """Refuse a number of a page that no table of settings covers.

    Fields have no bounds of their own: the browser would show a number
    outside of them, but send the previous one.

    Raises:
        SpecError: it is out of range.
    """
    if not low <= value <= high:
        raise SpecError(
            f"{range_rule(name[:1].upper() + name[1:], low, high)}; got {value:,g}.",
            hint="Choose a number in that range.",
        )


def other_dims(info: wire.ModelInfo) -> list[str]:
    """Return the free dimensions except the one that the batch size sets."""
    return [dim for dim in info["free_dims"] if dim != info["batch_dim"]]


# --- widgets -> spec --------------------------------------------------------------------------------------


def spec_from_values(
    values: Mapping[str, Any], *, path: str, sha256: str | None, info: wire.ModelInfo | None
) -> TrialSpec:
    """Return the spec that the widgets describe.

    Raises:
        SpecError: an invalid value, or text that cannot be read.
    """
    have = {**defaults(), **values}
    providers = [{"name": name, "options": _options(name, have)} for name in have[key("providers")] or []]
    config: dict[str, Any] = {
        "model": {"path": path, "sha256": sha256},
        "session": {"providers": providers},
        "workload": _inputs(have, info),
    }
    if (batching := batching_of(have)) is not None:
        config["dynamic_batching"] = batching.model_dump(mode="json", exclude_defaults=True)
    return spec_from_dict(spec_data(config, None, _given(SETTINGS, have, info)))


def workload_from_values(values: Mapping[str, Any], info: wire.ModelInfo) -> WorkloadSpec:
    """Return the inputs that the widgets describe: batch, dimensions, and the source of the values.

    Raises:
        SpecError: see `spec_from_values`.
    """
    have = {**defaults(), **values}
    given = _given(map(trial_setting, INPUTS), have, info)
    return spec_from_dict(spec_data({"workload": _inputs(have, info)}, "model", given)).workload


def _given(
    settings: Iterable[TrialSetting], have: Mapping[str, Any], info: wire.ModelInfo | None
) -> dict[str, Any]:
    """Return the settings that are set by one widget each, by name, for `spec_data`."""
    own = [one for one in settings if one.name not in _SPECIAL]
    if info is not None and info["batch_dim"] is None:
        own = [one for one in own if one.name != "batch_size"]  # the model's batch is fixed
    values = {one.name: _value(one, have[key(one.name)]) for one in own}
    given = {name: value for name, value in values.items() if value is not None}
    for target, entries in ENTRIES.items():
        for name in given.get(entries, {}):
            if name in given and trial_setting(name).target == target:
                raise SpecError(
                    f"`{name}` is set by its own control and again as a config entry.",
                    hint="Remove it from the free config entries.",
                )
    return given


def _value(setting: TrialSetting, value: Any) -> Any:
    """Return the value that a widget gives a setting; None: it sets nothing."""
    if is_tristate(setting):
        return {ON: True, OFF: False}.get(value)
    if setting.name == "free_dimension_overrides":
        return _overrides(value or "")
    if setting.kind == "mapping":
        return parse_lines(value or "")
    if setting.name in ("image_mean", "image_std"):
        return numbers(setting.name, value)
    value = value.strip() if isinstance(value, str) else value
    if value is None and setting.kind in ("int", "float") and _default(setting) is not None:
        raise SpecError(f"`{setting.name}` is empty.", hint=f"Give a number, for example {setting.default}.")
    return None if value == "" else value


def _overrides(text: str) -> dict[str, int]:
    found = parse_lines(text)
    if wrong := next((one for one in found.items() if not is_whole_number(one[1])), None):
        raise SpecError(
            f"The override of `{wrong[0]}` must be a whole number, but got `{wrong[1][:40]}`.",
            hint="Write for example `batch=8`, one dimension per line.",
        )
    return {name: int(size) for name, size in found.items()}


def parse_lines(text: str) -> dict[str, str]:
    """Read one `key=value` per line; empty lines and lines that start with # are skipped.

    Raises:
        SpecError: a line without `=`, or a key given twice.
    """
    entries: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise SpecError(
                f"Line {number} must be `key=value`, but got `{line[:60]}`.", hint="Write one entry per line."
            )
        if name.strip() in entries:
            raise SpecError(f"`{name.strip()}` is given twice.", hint=f"Remove line {number}.")
        entries[name.strip()] = value.strip()
    return entries


def _options(provider: str, have: Mapping[str, Any]) -> dict[str, str]:
    if provider not in PROVIDER_OPTIONS:
        return parse_lines(have.get(free_options_key(provider)) or "")
    options: dict[str, str] = {}
    for option in PROVIDER_OPTIONS[provider]:
        text = str(have.get(option_key(provider, option.name)) or "").strip()
        if text and text != DEFAULT:
            options[option.name] = {ON: "1", OFF: "0"}.get(text, text) if option.kind == "bool" else text
    return options


def _inputs(have: Mapping[str, Any], info: wire.ModelInfo | None) -> dict[str, Any]:
    return {"dims": _dims(have, info), "feeds": _feeds(have), "feed_values": _feed_values(have, info)}


def batching_of(have: Mapping[str, Any]) -> BatchingSpec | None:
    """Return the dynamic batching that a session keeps; None: it keeps none.

    Raises:
        SpecError: it cannot be read, or is out of range.
    """
    text = str(have.get(BATCHING) or "")
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SpecError(f"`{text[:60]}` is no dynamic batching.", hint="Remove it on the Tune page.")
    return batching_from_dict(found)


def _feeds(have: Mapping[str, Any]) -> str:
    source = have[FEEDS_SOURCE] or RANDOM  # a source that came to this page without a path
    if source == RANDOM:
        return RANDOM
    path = str(have[FEEDS_PATH] or "").strip()
    what = "an `.npz` file" if source == NPZ else "an image or a folder of images"
    if not path:
        raise SpecError(
            f"The inputs come from {what}, but none is named.", hint="Give its path or upload it."
        )
    if (source == NPZ) != path.lower().endswith(".npz"):
        raise SpecError(f"The inputs come from {what}, but got `{path}`.", hint="Choose the matching source.")
    return path


def _dims(have: Mapping[str, Any], info: wire.ModelInfo | None) -> dict[str, int]:
    if info is None:
        return {}
    found = {name: have.get(dim_key(name)) for name in other_dims(info)}
    return {name: int(size) for name, size in found.items() if size is not None}


def _feed_values(have: Mapping[str, Any], info: wire.ModelInfo | None) -> dict[str, Any]:
    dtypes = {one["name"]: one["dtype"] for one in info["inputs"]} if info is not None else {}
    texts = {name: str(have.get(value_key(name)) or "").strip() for name in dtypes}
    return {
        name: parse_text(text) if dtypes[name] == STRING else parse_value(name, text)
        for name, text in texts.items()
        if text
    }


def parse_text(text: str) -> str | list[Any]:
    """Read the value of a string input: one text, one per line, or a JSON list of texts."""
    if text[0] in '["':
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, str | list):
            return found
    lines = [line.strip() for line in text.splitlines()]
    return lines if len(lines) > 1 else text


def parse_value(name: str, text: str) -> Any:
    """Read the value of an input: a number, true, false, a (nested) list of them, or a range to draw from.

    Raises:
        SpecError: the text is none of these.
    """
    if feed_range(name, text) is not None:
        return text.strip()
    try:
        value = json.loads(text.strip().lower())
    except (ValueError, RecursionError):
        value = None
    if value is None or not _is_numeric(value):
        raise SpecError(
            f"The value of `{name}` must be a number, true, false, a list or a range, but got `{text[:40]}`.",
            hint="Write for example 16000, [1, 2, 3] or random:0..30521.",
        )
    return value


def _is_numeric(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_numeric(one) for one in value)
    return isinstance(value, bool | int | float)


def numbers(name: str, text: object) -> list[float]:
    """Read numbers separated by commas or spaces, if any; raises `SpecError` where one is no number."""
    try:
        return [float(word) for word in str(text or "").replace(",", " ").split()]
    except ValueError:
        raise SpecError(
            f"`{name}` must be numbers, but got `{str(text)[:40]}`.", hint="Write for example 0.5, 0.5, 0.5."
        ) from None


# --- spec -> widgets --------------------------------------------------------------------------------------


def values_from_spec(spec: TrialSpec) -> dict[str, Any]:
    """Return the widget values that describe `spec`, without its model: the inverse of `spec_from_values`."""
    values = defaults()
    for setting in SETTINGS:
        if setting.name not in _SPECIAL:
            values[key(setting.name)] = _widget_value(setting, spec)
    values[key("providers")] = [provider.name for provider in spec.session.providers]
    values[BATCHING] = json.dumps(spec.to_dict().get("dynamic_batching")) if spec.dynamic_batching else ""
    for provider in spec.session.providers:
        values |= _option_values(provider.name, provider.options)
    values |= {dim_key(name): size for name, size in spec.workload.dims.items()}
    values |= {
        value_key(name): value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
        for name, value in spec.workload.feed_values.items()
    }
    return values | _feed_source(spec.workload.feeds)


def _is_plain(value: object) -> bool:
    """Whether a text field returns the text unchanged; any other text is written as JSON."""
    return (
        isinstance(value, str) and value.strip() == value != "" and value[0] not in '["' and "\n" not in value
    )


def _widget_value(setting: TrialSetting, spec: TrialSpec) -> Any:
    value = requested_value(spec, setting.name)
    if setting.target == "openvino" and value == setting.default:  # its defaults stand in the spec
        value = None
    if is_tristate(setting):
        return DEFAULT if value is None else ON if value else OFF
    if value is None:
        return _default(setting)
    if isinstance(value, dict):
        return "\n".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, tuple):
        return list(value) if _is_list_of_names(setting) else ", ".join(map(str, value))
    return value


def _option_values(provider: str, options: Mapping[str, str]) -> dict[str, Any]:
    if provider not in PROVIDER_OPTIONS:
        return {free_options_key(provider): "\n".join(f"{name}={text}" for name, text in options.items())}
    kinds = {option.name: option.kind for option in PROVIDER_OPTIONS[provider]}
    values: dict[str, Any] = {
        option_key(provider, name): DEFAULT if kind in ("bool", "choice") else ""
        for name, kind in kinds.items()
    }
    for name, text in options.items():
        on = text.strip().lower() in ("1", "true")
        values[option_key(provider, name)] = (ON if on else OFF) if kinds.get(name) == "bool" else text
    return values


def _feed_source(feeds: str) -> dict[str, Any]:
    if feeds == RANDOM:
        return {FEEDS_SOURCE: RANDOM, FEEDS_PATH: ""}
    return {FEEDS_SOURCE: NPZ if feeds.lower().endswith(".npz") else IMAGES, FEEDS_PATH: feeds}


def stale_keys(values: Iterable[str], spec: TrialSpec) -> list[str]:
    """Return the keys of options, sizes and fixed values to delete because `spec` does not set them."""
    wanted = values_from_spec(spec)
    return [name for name in values if name.startswith((*OPTIONS, *SIZES)) and name not in wanted]
