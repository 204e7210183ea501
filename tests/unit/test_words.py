"""The vocabulary of what a person reads: labels, help, errors, reports. Private words do not occur in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a person meets as text. What a worker says reaches people through errors, so it is among them.
ROOMS = ("core", "dashboard")

# A private word, and what is written instead.
PRIVATE = {
    r"\brac(?:e|es|ed|ing)\b": "comparison, to compare, to measure",
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
    r"\bnobody\b|\beverybody\b|\bwhoever\b|\bsomebody\b|\bwhatever\b": "name who does what",
    r"\bwhat (?:leaves|is fed|really ran|is tried)\b": "export, inputs, providers used, evaluated",
    r"\bleav(?:es|ing) with\b": "is exported with",
    r"\brows?/s\b|\b(?:a|per) row\b|\brows per second\b": "samples/s, per sample",
    r"\bheld against\b|\bput against\b": "compared with",
    r"\bdoors?\b": "allowed folders, operator switches",
    r"\bsurely\b": "significantly",
    r"\bstands? still\b": "say what happens",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
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


def private_words(path: Path) -> list[str]:
    """Each use of a private word in a module, as `file:line: word (write …): text`."""
    found = []
    for line, text in texts(path):
        if not said(text):
            continue
        bare = re.sub(r"`[^`]*`", " ", text)  # names of settings, commands and keys stay as they are
        for word, instead in PRIVATE.items():
            if match := re.search(word, bare, re.IGNORECASE):
                place = f"{path.relative_to(ROOT)}:{line}"
                found.append(f"{place}: {match[0]!r} (write: {instead}): {' '.join(text.split())[:90]}")
    return found


# Where a text that a page may show names an option of the command line, and why.
OPTIONS_NAMED = {
    "dashboard/__main__.py": "the command of the server",
    "dashboard/report/__main__.py": "the command of the reports",
    "dashboard/server/gate.py": "the operator starts the server with it",
    "dashboard/views/export/page.py": "a command to copy",
    "dashboard/views/models/page.py": "the operator starts the server with it",
    "core/run/importing.py": "after the name of the page",
    "core/spec/settings/__init__.py": "the table of options",
    "core/spec/sizes.py": "options to copy",
    "core/wire/feeding.py": "after the name of the field",
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


@pytest.mark.parametrize("room", ROOMS)
def test_no_private_word_is_said_to_people(room: str) -> None:
    found = [one for path in sorted((ROOT / room).rglob("*.py")) for one in private_words(path)]
    assert not found, "\n".join(["", *found])


def test_a_private_word_is_found(tmp_path: Path) -> None:
    module = ROOT / "tests" / "unit" / "test_words.py"
    assert list(texts(module))
    assert any(re.search(word, "They race against the anchor", re.IGNORECASE) for word in PRIVATE)
