"""A command line for hosts: files of the client are found, named by content, and rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.api.fleet_requests import Asked, prepared
from core.api.session import Session
from core.run.fleet import on_host
from core.run.fleet.on_host import FILE, TEXT
from core.run.fleet.requests import PreparedQuestion
from core.spec.strict_yaml import load_strict
from core.wire.errors import SpecError
from core.wire.plain_data import plain
from tests import in_process, tiny_models

YAML = "schema: 1\nmodel: {path: m.onnx}\nworkload: {batch_size: 4}\n"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    tiny_models.mul(tmp_path / "m.onnx")
    with in_process.jobs(), Session() as one:
        yield one


def question(session: Session, *arguments: str, command: str = "compare", model: str = "m.onnx") -> Any:
    return prepared(Asked(command=command, model=model, arguments=arguments), 1, session)


def test_a_model_is_named_by_its_content(session: Session, tmp_path: Path) -> None:
    found = question(session, "--batch-size", "4", command="sweep")
    sha256 = found.question.model.sha256
    assert found.command == ["sweep", f"{FILE}{sha256}", "--batch-size", "4", "--json"]
    assert found.paths == {sha256: str(tmp_path / "m.onnx")}
    assert [one["path"] for one in found.parcels[sha256]["files"]] == ["m.onnx"]


def test_a_configuration_gets_the_model_of_the_question(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML.replace("m.onnx", "elsewhere.onnx"))
    found = question(session, "--candidate", "x.yaml", "--candidate=x.yaml")
    assert found.command[2:6] == ["--candidate", f"{TEXT}x.yaml", "--candidate", f"{TEXT}x-2.yaml"]
    read = load_strict(found.texts["x.yaml"])
    assert read == {
        **{"schema": 1, "model": {"path": f"{FILE}{found.question.model.sha256}"}},
        "workload": {"batch_size": 4},
    }


def test_presets_and_engines_stay_as_they_are(session: Session) -> None:
    found = question(session, "--candidate", "preset:cpu-latency", "--baseline", "preset:default")
    assert found.command[2:-1] == ["--candidate", "preset:cpu-latency", "--baseline", "preset:default"]
    assert found.texts == {}


def test_another_model_travels_too(session: Session, tmp_path: Path) -> None:
    other = tiny_models.external_data(tmp_path / "other" / "n.onnx")
    found = question(session, "--candidate", str(other))
    assert len(found.parcels) == 2
    (sha256,) = set(found.parcels) - {found.question.model.sha256}
    assert found.command[3] == f"{FILE}{sha256}"
    assert [one["path"] for one in found.parcels[sha256]["files"]] == ["n.onnx", "weights.bin"]


def test_input_files_travel_and_values_do_not(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("one\n")
    found = question(session, "--feed", "t=@x.txt", "--feed", "s=3", command="sweep")
    (sha256,) = set(found.parcels) - {found.question.model.sha256}
    assert found.command[2:-1] == ["--feed", f"t=@{FILE}{sha256}", "--feed", "s=3"]


def test_a_scorecard_travels_with_its_model(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML)
    found = question(session, command="scorecard", model="x.yaml")
    assert found.command == ["scorecard", f"{TEXT}x.yaml", "--json"]
    assert found.question.model.name == "m"
    assert list(found.parcels) == [found.question.model.sha256]


def test_a_bundle_is_one_file(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"zip")
    found = question(session, "--no-measure", command="verify", model="x.zip")
    assert found.command == ["verify", f"{FILE}{found.question.model.sha256}", "--no-measure", "--json"]


def test_winners_are_candidates(session: Session) -> None:
    spec = {"model": {}, "session": {"intra_op_num_threads": 2}}
    asked = Asked(command="compare", model="m.onnx", candidates={"winner-of-a": spec})
    found = prepared(asked, 2, session)
    assert found.command[2:4] == ["--candidate", f"{TEXT}winner-of-a.yaml"]
    assert load_strict(found.texts["winner-of-a.yaml"])["session"]["intra_op_num_threads"] == 2


@pytest.mark.parametrize("option", ["--json", "-o", "--output=x", "--resume", "--continue", "--import", "-q"])
def test_options_of_one_machine_are_refused(session: Session, option: str) -> None:
    with pytest.raises(SpecError, match="has no place here"):
        question(session, option)


def test_a_scorecard_without_a_model_is_refused(session: Session, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        question(session, command="scorecard", model="preset:default")


def test_a_question_is_kept_and_read(session: Session, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML)
    found = question(session, "--candidate", "x.yaml")
    assert PreparedQuestion.from_dict(plain(found)) == found


def test_placeholders_become_paths_on_the_host(tmp_path: Path) -> None:
    places = {"ab" * 32: "/models/m.onnx"}
    text = f"{{path: {FILE}{'ab' * 32}}} {TEXT}x.yaml"
    assert on_host._with_paths(text, places, tmp_path) == f"{{path: /models/m.onnx}} {tmp_path}/texts/x.yaml"
