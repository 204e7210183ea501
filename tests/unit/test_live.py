"""Live estimates by the real rules on a simulated clock: the compared configurations, and the messages."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.evidence.record import Entry
from core.evidence.speedup_interval import ASSUMED_PRIOR
from core.run import live
from core.run.job import Service
from core.show import interim
from core.spec import TrialSpec, ort_default, spec_from_dict
from tests import raw_comparisons, simulated_clock
from tests.simulated_clock import Model

DEFAULT_MODEL = Model(run_s=0.001)


def asked(**session: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, "session": session})


ONE, TWO = asked(intra_op_num_threads=1), asked(intra_op_num_threads=2)


class LiveEstimates:
    """A live race whose processes are numbers; `slow` says which of each configuration are slow for life."""

    def __init__(self, models: dict[str, Model], slow: Callable[[str, int], bool], seed: int) -> None:
        self.clock, self.rng = simulated_clock.Clock(), random.Random(seed)
        self.models, self.slow = models, slow
        self.workers: list[tuple[str, simulated_clock.Worker]] = []
        self.told: list[dict[str, Any]] = []
        self.wishes = live.LiveRequests()
        service = SimpleNamespace(store=None, environment=lambda: None, on_live=self._hear)
        self.service = cast(Service, service)
        self.begin({})

    def begin(self, before: dict[str, dict[str, Any]]) -> None:
        """Begin a new live job after another one."""
        self.live = live._Live(self.wishes, self.service, cast(Any, None), before)

    def _hear(self, now: dict[str, Any]) -> None:
        self.told.append(now["told"]["Ann"])

    def start(self, workers: object, entry: Entry, timeout_s: float, **how: Any) -> Any:
        assert how["layout_seed"] is not None, "a process that draws no layout shows no spread"
        key = cast(str, entry.label)
        number = sum(name == key for name, _ in self.workers)
        worker = simulated_clock.worker(self.models.get(key, DEFAULT_MODEL), self.clock, self.rng, number)
        worker.own *= 2.3 if self.slow(key, number) else 1.0
        self.clock.now += worker.model.load_s
        self.workers.append((key, worker))
        return worker, raw_comparisons.load_reply(session_creation_s=0.1, first_run_ns=1)

    def estimate(self, spec: TrialSpec, label: str) -> dict[str, Any]:
        wish = live.LiveRequest(visitor="Ann", spec=spec, label=label)
        self.wishes.put(wish)
        self.wishes.take(0.0)
        self.live._estimate(wish)
        return self.told[-1]

    def started(self, key: str) -> int:
        return sum(name == key for name, _ in self.workers)


@pytest.fixture
def live_estimates(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LiveEstimates]:
    def make(
        slow: Callable[[str, int], bool] = lambda key, number: False, seed: int = 1, **models: Model
    ) -> LiveEstimates:
        monkeypatch.setattr(live, "prior_of", lambda store, machine: lambda run_s: ASSUMED_PRIOR)
        one = LiveEstimates(models, slow, seed)
        monkeypatch.setattr(live, "time", one.clock)
        monkeypatch.setattr(live, "MOST_S", 1000.0)
        monkeypatch.setattr(live, "start_loaded", one.start)
        monkeypatch.setattr(live._Live, "_entry", lambda self, *given: SimpleNamespace(label=given[-1]))
        return one

    return make


REFERENCE = "ONNX Runtime's default"


def test_several_streams_are_estimated_by_throughput_beside_their_own_latency(
    live_estimates: Callable[..., LiveEstimates], monkeypatch: pytest.MonkeyPatch
) -> None:
    block = simulated_clock.Worker.block

    def of_two(worker: simulated_clock.Worker, **asked: Any) -> dict[str, Any]:
        """Two callers, each as fast as one alone: twice the runs in the same window."""
        reply = block(worker, **asked)
        if worker.model.run_s == 0.001:
            runs = len(reply["latencies_ns"])
            reply["window_s"] = sum(reply["latencies_ns"]) / 1e9
            reply["latencies_ns"] *= 2
            reply["stream_completed"] = [float(runs), float(runs)]
        return reply

    monkeypatch.setattr(simulated_clock.Worker, "block", of_two)
    one = live_estimates(
        mine=Model(run_s=0.001, noise=0.0, between=0.0), **{REFERENCE: Model(run_s=0.0010001)}
    )
    spec = asked().model_copy(update={"workload": asked().workload.model_copy(update={"streams": 2})})
    found = one.estimate(spec, "mine")
    assert contrast_of(found)["statistic"] == "throughput"
    assert contrast_of(found)["ratio"] == pytest.approx(2.0, rel=0.05)
    assert found["trail"][-1]["streams"] == 2
    assert found["trail"][-1]["p50_s"] == pytest.approx(0.001)
    assert found["trail"][-1]["rows_per_s"] == pytest.approx(2000, rel=0.05)


def contrast_of(told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = told["contrasts"][0]
    return found


def test_no_number_is_told_before_three_launches_and_each_has_fresh_processes(
    live_estimates: Callable[..., LiveEstimates],
) -> None:
    one = live_estimates(mine=Model(run_s=0.0005))
    found = one.estimate(ONE, "mine")
    ratios = {told["launches"]: contrast_of(told)["ratio"] for told in one.told if "contrasts" in told}
    assert ratios[0] is ratios[1] is ratios[2] is None
    assert all(ratios[n] == pytest.approx(2.0, rel=0.05) for n in ratios if n >= live.LEAST_LAUNCHES)
    assert one.started("mine") == found["launches"] == live.MOST_LAUNCHES
    assert one.started(REFERENCE) == live.MOST_LAUNCHES, "each launch meets another process of the default"
    alive = [key for key, worker in one.workers if worker.alive]
    assert alive == [REFERENCE] * live.LEAST_LAUNCHES, "the candidate's processes are over"


def test_intervals_shrink_with_every_launch(live_estimates: Callable[..., LiveEstimates]) -> None:
    one = live_estimates(mine=Model(run_s=0.0005))
    one.estimate(ONE, "mine")
    widths = [
        contrast["ratio_high"] / contrast["ratio_low"]
        for told in one.told
        if told["state"] == "races" and (contrast := contrast_of(told))["ratio"]
    ]
    assert len(widths) == live.MOST_LAUNCHES - live.LEAST_LAUNCHES + 1
    assert widths[-1] < widths[0]


def test_a_first_process_that_is_slow_for_life_is_not_told_as_a_slower_setting(
    live_estimates: Callable[..., LiveEstimates],
) -> None:
    one = live_estimates(lambda key, number: key == "mine" and number == 0)
    one.estimate(ONE, "mine")
    for told in (told for told in one.told if told.get("contrasts")):
        said = interim.sentence(contrast_of(told))
        assert "slower" not in said
        assert "faster" not in said


def test_the_defaults_are_compared_with_nothing_and_have_a_point(
    live_estimates: Callable[..., LiveEstimates],
) -> None:
    one = live_estimates()
    found = one.estimate(asked(), "defaults")
    assert live.is_default(asked())
    assert not live.is_default(ONE)
    assert "contrasts" not in found
    assert found["state"] == "shown"
    [point] = found["trail"]
    assert point["p50_s"] == pytest.approx(0.001, rel=0.05)


def test_points_of_the_trail_stand_as_the_ratios_do(live_estimates: Callable[..., LiveEstimates]) -> None:
    one = live_estimates(mine=Model(run_s=0.0005), other=Model(run_s=0.002))
    one.estimate(asked(), "defaults")
    first = contrast_of(one.estimate(ONE, "mine"))["ratio"]
    found = one.estimate(TWO, "other")
    second = contrast_of(found)["ratio"]
    by_label = {point["label"]: point for point in found["trail"]}
    default_s = by_label["defaults"]["p50_s"]
    assert default_s / by_label["mine"]["p50_s"] == pytest.approx(first)
    assert default_s / by_label["other"]["p50_s"] == pytest.approx(second)
    assert by_label["mine"]["rows_per_s"] == pytest.approx(1 / by_label["mine"]["p50_s"])


def test_a_new_live_job_continues_the_trail_of_the_same_model(
    live_estimates: Callable[..., LiveEstimates],
) -> None:
    one = live_estimates(one=Model(run_s=0.002), two=Model(run_s=0.004))
    before = one.estimate(ONE, "one")
    one.begin({"Ann": before, "Ben": before})
    one.told.clear()
    found = one.estimate(TWO, "two")
    assert [[point["label"] for point in told["trail"]] for told in (one.told[0], found)] == [
        ["one"],
        ["one", "two"],
    ]
    assert "contrasts" not in one.told[0], "the estimate itself is measured anew"
    one.begin({"Ann": {**before, "model": "another"}})
    assert [point["label"] for point in one.estimate(TWO, "two")["trail"]] == ["two"]


def test_a_wish_whose_ratio_is_not_known_has_no_point(live_estimates: Callable[..., LiveEstimates]) -> None:
    one = live_estimates(lambda key, number: key == "mine" and number % 2 == 1)
    one.estimate(ONE, "mine")
    for told in (told for told in one.told if told.get("contrasts")):
        assert bool(told["trail"]) == interim.is_known(contrast_of(told))
    assert not all(told["trail"] for told in one.told if told.get("launches", 0) >= live.LEAST_LAUNCHES)


def test_moving_back_goes_on_with_what_was_found(
    live_estimates: Callable[..., LiveEstimates], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = live_estimates()
    monkeypatch.setattr(live, "MOST_S", 0.0)  # it ends with its first number
    assert one.estimate(ONE, "mine")["launches"] == live.LEAST_LAUNCHES
    one.estimate(TWO, "other")
    heard = len(one.told)
    assert one.estimate(ONE, "mine")["launches"] == live.LEAST_LAUNCHES + 1
    again = [told for told in one.told[heard:] if told.get("contrasts")]
    assert all(contrast_of(told)["ratio"] for told in again), "its number stands at once"


def test_the_references_of_two_workloads_have_latencies_of_their_own(
    live_estimates: Callable[..., LiveEstimates],
) -> None:
    one = live_estimates()
    larger = asked().model_copy(update={"workload": asked().workload.model_copy(update={"batch_size": 8})})
    assert ort_default(larger).key() != ort_default(asked()).key()
    one.estimate(asked(), "one row")
    found = one.estimate(larger, "eight rows")
    assert len(found["trail"]) == 2
    assert all(math.isfinite(point["p50_s"]) for point in found["trail"])
