"""Strict reading of YAML to plain data, with one clear error; writing of YAML.

Stricter than `yaml.safe_load`, because people exchange configurations: a key given twice,
a tag (`!!python/...` above all), an alias (a few lines of them expand to gigabytes) and deep nesting are
refused. Pure: text in, data out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from core.wire.errors import SpecError
from core.wire.plain_data import plain

MAX_CHARACTERS = 250_000  # a configuration is a few thousand; PyYAML reads about 100,000 a second
MAX_DEPTH = 40
MAX_DIGITS = 100  # of a number, in any base; Python refuses to print one of more than 4,300
_SURROGATES = re.compile("[\ud800-\udfff]")

_REFUSED_HINT = "Choose a YAML file that ORTune exported."


class _StrictLoader(yaml.SafeLoader):
    """Checks each node before it is composed, so nothing refused is ever expanded."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise SpecError(
                f"YAML references (`&anchor`, `*alias`) are not accepted, but got one at line {line}.",
                hint="Write the value out.",
            )
        if (tag := getattr(event, "tag", None)) is not None:
            raise SpecError(
                f"Tags are not accepted, but got `{_shown(tag)}` at line {line}.", hint="Remove the tag."
            )
        if isinstance(event, yaml.ScalarEvent):
            _check_text(event.value, line)
        if self.depth >= MAX_DEPTH:
            raise SpecError(f"The YAML is nested deeper than {MAX_DEPTH} levels.", hint=_REFUSED_HINT)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _check_text(text: str, line: int) -> None:
    """Refuse a lone surrogate such as U+D800, which no file, terminal or browser accepts."""
    if found := _SURROGATES.search(text):
        raise SpecError(
            f"The text at line {line} holds U+{ord(found[0]):04X}, which is half of a character.",
            hint="Write the character itself.",
        )


def _number(loader: _StrictLoader, node: yaml.ScalarNode) -> int | float:
    if len(node.value) > MAX_DIGITS:
        raise SpecError(
            f"A number has at most {MAX_DIGITS} characters, but the one at line {node.start_mark.line + 1} "
            f"has {len(node.value)}.",
            hint="Write a smaller number.",
        )
    is_whole = node.tag == "tag:yaml.org,2002:int"
    made: int | float = (loader.construct_yaml_int if is_whole else loader.construct_yaml_float)(node)
    return made


def _shown(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")[:80]


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
            shown = key_node.value[:80] if isinstance(key_node, yaml.ScalarNode) else "a collection"
            raise SpecError(
                f"A key must be text, but `{shown}` at line {line} is not.", hint="Put the key in quotes."
            )
        if key_node.value in data:
            raise SpecError(
                f"The key `{key_node.value[:80]}` is given twice, the second time at line {line}.",
                hint="Remove one of the two.",
            )
        data[key_node.value] = loader.construct_object(value_node, deep=True)
    return data


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
for _tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float"):
    _StrictLoader.add_constructor(_tag, _number)


def load_strict(text: str) -> Any:
    """Read one YAML document.

    Raises:
        SpecError: not YAML, too long, too deep, a duplicate or non-text key, a tag, an anchor or an alias, a
            number that is too long, a lone surrogate.
    """
    if len(text) > MAX_CHARACTERS:
        raise SpecError(
            f"A configuration has at most {MAX_CHARACTERS} characters, but this has {len(text)}.",
            hint=_REFUSED_HINT,
        )
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader with more rules
    except SpecError:
        raise
    except yaml.YAMLError as error:
        raise SpecError(f"Not a YAML configuration: {_one_line(error)}.", hint="Correct the file.") from None
    except (ValueError, OverflowError) as error:  # an invalid date, an infinite number
        raise SpecError(
            f"A value of the YAML cannot be read: {error!s:.200}.", hint="Correct the file."
        ) from None


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}" if mark else ""
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable text"
    return f"{reason:.200}{where}"


class _Dumper(yaml.SafeDumper):
    """Escapes what is not printable: PyYAML reads unusual line breaks as spaces, and others turn the text."""

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        self.allow_unicode = text.isprintable()
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None if value.replace("\n", "").isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump_yaml(data: Mapping[str, Any]) -> str:
    """Write plain data so that `load_strict` gives back equal data; keys keep their order."""
    text: str = yaml.dump(plain(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
