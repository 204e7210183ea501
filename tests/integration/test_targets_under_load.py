"""Targets under load with real traffic: the scorecard runs load tests, keeps them, and reuses them.

A busy machine may delay a run so much that it is no measurement; then its target is not yet known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.evidence.load import target_points
from core.store import STORE_NAME, Store
from tests import tiny_models
from tests.command_line import CommandLine

PASSES, FAILS = "40/s with p50<=400ms", "40/s with p60<=0.1ms"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that takes some milliseconds, so that the harness adds little in comparison."""
    return str(tiny_models.steady(tmp_path_factory.mktemp("model") / "steady.onnx", trips=8000))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_points, "LEAST_S", 2.0)


def card(folder: Path, model: str, *targets: str, more: str = "") -> str:
    path = folder / "card.yaml"
    listed = "".join(f"- load: {one}\n" for one in targets)
    path.write_text(f"schema: 1\nmodel: {{path: {model}}}\n{more}targets:\n{listed}")
    return str(path)


def rejected(judged: dict[str, Any]) -> bool:
    """Whether other programs spoiled the run; its reason must say so."""
    spoiled = judged["cause"] in ("rejected", "busy")
    assert not spoiled or judged["why"].startswith(("Not a measurement", "Measured under"))
    return spoiled


def test_the_scorecard_runs_a_load_test_and_reuses_it(cli: CommandLine, slow: str, tmp_path: Path) -> None:
    config = card(tmp_path, slow, PASSES, FAILS)
    done = cli.run("scorecard", config, "--json")
    passes, fails = done.document["targets"]
    assert passes["target"] == {"load": PASSES}
    assert rejected(passes) or passes["state"] == "MET", passes
    assert rejected(fails) or fails["state"] == "MISSED", fails
    assert done.code == (EXIT_FAILED if fails["state"] == "MISSED" else EXIT_UNDECIDED)
    assert "a load test of" in done.err
    store = Store(cli.home / STORE_NAME)
    kept = store.trials(kind="load")
    assert len(kept) == 1  # one for both targets at this rate
    assert done.document["trials"] == [kept[0].id]
    assert kept[0].facts["load"]["question"]["limits"] == ["p50<=400ms", "p60<=0.1ms"]  # type: ignore[typeddict-item]
    again = cli.run("scorecard", config, "--json", "--reuse")
    open_ = any(one["state"] == "UNKNOWN" for one in (passes, fails))
    assert len(store.trials(kind="load")) == 1 + open_
    assert open_ or again.document["targets"] == done.document["targets"]
    other = cli.run("scorecard", config, "--json", "--reuse", "--intra-op-num-threads", "1")
    assert other.document["trials"] != done.document["trials"]  # other settings, another load test


def test_dynamic_batching_is_part_of_what_a_load_test_runs(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    batching = "dynamic_batching: {max_batch_size: 8, max_queue_delay_microseconds: 20000}\n"
    done = cli.run("scorecard", card(tmp_path, mlp, "300/s with p50<=400ms", more=batching), "--json")
    [trial] = done.document["trials"]
    found: Any = Store(cli.home / STORE_NAME).trial(trial).facts
    [run] = found["load"]["runs"]
    assert found["load"]["configurations"][0]["spec"]["dynamic_batching"]["max_batch_size"] == 8
    assert max(map(int, run["batches"])) > 1  # 20 ms of waiting join some of 300 requests per second
    plain = cli.run("scorecard", card(tmp_path, mlp, "300/s with p50<=400ms"), "--json", "--reuse")
    assert plain.document["trials"] != [trial]


def test_a_configuration_that_cannot_run_says_why(cli: CommandLine, mlp: str, tmp_path: Path) -> None:
    more = "session: {providers: [{name: CUDAExecutionProvider}]}\n"
    done = cli.run("scorecard", card(tmp_path, mlp, PASSES, more=more), "--json")
    assert done.code == EXIT_UNDECIDED
    [judged] = done.document["targets"]
    assert judged["cause"] == "failed"
    assert "CUDAExecutionProvider" in judged["why"]
    assert "Traceback" not in done.err


def test_dynamic_batching_of_a_model_with_a_fixed_batch_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    fixed = str(tiny_models.fixed_batch(tmp_path / "fixed.onnx"))
    config = card(tmp_path, fixed, PASSES, more="dynamic_batching: {max_batch_size: 4}\n")
    done = cli.run("scorecard", config, "--json")
    [judged] = done.document["targets"]
    assert (done.code, judged["cause"]) == (EXIT_UNDECIDED, "failed")
    assert "fixed at 2" in judged["why"]
    refused = cli.run("load", "--config", config, "--rate", "40")
    assert refused.code == EXIT_BAD_INPUT
    assert "fixed at 2" in refused.err


def test_a_search_runs_its_answer_under_traffic(cli: CommandLine, slow: str, tmp_path: Path) -> None:
    vary = ("--vary", "enable_cpu_mem_arena=on,off", "--budget", "8s", "--extend")
    done = cli.run("search", slow, *vary, "--load", PASSES, "--json")
    load = done.document["load"]
    assert load["tested"] or done.document["outcome"] == "UNDECIDED"
    for one in load["tested"]:
        assert one["state"] in ("MET", "UNKNOWN"), one  # the limit is lax, if the machine is not too busy
        assert Store(cli.home / STORE_NAME).trial(one["trial"]).kind == "load"
    assert load["seconds"] >= 2 * len(load["tested"])  # of traffic, in addition to the budget
