"""Packed samples: every number comes back as the same number, and they are small."""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.store import samples
from core.store.samples import pack, unpack

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
blocks = st.lists(
    st.fixed_dictionaries(
        {
            "round": st.integers(0, 300),
            "at_s": st.floats(0, 100),
            "flags": st.lists(st.sampled_from(["a", "b"])),
        },
        optional={
            "copy": st.integers(0, 1) | st.none(),
            "counters": st.none() | st.dictionaries(st.sampled_from(["wall_s", "gpu"]), anything),
            "of a later version": anything,
        },
    )
)


def text(value: object) -> str:
    """JSON tells 1 from 1.0 and True, and 0.0 from -0.0; and the order of names."""
    return json.dumps(value)


def bits(values: list[float]) -> list[bytes]:
    return [struct.pack("<d", value) for value in values]


def raw_parts(*, blocks: int = 64, runs: int = 400) -> dict[str, Any]:
    """Raw parts as a race leaves them: a clock of 10 ns or so, counters that are differences of floats."""
    dice = random.Random(0)
    found: dict[str, Any] = {"latencies_s": [], "warmup_latencies_s": [0.000330863, 8.5007e-05], "blocks": []}
    began = dice.random() * 1e5
    for number in range(blocks):
        latencies = [round(dice.gauss(15_000, 400) // 10 * 10 + dice.choice((1, 2, 3))) for _ in range(runs)]
        found["latencies_s"] += [ns / 1e9 for ns in latencies]
        at = began + number * 0.0437 + dice.random() * 1e-3
        found["blocks"].append(
            {
                "round": number // 2,
                "position": number % 2,
                "at_s": at - began,
                "runs": runs,
                "refill_s": dice.randrange(60_000, 110_000) / 1e9,
                "median_s": sorted(latencies)[runs // 2] / 1e9,
                "counters": {
                    "wall_s": at + 0.0201 + dice.random() * 1e-5 - at,
                    "cpu_s": at + 0.0199 + dice.random() * 1e-5 - at,
                    "involuntary_switches": dice.choice((0, 0, 0, 1, 2)),
                    "wait_s": dice.choice((0.0, at + 4.4156e-05 - at)),
                    "steal_s": 0.0,
                    "frequency_hz": None,
                    "canary_ns": dice.randrange(300_000, 360_000),
                    "gpu": None,
                },
                "flags": dice.choice(([], [], ["foreign_load"], ["foreign_load", "stolen_time"])),
            }
        )
    return found


@settings(max_examples=60)
@given(st.dictionaries(st.text(), anything))
@example({})
@example({"latencies_s": []})
@example({"blocks": [{}, {"a": 1}, {"b": 1, "a": 2}, {"a": None}]})
@example({"mixed": [1, 1.0, True, None, "1", 0, 0.0, -0.0, False, [], {}, [[]], [{}], {"a": {}}]})
@example({"whole": [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**40]})
@example(
    {"edges": [5e-324, 1.7976931348623157e308, 9007199.254740993, 9007199.254740991, 1e-9, -1e-9, 1e300]}
)
@example({"\ud800": "\udfff", "µ": "\0"})
def test_any_json_data_comes_back_as_it_was(raw: dict[str, Any]) -> None:
    assert text(unpack(pack(raw))) == text(raw)


@settings(max_examples=50)
@given(blocks)
def test_blocks_come_back_with_unknown_names_missing_names_and_nothing_known(found: list[Any]) -> None:
    assert text(unpack(pack({"blocks": found}))) == text({"blocks": found})


@given(st.lists(st.integers(1, 10**11)), st.integers(1, 9))
def test_latencies_that_were_nanoseconds_are_exactly_the_same_floats(ns: list[int], repeats: int) -> None:
    latencies = [one / 1e9 for one in ns] * repeats
    assert bits(unpack(pack({"latencies_s": latencies}))["latencies_s"]) == bits(latencies)


@given(st.lists(st.floats(width=64)), st.integers(1, 9))
@example([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1 + 0.2], 5)
def test_floats_that_are_no_whole_nanoseconds_keep_every_bit(values: list[float], repeats: int) -> None:
    """Numbers in a form that JSON does not know included, as the standard library writes them."""
    values = [one for one in values if not math.isnan(one) or bits([one]) == bits([math.nan])] * repeats
    assert bits(unpack(pack({"latencies_s": values}))["latencies_s"]) == bits(values)


def test_data_that_is_not_json_is_refused_as_json_refuses_it() -> None:
    with pytest.raises(TypeError):
        pack({"latencies_s": [0.001, object()]})


def test_what_json_would_make_of_other_types_comes_back() -> None:
    class Celsius(float):
        pass

    raw = {"runs": (1, 2), "hot": [Celsius(1.5)], "by number": [{1: "a"}, {"1": "b"}]}
    assert unpack(pack(raw)) == json.loads(json.dumps(raw))


@pytest.mark.parametrize("runs", [400, 4])
def test_a_comparison_takes_an_eighth_of_its_json_text_at_most(runs: int) -> None:
    """For a model of microseconds, where runs are nearly all, and of milliseconds, where blocks are."""
    raw = raw_parts(runs=runs)
    packed = pack(raw)
    assert text(unpack(packed)) == text(raw)
    as_text = len(json.dumps(raw, separators=(",", ":")))
    assert len(packed) <= as_text / 8, f"1/{as_text / len(packed):.1f}"


def test_bytes_of_today_are_read_by_later_versions() -> None:
    """Stores contain these bytes: the code that reads them may change, their meaning may not."""
    known = bytes.fromhex(KNOWN)
    assert text(unpack(known)) == text(SMALL)
    assert text(unpack(pack(SMALL))) == text(SMALL)


def test_machine_with_the_other_byte_order_writes_and_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A big-endian machine: simulated by swapping the bytes that go in and out."""

    class Swapped(array):  # type: ignore[type-arg]
        def tobytes(self) -> bytes:
            return _swapped(super().tobytes(), self.itemsize)

        def frombytes(self, buffer: Any) -> None:
            super().frombytes(_swapped(bytes(buffer), self.itemsize))

    here = pack(SMALL)
    monkeypatch.setattr(samples, "array", Swapped)
    monkeypatch.setattr(sys, "byteorder", {"little": "big", "big": "little"}[sys.byteorder])
    assert pack(SMALL) == here
    assert text(unpack(here)) == text(SMALL)


def _swapped(data: bytes, width: int) -> bytes:
    return b"".join(data[at : at + width][::-1] for at in range(0, len(data), width))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        pack(raw_parts(blocks=4))[:-1],
        pack(raw_parts(blocks=4))[:9] + b"?" + pack(raw_parts(blocks=4))[10:],
    ],
)
def test_damaged_bytes_are_an_error_and_never_other_numbers(data: bytes) -> None:
    with pytest.raises(ValueError, match="samples"):
        unpack(data)


def test_parent_stays_light() -> None:
    """Nothing but the standard library is imported."""
    source = Path(samples.__file__).read_text()
    imported = {
        line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
    assert imported <= sys.stdlib_module_names | {"__future__"}


SMALL: dict[str, Any] = {
    "latencies_s": [0.001, 0.00125, 0.001, 0.001, 0.001, 0.00125, 0.001, 0.001, 0.1 + 0.2],
    "blocks": [
        {"round": 0, "at_s": 0.0, "counters": {"wall_s": 0.020098937999932787, "gpu": None}, "flags": []},
        {"round": 1, "at_s": 0.5, "counters": None, "flags": ["foreign_load"], "copy": 70_000},
    ],
}
KNOWN = (
    "01789c6364606060910212d1d14a398925a979c999a9c5f1c54a3a4a4939f9c9d9c54ab1b14049064e06046064049340"
    "cc0c93e244914251cc022498a0820e4efc6041160e103981e102c80414d51c30a38118c436310681cbf628b631613884"
    "2500e283a2fcd2bc14a0db134bc05e4806724b528b40ccb49cc474a0677408ab0109155462f33713dc52261c724c50f7"
    "402553cfca22dcc981a41ca48e855508e2e8f2c49c1cb053d20b4af1063724741a263fbd30650a384458d94026e495e6"
    "e4c42258284185c5edac0220a54a69f945a999e979f139f989294ab1289e2a106444b2190058893ffd"
)
