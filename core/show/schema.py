"""Creates the JSON Schema of the commands' output from the types of `output_types`.

The trailing comment of a key becomes its description, the docstring of a class that of a document. Later
versions may add keys, so the schema allows additional ones.
"""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec

from core import FORMAT_VERSION
from core.show.output_types import DOCUMENTS
from core.wire.errors import SpecError, nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FAILURE = "failure"  # key of the error document, common to all commands
_REF = "#/$defs/{name}"


def schema(command: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a command's output, result or error; without `command`, of all commands.

    Args:
        command: a key of `DOCUMENTS`, for example "tune" or "machine --self-test".

    Raises:
        SpecError: no command of that name prints JSON.
    """
    if command and command not in DOCUMENTS:
        raise SpecError(
            f"`{command[:40]}` prints no document.{nearest(command, list(DOCUMENTS))}",
            hint=f"Choose one of {', '.join(f'`{name}`' for name in DOCUMENTS)}.",
        )
    wanted = {one: DOCUMENTS[one] for one in (command, FAILURE)} if command else dict(DOCUMENTS)
    found, parts = msgspec.json.schema_components(wanted.values(), ref_template=_REF)
    by_command = dict(zip(wanted, found, strict=True))
    described = {name: _described(name, part) for name, part in sorted(parts.items())}
    described |= {name: _versioned(described[name]) for name in _printed() if name in described}
    title = f"ORTune: {command} --json" if command else "ORTune: --json"
    head = {"$schema": DIALECT, "title": title, "required": ["format_version"]}
    if command:
        result, error = by_command[command], by_command[FAILURE]
        printed = result if command == FAILURE else {"anyOf": [result, error]}
        return {**head, **printed, "$defs": described}
    return {**head, "anyOf": list(by_command.values()), "commands": by_command, "$defs": described}


def _described(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition with the comments of its keys as descriptions."""
    told = _comments().get(name.rpartition(".")[2], {})
    properties = {
        key: {**one, "description": told[key]} if key in told else one
        for key, one in part.get("properties", {}).items()
    }
    return {**part, "properties": properties} if properties else dict(part)


@cache
def _printed() -> frozenset[str]:
    """Names of the types that are printed as a whole."""
    found, _ = msgspec.json.schema_components(DOCUMENTS.values(), ref_template="{name}")
    return frozenset(one["$ref"] for one in found)


def _versioned(part: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a printed document. The key is required on top only: documents contain each other."""
    version = {
        "const": FORMAT_VERSION,
        "description": "new where a key is renamed, removed or means something else",
    }
    return {**part, "properties": {"format_version": version, **part.get("properties", {})}}


@cache
def _comments() -> Mapping[str, Mapping[str, str]]:
    """Map classes to keys to comments, including those of base classes."""
    own: dict[str, dict[str, str]] = {}
    bases: dict[str, list[str]] = {}
    for module in sorted({one.__module__ for one in _types(*DOCUMENTS.values())}):
        for name, extended, told in commented_classes(sys.modules[module]):
            own[name], bases[name] = told, extended

    def whole(name: str) -> dict[str, str]:
        inherited = {key: text for base in bases.get(name, []) for key, text in whole(base).items()}
        return {**inherited, **own.get(name, {})}

    found = {name: whole(name) for name in own}
    trial = {**found["TrialResult"], **found["TrialHead"]}
    return {**found, "TrialDocument": trial, "SweepPoint": {**trial, **found.get("SweepPointHead", {})}}


def _types(*annotations: Any) -> set[type]:
    """Return the classes of this program in these types, at any depth."""
    found: set[type] = set()
    waiting: list[Any] = list(annotations)
    while waiting:
        one = waiting.pop()
        if isinstance(one, type) and one.__module__.split(".")[0] == "core":
            if one not in found:
                found.add(one)
                waiting += get_type_hints(one).values()
        else:
            waiting += get_args(one)
    return found


def commented_classes(module: ModuleType) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield name, bases and commented keys of each class of a module, in definition order."""
    source = inspect.getsource(module)
    comments = {
        one.start[0]: one.string.lstrip("# ")
        for one in tokenize.generate_tokens(io.StringIO(source).readline)
        if one.type == tokenize.COMMENT and not one.string.startswith("# type:")
    }
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            fields = (one for one in node.body if isinstance(one, ast.AnnAssign))
            own = {
                one.target.id: comments[one.lineno]
                for one in fields
                if isinstance(one.target, ast.Name) and one.lineno in comments
            }
            yield node.name, [ast.unparse(one).rpartition(".")[2] for one in node.bases], own
