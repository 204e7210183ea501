"""`search` and `studies`, run for real on models of microseconds: how a search ends, stops and goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_CANCELLED, EXIT_FAILED, EXIT_UNDECIDED
from core.store import STORE_NAME, Store, StudyRecord
from tests import tiny_models
from tests.command_line import CommandLine, Done, wait_until

FEW = ("--vary", "use_io_binding=on,off", "--vary", "enable_cpu_mem_arena=on,off", "--budget", "8s")


def store_of(cli: CommandLine) -> Store:
    return Store(cli.home / STORE_NAME)


def answered(done: Done) -> dict[str, Any]:
    """A search that came to an end, whatever its answer: a neighbour may leave it undecided."""
    assert done.code in (0, EXIT_UNDECIDED), done.err
    document: dict[str, Any] = done.document
    assert document["state"] == "COMPLETE"
    return document


def test_binding_is_found_confirmed_and_written(cli: CommandLine, square: Path, tmp_path: Path) -> None:
    best = tmp_path / "best.yaml"
    enough = ("--budget", "60s")  # it ends when the answer is known, beside a neighbour later
    done = cli.run("search", str(square), *FEW[:-2], *enough, "-o", str(best), "--json")
    found = answered(done)
    for _ in range(
        3
    ):  # binding halves a run of two microseconds; beside a neighbour it takes more time to see
        if found["outcome"] != "UNDECIDED":
            break
        more = ("search", "--resume", found["study"], "--budget", "30s")
        found = answered(cli.run(*more, "-o", str(best), "--json"))
    assert found["outcome"] == "FOUND"
    winner = found["winner"]
    assert winner["changes"]["use_io_binding"] is True
    assert winner["gain"]["ratio_low"] > 1
    assert winner["contrast"]["candidate"] == winner["trial"]
    assert found["space"]["distinct"] == 4
    assert 1 <= found["tried"] <= 3  # the default is everybody's reference
    assert found["controls"]["pairs"] >= 1
    assert {one["setting"] for one in found["effects"]} <= {"use_io_binding", "enable_cpu_mem_arena"}
    assert found["own_s"] < found["wall_s"]
    text = best.read_text()
    assert "found_by_search" in text
    assert found["study"] in text
    assert "use_io_binding: true" in text
    shown = cli.run("emit", winner["trial"]).out
    assert "found_by_search" in shown


def test_what_a_search_tried_is_no_result_of_the_history(cli: CommandLine, square: Path) -> None:
    found = answered(cli.run("search", str(square), *FEW, "--json"))
    listed = [one["trial"] for one in cli.run("history", "--json").document["trials"]]
    tried = {look["trial"] for one in found["trials"] for look in one["looks"] if look["stage"] != "confirm"}
    assert tried
    assert not tried & set(listed)
    confirmed = [one for one in [found["winner"], *found["others"]] if one]
    assert {one["trial"] for one in confirmed} <= set(listed)
    store = store_of(cli)
    assert all(race.protocol["precision"] not in ("screen", "heat") for race in store.comparisons())
    assert len(store.comparisons(study=found["study"])) > len(store.comparisons())


def test_searches_are_listed_shown_and_deleted(cli: CommandLine, square: Path) -> None:
    assert "no search yet" in cli.run("studies").out
    found = answered(cli.run("search", str(square), *FEW, "--json"))
    study = found["study"]
    assert [one["study"] for one in cli.run("studies", "list", "--json").document["studies"]] == [study]
    assert study[:12] in cli.run("studies").out
    shown = cli.run("studies", "show", study[:8])
    assert "What was tried" in shown.out
    assert cli.run("studies", "show", study, "--json").document["winner"] == found["winner"]
    assert cli.run("studies", "show", study, "--all").out.count("io_binding=on") >= 1
    url = f"sqlite:///{cli.home}/optuna.db"
    exported = cli.run("studies", "export", study, "--optuna", url, "--json").document
    assert exported["trials"] == found["tried"]
    again = cli.run("studies", "export", study, "--optuna", url)
    assert again.code == EXIT_BAD_INPUT
    assert "already" in again.err
    assert cli.run("studies", "delete", study, "--json").document == {"deleted": study}
    assert cli.run("studies", "show", study).code == EXIT_BAD_INPUT
    assert [one.id for one in store_of(cli).trials(study=study, kind="screen")] == []


def test_more_time_and_another_question_begin_with_what_is_known(cli: CommandLine, square: Path) -> None:
    first = answered(cli.run("search", str(square), *FEW, "--json"))
    more = answered(cli.run("search", "--resume", first["study"], "--budget", "6s", "--json"))
    assert more["study"] == first["study"]
    assert any("looks were repeated" in note or "not as it was" in note for note in more["notes"])
    assert more["budget_s"] > first["budget_s"]
    other = answered(cli.run("search", "--resume", first["study"], "--objective", "memory", "--json"))
    assert other["study"] != first["study"]
    assert other["objective"] == {"peak_rss": 1.0}
    assert len(store_of(cli).studies()) == 2


def test_a_killed_search_goes_on_where_it_was(cli: CommandLine, square: Path) -> None:
    process = cli.start("search", str(square), *FEW, "--json")
    study = _first_look(cli)
    process.kill()
    process.communicate()
    assert cli.left_over() == []
    listed = cli.run("studies", "list", "--json").document["studies"]
    assert listed[0]["state"] in ("RUNNING", "FAIL")
    found = answered(cli.run("search", "--resume", study.id, "--json"))
    assert found["study"] == study.id
    assert found["tried"] >= 1


def test_ctrl_c_keeps_what_was_tried(cli: CommandLine, square: Path) -> None:
    process = cli.start("search", str(square), *FEW, "--json")
    study = _first_look(cli)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_CANCELLED, err
    assert f"search --resume {study.id}" in err
    assert study.id in out
    kept = store_of(cli).study(study.id)
    assert kept.state == "CANCELLED"
    assert kept.tried
    assert cli.left_over() == []


def _first_look(cli: CommandLine) -> StudyRecord:
    """Wait until a search has seen something."""

    def seen() -> bool:
        return bool((cli.home / STORE_NAME).exists() and any(one.tried for one in store_of(cli).studies()))

    wait_until(seen, 90)
    return store_of(cli).studies()[0]


def test_what_fails_is_marked_and_the_search_goes_on(cli: CommandLine, square: Path) -> None:
    """Without an arena a run cannot shrink one: ONNX Runtime fails it."""
    done = cli.run(
        *("search", str(square), "--vary", "enable_cpu_mem_arena=on,off", "--budget", "8s", "--json"),
        *("--vary", "memory.enable_memory_arena_shrinkage=cpu:0", "--vary", "use_io_binding=on"),
    )
    found = answered(done)
    failed = [one for one in found["trials"] if any(look["error"] for look in one["looks"])]
    assert failed
    assert found["failed"] == len({str(one["changes"]) for one in failed if not one["twin"]})
    assert all(one["changes"].get("enable_cpu_mem_arena") is False for one in failed)
    assert found["winner"] is None or not found["winner"]["error"]


def test_a_limit_that_nobody_keeps_is_an_answer(cli: CommandLine, square: Path) -> None:
    done = cli.run("search", str(square), *FEW, "--limit", "model_size<=1B", "--json")
    assert done.code == EXIT_FAILED, done.err
    assert done.document["outcome"] == "NONE_KEEPS_LIMITS"
    assert done.document["winner"] is None
    text = cli.run("studies", "show", done.document["study"]).out
    assert "No configuration that was tried keeps the limits" in text


def test_what_would_be_searched_is_told_without_a_race(cli: CommandLine, mlp: str) -> None:
    done = cli.run("search", mlp, "--dry-run", "--json")
    space = done.document["space"]
    assert space["combinations"] == space["distinct"] + sum(space["left_out"].values())
    assert space["distinct"] > 1000
    assert "intra_op_num_threads" in done.document["axes"]
    assert "Left out:" in cli.run("search", mlp, "--dry-run").out
    assert store_of(cli).studies() == []


def test_what_is_fixed_stays_whether_it_would_vary_or_not(cli: CommandLine, mlp: str) -> None:
    fixed = ("--fix", "intra_op_num_threads=1", "--fix", "enable_mem_reuse=off", "--fix", "use_io_binding=on")
    axes = cli.run("search", mlp, "--dry-run", "--json", *fixed).document["axes"]
    assert not {"intra_op_num_threads", "enable_mem_reuse", "use_io_binding"} & set(axes)
    free = cli.run("search", mlp, "--dry-run", "--json").document["axes"]
    assert set(axes) == set(free) - {"intra_op_num_threads", "use_io_binding"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--vary", "intra_op_num_thread=1"), "Did you mean `intra_op_num_threads`?"),
        (("--vary", "graph_optimization_level=ORT_ENABLE_AL"), "Did you mean"),
        (("--vary", "intra_op_num_threads=2000"), "must hold"),
        (("--vary", "intra_op_num_threads=two"), "whole numbers"),
        (("--vary", "use_io_binding"), "has no values"),
        (("--vary", "budget_s=1,2"), "says how to measure"),
        (("--vary", "inter_op_num_threads=2,4"), "one configuration"),
        (("--without", "intra_op_num_thread"), "nothing that varies"),
        (("--vary", "use_io_binding=on,off", "--without", "use_io_binding"), "Nothing is left to vary"),
        (("--limit", "p99<=3"), "needs a unit"),
        (("--limit", "p98<=3ms"), "There is no metric"),
        (("--limit", "p99>=3ms"), "at_most"),
        (("--limit", "p99<=3ms", "--limit", "p99<=4ms"), "two targets"),
        (("--limit", "accuracy>=98%"), "labelled data"),
        (("--objective", "speed"), "There is no objective"),
        (("--objective", "latency:0.7,memory:0.7"), "add up to 1"),
        (("--objective", "latency,memory,cpu"), "two metrics at most"),
        (("--budget", "2s"), "must hold for a search"),
        (("--wait-quiet", "soon"), "--wait-quiet"),
        (("--strategy", "rac"), "Did you mean `race`?"),
        (("--ask", "lowest latenc"), "Did you mean `lowest latency`?"),
        (("--fix", "enable_cpu_mem_arena=maybe"), "on or off"),
    ],
)
def test_bad_input_is_one_line_with_what_to_do(
    cli: CommandLine, mlp: str, args: tuple[str, ...], said: str
) -> None:
    done = cli.run("search", mlp, *args)
    assert done.code == EXIT_BAD_INPUT, done.out
    assert said in done.err
    assert "Hint: " in done.err
    assert "Traceback" not in done.err
    assert store_of(cli).studies() == []


def test_a_batch_that_is_fixed_cannot_vary(cli: CommandLine, tmp_path: Path) -> None:
    fixed = tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=4)
    done = cli.run("search", str(fixed), "--vary", "batch_size=1,2,4")
    assert done.code == EXIT_BAD_INPUT
    assert "fixed at 4" in done.err


def test_a_study_of_another_machine_or_of_nobody_cannot_go_on(cli: CommandLine, square: Path) -> None:
    assert cli.run("search", "--resume", "0123456789abcdef").code == EXIT_BAD_INPUT
    found = answered(cli.run("search", str(square), *FEW, "--json"))
    store_of(cli).update_study(found["study"], fingerprint="another")
    done = cli.run("search", "--resume", found["study"])
    assert done.code == EXIT_BAD_INPUT
    assert "another machine" in done.err
    done = cli.run("search", str(square), "--resume", found["study"])
    assert done.code == EXIT_BAD_INPUT
    assert "keeps its model" in done.err
