"""The documentation: generated pages match the code, and examples in it parse, load and lead somewhere."""

from __future__ import annotations

import contextvars
import fnmatch
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import yaml

from core.cli import COMMANDS
from core.spec import spec_from_yaml
from core.spec.metrics import METRICS
from core.spec.settings import PROVIDER_OPTIONS, SETTINGS
from core.spec.study import study_from_yaml
from core.wire.variables import VARIABLES
from docs import generate, generator
from docs.generator import project, tree
from docs.generator.markdown import slug

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
EXAMPLES = [path for path in DOCUMENTS if path.name not in ("CHANGELOG.md", "ARCHITECTURE.md")]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})[ ]*([\w-]*)[^\n]*\n(.*?)^\1?\2 *$", re.MULTILINE | re.DOTALL)
SHELLS = ("sh", "bash", "console", "shell")
PROGRAMS = (["ortune"], ["python", "-m", "core"])


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of code, and where it begins."""

    place: str
    language: str
    text: str


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> Iterator[Block]:
    text = text_of(path)
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        indent = len(found[1])
        body = "\n".join(one[indent:] for one in found[4].splitlines())
        yield Block(f"{name_of(path)}:{line}", found[3], body)


ALL_BLOCKS = [block for path in EXAMPLES for block in blocks(path)]


# --- generated pages ----------------------------------------------------------------------------------------


@functools.cache
def generated() -> dict[str, str]:
    return generator.pages()


def test_the_generated_pages_match_their_sources() -> None:
    assert generate.differing(generated()) == [], "run `python docs/generate.py`"
    assert generate.differing(project.pages(ROOT), generate.PROJECT) == [], "run `python docs/generate.py`"


def test_a_check_names_the_page_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {"a.md": "a\n", "b.md": "b\n"}
    generate.write(expected, tmp_path)
    assert generate.differing(expected, tmp_path) == []
    (tmp_path / "a.md").write_text("edited\n")
    (tmp_path / "old.md").write_text("left over\n")
    (tmp_path / "b.md").unlink()
    assert generate.differing(expected, tmp_path) == ["a.md", "b.md", "old.md"]
    generate.write(expected, tmp_path)
    assert generate.differing(expected, tmp_path) == []
    monkeypatch.setattr(generator, "pages", lambda: expected)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(generate, "differing", lambda *_: ["a.md"])
    assert generate.main(["--check"]) == 1
    assert "docs/reference/a.md differs" in capsys.readouterr().err
    assert generate.main(["--chekc"]) == 2


def test_every_setting_option_metric_and_variable_has_an_entry() -> None:
    assert all(f"### `{one.name}`" in generated()["settings.md"] for one in SETTINGS)
    assert all(one.label in generated()["settings.md"] for one in SETTINGS)
    options = [one.name for found in PROVIDER_OPTIONS.values() for one in found]
    assert all(f"| `{name}` |" in generated()["providers.md"] for name in options)
    assert all(f"| `{name}` |" in generated()["metrics.md"] for name in METRICS)
    assert all(f"| `{one.name}` |" in generated()["environment.md"] for one in VARIABLES)


def test_every_command_has_a_section_with_all_of_its_options() -> None:
    page = generated()["commands.md"]
    sections = dict(re.findall(r"^###? (ortune .+?)\n(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL))
    assert {f"ortune {name}" for name in COMMANDS} <= set(sections)
    for node in tree.nodes():
        flags = [flag for one in node.parameters for flag in one.opts if flag.startswith("-")]
        assert [flag for flag in flags if flag not in sections[f"ortune {node.name}"]] == [], node.name


def test_every_variable_that_the_code_names_is_in_the_table() -> None:
    sources = [path for folder in ("core", "dashboard") for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"ORTUNE_[A-Z_]*[A-Z]", text_of(path))}
    assert named == {one.name for one in VARIABLES}


# --- names in the documents for developers ------------------------------------------------------------------

ROOMS = ("core", "dashboard", "docs", "tests", "benchmarks")
IDENTIFIER = r"\b(?:_?[A-Z][A-Z_]{2,}|(?:[A-Z][a-z]+){2,}|_[a-z_]+)\b"


@functools.cache
def known() -> tuple[frozenset[str], tuple[str, ...]]:
    """Every word of the code except this file, and every path of the tree, without and with `.py`."""
    paths = [*ROOT.iterdir(), *(path for room in ROOMS for path in (ROOT / room).rglob("*"))]
    code = [path for path in paths if path.suffix == ".py" and path != Path(__file__)]
    words = re.findall(r"\w+", "\n".join(map(text_of, [*code, ROOT / "Makefile"])))
    ends = (f"/{name_of(path)}" for path in paths)
    return frozenset(words), tuple(end for one in ends for end in {one, one.removesuffix(".py")})


def unknown(span: str) -> list[str]:
    """What a span of code names that does not exist: a path, a module, or an identifier."""
    words, ends = known()
    if "NAME" in span or "_…" in span:
        return []  # a placeholder
    if re.fullmatch(r"[\w./*-]+/[\w./*-]*|[\w*]+\.(?:py|md|toml)", span):
        return [] if (ROOT / span).exists() or fnmatch.filter(ends, f"*/{span.rstrip('/')}") else [span]
    names = [span] if re.fullmatch(r"\w+", span) else re.findall(IDENTIFIER, span)
    return [name for name in names if name not in words]


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_every_path_and_name_for_developers_exists(name: str) -> None:
    lines = enumerate(text_of(ROOT / name).splitlines(), 1)
    spans = [(number, span) for number, line in lines for span in re.findall(r"`([^`]+)`", line)]
    assert [f"{name}:{n}: {found}" for n, span in spans for found in unknown(span)] == []


def test_a_missing_path_or_name_would_be_noticed() -> None:
    for gone in ("core/no_such.py", "spec/gone/", "gone.py", "_GONE_TABLE", "GoneSpec"):
        assert unknown(gone) == [gone]
    for present in ("evidence/verdict", "evidence/profile_*", "SETTINGS", "unsupported.py"):
        assert unknown(present) == []


def test_the_generator_refuses_other_arguments_as_a_script() -> None:
    script = ROOT / "docs" / "generate.py"
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd="/")
    assert (done.returncode, "Usage" in done.stderr) == (2, True), done.stderr


# --- command lines ------------------------------------------------------------------------------------------


def lines_of(block: Block) -> Iterator[str]:
    """The command lines of a block, continued lines joined; of a console those behind a prompt."""
    joined = re.sub(r"\\\n *", " ", block.text)
    prompted = block.language == "console" or any(one.startswith("$ ") for one in joined.splitlines())
    for line in joined.splitlines():
        if line.startswith("$ "):
            yield line[2:]
        elif not prompted and line.strip():
            yield line


def calls_of(line: str) -> Iterator[list[str]]:
    """The words of each command in a line of a shell, without the variables that it sets first."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    call: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            if call:
                yield [Path(call[0]).name, *call[1:]]
            call = []
        elif call or not re.fullmatch(r"[A-Z_]+=.*", word):
            call.append(word)


