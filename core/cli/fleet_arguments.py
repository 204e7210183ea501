"""Checks the command line of a question with the parser of its command, before any host is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from core.cli import app
from core.wire.errors import SpecError

_SEPARATOR = "--"


def split(name: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the first argument of a command (its model or file), and all other words in order.

    Raises:
        SpecError: there is none, or there are several.
        TyperException: the command has no such option, or a value has the wrong type.
    """
    commands: Any = typer.main.get_command(app)
    parent = typer.Context(commands, info_name="ortune")
    command = commands.get_command(parent, name)
    own = [one for one in words if one != _SEPARATOR]
    command.make_context(name, list(own), parent=parent)
    takes_value = _options(command)
    first: list[str] = []
    others: list[str] = []
    left = list(own)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            first.append(word)
            continue
        others.append(word)
        if "=" not in word and takes_value.get(word, False) and left:
            others.append(left.pop(0))
    if len(first) != 1:
        raise SpecError(
            f"`fleet {name}` takes one model or file, but got {len(first)}.",
            hint="Name the model first, and other models as `--candidate MODEL.onnx`.",
        )
    return first[0], others


def _options(command: Any) -> Mapping[str, bool]:
    """Whether each option of a command takes a value."""
    found: dict[str, bool] = {}
    for one in command.params:
        takes = one.param_type_name == "option" and not one.is_flag and not getattr(one, "count", False)
        found |= dict.fromkeys([*one.opts, *one.secondary_opts], takes)
    return found
