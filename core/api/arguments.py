"""Arguments of the Python API: a value of the wrong type is refused by its name, before any work starts.

`checked` reads the arguments of a function; `READERS` says how, by name. A reader takes the name and the
value, returns the value in the form that the function uses, and raises `SpecError`. Pure.
"""

from __future__ import annotations

import inspect
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from numbers import Integral, Real
from typing import Any, NoReturn, ParamSpec, TypeVar

from core.api.results import Result
from core.api.session import Session
from core.spec import BESIDE_SECTIONS, SCHEMA
from core.spec.settings import MAX_THREADS
from core.spec.text_values import ON_OFF, share, whole_number
from core.spec.text_values import seconds as seconds_of_text
from core.spec.validation import shown
from core.wire.errors import SpecError, nearest, range_rule, refuse_surrogates

Reader = Callable[[str, Any], Any]
P = ParamSpec("P")
T = TypeVar("T")

_PATH_OF_MODEL: Mapping[str, Callable[[Any], str]] = {  # kind of a result of a model -> path in its record
    "model": lambda record: record.model.path,
    "graph": lambda record: record.model.path,
    "variant": lambda record: record.result.path,
    "conversion": lambda record: record["path"],
}
_SECTIONS = ("model", "session", "workload", "protocol")
_CONFIG_KEYS = (*_SECTIONS, *BESIDE_SECTIONS)


def refuse(name: str, takes: str, value: object, hint: str) -> NoReturn:
    """Raise the error for a value that an argument does not take."""
    raise SpecError(f"`{name}` takes {takes}, but got {_shown(value)}.", hint=hint)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"`{value[:80]}`"
    return shown(value) if value is None else f"{shown(value)} ({type(value).__name__})"


def text(name: str, value: object) -> str:
    """Return a text."""
    return value if isinstance(value, str) else refuse(name, "text", value, "Give a text.")


def texts(name: str, value: object) -> list[str]:
    """Return a list of texts; a single text is a list of one."""
    found = listed(name, value)
    if all(isinstance(one, str) for one in found):
        return found
    refuse(name, "a text or a list of texts", value, 'Write for example ["…", "…"].')


def listed(name: str, value: object) -> list[Any]:
    """Return a list; a text, a path or a mapping is a list of one."""
    if isinstance(value, str | os.PathLike | Mapping):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return list(value)
    refuse(name, "a list", value, "Write the values in square brackets.")


def path(name: str, value: object) -> str:
    """Return the path of a file or folder as text."""
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if isinstance(found, str) and found.strip() and "\0" not in found:
        return found
    refuse(name, "a path", value, "Give a text or a pathlib.Path.")


