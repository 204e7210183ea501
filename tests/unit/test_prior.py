"""Earlier A/A controls as a prior of the spread between processes, and when they give none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.evidence.result import Evidence
from core.evidence.speedup_interval import ASSUMED_PRIOR
from core.run import prior
from core.run.prior import MAX_DF, MIN_SIGMA, prior_of, spread
from core.store import Store
from tests import raw_comparisons
from tests.raw_comparisons import evidence

RUN_S = 0.001


def seen(sigma: float = 0.02, generations: int = 5, run_s: float = RUN_S, **changes: Any) -> dict[str, Any]:
    facts = {"excess_between": sigma**2, "generations": generations, "run_s": run_s, "busy": None}
    return facts | changes


def test_history_is_the_median_so_that_a_bad_day_does_not_outweigh_the_others() -> None:
    found = spread([seen(0.01)] * 6 + [seen(0.3)] * 5, RUN_S)
    assert found.sigma_between == pytest.approx(0.01)
    assert (found.source, found.df) == ("history", 4.0)


def test_self_tests_under_background_load_show_its_effect_and_are_left_out() -> None:
    busy = seen(0.1, busy={"words": "under background load: chromium used 0.7 cores", "cores": 0.7})
    assert spread([busy] * 50, RUN_S) is ASSUMED_PRIOR
    assert spread([busy] * 50 + [seen(0.01)] * 5, RUN_S).sigma_between == pytest.approx(0.01)


def test_generations_that_agreed_by_chance_count_like_those_that_did_not() -> None:
    """Variances below 0 are kept: clipping them at 0 would overestimate the spread between processes."""
    found = spread([seen(excess_between=one * 1e-4) for one in (-2, -1, 1, 2, 3)], RUN_S)
    assert found.sigma_between == pytest.approx(0.01)


def test_less_than_five_tests_are_no_better_than_what_is_assumed() -> None:
    assert spread([], RUN_S) is ASSUMED_PRIOR
    assert spread([seen()] * 4, RUN_S) is ASSUMED_PRIOR
    assert spread([seen()] * 5, RUN_S).sigma_between == pytest.approx(0.02)


@pytest.mark.parametrize(("run_s", "counts"), [(0.99 / 8, 1), (1.01 / 8, 5), (7.9, 5), (8.1, 1)])
def test_runs_more_than_eight_times_as_long_or_short_tell_nothing(run_s: float, counts: int) -> None:
    found = spread([seen(run_s=run_s)] * 4 + [seen(run_s=1.0)], 1.0)
    assert (found.source == "history") == (counts == 5)


def test_tests_of_few_generations_are_not_believed() -> None:
    assert spread([seen(generations=3)] * 50, RUN_S) is ASSUMED_PRIOR
    assert spread([seen(generations=4)] * 5, RUN_S).source == "history"


@pytest.mark.parametrize(
    "old",
    [
        {"ratio": 1.0, "sigma": 0.03, "rounds": 24, "when": "before"},  # of a version with one pair
        {"sigma_between": 0.02, "generations": 9, "run_s": RUN_S},  # of one that kept what it had assumed
        seen(generations=None),  # type: ignore[arg-type]
        seen(excess_between=None),
        seen(run_s=None),  # type: ignore[arg-type]
        {name: value for name, value in seen().items() if name != "run_s"},
    ],
)
def test_what_does_not_tell_all_of_it_is_passed_over(old: dict[str, Any]) -> None:
    assert spread([old] * 20, RUN_S) is ASSUMED_PRIOR
    assert spread([old] * 20 + [seen(0.03)] * 5, RUN_S) == spread([seen(0.03)] * 5, RUN_S)


def test_processes_that_never_seemed_to_differ_still_may() -> None:
    found = spread([seen(0.0)] * 40, RUN_S)
    assert (found.sigma_between, found.source) == (MIN_SIGMA, "history")


@given(st.lists(st.tuples(st.floats(0, 0.3), st.integers(4, 40)), min_size=5, max_size=40))
def test_history_lies_within_what_was_seen_and_never_counts_for_more_than_a_comparison(
    tests: list[tuple[float, int]],
) -> None:
    found = spread([seen(sigma, generations) for sigma, generations in tests], RUN_S)
    sigmas = [sigma for sigma, _ in tests]
    assert max(min(sigmas), MIN_SIGMA) - 1e-12 <= found.sigma_between
    assert found.sigma_between <= max(*sigmas, MIN_SIGMA) + 1e-12
    assert found.df == MAX_DF


# --- from the store -----------------------------------------------------------------------------------------


def machine(fingerprint: str) -> Any:
    return {"fingerprint": fingerprint}


def test_only_tests_of_this_machine_count_and_the_newest_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prior, "SELF_TESTS", 6)
    store = Store(tmp_path / "ortune.db")
    for number in range(6 + 3):
        store.put_self_test("here", seen(0.2 if number < 3 else 0.005), at=float(number))
        store.put_self_test("elsewhere", seen(0.1), at=float(number))
    assert prior_of(store, machine("here"))(RUN_S).sigma_between == pytest.approx(0.005)
    assert prior_of(store, machine("elsewhere"))(RUN_S).sigma_between == pytest.approx(0.1)
    assert prior_of(store, machine("here"))(100.0) is ASSUMED_PRIOR
    assert prior_of(store, machine("new"))(RUN_S) is ASSUMED_PRIOR
    assert prior_of(store, None)(RUN_S) is ASSUMED_PRIOR


def test_what_a_comparison_stores_is_what_the_next_one_reads() -> None:
    """The A/A controls of comparisons whose processes differ by 2 %, in the stored form."""
    tests = [
        aa
        for seed in range(12)
        for aa in _aa(
            evidence(
                raw_comparisons.record(
                    [0.001, 0.001], generations=9, rounds=6, between=0.02, noise=0.01, seed=seed
                )
            )
        )
    ]
    found = spread(tests, RUN_S)
    assert found.source == "history"
    assert found.sigma_between == pytest.approx(0.02 * math.sqrt(2), rel=0.25)  # of a ratio of two


def _aa(of: Evidence) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = of.to_dict()["self_tests"]
    return tests
