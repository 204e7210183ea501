"""The JSON Schema of what commands print: complete, valid, described, and able to refuse."""

from __future__ import annotations

import copy
import functools
import json
from importlib import import_module
from typing import Any, get_type_hints

import jsonschema
import pytest

from core.cli import COMMANDS, run
from core.evidence.measurement import RESULT_FIELDS
from core.evidence.result_types import ContrastRecord, TrialResult
from core.show.output_types import DOCUMENTS
from core.show.schema import schema
from core.wire.errors import SpecError
from tests.documents import errors_of

FAILURE = {"trial": None, "state": "FAIL", "error": {"type": "SpecError", "message": "No.", "hint": "Yes."}}


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
    failed = {"trial": None, "state": "FAIL", "error": {"type": "SpecError", "message": "No.", "hint": ""}}
    assert jsonschema.Draft202012Validator(found).is_valid(failed)
    assert not jsonschema.Draft202012Validator(found).is_valid({"nothing": "of it"})
    json.dumps(found)  # plain data
    assert parts


def test_every_command_that_prints_json_has_a_document() -> None:
    described = {name.split()[0] for name in DOCUMENTS}
    for name, command in COMMANDS.items():
        function = getattr(import_module(f"core.cli.{command.module}"), command.name)
        printing = name in ("variants", "searches") or "json_" in get_type_hints(function)
        assert printing == (name in described), name


def test_what_a_trial_always_tells_is_part_of_its_result() -> None:
    assert set(RESULT_FIELDS) <= set(get_type_hints(TrialResult))
    required = schema("tune")["$defs"]["TrialDocument"]["required"]
    assert set(RESULT_FIELDS) < set(required)


def test_a_key_is_described_by_the_comment_behind_it() -> None:
    parts = schema()["$defs"]
    assert parts["ContrastRecord"]["properties"]["ratio"]["description"].startswith("speed against the base")
    assert parts["TrialDocument"]["properties"]["latencies_s"]["description"] == (
        "of every timed run, in order"
    )
    assert parts["Counters"]["properties"]["cpu_s"]["description"].startswith("user + system time")
    assert parts["Contestant"]["properties"]["trial"]["description"] == "id"  # of a dataclass, too
    keys = get_type_hints(ContrastRecord)
    told = [name for name in keys if "description" in parts["ContrastRecord"]["properties"][name]]
    assert len(told) > len(keys) / 2


def test_a_wrong_document_is_refused() -> None:
    assert errors_of("failure", FAILURE) == []
    for broken in ({"state": "MAYBE"}, {"error": None}, {"new": 1}):
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
