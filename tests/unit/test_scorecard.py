"""The scorecard: results that it finds in a store, and missing ones. No worker runs here."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core import wire
from core.evidence.measurement import Trial, latency_summary
from core.run import scorecard
from core.run.scorecard import ScorecardRow, Subject, accuracy_task, jobs_of, needed, on_model, rows
from core.spec import TrialSpec, spec_from_dict
from core.spec.targets import TargetSpec, target_from_dict
from core.store import ModelRecord, Store
from core.wire.errors import Cancelled, ModelError
from tests import builders

HERE = "this machine"
SHA = "a" * 64
SAMPLES = [0.002 * (1 + 0.001 * (k % 7)) for k in range(2000)]


def info(**changes: Any) -> wire.ModelInfo:
    facts: dict[str, Any] = {
        "path": "m.onnx",
        "sha256": SHA,
        "content_sha256": SHA,
        "size_bytes": 500_000,
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
        "free_dims": ["batch"],
        "batch_dim": "batch",
        "batch_axes": {"x": 0},
        "fixed_batch": None,
        "metadata": {},
    }
    return facts | changes  # type: ignore[return-value]


FIXED = {
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 4]}],
    "free_dims": [],
    "batch_dim": None,
    "fixed_batch": 4,
}


def record(name: str = "m", sha: str = SHA, **changes: Any) -> ModelRecord:
    return builders.model(name, sha, path=f"{name}.onnx", info=info(**changes))


def spec(sha: str = SHA, **parts: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx", "sha256": sha}, **parts})


def subject(label: str = "one", of: ModelRecord | None = None, **parts: Any) -> Subject:
    model = of or record()
    return Subject(label=label, spec=spec(model.sha256, **parts), record=model)


def target(metric: str, limit: str | float, **conditions: Any) -> TargetSpec:
    side = "at_least" if metric in ("throughput", "accuracy", "sensitivity") else "at_most"
    return target_from_dict({"metric": metric, side: limit, **conditions})


P99 = target("latency_p99", "3 ms", batch_size=1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.db")


Put = Callable[..., Trial]


@pytest.fixture
def put(store: Store) -> Put:
    """Keep a trial of `asked`, by default a complete one on this machine."""

    def put_it(asked: TrialSpec, *, rows: int = 1, at: float = 1000.0, **changes: Any) -> Trial:
        result = {
            "grade": "B",
            "batch_size": rows,
            "runs": len(SAMPLES),
            "latencies_s": SAMPLES,
            "latency": latency_summary(SAMPLES, rounds=[40] * 50),
            "cpu_s_per_inference": 0.004,
            "peak_rss_bytes": 10_000_000,
            "cpu_s_per_inference_low": 0.0039,
            "cpu_s_per_inference_high": 0.0041,
            "generations": 9,
            "blocks": [{"runs": 40, "counters": {"cpu_s": 41 * 0.004}}] * 50,
        } | changes.pop("result", {})
        facts = {"created_at": at, "finished_at": at + 1, "result": result, "fingerprint": HERE}
        trial = builders.trial(secrets.token_hex(8), asked, **(facts | changes))
        store.create_trial(trial)
        return trial

    return put_it


def card(
    store: Store, *subjects: Subject, targets: tuple[TargetSpec, ...] = (P99,), **more: Any
) -> list[ScorecardRow]:
    return rows(store, subjects, targets, fingerprint=HERE, **more)


def states(found: list[ScorecardRow]) -> list[list[str]]:
    return [[one.state for one in row.judged] for row in found]


# --- what counts --------------------------------------------------------------------------------------------


def test_nothing_measured_is_not_known_and_needs_a_comparison(store: Store) -> None:
    found = card(store, subject())
    assert states(found) == [["UNKNOWN"]]
    assert needed(found).comparisons == {1: [found[0].subject]}


def test_a_trial_of_the_same_settings_answers_however_it_was_asked(store: Store, put: Put) -> None:
    put(spec(workload={"batch_size": 1}, protocol={"precision": "publish"}))
    elsewhere = subject()
    elsewhere = Subject(
        label="x",
        record=elsewhere.record,
        spec=elsewhere.spec.model_copy(
            update={"model": elsewhere.spec.model.model_copy(update={"path": "other/m.onnx"})}
        ),
    )
    found = card(store, subject(), elsewhere)
    assert states(found) == [["MET"], ["MET"]]
    assert not needed(found)


def test_what_was_measured_beside_others_counts_too(store: Store, put: Put) -> None:
    put(spec(), kind="reference")
    assert states(card(store, subject())) == [["MET"]]


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "another machine"},
        {"model_sha256": "b" * 64},
        {"kind": "profile"},
        {"state": "CANCELLED"},
        {"state": "RUNNING", "result": None},
        {"rows": 8},
    ],
    ids=str,
)
def test_what_says_nothing_of_it_does_not_count(store: Store, put: Put, changes: dict[str, Any]) -> None:
    if changes.get("result", 0) is None:
        changes = {**changes, "result": {}}
    put(spec(), **changes)
    assert states(card(store, subject())) == [["UNKNOWN"]]


def test_other_settings_do_not_count(store: Store, put: Put) -> None:
    put(spec(session={"intra_op_num_threads": 1}))
    assert states(card(store, subject())) == [["UNKNOWN"]]
    assert states(card(store, subject(session={"intra_op_num_threads": 1}))) == [["MET"]]


def test_only_trials_since_a_moment_count_where_that_is_asked(store: Store, put: Put) -> None:
    put(spec(), at=1000.0)
    assert states(card(store, subject(), since=1000.0)) == [["MET"]]
    assert states(card(store, subject(), since=1000.5)) == [["UNKNOWN"]]


def test_the_newest_comparison_that_can_answer_does(store: Store, put: Put) -> None:
    slow = [0.02 * (1 + 0.001 * (k % 7)) for k in range(2000)]
    put(spec(), at=1000.0)
    put(spec(), at=2000.0, result={"latency": latency_summary(slow, rounds=[40] * 50)})
    put(spec(), at=3000.0, result={"grade": "F", "grade_reason": "Noise.", "generations": None})  # an old one
    put(spec(), at=4000.0, result={"latency": latency_summary([0.02] * 10)})  # too few for a p99
    assert states(card(store, subject())) == [["MISSED"]]


def test_each_target_looks_at_its_own_batch(store: Store, put: Put) -> None:
    put(spec(workload={"batch_size": 16}), rows=16)
    targets = (P99, target("throughput", "2000/s", batch_size=16), target("peak_rss", "100 MB"))
    found = card(store, subject(workload={"batch_size": 16}), targets=targets)
    assert states(found) == [["UNKNOWN", "MET", "MET"]]
    assert list(needed(found).comparisons) == [1]


def test_cpu_time_has_the_interval_that_the_comparison_found(store: Store, put: Put) -> None:
    trial = put(spec())
    found = card(store, subject(), targets=(target("cpu_s", "5 ms"),))
    assert (found[0].judged[0].low, found[0].judged[0].high) == (0.0039, 0.0041)
    assert found[0].evidence.results[1][0]["trial"] == trial.id


def test_a_time_that_a_busy_machine_did_not_reach_is_measured_again(store: Store, put: Put) -> None:
    busy = {"words": "under background load: others used 1.0 cores"}
    put(spec(), result={"busy": busy})
    lax, strict = target("latency_p99", "3 s", batch_size=1), target("latency_p99", 1e-9, batch_size=1)
    assert states(card(store, subject(), targets=(lax,))) == [["MET"]]
    found = card(store, subject(), targets=(strict,))
    assert states(found) == [["UNKNOWN"]]
    assert found[0].judged[0].cause == "busy"
    assert list(needed(found).comparisons) == [1]


def test_a_failed_trial_says_why(store: Store, put: Put) -> None:
    error = {"type": "WorkerError", "message": "The worker crashed.", "hint": ""}
    put(spec(), state="FAIL", error=error, result={})
    judged = card(store, subject())[0].judged[0]
    assert (judged.state, judged.cause) == ("UNKNOWN", "failed")
    assert "crashed" in judged.why


def test_a_trial_of_another_version_is_no_error(store: Store, put: Put) -> None:
    trial = put(spec())
    store.update_trial(trial.id, spec={**trial.spec, "unheard_of": 1})
    assert states(card(store, subject())) == [["UNKNOWN"]]


def test_a_breach_of_the_newest_comparison_is_told(store: Store, put: Put) -> None:
    put(spec(), result={"guard": {"breach": True, "why": "0.5 of the largest magnitude"}})
    found = card(store, subject())[0]
    assert found.breach == "0.5 of the largest magnitude"
    put(spec(), at=2000.0, result={"guard": {"breach": False, "why": ""}})
    assert card(store, subject())[0].breach == ""


# --- what is missing ----------------------------------------------------------------------------------------


def test_a_batch_that_the_model_refuses_is_not_compared(store: Store) -> None:
    fixed = subject(of=record(**FIXED))
    found = card(store, fixed, targets=(P99, target("latency_p50", "3 ms")))
    assert fixed.rows == 4
    assert " 4" in found[0].judged[0].why
    assert list(needed(found).comparisons) == [4]


def test_labelled_rows_are_fed_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimpleNamespace(found=None)
    monkeypatch.setattr(scorecard, "known_accuracy", lambda *_, **__: kept.found)
    without = subject(targets=[])
    with_data = subject(dataset={"path": "digits.npz"})
    target_ = target("accuracy", "98 %")
    found = card(store, without, with_data, targets=(target_,))
    assert states(found) == [["UNKNOWN"], ["UNKNOWN"]]
    assert needed(found).accuracies == [with_data]
    assert not needed(found).comparisons


def test_what_cannot_be_evaluated_says_why_and_is_not_tried(store: Store) -> None:
    asked = (target("accuracy", "98 %"),)
    embedding = record(outputs=[{"name": "y", "dtype": "float32", "shape": ["batch", 8, 8]}])
    no_classifier = subject(of=embedding, dataset={"path": "sample_models/digits_test.npz"})
    no_data = subject(dataset={"path": "nowhere.npz"})
    found = card(store, no_classifier, no_data, targets=asked)
    assert "classifier" in found[0].judged[0].why
    assert "`nowhere.npz`" in found[1].judged[0].why
    assert not needed(found)


def test_comparisons_are_cut_into_parts_and_accuracies_are_one_task(store: Store) -> None:
    many = [subject(f"s{number}", session={"intra_op_num_threads": number + 1}) for number in range(9)]
    work = scorecard.MissingMeasurements(comparisons={8: many}, accuracies=many[:2])
    jobs = jobs_of(store, work)
    assert [one.kind for one in jobs] == ["comparison", "comparison", "accuracy"]
    sizes = [[spec.workload.batch_size for spec in one.specs] for one in jobs[:2]]
    assert sizes == [[8] * 7, [8] * 2]


def test_one_model_that_cannot_be_evaluated_does_not_keep_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(store: Store, asked: TrialSpec, *, run: Any) -> None:
        if asked.model.sha256 == "b" * 64:
            raise ModelError("It is no classifier.", hint="")
        if asked.model.sha256 == "c" * 64:
            raise Cancelled("Stopped.", hint="")

    monkeypatch.setattr(scorecard, "measure_accuracy", measure)
    good, bad = subject("good"), subject("bad", of=record("b", "b" * 64))
    run = lambda *_, **__: {}  # noqa: E731
    assert accuracy_task(store, [good, bad])(run) == {"failures": {"bad": "It is no classifier."}}
    with pytest.raises(ModelError):
        accuracy_task(store, [bad])(run)
    with pytest.raises(Cancelled):
        accuracy_task(store, [good, subject("stopped", of=record("c", "c" * 64))])(run)


# --- variants -----------------------------------------------------------------------------------------------


def test_settings_move_to_a_variant_without_what_it_does_not_have() -> None:
    base = spec(workload={"batch_size": 8, "dims": {"batch": 8}}, session={"intra_op_num_threads": 1})
    same = on_model(base, record("v", "b" * 64))
    assert (same.model.sha256, same.workload, same.session) == ("b" * 64, base.workload, base.session)
    fixed = on_model(base, record("v", "b" * 64, **FIXED))
    assert (fixed.workload.batch_size, fixed.workload.dims) == (None, {})


def test_one_row_at_a_time_is_fed_to_accuracy_in_whatever_batch() -> None:
    assert subject(workload={"batch_size": 1}).for_accuracy.workload.batch_size is None
    assert subject(workload={"batch_size": 8}).for_accuracy.workload.batch_size == 8
