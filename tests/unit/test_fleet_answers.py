"""What a fleet run says: cells, regrets, the choice, machines of one kind, costs, on literal numbers."""

from __future__ import annotations

import pytest

from benchmarks import fleet_answers as simulated
from core.evidence.fleet.costs import Costs, costs, per_million
from core.evidence.fleet.intervals import FleetInterval, joint
from core.evidence.fleet.kinds import Measured, deviation_between, disagreements, f_cdf, spreads
from core.evidence.fleet.matrix import DEFAULT_KEY, configuration_key, matrix
from core.evidence.fleet.pairs import pairs_of
from core.evidence.fleet.portability import candidates, portability, regrets_of, spec_of
from core.evidence.fleet.summary import summarize
from core.evidence.verdict import Verdict
from tests import fleet_runs as made
from tests.fleet_runs import BASIC, SHA256, THREADS

A, B = (configuration_key(made.spec(part), SHA256) for part in (THREADS, BASIC))
SURE = {"a": (1.2, 1.19, 1.21), "b": (1.1, 1.09, 1.11)}  # a is the best
OTHER = {"a": (0.9, 0.89, 0.91), "b": (1.1, 1.09, 1.11)}  # b is the best


# --- cells --------------------------------------------------------------------------------------------------


def test_a_configuration_has_one_key_on_every_host() -> None:
    here, there = made.spec(THREADS, path="/a/x.onnx"), made.spec(THREADS, path="/b/y.onnx")
    assert configuration_key(here, SHA256) == configuration_key(there, SHA256) == A
    assert configuration_key({**here, "protocol": {"effort": "publish"}}, SHA256) == A
    assert configuration_key(made.spec(), SHA256) == DEFAULT_KEY
    batch = {"workload": {"batch_size": 1}}
    assert configuration_key(made.spec(batch), SHA256) == DEFAULT_KEY
    built = [{**here, "runtime": f"ort130@sha256:{digit * 64}"} for digit in "ab"]
    assert len({configuration_key(one, SHA256) for one in built}) == 1
    assert configuration_key({**here, "model": {"sha256": "f" * 64}}, SHA256) != A


def test_a_comparison_has_a_row_for_each_host_and_the_default_first() -> None:
    found = matrix(made.run({"h1": made.compared(SURE), "h2": made.compared(OTHER)}), 1)
    assert [one.key for one in found.configurations] == [DEFAULT_KEY, A, B]
    assert [one.best for one in found.rows] == [(A,), (B,)]
    cell = found.rows[0].cells[A]
    assert cell.speedup == FleetInterval(value=1.2, low=1.19, high=1.21, df=made.DF)
    assert cell.verdict is Verdict.FASTER
    assert cell.throughput is not None
    assert cell.throughput.df == 5  # 10 processes, two trimmed at each end
    assert found.rows[0].cells[DEFAULT_KEY].verdict is None


def test_what_a_host_cannot_run_says_why() -> None:
    failing = made.compared(SURE, trials={"a": {"state": "FAIL", "error": {"message": "No such provider."}}})
    fallback = made.compared(SURE, trials={"a": {"fallback": True, "fallback_reason": "CUDA is missing."}})
    wrong = made.compared(SURE, breaches={"a": "0.2 above 0.1"})
    found = matrix(made.run({"h1": failing, "h2": fallback, "h3": wrong}), 1)
    assert [row.cells[A].unusable for row in found.rows] == [
        "No such provider.",
        "CUDA is missing.",
        "Outputs differ: 0.2 above 0.1",
    ]
    assert all(row.best == (B,) for row in found.rows)


def test_a_rejected_comparison_has_no_best_and_no_regret() -> None:
    found = matrix(made.run({"h1": made.compared(SURE, grade="F", grade_reason="The A/A test failed.")}), 1)
    [row] = found.rows
    assert (row.rejected, row.best, row.usable) == ("The A/A test failed.", (), {})
    told = portability(found)
    assert told.missing == {"h1": "The A/A test failed."}
    assert (told.outcome, told.choice) == ("NONE", None)


def test_a_single_doubtful_contrast_loses_its_interval_only() -> None:
    found = matrix(made.run({"h1": made.compared(SURE, contrasts={"a": {"holds": False}})}), 1)
    cell = found.rows[0].cells[A]
    assert cell.verdict is Verdict.UNDECIDED
    assert cell.speedup == FleetInterval(value=1.2)


def test_a_host_without_an_answer_keeps_its_row() -> None:
    lost = made.answered(
        "h2", None, state="LOST", error={"type": "WorkerError", "message": "Gone.", "hint": ""}
    )
    found = matrix(made.run({"h1": made.compared(SURE), "h2": lost}), 1)
    assert [(one.host, one.state, one.why) for one in found.rows] == [
        ("h1", "COMPLETE", ""),
        ("h2", "LOST", "Gone."),
    ]
    assert [one.host for one in found.measured] == ["h1"]


