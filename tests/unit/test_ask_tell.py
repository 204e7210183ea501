"""Studies: the strategy follows the stored results; the comparisons here are invented."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Configuration
from core.evidence.measurement import Trial, TrialState
from core.process.machine_queue import MachineQueue
from core.run import job_types
from core.run.ask_tell import (
    ComparisonRequest,
    Known,
    Strategy,
    Study,
    StudyState,
    fixed_strategy,
    measured_before,
)
from core.run.job import Ending, Job, Outcome, Service, Status
from core.run.scheduler import Scheduler
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from tests.waiting import WAIT_S

SHA = "0" * 64
P50_S = {1: 0.004, 2: 0.002, 4: 0.003, 8: 0.005}  # of the invented model, by threads


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def scheduler(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    monkeypatch.setenv("ORTUNE_QUEUE", str(tmp_path / "queue"))
    service = Scheduler(store, owner="tester")
    yield service
    service.close()


def spec(threads: int) -> TrialSpec:
    return spec_from_dict(
        {"model": {"path": "m.onnx", "sha256": SHA}, "session": {"intra_op_num_threads": threads}}
    )


def threads_of(trial: Trial) -> int:
    return int(trial.spec["session"]["intra_op_num_threads"])


def asked(*threads: int) -> list[Configuration]:
    return [Configuration(spec=spec(one), label=f"{one} threads") for one in threads]


def result(threads: int, **changes: Any) -> dict[str, Any]:
    return {
        "fingerprint": "here",
        "grade": "A",
        "busy": None,
        "latency": {"p50_s": P50_S[threads]},
        **changes,
    }


def invented(name: str, *, ends: TrialState = "COMPLETE") -> Callable[[Sequence[Configuration]], Job]:
    """Jobs like those of comparisons, which invent the results of a comparison."""

    def job(asked: Sequence[Configuration]) -> Job:
        comparison = job_types.comparison(asked, study=name)

        def work(service: Service) -> Outcome:
            found = {
                one.id: Ending(state=ends, result=result(threads_of(one)))
                for one in comparison.trials
                if one.kind == "measure"
            }
            return Outcome(whole=Ending(state=ends), trials=found)

        return replace(comparison, work=work)

    return job


def search(name: str) -> Strategy:
    """Two steps: the ends of a range, then the adjacent values of the faster one."""

    def strategy(known: Known) -> Sequence[ComparisonRequest]:
        found = {threads_of(one.trial): one.trial.result["latency"]["p50_s"] for one in known.values()}
        if not {1, 8} <= set(found):
            return [ComparisonRequest(asked=asked(1, 8), job=invented(name))]
        best = min((1, 8), key=lambda one: found[one])
        return [ComparisonRequest(asked=asked(*{1: (2, 4), 8: (4,)}[best]), job=invented(name))]

    return strategy


def comparisons_of(store: Store, study: str) -> list[list[int]]:
    """Threads of the candidates of each race of a study, the first race first."""
    comparisons = reversed(store.comparisons(study=study))
    return [
        [threads_of(one) for one in store.trials_of(comparison.id) if one.kind == "measure"]
        for comparison in comparisons
    ]


def go(study: Study, scheduler: Scheduler) -> tuple[StudyState, list[list[str]]]:
    """Run a study to its end; return its state, and the labels of each batch of requests."""
    began: list[list[str]] = []

    def follow(job: str) -> Status:
        assert scheduler.join(WAIT_S)
        status = scheduler.status(job)
        assert status is not None
        return status

    def begin(requests: Sequence[ComparisonRequest]) -> None:
        began.append([one.label for request in requests for one in request.asked])

    return study.run(scheduler.store, scheduler.submit, begin=begin, follow=follow), began


def test_a_search_of_two_steps_is_a_strategy(scheduler: Scheduler) -> None:
    study = Study(name="search #1", strategy=search("search #1"))
    progress, began = go(study, scheduler)
    assert began == [["1 threads", "8 threads"], ["2 threads", "4 threads"]]
    assert sorted(map(sorted, comparisons_of(scheduler.store, "search #1"))) == [[1, 8], [2, 4]]
    assert [threads_of(one.trial) for one in progress.known.values()] == [1, 8, 2, 4]
    assert not progress.missing
    assert not any(one.reused for one in progress.known.values())


def test_a_study_is_found_where_it_was_and_goes_on_from_there(scheduler: Scheduler, store: Store) -> None:
    first = Study(name="search #1", strategy=search("search #1"))
    with MachineQueue().turn("somebody", "measure vit"):
        (job,) = first.advance(store, scheduler.submit)
        assert first.advance(store, scheduler.submit) == []  # its first batch has not ended
        assert [one.trial.state for one in first.read_progress(store).known.values()] == ["WAITING"] * 2
    assert scheduler.join(WAIT_S)
    again = Study(name="search #1", strategy=search("search #1"))
    (request,) = again.read_progress(store).missing
    assert [one.label for one in request.asked] == ["2 threads", "4 threads"]
    assert scheduler.status(job) is not None
    go(again, scheduler)
    assert again.read_progress(store).missing == []
    assert len(store.comparisons(study="search #1")) == 2


def test_what_was_measured_before_is_not_measured_again(scheduler: Scheduler, store: Store) -> None:
    go(
        Study(
            name="before",
            strategy=fixed_strategy(ComparisonRequest(asked=asked(1, 2), job=invented("before"))),
        ),
        scheduler,
    )
    for trial in store.trials(study="before"):
        store.update_trial(trial.id, model_sha256=SHA)
    earlier = measured_before(store, fingerprint="here", model_sha256=SHA)
    strategy = fixed_strategy(ComparisonRequest(asked=asked(1, 2, 4), job=invented("after")))
    progress, began = go(Study(name="after", strategy=strategy, earlier=earlier), scheduler)
    assert began == [["4 threads"]]
    assert [(threads_of(one.trial), one.reused) for one in progress.known.values()] == [
        (1, True),
        (2, True),
        (4, False),
    ]
    assert {one.comparison.study for one in progress.known.values() if one.comparison is not None} == {
        "before",
        "after",
    }
    elsewhere = measured_before(store, fingerprint="another machine", model_sha256=SHA)
    (request,) = Study(name="third", strategy=strategy, earlier=elsewhere).read_progress(store).missing
    assert len(request.asked) == 3


def test_feeds_of_a_file_are_never_taken_for_the_same(store: Store) -> None:
    from_file = spec(1).model_copy(
        update={"workload": spec(1).workload.model_copy(update={"feeds": "rows.npz"})}
    )
    trial = Trial(
        id="t",
        kind="measure",
        state="COMPLETE",
        spec=from_file.to_dict(),
        model_name="m",
        model_sha256=SHA,
        key=from_file.key(),
        created_at=1.0,
        finished_at=2.0,
        fingerprint="here",
        result=result(1),
    )
    store.create_trial(trial)
    assert store.find_complete(from_file.key(), "here", model_sha256=SHA) is not None
    assert measured_before(store, fingerprint="here", model_sha256=SHA)(from_file) is None


def test_a_cancelled_comparison_ends_the_study_and_an_earlier_result_stands_in(
    scheduler: Scheduler, store: Store
) -> None:
    strategy = fixed_strategy(ComparisonRequest(asked=asked(1, 2), job=invented("mine", ends="CANCELLED")))
    progress, began = go(Study(name="mine", strategy=strategy), scheduler)
    assert len(began) == 1
    assert {one.trial.state for one in progress.known.values()} == {"CANCELLED"}
    good = replace(progress.known[spec(1).key()].trial, id="good", state="COMPLETE", study="other")

    def earlier(one: TrialSpec) -> Trial | None:
        return good if one.key() == good.key else None

    known = Study(name="mine", strategy=strategy, earlier=earlier).read_progress(store).known
    assert [(one.trial.state, one.reused) for one in known.values()] == [
        ("COMPLETE", True),
        ("CANCELLED", False),
    ]


def test_a_strategy_that_learns_nothing_is_not_followed_for_ever(scheduler: Scheduler) -> None:
    lost = Study(
        name="mine",
        strategy=fixed_strategy(ComparisonRequest(asked=asked(1), job=invented("of another name"))),
    )
    progress, began = go(lost, scheduler)
    assert len(began) == 1
    assert not progress.known


def test_a_baseline_is_compared_with_the_remaining_candidates_and_never_alone(
    scheduler: Scheduler, store: Store
) -> None:
    rival = Configuration(spec=spec(8), label="rival", role="baseline")

    def study(*threads: int) -> Study:
        request = ComparisonRequest(asked=[*asked(*threads), rival], job=invented("mine"))
        return Study(name="mine", strategy=fixed_strategy(request))

    assert go(study(1), scheduler)[1] == [["1 threads", "rival"]]
    assert go(study(1, 2), scheduler)[1] == [["2 threads", "rival"]]
    assert go(study(1, 2), scheduler)[1] == []
