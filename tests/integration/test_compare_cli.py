"""`compare` and `bench --baseline`, run for real: the configurations, the output, and the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.api.references import config_from
from core.api.requests import announce, baseline_of, labels, named, report_precision
from core.api.session import Session
from core.cli.compare import check_slower_limit
from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.cli.sheets import lines
from core.cli.watch import Progress
from core.evidence import continuation
from core.evidence.comparison import (
    DEFAULT_LABEL,
    Comparison,
    Configuration,
    Contestant,
    has_undecided,
)
from core.evidence.measurement import Trial
from core.run.prediction import history_of
from core.show.output_types import Limit
from core.show.sheets.comparisons import comparison_sheet
from core.spec import spec_from_dict
from core.store import STORE_NAME, Store
from core.wire.errors import SpecError
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine, Done, await_rounds
from tests.simulated_clock import Model
from tests.waiting import WAIT_S

CUDA = "CUDAExecutionProvider"
QUICK = ("--runs", "40", "--warmup-runs", "2")
NEVER: Any = SimpleNamespace(store=None, note=print)  # a session whose store is not needed


def measured(done: Done) -> Done:
    """Measured, whatever the verdict: under background load it may be UNDECIDED."""
    assert done.code in (0, EXIT_UNDECIDED), done.err
    assert "Traceback" not in done.err
    return done


# --- whom a reference means -------------------------------------------------------------------------------


@pytest.fixture
def yaml_file(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: 1\nmodel: {path: m.onnx}\nsession: {intra_op_num_threads: 2}\n"
        "workload: {batch_size: 8, use_io_binding: true}\nprotocol: {precision: publish, warmup_runs: 3}\n"
    )
    return str(path)


def test_presets_and_pytorch_take_model_and_workload_of_the_file(yaml_file: str) -> None:
    refs = ["preset:default", yaml_file, "preset:cpu-throughput", "torch:compile"]
    default, mine, throughput, torch = named(refs, model=None, given={}, session=NEVER)
    assert {one.model.path for one in (default, mine, throughput, torch)} == {"m.onnx"}
    assert (default.workload.batch_size, default.workload.use_io_binding) == (8, True)
    assert default.session == spec_from_dict({"model": {"path": "x"}}).session
    assert throughput.workload.batch_size == 16  # the preset's own
    assert (torch.engine, torch.workload.batch_size, torch.workload.use_io_binding) == (
        "torch-compile",
        8,
        False,
    )


def test_options_hold_for_everybody_and_alone_say_how_well(yaml_file: str) -> None:
    given = {"batch_size": "4", "budget_s": "60s"}
    found = named(["preset:edge", yaml_file], model="other.onnx", given=given, session=NEVER)
    assert {(one.workload.batch_size, one.model.path) for one in found} == {(4, "other.onnx")}
    assert {(one.protocol.effort, one.protocol.budget_s) for one in found} == {("quick", 60)}
    assert found[1].protocol.warmup_runs == 3


def test_a_baseline_gets_the_workload_of_the_command_line_and_not_its_session(yaml_file: str) -> None:
    candidate = spec_from_dict(
        {
            "model": {"path": "m.onnx"},
            "workload": {"batch_size": 4},
            "session": {"intra_op_num_threads": 1},
        }
    )
    given: dict[str, Any] = {"batch_size": "4", "intra_op_num_threads": "1", "provider_options": []}
    rival = baseline_of("preset:edge", candidate, given, NEVER)
    assert (rival.label, rival.role) == ("preset:edge", "baseline")
    assert rival.spec.workload.batch_size == 4
    assert rival.spec.session.graph_optimization_level == "ORT_ENABLE_BASIC"
    mine = baseline_of(yaml_file, candidate, given, NEVER)
    assert (mine.spec.session.intra_op_num_threads, mine.spec.workload.batch_size) == (2, 4)


@pytest.mark.parametrize(
    ("refs", "words"),
    [
        (["preset:default"], "No model is given"),
        (["preset:nothing"], "Unknown preset `nothing`"),
        (["torch:fast"], "torch:eager or torch:compile"),
        (["gone.yaml"], "cannot be read"),
    ],
)
def test_references_that_mean_nothing_are_refused(refs: list[str], words: str) -> None:
    with pytest.raises(SpecError) as caught:
        named(refs, model=None, given={}, session=NEVER)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_reference_that_is_no_file_is_a_trial(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    with pytest.raises(SpecError, match="`abcdef`"):
        config_from("abcdef", store)


@pytest.mark.parametrize("ref", ["model:digits_cnn", "preset:edge"])
def test_a_name_without_the_word_before_it_is_answered_with_it(ref: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    with pytest.raises(SpecError) as caught:
        config_from(ref.partition(":")[2], store)
    assert caught.value.hint == f"Write `{ref}`."


def test_the_same_reference_twice_has_two_names() -> None:
    refs = ["preset:edge", "preset:default", "preset:edge", "preset:edge"]
    assert labels(refs) == ["preset:edge", "preset:default", "preset:edge (2)", "preset:edge (3)"]


# --- limits and verdicts ----------------------------------------------------------------------------------


def comparison(**ratios: tuple[float | None, float | None]) -> Comparison:
    """A comparison whose candidates have these intervals of baseline latency over their own."""
    contrasts = [
        {
            "candidate": name,
            "baseline": "base",
            "ratio": ((low or 1) + (high or 1)) / 2,
            "ratio_low": low,
            "ratio_high": high,
            "verdict": "UNDECIDED" if low is None or high is None or low <= 1 <= high else "FASTER",
            "rounds": 16,
            "generations": 8,
            "sigma": 0.01,
            "sigma_between": 0.003,
            "between_from": "race",
            "margin": 0.02,
            "half_width": 0.01,
            "within_half_width": 0.008,
            "between_half_width": 0.006,
            "holds": True,
            "holds_reason": "",
            "contradicted": False,
            "outputs_differ": False,
            "notes": [],
            "grade": "A",
            "wall_s": 9.0,
        }
        for name, (low, high) in ratios.items()
    ]
    result = {
        "contrasts": contrasts,
        "ranks": [],
        "notes": [],
        "grade": "A",
        "grade_reason": "Quiet.",
        "remedy": "",
        "busy": None,
        "generations": [{"generation": number, "rounds": 2} for number in range(8)],
        "rounds": 16,
        "wall_s": 9.0,
    }
    return Comparison(
        id="c" * 16,
        state="COMPLETE",
        model_name="m",
        model_sha256="",
        contestants=(
            *(Contestant(trial=name, label=f"the {name}", role="candidate") for name in ratios),
            Contestant(trial="base", label="the base", role="baseline"),
        ),
        protocol={"runs": None, "target": 0.03},
        created_at=0.0,
        result=result,
    )


@pytest.mark.parametrize(
    ("interval", "broken", "still_open"),
    [
        ((1.01, 1.05), False, False),
        ((0.985, 1.05), False, False),  # 2 % slower is 1/1.02 = 0.980
        ((0.975, 1.05), False, True),
        ((0.90, 0.979), True, False),
        ((0.90, 0.985), False, True),
        ((0.985, 0.995), False, False),  # surely slower, and by less
        ((0.9802, 1.05), False, True),
        ((1 / 1.02, 1.05), False, False),  # the limit itself is allowed
        ((0.90, 1 / 1.02), False, True),
        ((None, None), False, True),
        ((None, 0.9), False, True),
        ((0.9, None), False, True),
    ],
)
def test_a_limit_is_broken_held_or_open(
    interval: tuple[float | None, float | None], broken: bool, still_open: bool
) -> None:
    assert check_slower_limit(comparison(one=interval), 0.02) == Limit(
        limit=0.02, passed=not (broken or still_open), broken=["one"] * broken, open=["one"] * still_open
    )


@pytest.mark.parametrize("doubt", [{"contradicted": True}, {"holds": False}])
def test_a_doubtful_verdict_and_a_missing_one_leave_the_limit_open(doubt: dict[str, bool]) -> None:
    found = comparison(one=(0.5, 0.6), two=(1.1, 1.2))
    assert found.result is not None
    found.result["contrasts"][0] |= doubt
    del found.result["contrasts"][1]
    assert check_slower_limit(found, 0.02) == Limit(limit=0.02, passed=False, broken=[], open=["one", "two"])


def test_each_of_several_is_judged_and_what_they_are_put_against_is_not() -> None:
    found = check_slower_limit(
        comparison(open=(0.5, 1.5), broken=(0.5, 0.6), check_slower_limit=(1.1, 1.2)), 0.02
    )
    assert found == Limit(limit=0.02, passed=False, broken=["broken"], open=["open"])
    assert check_slower_limit(replace(comparison(one=(1.1, 1.2)), result={"contrasts": []}), 0.02).open == [
        "one"
    ]


def test_an_answer_is_unsure_when_undecided_or_rejected() -> None:
    assert not has_undecided(comparison(one=(1.1, 1.2)))
    assert has_undecided(comparison(one=(1.1, 1.2), two=(0.9, 1.2)))
    lost = comparison(one=(1.1, 1.2))
    assert lost.result is not None
    lost.result["contrasts"] = []  # the baseline crashed
    assert has_undecided(lost)
    rejected = comparison(one=(1.1, 1.2))
    assert rejected.result is not None
    rejected.result["contrasts"][0] |= {"verdict": "UNDECIDED", "holds": False, "grade": "F"}
    assert has_undecided(rejected)
    coarse = comparison(one=(1.1, 1.2))
    assert coarse.result is not None
    coarse.result.update(grade="C", busy={"words": "under background load: others used 1.6 cores"})
    assert not has_undecided(coarse), "what made the machine busy changes no verdict"


def trial(name: str, **changes: Any) -> Trial:
    facts: dict[str, Any] = {
        "id": name,
        "kind": "measure",
        "state": "COMPLETE",
        "spec": {"model": {"path": "m.onnx"}},
        "model_name": "m",
        "model_sha256": "",
        "key": "",
        "created_at": 0.0,
        "result": {"latency": {"p50_s": 0.001}, "throughput_per_s": 1000.0},
    }
    return Trial(**{**facts, **changes})


def test_table_shows_verdicts_ties_and_what_to_doubt() -> None:
    found = comparison(one=(1.1, 1.2), two=(0.9, 1.2))
    assert found.result is not None
    found.result["ranks"] = [
        {"trial": "one", "rank": 1, "ties": ["two"]},
        {"trial": "two", "rank": 1, "ties": ["one", "base"]},
        {"trial": "base", "rank": 2, "ties": ["two"]},
    ]
    found.result["contrasts"][1] |= {"outputs_differ": True, "notes": ["outputs differ: largest error 0.5"]}
    error = {"type": "WorkerError", "message": "It crashed.", "hint": ""}
    trials = [trial("one"), trial("two", state="FAIL", error=error, result=None)]
    text = "\n".join(lines(comparison_sheet(found, trials)))
    for words in (
        "grade A",
        "× faster, 95 % CI [1.10, 1.20]",
        "failed",
        "1–2",
        "leave these places open",
        "outputs differ",
        "the two: outputs differ: largest error 0.5",
        "FAIL; It crashed.",
        "baseline",
        "deleted",
    ):
        assert words in text


# --- run for real -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared(
    tmp_path_factory: pytest.TempPathFactory, acquainted: Path, mlp: str
) -> tuple[CommandLine, Done]:
    """A command line that has compared once, and what it said."""
    line = CommandLine(tmp_path_factory.mktemp("compared"), acquainted)
    done = line.run(
        *("compare", mlp, "--baseline", "preset:default", "--candidate", "preset:edge"),
        *("--candidate", "preset:cpu-latency", "--batch-size", "2", *QUICK, "--json"),
    )
    return line, measured(done)


def test_compare_prints_one_document_with_contrasts_ranks_and_trials(
    compared: tuple[CommandLine, Done],
) -> None:
    cli, done = compared
    document = done.document
    assert document["state"] == "COMPLETE"
    assert [one["label"] for one in document["contestants"]] == [
        "preset:edge",
        "preset:cpu-latency",
        "preset:default",
    ]
    baseline = document["contestants"][2]["trial"]
    assert [one["baseline"] for one in document["contrasts"]] == [baseline] * 2
    assert {one["batch_size"] for one in document["trials"]} == {2}
    assert all(len(one["latencies_s"]) == 40 for one in document["trials"])
    assert document["rounds"] == len(document["orders"]) > 0
    (test,) = document["self_tests"]
    assert test["when"] == "during"
    assert test["rounds"] == document["rounds"]
    assert document["fail_if_slower"] is None
    verdicts = {one["verdict"] for one in document["contrasts"]}
    assert done.code == (EXIT_UNDECIDED if "UNDECIDED" in verdicts else 0)
    assert (document["ranks"] == []) == (document["grade"] == "F")
    check_launches(
        document, [baseline, f"{baseline}/1", *(one["candidate"] for one in document["contrasts"])]
    )
    store = Store(cli.home / STORE_NAME)
    stored = store.comparison(document["comparison"])
    assert stored.state == "COMPLETE"
    assert [one["trial"] for one in cli.run("history", "--json").document["trials"]] == [
        document["trials"][1]["trial"],
        document["trials"][0]["trial"],
    ]
    *candidates, baseline = (
        Configuration(spec=spec_from_dict(store.trial(one.trial).spec), label=one.label, role=one.role)
        for one in stored.contestants
    )
    asked = [baseline, *candidates]
    before = told(Store(cli.home / "empty.db"), lambda session: announce(session, asked))
    assert before in done.err, "the expected time comes before the comparison"
    assert told(store, lambda session: report_precision(session, stored)) in done.err
    again = told(store, lambda session: announce(session, asked))
    assert (again != before) == (history_of([(stored, store.trials_of(stored.id))]) is not None)


def told(store: Store, tell: Callable[[Session], None]) -> str:
    """What the session notes."""
    said: list[str] = []
    tell(Session(store, on_note=said.append))
    assert said
    return "\n".join(said)


NEW_IN_A_CONTRAST = {
    *("generations", "sigma_between", "between_from", "within_half_width", "between_half_width"),
    *("standard_error", "df", "holds", "holds_reason"),
}


def check_launches(document: Any, processes: list[str]) -> None:
    """What a race tells of its processes: who they were, and what they say of each answer."""
    made = document["generations"]
    assert [one["generation"] for one in made] == list(range(len(made)))
    assert sum(one["rounds"] for one in made) == document["rounds"]
    for one in made:
        assert sorted(one["order"]) == sorted(one["layouts"]) == sorted(processes)
    assert document["busy"] is None or document["busy"]["words"]
    for one in document["contrasts"]:
        assert one.keys() >= NEW_IN_A_CONTRAST
        assert one["generations"] == len(made)
        assert one["holds"] or one["verdict"] == "UNDECIDED"
    for trial in document["trials"]:
        assert trial["generations"] == len(made)
        assert {block["generation"] for block in trial["blocks"]} == set(range(len(made)))
        assert trial["busy"] == document["busy"]


# --- results of the version before ------------------------------------------------------------------------


def as_before(facts: Any) -> Any:
    """A stored result in the format of the version before, with one pair of processes per comparison."""
    gone = NEW_IN_A_CONTRAST | {"busy", "generation", "copy", "run_s"}
    gone |= {"cpu_s_per_inference_low", "cpu_s_per_inference_high"}
    if isinstance(facts, dict):
        kept = {name: as_before(one) for name, one in facts.items() if name not in gone}
        if kept.get("when") == "during":
            kept["when"] = "before"
        return kept
    return [as_before(one) for one in facts] if isinstance(facts, list) else facts


@pytest.fixture(scope="module")
def before(
    tmp_path_factory: pytest.TempPathFactory, compared: tuple[CommandLine, Done]
) -> tuple[CommandLine, Store, Comparison]:
    """A command line whose store contains a comparison of the version before."""
    document = compared[1].document
    cli = CommandLine(tmp_path_factory.mktemp("before"), compared[0].home)
    store = Store(cli.home / STORE_NAME)
    for trial in store.trials_of(document["comparison"]):
        whole = store.trial(trial.id).result
        store.update_trial(trial.id, result=as_before(whole))
    comparison = store.comparison(document["comparison"])
    store.update_comparison(comparison.id, result=as_before(comparison.result))
    return cli, store, store.comparison(comparison.id)


@pytest.mark.usefixtures("clock")
def test_results_of_the_version_before_are_shown_used_and_compared_with(
    mlp: str, before: tuple[CommandLine, Store, Comparison]
) -> None:
    cli, store, comparison = before
    candidate, _, baseline = (one.trial for one in comparison.contestants)
    assert "generations" not in comparison.result
    assert "generation" not in store.trial(candidate).result["blocks"][0]
    listed = cli.run("history")
    assert listed.code == 0, listed.err
    assert candidate[:8] in listed.out
    old, _ = cli.run("history", "--json").document["trials"]
    assert old["contrasts"][0].keys().isdisjoint(NEW_IN_A_CONTRAST)
    assert cli.run("export", candidate).code == 0
    why = cli.run("explain", candidate, baseline, "--quiet")
    assert why.code == 0, why.err
    again = measured(cli.run("tune", mlp, *QUICK, "--baseline", candidate, "--intra-op-num-threads", "1"))
    assert f"versus {candidate}" in again.out


def test_a_comparison_of_the_version_before_cannot_be_measured_longer_and_says_why(
    before: tuple[CommandLine, Store, Comparison],
) -> None:
    cli, store, comparison = before
    done = cli.run("compare", "--continue", comparison.id)
    assert done.code == EXIT_BAD_INPUT
    with pytest.raises(SpecError) as caught:
        continuation.ensure_continuable(comparison, store.trials_of(comparison.id))
    assert caught.value.message in done.err
    assert caught.value.hint in done.err


def test_a_limit_of_its_own_has_an_exit_code(cli: CommandLine, mlp: str) -> None:
    args = ("compare", mlp, "--baseline", "preset:cpu-latency", "--candidate", "preset:default", *QUICK)
    with simulated_clock.machine(
        lambda label, plan: Model(run_s=0.002 if label == "preset:default" else 0.001)
    ):
        done = cli.run(*args, "--fail-if-slower", "5%", "--json")
    [candidate] = [one["trial"] for one in done.document["contestants"] if one["role"] == "candidate"]
    found = done.document["fail_if_slower"]
    assert (found["limit"], found["passed"], found["broken"]) == (0.05, False, [candidate])
    assert done.code == EXIT_FAILED
    assert "`preset:default`" in done.err


def test_configurations_that_cannot_run_fail_and_the_others_are_shown(
    cli: CommandLine, mlp: str, lost: str
) -> None:
    args = ("compare", mlp, "--candidate", "torch:eager", "--candidate", "preset:edge", *QUICK)
    done = cli.run(*args, "--baseline", lost, "--json", "--quiet")
    assert done.code == EXIT_BAD_INPUT  # this model was not exported here, and there is no such GPU
    states = {one["label"]: trial["state"] for one, trial in pairs(done.document)}
    assert states.pop(DEFAULT_LABEL) == "COMPLETE"
    assert states == {"torch:eager": "FAIL", "preset:edge": "COMPLETE", lost: "FAIL"}
    assert "PyTorch" in done.err
    assert CUDA in done.err


def pairs(document: Any) -> Any:
    by_id = {one["trial"]: one for one in document["trials"]}
    return [(one, by_id[one["trial"]]) for one in document["contestants"]]


@pytest.mark.usefixtures("clock")
def test_a_comparison_is_named_after_the_model_of_its_baseline(
    cli: CommandLine, mlp: str, tmp_path: Path
) -> None:
    other = tiny_models.mlp(tmp_path / "other.onnx", hidden=8)
    document = measured(cli.run("compare", mlp, str(other), *QUICK, "--different-models", "--json")).document
    comparison = Store(cli.home / STORE_NAME).comparison(document["comparison"])
    base = next(one for one in document["trials"] if one["model"]["name"] == Path(mlp).stem)
    assert document["model_name"] == comparison.model_name == Path(mlp).stem
    assert comparison.model_sha256 == base["model"]["sha256"]
    assert not comparison.is_single_trial  # the dashboard lists it


@pytest.mark.usefixtures("clock")
def test_tune_compares_with_a_chosen_baseline(cli: CommandLine, mlp: str) -> None:
    done = measured(cli.run("tune", mlp, *QUICK, "--intra-op-num-threads", "1", "--baseline", "preset:edge"))
    assert "versus preset:edge" in done.out
    assert f"versus {DEFAULT_LABEL}" in done.out
    trial_id = cli.run("history", "--json").document["trials"][0]["trial"]
    again = measured(cli.run("tune", mlp, *QUICK, "--baseline", trial_id[:8], "--json"))
    (contrast,) = again.document["contrasts"]  # the request is the default itself
    generations = again.document["generations"]
    assert generations == contrast["generations"] > 1
    assert {block["generation"] for block in again.document["blocks"]} == set(range(generations))
    assert "busy" in again.document
    assert contrast.keys() >= NEW_IN_A_CONTRAST
    store = Store(cli.home / STORE_NAME)
    assert store.trial(contrast["baseline"]).spec["session"] == {"intra_op_num_threads": 1}


@pytest.fixture
def lost(mlp: str, tmp_path: Path) -> str:
    """A configuration of which only the attempt shows that there is no such GPU."""
    path = tmp_path / "lost.yaml"
    path.write_text(
        f"schema: 1\nmodel: {{path: {mlp}}}\nsession:\n"
        f"  providers: [{{name: {CUDA}, options: {{device_id: '77'}}}}]\n"
    )
    return str(path)


def test_a_baseline_that_cannot_run_is_a_failure(cli: CommandLine, mlp: str, lost: str) -> None:
    """The candidate has its numbers, against the default; the requested baseline has none."""

    def lost_is_lost(label: str, plan: Mapping[str, Any]) -> Model:
        return Model(load_error=f"No {CUDA}." if label == lost else "")

    with simulated_clock.machine(lost_is_lost):
        done = cli.run("tune", mlp, *QUICK, "--intra-op-num-threads", "1", "--baseline", lost)
    assert done.code == EXIT_FAILED
    assert f"versus {DEFAULT_LABEL}" in done.out
    assert CUDA in done.err


@pytest.mark.parametrize("command", [("tune",), ("compare", "--candidate", "preset:edge")])
def test_a_baseline_that_is_known_to_be_impossible_is_refused_at_once(
    cli: CommandLine, mlp: str, command: tuple[str, ...]
) -> None:
    done = cli.run(command[0], mlp, *QUICK, *command[1:], "--baseline", "torch:eager")
    assert (done.code, done.out) == (2, "")
    assert "PyTorch" in done.err
    assert Store(cli.home / STORE_NAME).comparisons() == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "1 to 7 candidates"),
        (("--candidate", "preset:edge") * 8, "got 8"),
        (("--candidate", "preset:no"), "Unknown preset"),
        (("--candidate", "preset:edge", "--fail-if-slower", "a lot"), "takes a share"),
        (("--candidate", "preset:edge", "--fail-if-slower", "-1%"), "0 or more"),
        (("--candidate", "preset:edge", "--fail-if-slower", "5"), "below 1 or a percentage"),
    ],
)
def test_wrong_usage_is_told_in_words(cli: CommandLine, mlp: str, args: tuple[str, ...], words: str) -> None:
    done = cli.run("compare", mlp, *args)
    assert done.code == 2
    assert words in done.err
    assert len(done.err.splitlines()) <= 2


def test_a_signal_in_the_middle_of_a_comparison_shows_the_rounds_and_leaves_no_process(
    cli: CommandLine, mlp: str
) -> None:
    process = cli.start("compare", mlp, "--candidate", "preset:edge", "--runs", "200000", "--json")
    store = Store(cli.home / STORE_NAME)
    await_rounds(process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_S)
    assert cli.left_over() == []
    assert process.returncode == 128 + signal.SIGTERM
    document = Done(code=process.returncode, out=out, err=err).document
    assert document["state"] == "CANCELLED"
    found = store.comparison(document["comparison"])
    assert found.state == "CANCELLED"
    assert found.result is not None
    assert document["rounds"] == found.result["rounds"] > 0
    assert len(document["trials"][0]["latencies_s"]) > 0


def test_the_time_is_predicted_without_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream, os.fdopen(read) as told:
        asked = Configuration(spec=spec_from_dict({"model": {"path": "gone.onnx"}}), label="mine")
        announce(Session(on_note=Progress(stream, quiet=False).line), [asked])
        stream.close()
        assert told.read().startswith("measuring mine: ")
