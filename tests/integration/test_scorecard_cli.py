"""The command `scorecard`: what is measured, what is printed, and the exit code for every answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.cli.sheets import lines
from core.evidence.targets import Measurements, TargetResult, evaluate_target
from core.run.scorecard import ScorecardRow, Subject
from core.show import documents
from core.show.sheets.scorecards import scorecard
from core.spec import spec_from_dict
from core.spec.targets import target_from_dict
from core.store import ModelRecord
from tests import simulated_clock
from tests.command_line import CommandLine, Done

pytestmark = pytest.mark.usefixtures("jobs_at_once")

HEAD = "schema: 1\nmodel: {{path: {model}}}\nprotocol: {{runs: 40, warmup_runs: 2}}\n"
DIGITS = "sample_models/digits_cnn.onnx"
DATA = "dataset: {path: sample_models/digits_test.npz, positive_class: 5, threshold: 0.6}\n"


def write(folder: Path, model: str, *targets: str, more: str = "") -> str:
    path = folder / "card.yaml"
    listed = "targets:\n" + "".join(f"- {one}\n" for one in targets) if targets else ""
    path.write_text(HEAD.format(model=model) + more + listed)
    return str(path)


def states(done: Done) -> list[str]:
    return [one["state"] for one in done.document["targets"]]


# --- exit codes ---------------------------------------------------------------------------------------------
# Sizes and accuracies need no comparison, so that a busy machine cannot reject them.


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line whose store keeps the accuracy of the digits after its first measurement."""
    return CommandLine(tmp_path_factory.mktemp("scored"), acquainted)


def test_all_met_is_0(scored: CommandLine, tmp_path: Path) -> None:
    config = write(
        tmp_path,
        DIGITS,
        "{metric: model_size, at_most: 1 MB}",
        "{metric: accuracy, at_least: 97 %}",
        "{metric: sensitivity, at_least: 50 %}",
        more=DATA,
    )
    done = scored.run("scorecard", config, "--json")
    assert done.code == 0, done.err
    assert states(done) == ["MET", "MET", "MET"]
    assert done.document["state"] == "MET"
    accuracy = done.document["targets"][1]
    assert 0.97 <= accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1
    text = scored.run("scorecard", config, "--quiet")
    assert text.code == 0, text.err
    assert "✓" in text.out
    assert "sensitivity" in text.out


def test_a_miss_is_1_even_beside_what_is_not_known(scored: CommandLine, tmp_path: Path) -> None:
    config = write(
        tmp_path,
        DIGITS,
        "{metric: model_size, at_most: 1 kB}",
        "{metric: sensitivity, at_least: 99.9 %}",  # 37 of 37 samples cannot show that
        more=DATA,
    )
    done = scored.run("scorecard", config)
    assert done.code == EXIT_FAILED, done.err
    assert "✗" in done.out
    assert "? " in done.out


def test_not_known_is_3(scored: CommandLine, tmp_path: Path) -> None:
    config = write(tmp_path, DIGITS, "{metric: sensitivity, at_least: 99.9 %}", more=DATA)
    done = scored.run("scorecard", config, "--json")
    assert done.code == EXIT_UNDECIDED, done.err
    assert states(done) == ["UNKNOWN"]


@pytest.mark.parametrize(
    ("targets", "more", "words"),
    [
        ((), "", "has no targets to check"),
        (("{metric: accuracy, at_least: 98 %}",), "", "needs labelled data"),
        (
            ("{metric: accuracy, at_least: 98 %}",),
            "dataset: {path: nowhere.npz}\n",
            "no data at `nowhere.npz`",
        ),
        (("{metric: latency_p98, at_most: 3 ms}",), "", "no metric `latency_p98`"),
        (("{metric: latency_p99, at_most: soon}",), "", "a number with a unit"),
    ],
)
def test_bad_input_is_2(
    cli: CommandLine, mlp: str, tmp_path: Path, targets: tuple[str, ...], more: str, words: str
) -> None:
    done = cli.run("scorecard", write(tmp_path, mlp, *targets, more=more))
    assert done.code == EXIT_BAD_INPUT
    assert words in done.err
    assert "Traceback" not in done.err


