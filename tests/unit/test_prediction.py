"""How long a race is predicted to take, against what its own rules make of known runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.comparison import Comparison, Contestant
from core.contrast import PRECISIONS, predicted_rounds
from core.measurement import Trial, latency_summary
from core.prediction import Past, Seen, learn, past, predict
from core.spec import ModelRef, TrialSpec, spec_from_dict
from core.store import Store

BASE = TrialSpec(model=ModelRef(path="m.onnx"))
RUN_S = 0.001
BLOCK_S = 0.020 + RUN_S + 0.002  # 20 ms of runs, the run before them, the switch


def spec(**changes: Any) -> TrialSpec:
    return spec_from_dict({"model": {"path": "m.onnx"}, **changes})


def known(*, sigma: float = 0.01, run_s: float = RUN_S, overhead_s: float = 1.0) -> Past:
    return Past(seen=(Seen(spec=BASE, run_s=run_s),), overhead_s=overhead_s, sigma=sigma)


def test_a_quiet_race_takes_the_rounds_that_carry_a_p99_and_two_self_tests() -> None:
    found = predict([BASE, BASE], known())
    assert found.rounds == 40  # the first look is enough, but a quick race of 2 s is worth its tail
    assert found.seconds == pytest.approx(2 * 1.0 + 40 * 2 * BLOCK_S + 48 * BLOCK_S)
    assert found.in_budget


def test_a_noisy_race_takes_the_look_that_suffices() -> None:
    needed = predicted_rounds(0.06, PRECISIONS["quick"].target, looks=4)
    assert 32 < needed <= 64
    assert predict([BASE, BASE], known(sigma=0.06)).rounds == 64


def test_the_budget_ends_a_race_that_would_need_more() -> None:
    found = predict([spec(protocol={"budget_s": 5})] * 2, known(sigma=0.06, run_s=0.02))
    assert not found.in_budget
    assert found.seconds == pytest.approx(2 * 1.0 + 5.0)


def test_noise_beyond_the_last_look_is_said() -> None:
    assert not predict([BASE, BASE], known(sigma=0.5)).in_budget


def test_more_contestants_and_larger_batches_take_longer() -> None:
    two = predict([BASE] * 2, known()).seconds
    assert predict([BASE] * 4, known()).seconds > two
    large = spec(workload={"batch_size": 64})
    assert predict([large] * 2, known()).seconds > two


def test_an_exact_number_of_runs_takes_that_many() -> None:
    exact = spec(protocol={"runs": 100})
    found = predict([exact, exact], known())
    assert found.rounds == 10
    assert found.seconds == pytest.approx(2 * 1.0 + 2 * (100 + 10) * RUN_S + 20 * 0.002 + 48 * BLOCK_S)


def test_the_nearest_configuration_predicts_in_proportion_to_the_batch() -> None:
    seen = (
        Seen(spec=BASE, run_s=0.001),
        Seen(spec=spec(workload={"batch_size": 64}), run_s=0.03),
    )
    asked = spec(workload={"batch_size": 32}, protocol={"runs": 8})
    found = predict([asked], Past(seen=seen, overhead_s=0.0, sigma=0.01))
    assert found.seconds == pytest.approx(8 * (2 * 0.015 + 0.002) + 48 * (0.15 + 0.015 + 0.002))


# --- learning ---------------------------------------------------------------------------------------------


def trial(name: str, of: TrialSpec = BASE, *, run_s: float = RUN_S) -> Trial:
    return Trial(
        id=name,
        kind="measure",
        state="COMPLETE",
        spec=of.to_dict(),
        model_name="m",
        model_sha256="0" * 64,
        key=of.key(),
        created_at=0.0,
        comparison="race",
        result={"latency": latency_summary([run_s] * 50)},
    )


def race(trials: list[Trial], *, took_s: float, sigma: float | None = 0.02, **changes: Any) -> Comparison:
    facts: dict[str, Any] = {
        "id": "race",
        "state": "COMPLETE",
        "model_name": "m",
        "model_sha256": "0" * 64,
        "contestants": tuple(Contestant(trial=one.id, label=one.id, role="candidate") for one in trials),
        "protocol": {},
        "created_at": 100.0,
        "started_at": 100.0,
        "finished_at": 100.0 + took_s,
        "fingerprint": "here",
        "result": {"rounds": 40, "contrasts": [{"sigma": sigma}]},
    }
    return Comparison(**(facts | changes))


def test_a_race_teaches_runs_noise_and_what_a_contestant_costs_beside_its_rounds() -> None:
    trials = [trial("a"), trial("b")]
    racing_s = 40 * 2 * BLOCK_S + 48 * BLOCK_S
    found = learn([(race(trials, took_s=racing_s + 3.0), trials)], [])
    assert found is not None
    assert found.overhead_s == pytest.approx(1.5)
    assert found.sigma == 0.02
    assert [one.run_s for one in found.seen] == [RUN_S, RUN_S]


def test_the_self_tests_tell_the_noise_where_no_contrast_does() -> None:
    trials = [trial("a")]
    found = learn([(race(trials, took_s=9.0, sigma=None), trials)], [{"sigma": 0.04}, {"sigma": None}])
    assert found is not None
    assert found.sigma == 0.04


def test_what_was_never_seen_is_not_guessed() -> None:
    trials = [trial("a")]
    assert learn([], [{"sigma": 0.04}]) is None
    assert learn([(race(trials, took_s=9.0, sigma=None), trials)], []) is None
    assert learn([(race(trials, took_s=9.0, started_at=None), trials)], []) is None
    assert learn([(race(trials, took_s=9.0), [])], []) is None


def test_races_of_another_machine_teach_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "ortune.db")
    trials = [trial("a"), trial("b")]
    store.create_comparison(race(trials, took_s=9.0), trials)
    assert past(store, model_sha256="0" * 64, fingerprint="here") is not None
    assert past(store, model_sha256="0" * 64, fingerprint="elsewhere") is None
    assert past(store, model_sha256="1" * 64, fingerprint="here") is None
