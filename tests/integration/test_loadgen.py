"""The cross-check with LoadGen; in a worker of its own where an inference fails or hangs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.evidence.load.loadgen_result import LABEL
from core.process.job_worker import Progress, run_job
from core.run.load.loadgen import LoadGenTest, cross_check, loadgen_plan, run_loadgen
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import Cancelled, ModelError, SpecError, WorkerError
from tests import in_process
from tests.builders import feed_plan, one_input

MODEL = Path(__file__).parents[2] / "sample_models" / "digits_cnn.onnx"
ROWS = 16

# A worker in which the inferences of LoadGen do something else from the 50th on; the lines replace `...`.
OTHER_CALLS = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a worker enters its sandbox with a single thread
from dataclasses import replace
from core.worker import __main__ as worker
from core.worker.measure import loadgen

run_test = loadgen.run_test

def with_other_calls(plan, calls, *rest):
    count = 0
    def call():
        nonlocal count
        count += 1
        if count >= 50:
            ...
        return calls[0]()
    return run_test(plan, [call], *rest)

loadgen.run_test = with_other_calls
worker.main()
"""


def configuration(**changes: Any) -> Any:
    session = {**wire.default_session_plan(), "attributes": {"intra_op_num_threads": 1}}
    return {
        "engine": "onnxruntime",
        "model_path": str(MODEL),
        "torch": None,
        "session": session,
        "feeds": feed_plan(one_input("image", shape=(ROWS, 1, 8, 8))),
        "use_io_binding": False,
        "warmup_runs": 5,
        "cpus": [],
        **changes,
    }


def plan(scenario: str = "SingleStream", *, of: Any = None, **test: Any) -> wire.LoadGenPlan:
    asked = {"duration_s": 0.4, "rate": 200.0, "limit_s": 0.5, **test}
    return loadgen_plan(of or configuration(), LoadGenTest(scenario=scenario, **asked))


def worker(lines: str, code: str = OTHER_CALLS) -> list[str]:
    return [sys.executable, "-P", "-c", code.replace("...", textwrap.dedent(lines).strip())]