# --- comparisons --------------------------------------------------------------------------------------------


def test_comparisons_are_run_where_targets_need_them_and_reused_where_allowed(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    config = write(
        tmp_path,
        mlp,
        "{metric: throughput, at_least: 0.001/s, batch_size: 1}",
        "{metric: throughput, at_least: 0.001/s, batch_size: 4}",
        "{metric: peak_rss, at_most: 100 GB}",
        "{metric: cpu_s, at_most: 60 s}",
    )
    with simulated_clock.machine():
        first = cli.run("scorecard", config, "--json")
        assert first.code in (0, EXIT_UNDECIDED), first.err
        assert len(first.document["trials"]) == 2
        for one in first.document["targets"]:
            assert (one["state"] == "MET") == (one["cause"] == ""), one
            assert one["cause"] in ("", "wide"), one  # few launches bound nothing
        again = cli.run("scorecard", config, "--json", "--reuse")
        assert again.document["trials"] == first.document["trials"]
        fresh = cli.run("scorecard", config, "--json")
    assert not set(fresh.document["trials"]) & set(first.document["trials"])


def test_a_model_that_cannot_run_is_not_known_and_says_why(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    config = write(
        tmp_path,
        mlp,
        "{metric: latency_p50, at_most: 60 s}",
        more="session: {providers: [{name: CUDAExecutionProvider}]}\n",
    )
    done = cli.run("scorecard", config, "--json")
    assert done.code == EXIT_UNDECIDED
    assert "CUDAExecutionProvider" in done.document["targets"][0]["why"]
    assert "Traceback" not in done.err


def test_options_change_what_is_checked(cli: CommandLine, tmp_path: Path) -> None:
    config = write(tmp_path, DIGITS, "{metric: model_size, at_most: 1 MB}")
    done = cli.run("scorecard", config, "--json", "--batch-size", "8")
    assert done.code == 0, done.err
    assert done.document["spec"]["workload"]["batch_size"] == 8
    assert done.document["spec"]["targets"] == [{"metric": "model_size", "at_most": "1 MB"}]


# --- as text ------------------------------------------------------------------------------------------------


def row(*judged: TargetResult, **evidence: Any) -> ScorecardRow:
    record = ModelRecord(
        content_sha256="a" * 64,
        sha256="a" * 64,
        name="m\x1b[31m",
        path="m.onnx",
        source="file",
        info={},  # type: ignore[typeddict-item]
    )
    spec = spec_from_dict({"model": {"path": "m.onnx"}})
    subject = Subject(label=record.name, spec=spec, record=record)
    return ScorecardRow(subject=subject, evidence=Measurements(batch_size=1, **evidence), judged=judged)


def test_the_scorecard_as_text_marks_outputs_that_differ_and_no_escape() -> None:
    target = target_from_dict({"metric": "model_size", "at_most": "1 MB"})
    result = {"trial": "t", "guard": {"breach": True, "why": "the largest error is 0.5"}}
    found = row(evaluate_target(target, Measurements(batch_size=1, size_bytes=10)), results={1: [result]})
    text = "\n".join(lines(scorecard(found)))
    assert "OUTPUTS DIFFER: the largest error is 0.5" in text
    assert "\x1b" not in text
    assert documents.scorecard(found)["breach"] == "the largest error is 0.5"
    assert documents.scorecard(found)["trials"] == ["t"]


def test_the_scorecard_as_text_says_that_rows_were_seen_in_calibration() -> None:
    target = target_from_dict({"metric": "model_size", "at_most": "1 MB"})
    note = "9 of the 360 rows that this model is scored on also calibrated it"
    found = row(
        evaluate_target(target, Measurements(batch_size=1, size_bytes=10)),
        summaries={(None, None): {"calibration_note": note}},
    )
    assert f"SEEN SAMPLES: {note}" in "\n".join(lines(scorecard(found)))
    assert documents.scorecard(found)["calibration_note"] == note
