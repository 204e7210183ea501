"""Benchmarks of load tests: the truth they compare with, their records, and the figures from them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load, load_bound_figures, load_figures, load_peer_figures, queues, stream_figures
from benchmarks.experiment import Machine
from benchmarks.journal import EXIT_NOT_FULL, Clock, Journal
from core.evidence.load.bounds import Counted
from core.evidence.load.load_types import Arrivals, Kind, RawRun
from core.evidence.load.queueing import ideal
from core.wire.errors import WorkerError

MS = 1_000_000
HEAD = {
    "options": {"short": False},
    "machine": "AMD EPYC, kernel 6.1-fc-v1",
    "fingerprint": "f",
    "version": "1",
}
SIMULATED = {"question": "q", "script": "s.py", "date": "2026-11-27", "machine": "simulated"}
QUIET = {"state": "quiet", "asked": "quiet", "steal": 0.0, "others": 0.02, "at": 1_790_000_000}


def raw(at_ms: list[float], start_ms: list[float], end_ms: list[float], warmup_s: float = 0.0) -> RawRun:
    n = len(at_ms)
    return RawRun(
        configuration=0,
        rate=None,
        turn=0,
        arrivals=Arrivals(at_ns=array("q", [round(one * MS) for one in at_ms]), kind=array("H", [0] * n)),
        kinds=[Kind(rows=1)],
        start_ns=array("q", [round(one * MS) for one in start_ms]),
        end_ns=array("q", [round(one * MS) for one in end_ms]),
        stream=array("H", [0] * n),
        batch=array("q", range(n)),
        outcome="complete",
        reason="",
        streams=1,
        warmup_s=warmup_s,
        duration_s=1.0,
        dropped_ns=0,
    )


# --- the ideal queue ----------------------------------------------------------------------------------------


def test_poisson_arrivals_are_those_of_their_seed_and_have_the_rate() -> None:
    found = queues.poisson(1000, 20, 7)
    assert found == queues.poisson(1000, 20, 7) != queues.poisson(1000, 20, 8)
    assert found == sorted(found)
    assert found[-1] < 20
    assert len(found) == pytest.approx(20_000, abs=5 * math.sqrt(20_000))


def test_the_ideal_queue_by_hand() -> None:
    assert queues.replay([0, 1, 1.5, 9], [2, 1, 1, 0.5]) == [2, 2, 2.5, 0.5]


def test_a_stall_suspends_a_service_and_delays_the_next() -> None:
    stalls = [(1.0, 3.0), (10.0, 11.0)]
    assert queues.end_of(0.5, 1, stalls) == 3.5  # half before it, half after
    assert queues.end_of(1.5, 1, stalls) == 4  # arrived in it
    assert queues.end_of(0, 1, stalls) == 1  # ends as it begins
    assert queues.end_of(2.5, 8, stalls) == 12  # through both
    assert queues.end_of(3.0, 1, stalls) == 4
    assert queues.replay([0.5, 0.6], [1, 1], stalls) == [3, pytest.approx(3.9)]


def test_the_replay_without_stalls_is_that_of_the_product() -> None:
    at_s = queues.poisson(100, 5, 1)
    work_ms = [1 + 17 * (i * 7919 % 13) / 13 for i in range(len(at_s))]
    at_ms = [round(1e3 * one, 3) for one in at_s]
    run = raw(
        at_ms, [one + 0.05 for one in at_ms], [a + 0.05 + w for a, w in zip(at_ms, work_ms, strict=True)]
    )
    own = queues.replay([one / 1e3 for one in at_ms], [one / 1e3 for one in work_ms])
    assert own == pytest.approx(ideal(run), abs=1e-8)


def test_time_in_a_stall_is_no_service_time() -> None:
    ran = load.Ran(run=raw([0, 20, 40], [0, 20, 300], [10, 290, 310]), stalls=[(0.025, 0.275)])
    assert ran.service_s() == pytest.approx([0.01, 0.02, 0.01])
    assert ran.truth_s() == pytest.approx([0.01, 0.27, 0.26])
    assert ran.latency_s() == pytest.approx([0.01, 0.27, 0.27])


def test_requests_of_the_warm_up_and_those_not_served_do_not_count() -> None:
    run = raw([0, 20, 40, 60], [0, 20, 40, 0], [10, 30, 50, 0], warmup_s=0.02)
    assert load.Ran(run=run, stalls=[]).counted() == [1, 2]
    closed = raw([0, 0, 0], [0, 10, 20], [10, 20, 30], warmup_s=0.02)
    assert load.Ran(run=closed, stalls=[]).counted() == [2]


def test_what_the_harness_added_is_latency_without_the_ideal_queue() -> None:
    at = [20.0 * i for i in range(100)]
    late = [0.3 if i == 99 else 0.1 for i in range(100)]
    run = raw(
        at,
        [a + one for a, one in zip(at, late, strict=True)],
        [a + one + 5 for a, one in zip(at, late, strict=True)],
    )
    found = load.added(load.Ran(run=run, stalls=[]))
    assert found["n"] == 100
    assert found["extra_p50_s"] == found["extra_p99_s"] == pytest.approx(1e-4)
    assert found["latency_p99_s"] == pytest.approx(5.1e-3)
    assert found["quiet"] is False  # nothing is known of the machine


# --- rules --------------------------------------------------------------------------------------------------


def test_the_rule_of_mlperf_has_its_known_least_numbers_of_requests() -> None:
    for bad, least in enumerate((299, 473, 628, 773)):
        assert queues.most_bad(least, 0.01) == bad
        assert queues.most_bad(least - 1, 0.01) == bad - 1
    assert queues.most_bad(64, 0.1, 0.99) == 1  # as LoadGen prints it for p90
    assert queues.most_bad(63, 0.1, 0.99) == 0


def test_segments_are_whole() -> None:
    assert queues.segments(29, 10) == [slice(0, 10), slice(10, 20)]
    assert queues.segments(9, 10) == []


def test_packed_latencies_are_whole_microseconds() -> None:
    assert queues.unpacked(queues.packed([0.0, 1.2345678e-3, 5000.0])) == [0.0, 1.235e-3, 4294.967295]


def test_answers_contradict_each_other_only_where_one_fails_what_another_confirms() -> None:
    assert queues.disjoint([(300, 340), (320, 350), (310, math.inf)]) == 0
    assert queues.disjoint([(300, 340), (341, 350), (0, 330)]) == 2


def test_the_interval_of_a_mean_is_that_of_student() -> None:
    assert queues.mean_interval([1.0, 2.0, 3.0]) == pytest.approx((2, 2 - 2.4841, 2 + 2.4841), abs=1e-3)
    assert queues.mean_interval([1.0, 2.0]) == (1.5, None, None)


# --- the record ---------------------------------------------------------------------------------------------


def given(state: str = "quiet") -> load.Given:
    return load.Given(size=load.SHORT, clock=Clock(None), entries={}, ask=lambda number: {}, state=state)


def journal(path: Path) -> Journal:
    return Journal(path, script="load", options={}, machine=Machine(text="m", fingerprint="f"))


def test_a_record_continues_repeats_what_was_not_idle_and_keeps_failures(tmp_path: Path) -> None:
    made: list[int] = []

    def make(number: int) -> dict[str, Any]:
        made.append(number)
        if number == 1:
            raise WorkerError("The worker crashed.", hint="")
        return {"quiet": number != 0, "value": 1.23456789}

    path = tmp_path / "record.jsonl"
    load.fill(journal(path), "kind", [({"subject": "a"}, make)], 1, given())
    assert made == [0, 1]  # not idle, failed: twice the count, and no more
    load.fill(journal(path), "kind", [({"subject": "a"}, make)], 2, given())
    assert made == [0, 1, 2, 3]
    rows = journal(path).of("kind")
    assert [row["state"] for row in rows] == ["not quiet", "failed", "quiet", "quiet"]
    assert rows[1]["error"] == "WorkerError: The worker crashed."
    assert rows[2]["value"] == 1.2346
    load.fill(journal(path), "kind", [({"subject": "a"}, make)], 2, given())
    assert len(made) == 4
    load.fill(journal(path), "kind", [({"subject": "a"}, make)], 1, given("burner"))
    assert journal(path).of("kind")[4]["state"] == "burner"


def test_an_answer_of_the_command_is_kept_without_its_rest() -> None:
    highest = {
        "capacity_per_s": 500.0,
        "confirmed_per_s": 310.0,
        "failed_per_s": None,
        "undecided_per_s": None,
    }
    found = load.answer({"load": {"highest": [{**highest, "words": "…"}], "runs": []}})
    assert found == {**highest, "words": "…"}
    with pytest.raises(ValueError, match="no result"):
        load.answer({"load": None, "error": "it failed"})


def test_the_exit_code_says_whether_the_record_is_full(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    record = Journal(
        path, script="load", options={"short": False}, machine=Machine(text="m", fingerprint="f")
    )
    row = {**QUIET, "kind": "harness", "subject": "m", "rate": 200.0, "n": 600}
    row |= {"extra_p50_s": 1e-4, "extra_p99_s": 2e-4, "latency_p50_s": 1e-3, "latency_p99_s": 2e-3}
    record.add({**row, "state": "not quiet"})
    assert load.report(path, short=False) == EXIT_NOT_FULL
    record.add(row)
    assert load.report(path, short=False) == EXIT_NOT_FULL  # the other parts are missing
    record.add({**row, "extra_p50_s": 2e-3})
    assert load.report(path, short=False) == 1


# --- figures ------------------------------------------------------------------------------------------------


def long_run(slow: Callable[[int], bool] = lambda i: False) -> dict[str, Any]:
    row = {**QUIET, "kind": "passes", "subject": "a model", "utilization": 0.5, "rate": 500.0, "seed": 3}
    row |= {"seconds": 10.0, "warmup_s": 2.0}
    n = sum(at >= 2 for at in queues.poisson(500, 12, 3))
    latencies = [2e-3 if slow(i) else 1e-3 + i % 7 * 1e-5 for i in range(n)]
    return {**row, "n": n, "latencies": queues.packed(latencies)}


def test_a_rule_passes_a_segment_without_slow_requests_and_none_with_many() -> None:
    for rule in load_figures.RULES.values():
        assert load_figures.LongRun.of(long_run()).passed(1000, rule) == (5, 5)
        run = load_figures.LongRun.of(long_run(lambda i: i < 50))  # 1 % of 5,035
        assert run.passed(1000, rule) == (4, 5)


def test_requests_that_come_in_one_burst_count_less_for_ortune_than_for_mlperf() -> None:
    spread = [1 + i * 7919 % 1000 / 1e4 for i in range(1000)]
    burst = [one + (100 <= i < 104) for i, one in enumerate(spread)]  # 4: as many as independent ones may be
    segment = Counted(at_s=[i / 500 for i in range(1000)], value_s=burst, from_s=0, until_s=2)
    assert load_figures.by_mlperf(segment, 1.5)
    assert not load_figures.by_ortune(segment, 1.5)
    assert load_figures.by_ortune(replace(segment, value_s=spread), 1.5)


def test_a_record_whose_arrivals_are_not_those_of_its_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="arrivals"):
        load_figures.LongRun.of({**long_run(), "seed": 4})


def test_the_worst_second_shows_slow_requests_that_came_together() -> None:
    at_s = load_figures.LongRun.of(long_run()).at_s
    together = [i for i, at in enumerate(at_s) if 5 <= at < 6][:36]
    run = load_figures.LongRun.of(long_run(lambda i: i in together or i < 12))  # the first at second 2
    assert run.limit_s == 1.06e-3
    assert run.in_worst_second() == 0.75


def test_figures_say_whether_the_target_is_met_and_what_failed() -> None:
    runs = [
        {**QUIET, "kind": "harness", "subject": "m", "rate": 200.0, "n": 600, **times}
        for times in (
            {"extra_p50_s": p50, "extra_p99_s": 3 * p50, "latency_p50_s": 1e-3, "latency_p99_s": 2e-3}
            for p50 in (90e-6, 100e-6, 110e-6)
        )
    ]
    failed = {**QUIET, "kind": "harness", "state": "failed", "error": "WorkerError: a | b"}
    found = list(load_figures.rows_of(HEAD, [*runs, failed]))
    p50, p99, error, *others = found
    assert (p50.estimate, p50.low, p50.high, p50.unit, p50.met) == ("100", "75", "125", "µs", "yes")
    assert p50.n == "3 runs"
    assert p50.more["runs that ORTune rejects"] == "1 of 3"
    assert (p99.estimate, p99.met) == ("300", "yes")
    assert (error.estimate, error.n, error.met) == ("1", "4", "no")
    assert "|" not in error.note
    assert {row.question for row in others} == {"load-omission", "load-passes", "load-limit"}
    assert {row.met for row in others} == {load_figures.NOT_MEASURED}


def test_the_error_of_each_loop_is_that_beside_the_truth() -> None:
    row = {**QUIET, "kind": "omission", "subject": "m", "closed_n": 9000, "open_n": 8000}
    for name, p99_s in (("truth", 0.2), ("open", 0.202), ("closed", 0.002)):
        row |= {f"{name}_p50_s": 0.001, f"{name}_p99_s": p99_s}
    found = [one for one in load_figures.rows_of(HEAD, [row, row, row]) if one.question == "load-omission"]
    shown = {one.measure: (one.estimate, one.met) for one in found}
    assert shown["error of p99, open loop of ORTune"] == ("1.0", "yes")
    assert shown["error of p99, closed loop of one caller"] == ("−99.0", "")


def test_a_contradiction_of_two_answers_misses_the_target() -> None:
    row = {
        **QUIET,
        "kind": "limit",
        "subject": "m",
        "limit": "p99<=5ms",
        "capacity_per_s": 900.0,
        "wall_s": 30.0,
    }
    answers = [
        {**row, "confirmed_per_s": 310.0, "failed_per_s": 340.0},
        {**row, "confirmed_per_s": 350.0, "failed_per_s": None},
    ]
    found = [one for one in load_figures.rows_of(HEAD, answers) if one.question == "load-limit"]
    assert [(one.estimate, one.met) for one in found] == [("2", "yes"), ("330", ""), ("1", "no")]


def test_answers_without_a_rate_are_no_agreement() -> None:
    row = {
        **QUIET,
        "kind": "limit",
        "subject": "m",
        "limit": "p99<=5ms",
        "capacity_per_s": 9.0,
        "wall_s": 3.0,
    }
    answers = [{**row, "confirmed_per_s": None, "failed_per_s": None, "words": "No rate."}] * 5
    found = [one for one in load_figures.rows_of(HEAD, answers) if one.question == "load-limit"]
    assert [(one.estimate, one.n, one.met, one.note) for one in found] == [("0", "5", "no", "No rate.")]


def test_without_a_record_every_question_says_that_it_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for module in (load_figures, load_bound_figures, load_peer_figures, stream_figures):
        monkeypatch.setattr(module, "RECORD", tmp_path / "none.jsonl")
    monkeypatch.setattr(load_bound_figures, "SEARCHES", tmp_path / "none.json")
    for module in (load_figures, load_bound_figures, load_peer_figures, stream_figures):
        found += module.every_row()
    assert {row.met for row in found} == {load_figures.NOT_MEASURED}
    assert len({row.question for row in found}) == len(found) >= 9


def peer(generator: str, p99_s: float, truth_s: float = 0.1) -> dict[str, Any]:
    row = {"kind": "latency", "condition": "60 % of capacity", "generator": generator, "n": 400, "steal": 0.0}
    row |= {"rate": 99.0, "asked_rate": 100.0, "at": 1_790_000_000, "unhindered_p99": [0.08, 0.1, 0.14]}
    both = {"p50": truth_s / 10, "p99": truth_s}
    return {**row, "reported": {"p50": truth_s / 10, "p99": p99_s}, "truth": both, "ideal": both}


def test_a_generator_that_hides_the_queue_and_one_that_is_missing_are_named() -> None:
    rows = [peer("ORTune", 0.1), peer("a closed loop", 0.05), {**peer("another", 0.1), "missing": True}]
    found = list(load_peer_figures.rows_of(HEAD, rows))
    p99 = {row.condition: row for row in found if row.measure == "error of the reported p99"}
    assert [row.estimate for row in p99.values()] == ["0.0", "−50.0"]
    assert [row.met for row in p99.values()] == ["yes", ""]
    assert "below the range" in p99["60 % of capacity; a closed loop"].note
    assert [row.met for row in found if "another" in row.condition] == [load_figures.NOT_MEASURED]


def test_ortune_misses_its_target_where_another_generator_is_closer_to_the_truth() -> None:
    found = load_peer_figures.rows_of(HEAD, [peer("ORTune", 0.102), peer("LoadGen, Server", 0.1)])
    [own] = [row for row in found if row.target and row.measure.endswith("p99")]
    assert (own.met, own.note) == ("no", "Smaller: LoadGen, Server.")


def test_false_passes_of_a_simulated_queue_are_beside_its_power() -> None:
    cell = {"queue": "exponential, utilisation 0.5", "recurs": True, "requests": 1000, "runs": 2000}
    cell |= {"passes": {"ORTune": 100, "at the limit": 180, "independent": 400}, "intervals": 0, "contain": 0}
    lower = {**cell, "passes": {**cell["passes"], "ORTune": 900}}
    cells = [{**cell, "scale": 1.0}, {**lower, "scale": 0.9}, {**cell, "scale": 1.0, "requests": 3000}]
    found, other = load_bound_figures.rows_of([*cells[:2], {**cells[2], "recurs": False}], SIMULATED)
    assert (found.estimate, found.n, found.met) == ("5.0", "2000", "yes")
    assert (found.more["as if independent"], found.more["passes at 90 % of the rate"]) == ("20.0 %", "45 %")
    assert (other.met, other.more["passes at 90 % of the rate"]) == ("", "–")


def test_a_stream_figure_without_an_interval_has_none() -> None:
    row = {"model": "digits_cnn", "best": "2 threads × 1 thread", "ratio": 1.417, "ratio_low": None}
    row |= {"ratio_high": None, "verdict": "UNDECIDED", "holds": False, "generations": 4, "rounds": 8}
    row |= {"rate_per_s": 71234.0, "default_per_s": 50270.0, "fairness": 0.97, "steal": None, "others": 0.02}
    [found] = stream_figures.rows_of(HEAD, [{**row, "at": 1_790_000_000}])
    assert (found.estimate, found.low, found.note) == ("1.42", "", "Rejected by the A/A control.")
    assert (found.more["samples/s"], found.more["slowest of fastest stream"]) == ("71,234", "97 %")


def test_searches_that_confirm_nothing_are_counted_beside_false_ones() -> None:
    cell = {"queue": "bimodal", "searches": 300, "false": 30, "none": 300, "ratio": None, "runs": 7.75}
    [found] = load_bound_figures.search_rows([cell], SIMULATED)
    assert (found.estimate, found.n, found.met) == ("10.0", "300", "no")
    assert list(found.more.values()) == ["–", "300", "7.8"]
