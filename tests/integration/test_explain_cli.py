"""The command `explain`, run for real on two results that are in the store."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from core.evidence.measurement import Trial, latency_summary
from core.spec import ModelRef, SessionSpec, TrialSpec, WorkloadSpec
from core.store import Store
from tests import tiny_models
from tests.command_line import CommandLine, works
from tests.waiting import WAIT_S, wait_until

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED")


def put(
    cli: CommandLine,
    path: Path,
    name: str,
    *,
    level: str,
    p50_s: float,
    state: str = "COMPLETE",
    against: str = "",
) -> str:
    """Store a measurement of the model at one level of optimization, and return its id.

    A measurement that was compared `against` another took half of its time.
    """
    spec = TrialSpec(
        model=ModelRef(path=str(path)),
        session=SessionSpec(graph_optimization_level=level, intra_op_num_threads=1),
        workload=WorkloadSpec(batch_size=2),
    )
    samples = [p50_s * (1 + 0.001 * (index % 7)) for index in range(200)]
    trial = Trial(
        id=name,
        kind="measure",
        state=state,  # type: ignore[arg-type]
        spec=spec.to_dict(),
        model_name="conv",
        model_sha256="0" * 64,
        key=spec.key(),
        created_at=1_000_000.0,
        result={
            "latency": latency_summary(samples),
            "latencies_s": samples,
            "batch_size": 2,
            "contrasts": [twice_as_fast(name, against)] if against else [],
        },
        fingerprint="f",
    )
    Store(cli.home / "ortune.db").create_trial(trial)
    return name


def twice_as_fast(candidate: str, baseline: str) -> dict[str, Any]:
    numbers = {"ratio": 2.0, "ratio_low": 1.95, "ratio_high": 2.05, "rounds": 54, "generations": 9}
    return {"candidate": candidate, "baseline": baseline, "verdict": "FASTER", "holds": True, **numbers}


@pytest.fixture
def pair(cli: CommandLine, tmp_path: Path) -> tuple[str, str]:
    path = tiny_models.conv(tmp_path / "conv.onnx")
    return (
        put(cli, path, "aaaaaaaa11111111", level=LEVELS[0], p50_s=2e-4),
        put(cli, path, "bbbbbbbb22222222", level=LEVELS[1], p50_s=1e-4, against="aaaaaaaa11111111"),
    )


def test_two_results_are_explained_as_json_and_the_second_time_at_once(
    cli: CommandLine, pair: tuple[str, str]
) -> None:
    done = cli.run("explain", pair[1], "--json")  # compared with its own baseline
    assert (done.code, "Traceback" in done.err) == (0, False)
    found = done.document
    assert (found["baseline"], found["candidate"], found["state"]) == (*pair, "COMPLETE")
    assert sum(row["difference_s"] for row in found["rows"]) == pytest.approx(found["end"]["difference_s"])
    assert found["sentence"]
    fused = next(one for one in found["groups"] if one["model"] == ["conv1", "relu1"])
    assert [node["op_type"] for node in fused["candidate"]] == ["FusedConv"]
    again = cli.run("explain", *pair, "--json", "-q")
    assert again.document["rows"] == found["rows"]
    assert again.err == ""


def test_people_read_a_sentence_a_table_and_what_to_doubt(cli: CommandLine, pair: tuple[str, str]) -> None:
    done = cli.run("explain", pair[0][:8], pair[1][:8], "--top", "2")
    assert done.code == 0
    found = cli.run("explain", *pair, "--json", "-q").document
    assert found["sentence"] in " ".join(done.out.split())
    assert "--top" in done.out, "there are more groups of nodes"
    assert all(note in " ".join(done.out.split()) for note in found["notes"])
    assert "profile" in done.err or done.err == ""


def test_two_that_were_never_compared_get_a_comparison_instead_of_a_ratio(
    cli: CommandLine, pair: tuple[str, str], tmp_path: Path
) -> None:
    alone = put(cli, tmp_path / "conv.onnx", "dddddddd44444444", level=LEVELS[1], p50_s=1e-4)
    done = cli.run("explain", pair[0], alone)
    assert done.code == 0, done.err
    assert "× faster" not in done.out
    assert f"--baseline {pair[0]} --candidate {alone}" in done.out
    found = cli.run("explain", pair[0], alone, "--json").document
    assert (found["rows"], found["groups"], found["moves"]) == ([], [], [])
    assert found["measure_longer"] is None


@pytest.mark.parametrize(
    ("other", "said"),
    [("aaaaaaaa11111111", "Both sides are trial"), ("nosuchtrial", "There is no trial")],
)
def test_what_cannot_be_explained_is_bad_input(
    cli: CommandLine, pair: tuple[str, str], other: str, said: str
) -> None:
    done = cli.run("explain", pair[0], other)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_failed_trial_has_nothing_to_explain(
    cli: CommandLine, pair: tuple[str, str], tmp_path: Path
) -> None:
    failed = put(cli, tmp_path / "conv.onnx", "cccccccc33333333", level=LEVELS[0], p50_s=1e-4, state="FAIL")
    done = cli.run("explain", pair[0], failed, "--json")
    assert done.code == 2
    assert "FAIL" in done.document["error"]["message"]


def test_a_model_that_is_gone_is_an_error_of_its_own(
    cli: CommandLine, pair: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "conv.onnx").unlink()
    done = cli.run("explain", *pair)
    assert done.code == 2
    assert "conv.onnx" in done.err


def test_ctrl_c_leaves_nothing_behind(cli: CommandLine, pair: tuple[str, str]) -> None:
    process = cli.start("explain", *pair, "--json")
    wait_until(lambda: works(process) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode in (130, 0), err  # 0: it was quicker
    assert "Traceback" not in err
    assert cli.left_over() == []
    if process.returncode:
        assert '"state":"CANCELLED"' in out


def test_a_trial_that_was_compared_with_nothing_is_not_explained_alone(
    cli: CommandLine, pair: tuple[str, str]
) -> None:
    done = cli.run("explain", pair[0])
    assert (done.code, "compared with nothing" in done.err) == (2, True)
    done = cli.run("explain", *pair, pair[0])
    assert (done.code, "got 3" in done.err) == (2, True)