def mapping(name: str, value: object) -> dict[str, Any]:
    """Return a dictionary whose keys are texts."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    refuse(name, "a dictionary with texts as keys", value, 'Write for example {"batch": 8}.')


def switch(name: str, value: object) -> bool:
    """Return whether a switch is on; texts as on the command line."""
    value = python_value(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | str) and (word := str(value).strip().lower()) in ON_OFF:
        return ON_OFF[word]
    refuse(name, "True or False", value, "Write True, False, `on` or `off`.")


def whole(name: str, value: object, *, low: int | None = None, high: int | None = None) -> int:
    """Return a whole number, which may be written as text."""
    value = python_value(value)
    if isinstance(value, str):
        value = whole_number(name, value)
    if not isinstance(value, Integral) or isinstance(value, bool):
        refuse(name, "a whole number", value, "Write a number without a fraction.")
    return int(_within(name, int(value), low, high))


def number(name: str, value: object, *, low: float | None = None, high: float | None = None) -> float:
    """Return a finite number."""
    value = python_value(value)
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        refuse(name, "a number", value, "Write a number, in the unit that the documentation names.")
    return _within(name, value if isinstance(value, int) else float(value), low, high)


def _positive(name: str, value: object) -> float:
    found = number(name, value)
    if found <= 0:
        raise SpecError(f"`{name}` must be above 0; got {found:g}.", hint="Write seconds, such as 0.005.")
    return found


def part(name: str, value: object, *, high: float | None = None) -> float:
    """Return a share of 0 or more; the text `5%` is 0.05."""
    return number(name, share(name, value) if isinstance(value, str) else value, low=0, high=high)


def duration(name: str, value: object, *, low: float = 0.0) -> float:
    """Return seconds; texts such as `10s` and `2m` are read."""
    return number(name, seconds_of_text(name, value) if isinstance(value, str) else value, low=low)


def budget(name: str, value: object) -> int:
    """Return whole seconds of 1 or more; texts such as `10s` and `2m` are read."""
    return whole(name, seconds_of_text(name, value) if isinstance(value, str) else value, low=1)


def _within(name: str, value: float, low: float | None, high: float | None) -> float:
    if (low is not None and value < low) or (high is not None and value > high):
        raise SpecError(
            f"{range_rule(f'`{name}`', low, high)}; got {value:,}.", hint="Choose a number in that range."
        )
    return value


def choice(*choices: str) -> Reader:
    """Return the reader of one of several texts."""

    def read(name: str, value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        found = nearest(value, choices) if isinstance(value, str) else ""
        raise SpecError(
            f"`{name}` takes {', '.join(choices)}, but got {_shown(value)}.{found}",
            hint="Choose one of them.",
        )

    return read


def python_value(value: Any) -> Any:
    """Return a scalar of numpy as a value of Python; all others are returned as they are."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


# --- references ---------------------------------------------------------------------------------------------


Ref = str | Result[Any]  # the ID of a result, or the result


def ident(name: str, value: object) -> str:
    """Return the ID of a result; that of a `Result` is taken."""
    found = value.id if isinstance(value, Result) else value
    if isinstance(found, str) and found.strip():
        return found
    refuse(name, "the ID of a result", value, "Give an ID that `history` lists, or a result with an ID.")


def comparison(name: str, value: object) -> str:
    """Return the ID of a comparison; of the result of a measurement, that of its comparison."""
    if isinstance(value, Result) and value.kind == "trial":
        value = value.record.comparison
    return ident(name, value)


