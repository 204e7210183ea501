"""Documents that commands print, against their JSON Schema: no key lacks, is of a wrong type, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, get_type_hints

import jsonschema

from core.show.output_types import DOCUMENTS, FailureDocument
from core.show.schema import schema


def errors_of(command: str, document: Any) -> list[str]:
    """What is wrong with the document of a command; keys that the schema does not describe are wrong, too."""
    return [
        f"{'/'.join(map(str, one.absolute_path)) or 'document'}: {one.message[:300]}"
        for one in _validator(command).iter_errors(document)
    ]


def document_name(args: Sequence[str], document: Any) -> str:
    """Which document of `DOCUMENTS` a command line prints."""
    name = args[0]
    if set(document) <= set(get_type_hints(FailureDocument)):
        return "failure"
    if name == "show":
        if "upgrade" in document:
            return "show UPGRADE"
        return "show COMPARISON" if "contestants" in document else "show TRIAL"
    if name == "load" and "kind" not in document:
        return "load --streams" if "axes" in document else "load --engine mlperf-loadgen"
    if name in ("fleet", "keys", "variants", "searches", "runtimes"):
        return f"{name} {args[1]}"
    flags = [
        one for one in ("--prune", "--self-test", "--peaks", "--import", "--dry-run", "--list") if one in args
    ]
    return next((one for one in (f"{name} {flag}" for flag in flags) if one in DOCUMENTS), name)


@cache
def _validator(command: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_closed(schema(command)))


def _closed(part: Any) -> Any:
    """The schema, with every key forbidden that it does not name."""
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    closed = {name: _closed(one) for name, one in part.items()}
    is_object = part.get("type") == "object" and "properties" in part
    return {**closed, "additionalProperties": False} if is_object else closed
