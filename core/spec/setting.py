"""What a setting is, and how a value of one is checked and read: of a session, a provider, a step. Pure.

A setting is drawn, read from a command line and told in help by this row alone; what the rows of a table have
beside it stands with that table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.wire.errors import SpecError, nearest

Kind = Literal["bool", "int", "float", "choice", "text", "names", "dims", "list", "mapping"]

MAX_DIMENSION = 2**31 - 1
MAX_TEXT = 10_000  # characters of a text that is written into a model
MAX_NAMES = 100_000  # nodes of a very large model


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. Its values are plain JSON data: "names" a list of texts, "dims" name -> size.

    `default` is what happens when nothing is asked; None: it is decided while measuring.
    """

    name: str
    label: str = ""  # on screens; empty: its name
    kind: Kind
    default: Any
    help: str
    choices: tuple[Any, ...] = ()  # of "choice"; of "names" what is usual, others are allowed too
    low: float | None = None  # of "int" whole numbers
    high: float | None = None
    unit: str = ""
    advanced: bool = False

    def checked(self, value: Any) -> Any:
        """Return `value` as plain data of this setting's kind.

        Raises:
            SpecError: another type, out of range, or none of the choices. The caller says of what.
        """
        return _CHECKS[self.kind](self, value)

    def parse(self, text: str) -> Any:
        """Read it as it is written on a command line: `on`, `32`, `MatMul,Gemm`, `batch=4,length=64`.

        Raises:
            SpecError: the text means no value of this setting.
        """
        return self.checked(_PARSERS.get(self.kind, _as_it_is)(self, text))


# --- values -----------------------------------------------------------------------------------------------


def _bool(setting: Setting, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(setting, "true or false", value)
    return value


def _int(setting: Setting, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(setting, "a whole number", value)
    _check_range(setting, value)
    return value


def _float(setting: Setting, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise _wrong(setting, "a number", value)
    _check_range(setting, value)
    return float(value)


def _choice(setting: Setting, value: Any) -> Any:
    found = next((one for one in setting.choices if type(one) is type(value) and one == value), None)
    if found is None:
        choices = [str(one) for one in setting.choices]
        raise SpecError(
            f"`{setting.name}` is one of {', '.join(choices)}, but got `{str(value)[:40]}`."
            f"{nearest(str(value), choices)}",
            hint=f"Choose one of them for `{setting.name}`.",
        )
    return found


def _names(setting: Setting, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or len(value) > MAX_NAMES:
        raise _wrong(setting, "a list of names", value)
    if any(not isinstance(one, str) or not one.strip() for one in value):
        raise _wrong(setting, "a list of names that are not empty", value)
    return list(dict.fromkeys(value))


def _dims(setting: Setting, value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping) or any(not isinstance(name, str) or not name for name in value):
        raise _wrong(setting, "dimensions with their sizes", value)
    for name, size in value.items():
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_DIMENSION:
            raise SpecError(
                f"The dimension `{name}` must be a whole number from 1 to {MAX_DIMENSION}, but got "
                f"`{str(size)[:40]}`.",
                hint=f"Give `{name}` a size in that range.",
            )
    return dict(value)


def _text(setting: Setting, value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\0" in value:
        raise _wrong(setting, f"a text of at most {MAX_TEXT} characters", value)
    return value


def _check_range(setting: Setting, value: float) -> None:
    low = -math.inf if setting.low is None else setting.low
    high = math.inf if setting.high is None else setting.high
    if not low <= value <= high:
        raise SpecError(
            f"`{setting.name}` lies between {low:g} and {high:g}, but got {value:g}.",
            hint=f"Give `{setting.name}` a value in that range.",
        )


def _wrong(setting: Setting, wanted: str, value: Any) -> SpecError:
    return SpecError(
        f"`{setting.name}` must be {wanted}, but got `{str(value)[:40]}`.", hint=f"Correct `{setting.name}`."
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


def _parse_bool(setting: Setting, text: str) -> bool:
    meant = {"on": True, "true": True, "yes": True, "1": True}
    meant |= {"off": False, "false": False, "no": False, "0": False}
    if text.strip().lower() not in meant:
        raise _wrong(setting, "on or off", text)
    return meant[text.strip().lower()]


def _parse_number(setting: Setting, text: str) -> float:
    try:
        return int(text) if setting.kind == "int" else float(text)
    except ValueError:
        raise _wrong(setting, "a whole number" if setting.kind == "int" else "a number", text) from None


def _parse_choice(setting: Setting, text: str) -> str | int:
    plain = text.strip().lower()
    return next((one for one in setting.choices if str(one).lower() == plain), text)


def _parse_names(setting: Setting, text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_dims(setting: Setting, text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = part.rpartition("=")
        if not equals or not size.strip().isdecimal():
            raise _wrong(setting, "NAME=N, several with commas", part)
        found[name.strip()] = int(size)
    return found


def _as_it_is(setting: Setting, text: str) -> str:
    return text


_PARSERS = {
    "bool": _parse_bool,
    "int": _parse_number,
    "float": _parse_number,
    "choice": _parse_choice,
    "names": _parse_names,
    "dims": _parse_dims,
}
