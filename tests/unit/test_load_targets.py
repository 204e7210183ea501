"""Targets under load: as they are written, which load tests speak for them, and what those say."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from core.evidence.load.load_types import LoadResult
from core.evidence.load.target_points import LoadPoint, least_requests, newest, points_of, seconds_needed
from core.evidence.targets import Measurements, TargetResult, evaluate_target, interval, margin, target_text
from core.run import job_types, scorecard
from core.run.scorecard import needed, rows
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.subjects import of_card
from core.show.sheets import verifications
from core.spec import TrialSpec, spec_from_dict, spec_from_yaml, yaml_from_spec
from core.spec.load import LoadSpec, LoadTarget, parse_load_target
from core.spec.targets import TargetSpec, target_from_dict
from core.store import Store
from core.wire.errors import SpecError
from tests import builders
from tests.simulated_load import sample_load_result, sample_point, sample_run
from tests.unit.test_scorecard import HERE, record, spec, subject


def target(text: str) -> TargetSpec:
    return target_from_dict({"load": text})


ASKED = "200/s with p99<=20ms"


# --- as it is written ---------------------------------------------------------------------------------------


def test_a_target_under_load_goes_through_yaml_and_back() -> None:
    asked = spec_from_dict(
        {
            "model": {"path": "m.onnx"},
            "targets": [{"load": ASKED}, {"metric": "latency_p99", "at_most": "3 ms"}],
        }
    )
    text = yaml_from_spec(asked)
    assert "- load: 200/s with p99<=20ms\n" in text
    assert spec_from_yaml(text) == asked
    assert spec_from_dict(asked.to_dict()) == asked
    assert asked.key() == spec_from_dict({"model": {"path": "m.onnx"}}).key()
    first = asked.targets[0]
    assert (first.what, first.limit_words, first.limit) == ("p99 at 200 requests/s", "≤ 20 ms", 0.01)
    assert first.about.source == "load"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"load": "200/s"}, "no target under load"),
        ({"load": "200/s with p99<=20"}, "a time with a unit"),
        ({"load": "200/s with timeouts<=1%"}, "limits a latency"),
        ({"load": "99999999/s with p99<=20ms"}, "0.01 to 50"),
        ({"load": "200/s with p0<=20ms"}, "between 0 and 1"),
        ({"load": ASKED, "metric": "latency_p99"}, "takes no `metric`"),
        ({"load": ASKED, "at_most": "3 ms"}, "at_most"),
        ({"load": ASKED, "batch_size": 8}, "takes no `batch_size`"),
        ({"load": 200}, "load"),
        ({"metric": "load", "at_most": 0.01}, "no metric `load`"),
        ({}, "`metric` is missing"),
    ],
)
def test_what_cannot_be_read_is_refused(data: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as refused:
        target_from_dict(data)
    assert said in refused.value.message
    assert refused.value.hint


def test_two_targets_on_one_percentile_at_one_rate_are_refused() -> None:
    def with_targets(*texts: str) -> TrialSpec:
        return spec_from_dict({"model": {"path": "m.onnx"}, "targets": [{"load": one} for one in texts]})

    with pytest.raises(SpecError, match="two targets on the p99 at 200 requests/s"):
        with_targets(ASKED, "200/s with p99<=30ms")
    assert len(with_targets(ASKED, "200/s with p99.9<=30ms", "300/s with p99<=20ms").targets) == 3


# --- what a load test says ----------------------------------------------------------------------------------


def points(result: LoadResult, trial: str = "t") -> list[LoadPoint]:
    return [one for one in points_of(result, trial, is_it=lambda *_: True) if one.point["configuration"] == 0]


def judged(text: str, *tests: LoadResult) -> TargetResult:
    """Judge by load tests, newest first."""
    found = [one for number, test in enumerate(tests) for one in points(test, f"t{number}")]
    return evaluate_target(target(text), Measurements(batch_size=1, loads=found))


def load_test(*runs: Any, **question: Any) -> LoadResult:
    """A load test with one point for each run."""
    result = sample_load_result("traffic")
    listed = [one if isinstance(one, dict) else sample_run(one) for one in runs]
    result["runs"] = listed  # type: ignore[typeddict-item]
    result["points"] = [sample_point(one, number) for number, one in enumerate(listed)]  # type: ignore[arg-type]
    result["question"] = result["question"] | question
    return result


def test_the_share_of_slow_requests_decides_and_the_words_say_how_sure() -> None:
    found = judged(ASKED, load_test(200))
    assert (found.state, found.cause) == ("MET", "")
    assert found.value == pytest.approx(0.00248, abs=1e-5)  # exp(-20/2 * 0.6), the sample's queue
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high < 0.01
    assert found.margin == pytest.approx(0.01 - found.high)
    assert "0.248 % of 6,000 requests were slower (at most 0.426 %, 95 % confidence)" in found.why
    assert "p99 was 15.35 ms (95 % CI [13.82, 17.50] ms)" in found.why
    assert target_text(found) == "Met · 0.2479 % slower [at most 0.426 %] · margin +0.5736 pp"
    missed = judged("300/s with p99<=20ms", load_test(300))
    assert missed.state == "MISSED"
    assert "at least" in interval(missed)
    assert margin(missed).startswith("-")


def test_too_few_requests_leave_it_open_and_the_next_test_is_longer() -> None:
    short = sample_run(200, requests=300)
    short["limits"][0] |= {"low": 0.0, "high": 0.02, "verdict": "UNDECIDED"}
    found = judged(ASKED, load_test(short))
    assert (found.state, found.cause) == ("UNKNOWN", "wide")
    assert found.todo
    assert " to " in interval(found)
    asked = parse_load_target(ASKED)
    long = sample_run(200, requests=9000)
    long["limits"][0] |= {"verdict": "UNDECIDED"}
    assert seconds_needed(asked) == 30
    assert seconds_needed(asked, points(load_test(long))) == 90  # twice 9,000 requests at 200/s
    long["harness"] = {**long["harness"], "accepted": False}  # type: ignore[typeddict-item]
    assert seconds_needed(asked, points(load_test(long))) == 30  # more of the same would not count either


@pytest.mark.parametrize(
    ("asked", "run", "state"),
    [
        ("150/s with p99<=20ms", 200, "MET"),  # it passed at a higher rate
        ("400/s with p99<=20ms", 300, "MISSED"),  # it failed at a lower rate
        ("600/s with p99<=20ms", 500, "MISSED"),  # it saturated at a lower rate
        ("250/s with p99<=20ms", 200, "UNKNOWN"),  # a pass at a lower rate says nothing
        ("250/s with p99<=20ms", 300, "UNKNOWN"),  # nor a failure at a higher one
        ("200/s with p99<=30ms", 200, "UNKNOWN"),  # another limit
        ("200/s with p95<=20ms", 200, "UNKNOWN"),
    ],
)
def test_another_rate_counts_only_where_it_is_stricter(asked: str, run: float, state: str) -> None:
    found = judged(asked, load_test(run))
    assert found.state == state
    if state == "UNKNOWN":
        assert found.cause == "missing"
    else:
        assert f"Measured at {run:g} requests/s" in found.why


def test_the_targets_own_rate_counts_before_another_and_the_newest_test_before_older_ones() -> None:
    failed = sample_run(200)
    failed["limits"][0] |= {"low": 0.02, "high": 0.03, "verdict": "FAIL"}
    assert judged(ASKED, load_test(250, failed)).state == "MISSED"
    assert judged(ASKED, load_test(200), load_test(failed)).state == "MET"
    assert judged(ASKED, load_test(failed), load_test(200)).state == "MISSED"


def test_a_rejected_failed_or_cancelled_run_is_no_measurement() -> None:
    harness = {**sample_run(200)["harness"], "accepted": False, "reason": "The harness added 23 % of p50."}  # type: ignore[dict-item]
    rejected = judged(ASKED, load_test(sample_run(200, harness=harness)))
    assert (rejected.state, rejected.cause, rejected.value) == ("UNKNOWN", "rejected", None)
    assert "23 %" in rejected.why
    died = judged(ASKED, load_test(sample_run(200, outcome="failed", reason="The worker died after 3 s.")))
    assert (died.state, died.cause, died.why) == ("UNKNOWN", "failed", "The worker died after 3 s.")
    cancelled = judged(ASKED, load_test(sample_run(200, outcome="cancelled")))
    assert (cancelled.state, cancelled.cause) == ("UNKNOWN", "failed")
    earlier = judged(ASKED, load_test(sample_run(200, outcome="cancelled")), load_test(200))
    assert earlier.state == "MET"


def test_background_load_can_only_make_it_worse() -> None:
    busy = {"words": "under background load: others used 1.0 cores"}
    assert judged(ASKED, load_test(sample_run(200, busy=busy))).state == "MET"
    found = judged("300/s with p99<=20ms", load_test(sample_run(300, busy=busy)))
    assert (found.state, found.cause) == ("UNKNOWN", "busy")
    assert "others used 1.0 cores" in found.why


@pytest.mark.parametrize(
    "question",
    [
        {"arrivals": {"process": "constant"}},
        {"rows": {"1": 0.5, "8": 0.5}},
        {"dims": {"sequence": {"16": 1.0}}},
        {"timeout_s": 1.0},
        {"question": "together"},
        {"unheard_of": 1},
    ],
    ids=str,
)
def test_another_question_does_not_count(question: dict[str, Any]) -> None:
    assert points(load_test(200))
    assert not points(load_test(200, **question))


def test_a_probe_does_not_count_and_a_confirmation_does() -> None:
    result = sample_load_result("limit")
    assert {one.point["rate_per_s"] for one in points(result)} == {200, 250, 500, 150}  # 300 was a probe
    assert judged("250/s with p99<=20ms", result).state == "MET"


def test_a_rate_with_six_digits_is_the_rate_that_was_run() -> None:
    ran = 123.4567891
    asked = LoadTarget(rate=ran, limit=parse_load_target(ASKED).limit)
    read = target(asked.text)
    assert read.load is not None
    assert newest(read.load, points(load_test(ran)))[0].exact


def test_the_least_requests_are_those_of_the_exact_bound() -> None:
    assert [least_requests(share) for share in (0.01, 0.05, 0.001)] == [299, 59, 2995]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (ASKED, 30),
        ("20/s with p99<=20ms", 150),  # 3,000 requests
        ("1/s with p99<=20ms", 600),
        ("0.1/s with p99<=20ms", 5980),  # fewer cannot pass: twice 299 requests
        ("200/s with p99.9<=20ms", 150),
        ("0.01/s with p99.999<=20ms", 86_400),  # the longest load test
        ("50000/s with p99.999<=20ms", 40),  # the most requests of one run
    ],
)
def test_slow_rates_and_high_percentiles_take_longer(text: str, seconds: float) -> None:
    assert seconds_needed(parse_load_target(text)) == seconds
    LoadSpec(rates=(parse_load_target(text).rate,), duration_s=seconds)  # it is a valid load test


# --- the scorecard ------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.db")


def put(
    store: Store, asked: TrialSpec, result: LoadResult | None, *, at: float = 1000.0, **changes: Any
) -> str:
    """Keep a load test of one configuration."""
    if result is not None:
        result["configurations"] = result["configurations"][:1]
        result["configurations"][0]["spec"] = asked.to_dict()
    kept: dict[str, Any] = {"kind": "load", "fingerprint": HERE, "created_at": at, "finished_at": at + 1}
    kept["result"] = None if result is None else {"load": result}
    trial = builders.trial(secrets.token_hex(8), asked, **(kept | changes))
    store.create_trial(trial)
    return trial.id


def card(store: Store, *subjects: scorecard.Subject, texts: tuple[str, ...] = (ASKED,), **more: Any) -> Any:
    return rows(store, subjects, [target(one) for one in texts], fingerprint=HERE, **more)


def state(found: Any) -> list[str]:
    return [one.state for row in found for one in row.judged]


def test_a_stored_load_test_of_the_configuration_decides(store: Store) -> None:
    assert state(card(store, subject())) == ["UNKNOWN"]
    trial = put(store, spec(), load_test(200))
    found = card(store, subject())
    assert state(found) == ["MET"]
    assert found[0].trials == [trial]
    assert not needed(found)
    assert state(card(store, subject(workload={"batch_size": 1}))) == ["MET"]


@pytest.mark.parametrize(
    ("rows", "batch", "found"),
    [
        (None, 8, ["UNKNOWN", "MET", "UNKNOWN"]),  # the batch size of the configuration
        ({"4": 1.0}, 8, ["UNKNOWN", "UNKNOWN", "MET"]),
        ({"1": 1.0}, 8, ["MET", "UNKNOWN", "UNKNOWN"]),
        ({"1": 0.5, "8": 0.5}, 8, ["UNKNOWN"] * 3),
    ],
)
def test_requests_have_the_batch_size_of_the_configuration(
    store: Store, rows: dict[str, float] | None, batch: int, found: list[str]
) -> None:
    asked = {} if rows is None else {"rows": rows}
    put(store, spec(workload={"batch_size": batch}), load_test(200, **asked))
    subjects = [subject(), *(subject(workload={"batch_size": size}) for size in (8, 4))]
    assert state(card(store, *subjects)) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "another machine"},
        {"model_sha256": "b" * 64},
        {"kind": "measure"},
        {"created_at": 1.0},
    ],
    ids=str,
)
def test_what_says_nothing_of_it_does_not_count(store: Store, changes: dict[str, Any]) -> None:
    put(store, spec(), load_test(200), **changes)
    assert state(card(store, subject(), since=500.0)) == ["UNKNOWN"]


def test_other_settings_or_another_batching_do_not_count(store: Store) -> None:
    put(store, spec(session={"intra_op_num_threads": 1}), load_test(200))
    put(store, spec(dynamic_batching={"max_batch_size": 8}), load_test(200))
    assert state(card(store, subject())) == ["UNKNOWN"]
    assert state(card(store, subject(session={"intra_op_num_threads": 1}))) == ["MET"]
    assert state(card(store, subject(dynamic_batching={"max_batch_size": 8}))) == ["MET"]
    assert state(card(store, subject(dynamic_batching={"max_batch_size": 4}))) == ["UNKNOWN"]


def test_a_failed_load_test_says_why(store: Store) -> None:
    error = {"type": "WorkerError", "message": "The worker crashed.", "hint": ""}
    put(store, spec(), None, state="FAIL", error=error, fingerprint="")
    [found] = card(store, subject())[0].judged
    assert (found.state, found.cause) == ("UNKNOWN", "failed")
    assert "The worker crashed." in found.why
    put(store, spec(), load_test(200), at=2000.0)
    assert state(card(store, subject())) == ["MET"]


def test_open_targets_of_a_configuration_are_one_load_test(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = (ASKED, "100/s with p99<=20ms", "200/s with p95<=10ms", "1/s with p99.9<=20ms")
    put(store, spec(), load_test(100))
    work = needed(card(store, subject("a"), texts=texts))
    assert [(one.load.rates, one.load.duration_s) for one in work.loads] == [((200,), 30), ((1,), 5990)]
    assert {one.text for one in work.loads[0].load.limits} == {"p99<=20ms", "p95<=10ms"}
    assert not work.comparisons
    asked: list[Any] = []
    monkeypatch.setattr(job_types, "load", lambda *args, **more: asked.append((args, more)), raising=False)
    scorecard.jobs_of(store, work, wait_quiet_s=7.0)
    (configurations, load), more = asked[0]
    assert [one.label for one in configurations] == ["a"]
    assert load.rates == (200,)
    assert more == {"model_name": record().name, "wait_quiet_s": 7.0}


def test_targets_at_one_rate_are_one_load_test_that_is_long_enough_for_all(store: Store) -> None:
    [one] = needed(card(store, subject(), texts=(ASKED, "200/s with p99.9<=50ms"))).loads
    assert (one.load.rates, one.load.duration_s) == ((200,), 150)


def test_many_targets_are_several_load_tests(store: Store) -> None:
    texts = tuple(f"{rate}/s with p99<=20ms" for rate in range(200, 230))
    work = needed(card(store, subject(), texts=texts))
    assert [len(one.load.rates) for one in work.loads] == [12, 12, 6]
    limits = tuple(f"200/s with p{p}<=20ms" for p in range(80, 90))
    work = needed(card(store, subject(), texts=limits))
    assert [len(one.load.limits) for one in work.loads] == [8, 2]


def test_a_verification_names_it() -> None:
    found = judged(ASKED, load_test(200))
    assert verifications.target_words(found.to_dict()) == "load 200/s with p99<=20ms"


def test_a_report_of_the_scorecard_says_how_it_is_judged(store: Store) -> None:
    put(store, spec(), load_test(200))
    [row] = card(store, subject())
    about = of_card(store, [row], "card")
    assert [one.kind for one in about.trials] == ["load"]
    found = markdown(compose(about, store))
    assert "p99 at 200 requests/s" in found
    assert "upper 95 % bound of the share of slower requests" in found
    assert "load: 200/s with p99<=20ms" in found  # its file