@pytest.mark.parametrize("scenario", ["SingleStream", "MultiStream", "Server", "Offline"])
def test_every_scenario_measures_the_session(scenario: str) -> None:
    seen: list[Progress] = []
    run = partial(in_process.run, on_progress=seen.append)
    reply = run_loadgen(plan(scenario, streams=2), run)
    assert reply["scenario"] == reply["settings"]["scenario"].replace(" ", "") == scenario
    assert reply["batch_size"] == ROWS
    assert reply["effective_providers"] == ["CPUExecutionProvider"]
    assert (reply["queries_met"], reply["errors"]) == (True, 0)
    latency = reply["latency_s"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"] <= reply["seconds"]
    per_query = {"MultiStream": 8, "Offline": reply["inferences"]}.get(scenario, 1)
    assert reply["inferences"] == reply["queries"] * per_query
    # the batch is counted once: a rate in other units would differ by a factor of 16
    assert 1 / 8 < reply["samples_per_s"] * reply["seconds"] / (reply["inferences"] * ROWS) < 8
    assert seen[0].stage == "LoadGen"


def test_a_closed_loop_agrees_with_the_latency_of_the_session() -> None:
    one = run_loadgen(plan("SingleStream"), in_process.run)
    eight = run_loadgen(plan("MultiStream"), in_process.run)
    assert one["valid"]
    # a closed loop is never faster than its latency allows, and a busy machine may delay its next query
    assert 1 / 12 < one["samples_per_s"] * one["latency_s"]["mean"] / ROWS < 1.05
    assert eight["latency_s"]["mean"] > 2 * one["latency_s"]["min"]  # of the whole query, not of an inference


def test_a_limit_that_no_inference_meets_is_invalid_in_loadgens_words() -> None:
    reply = run_loadgen(plan("Server", limit_s=1e-6), in_process.run)
    assert (reply["valid"], reply["limit_met"]) == (False, False)
    assert reply["over_limit"] == reply["queries"] > 20
    assert reply["reasons"][0] == "Reduce target QPS to improve latency."


def test_the_arrivals_are_those_of_the_rate_and_the_seed() -> None:
    first, again, other = (run_loadgen(plan("Server", seed=seed), in_process.run) for seed in (1, 1, 2))
    assert first["settings"]["target_qps"] == 200
    assert first["queries"] == again["queries"] != other["queries"]
    assert 40 <= first["queries"] <= 130  # 80 are expected


def test_io_binding_gives_every_stream_its_own_outputs() -> None:
    of = configuration(use_io_binding=True)
    assert run_loadgen(plan("Offline", of=of, streams=3), in_process.run)["inferences"] > 10


def test_an_exception_of_an_inference_ends_the_test_as_an_error() -> None:
    raising = "from core.wire.errors import ModelError as E; raise E('The run failed.', hint='Try.')"
    with pytest.raises(ModelError, match=r"The run failed\."):
        run_job(wire.LOADGEN, plan(duration_s=60.0), command=worker(raising))


def test_an_exception_that_is_no_error_of_ours_is_no_crash() -> None:
    with pytest.raises(WorkerError, match="ZeroDivisionError"):
        run_job(wire.LOADGEN, plan(duration_s=60.0), command=worker("1 / 0"))


def test_an_inference_that_never_ends_is_an_error_with_what_was_measured() -> None:
    asked = {**plan("Server", duration_s=1.0), "timeout_s": 2.0}
    with pytest.raises(
        WorkerError, match=r"LoadGen has not ended the scenario Server within 2 s: [1-9]\d* of \d+ issued"
    ):
        run_job(wire.LOADGEN, asked, command=worker("import threading; threading.Event().wait()"))


def test_a_cancel_ends_loadgen_in_the_middle() -> None:
    cancel = threading.Event()

    def after_some(progress: Progress) -> None:
        if progress.stage == "LoadGen" and progress.done > 0:
            cancel.set()

    with pytest.raises(Cancelled):
        run_job(wire.LOADGEN, plan(duration_s=60.0), cancel=cancel, on_progress=after_some)


def spec(**workload: Any) -> TrialSpec:
    session = {"intra_op_num_threads": 1}
    return spec_from_dict({"model": {"path": str(MODEL)}, "session": session, "workload": workload})


def test_a_configuration_is_checked_in_several_scenarios(tmp_path: Path) -> None:
    tests = [
        LoadGenTest(scenario="Offline", duration_s=0.2),
        LoadGenTest(scenario="Server", duration_s=0.3, rate=200.0, limit_s=1e-6),
    ]
    found = cross_check(spec(batch_size=ROWS), tests, store=Store(tmp_path / "s.db"), run=in_process.run)
    assert [one["scenario"] for one in found["tests"]] == ["Offline", "Server"]
    assert {one["batch_size"] for one in found["tests"]} == {ROWS}
    assert (found["verdict"], found["label"]) == ("FAIL", LABEL)
    assert found["words"].startswith(f"{LABEL}: LoadGen ")


def test_all_tests_are_checked_before_the_first_begins(tmp_path: Path) -> None:
    started: list[str] = []

    def run(job: Any, payload: Any, **how: Any) -> Any:
        started.append(job)
        return in_process.run(job, payload, **how)

    tests = [LoadGenTest(scenario="Offline", duration_s=0.2), LoadGenTest(scenario="Server", duration_s=0.2)]
    with pytest.raises(SpecError, match="needs a rate"):
        cross_check(spec(), tests, store=Store(tmp_path / "s.db"), run=run)
    assert wire.LOADGEN not in started


def test_a_missing_package_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['mlperf_loadgen'] = None; from core.worker import __main__ as w; w.main()"
    with pytest.raises(SpecError, match="`mlperf_loadgen`, which is not installed") as caught:
        run_job(wire.LOADGEN, plan(), command=[sys.executable, "-P", "-c", code])
    assert "pip install '.[loadgen]'" in caught.value.hint


def test_loadgen_itself_dies_of_an_exception_in_a_callback(tmp_path: Path) -> None:
    """The reason for the guards; when this fails, LoadGen has become friendlier."""
    code = """
    import mlperf_loadgen as loadgen
    settings = loadgen.TestSettings()
    settings.scenario, settings.min_duration_ms = loadgen.TestScenario.SingleStream, 100
    output = loadgen.LogOutputSettings()
    output.outdir = OUT
    logs = loadgen.LogSettings()
    logs.log_output = output
    system = loadgen.ConstructSUT(lambda samples: 1 / 0, lambda: None)
    library = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
    loadgen.StartTestWithLogSettings(system, library, settings, logs)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code).replace("OUT", repr(str(tmp_path)))],
        capture_output=True,
        check=False,
    )
    assert done.returncode < 0
