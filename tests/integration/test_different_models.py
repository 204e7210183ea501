"""Comparisons of different models, run for real: refused unless requested, never silently called equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from core.api.measuring import _check_number, _model_and_references
from core.api.requests import labels, named
from core.api.session import Session
from core.wire.errors import SpecError
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("jobs_at_once")

QUICK = ("--runs", "40", "--warmup-runs", "2")
DECIDED_OR_NOT = (0, 3)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return tiny_models.mlp(tmp_path / "small.onnx")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    return tiny_models.mlp(tmp_path / "large.onnx", hidden=64)


def config(path: Path, model: Path, threads: int) -> str:
    path.write_text(f"schema: 1\nmodel: {{path: {model}}}\nsession: {{intra_op_num_threads: {threads}}}\n")
    return str(path)


def test_two_files_of_different_models_are_refused_with_their_error(
    cli: CommandLine, tmp_path: Path, small: Path, large: Path
) -> None:
    one, other = config(tmp_path / "a.yaml", small, 1), config(tmp_path / "b.yaml", large, 1)
    done = cli.run("compare", "--baseline", one, "--candidate", other, *QUICK)
    assert done.code == 2, done.err
    assert "`large`" in done.err
    assert "different models" in done.err
    assert "EQUIVALENT" not in done.out + done.err


def test_a_comparison_of_different_models_that_was_asked_for_says_so_with_every_verdict(
    cli: CommandLine, small: Path, large: Path
) -> None:
    with simulated_clock.machine():
        done = cli.run("compare", str(small), str(large), "--different-models", "--json", *QUICK)
    assert done.code in DECIDED_OR_NOT, done.err
    comparison = done.document
    assert {one["label"]: one["role"] for one in comparison["contestants"]} == {
        "large.onnx": "candidate",
        "small.onnx": "baseline",
    }
    assert {one["model"]["name"] for one in comparison["trials"]} == {"large", "small"}
    (contrast,) = [
        one for one in comparison["contrasts"] if one["baseline"] == comparison["contestants"][1]["trial"]
    ]
    assert contrast["outputs_differ"] is True
    assert "`small`" in contrast["something_else"]
    assert comparison["protocol"]["different_models"] is True
    with simulated_clock.machine():
        how = ("--different-models", "--wide", *QUICK)
        shown = cli.run("compare", str(small), "--candidate", str(large), *how)
    assert "(small)" in shown.out


def test_a_default_that_nobody_asked_for_says_which_model_it_ran(
    cli: CommandLine, tmp_path: Path, small: Path, large: Path
) -> None:
    one, other = config(tmp_path / "a.yaml", small, 1), config(tmp_path / "b.yaml", large, 1)
    how = ("--different-models", "--json", *QUICK)
    with simulated_clock.machine():
        done = cli.run("compare", "--baseline", one, "--candidate", other, *how)
    assert done.code in DECIDED_OR_NOT, done.err
    assert [one["label"] for one in done.document["contestants"]][-1] == "ORT default (large)"


def test_another_file_that_computes_the_same_is_compared_without_being_asked_for(
    cli: CommandLine, tmp_path: Path, small: Path
) -> None:
    model = onnx.load(small)
    for weight in model.graph.initializer:  # other weights, with outputs within the FP32 tolerance
        if numpy_helper.to_array(weight).dtype == np.float32:
            moved = numpy_helper.to_array(weight) * np.float32(1 + 1e-6)
            weight.CopyFrom(numpy_helper.from_array(moved, weight.name))
    same = tmp_path / "twin.onnx"
    onnx.save(model, same)
    with simulated_clock.machine():
        done = cli.run("compare", str(small), str(same), "--json", *QUICK)
    assert done.code in DECIDED_OR_NOT, done.err
    (contrast,) = [one for one in done.document["contrasts"] if one["candidate"] != one["baseline"]][:1]
    assert (contrast["outputs_differ"], contrast["something_else"]) == (False, "")
    assert contrast["notes"]  # that they are two


def test_models_with_other_inputs_are_not_the_same(cli: CommandLine, tmp_path: Path, small: Path) -> None:
    conv = tiny_models.conv(tmp_path / "conv.onnx")
    done = cli.run("compare", str(small), str(conv), *QUICK)
    assert done.code == 2, done.err
    assert "different models" in done.err
    assert "Traceback" not in done.err


# --- whom a reference means -------------------------------------------------------------------------------


def test_a_path_is_a_configuration_on_the_default(tmp_path: Path) -> None:
    session = Session(tmp_path / "s.db")
    refs = ["a.onnx", "dir/b.onnx", "preset:edge"]
    one, other, edge = named(refs, model=None, given={"batch_size": "4"}, session=session)
    assert [spec.model.path for spec in (one, other, edge)] == ["a.onnx", "dir/b.onnx", "a.onnx"]
    assert {spec.workload.batch_size for spec in (one, other, edge)} == {4}
    assert labels(refs, [one, other, edge]) == ["a.onnx", "b.onnx", "preset:edge (a)"]
    kept = named(["preset:default", "dir/b.onnx"], model="m.onnx", given={}, session=session)
    assert [spec.model.path for spec in kept] == ["m.onnx", "dir/b.onnx"]


def test_several_models_are_compared_with_the_first() -> None:
    assert _model_and_references(["a.onnx", "b"], None, []) == (None, ["a.onnx", "model:b"])
    assert _model_and_references(["a.onnx", "b.onnx"], "preset:edge", []) == (
        None,
        ["preset:edge", "a.onnx", "b.onnx"],
    )
    assert _model_and_references(["a.onnx"], None, ["preset:edge"]) == (
        "a.onnx",
        ["preset:default", "preset:edge"],
    )
    with pytest.raises(SpecError, match=r"\b0\b"):
        _check_number(len(_model_and_references(["a.onnx"], None, [])[1]) - 1)
