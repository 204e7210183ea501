"""A hostile library of a custom operator tries to leave its sandbox: nothing comes of it. See also tests/faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core import wire
from core.process.job_worker import run_job
from core.wire.errors import TunerError
from core.wire.variables import ALLOW_LIBRARIES, SANDBOX
from tests import attacks, libraries
from tests.attacks import Target, needs_sandbox

pytestmark = needs_sandbox

LEAST = {"read": 14, "write": 18, "network": 17, "others": 15, "processes": 13, "kernel": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("libraries")
    libraries.compiled(made, attacks.LIBRARY, "attacker.cpp", "-O1")
    return made


@pytest.fixture
def target(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setenv(ALLOW_LIBRARIES, str(folder))
    with attacks.target(tmp_path) as one:
        yield one


def message(model: Path) -> str:
    """What the parent says of a worker that loads the model."""
    asked = {"path": str(model), "custom_op_libraries": [attacks.LIBRARY]}
    with pytest.raises(TunerError) as caught:
        run_job(wire.LOAD_CHECK, asked, timeout_s=60)
    return caught.value.message


@pytest.mark.parametrize("name", LEAST)
def test_no_attempt_leaves_the_sandbox(target: Target, name: str) -> None:
    said = message(target.model(name))
    assert len(attacks.reported(said)) >= LEAST[name], said
    assert attacks.successes(said) == []
    assert target.text not in said
    target.check_untouched()


@pytest.mark.parametrize(("name", "more", "shows"), [("read", (), "open"), ("network", (), "tcp4")])
def test_without_the_sandbox_the_attempts_succeed(
    target: Target, monkeypatch: pytest.MonkeyPatch, name: str, more: tuple[str, ...], shows: str
) -> None:
    """So the tests can fail."""
    monkeypatch.setenv(SANDBOX, "off")
    said = message(target.model(name, *more))
    assert f"{shows}=0" in said
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        assert target.text not in said
        target.check_untouched()


def test_without_the_sandbox_a_process_is_killed(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX, "off")
    message(target.model("others", "kill"))
    assert target.decoy.wait(60) != 0


@pytest.mark.parametrize("name", ["escape", "exit"])
def test_what_a_library_says_steers_no_terminal(target: Target, name: str) -> None:
    said = message(target.model(name))
    assert said.isprintable()
    assert "exit code 7" in said or "\\x1b" in said


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ('{"ok":{"version":"1","creation_s":NaN,"libraries":{}}}', "must be a number"),
        ('{"ok":{"version":"1","creation_s":-1,"libraries":{}}}', "must not be negative"),
        ('{"ok":{"version":[],"creation_s":1,"libraries":{}}}', "wrong shape"),
        ('{"ok":{"version":"1","creation_s":1,"libraries":{},"more":1' + "0" * 400 + "}}", "60 digits"),
        ('{"ok":{"version":"1","creation_s":1,"libraries":{},"more":' + "[" * 60 + "]" * 60 + "}}", "levels"),
    ],
)
def test_a_forged_reply_that_cannot_be_is_refused(target: Target, forged: str, words: str) -> None:
    assert words in message(libraries.attacker(target.folder / "m.onnx", "forge", forged))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("flood", '{"id":1,"live":{"stage":"x","done":1,"total":2,"text":""}}'),
        ("endless", ""),
    ],
)
def test_a_flood_of_messages_is_cut(target: Target, name: str, line: str) -> None:
    assert "more than 33,554,432 bytes" in message(libraries.attacker(target.folder / "m.onnx", name, line))