def commands_of(line: str) -> Iterator[list[str]]:
    """The arguments of each call of ORTune in a line of a shell."""
    for call in calls_of(line):
        for program in PROGRAMS:
            if call[: len(program)] == program:
                yield call[len(program) :]


def documented(block: Block) -> Iterator[list[str]]:
    """Every call of ORTune in a block for a shell, or in the steps of a job of GitHub Actions."""
    lines = list(lines_of(block)) if block.language in SHELLS else []
    if block.language in ("yaml", "yml"):
        lines = re.findall(r"^ *(?:- )?run: (?!\|)(.+)$", block.text, re.MULTILINE)
    for line in lines:
        if "ortune" in line or "-m core" in line:
            yield from commands_of(line)


def parse(arguments: list[str]) -> None:
    """Parse a command line as the command line itself does, without doing anything."""
    root = tree.root()
    context = root.make_context("ortune", list(arguments))
    command, words = root, arguments
    while hasattr(command, "commands"):
        if not words or (command is root and words[0] not in COMMANDS):  # `RENAMED` has the former names
            raise LookupError(f"no command `{' '.join(words[:1])}`")
        name, found, words = command.resolve_command(context, list(words))
        command, context = found, found.make_context(name, list(words), parent=context)


def wrong_with(arguments: list[str]) -> str:
    """Why a command line is refused; empty: it is not."""
    try:
        contextvars.copy_context().run(parse, arguments)
    except typer.Exit:  # `-h`, `--version`
        return ""
    except typer.TyperException as error:
        return error.format_message()
    except LookupError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_every_documented_command_line_is_one(path: Path) -> None:
    found = [(block.place, arguments) for block in blocks(path) for arguments in documented(block)]
    refused = [f"{place} ortune {shlex.join(a)}: {why}" for place, a in found if (why := wrong_with(a))]
    assert refused == [], "\n".join(refused)


