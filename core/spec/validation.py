"""The strict base class of all specs, and pydantic's errors as one `SpecError`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from core.wire.errors import SpecError, nearest


class Spec(BaseModel):
    """A frozen part of a request."""

    # strict: the text "2" is not the number 2; extra=forbid: a misspelt key is an error, not a default
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


M = TypeVar("M", bound=BaseModel)


def validated(model: type[M], data: Mapping[str, Any]) -> M:
    """Build `model` from plain data.

    Raises:
        SpecError: an unknown key, a wrong type or a value out of range, named by its path.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _spec_error(model, error) from None


def _spec_error(model: type[BaseModel], error: ValidationError) -> SpecError:
    first = error.errors()[0]
    if isinstance(raised := first.get("ctx", {}).get("error"), SpecError):
        return raised
    where = ".".join(str(part)[:80] for part in first["loc"])
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, first["loc"][:-1])
        return SpecError(
            f"Unknown key `{where}`.{nearest(str(first['loc'][-1]), known)}{more}",
            hint=f"Choose among {', '.join(known)}." if known else "Remove the key.",
        )
    if first["type"] == "missing":
        return SpecError(f"`{where}` is missing.{more}", hint=f"Add `{where}`.")
    rule, hint = _RULES.get(first["type"], (first["msg"].replace("Input should be", "must be"), ""))
    got = shown(first["input"])
    return SpecError(
        f"`{where}` {rule}, but got {got}.{more}", hint=hint or f"Give `{where}` a value that fits."
    )


_LIST = ("must be a list", "Write the values in square brackets.")
_MAPPING = ("must be a dictionary", "Write names with their values.")
_RULES: Mapping[str, tuple[str, str]] = {  # pydantic's type of an error -> the rule and how to keep it
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "bool_type": ("must be true or false", "Write `true` or `false`."),
    "int_type": ("must be a whole number", "Write a number without quotes and fraction."),
    "float_type": ("must be a number", "Write a number without quotes."),
    "string_type": ("must be text", "Write text."),
}


def shown(value: object) -> str:
    """Return a value as text of at most 80 characters, of any type."""
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # a number of more digits than Python prints
        return f"a {type(value).__name__} that is too long to show"


def _fields_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        if isinstance(part, int):
            continue  # an index into a list of the model found last
        field = model.model_fields.get(part)
        inner = field.annotation if field else None
        candidates = [inner, *get_args(inner)]
        found = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not found:
            return []
        model = found[0]
    return [field.alias or name for name, field in model.model_fields.items()]
