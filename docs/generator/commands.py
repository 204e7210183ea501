"""Pages of commands and exit codes, from the command tree."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from core.cli import RENAMED, output
from core.cli.help_groups import ADVANCED, ALL, OPTIONS, OUTPUT
from core.spec.settings import SETTINGS
from docs.generator import tree
from docs.generator.markdown import code, fence, link, page, prose, table
from docs.generator.tree import PROGRAM, Node

_EXITS = re.compile(r"^Exit codes: ")


def commands() -> str:
    """Return the page of all commands."""
    return page(
        "# Commands",
        f"`{PROGRAM}` and `python -m core` are the same program. Every command has `-h`; `{ALL}` also "
        "explains advanced options. Results go to stdout, progress and errors to stderr. `--json` prints one "
        "[JSON document](json.md) and nothing else.",
        table(["Command", "Purpose"], ([_linked(one), _paragraphs(one)[0]] for one in tree.nodes())),
        "Options of the program itself:",
        table(["Option", "Meaning"], _records(tree.root().params, Node("", tree.root()))),
        *map(_command, tree.nodes()),
        "## Former names",
        "These names of earlier versions still work, with a note on stderr.",
        table(["Former name", "Name"], ([code(old), code(new)] for old, new in RENAMED.items())),
    )


def _title(node: Node) -> str:
    return f"{PROGRAM} {node.name}"


def _linked(node: Node) -> str:
    return link(code(node.name), _title(node))


def _command(node: Node) -> str:
    mark = "###" if " " in node.name else "##"
    first, *more = _paragraphs(node)
    usage = _usage(node)
    return page(
        f"{mark} {_title(node)}",
        prose(first),
        fence(f"{_title(node)} {usage}"),
        *map(prose, more),
        _sub_commands(node),
        *_parameters(node, mark + "#"),
        _exits_of(node),
    )


def _usage(node: Node) -> str:
    """The synopsis: optional arguments in brackets, required ones without."""
    plain = re.sub(
        r"\{([^{}]+?)(?:\.{3})?\}", r"\1", " ".join(node.command.collect_usage_pieces(node.context))
    )
    return plain.strip()


def _paragraphs(node: Node) -> list[str]:
    """The help of a command without its exit codes, a line for each paragraph."""
    text = (node.command.help or "").replace("\f", "")
    found = [" ".join(one.split()) for one in text.split("\n\n")]
    return [one for one in found if one and not _EXITS.match(one)] or [""]


def _sub_commands(node: Node) -> str:
    found = [one for one in tree.nodes() if one.name.startswith(f"{node.name} ")]
    if not found:
        return ""
    return table(["Command", "Purpose"], ([_linked(one), _paragraphs(one)[0]] for one in found))


def _parameters(node: Node, mark: str) -> Iterator[str]:
    """Tables of arguments and options in their groups; options that are settings are linked."""
    groups: dict[str, list[Any]] = {}
    settings: dict[str, list[Any]] = {}
    for one in node.parameters:
        if one.param_type_name == "argument":
            groups.setdefault("Arguments", []).append(one)
        elif _is_setting(one):
            settings.setdefault((one.rich_help_panel or OPTIONS).removesuffix(ADVANCED), []).append(one)
        else:
            groups.setdefault(getattr(one, "rich_help_panel", None) or OPTIONS, []).append(one)
    for title in sorted(groups, key=lambda one: (one != "Arguments", one == OUTPUT)):
        yield f"**{title}**"
        yield table(["Name", "Meaning", "Default"], _rows(groups[title], node))
    if settings:
        yield "**Settings** (see [Settings](settings.md))"
        yield table(
            ["Group", "Options"],
            ([group, ", ".join(_setting_link(one) for one in found)] for group, found in settings.items()),
        )


_BY_PARAMETER = {one.name.replace(".", "__"): one for one in SETTINGS}


def _is_setting(one: Any) -> bool:
    row = _BY_PARAMETER.get(one.name)
    return row is not None and row.flag in one.opts and (one.help or "").startswith(row.help)


def _setting_link(one: Any) -> str:
    row = _BY_PARAMETER[one.name]
    return link(code(row.flag), row.name, "settings.md")


def _rows(parameters: Sequence[Any], node: Node) -> Iterator[list[str]]:
    for one in parameters:
        name, text = _record(one, node)
        text, required, default = _without_extras(text)
        repeated = " Repeatable." if _repeats(one) and "epeatable" not in text else ""
        yield [code(name), f"{text}{repeated}", "required" if required else default]


def _records(parameters: Sequence[Any], node: Node) -> Iterator[list[str]]:
    for one in parameters:
        name, text = _record(one, node)
        yield [code(name), text]


def _record(one: Any, node: Node) -> tuple[str, str]:
    """How a parameter is written, and what it means."""
    name, text = one.get_help_record(node.context) or (one.name, "")
    plain = re.sub(r" <(?:\w+|list\[\w+\])>$", "", name.replace("<int range>", "N"))
    return re.sub(r" <([^<>]*\|[^<>]*)>$", r" \1", plain), " ".join(text.split())


_EXTRAS = re.compile(r"\s*\[([^\[\]]*(?:default: |required|x[<>]=)[^\[\]]*)\]$")
_STATE_TEXTS = re.compile(r"\s*Default: (.+?)\.$")


def _without_extras(text: str) -> tuple[str, bool, str]:
    """Split `Text  [default: 5; x>=1; required]` into text with range, whether required, and default."""
    found = _EXTRAS.search(text)
    required, default, ranges = False, "", list[str]()
    if found is not None:
        text, parts = text[: found.start()], [part.strip() for part in found[1].split(";")]
        required = "required" in parts
        default = next((p.removeprefix("default: ") for p in parts if p.startswith("default: ")), "")
        ranges = [one for one in parts if "x>=" in one or "x<=" in one]
    if not default and (state_text := _STATE_TEXTS.search(text)) is not None:
        text, default = text[: state_text.start()], state_text[1]
    return " ".join([text, *(f"Range: `{one}`." for one in ranges)]), required, default


def _repeats(one: Any) -> bool:
    return bool(getattr(one, "multiple", False)) or one.nargs == -1


# --- exit codes ---------------------------------------------------------------------------------------------


def exit_codes() -> str:
    """Return the page of exit codes."""
    own = [(node, _exits(node)) for node in tree.nodes()]
    return page(
        "# Exit codes",
        "Every command ends with one of these codes. An error also prints one line and a hint to stderr; "
        "with `--json` it prints a [failure document](json.md).",
        table(["Code", "Meaning"], ([str(number), text] for number, text in GENERAL)),
        "A CI job distinguishes the two meanings of code 1 by the document of `--json`. A limit is exceeded "
        "if `fail_if_slower.broken` is not empty (`compare`, `upgrade`), `state` is `MISSED` (`scorecard`), "
        "`outcome` is `NONE_KEEPS_LIMITS` (`search`), a verdict is `WORSE` (`accuracy`), or `state` is "
        "`FAILED` and `error` is null (`verify`). Otherwise a worker failed.",
        "## Per command",
        "Commands that are not listed use the general codes.",
        table(
            ["Command", "Code", "Meaning"],
            (
                [link(code(node.name), _title(node), "commands.md"), number, text]
                for node, found in own
                for number, text in found
            ),
        ),
    )


GENERAL: Sequence[tuple[int, str]] = (
    (0, "Success."),
    (output.EXIT_FAILED, "A worker crashed, hung or ran out of memory; or a limit that you set is exceeded."),
    (output.EXIT_BAD_INPUT, "Wrong usage, invalid input, a model that cannot be used, or an unusable store."),
    (output.EXIT_UNDECIDED, "Undecided, rejected (grade F), or too little time for a result."),
    (128 + signal.SIGHUP, "Stopped because the terminal closed (SIGHUP)."),
    (output.EXIT_CANCELLED, "Stopped by Ctrl-C (SIGINT)."),
    (128 + signal.SIGPIPE, "The reader of stdout closed the pipe, as `head` does."),
    (128 + signal.SIGTERM, "Stopped by SIGTERM."),
)


def _exits(node: Node) -> list[tuple[str, str]]:
    """Code -> meaning, from the paragraph of the help that begins with `Exit codes:`."""
    for paragraph in (node.command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        if _EXITS.match(text):
            found = [part.strip().rstrip(".").partition(" ") for part in _EXITS.sub("", text).split(" · ")]
            return [(number, text[:1].upper() + text[1:] + ".") for number, _, text in found]
    return []


def _exits_of(node: Node) -> str:
    found = _exits(node)
    if not found:
        return "Exit codes: see [Exit codes](exit-codes.md)." if not node.is_group else ""
    return page("**Exit codes**", table(["Code", "Meaning"], ([number, text] for number, text in found)))
