"""The JSON Schema of what commands print: complete, valid, described, and able to refuse."""

from __future__ import annotations

import copy
import functools
import json
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import pytest

from core import FORMAT_VERSION
from core.cli import COMMANDS, run
from core.evidence.measurement import RESULT_FIELDS
from core.evidence.result_types import ContrastRecord
from core.show.output_types import DOCUMENTS
from core.show.schema import schema
from core.wire.errors import SpecError
from tests.documents import errors_of

FAILURE = {
    "format_version": FORMAT_VERSION,
    "trial": None,
    "state": "FAIL",
    "error": {"type": "SpecError", "message": "No.", "hint": "Yes."},
}


@functools.cache
def valid() -> dict[str, Any]:
    """The schema of all commands, valid with all of its parts."""
    found = schema()
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("command", ["", *DOCUMENTS])
def test_every_document_has_a_valid_schema(command: str) -> None:
    found = schema(command)
    parts = found["$defs"]
    assert parts == {name: valid()["$defs"][name] for name in parts}
    jsonschema.Draft202012Validator.check_schema({**found, "$defs": {}})
    assert jsonschema.Draft202012Validator(found).is_valid(FAILURE)
    unversioned = {name: value for name, value in FAILURE.items() if name != "format_version"}
    assert not jsonschema.Draft202012Validator(found).is_valid(unversioned)
    assert not jsonschema.Draft202012Validator(found).is_valid({"nothing": "of it"})
    json.dumps(found)  # plain data
    assert parts


def test_every_command_that_prints_json_has_a_document() -> None:
    described = {name.split()[0] for name in DOCUMENTS}
    for name, command in COMMANDS.items():
        function = getattr(import_module(f"core.cli.{command.module}"), command.name)
        groups = ("fleet", "keys", "runtimes", "searches", "variants")
        printing = name in groups or "json_" in get_type_hints(function)
        assert printing == (name in described), name


def test_what_a_trial_always_tells_is_required() -> None:
    required = schema("tune")["$defs"]["TrialDocument"]["required"]
    assert set(RESULT_FIELDS) < set(required)


def test_a_key_is_described_by_the_comment_behind_it() -> None:
    parts = schema()["$defs"]
    assert parts["ContrastRecord"]["properties"]["ratio"]["description"].startswith("baseline latency /")
    assert parts["TrialDocument"]["properties"]["latencies_s"]["description"] == "all timed runs, in order"
    assert parts["Counters"]["properties"]["cpu_s"]["description"].startswith("user + system time")
    assert parts["Contestant"]["properties"]["trial"]["description"] == "id"  # of a dataclass, too
    keys = get_type_hints(ContrastRecord)
    told = [name for name in keys if "description" in parts["ContrastRecord"]["properties"][name]]
    assert len(told) > len(keys) / 2


def test_a_wrong_document_is_refused() -> None:
    assert errors_of("failure", FAILURE) == []
    for broken in ({"state": "MAYBE"}, {"error": None}, {"new": 1}, {"format_version": FORMAT_VERSION + 1}):
        assert errors_of("failure", {**FAILURE, **broken}), broken
    lacking: dict[str, Any] = copy.deepcopy(FAILURE)
    del lacking["error"]
    assert errors_of("failure", lacking)


def test_an_unknown_name_is_one_clear_line() -> None:
    with pytest.raises(SpecError, match=r"`scorcard` prints no document\. Did you mean `scorecard`\?"):
        schema("scorcard")


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "machine --self-test"]) == 0
    assert json.loads(capsys.readouterr().out) == schema("machine --self-test")
    assert run(["schema", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("Error: `nothing` prints no document.")


def test_all_schemas_are_written_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "schemas"
    assert run(["schema", "--all", "-o", str(folder)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(written) == sorted(folder.iterdir())
    assert len(written) == len(DOCUMENTS)
    assert json.loads((folder / "machine-self-test.json").read_text()) == schema("machine --self-test")


@pytest.mark.parametrize(
    "args", [["tune", "--all"], ["tune", "-o", "folder"], ["--all", "-o", "/dev/null"]], ids=" ".join
)
def test_schemas_that_cannot_be_written_are_one_clear_line(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schema", *args]) == 2
    assert capsys.readouterr().err.startswith("Error: ")