def test_a_search_names_its_winner_or_the_default() -> None:
    run = made.run(
        {
            "h1": made.searched(THREADS),
            "h2": made.searched(None, outcome="NO_DIFFERENCE"),
            "h3": made.searched(THREADS, (1.02, 0.9, 1.1), outcome="UNDECIDED"),
        },
        command="search",
    )
    assert [one.best for one in matrix(run, 1).rows] == [(A,), (DEFAULT_KEY,), (A, DEFAULT_KEY)]


def test_a_stored_trial_gives_a_search_its_interval() -> None:
    run = made.run({"h1": made.searched(THREADS)}, command="search")
    without = matrix(run, 1).rows[0].cells[A].throughput
    assert without == FleetInterval(value=1000.0)
    stored = matrix(run, 1, {"w1": made.trial("w1", THREADS, mean_s=0.0005)}).rows[0].cells[A].throughput
    assert stored is not None
    assert stored.value == pytest.approx(2000)
    assert stored.bounds == pytest.approx((2000 / 1.01, 2000 / 0.99))


# --- regrets ------------------------------------------------------------------------------------------------


def test_the_regret_is_relative_to_the_best_of_the_host() -> None:
    [row] = matrix(made.run({"h1": made.compared(SURE)}), 1).rows
    found = regrets_of(row, hosts=1)
    assert found[A].value == 0
    assert found[A].low == 0
    assert found[B].value == pytest.approx(1.2 / 1.1 - 1)
    assert found[B].bounds == pytest.approx((1.19 / 1.11 - 1, 1.21 / 1.09 - 1))
    assert found[DEFAULT_KEY].bounds == pytest.approx((0.19, 0.21))


def test_an_unknown_ratio_leaves_the_upper_bounds_unknown() -> None:
    ratios = {**SURE, "b": (1.1, None, None)}
    [row] = matrix(made.run({"h1": made.compared(ratios)}), 1).rows
    found = regrets_of(row, hosts=1)
    assert found[A].high is None
    assert found[DEFAULT_KEY].low == pytest.approx(0.19)


def test_more_hosts_widen_every_regret() -> None:
    [row] = matrix(made.run({"h1": made.compared(SURE)}), 1).rows
    one, ten = regrets_of(row, hosts=1)[B], regrets_of(row, hosts=10)[B]
    assert one.bounds is not None
    assert ten.bounds is not None
    assert ten.bounds[0] < one.bounds[0] < one.bounds[1] < ten.bounds[1]


def test_the_choice_has_the_smallest_worst_regret() -> None:
    found = portability(matrix(made.run({"h1": made.compared(SURE), "h2": made.compared(OTHER)}), 1))
    assert found.outcome == "BEST"
    assert found.choice is not None
    assert (found.choice.configuration, found.choice.host) == (B, "h1")
    assert found.choice.regret.value == pytest.approx(1.2 / 1.1 - 1)
    assert [one.configuration for one in found.worst] == [B, DEFAULT_KEY, A]


def test_wide_intervals_allow_no_choice() -> None:
    wide = {"a": (1.2, 1.0, 1.4), "b": (1.19, 1.0, 1.4)}
    found = portability(matrix(made.run({"h1": made.compared(wide), "h2": made.compared(wide)}), 1))
    assert found.outcome == "UNDECIDED"
    assert set(found.possible) >= {A, B}


def test_two_equal_configurations_are_a_choice_within_the_margin() -> None:
    equal = {"a": (1.2, 1.198, 1.202), "b": (1.2, 1.198, 1.202)}
    found = portability(matrix(made.run({"h1": made.compared(equal), "h2": made.compared(equal)}), 1))
    assert found.outcome == "EQUIVALENT"
    assert set(found.possible) == {A, B}


def test_a_configuration_that_one_host_cannot_run_is_excluded_with_the_reason() -> None:
    failing = made.compared(OTHER, trials={"b": {"state": "FAIL", "error": {"message": "Out of memory."}}})
    found = portability(matrix(made.run({"h1": made.compared(SURE), "h2": failing}), 1))
    assert found.excluded == {B: "h2: Out of memory."}
    assert {one.configuration for one in found.worst} == {DEFAULT_KEY, A}


def test_a_missing_host_is_named() -> None:
    lost = made.answered("h2", None, state="LOST")
    found = portability(matrix(made.run({"h1": made.compared(SURE), "h2": lost}), 1))
    assert found.missing == {"h2": "LOST"}
    assert found.hosts == ("h1",)