def model(name: str, value: object) -> Any:
    """Return a model: a path or a name as text, bytes, an `onnx.ModelProto`; a result is its path."""
    if isinstance(value, Result):
        if (path_of := _PATH_OF_MODEL.get(value.kind)) is not None:
            return path_of(value.record)
        hint = "Give its ID as `config`." if value.kind == "trial" else "Give the result of `inspect`."
        raise SpecError(f"`{name}` takes a model, but got the result of a {value.kind}.", hint=hint)
    if isinstance(value, str | os.PathLike):
        return path(name, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if hasattr(value, "SerializeToString"):
        return value
    refuse(
        name,
        "a path, a name, the bytes of an ONNX file or an onnx.ModelProto",
        value,
        "Give for example the path of an .onnx file.",
    )


def models(name: str, value: object) -> Any:
    """Return one model, or a list of models."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
        return model(name, value)
    if not value:
        raise SpecError(f"`{name}` is an empty list.", hint="Name at least one model.")
    return [model(name, one) for one in value]


def config(name: str, value: object) -> Any:
    """Return a configuration: a reference as text, or a dictionary with known keys."""
    if isinstance(value, Result):
        if value.kind == "variant":
            return f"variant:{value.id}"
        return f"model:{model(name, value)}" if value.kind in _PATH_OF_MODEL else ident(name, value)
    if isinstance(value, str | os.PathLike):
        return path(name, value)
    if not isinstance(value, Mapping):
        refuse(
            name,
            "a configuration",
            value,
            "Give a YAML file, the ID of a trial, `preset:NAME`, or a dictionary.",
        )
    return _config_of_mapping(name, mapping(name, value))


def _config_of_mapping(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary of a configuration; what a YAML file may also say is left out."""
    found = {key: one for key, one in value.items() if key not in ("measured", "environment")}
    if "schema" in found:
        schema = found.pop("schema")
        if schema != SCHEMA:
            raise SpecError(f"`{name}` has the schema {shown(schema)}.", hint=f"Write {SCHEMA}.")
    for key, one in found.items():
        if key not in _CONFIG_KEYS:
            raise SpecError(
                f"`{name}` has no key `{key[:40]}`.{nearest(key, _CONFIG_KEYS)}",
                hint=f"Use {', '.join(_CONFIG_KEYS)}.",
            )
        if key in (*_SECTIONS, "openvino", "dataset") and not isinstance(one, Mapping):
            inner = {"model": '{"path": …}', "dataset": '{"path": …}'}.get(key, '{"name": value}')
            refuse(f"{name}[{key!r}]", "a dictionary", one, f'Write "{key}": {inner}.')
    return found


def configs(name: str, value: object) -> list[Any]:
    """Return a list of configurations; a single one is a list of one."""
    if isinstance(value, Result):
        value = [value]
    return [config(name, one) for one in listed(name, value)]


def labelled_data(name: str, value: object) -> Any:
    """Return labelled data: a path, or the dictionary of a dataset."""
    return mapping(name, value) if isinstance(value, Mapping) else path(name, value)


# --- functions ----------------------------------------------------------------------------------------------


def _a(kind: type, what: str) -> Reader:
    def read(name: str, value: object) -> Any:
        return (
            value if isinstance(value, kind) else refuse(name, what, value, f"Give {what}, or leave it out.")
        )

    return read


def _callback(name: str, value: object) -> Any:
    return value if callable(value) else refuse(name, "a function", value, "Give a function of one argument.")


READERS: Mapping[str, Reader] = {  # name of an argument -> how it is read; a function may differ
    "session": _a(Session, "a Session"),
    "cancel": _a(threading.Event, "a threading.Event"),
    "on_progress": _callback,
    "model": model,
    "models": models,
    "config": config,
    "candidates": configs,
    "data": labelled_data,
    "calibration": path,
    "path": path,
    "output": path,
    "record": path,
    **dict.fromkeys(("objective", "preset", "percentile", "name", "accept_breach", "format"), text),
    **dict.fromkeys(("limits", "without", "op_types", "custom_op_libraries"), texts),
    "variants": choice("none", "existing", "make"),
    "external_data": choice("auto", "always", "never"),
    "wanted": choice("profile", "summary"),
    "strategy": text,
    "effort": text,
    **dict.fromkeys(("again", "reuse", "different_models", "optimized", "load", "whole", "measure"), switch),
    **dict.fromkeys(("extend", "give_way", "warm_start", "dry_run", "expert"), switch),
    **dict.fromkeys(("dynamic_batch", "pretrained"), switch),
    **dict.fromkeys(("margin", "fail_if_slower"), part),
    **dict.fromkeys(("delta", "calibration_share"), partial(part, high=1)),
    "wait_quiet_s": duration,
    "budget_s": budget,
    "limit_s": _positive,
    "limit": partial(whole, low=1),
    "threads": partial(whole, low=0, high=MAX_THREADS),
    "opset": partial(whole, low=1),
    "seed": partial(whole, low=0),
    "image_size": partial(whole, low=1),
}


def _check_texts(value: object) -> None:
    if isinstance(value, Mapping):
        _check_texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            _check_texts(one)
    elif isinstance(value, str | os.PathLike):
        refuse_surrogates(os.fsdecode(value))


def checked(**readers: Reader) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that reads the arguments of a function by `READERS`, or by `readers` of its own.

    An argument of None is one that is not given.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        by_name = {**READERS, **readers}

        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # Python's error names the function
            _check_texts(bound.arguments)
            for name, value in bound.arguments.items():
                default = signature.parameters[name].default
                if name not in by_name:
                    continue
                if value is None and default is not inspect.Parameter.empty:
                    bound.arguments[name] = default
                else:
                    bound.arguments[name] = by_name[name](name, value)
            return function(*bound.args, **bound.kwargs)

        return run

    return decorate
