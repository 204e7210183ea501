"""The command `load` with real traffic on a tiny model: answers, documents, exit codes, and Ctrl-C.

A busy machine may delay a run so much that it is no measurement; then its exit code is 3 and it says so.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_CANCELLED, EXIT_FAILED, EXIT_UNDECIDED
from core.show.load_text import NOT_A_MEASUREMENT, has_no_answer
from tests import tiny_models
from tests.command_line import CommandLine, Done
from tests.waiting import WAIT_S

TRAFFIC = re.compile(r"traffic · .*requests/s · [1-9]")  # a line of progress


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that takes some milliseconds, so that the harness adds little in comparison."""
    return str(tiny_models.steady(tmp_path_factory.mktemp("model") / "steady.onnx", trips=8000))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("load"), acquainted)


def disturbed(done: Done) -> bool:
    """Whether other programs spoiled a run; its document must say so."""
    points = done.document["load"]["points"]
    spoiled = any(has_no_answer(one) for one in points if one["fresh"])
    assert not spoiled or done.code in (EXIT_UNDECIDED, EXIT_FAILED)
    assert not spoiled or NOT_A_MEASUREMENT in done.document["load"]["words"].lower()
    return spoiled


def test_a_limit_that_holds_passes_and_one_that_cannot_hold_fails(line: CommandLine, slow: str) -> None:
    options = ("--rate", "40", "--duration", "2s", "--json", "-q")
    passed = line.run("load", slow, *options, "--limit", "p50<=10000ms")  # holds beside other programs, too
    (point,) = passed.document["load"]["points"]
    assert point["requests"] > 40
    assert [one["limit"] for one in point["limits"]] == ["p50<=10000ms"]
    assert disturbed(passed) or passed.code == 0
    failed = line.run("load", slow, *options, "--limit", "p50<=0.1ms")
    assert disturbed(failed) or failed.code == EXIT_FAILED
    shown = line.run("show", passed.document["trial"])
    assert shown.out.startswith(passed.document["load"]["words"])
    (requests,) = line.run("show", passed.document["trial"], "--json").document["requests"]
    assert len(requests["at_ns"]) == len(requests["end_ns"]) > point["requests"]  # with those of the warm-up


def test_too_few_requests_are_undecided(line: CommandLine, slow: str) -> None:
    options = ("--rate", "5", "--duration", "1s", "--json", "-q")
    done = line.run("load", slow, *options, "--limit", "p99<=10000ms")  # also where two of five are late
    assert done.code == EXIT_UNDECIDED
    assert done.document["load"]["verdict"] in ("UNDECIDED", None)


def test_more_than_the_capacity_saturates(line: CommandLine, slow: str) -> None:
    options = ("--rate", "2000", "--duration", "5s", "--limit", "p99<=100ms", "--json", "-q")
    done = line.run("load", slow, *options)
    assert done.code == EXIT_FAILED
    (point,) = done.document["load"]["points"]
    assert point["outcome"] == "saturated"
    assert "aturated" in done.document["load"]["words"]
    assert "FAIL, saturated" in line.run("show", done.document["trial"]).out


def test_a_trace_with_sizes_is_replayed(line: CommandLine, mlp: str, tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text("time,rows\n" + "".join(f"{i / 20},{1 + i % 2}\n" for i in range(70)))
    done = line.run("load", mlp, "--trace", str(path), "--json", "-q")
    (run,) = done.document["load"]["runs"]
    assert run["outcome"] == "complete"
    assert run["requests"] == 30  # 3.5 s without the warm-up of 2 s
    assert set(run["batches"]) == {"1", "2"}
    assert {one["rows"] for one in run["new_shapes"]} == {1, 2}


def test_two_configurations_are_compared_at_the_same_rate(line: CommandLine, slow: str) -> None:
    both = ("--config", "preset:default", "--config", "preset:edge")
    options = ("--rate", "20", "--duration", "1s", "--turns", "1", "--json", "-q")
    done = line.run("load", slow, *both, *options)
    load = done.document["load"]
    assert [one["label"] for one in load["configurations"]] == ["preset:default", "preset:edge"]
    assert {one["rate_per_s"] for one in load["points"]} == {load["points"][0]["rate_per_s"]}
    runs: list[Any] = load["runs"]
    assert len({run["requests"] for run in runs}) == 1  # the same arrivals
    assert {one["configuration"] for one in load["contrasts"]} <= {1}


def test_ctrl_c_keeps_what_was_measured_and_says_where(tmp_path: Path, acquainted: Path, slow: str) -> None:
    line = CommandLine(tmp_path, acquainted)
    process = line.start("load", slow, "--rate", "20", "--duration", "120s")
    assert process.stderr is not None
    assert any(TRAFFIC.search(text) for text in process.stderr), "it never ran"
    time.sleep(2.5)  # the warm-up does not count
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == EXIT_CANCELLED, err
    assert "CANCELLED" in out
    kept = re.search(r"ortune show ([0-9a-f]+)", err)
    assert kept is not None, err
    assert line.left_over() == []
    trial = line.run("show", kept[1], "--json").document
    assert (trial["kind"], trial["state"]) == ("load", "CANCELLED")
    assert trial["load"]["runs"][0]["outcome"] == "cancelled"
    assert trial["load"]["runs"][0]["requests"] > 0