def test_command_lines_are_found() -> None:
    """A change of how blocks are read must not leave them all out."""
    assert sum(len(list(documented(block))) for block in ALL_BLOCKS) > 20


def test_a_wrong_command_line_would_be_noticed() -> None:
    (words,) = commands_of("X=1 ortune tune m.onnx --dim a=1 | head && make")
    assert words == ["tune", "m.onnx", "--dim", "a=1"]
    for wrong in (["tuen"], ["tune", "--no-such-option"], ["variants", "lst"], ["bench", "m"], ["inspect"]):
        assert wrong_with(wrong), wrong
    assert not wrong_with(["tune", "-h"])


# --- scripts and targets ------------------------------------------------------------------------------------

FIRST_STEPS = ("README.md", "tutorial.md")


def shell_calls(path: Path) -> list[list[str]]:
    """The words of every command in the blocks for a shell."""
    shells = [block for block in blocks(path) if block.language in SHELLS]
    return [call for block in shells for line in lines_of(block) for call in calls_of(line)]


def is_missing(call: list[str]) -> bool:
    """Whether a call names a script, a module or a target of `make` that the repository lacks."""
    match call:
        case ["python", "-m", module, *_]:
            place = ROOT / module.replace(".", "/")
            return not ((place / "__main__.py").is_file() or place.with_suffix(".py").is_file())
        case ["python", script, *_] if "/" in script:
            return not (ROOT / script).is_file()
        case ["make", *targets]:
            named = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
            return not {one for one in targets if "=" not in one} <= named
    return False


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_every_documented_script_and_target_exists(path: Path) -> None:
    assert [shlex.join(call) for call in shell_calls(path) if is_missing(call)] == []


def test_a_missing_script_or_target_would_be_noticed() -> None:
    for line in (
        "make gone",
        "python sample_models/gone.py",
        ".venv/bin/python -m gone",
        "python -m core.gone",
    ):
        assert [is_missing(call) for call in calls_of(line)] == [True]
    assert first_scripts()


def first_scripts() -> list[str]:
    """The scripts that README and the tutorial run, with their options."""
    calls = [call for path in EXAMPLES if path.name in FIRST_STEPS for call in shell_calls(path)]
    return sorted({shlex.join(call[1:]) for call in calls if call[0] == "python" and call[1] != "-m"})


@pytest.mark.parametrize("script", first_scripts())
def test_a_script_of_the_first_steps_accepts_its_options(script: str) -> None:
    words = [sys.executable, *shlex.split(script), "--help"]  # options before `--help` are checked first
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# --- configurations -----------------------------------------------------------------------------------------

CONFIGURATIONS = [
    block
    for block in ALL_BLOCKS
    if block.language in ("yaml", "yml") and re.match(r"(?:#.*\n)*(?:schema|model):", block.text)
]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.place)
def test_every_configuration_loads_or_says_that_it_is_a_fragment(block: Block) -> None:
    if "# fragment" in block.text:
        assert yaml.safe_load(block.text)
    elif "\nquestions:" in block.text:
        assert study_from_yaml(block.text).questions
    else:
        spec_from_yaml(block.text)


# --- links --------------------------------------------------------------------------------------------------

LINK = re.compile(
    r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)|(?:src|srcset|href)=\"([^\"]+)\""
)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def prose(path: Path) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", text_of(path))


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a page: its headings as GitHub names them, repeated ones numbered, and explicit ones."""
    text = prose(path)
    found: list[str] = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text)
    seen: dict[str, int] = {}
    for heading in HEADING.findall(text):
        name = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        found.append(name if name not in seen else f"{name}-{seen[name]}")
        seen[name] = seen.get(name, 0) + 1
    return frozenset(found)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    broken = []
    for groups in LINK.findall(re.sub(r"`[^`\n]*`", "`", prose(path))):
        target = next(filter(None, groups))
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []
