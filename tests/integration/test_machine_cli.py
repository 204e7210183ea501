"""`machine` on the real command line: what it says, and the self-test with its exit code."""

from __future__ import annotations

import pytest

from core.process.machine_queue import MachineQueue
from core.store import STORE_NAME, Store
from core.wire.variables import SANDBOX
from core.worker import sandbox
from tests import simulated_clock
from tests.command_line import CommandLine


def test_the_machine_is_told_in_words_and_with_what_loads(cli: CommandLine) -> None:
    facts = cli.run("machine", "--json").document
    by_name = {one["name"]: one for one in facts["providers"]}
    assert by_name["CPUExecutionProvider"]["loadable"] is True
    done = cli.run("machine")
    assert done.code == 0, done.err
    for word in ("processor", "cores", "container", "threads", "fingerprint", facts["fingerprint"]):
        assert word in done.out
    for name, fact in by_name.items():
        assert name in done.out
        assert fact["loadable"] or fact["reason"] in done.out


def test_what_confines_workers_is_told(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX, "on")  # restored at the end: the option changes it
    assert cli.run("machine", "--json").document["sandbox"] == sandbox.offer()
    done = cli.run("machine", "--no-sandbox")
    assert "not sandboxed: turned off with `--no-sandbox`" in done.out
    assert cli.run("machine", "--json", "--no-sandbox").document["sandbox"] == {
        **sandbox.offer(),
        "off": True,
    }


def test_a_self_test_says_how_quiet_it_is_and_its_exit_code_follows_the_grade(cli: CommandLine) -> None:
    with simulated_clock.machine():
        done = cli.run("machine", "--self-test", "--json")
    result = done.document
    assert result["state"] == "COMPLETE", done.err
    assert result["when"] == "alone"
    assert result["rounds"] > 12
    assert result["grade"] in ("A", "B", "C", "D", "F")
    assert done.code == (3 if result["grade"] == "F" else 0)
    kept = Store(cli.home / STORE_NAME).self_tests(result["fingerprint"])
    assert [(one["when"], one["ratio"]) for one in kept] == [("alone", result["ratio"])]
    answer = result["answer"]
    assert answer["grade"] == result["grade"]
    assert bool(answer["remedy"]) == (result["grade"] != "A")
    assert result["generations"] >= 4
    assert result["rounds_per_generation"] > 0 < result["seconds_per_generation"]
    assert answer["busy"] == ((result["busy"] or {}).get("words") or "")
    needs = answer["needs"]
    if result["sigma_between"] is None:  # rounds and processes could not be told apart
        assert needs == []
        return
    assert [one["precision"] for one in needs] == ["quick", "standard", "publish"]
    assert [one["generations"] for one in needs] == sorted(one["generations"] for one in needs)
    for one in needs:
        assert one["seconds"] == pytest.approx(one["generations"] * result["seconds_per_generation"])


def test_a_self_test_for_people_ends_with_what_each_precision_needs(cli: CommandLine) -> None:
    with simulated_clock.machine():
        done = cli.run("machine", "--self-test", "--quiet")
    assert done.code in (0, 3), done.err
    assert done.err == ""
    for word in ("grade", "details", "publish"):
        assert word in done.out


def test_the_queue_is_told_and_private_jobs_without_person_and_name(cli: CommandLine) -> None:
    assert cli.run("machine", "--json").document["queue"] == []
    queue = MachineQueue(cli.queue)
    places = [
        queue.enter("dashboard of x", "measure m", person="anna", predicted_s=300.0),
        queue.enter("dashboard of x", "measure zzsecret", person="ben", private=True),
        queue.enter("command line of y", "export n"),
    ]
    try:
        assert queue.take(places) is places[0]
        found = cli.run("machine", "--json").document["queue"]
        text = cli.run("machine").out
    finally:
        for one in places:
            queue.leave(one)
    assert [(one["running"], one["place"]) for one in found] == [(True, 0), (False, 1), (False, 2)]
    by_what = {one["what"]: one for one in found}
    assert by_what.keys() == {"measure m", "a private job", "export n"}
    assert (by_what["measure m"]["person"], by_what["measure m"]["starts_in_s"]) == ("anna", None)
    hidden = by_what["a private job"]
    assert (hidden["private"], hidden["person"], hidden["owner"]) == (True, None, None)
    assert by_what["export n"]["owner"] == "command line of y"
    second, third = found[1:]
    assert 0 < second["starts_in_s"] <= 300.0
    assert third["starts_in_s"] is None  # how long the one before it takes is not known
    for word in ("running", "place 1", "another person", "start unknown", "starts in about", "(predicted)"):
        assert word in text
    assert "zzsecret" not in text
    assert "ben" not in text.split()
