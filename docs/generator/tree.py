"""The command tree of ORTune: every command with its parameters, as the command line itself builds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from core.cli import COMMANDS, app

PROGRAM = "ortune"


@dataclass(frozen=True, slots=True)
class Node:
    """A command with its full name; a group has commands of its own."""

    name: str
    command: Any

    @property
    def is_group(self) -> bool:
        """Whether it only holds other commands."""
        return hasattr(self.command, "commands")

    @property
    def context(self) -> Any:
        """A context in which the command can describe itself."""
        return self.command.context_class(self.command, info_name=f"{PROGRAM} {self.name}")

    @property
    def parameters(self) -> list[Any]:
        """The parameters that help shows, without `--help`."""
        return [one for one in self.command.params if not getattr(one, "hidden", False)]


@cache
def root() -> Any:
    """The command `ortune` itself."""
    return typer.main.get_command(app)


@cache
def nodes() -> tuple[Node, ...]:
    """Every command in the order of the help, sub-commands after their group."""
    return tuple(_nodes())


def _nodes() -> Iterator[Node]:
    for name in COMMANDS:
        node = Node(name, root().get_command(None, name))
        yield node
        if node.is_group:
            for sub in node.command.list_commands(None):
                yield Node(f"{name} {sub}", node.command.get_command(None, sub))


@cache
def options() -> dict[str, str]:
    """Flag -> how the option is written, `--intra-op-num-threads N`; of the first command that has it."""
    found: dict[str, str] = {}
    for node in nodes():
        for one in node.parameters:
            if one.param_type_name == "option":
                for flag in one.opts:
                    found.setdefault(flag, one.get_help_record(node.context)[0])
    return found


def option(flag: str) -> str:
    """Return how an option is written."""
    return options()[flag]
