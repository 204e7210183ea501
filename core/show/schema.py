"""Creates the JSON Schema of the commands' output from the types of `output_types`.

The trailing comment of a key becomes its description, the docstring of a class that of a document. Later
versions may add keys, so the schema allows additional ones.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from types import ModuleType
from typing import Any, get_args, get_type_hints

import msgspec

from core import FORMAT_VERSION
from core.show.output_types import DOCUMENTS, EXTENDED
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
    found, parts = _components(wanted.values(), _REF)
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


def _components(types: Iterable[Any], reference: str) -> tuple[Any, dict[str, Any]]:
    """Return schemas that refer to definitions, and the definitions; a spec is any object, as in YAML."""
    return msgspec.json.schema_components(
        types, schema_hook=lambda spec: {"type": "object"}, ref_template=reference
    )


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
    found, _ = _components(DOCUMENTS.values(), "{name}")
    return frozenset(one["$ref"] for one in found)


def _versioned(part: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a printed document. The key is required on top only: documents contain each other."""
    version = {
        "const": FORMAT_VERSION,
        "description": "new where a key is renamed, removed or means something else",
    }
    mark = {"const": True, "description": "`--no-sandbox` is set; absent: it is not"}
    head = {"format_version": version, "no_sandbox": mark}
    return {**part, "properties": {**head, **part.get("properties", {})}}


@cache
def _comments() -> Mapping[str, Mapping[str, str]]:
    """Map the names of definitions to keys to comments."""
    objects = (one for one in _types(*DOCUMENTS.values()) if not issubclass(one, Enum))
    return {one.__name__: _commented(one) for one in objects}


def _commented(one: type) -> dict[str, str]:
    """Return the comments of a type's keys, including those of the types that it extends."""
    module = sys.modules[one.__module__]
    bases, own = commented_classes(module).get(one.__name__, ([], {}))
    told: dict[str, str] = {}
    for part in (*EXTENDED.get(one.__name__, ()), *(attrgetter(base)(module) for base in bases)):
        told |= _commented(part) if isinstance(part, type) else {}
    return told | {key: re.sub(r"\bNone\b", "null", text) for key, text in own.items()}


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


@cache
def commented_classes(module: ModuleType) -> Mapping[str, tuple[list[str], dict[str, str]]]:
    """Map the classes of a module to the names of their bases and to their commented keys."""
    source = inspect.getsource(module)
    comments = {
        one.start[0]: one.string.lstrip("# ")
        for one in tokenize.generate_tokens(io.StringIO(source).readline)
        if one.type == tokenize.COMMENT and not one.string.startswith("# type:")
    }
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            keys = (one for one in node.body if isinstance(one, ast.AnnAssign))
            own = {
                one.target.id: comments[one.lineno]
                for one in keys
                if isinstance(one.target, ast.Name) and one.lineno in comments
            }
            found[node.name] = [ast.unparse(one) for one in node.bases], own
    return found
