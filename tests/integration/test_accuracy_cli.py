"""The command `accuracy`, run for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny_models
from tests.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("jobs_at_once")

DATA = ("--data", "sample_models/digits_test.npz")


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line whose store keeps what was measured once."""
    return CommandLine(tmp_path_factory.mktemp("accuracy"), acquainted)


def test_two_configurations_are_measured_and_compared_as_json(line: CommandLine) -> None:
    done = line.run("accuracy", "digits_cnn", *DATA, "--positive", "8", "--threshold", "60%", "--json")
    assert (done.code, done.err) == (0, "") or done.code == 0
    (one,) = done.document["accuracies"]
    assert one["summary"]["accuracy"]["value"] > 0.97
    assert one["summary"]["positive"]["threshold"] == 0.6
    assert one["dataset"]["positive_class"] == "8"
    assert done.document["errors"] == []
    again = line.run(
        "accuracy",
        "digits_cnn",
        *DATA,
        "--against",
        "digits_cnn",
        "--delta",
        "5%",
        "--json",
    )
    assert again.code == 0
    assert {each["id"] for each in again.document["accuracies"]} == {one["id"]}
    (pair,) = again.document["comparisons"]
    assert (pair["accuracy"]["verdict"], pair["delta"]) == ("NOT_WORSE", 0.05)


def test_what_people_read_and_a_comparison_that_needs_more_rows(line: CommandLine) -> None:
    done = line.run("accuracy", "digits_cnn", *DATA, "--against", "digits_cnn", "--delta", "0.001")
    assert done.code == 3
    for part in ("digits_cnn", "360", "95 %", "sensitivity", "ROC-AUC", "Undecided"):
        assert part in done.out


def test_data_and_models_that_do_not_fit_are_two_lines(line: CommandLine, tmp_path: Path) -> None:
    missing = line.run("accuracy", "digits_cnn")
    assert missing.code == 2
    assert "`data`" in missing.err
    model = tiny_models.identity(tmp_path / "ints.onnx", "int64", ("batch", 1, 8, 8))
    wrong = line.run("accuracy", str(model), *DATA, "--json", "--quiet")
    assert wrong.code == 2
    assert wrong.document["accuracies"] == []
    assert len(wrong.err.splitlines()) == 2
    assert line.run("accuracy", "digits_cnn", *DATA, "--limit", "many").code == 2


def test_dataset_of_a_yaml_is_used(line: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "schema: 1\nmodel: {path: digits_cnn}\ndataset: {path: sample_models/digits_test.npz, limit: 30}\n"
    )
    done = line.run("accuracy", "--config", str(config), "--seed", "3", "--json")
    assert done.code == 0
    (one,) = done.document["accuracies"]
    assert (one["reply"]["rows"], one["dataset"]["seed"]) == (30, 3)


PART = ("--calibration-share", "25%")


def test_rows_that_calibrated_the_model_and_score_it_are_told(line: CommandLine) -> None:
    calibration = ("--calibration", "sample_models/digits_test.npz", *PART)
    made = line.run("transform", "digits_cnn", "--int8-static", *calibration, "--name", "small")
    assert made.code == 0, made.err
    for score, rows, shared in (((), 360, 90), (PART, 270, 0)):
        done = line.run("accuracy", "small", *DATA, *score, "--json")
        assert done.code == 0, done.err
        (one,) = done.document["accuracies"]
        assert one["summary"]["rows"] == rows
        assert one["summary"]["calibration"]["shared"] == shared
        text = line.run("accuracy", "small", *DATA, *score)
        assert ("SEEN SAMPLES" in text.out) is bool(shared)


def test_a_share_without_data_to_calibrate_on_is_two_lines(line: CommandLine) -> None:
    done = line.run("transform", "digits_cnn", "--int8-static", "--calibration-share", "25%")
    assert done.code == 2
    assert "`calibration`" in done.err
