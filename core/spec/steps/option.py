"""An option of a step, and how a value of one is checked and read from a command line. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.spec.setting_type import Setting
from core.spec.text_values import ON_OFF
from core.wire.errors import SpecError, nearest

MAX_DIMENSION = 2**31 - 1
MAX_TEXT = 10_000  # characters of a text that is written into a model
MAX_NAMES = 100_000  # nodes of a very large model


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Setting):
    """A setting of a step; of every kind but "list" and "mapping", which sessions alone have."""

    def checked(self, value: Any) -> Any:
        """Return `value` as plain data of this option's kind.

        Raises:
            SpecError: another type, out of range, or none of the choices. The caller adds the name.
        """
        return _CHECKS[self.kind](self, value)

    def parse(self, text: str) -> Any:
        """Read a value from a command line: `on`, `32`, `MatMul,Gemm`, `batch=4,length=64`.

        Raises:
            SpecError: the text means no value of this option.
        """
        return self.checked(_PARSERS.get(self.kind, _parse_text)(self, text))


# --- values -----------------------------------------------------------------------------------------------


def _bool(option: Option, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(option, "true or false", value)
    return value


def _int(option: Option, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(option, "a whole number", value)
    _check_range(option, value)
    return value


def _float(option: Option, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise _wrong(option, "a number", value)
    _check_range(option, value)
    return float(value)


def _choice(option: Option, value: Any) -> Any:
    found = next((one for one in option.choices if type(one) is type(value) and one == value), None)
    if found is None:
        choices = [str(one) for one in option.choices]
        raise SpecError(
            f"`{option.name}` must be one of {', '.join(choices)}, but got `{str(value)[:40]}`."
            f"{nearest(str(value), choices)}",
            hint=f"Choose one of them for `{option.name}`.",
        )
    return found


def _names(option: Option, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > MAX_NAMES:
        raise _wrong(option, "a list of names", value)
    if any(not isinstance(one, str) or not one.strip() for one in value):
        raise _wrong(option, "a list of names that are not empty", value)
    return list(dict.fromkeys(value))


def _dims(option: Option, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or any(not isinstance(name, str) or not name for name in value):
        raise _wrong(option, "a mapping of dimensions to sizes", value)
    for name, size in value.items():
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_DIMENSION:
            raise SpecError(
                f"The dimension `{name}` must be a whole number from 0 to {MAX_DIMENSION}, but got "
                f"`{str(size)[:40]}`.",
                hint=f"Give `{name}` a size in that range.",
            )
    return dict(value)


def _text(option: Option, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\0" in value:
        raise _wrong(option, f"a text of at most {MAX_TEXT} characters", value)
    return value


def _check_range(option: Option, value: float) -> None:
    low = -math.inf if option.low is None else option.low
    high = math.inf if option.high is None else option.high
    if not low <= value <= high:
        raise SpecError(
            f"`{option.name}` must lie between {low:g} and {high:g}, but got {value:g}.",
            hint=f"Give `{option.name}` a value in that range.",
        )


def _wrong(option: Option, wanted: str, value: Any) -> SpecError:
    return SpecError(
        f"`{option.name}` must be {wanted}, but got `{str(value)[:40]}`.",
        hint=f"Give `{option.name}` {wanted}.",
    )


_CHECKS = {
    "bool": _bool,
    "int": _int,
    "float": _float,
    "choice": _choice,
    "names": _names,
    "dims": _dims,
    "text": _text,
}


def _parse_bool(option: Option, text: str) -> bool:
    plain = text.strip().lower()
    if plain not in ON_OFF:
        raise _wrong(option, "on or off", text)
    return ON_OFF[plain]


def _parse_number(option: Option, text: str) -> float:
    try:
        return int(text) if option.kind == "int" else float(text)
    except ValueError:
        raise _wrong(option, "a whole number" if option.kind == "int" else "a number", text) from None


def _parse_choice(option: Option, text: str) -> str | int:
    plain = text.strip().lower()
    return next((one for one in option.choices if str(one).lower() == plain), text)


def _parse_names(option: Option, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_dims(option: Option, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.rpartition("=")
        if not equals or not size.strip().isdecimal():
            raise _wrong(option, "NAME=N, several with commas", part)
        found[name.strip()] = int(size)
    return found


def _parse_text(option: Option, text: str) -> str:
    return text


_PARSERS = {
    "bool": _parse_bool,
    "int": _parse_number,
    "float": _parse_number,
    "choice": _parse_choice,
    "names": _parse_names,
    "dims": _parse_dims,
}
