"""The page of JSON documents, from the JSON Schema that `ortune schema` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from core.show.schema import FAILURE, schema
from docs.generator.markdown import bullets, code, codes, fence, link, page, prose, table

Schema = Mapping[str, Any]
_NAMES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "object",
}
_PLURALS = ("text", "whole number", "number", "boolean", "object")


def documents() -> str:
    """Return the page of JSON documents."""
    whole = _whole()
    by_command: Mapping[str, Schema] = whole["commands"]
    printed = list(dict.fromkeys(_name(one) for one in by_command.values()))
    parts = [name for name in whole["$defs"] if name not in printed]
    return page(
        "# JSON documents",
        "With `--json` a command prints one JSON document on stdout and nothing else. "
        "`ortune schema COMMAND` prints its JSON Schema; `ortune schema --all` writes the schemas of all "
        "documents into a folder.",
        fence("ortune tune model.onnx --json\nortune schema tune\nortune schema --all -o schemas", "sh"),
        bullets(
            [
                "Times are in seconds, sizes in bytes, and shares are fractions of 1, unless a key says "
                "otherwise.",
                "A later version may add keys. Ignore keys that you do not know. `format_version` becomes a "
                "new number where a key is renamed, removed or means something else.",
                "Keys and values keep their names where texts use other words: `HOLDS` is shown as "
                "REPRODUCED, `heat` as elimination round.",
                "A key marked *optional* can be absent.",
                f"A command that fails prints {_linked(_name(by_command[FAILURE]))}.",
            ]
        ),
        table(["Command", "Document"], ([code(c), _linked(_name(one))] for c, one in by_command.items())),
        "# Documents",
        *(_section(name, whole["$defs"][name], _commands(name, by_command)) for name in printed),
        "# Parts of documents",
        *(_section(name, whole["$defs"][name], []) for name in parts),
    ).replace("\n# ", "\n## ")


@cache
def _whole() -> dict[str, Any]:
    return schema()


def _name(reference: Schema) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _title(name: str) -> str:
    return name.rpartition(".")[2]


def _linked(name: str) -> str:
    return link(_title(name), _title(name))


def _commands(name: str, by_command: Mapping[str, Schema]) -> list[str]:
    return [command for command, one in by_command.items() if _name(one) == name]


def _section(name: str, part: Schema, commands: list[str]) -> str:
    said = part.get("description", "").partition("\n\n")[0]  # what follows is for maintainers
    return page(
        f"### {_title(name)}",
        prose(said) if said else "",
        f"Printed by {codes(commands)}." if commands and commands != [FAILURE] else "",
        table(["Key", "Type", "Meaning"], _keys(part)) if part.get("properties") else type_text(part),
    )


def _keys(part: Schema) -> Iterator[list[str]]:
    required = set(part.get("required", ()))
    for key, one in part["properties"].items():
        kind = type_text(one) + ("" if key in required else " *(optional)*")
        yield [code(key), kind, _sentence(one.get("description", ""))]


def _sentence(text: str) -> str:
    if not text:
        return ""
    first = text[:1].upper() + text[1:] if text[:2].islower() or text[1:2] == " " else text
    return first if first.endswith((".", "…")) else f"{first}."


def type_text(one: Schema) -> str:
    """Return the type of a key in words, with links to parts."""
    if "$ref" in one:
        return _linked(_name(one))
    if "enum" in one:
        return "one of " + codes(one["enum"])
    if "const" in one:
        return code(one["const"])
    if "anyOf" in one:
        return " or ".join(dict.fromkeys(type_text(each) for each in one["anyOf"]))
    if isinstance(kinds := one.get("type"), list):
        return " or ".join(_NAMES[kind] for kind in kinds)
    return _plain(one)


def _plain(one: Schema) -> str:
    kind = one.get("type")
    if kind == "array":
        if "prefixItems" in one:
            return f"[{', '.join(type_text(each) for each in one['prefixItems'])}]"
        items = one.get("items")
        return f"list of {_plural(type_text(items))}" if isinstance(items, Mapping) and items else "list"
    if kind == "object":
        values = one.get("additionalProperties")
        named = isinstance(values, Mapping) and values
        return f"object of {_plural(type_text(values))}" if named else "object"  # type: ignore[arg-type]
    return _NAMES[kind] if kind else "any value"


def _plural(kind: str) -> str:
    if " or " in kind:
        return f"({kind})"
    return f"{kind}s" if kind in _PLURALS else kind
