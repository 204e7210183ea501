"""The command line loads only the requested command, and its table of commands is true."""

import json
import signal
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from core.cli import COMMANDS, RENAMED, run
from core.cli.signals import Interrupted
from tests.reading import tells

HEAVY = ("numpy", "pydantic", "yaml", "psutil", "core.run", "core.store", "core.spec")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = COMMANDS[name]
    module = import_module(f"core.cli.{command.module}")
    found = getattr(module, command.name)
    said = found.info.help if isinstance(found, typer.Typer) else found.__doc__.split("\n")[0]
    assert said == command.help
    assert not command.cls or hasattr(module, command.cls)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_of_its_own_that_fits_80_characters_and_breaks_no_option(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "-h"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: ")
    assert f" {name} [OPTIONS]" in out
    assert COMMANDS[name].help in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert not any(line.endswith("-") and not line.endswith(" -") for line in out.splitlines())


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_opens_its_command_and_names_it_once(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new in COMMANDS
    assert old not in COMMANDS
    assert run([old, "-h"]) == 0
    shown = capsys.readouterr()
    assert COMMANDS[new].help in " ".join(shown.out.split())
    assert shown.err.count("\n") == 1
    assert tells(shown.err, old, new)


def test_who_stops_a_command_gets_one_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = Interrupted(signal.SIGINT)
    stopped.hint = "Continue with `search --resume abcdef`."

    def stop(**_: object) -> None:
        raise stopped

    monkeypatch.setattr("core.cli.app", stop)
    assert run(["search"]) == 130
    assert capsys.readouterr().err.splitlines() == ["Error: Stopped by SIGINT.", f"Hint: {stopped.hint}"]


def explained(out: str) -> set[str]:
    """The options whose meaning a help tells."""
    lines = out.partition("More options")[0].splitlines()
    return {line.split()[0].strip(",") for line in lines if line.startswith("  -")}


def test_a_long_help_explains_what_is_used_every_day_and_names_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tune", "-h"]) == 0
    short = capsys.readouterr().out
    assert run(["tune", "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert {"--batch-size", "--intra-op-num-threads", "--config"} <= explained(short) < explained(whole)
    assert all(one in short or one.startswith("--no-") for one in explained(whole))
    assert short.index("\nWorkload:") < short.index("\nOutput:") < short.index("More options")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_what_needs_no_command_loads_none(arguments: list[str]) -> None:
    code = (
        "import sys, json; from core.cli import run; run(sys.argv[1:]); print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert [one for one in loaded if one in HEAVY] == []


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("scorcard", "No such command 'scorcard'. Did you mean 'scorecard'?"),
        ("zzzzz", "No such command 'zzzzz'."),
    ],
)
def test_a_name_that_is_no_command_is_refused_with_what_is_near(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([typed]) == 2
    assert said in capsys.readouterr().err
