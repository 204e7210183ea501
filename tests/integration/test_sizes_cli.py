"""Commands on models with free dimensions, without `--dim`: the model itself tells the sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_UNDECIDED
from tests import tiny_models
from tests.command_line import CommandLine, Done

pytestmark = pytest.mark.usefixtures("jobs_at_once", "clock")

QUICK = ("--runs", "5", "--warmup-runs", "1")


def measured(done: Done) -> Done:
    """Measured, whatever the verdict."""
    assert done.code in (0, EXIT_UNDECIDED), done.err
    return done


def shape(done: Done) -> list[int]:
    """The shape of the first input."""
    found: list[int] = done.document["inputs"][0]["shape"]
    return found


def test_a_detector_is_measured_at_the_size_that_its_metadata_name(cli: CommandLine, tmp_path: Path) -> None:
    """Any side that is no multiple of 64 would fail in its Concat."""
    model = str(tiny_models.detector(tmp_path / "detector.onnx"))
    done = measured(cli.run("tune", model, *QUICK, "--json"))
    assert shape(done) == [1, 3, 128, 192]
    assert done.document["sizes_from"] == {"height": "file", "width": "file"}
    assert "from the model's metadata (imgsz 128 × 192)" in done.err
    compared = measured(cli.run("compare", model, "--candidate", "preset:edge", *QUICK, "--json"))
    assert {one["state"] for one in compared.document["trials"]} == {"COMPLETE"}
    given = cli.run("tune", model, *QUICK, "--dim", "height=64", "--dim", "width=64", "--json")
    assert shape(measured(given)) == [1, 3, 64, 64]
    assert "sizes_from" not in given.document


def test_a_size_that_makes_no_sense_is_ignored_and_said(cli: CommandLine, tmp_path: Path) -> None:
    model = str(tiny_models.detector(tmp_path / "hostile.onnx", {"imgsz": "[999999999, x]"}))
    done = cli.run("tune", model, *QUICK)
    assert done.code == EXIT_BAD_INPUT
    assert "`imgsz: [999999999, x]` in the model's metadata is ignored" in done.err
    assert "--dim height=256 --dim width=256" in done.err  # a guess, to the file's stride
    sizes = ("--dim", "height=256", "--dim", "width=256")
    assert shape(measured(cli.run("tune", model, *QUICK, *sizes, "--json"))) == [1, 3, 256, 256]


def test_a_transformer_is_measured_at_the_sizes_that_its_inputs_usually_take(
    cli: CommandLine, tmp_path: Path
) -> None:
    done = measured(cli.run("tune", str(tiny_models.tokens(tmp_path / "tokens.onnx")), *QUICK, "--json"))
    assert shape(done) == [1, 128]
    assert done.document["sizes_from"] == {"sequence": "names"}
    assert "sequence=128, usual for input_ids" in done.err
