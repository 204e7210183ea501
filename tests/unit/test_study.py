"""Studies: what is asked, and what is refused with its path and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.spec.study import StudyItem, parts_of, questions, read_study, study_from_yaml
from core.wire.errors import SpecError

STUDY = """
schema: 1
name: nightly
models: [models/*.onnx, digits_cnn]
questions:
  - search: {limit: ["p50<=3ms"], effort: quick}
  - compare: {candidate: [mine.yaml, "preset:edge"], batch_size: 8, different-models: true}
  - load: {rate: 100, size: {seq: 128}}
hosts: cpu=epyc
portability: true
budget: 2m
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        (tmp_path / "models" / f"{name}.onnx").write_bytes(b"")
    (tmp_path / "mine.yaml").write_text("schema: 1")
    (tmp_path / "STUDY.yaml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def test_a_study_is_models_times_questions(folder: Path) -> None:
    found = read_study(folder / "STUDY.yaml")
    assert (found.name, found.hosts, found.portability) == ("nightly", "cpu=epyc", True)
    assert parts_of(found.items) == (3, 3)
    model = str(folder / "models" / "a.onnx")
    assert found.items[:3] == [
        StudyItem(
            model=model, command="search", arguments=["--limit=p50<=3ms", "--effort=quick", "--budget=2m"]
        ),
        StudyItem(
            model=model,
            command="compare",
            arguments=[
                f"--candidate={folder / 'mine.yaml'}",
                "--candidate=preset:edge",
                "--batch-size=8",
                "--different-models",
                "--budget=2m",
            ],
        ),
        StudyItem(model=model, command="load", arguments=["--rate=100", "--size=seq=128"]),
    ]
    assert found.items[-1].model == "digits_cnn"


def test_a_study_without_a_name_has_that_of_its_file(folder: Path) -> None:
    path = folder / "weekly.yaml"
    path.write_text("models: digits_cnn\nquestions: [{search: }]", encoding="utf-8")
    found = read_study(path)
    assert (found.name, found.hosts) == ("weekly", "all")
    assert found.items == [StudyItem(model="digits_cnn", command="search", arguments=[])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "`models` is missing"),
        ("[]", "A study is a dictionary"),
        ("models: [x]\nquestions: []", "`questions` is empty"),
        ("models: [' ']\nquestions: [{search: }]", "`models.0` is empty"),
        ("models: x\nquestions: [{serch: }]", "`serch`. Did you mean `search`?"),
        ("models: x\nquestions: [{search: {}, compare: {}}]", "`questions.0` must name one command"),
        ("models: x\nquestions: [search]", "`questions.0` must be a dictionary"),
        ("models: x\nquestions: [{search: 5}]", "`questions.0.search` must be a dictionary, but got 5"),
        ("models: x\nquestions: [{search: {budget: [[1]]}}]", "`questions.0.search.budget` must be a value"),
        ("models: x\nquestions: [{search: {json: true}}]", "`questions.0.search.json` is no option"),
        ("models: x\nquestions: [{search: {--budget: 1}}]", "is no name of an option"),
        ("models: x\nquestions: [{compare: }]\nportability: true", "no question is a search"),
        ("models: 3\nquestions: [{compare: }]", "`models` must be a list, but got 3"),
        ("models: x\nhots: all\nquestions: [{compare: }]", "Unknown key `hots`. Did you mean `hosts`?"),
        ("schema: 2\nmodels: x\nquestions: [{compare: }]", "`schema` must be 1, but got 2"),
        ("models: x\nhosts: ''\nquestions: [{compare: }]", "`hosts` is empty"),
        ("models: x/y.onnx\nquestions: [{compare: }]", "`models.0` is no file"),
        ("models: '*.nothing'\nquestions: [{compare: }]", "`models.0` finds no file: `*.nothing`"),
    ],
)
def test_a_wrong_study_names_path_and_value(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        questions(study_from_yaml(text), tmp_path)
    assert message in error.value.message
    assert error.value.hint


def test_a_value_cannot_become_an_option(tmp_path: Path) -> None:
    text = "models: x\nquestions: [{compare: {candidate: [--json, '-o']}}]"
    [one] = questions(study_from_yaml(text), tmp_path)
    assert one.arguments == ["--candidate=--json", "--candidate=-o"]


def test_a_missing_study_says_so(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot be read: No such file"):
        read_study(tmp_path / "none.yaml")
