"""The predicted duration of a comparison, against its own rules with known run times."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.evidence.comparison import Comparison
from core.evidence.measurement import Trial, latency_summary
from core.run.prediction import (
    COMPARISONS_READ,
    MOST_FACTOR,
    ComparisonHistory,
    MeasuredRun,
    history_of,
    past,
    predict,
)
from core.spec import ModelRef, TrialSpec
from core.spec.effort import EFFORTS
from core.store import Store
from tests import builders, raw_comparisons, simulated_clock
from tests.builders import spec
from tests.simulated_clock import Model

BASE = TrialSpec(model=ModelRef(path="m.onnx"))
RUN_S = 0.001
BLOCK_S = 0.020 + RUN_S + 0.002  # 20 ms of runs, the run before them, the switch


def known(run_s: float = RUN_S, **changes: Any) -> ComparisonHistory:
    facts: dict[str, Any] = {
        "seen": (MeasuredRun(spec=BASE, run_s=run_s),),
        "start_s": 0.25,
        "after_s": 1.0,
        "beside_s": 0.5,
        "sigma": 0.01,
        "sigma_between": 0.01,
        "generations": {},
    }
    return ComparisonHistory(**(facts | changes))


# --- a budget ---------------------------------------------------------------------------------------------


def test_a_quiet_comparison_goes_on_for_the_seconds_that_a_p99_is_worth() -> None:
    """Two configurations and an A/A control: 0.75 s of starts, 69 ms a round; sqrt(0.75 / 0.069) rounds/s."""
    found = predict([BASE, BASE], known())
    assert found.rounds == 6 * 3  # the first interim analysis is after 4
    assert found.seconds == pytest.approx(6 * (0.75 + 3 * 3 * BLOCK_S) + 2 * 1.0 + 0.5)
    assert found.in_budget


def test_a_quiet_comparison_of_many_rounds_per_launch_takes_the_first_interim_analysis() -> None:
    """40 rounds are made before the 5 seconds are over."""
    found = predict([BASE, BASE], known(sigma=0.02, sigma_between=0.002, start_s=0.05, run_s=0.0001))
    assert found.rounds == 4 * 15


def test_a_noisy_comparison_takes_the_interim_analysis_that_suffices() -> None:
    """6 % between rounds and 1 % between processes: 64 rounds would be best, the budget allows fewer."""
    quiet = predict([BASE, BASE], known())
    noisy = predict([BASE, BASE], known(sigma=0.06))
    assert noisy.rounds > 4 * quiet.rounds
    assert noisy.seconds > 2 * quiet.seconds
    assert noisy.in_budget


def test_what_such_comparisons_took_before_says_more_than_the_formula() -> None:
    found = predict([BASE, BASE], known(generations={"quick": 14, "publish": 100}))
    assert found.rounds == 14 * 3
    more = predict([spec(protocol={"precision": "standard"})] * 2, known(generations={"quick": 14}))
    assert more.rounds < found.rounds  # another precision was not seen yet


def test_the_budget_ends_a_comparison_that_would_need_more() -> None:
    asked = [spec(protocol={"budget_s": 8})] * 2
    found = predict(asked, known(run_s=0.02, sigma=0.06, sigma_between=0.03))
    assert not found.in_budget
    assert 0.6 * 8 <= found.seconds <= 8 + 0.5


def test_noise_that_the_budget_cannot_narrow_is_said() -> None:
    assert not predict([BASE, BASE], known(sigma=0.5, sigma_between=0.1)).in_budget
    assert not predict([BASE, BASE], known(sigma_between=0.2)).in_budget


def test_noise_beyond_the_last_interim_analysis_is_said() -> None:
    endless = spec(protocol={"budget_s": 86_400})
    assert not predict([endless, endless], known(sigma_between=0.2)).in_budget


def test_more_configurations_larger_batches_and_slower_starts_take_longer() -> None:
    two = predict([BASE] * 2, known()).seconds
    assert predict([BASE] * 4, known()).seconds > two
    assert predict([BASE] * 2, known(start_s=1.0)).seconds > two
    large = spec(workload={"batch_size": 64})
    assert predict([large] * 2, known()).seconds > two


def test_what_earlier_comparisons_really_took_scales_it_within_the_budget() -> None:
    plain, slower = known(), known(factor=1.5)
    once, more = (predict([BASE, BASE], one).seconds - 0.5 for one in (plain, slower))
    assert more == pytest.approx(1.5 * once)
    assert predict([BASE, BASE], known(factor=3.0, sigma=0.06)).seconds <= 30 + 0.5


def test_a_budget_without_an_interval_says_before_the_start_which_one_holds_it() -> None:
    slow = known(run_s=1.0, start_s=3.0)
    short, longer = (predict([spec(protocol={"budget_s": budget_s})] * 2, slow) for budget_s in (20, 600))
    assert not short.in_budget
    assert short.interval_budget_s is not None
    assert short.interval_budget_s > 20
    assert f"{short.interval_budget_s} s" in short.late
    enough = predict([spec(protocol={"budget_s": short.interval_budget_s})] * 2, slow)
    assert (enough.interval_budget_s, longer.interval_budget_s) == (None, None)
    assert enough.late not in ("", short.late)


# --- an exact number of runs --------------------------------------------------------------------------------


def test_an_exact_number_of_runs_takes_that_many() -> None:
    """100 runs are 10 rounds of 10, each with one before it, in 8 launches of three processes."""
    exact = spec(protocol={"runs": 100})
    found = predict([exact, exact], known())
    assert found.rounds == 10
    rounds_s = 2 * (100 + 10) * RUN_S + 20 * 0.002
    assert found.seconds == pytest.approx(rounds_s + 8 * 3 * 0.25 + 2 * 1.0 + 0.5)
    assert found.in_budget


def test_the_nearest_configuration_predicts_in_proportion_to_the_batch() -> None:
    seen = (
        MeasuredRun(spec=BASE, run_s=0.001),
        MeasuredRun(spec=spec(workload={"batch_size": 64}), run_s=0.03),
    )
    asked = spec(workload={"batch_size": 32}, protocol={"runs": 8})
    found = predict([asked], known(seen=seen, start_s=0.0, after_s=0.0, beside_s=0.0))
    assert found.seconds == pytest.approx(
        8 * (2 * 0.015 + 0.002)
    )  # eight rounds of one run, and one before it


def test_an_empty_cache_predicts_as_one_of_a_single_row() -> None:
    asked = spec(workload={"dims": {"past": 0}}, protocol={"runs": 8})
    assert predict([asked], known()) == predict([spec(protocol={"runs": 8})], known())


# --- learning ---------------------------------------------------------------------------------------------


def trial(name: str, of: TrialSpec = BASE, *, run_s: float = RUN_S) -> Trial:
    result = {"latency": latency_summary([run_s] * 50)}
    return builders.trial(name, of, model_sha256="0" * 64, comparison="race", result=result)


def comparison(trials: list[Trial], *, took_s: float = 20.0, **changes: Any) -> Comparison:
    """Five generations of eight rounds, 0.9 s to start each, 12 s in all; the rest was preparing."""
    result = {
        "rounds": 40,
        "wall_s": 12.0,
        "generations": [{"generation": n, "rounds": 8, "start_s": 0.9} for n in range(5)],
        "contrasts": [{"sigma": 0.02, "sigma_between": 0.004}],
        **changes.pop("result", {}),
    }
    facts: dict[str, Any] = {
        "model_sha256": "0" * 64,
        "protocol": {"precision": "quick", "runs": None},
        "created_at": 100.0,
        "started_at": 100.0,
        "finished_at": 100.0 + took_s,
        "fingerprint": "here",
        "result": result,
    }
    return builders.comparison({one.id: "candidate" for one in trials}, name="race", **(facts | changes))


def test_a_comparison_teaches_runs_noise_starts_and_what_its_passes_cost() -> None:
    trials = [trial("a"), trial("b")]
    found = history_of([(comparison(trials), trials)])
    assert found is not None
    assert [one.run_s for one in found.seen] == [RUN_S, RUN_S]
    assert (found.sigma, found.sigma_between) == (0.02, 0.004)
    assert found.start_s == pytest.approx(0.3)  # of one of three processes
    assert found.after_s == pytest.approx((12 - 5 * 0.9 - 40 * 3 * BLOCK_S) / 2)
    assert found.beside_s == pytest.approx(8.0)
    assert found.generations == {"quick": 5}
    assert found.factor == pytest.approx(1.0)


def test_of_several_comparisons_the_median_counts() -> None:
    trials = [trial("a"), trial("b")]
    odd = comparison(trials, result={"contrasts": [{"sigma": 0.5, "sigma_between": 0.5}]}, took_s=900.0)
    found = history_of([(comparison(trials), trials), (odd, trials), (comparison(trials), trials)])
    assert found is not None
    assert (found.sigma, found.sigma_between) == (0.02, 0.004)
    assert found.beside_s == pytest.approx(8.0)


def test_efforts_are_told_apart_and_exact_comparisons_have_none() -> None:
    trials = [trial("a")]
    publish = comparison(trials, protocol={"precision": "publish"})
    exact = comparison(trials, protocol={"precision": "quick", "runs": 50})
    found = history_of([(publish, trials), (exact, trials)])
    assert found is not None
    assert found.generations == {"publish": 5}


def test_a_comparison_in_which_the_machine_was_slow_does_not_make_the_forecast_absurd() -> None:
    trials = [trial("a"), trial("b")]
    slow = comparison(trials, result={"wall_s": 12.0, "generations": [{"rounds": 1, "start_s": 0.01}]})
    found = history_of([(comparison(trials), trials)] * 2 + [(slow, trials)])
    assert found is not None
    assert 1 / MOST_FACTOR <= found.factor <= MOST_FACTOR


def test_what_was_never_seen_is_not_guessed() -> None:
    trials = [trial("a")]
    assert history_of([]) is None
    assert history_of([(comparison(trials, result={"contrasts": []}), trials)]) is None
    unknown = [{"sigma": None, "sigma_between": None}]
    assert history_of([(comparison(trials, result={"contrasts": unknown}), trials)]) is None
    assert history_of([(comparison(trials, started_at=None), trials)]) is None
    assert history_of([(comparison(trials), [])]) is None


@pytest.mark.parametrize("generations", [None, []])
def test_comparisons_of_one_pair_of_processes_are_left_out(generations: object) -> None:
    trials = [trial("a"), trial("b")]
    old = comparison(trials, result={"generations": generations, "contrasts": [{"sigma": 0.3}]})
    assert history_of([(old, trials)]) is None
    assert history_of([(old, trials), (comparison(trials), trials)]) == history_of(
        [(comparison(trials), trials)]
    )


def test_a_comparison_measured_longer_teaches_nothing_that_it_did_not_do() -> None:
    trials = [trial("a"), trial("b")]
    further = comparison(trials, protocol={"precision": "quick", "continues": "race"}, result={"wall_s": 3.0})
    found = history_of([(further, trials), (comparison(trials), trials)])
    assert found == history_of([(comparison(trials), trials)])


def test_comparisons_of_another_machine_teach_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    trials = [trial("a"), trial("b")]
    store.create_comparison(comparison(trials), trials)
    assert past(store, model_sha256="0" * 64, fingerprint="here") is not None
    assert past(store, model_sha256="0" * 64, fingerprint="elsewhere") is None
    assert past(store, model_sha256="1" * 64, fingerprint="here") is None


# --- against the comparison itself --------------------------------------------------------------------------


def ran(models: list[Model], budget_s: float, seed: int, precision: str) -> tuple[Comparison, list[Trial]]:
    """A race by the real rules, as the store would have it."""
    record = simulated_clock.compare(models, budget_s, seed=seed, precision=precision)
    found = raw_comparisons.evidence(record)
    result = {**found.to_dict(), "wall_s": record.wall_s}
    trials = [
        replace(trial(one.trial), result=found.trial_result(index))
        for index, one in enumerate(found.configurations)
    ]
    protocol = {"precision": precision, "runs": None}
    return comparison(trials, took_s=record.wall_s + 2.0, result=result, protocol=protocol), trials


@pytest.mark.parametrize(
    ("models", "precision"),
    [
        ([Model()] * 2, "quick"),
        ([Model(noise=0.03)] * 2, "quick"),
        ([Model(run_s=0.02, load_s=1.0)] * 3, "quick"),
        ([Model(run_s=0.3, load_s=1.0, warm_s=3.0)] * 2, "quick"),
        ([Model(load_s=2.0)] * 4, "standard"),
        ([Model(noise=0.02, between=0.005)] * 3, "publish"),
    ],
)
def test_earlier_comparisons_predict_the_next(models: list[Model], precision: str) -> None:
    budget_s = EFFORTS[precision].budget_s
    teaching = {"quick": COMPARISONS_READ, "standard": COMPARISONS_READ // 2, "publish": 3}[
        precision
    ]  # longer ones differ less
    learned = history_of([ran(models, budget_s, seed, precision) for seed in range(teaching)])
    assert learned is not None
    found = predict([spec(protocol={"precision": precision})] * len(models), learned)
    took_s = statistics.median(
        simulated_clock.compare(models, budget_s, seed=seed, precision=precision).wall_s
        for seed in range(teaching, 2 * teaching)
    )
    assert found.seconds - learned.beside_s == pytest.approx(took_s, rel=0.25)
