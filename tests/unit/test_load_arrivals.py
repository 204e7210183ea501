"""Arrival processes by their distributions, common arrivals across rates, sizes and traces."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from core.evidence.load.arrivals import Trace, kinds_of, parse_trace, schedule
from core.evidence.load.load_types import Arrivals, Kind
from core.spec.load import ArrivalsSpec, LoadSpec
from core.wire.errors import SpecError


def arrivals(
    process: str, rate: float = 200.0, seconds: float = 100.0, seed: int = 1, **spec: float
) -> Arrivals:
    return schedule(
        ArrivalsSpec(process=process, **spec), rate=rate, seconds=seconds, weights=[1.0], seed=seed
    )


def counts(found: Arrivals, edges: list[float]) -> list[int]:
    return [sum(1 for at in found.at_ns if low <= at / 1e9 < high) for low, high in pairwise(edges)]


def ks_distance(sample: list[float], cdf) -> float:
    ordered, n = sorted(sample), len(sample)
    return max(max((i + 1) / n - cdf(value), cdf(value) - i / n) for i, value in enumerate(ordered))


def near(count: int, expected: float) -> bool:
    """Within four standard deviations of a Poisson count."""
    return abs(count - expected) <= 4 * math.sqrt(expected)


def test_poisson_gaps_are_exponential_with_the_rate() -> None:
    at_s = [at / 1e9 for at in arrivals("poisson").at_ns]
    gaps = [b - a for a, b in pairwise([0.0, *at_s])]
    critical = 1.63 / math.sqrt(len(gaps))  # 1 % of the Kolmogorov-Smirnov test
    assert near(len(at_s), 20_000)
    assert ks_distance(gaps, lambda gap: 1 - math.exp(-200 * gap)) < critical
    assert ks_distance(gaps, lambda gap: 1 - math.exp(-210 * gap)) > critical  # another rate is seen
    pairs = math.fsum((a - 0.005) * (b - 0.005) for a, b in pairwise(gaps)) / len(gaps) / 0.005**2
    assert abs(pairs) < 4 / math.sqrt(len(gaps))  # and independent


def test_constant_arrivals_are_equally_spaced() -> None:
    assert arrivals("constant", 50.0, 0.1).at_ns.tolist() == [
        0,
        20_000_000,
        40_000_000,
        60_000_000,
        80_000_000,
    ]


def test_bursts_have_the_mean_rate_and_empty_off_periods() -> None:
    found = arrivals("bursts", on_s=1.0, off_s=3.0)
    assert near(len(found.at_ns), 20_000)
    assert all(at / 1e9 % 4.0 < 1.0 for at in found.at_ns)
    first, second = counts(found, [0.0, 0.5, 1.0])
    assert near(first, 400)
    assert near(second, 400)


def test_a_ramp_rises_from_a_share_to_the_rate() -> None:
    found = arrivals("ramp", from_share=0.2)
    assert near(len(found.at_ns), 200 * 100 * 0.6)
    for count, middle in zip(counts(found, [0, 10, 20, 50, 90, 100]), (5, 15, 35, 70, 95), strict=True):
        width = {35: 30, 70: 40}.get(middle, 10)
        assert near(count, 200 * width * (0.2 + 0.8 * middle / 100))


def test_a_ramp_may_start_at_nothing() -> None:
    assert near(len(arrivals("ramp", from_share=0.0).at_ns), 10_000)


def test_steps_rise_to_the_rate() -> None:
    found = counts(arrivals("steps", from_share=0.5, steps=3), [0, 100 / 3, 200 / 3, 100])
    for count, share in zip(found, (0.5, 0.75, 1.0), strict=True):
        assert near(count, 200 * 100 / 3 * share)


def test_a_day_has_the_mean_rate_and_is_lowest_at_its_ends() -> None:
    found = arrivals("diurnal", low_share=0.25)
    assert near(len(found.at_ns), 20_000)
    night, noon = counts(found, [0, 2])[0], counts(found, [49, 51])[0]
    assert near(night, 2 * 200 * 0.4)  # 1 - 0.6, its quarter
    assert near(noon, 2 * 200 * 1.6)


@pytest.mark.parametrize("process", ["poisson", "constant", "ramp", "steps", "diurnal"])
def test_the_same_seed_gives_the_same_arrivals_stretched_and_the_same_sizes(process: str) -> None:
    spec, weights = ArrivalsSpec(process=process), [0.2, 0.8]
    slow, fast = (
        schedule(spec, rate=rate, seconds=2000 / rate, weights=weights, seed=9) for rate in (100.0, 400.0)
    )
    n = min(len(slow.at_ns), len(fast.at_ns))
    assert abs(len(slow.at_ns) - len(fast.at_ns)) <= 1
    assert all(abs(4 * b - a) <= 4 for a, b in zip(slow.at_ns, fast.at_ns, strict=False))
    assert slow.kind[:n] == fast.kind[:n]
    assert arrivals(process, seed=1).at_ns == arrivals(process, seed=1).at_ns


def test_another_seed_gives_other_arrivals() -> None:
    assert arrivals("poisson", seed=1).at_ns != arrivals("poisson", seed=2).at_ns


def test_a_longer_run_begins_with_the_same_arrivals() -> None:
    short, long = arrivals("poisson", seconds=10), arrivals("poisson", seconds=20)
    assert long.at_ns[: len(short.at_ns)] == short.at_ns


def test_too_many_requests_are_refused() -> None:
    with pytest.raises(SpecError, match="2,500,000 requests"):
        arrivals("poisson", 50_000.0, 50.0)


def test_kinds_are_all_combinations_with_their_probabilities() -> None:
    load = LoadSpec(rates=(1.0,), rows={1: 3.0, 4: 1.0}, dims={"seq": {16: 1.0, 32: 1.0}})
    kinds, weights = kinds_of(load)
    assert [(one.rows, one.dims["seq"]) for one in kinds] == [(1, 16), (1, 32), (4, 16), (4, 32)]
    assert weights == pytest.approx([0.375, 0.375, 0.125, 0.125])
    assert kinds_of(LoadSpec(rates=(1.0,))) == ([Kind(rows=1)], [1.0])


def test_sizes_follow_their_weights() -> None:
    found = schedule(ArrivalsSpec(), rate=200.0, seconds=100.0, weights=[0.25, 0.75], seed=3)
    assert near(found.kind.count(0), 0.25 * len(found.kind))


# --- traces -------------------------------------------------------------------------------------------------


def replayed(trace: Trace, rate: float | None = None, seconds: float = 60.0) -> Arrivals:
    spec = ArrivalsSpec(process="trace", path="x.csv")
    return schedule(spec, rate=rate, seconds=seconds, weights=[], seed=0, trace=trace)


def test_a_trace_is_read_from_csv() -> None:
    found = parse_trace("Time,ROWS,seq,feed\n10,2,16,a\n\n10.5,,32,b\n12,2,16,\n", name="x.csv")
    assert list(found.at_s) == [0.0, 0.5, 2.0]
    assert found.kinds == [Kind(rows=2, dims={"seq": 16}), Kind(rows=1, dims={"seq": 32})]
    assert list(found.kind) == [0, 1, 0]
    assert found.rate == 1.0


def test_a_trace_is_read_from_json_lines_with_iso_times() -> None:
    text = '{"time": "2026-03-01T12:00:00Z", "rows": 3}\n{"time": "2026-03-01T13:00:00.250+01:00"}\n'
    found = parse_trace(text, name="x.jsonl")
    assert list(found.at_s) == pytest.approx([0.0, 0.25])
    assert [found.kinds[one].rows for one in found.kind] == [3, 1]


def test_a_trace_is_replayed_as_recorded_or_scaled_to_a_rate() -> None:
    trace = parse_trace("time\n0\n1\n2\n4\n", name="x.csv")
    assert replayed(trace).at_ns.tolist() == [0, 10**9, 2 * 10**9, 4 * 10**9]
    assert replayed(trace, rate=7.5).at_ns.tolist() == [0, 10**8, 2 * 10**8, 4 * 10**8]
    assert replayed(trace, seconds=2.0).at_ns.tolist() == [0, 10**9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no requests"),
        ("time,rows\n", "has no requests"),
        ("at,rows\n1,1\n", "line 1: the header `at,rows` has no column `time`"),
        ("time,rows\n1,1\n0.5,1\n", "line 3: the time 0.5 is before"),
        ("time\n1\nnan\n", "line 3: `nan` is no time"),
        ("time\n1\ninf\n", "line 3: `inf` is no time"),
        ("time\n1\nyesterday\n", "line 3: `yesterday` is no time"),
        ("time,rows\n1,0\n", "line 2: `rows` must be a whole number from 1"),
        ("time,rows\n1,2.5\n", "line 2: `rows` must be a whole number"),
        ("time,rows\n1,99999\n", "line 2: `rows` must be a whole number from 1 to 4,096"),
        ("time,rows\n1,1,1\n", "line 2: 3 fields, but the header has 2"),
        ("time,time\n1,1\n", "line 1: two columns have the same name"),
        ('time\n"1\n', "line 2"),
        ('{"time": 1}\n{"time": \n', "line 2"),
        ('{"time": 1}\n{"rows": 1}\n', "line 2: no time"),
        ('{"time": true}\n', "line 1: `True` is no time"),
        ("[1, 2]\n", "line 1"),
        ("time,rows\n" + "".join(f"1,{i}\n" for i in range(1, 67)), "line 66: more than 64 different sizes"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_trace(text, name="x.csv")


def test_a_trace_without_duration_has_no_rate() -> None:
    with pytest.raises(SpecError, match="no rate"):
        replayed(parse_trace("time\n1\n1\n", name="x.csv"), rate=5.0)