def test_winners_of_searches_are_candidates_once_each() -> None:
    other = made.searched(BASIC)
    foreign = made.searched(THREADS)
    foreign["winner"]["spec"]["model"]["sha256"] = "f" * 64
    run = made.run(
        {
            "h1": made.searched(THREADS),
            "h2": other,
            "h3": made.searched(THREADS),
            "h4": made.searched(None, outcome="NO_DIFFERENCE"),
            "h5": foreign,
        },
        command="search",
    )
    found = candidates(run, 1)
    assert [one.key for one in found.configurations] == [A, B]
    assert found.hosts[A] == ("h1", "h3")
    assert found.without == {"h4": "NO_DIFFERENCE"}
    assert list(found.left_out.values()) == ["its model is a variant, which only its host has"]
    assert spec_of(found.configurations[0]) == {"model": {}, **THREADS}


# --- machines of one kind -----------------------------------------------------------------------------------


def test_the_spread_between_two_machines_has_a_wide_interval() -> None:
    found = deviation_between([Measured(value=one, error=0.001, df=5) for one in (0.0, 0.02)])
    assert found.value == pytest.approx((0.0002 - 1e-6) ** 0.5)
    assert found.bounds is not None
    assert found.bounds[0] < found.value < found.bounds[1]
    assert found.bounds[1] > 10 * found.value


def test_noise_alone_is_no_spread() -> None:
    found = deviation_between([Measured(value=one, error=0.02, df=5) for one in (0.0, 0.01, -0.01)])
    assert (found.value, found.low) == (0.0, 0.0)
    equal = deviation_between([Measured(value=0.0, error=0.01, df=5)] * 2)
    assert equal.value == equal.low == 0.0
    assert equal.high is not None
    assert equal.high > 0.01
    with pytest.raises(ValueError, match="2 machines"):
        deviation_between([Measured(value=0.0, error=0.1, df=5)])


def test_the_f_distribution_agrees_with_tables() -> None:
    assert f_cdf(3.3258, 5, 10) == pytest.approx(0.95, abs=1e-4)
    assert f_cdf(0.0, 5, 10) == 0.0


def test_only_hosts_of_one_kind_have_a_spread_and_can_disagree() -> None:
    hosts = [made.host("h1", "k"), made.host("h2", "k"), made.host("h3")]
    slow = {"a": (0.8, 0.79, 0.81), "b": (1.1, 1.09, 1.11)}
    documents = {
        "h1": made.compared(SURE, mean_s=0.001),
        "h2": made.compared(slow, mean_s=0.0012),
        "h3": made.compared(slow),
    }
    found = matrix(made.run(documents, hosts=hosts), 1)
    shown = {(one.number, one.configuration): one for one in spreads(found)}
    assert set(shown) == {("latency", DEFAULT_KEY), ("speed-up", A), ("speed-up", B)}
    latency = shown["latency", DEFAULT_KEY]
    assert (latency.hosts, latency.highest) == (("h1", "h2"), "h2")
    assert latency.ratio == pytest.approx(1.2)
    assert latency.is_known
    assert not shown["speed-up", B].is_known
    [one] = disagreements(found)
    assert one.configuration == A
    assert one.verdicts == {"h1": Verdict.FASTER, "h2": Verdict.SLOWER}


# --- costs --------------------------------------------------------------------------------------------------


def test_a_million_inferences_cost_the_price_of_their_time() -> None:
    found = per_million(FleetInterval(value=1000.0, low=500.0, high=2000.0), 3.6)
    assert found.value == pytest.approx(1.0)
    assert found.bounds == pytest.approx((0.5, 2.0))


def costs_of(half: float = 0.01, **given: tuple[float, str]) -> Costs:
    """Return the costs of equally fast hosts: name -> price and state of the constraint."""
    documents, trials = {}, {}
    for name, (_, state) in given.items():
        document = made.searched(THREADS)
        document["winner"]["trial"] = name
        if state:
            document["winner"]["limits"] = [{"limit": "p50 ≤ 3 ms", "state": state}]
        documents[name] = document
        trials[name] = made.trial(name, THREADS, half=half)
    hosts = [made.host(name, price=price) for name, (price, _) in given.items()]
    return costs(matrix(made.run(documents, command="search", hosts=hosts), 1, trials))


def cheapest(found: Costs) -> str:
    assert found.cheapest is not None
    return found.cheapest.host


def test_the_cheapest_host_is_named_only_if_intervals_allow() -> None:
    apart = costs_of(a=(1.0, ""), b=(2.0, ""))
    assert (apart.outcome, cheapest(apart), apart.possible) == ("CHEAPEST", "a", ("a",))
    wide = costs_of(0.05, a=(1.0, ""), b=(1.005, ""))
    assert (wide.outcome, set(wide.possible)) == ("UNDECIDED", {"a", "b"})
    narrow = costs_of(0.002, a=(1.0, ""), b=(1.001, ""))
    assert (narrow.outcome, set(narrow.possible)) == ("EQUIVALENT", {"a", "b"})


