"""The JSON Schema of what commands print, made from the types of `documents`.

A key is described by the comment behind it, a document by its docstring: a user of `--json` reads what a
maintainer reads. Keys may be added, so nothing forbids others.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import msgspec

from core import wire
from core.evidence import documents as evidence_documents
from core.show import documents
from core.show.documents import DOCUMENTS
from core.wire.errors import SpecError, nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REF = "#/$defs/{name}"


def schema(command: str = "") -> dict[str, Any]:
    """Return the JSON Schema of the document that `command` prints; without one, of all of them by command.

    Args:
        command: a key of `DOCUMENTS`, for example "bench" or "machine --self-test".

    Raises:
        SpecError: no command of that name prints a document.
    """
    if command and command not in DOCUMENTS:
        raise SpecError(
            f"`{command[:40]}` prints no document.{nearest(command, list(DOCUMENTS))}",
            hint=f"Choose one of {', '.join(f'`{name}`' for name in DOCUMENTS)}.",
        )
    wanted = {command: DOCUMENTS[command]} if command else dict(DOCUMENTS)
    found, parts = msgspec.json.schema_components(wanted.values(), ref_template=_REF)
    described = {name: _described(name, part) for name, part in sorted(parts.items())}
    by_command = dict(zip(wanted, found, strict=True))
    head = {"$schema": DIALECT, "title": f"ORTune: {command} --json" if command else "ORTune: --json"}
    if command:
        return {**head, **by_command[command], "$defs": described}
    return {**head, "anyOf": list(by_command.values()), "commands": by_command, "$defs": described}


def _described(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """A part whose keys carry what the comments behind them say."""
    told = _comments().get(name.rpartition(".")[2], {})
    properties = {
        key: {**one, "description": told[key]} if key in told else one
        for key, one in part.get("properties", {}).items()
    }
    return {**part, "properties": properties} if properties else dict(part)


@cache
def _comments() -> Mapping[str, Mapping[str, str]]:
    """Class -> key -> comment, those of the classes that it extends among them."""
    found: dict[str, dict[str, str]] = {}
    for module in (wire, evidence_documents, documents):
        for name, bases, own in _classes(module):
            inherited = {key: text for base in bases for key, text in found.get(base, {}).items()}
            found[name] = {**inherited, **own}
    result, head = found["TrialResult"], found["TrialHead"]
    return {**found, "TrialDocument": {**result, **head}}


def _classes(module: ModuleType) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Name, bases and commented keys of each class of a module, in the order of their definitions."""
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
