"""The vocabulary of what a person reads: labels, help, errors, reports. Private words do not occur in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a person meets as text. What a worker says reaches people through errors, so it is among them. Comments
# behind the keys of JSON documents come with `docs/reference/json.md`; `docs/project` holds copies.
ROOMS = ("core", "dashboard")
KINDS = (".py", ".js", ".css", ".html")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*") if path.suffix in KINDS)
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "sample_models").glob("*.md")]
PAGES = sorted(path for path in DOCUMENTS if path.parent.name != "project")
# Documents that name parts of the code, and these names: a timed process, and a row of a table of the code.
OF_CODE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/reference/json.md")
NAMES_OF_CODE = ("contestant", "contestants", "a row")

# A private word, and what is written instead. `race` is the name of a strategy.
PRIVATE = {
    r"\brac(?:e|es|ed|ing)\b(?!:| \|)": "comparison, to compare, to measure",
    r"\bduels?\b": "comparison",
    r"\bcontestants?\b|\bentrants?\b": "configuration",
    r"\bgenerations?\b": "launch",
    r"\banchors?\b": "ORT default",
    r"\bglimpses?\b": "estimate",
    r"\bgo(?:es)? on\b|\bgoing on\b": "measure longer, continue",
    r"\bheats?\b(?! map)": "elimination round",
    r"\btwins?\b": "A/A control, equivalent configuration",
    r"\bburners?\b|\bneighbours?\b": "background load, other processes",
    r"\bknobs?\b": "setting",
    r"\blatency line\b": "latency limit",
    r"\b(?:no|every|some|any)body\b|\bwhoever\b|\bwhatever\b": "name who does what",
    r"\bwhat (?:leaves|is fed|really ran|is tried)\b": "export, inputs, providers used, evaluated",
    r"\bleav(?:es|ing) with\b": "is exported with",
    r"\brows?/s\b|\b(?:a|per) row\b|\brows per second\b": "samples/s, per sample",
    r"\bheld against\b|\bput against\b": "compared with",
    r"\bdoors?\b": "allowed folders, operator switches",
    r"\bsurely\b": "significantly",
    r"\bstands? (?:still|beside|only if)\b": "say what happens",
    r"\b(?:no|every|the) verdicts? stands?\b": "is valid",
    r"\bcannot be told\b(?! apart)": "ORTune cannot determine",
    r"\bworth a (?:look|try)\b": "promising",
    r"\bturned down\b": "rejected",
    r"\bbelieved?\b": "trusted, valid",
    r"\bbrings? along\b": "contains",
    r"\basked (?:for|by)\b": "requested, selected, started by",
}


def python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module that is no docstring and no name of the code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "__all__" in [getattr(one, "id", "") for one in node.targets]:
            silent |= {id(one) for one in ast.walk(node.value)}  # names of the code
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.lineno, node.value


def said(text: str) -> bool:
    """Whether a string is said to a person: it has words between spaces, or is a label with a capital."""
    if re.search(r"\b(?:SELECT|INSERT|UPDATE|CREATE TABLE|json_extract)\b", text):
        return False  # SQL names columns as they were first called
    return " " in text.strip() or bool(re.fullmatch(r"[A-Z][a-z]+", text))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of everything in a file that a person reads."""
    if path.suffix == ".py":
        yield from ((line, text) for line, text in python_texts(path) if said(text))
        return
    whole = path.read_text(encoding="utf-8")
    if path.suffix in (".js", ".css"):
        for found in re.finditer(r"""(["'`])((?:(?!\1)[^\n\\]|\\.)*)\1""", whole):
            if said(found[2]):
                yield whole.count("\n", 0, found.start()) + 1, found[2]
    else:
        yield 1, re.sub(r"<[a-zA-Z/!][^>]*>", blank, whole)


def blank(found: re.Match[str]) -> str:
    """What is left out keeps its lines, so that the others keep their numbers."""
    return re.sub(r"[^\n]", " ", found[0])


def private_words(path: Path) -> list[str]:
    """Each use of a private word in a file, as `file:line: word (write …): text`."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    found = []
    for line, text in texts(path):
        bare = re.sub(r"`[^`]*`", blank, text)  # names of settings, commands and keys stay as they are
        flat = bare.replace("\n", " ")  # a phrase may go over the end of a line
        for word, instead in PRIVATE.items():
            for match in re.finditer(word, flat, re.IGNORECASE):
                if name in OF_CODE and match[0].lower() in NAMES_OF_CODE:
                    continue
                number = line + bare.count("\n", 0, match.start())
                around = " ".join(flat[max(0, match.start() - 40) : match.end() + 40].split())
                found.append(f"{name}:{number}: {match[0]!r} (write: {instead}): {around}")
    return found


# Where a text that a page may show names an option of the command line, and why.
OPTIONS_NAMED = {
    "dashboard/__main__.py": "the command of the server",
    "dashboard/server/gate.py": "the operator starts the server with it",
    "dashboard/views/models/page.py": "the operator starts the server with it",
    **dict.fromkeys(
        (
            *("core/evidence/fleet/selection.py", "core/run/fleet/addresses.py", "core/run/fleet/asking.py"),
            *("core/run/fleet/certificates.py", "core/run/fleet/on_host.py"),
            "dashboard/views/fleet/first_use.py",
        ),
        "machines of a fleet are set up on the command line",
    ),
    "core/run/importing.py": "after the name of the page",
    "core/wire/feeding.py": "after the name of the field",
    "core/wire/runtime.py": "the command that creates a runtime, and the format of lock files",
    "core/wire/variables.py": "the reference of variables",
}
SHOWN_BY_PAGES = ("dashboard", "core/run", "core/spec", "core/evidence", "core/store", "core/wire")


def test_texts_of_pages_name_no_option_of_the_command_line() -> None:
    named: dict[str, list[str]] = {}
    for room in SHOWN_BY_PAGES:
        for path in sorted((ROOT / room).rglob("*.py")):
            for line, text in texts(path):
                if re.search(r"(?<![\w-])--[a-z]", text):
                    named.setdefault(str(path.relative_to(ROOT)), []).append(f"{line}: {text[:90]}")
    assert named.keys() == OPTIONS_NAMED.keys(), named


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_private_word_is_said_to_people(path: Path) -> None:
    found = private_words(path)
    assert not found, "\n".join(["", *found])


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", '"""They race."""\n\nLABEL = "They race\\nagain"\n', 3),
        ("a.js", "let a = 1 // race\nsay(`they race`)\n", 2),
        ("a.html", "<p class='race one'>A test</p>\n<p>They race</p>\n", 2),
        ("a.md", "`race` and\n```sh\nrace\n```\nnobody would go\non\n", 5),
    ],
)
def test_a_private_word_is_found_where_it_stands(tmp_path: Path, name: str, text: str, line: int) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = private_words(tmp_path / name)
    assert found
    assert {one.partition(": ")[0] for one in found} == {f"{name}:{line}"}