def test_a_host_that_misses_a_constraint_is_not_the_cheapest() -> None:
    found = costs_of(a=(1.0, "MISSED"), b=(2.0, "MET"))
    assert (found.outcome, cheapest(found)) == ("CHEAPEST", "b")
    unknown = costs_of(a=(1.0, "UNKNOWN"), b=(2.0, "MET"))
    assert (unknown.outcome, set(unknown.possible)) == ("UNDECIDED", {"a", "b"})
    none = costs_of(a=(1.0, "MISSED"))
    assert (none.outcome, none.cheapest) == ("NONE", None)


def test_a_host_without_a_price_is_named() -> None:
    hosts = [made.host("h1", price=1.0), made.host("h2")]
    documents = {"h1": made.compared(SURE), "h2": made.compared(SURE)}
    found = costs(matrix(made.run(documents, hosts=hosts), 1))
    assert [one.host for one in found.hosts] == ["h1"]
    assert found.without == {"h2": "no price"}


# --- intervals ----------------------------------------------------------------------------------------------


def test_joint_intervals_widen_by_the_quantiles() -> None:
    one = FleetInterval(value=2.0, low=1.9, high=2.1, df=5)
    assert joint(one, 1, log=False) == one
    wide = joint(one, 4, log=False)
    assert wide.low == pytest.approx(2 - 0.1 * 4.315 / 2.571, abs=1e-3)  # quantiles of 4 and 5 df
    assert joint(FleetInterval(value=2.0, low=1.9, high=2.1), 4, log=True) == FleetInterval(value=2.0)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("noise", simulated.NOISES)
def test_regrets_of_all_hosts_hold_together(noise: str, paired: bool) -> None:
    truth = simulated.SPEEDS["3 hosts, each its own best"]
    rows = list(simulated.portable("s", truth, simulated.NOISES[noise], 150, seed=5, paired=paired))
    assert min(one.held for one in rows) >= 0.93


@pytest.mark.parametrize("kind", simulated.MACHINES)
def test_the_spread_between_machines_is_covered(kind: str) -> None:
    [row] = simulated.spread("s", 5, 0.02, simulated.MACHINES[kind], 200, seed=5)
    assert row.held >= 0.93


def test_a_run_answers_with_its_second_phase_first() -> None:
    run = made.run({"h1": made.searched(THREADS), "h2": made.searched(BASIC)}, command="search")
    second = [made.answered(name, made.compared(SURE), number=2) for name in ("h1", "h2")]
    run.questions.append(made.question(2, "compare", "portability"))
    run.answers.extend(second)
    found = summarize(run)
    assert found.main is found.sections[1]
    assert found.sections[0].second_phase == 2
    assert found.sections[0].portability is None


def test_raw_rounds_give_the_ratio_of_every_pair() -> None:
    def blocks(*medians_s: float) -> dict[str, object]:
        rounds = [
            {"generation": n, "copy": 0, "round": n, "median_s": one} for n, one in enumerate(medians_s)
        ]
        return {"blocks": [{**one, "runs": 1} for one in rounds], "latencies_s": list(medians_s)}

    noise = (1.0, 1.01, 0.99, 1.0, 1.01, 0.99)  # shared by all: it cancels within a round
    times = {"a": 0.001, "b": 0.0011, "default": 0.0012}
    document = made.compared(
        {"a": (1.2, 1.1, 1.3), "b": (1.09, 1.0, 1.2)},
        trials={
            name: blocks(*(times[name] * (one + step * n) for n, one in enumerate(noise)))
            for name, step in (("a", 0.0001), ("b", 0.0002))
        },
    )
    document["trials"][-1] |= blocks(*(times["default"] * one for one in noise))
    [row] = matrix(made.run({"h1": document}), 1).rows
    assert row.pairs[A][B].ratio == pytest.approx(1.1, abs=0.001)
    assert row.pairs[B][A].ratio == pytest.approx(1 / 1.1, abs=0.001)
    found = regrets_of(row, hosts=1)
    assert found[A].value == 0
    assert found[B].value == pytest.approx(0.1, abs=0.001)
    low, high = found[B].bounds or (0.0, 1.0)
    assert 0.09 < low < high < 0.11


def test_a_contradicted_contrast_leaves_the_wider_intervals() -> None:
    document = made.compared(SURE, contrasts={"a": {"contradicted": True}})
    assert pairs_of(document) == []
    [row] = matrix(made.run({"h1": document}), 1).rows
    assert row.pairs == {}
    assert regrets_of(row, hosts=1)[B].low == pytest.approx(1.19 / 1.11 - 1)
