"""`search` and `searches`: one search with real workers and one that is killed; all others on a clock of
their own, where binding doubles the speed of every model.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_CANCELLED, EXIT_FAILED, EXIT_UNDECIDED
from core.cli.search import EXITS
from core.store import STORE_NAME, Store, StudyRecord
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine, Done
from tests.simulated_clock import Model
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.usefixtures("jobs_at_once")

FEW = ("--vary", "use_io_binding=on,off", "--vary", "enable_cpu_mem_arena=on,off", "--budget", "60s")


def binding_pays(label: str, plan: Mapping[str, Any]) -> Model:
    return Model(run_s=1e-5 if plan["use_io_binding"] else 2e-5, load_s=0.1, warm_s=0.05)


def arena_is_needed(label: str, plan: Mapping[str, Any]) -> Model:
    arena = plan["session"]["attributes"].get("enable_cpu_mem_arena", True)
    return Model(run_s=2e-5, load_error="" if arena else "No arena.")


@pytest.fixture
def clock() -> Iterator[simulated_clock.Clock]:
    with simulated_clock.machine(binding_pays) as found:
        yield found


@pytest.fixture(scope="module")
def searched(
    tmp_path_factory: pytest.TempPathFactory,
    acquainted: Path,
    square: Path,
    one_description_of_the_machine: None,
) -> tuple[Path, dict[str, Any]]:
    """A home with a search that is over, and what it printed."""
    line = CommandLine(tmp_path_factory.mktemp("searched"), acquainted)
    with simulated_clock.machine(binding_pays):
        return line.home, answered(line.run("search", str(square), *FEW, "--json"))


@pytest.fixture
def later(tmp_path: Path, searched: tuple[Path, dict[str, Any]]) -> CommandLine:
    """A command line of its own, after that search."""
    return CommandLine(tmp_path, searched[0])


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, acquainted: Path) -> CommandLine:
    """A command line for what is refused, so that nothing comes of it."""
    return CommandLine(tmp_path_factory.mktemp("refused"), acquainted)


def store_of(cli: CommandLine) -> Store:
    return Store(cli.home / STORE_NAME)


def answered(done: Done) -> dict[str, Any]:
    """A search that came to an end, whatever its answer: background load may leave it undecided."""
    assert done.code in (0, EXIT_UNDECIDED), done.err
    document: dict[str, Any] = done.document
    assert document["state"] == "COMPLETE"
    return document


def looks_of(found: dict[str, Any]) -> set[str]:
    """The trials of all screening and elimination rounds of a search."""
    return {look["trial"] for one in found["trials"] for look in one["looks"]}


# --- real workers -------------------------------------------------------------------------------------------


def test_a_search_with_real_workers_confirms_what_it_answers(cli: CommandLine, square: Path) -> None:
    """Whatever it answers: binding halves a run of two microseconds, which background load may hide."""
    vary = ("--vary", "use_io_binding=on,off", "--budget", "60s")
    done = cli.run("search", str(square), *vary, "--json")
    found = answered(done)
    assert done.code == EXITS.get(found["outcome"], EXIT_UNDECIDED)
    [confirmed] = [one for one in [found["winner"], *found["others"]] if one]
    assert confirmed["changes"] == {"use_io_binding": True}
    assert confirmed["contrast"]["candidate"] == confirmed["trial"]
    assert store_of(cli).trial(confirmed["trial"]).state == "COMPLETE"
    assert found["outcome"] != "FOUND" or confirmed["gain"]["ratio_low"] > 1
    assert found["space"]["distinct"] == 2
    assert found["tried"] == 1  # the default is everybody's reference
    assert found["controls"]["pairs"] >= 1
    assert found["own_s"] < found["wall_s"]


def test_a_killed_search_goes_on_where_it_was_and_ctrl_c_keeps_what_was_tried(
    cli: CommandLine, square: Path
) -> None:
    process = cli.start("search", str(square), *FEW, "--json")
    study = _after_a_look(cli, beyond_s=0.0)
    process.kill()
    process.communicate()
    assert cli.left_over() == []
    [listed] = cli.run("searches", "list", "--json").document["studies"]
    assert listed["state"] in ("RUNNING", "FAIL")
    known = len(store_of(cli).study(study.id).tried)
    assert known

    process = cli.start("search", "--resume", study.id, "--json")
    _after_a_look(cli, beyond_s=store_of(cli).study(study.id).wall_s)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == EXIT_CANCELLED, err
    assert study.id in err.splitlines()[-1]  # how to go on
    assert study.id in out
    kept = store_of(cli).study(study.id)
    assert kept.state == "CANCELLED", kept.error
    assert len(kept.tried) >= known
    assert cli.left_over() == []

    # with more time: on a slow machine little of the first minute is left
    with simulated_clock.machine(binding_pays):
        found = answered(cli.run("search", "--resume", study.id, "--budget", "60s", "--json"))
    assert (found["study"], found["outcome"]) == (study.id, "FOUND")


def _after_a_look(cli: CommandLine, *, beyond_s: float) -> StudyRecord:
    """Wait until a search has written down what it saw, after so much of its time."""

    def searches() -> list[StudyRecord]:
        return store_of(cli).studies() if (cli.home / STORE_NAME).exists() else []

    wait_until(lambda: any(one.tried and one.wall_s > beyond_s for one in searches()))
    return searches()[0]


# --- a search that is over ----------------------------------------------------------------------------------


def test_binding_is_found_confirmed_and_written(
    cli: CommandLine, square: Path, tmp_path: Path, clock: simulated_clock.Clock
) -> None:
    best = tmp_path / "best.yaml"
    found = answered(cli.run("search", str(square), *FEW, "-o", str(best), "--json"))
    assert found["outcome"] == "FOUND"
    winner = found["winner"]
    assert winner["changes"]["use_io_binding"] is True
    assert winner["gain"]["ratio_low"] > 1
    text = best.read_text()
    assert "found_by_search" in text
    assert found["study"] in text
    assert "use_io_binding: true" in text


def test_what_a_search_tried_is_no_result_of_the_history(
    later: CommandLine, searched: tuple[Path, dict[str, Any]]
) -> None:
    _, found = searched
    listed = {one["trial"] for one in later.run("history", "--json").document["trials"]}
    tried = {look["trial"] for one in found["trials"] for look in one["looks"] if look["stage"] != "confirm"}
    assert len(tried) > 3
    assert not tried & listed
    assert found["space"]["distinct"] == 4
    assert {one["setting"] for one in found["effects"]} <= {"use_io_binding", "enable_cpu_mem_arena"}
    confirmed = [one for one in [found["winner"], *found["others"]] if one]
    assert {one["trial"] for one in confirmed} <= listed
    store = store_of(later)
    assert all(
        comparison.protocol["precision"] not in ("screen", "heat") for comparison in store.comparisons()
    )
    assert len(store.comparisons(study=found["study"])) > len(store.comparisons())


def test_searches_are_listed_shown_exported_and_deleted(
    later: CommandLine, searched: tuple[Path, dict[str, Any]], line: CommandLine
) -> None:
    _, found = searched
    study = found["study"]
    assert line.run("searches", "list", "--json").document["studies"] == []
    assert study[:12] not in line.run("searches").out
    assert [one["study"] for one in later.run("searches", "list", "--json").document["studies"]] == [study]
    assert study[:12] in later.run("searches").out
    assert "io_binding" in later.run("searches", "show", study[:8]).out
    assert later.run("searches", "show", study, "--json").document["winner"] == found["winner"]
    assert later.run("searches", "show", study, "--all").out.count("io_binding on") >= 1
    assert "found_by_search" in later.run("export", found["winner"]["trial"], "--all").out
    url = f"sqlite:///{later.home}/optuna.db"
    exported = later.run("searches", "export", study, "--optuna", url, "--json").document
    assert exported["trials"] == found["tried"]
    again = later.run("searches", "export", study, "--optuna", url)
    assert again.code == EXIT_BAD_INPUT
    assert study in again.err  # there is such a study already
    assert later.run("searches", "delete", study, "--json").document["deleted"] == study
    assert later.run("searches", "show", study).code == EXIT_BAD_INPUT
    assert [one.id for one in store_of(later).trials(study=study, kind="screen")] == []


def test_more_time_and_another_question_begin_with_what_is_known(
    later: CommandLine, searched: tuple[Path, dict[str, Any]], clock: simulated_clock.Clock
) -> None:
    _, first = searched
    more = answered(later.run("search", "--resume", first["study"], "--budget", "30s", "--json"))
    assert more["study"] == first["study"]
    assert looks_of(first) < looks_of(more)  # those of before count, and some were repeated
    assert more["budget_s"] == pytest.approx(first["wall_s"] + 30)
    other = answered(later.run("search", "--resume", first["study"], "--objective", "memory", "--json"))
    assert other["study"] != first["study"]
    assert other["objective"] == {"peak_rss": 1.0}
    assert len(store_of(later).studies()) == 2


def test_a_study_of_another_machine_or_of_nobody_cannot_go_on(
    later: CommandLine, searched: tuple[Path, dict[str, Any]], square: Path
) -> None:
    nobody = "0123456789abcdef"
    done = later.run("search", "--resume", nobody)
    assert (done.code, nobody in done.err) == (EXIT_BAD_INPUT, True)
    study = searched[1]["study"]
    done = later.run("search", str(square), "--resume", study)  # it has its model
    assert (done.code, "model" in done.err) == (EXIT_BAD_INPUT, True)
    store_of(later).update_study(study, fingerprint="another")
    done = later.run("search", "--resume", study)
    assert (done.code, store_of(later).study(study).fingerprint) == (EXIT_BAD_INPUT, "another")


# --- how else it ends ---------------------------------------------------------------------------------------


def test_what_fails_is_marked_and_the_search_goes_on(cli: CommandLine, square: Path) -> None:
    with simulated_clock.machine(arena_is_needed):
        found = answered(cli.run("search", str(square), *FEW, "--json"))
    failed = [one for one in found["trials"] if any(look["error"] for look in one["looks"])]
    assert failed
    assert found["failed"] == len({str(one["changes"]) for one in failed if not one["twin"]})
    assert all(one["changes"].get("enable_cpu_mem_arena") is False for one in failed)
    assert found["winner"] is None or not found["winner"]["error"]


def test_a_limit_that_nobody_keeps_is_an_answer(
    cli: CommandLine, square: Path, clock: simulated_clock.Clock
) -> None:
    done = cli.run("search", str(square), *FEW, "--limit", "model_size<=1B", "--json")
    assert done.code == EXIT_FAILED, done.err
    assert done.document["outcome"] == "NONE_KEEPS_LIMITS"
    assert done.document["winner"] is None
    assert cli.run("searches", "show", done.document["study"]).code == 0


# --- requests that start no comparison ----------------------------------------------------------------------


def test_what_would_be_searched_is_told_without_a_comparison(line: CommandLine, mlp: str) -> None:
    done = line.run("search", mlp, "--dry-run", "--json")
    space = done.document["space"]
    assert space["combinations"] == space["distinct"] + sum(space["left_out"].values())
    assert space["distinct"] > 1000
    assert "intra_op_num_threads" in done.document["axes"]
    assert "intra_op_num_threads" in line.run("search", mlp, "--dry-run").out
    assert store_of(line).studies() == []


def test_what_is_fixed_stays_whether_it_would_vary_or_not(line: CommandLine, mlp: str) -> None:
    fixed = ("--fix", "intra_op_num_threads=1", "--fix", "enable_mem_reuse=off", "--fix", "use_io_binding=on")
    axes = line.run("search", mlp, "--dry-run", "--json", *fixed).document["axes"]
    assert not {"intra_op_num_threads", "enable_mem_reuse", "use_io_binding"} & set(axes)
    free = line.run("search", mlp, "--dry-run", "--json").document["axes"]
    assert set(axes) == set(free) - {"intra_op_num_threads", "use_io_binding"}


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("--vary", "intra_op_num_thread=1"), "`intra_op_num_threads`?"),
        (("--vary", "graph_optimization_level=ORT_ENABLE_AL"), "ORT_ENABLE_AL"),
        (("--vary", "intra_op_num_threads=2000"), "2,000"),
        (("--vary", "intra_op_num_threads=two"), "two"),
        (("--vary", "use_io_binding"), "use_io_binding"),
        (("--vary", "budget_s=1,2"), "budget_s"),
        (("--vary", "inter_op_num_threads=2,4"), "inter_op_num_threads"),
        (("--without", "intra_op_num_thread"), "intra_op_num_thread"),
        (("--vary", "use_io_binding=on,off", "--without", "use_io_binding"), "vary"),
        (("--limit", "p99<=3"), "p99"),
        (("--limit", "p98<=3ms"), "p98"),
        (("--limit", "p99>=3ms"), "at_most"),
        (("--limit", "p99<=3ms", "--limit", "p99<=4ms"), "p99"),
        (("--limit", "accuracy>=98%"), "data"),
        (("--objective", "speed"), "speed"),
        (("--objective", "latency:0.7,memory:0.7"), "0.7"),
        (("--objective", "latency,memory,cpu"), "two"),
        (("--budget", "2s"), "2"),
        (("--wait-quiet", "soon"), "--wait-quiet"),
        (("--strategy", "rac"), "`race`?"),
        (("--ask", "lowest latenc"), "latency`?"),
        (("--fix", "enable_cpu_mem_arena=maybe"), "maybe"),
    ],
)
def test_bad_input_is_one_line_with_what_to_do(
    line: CommandLine, mlp: str, args: tuple[str, ...], named: str
) -> None:
    done = line.run("search", mlp, *args)
    assert done.code == EXIT_BAD_INPUT, done.out
    assert named in done.err
    assert [text.split(": ")[0] for text in done.err.splitlines()] == ["Error", "Hint"]
    assert store_of(line).studies() == []


def test_a_batch_that_is_fixed_cannot_vary(line: CommandLine, tmp_path: Path) -> None:
    fixed = tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=4)
    done = line.run("search", str(fixed), "--vary", "batch_size=1,2,4")
    assert done.code == EXIT_BAD_INPUT
    assert "4" in done.err


def test_an_old_strategy_is_replaced_with_a_note(line: CommandLine, mlp: str) -> None:
    done = line.run("search", mlp, "--strategy", "grid", "--dry-run")
    assert done.code == 0, done.err
    assert "The strategy `grid` is no longer offered" in done.err
