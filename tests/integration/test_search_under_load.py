"""`search --load`: the best configurations under traffic until one passes. Load tests have given results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.evidence.comparison import Configuration
from core.evidence.load.load_types import LoadVerdict
from core.run import job_types
from core.run.job import Ending, Job, Outcome, Service
from core.run.search import answer as answers
from core.spec import TrialSpec, spec_from_dict, spec_from_yaml
from core.spec.load import LoadSpec
from core.wire.errors import WorkerError
from tests import simulated_clock
from tests.command_line import CommandLine, Done
from tests.integration.test_search_cli import FEW, binding_pays, store_of
from tests.simulated_load import sample_load_result, sample_point, sample_run

pytestmark = pytest.mark.usefixtures("jobs_at_once")

ASKED = "200/s with p99<=20ms"
Verdict = Callable[[TrialSpec], LoadVerdict]
Asked = list[tuple[TrialSpec, LoadSpec]]


@pytest.fixture(autouse=True)
def clock() -> Iterator[simulated_clock.Clock]:
    with simulated_clock.machine(binding_pays) as found:
        yield found


def load_tests(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict, *, during: Callable[[Service], None] | None = None
) -> Asked:
    """Give every load test the verdict of its configuration; return what is asked."""
    asked: Asked = []

    def load(
        configurations: Sequence[Configuration], load: LoadSpec, *, model_name: str, wait_quiet_s: float = 0.0
    ) -> Job:
        [one] = configurations
        asked.append((one.spec, load))
        trial = job_types._trial(one.spec, kind="load", model_name=model_name)

        def work(service: Service) -> Outcome:
            if during is not None:
                during(service)
            run = sample_run(load.rates[0])
            run["limits"][0]["verdict"] = verdict(one.spec)
            found = sample_load_result("traffic")
            found["runs"], found["points"] = [run], [sample_point(run, 0)]
            found["configurations"] = found["configurations"][:1]
            machine = service.environment()
            result = {"load": found, "environment": machine, "fingerprint": machine["fingerprint"]}
            done = Ending(state="COMPLETE", result=result)
            return Outcome(whole=Ending(state="COMPLETE"), trials={trial.id: done})

        return Job(id=trial.id, kind="load", what="load test", work=work, trials=(trial,), specs=(one.spec,))

    monkeypatch.setattr(job_types, "load", load, raising=False)
    return asked


def passes(spec: TrialSpec) -> LoadVerdict:
    return "PASS"


def bound_fails(spec: TrialSpec) -> LoadVerdict:
    return "FAIL" if spec.workload.use_io_binding else "PASS"


def search(cli: CommandLine, model: Path, *more: str) -> Done:
    return cli.run("search", str(model), *FEW, "--load", ASKED, "--json", *more)


def roles(done: Done) -> list[str]:
    return [one["role"] for one in done.document["load"]["tested"]]


def test_the_winner_that_passes_is_the_answer(
    cli: CommandLine, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_tests(monkeypatch, passes)
    best = tmp_path / "best.yaml"
    done = search(cli, square, "-o", str(best))
    assert done.code == 0, done.err
    load, winner = done.document["load"], done.document["winner"]
    [(spec, test)] = asked
    assert spec.workload.use_io_binding
    assert (test.rates, [one.text for one in test.limits], test.duration_s) == ((200,), ["p99<=20ms"], 30)
    assert test.rows == {3: 1.0}  # the model's batch: the same requests for all
    assert (load["target"], load["passed"], roles(done)) == (ASKED, 0, ["winner"])
    assert load["tested"][0]["changes"] == winner["changes"]
    assert load["tested"][0]["gain"] == winner["gain"]
    assert "6,000 requests" in load["words"]
    assert "passes 200 requests/s with p99 ≤ 20 ms" in load["words"]
    assert "load tests of 30 s each" in done.err  # before it begins
    assert f"trial {winner['trial']}" in best.read_text()
    text = cli.run("searches", "show", done.document["study"])
    assert load["words"].split(":")[0] in " ".join(text.out.split())


def test_after_a_failure_the_next_best_are_run_and_the_default_at_last(
    cli: CommandLine, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_tests(monkeypatch, bound_fails)
    best = tmp_path / "best.yaml"
    done = search(cli, square, "-o", str(best))
    assert done.code == 0, done.err
    load = done.document["load"]
    assert roles(done) == [
        "winner",
        "survivor",
        "default",
    ]  # the two that are bound, one of them without arena
    assert [one["state"] for one in load["tested"]] == ["MISSED", "MISSED", "MET"]
    assert len({spec.key() for spec, _ in asked}) == 3
    assert load["passed"] == 2
    assert (load["tested"][2]["changes"], load["tested"][2]["gain"]) == ({}, None)
    assert load["words"].startswith(
        "The fastest that passes 200 requests/s with p99 ≤ 20 ms is ONNX Runtime's"
    )
    assert "2 faster ones do not" in load["words"]
    assert not best.exists()
    assert "no better configuration passes" in done.err


def test_a_survivor_that_passes_is_exported(
    cli: CommandLine, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_tests(monkeypatch, lambda _: "PASS" if len(asked) > 1 else "FAIL")
    best = tmp_path / "best.yaml"
    done = search(cli, square, "-o", str(best))
    assert done.code == 0, done.err
    assert roles(done) == ["winner", "survivor"]
    passed = done.document["load"]["tested"][1]
    assert passed["changes"] != done.document["winner"]["changes"]
    text = best.read_text()
    assert f"trial {passed['trial']}" in text
    assert spec_from_yaml(text) == spec_from_dict(passed["spec"])
    assert "ecdf" not in text


@pytest.mark.parametrize(
    ("verdict", "code", "words"),
    [("FAIL", EXIT_FAILED, "passes"), ("UNDECIDED", EXIT_UNDECIDED, "is known to pass")],
)
def test_where_none_passes_the_exit_code_says_so(
    cli: CommandLine,
    square: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verdict: LoadVerdict,
    code: int,
    words: str,
) -> None:
    load_tests(monkeypatch, lambda _: verdict)
    best = tmp_path / "best.yaml"
    done = search(cli, square, "-o", str(best))
    assert done.code == code, done.err
    load = done.document["load"]
    assert load["passed"] is None
    assert roles(done)[0] == "winner"
    assert roles(done)[-1] == "default"
    assert f"None of {len(load['tested'])} tested configurations {words}" in load["words"]
    assert not best.exists()
    table = cli.run("searches", "show", done.document["study"], "--wide")
    assert table.out.count("requests were slower") >= len(load["tested"])


def test_where_nothing_is_faster_the_default_comes_first(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "outcome", lambda *_, **__: ("NO_DIFFERENCE", None))
    asked = load_tests(monkeypatch, lambda _: "PASS" if len(asked) > 1 else "FAIL")
    done = search(cli, square)
    assert done.code == 0, done.err
    assert roles(done) == ["default", "survivor"]
    assert done.document["load"]["passed"] == 1


def test_a_default_that_misses_a_constraint_is_not_run(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "limits_state", lambda limits: "MISSED" if limits else "MET")
    judge = answers.judged_limits
    missed = [
        {"limit": "x", "state": "MISSED", "probability": None, "value": None, "low": None, "high": None}
    ]
    monkeypatch.setattr(
        answers,
        "judged_limits",
        lambda one, question: judge(one, question) if one.changes else [{**missed[0], "why": ""}],
    )
    load_tests(monkeypatch, lambda _: "FAIL")
    done = search(cli, square)
    assert done.code == EXIT_FAILED, done.err
    assert set(roles(done)) == {"winner", "survivor"}


def test_without_a_configuration_that_keeps_the_limits_nothing_is_run(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_tests(monkeypatch, passes)
    monkeypatch.setattr(answers, "outcome", lambda *_, **__: ("NONE_KEEPS_LIMITS", None))
    done = search(cli, square)
    assert done.code == EXIT_FAILED
    assert asked == []
    load = done.document["load"]
    assert (load["tested"], load["passed"]) == ([], None)
    assert "confirmed no configuration" in load["words"]


def test_its_time_is_no_part_of_the_budget(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch, clock: simulated_clock.Clock
) -> None:
    load_tests(monkeypatch, passes, during=lambda _: clock.sleep(1000.0))
    done = search(cli, square)
    assert done.code == 0, done.err
    assert done.document["load"]["seconds"] >= 999
    assert done.document["wall_s"] < 100


def test_a_load_test_that_fails_is_an_open_answer(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(service: Service) -> None:
        raise WorkerError("The worker crashed.", hint="")

    load_tests(monkeypatch, passes, during=crash)
    done = search(cli, square)
    assert done.code == EXIT_UNDECIDED
    load = done.document["load"]
    assert {one["state"] for one in load["tested"]} == {"UNKNOWN"}
    assert "The worker crashed." in load["tested"][0]["why"]
    assert done.document["outcome"] == "FOUND"


def test_a_cancel_during_a_load_test_keeps_the_confirmed_answer(
    cli: CommandLine, square: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_tests(monkeypatch, passes, during=lambda service: service.cancel.set())
    done = search(cli, square)
    found = store_of(cli).studies()[0]
    assert found.answer is not None, done.err
    assert found.answer["outcome"] == "FOUND"
    assert "cancelled" in found.answer["load"]["words"]


def test_a_target_of_the_configuration_is_asked_for(
    cli: CommandLine, square: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = load_tests(monkeypatch, passes)
    config = tmp_path / "c.yaml"
    config.write_text(
        f"schema: 1\nmodel: {{path: {square}}}\n"
        "targets: [{load: 150/s with p99<=20ms}, {load: 250/s with p99<=20ms}]\n"
    )
    done = cli.run("search", "--config", str(config), *FEW, "--json")
    assert done.code == 0, done.err
    assert [test.rates for _, test in asked] == [(150,)]
    assert done.document["question"]["load"] == "150/s with p99<=20ms"
    assert "`150/s with p99<=20ms` only" in done.err


@pytest.mark.parametrize("wrong", ["200/s", "200/s with p99<=20", "0/s with p99<=20ms", "fast"])
def test_traffic_that_cannot_be_read_is_bad_input(cli: CommandLine, square: Path, wrong: str) -> None:
    done = cli.run("search", str(square), *FEW, "--load", wrong)
    assert done.code == EXIT_BAD_INPUT
    assert "200/s with p99<=20ms" in done.err or "20ms" in done.err
    assert "Traceback" not in done.err
