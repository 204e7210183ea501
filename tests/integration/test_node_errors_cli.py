"""`node-errors` run for real on a quantized variant of the digits classifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

pytestmark = pytest.mark.usefixtures("jobs_at_once")

DIGITS = str(Path(__file__).parents[2] / "sample_models" / "digits_cnn.onnx")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line that has a quantized variant, `d8`."""
    line = CommandLine(tmp_path_factory.mktemp("node_errors"), acquainted)
    assert line.run("transform", DIGITS, "--int8-static", "--name", "d8", "--quiet").code == 0
    return line


def test_errors_and_savings_of_a_variant_and_a_block_list(cli: CommandLine) -> None:
    made = cli.run("transform", DIGITS, "--int8-static", "--fp16", "--name", "both", "--json")
    assert made.code == 2  # a second precision
    found = cli.run("node-errors", "d8", "--json")
    assert found.code == 0, found.err
    document = found.document
    operators = {name for unit in document["units"] for name in unit["nodes"]}
    assert len(operators) == 3  # two convolutions and a linear layer
    assert all(unit["error"] > 0 for unit in document["units"])
    assert document["whole"] > 0
    curve = document["curve"]
    assert curve[0]["blocked"] == []
    assert set(curve[-1]["blocked"]) == operators
    assert curve[-1]["error"] == 0
    assert set(document["halving"]) <= operators
    assert document["timed"]

    shown = cli.run("node-errors", "d8")
    assert shown.code == 0
    assert "explain" not in shown.err  # it is known: nothing was run
    for word in (*operators, "error alone", "kept in float", "exclude_nodes="):
        assert word in shown.out


def test_what_is_not_quantized_is_refused(cli: CommandLine) -> None:
    done = cli.run("node-errors", DIGITS)
    assert done.code == 2
    assert "quantization" in done.err


def test_feeds_are_asked_for_and_told(cli: CommandLine) -> None:
    (name,) = (one["name"] for one in cli.run("inspect", DIGITS, "--json").document["inputs"])
    refused = cli.run("node-errors", "d8", "--feed", "nope=1")
    assert refused.code == 2
    assert "`nope`" in refused.err
    found = cli.run("node-errors", "d8", "--feed", f"{name}=random:0..0.5", "--batch-size", "2", "--json")
    assert found.code == 0, found.err
    (told,) = found.document["fed"]
    assert (told["name"], told["values"]) == (name, "random, 0 to 0.5 (requested)")
    assert told["shapes"][0][0] == 2
    shown = cli.run("node-errors", "d8")
    assert f"{name} float32" in shown.out
