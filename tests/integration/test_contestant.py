"""The process of a configuration, driven by its commands in this process; test_forkserver has real forks."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from core.wire.errors import ModelError, ProviderError, SpecError, TunerError, WorkerError
from core.worker.measure import contestant as module
from core.worker.measure import inference, memory_layout
from core.worker.measure.contestant import Contestant
from tests import tiny_models
from tests.integration.test_benchmark import CPU, make_plan, session_plan

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux pins processes to CPUs")

QUICK = {"block_ns": 1, "min_runs": 3, "max_runs": 1000}


def contestant_plan(model: Path, **changes: Any) -> Any:
    """A plan for `model`, as a comparison sends it; feeds as in `make_plan`."""
    plan = make_plan(model, **changes)
    del plan["runs"]
    return {"engine": "onnxruntime", "torch": None, "cpus": []} | plan


@pytest.fixture(autouse=True)
def this_process_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The code under test caps its memory, pins itself and turns the collector off, in its own process."""
    monkeypatch.setattr(module.limits, "cap_memory", lambda: None)
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    gc.enable()
    gc.unfreeze()
    if cpus is not None:
        os.sched_setaffinity(0, cpus)


def load(model: Path, **changes: Any) -> tuple[Contestant, Any]:
    contestant = Contestant()
    return contestant, contestant.load(contestant_plan(model, **changes))


def run(model: Path, **changes: Any) -> Any:
    """What one block of `model` answers."""
    contestant, _ = load(model, **changes)
    return contestant.block(**QUICK)


# -- load --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [False, True])
def test_load_says_what_is_there_and_what_the_first_run_took(tmp_path: Path, bound: bool) -> None:
    _, reply = load(tiny_models.mlp(tmp_path / "m.onnx"), batch=7, use_io_binding=bound)
    assert reply["requested_providers"] == reply["effective_providers"] == [CPU]
    assert not reply["fallback"]
    assert reply["fallback_reason"] == ""
    assert reply["batch_size"] == 7
    assert reply["inputs"] == [{"name": "x", "dtype": "float32", "shape": [7, 16]}]
    assert reply["outputs"] == [{"name": "y", "dtype": "float32", "shape": [7, 4]}]
    assert reply["libraries"]["onnxruntime"] == ort.__version__
    assert 0 < reply["session_creation_s"] < 60
    assert reply["first_run_ns"] > 0
    assert 0 < reply["clock_ns"] < 100_000
    assert reply["load_peak_rss_bytes"] >= 0
    assert reply["baseline_rss_bytes"] > 1 << 20
    assert reply["notes"] == []


@pytest.mark.parametrize("dtype", [name for name in tiny_models.DTYPES if name not in ("string", "bfloat16")])
def test_every_numeric_type_is_fed_and_reported(tmp_path: Path, dtype: str) -> None:
    _, reply = load(tiny_models.identity(tmp_path / "m.onnx", dtype))
    assert reply["inputs"] == [{"name": "x", "dtype": dtype, "shape": [2, 4]}]
    assert reply["outputs"] == [{"name": "y", "dtype": dtype, "shape": [2, 4]}]


def test_bfloat16_runs_with_io_binding_and_is_refused_clearly_without(tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "m.onnx", "bfloat16")
    with pytest.raises(SpecError, match="bfloat16") as caught:
        load(model)
    assert "I/O" in caught.value.hint
    _, reply = load(model, use_io_binding=True)
    assert reply["outputs"] == [{"name": "y", "dtype": "bfloat16", "shape": [2, 4]}]


def test_text_that_nobody_gave_and_sequences_are_refused_clearly(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="text"):
        load(tiny_models.identity(tmp_path / "text.onnx", "string"))
    with pytest.raises(ModelError, match="numbers"):
        load(tiny_models.sequence_input(tmp_path / "sequence.onnx"))


def test_a_batch_larger_than_the_feeds_is_refused(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    feeds = tmp_path / "rows.npz"
    np.savez(feeds, x=np.zeros((32, 16), np.float32))
    with pytest.raises(SpecError, match=r"\b32\b.*\b64\b"):
        load(model, batch=64, source="npz", path=str(feeds))
    assert load(model, batch=32, source="npz", path=str(feeds))[1]["batch_size"] == 32


def test_a_fixed_value_with_other_rows_than_the_batch_is_refused(tmp_path: Path) -> None:
    model = tiny_models.mul_batch(tmp_path / "m.onnx")
    plan = contestant_plan(model, batch=2, values={"x": [[1.0] * 6] * 3})
    plan["feeds"]["inputs"][0]["shape"] = [-1, 6]  # the value gives the batch size
    with pytest.raises(SpecError, match=r"\b3\b.*\b2\b"):
        Contestant().load(plan)


def test_an_input_of_unknown_rank_takes_its_shape_from_the_value(tmp_path: Path) -> None:
    _, reply = load(tiny_models.rank_unknown(tmp_path / "m.onnx"), batch=1, values={"x": [[1, -1]]})
    assert reply["outputs"][0]["shape"] == [1, 2]
    assert reply["notes"]


def test_an_index_outside_its_table_is_a_clear_error(tmp_path: Path) -> None:
    model = tiny_models.tokens(tmp_path / "m.onnx")
    for bound in (False, True):
        with pytest.raises(SpecError, match=r"\b99\b.*-50.*\b49\b"):
            load(model, values={"input_ids": 99}, use_io_binding=bound)


def test_a_run_that_fails_names_the_node(tmp_path: Path) -> None:
    for bound in (False, True):
        with pytest.raises(ModelError, match=r"Reshape.*`reshape`") as caught:
            load(tiny_models.failing_run(tmp_path / "m.onnx"), use_io_binding=bound)
        assert "onnxruntime_src" not in caught.value.message


@pytest.mark.parametrize("bound", [False, True])
def test_an_empty_cache_is_fed(tmp_path: Path, bound: bool) -> None:
    plan = contestant_plan(tiny_models.decoder(tmp_path / "m.onnx"), batch=1, use_io_binding=bound)
    plan["feeds"]["inputs"][1]["shape"] = [1, 0, 8]
    contestant = Contestant()
    reply = contestant.load(plan)
    assert [one["shape"] for one in reply["inputs"]] == [[1, 3], [1, 0, 8]]
    assert [one["shape"] for one in reply["outputs"]] == [[1, 3, 8], [1, 8]]
    assert len(contestant.block(**QUICK)["latencies_ns"]) >= 3


def test_an_output_of_another_rank_than_declared_names_io_binding(tmp_path: Path) -> None:
    model = tiny_models.another_rank(tmp_path / "m.onnx")
    assert len(run(model, values={"shape": [2, 2, 2]})["latencies_ns"]) >= 3
    with pytest.raises(SpecError, match=r"`y`.*\b3\b.*\b2\b") as caught:
        run(model, values={"shape": [2, 2, 2]}, use_io_binding=True)
    assert "--no-io-binding" in caught.value.hint


def test_more_memory_than_there_is_becomes_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"\b512\.0 GiB") as caught:
        load(tiny_models.huge_memory(tmp_path / "m.onnx"))
    assert "smaller" in caught.value.hint


def test_a_wrong_feed_shape_is_refused_by_the_model(tmp_path: Path) -> None:
    plan = contestant_plan(tiny_models.mlp(tmp_path / "m.onnx"))
    plan["feeds"]["inputs"][0]["shape"] = [2, 17]
    with pytest.raises(SpecError, match="`x`"):
        Contestant().load(plan)


def test_a_contestant_is_one_configuration_for_life(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"))
    with pytest.raises(WorkerError):
        contestant.load(contestant_plan(tmp_path / "m.onnx"))


def threads() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


@needs_linux
def test_the_cpus_are_set_before_the_session_so_that_its_threads_stay_there(tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    before = threads()
    three = session_plan(attributes={"intra_op_num_threads": 3})
    contestant, reply = load(tiny_models.mlp(tmp_path / "m.onnx"), cpus=[cpu], session=three)
    assert reply["affinity"] == [cpu]
    pool = threads() - before
    assert len(pool) == 2
    assert all(os.sched_getaffinity(thread) == {cpu} for thread in pool)
    assert contestant.block(**QUICK)["latencies_ns"]


@needs_linux
def test_a_cpu_that_may_not_be_used_is_refused(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    with pytest.raises(SpecError, match=r"`cpus`.*4097"):
        load(tiny_models.mul(tmp_path / "m.onnx"), cpus=[min(allowed), 4097])
    assert os.sched_getaffinity(0) == allowed


def test_without_that_system_call_no_cpus_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delattr(os, "sched_setaffinity", raising=False)
        module.pin([])
        with pytest.raises(SpecError):
            module.pin([0])


def test_the_collector_never_runs_once_it_is_loaded(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"))
    for command in (
        lambda: contestant.block(**QUICK),
        contestant.warm,
        lambda: contestant.cost(seconds=0, window_s=0),
    ):
        command()
        assert not gc.isenabled()
    assert gc.get_freeze_count() > 10_000


# -- the layout of its memory ------------------------------------------------------------------------------


def placed(model: Path, seed: int | None, **changes: Any) -> tuple[Contestant, Any]:
    """Load `model` in the layout that `seed` draws."""
    contestant = Contestant()
    plan = contestant_plan(model, **changes)
    return contestant, contestant.load(plan if seed is None else plan | {"layout_seed": seed})


def inputs_in_page(contestant: Contestant) -> list[int]:
    """Where in its page each input begins that a run is given."""
    contender = contestant._loaded.contender
    values = contender.call.args[1]
    return [array.ctypes.data % memory_layout.PAGE for array in values.values()]


def test_inputs_lie_where_the_layout_says_and_each_at_a_place_of_its_own(tmp_path: Path) -> None:
    model = tiny_models.every_dtype(tmp_path / "m.onnx")
    found = []
    for seed in range(4):
        contestant, reply = placed(model, seed)
        offsets = inputs_in_page(contestant)
        assert offsets[0] == reply["layout"]["buffer_offset"]
        assert {offset % memory_layout.ALIGNMENT for offset in offsets} == {0}
        assert len(set(offsets)) > len(offsets) / 2, "the inputs are drawn apart"
        found.append(offsets)
    assert len(set(map(tuple, found))) == 4
    again, _ = placed(model, 3)
    assert inputs_in_page(again) == found[3]


def test_bound_inputs_lie_where_the_layout_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Any] = []
    make = inference._ort_value

    def remember(*given: Any) -> Any:
        bound.append(make(*given))
        return bound[-1]

    monkeypatch.setattr(inference, "_ort_value", remember)
    model = tiny_models.mlp(tmp_path / "m.onnx")
    for seed in range(4):
        _, reply = placed(model, seed, use_io_binding=True)
        assert bound[-1].data_ptr() % memory_layout.PAGE == reply["layout"]["buffer_offset"]


@pytest.mark.parametrize("bound", [False, True])
def test_a_layout_changes_where_things_lie_and_not_what_comes_out(tmp_path: Path, bound: bool) -> None:
    for build in (tiny_models.conv, tiny_models.tokens, tiny_models.scalar, tiny_models.every_dtype):
        model = build(tmp_path / "m.onnx")
        as_it_comes, reply = placed(model, None, use_io_binding=bound)
        assert set(reply["layout"].values()) == {0}
        path = str(tmp_path / "o")
        as_it_comes.save_outputs(path=path)
        for seed in (1, 2):
            drawn, reply = placed(model, seed, use_io_binding=bound)
            assert set(reply["layout"].values()) != {0}
            assert drawn.compare_outputs(path=path)["max_abs"] == 0.0
            block = drawn.block(**QUICK)  # as deep in the stack as the layout says
            assert len(block["latencies_ns"]) == 3


def test_types_that_numpy_does_not_have_and_inputs_without_a_value_are_placed_too(tmp_path: Path) -> None:
    low, _ = placed(tiny_models.identity(tmp_path / "low.onnx", "bfloat16"), 5, use_io_binding=True)
    assert low.block(**QUICK)["latencies_ns"]
    empty = contestant_plan(tiny_models.identity(tmp_path / "empty.onnx", "float32", ["batch", "n"]))
    empty["feeds"]["inputs"][0]["shape"] = [2, 0]
    contestant = Contestant()
    assert contestant.load(empty | {"layout_seed": 5})["outputs"][0]["shape"] == [2, 0]


def test_other_shapes_are_placed_like_the_first(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    contestant, reply = placed(model, 7)
    contender = contestant._loaded.contender
    other = contender.with_inputs(contestant_plan(model, batch=9)["feeds"])
    values = other.call.args[1]
    assert values["x"].shape == (9, 16)
    assert values["x"].ctypes.data % memory_layout.PAGE == reply["layout"]["buffer_offset"]


def test_the_timed_loop_runs_as_deep_in_the_stack_as_was_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own call of C keeps a frame alive here, so that native frames move with it."""
    depths: list[int] = []
    time_block = module.timing.time_block

    def look(*given: Any, **named: Any) -> Any:
        frame, depth = sys._getframe(), 0
        while frame.f_back is not None:
            frame, depth = frame.f_back, depth + (frame.f_code is memory_layout.at_depth.__code__)
        depths.append(depth)
        return time_block(*given, **named)

    monkeypatch.setattr(module.timing, "time_block", look)
    drawn = []
    for seed in range(5):
        contestant, reply = placed(tiny_models.mul(tmp_path / "m.onnx"), seed)
        depths.clear()
        contestant.block(**QUICK)
        drawn.append((reply["layout"]["stack_frames"], depths[0]))
    base = drawn[0][1] - drawn[0][0]
    assert [depth - frames for frames, depth in drawn] == [base] * 5
    assert len({frames for frames, _ in drawn}) > 1


def test_a_second_process_leaves_out_what_the_first_one_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    _, first = load(model)
    monkeypatch.setattr(module.footprint, "load_libraries", lambda: pytest.fail("told already"))
    monkeypatch.setattr(module.timing, "clock_share_ns", lambda: pytest.fail("told already"))
    contestant = Contestant()
    reply = contestant.load(contestant_plan(model) | {"again": True})
    told_once = {
        "clock_ns",
        "session_creation_s",
        "first_run_ns",
        "baseline_rss_bytes",
        "load_peak_rss_bytes",
    }
    assert {name: one for name, one in reply.items() if name not in told_once} == {
        name: one for name, one in first.items() if name not in told_once
    }
    assert contestant.block(**QUICK)["latencies_ns"]


# -- warm --------------------------------------------------------------------------------------------------


def test_warm_up_goes_on_until_the_latency_is_steady(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.steady(tmp_path / "m.onnx"), warmup_runs=None)
    reply = contestant.warm()
    assert len(reply["latencies_ns"]) >= 10
    assert sum(reply["latencies_ns"]) >= 50_000_000
    assert min(reply["latencies_ns"]) <= reply["median_ns"] <= max(reply["latencies_ns"])


@pytest.mark.parametrize("runs", [0, 1, 7])
def test_a_number_of_warm_up_runs_is_obeyed(tmp_path: Path, runs: int) -> None:
    contestant, loaded = load(tiny_models.mul(tmp_path / "m.onnx"), warmup_runs=runs)
    reply = contestant.warm()
    assert len(reply["latencies_ns"]) == runs
    assert not reply["steady"]  # so few runs cannot show it
    assert reply["median_ns"] > 0
    if runs == 0:
        assert reply["median_ns"] == loaded["first_run_ns"]


def test_a_process_that_runs_like_those_before_it_is_warm_at_once(tmp_path: Path) -> None:
    model = tiny_models.steady(tmp_path / "m.onnx")
    first, _ = load(model, warmup_runs=None)
    known = first.warm()
    second, _ = load(model, warmup_runs=None)
    reply = second.warm(known_ns=10 * known["median_ns"])  # whatever this machine does: it is not slower
    assert reply["steady"]
    assert len(reply["latencies_ns"]) < len(known["latencies_ns"])  # one run may take long: no sums


def test_a_process_that_is_slower_than_those_before_it_is_warmed_up_like_the_first(tmp_path: Path) -> None:
    first, _ = load(tiny_models.steady(tmp_path / "m.onnx"), warmup_runs=None)
    known = first.warm()
    contestant, _ = load(tiny_models.steady(tmp_path / "m.onnx"), warmup_runs=None)
    reply = contestant.warm(known_ns=known["median_ns"] // 10)  # none is so fast
    assert sum(reply["latencies_ns"]) >= module.warmup.MIN_NS or not reply["steady"]
    assert min(reply["latencies_ns"]) <= reply["median_ns"] <= max(reply["latencies_ns"])


def test_a_warm_up_has_no_more_time_than_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.warmup, "is_steady", lambda latencies: False)
    contestant, _ = load(tiny_models.steady(tmp_path / "m.onnx"), warmup_runs=None)
    short, long = (contestant.warm(cap_s=cap_s) for cap_s in (0.02, 10.0))
    assert 0 < sum(short["latencies_ns"]) < sum(long["latencies_ns"])
    assert len(short["latencies_ns"]) < len(long["latencies_ns"])
    assert not short["steady"]
    assert len(contestant.warm(cap_s=0.0)["latencies_ns"]) <= 1  # the budget leaves no time for a warm-up


def test_a_number_of_warm_up_runs_is_obeyed_whatever_is_known(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"), warmup_runs=7)
    assert len(contestant.warm(known_ns=10**9, cap_s=0.0)["latencies_ns"]) == 7


# -- block -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [False, True])
def test_a_block_keeps_every_latency_and_the_first_run_apart(tmp_path: Path, bound: bool) -> None:
    contestant, _ = load(tiny_models.mlp(tmp_path / "m.onnx"), use_io_binding=bound)
    before = time.monotonic()
    reply = contestant.block(block_ns=20_000_000, min_runs=10, max_runs=1_000_000)
    assert len(reply["latencies_ns"]) >= 10
    assert min(reply["latencies_ns"]) > 0
    assert reply["refill_ns"] > 0
    timed_s = (reply["refill_ns"] + sum(reply["latencies_ns"])) / 1e9
    assert timed_s <= reply["counters"]["wall_s"]
    assert reply["counters"]["wall_s"] >= 0.02
    assert before <= reply["started_s"] <= time.monotonic() - timed_s


def test_a_block_ends_between_its_smallest_and_largest_number_of_runs(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"))
    for block_ns, low, high, runs in ((0, 1, 1, 1), (0, 25, 1000, 25), (10**12, 1, 17, 17), (0, 5, 3, 3)):
        reply = contestant.block(block_ns=block_ns, min_runs=low, max_runs=high)
        assert len(reply["latencies_ns"]) == runs


@pytest.mark.parametrize("runs", [1, 4])
def test_a_block_without_a_run_for_the_caches_has_none_to_keep_apart(tmp_path: Path, runs: int) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"))
    calls: list[int] = []
    contender = contestant._loaded.contender
    counted = dataclasses.replace(contender, call=lambda: calls.append(1))
    contestant._loaded = dataclasses.replace(contestant._loaded, contender=counted)
    bare = contestant.block(block_ns=0, min_runs=runs, max_runs=runs, refill=False)
    assert (bare["refill_ns"], len(bare["latencies_ns"]), len(calls)) == (None, runs, runs)
    calls.clear()
    full = contestant.block(block_ns=0, min_runs=runs, max_runs=runs)
    assert full["refill_ns"] >= 0
    assert (len(full["latencies_ns"]), len(calls)) == (runs, runs + 1)


def test_a_block_names_what_the_process_used(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.steady(tmp_path / "m.onnx"))
    counters = contestant.block(block_ns=100_000_000, min_runs=1, max_runs=10_000)["counters"]
    assert 0 < counters["cpu_s"] < 2 * counters["wall_s"]
    assert counters["canary_ns"] > 0
    assert counters["gpu"] is None
    json.dumps(counters, allow_nan=False)


def test_a_clock_that_goes_backwards_spoils_the_block_and_says_so(tmp_path: Path) -> None:
    contestant, _ = load(tiny_models.mul(tmp_path / "m.onnx"))
    readings = iter([100, 200, 300, 250])
    call = contestant._loaded.contender.call
    with pytest.raises(WorkerError, match="clock"):
        module.timing.time_block(call, block_ns=10_000, min_runs=1, max_runs=9, clock=lambda: next(readings))


# -- cost and memory ---------------------------------------------------------------------------------------


def spinning_after_a_run(tmp_path: Path, entries: dict[str, str]) -> Any:
    contestant, _ = load(
        tiny_models.conv(tmp_path / "m.onnx", size=64),
        session=session_plan(attributes={"intra_op_num_threads": 2}, config_entries=entries),
    )
    return contestant.cost(seconds=0.05, window_s=0.25)


def test_the_cost_of_a_run_and_of_the_idle_threads_after_it(tmp_path: Path) -> None:
    for _ in range(8):  # on a busy machine the threads may not get a CPU while they would spin
        quiet = spinning_after_a_run(tmp_path, {"session.intra_op.allow_spinning": "0"})
        spinning = spinning_after_a_run(tmp_path, {})
        if spinning["idle_cpu_s"] > 0.01 > quiet["idle_cpu_s"]:
            break
    for reply in (spinning, quiet):
        assert reply["cpu_s_per_run"] > 0
        assert reply["idle_wall_s"] >= 0.05
    assert spinning["idle_cpu_s"] > 0.01 > quiet["idle_cpu_s"] >= 0


def test_peak_memory_grows_with_the_work(tmp_path: Path) -> None:
    model = tiny_models.mul_batch(tmp_path / "m.onnx")
    small, _ = load(model, batch=1)
    little = small.footprint(runs=3)
    rows = 1 << 21  # 48 MiB in, as much out
    large, loaded = load(model, batch=rows)
    much = large.footprint(runs=3)
    assert much["run_peak_rss_bytes"] - little["run_peak_rss_bytes"] > 40 << 20
    assert loaded["load_peak_rss_bytes"] > 80 << 20
    assert much["gpu_memory_bytes"] is None
    assert much["notes"] == []


def test_no_runs_tell_the_peak_of_all_that_was_run(tmp_path: Path) -> None:
    """Of a slow model: its own process has done nothing but run, so that nothing must run again."""
    model = tiny_models.mul_batch(tmp_path / "m.onnx")
    # 48 MiB in, as much out: less may lie in memory that other tests of this process gave back to malloc
    contestant, _ = load(model, batch=1 << 21)
    calls: list[int] = []
    contender = contestant._loaded.contender
    counted = dataclasses.replace(contender, call=lambda: calls.append(1) or contender.call())
    contestant._loaded = dataclasses.replace(contestant._loaded, contender=counted)
    contestant.block(**QUICK)
    made = len(calls)
    assert contestant.footprint(runs=0)["run_peak_rss_bytes"] > 80 << 20
    assert len(calls) == made


def test_where_the_peak_cannot_be_reset_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.footprint, "reset_peak", lambda: False)
    contestant, loaded = load(tiny_models.mul(tmp_path / "m.onnx"))
    assert not loaded["exact_memory"]
    assert contestant.footprint(runs=1)["notes"]


# -- new shapes --------------------------------------------------------------------------------------------


def test_new_shapes_are_fed_to_the_session_that_is_there(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    contestant, _ = load(model, batch=2)
    feeds = [contestant_plan(model, batch=batch)["feeds"] for batch in (4, 9)]
    shapes = contestant.new_shapes(feeds=feeds)["shapes"]
    assert [shape["batch_size"] for shape in shapes] == [4, 9]
    assert all(shape["first_run_ns"] > 0 < shape["next_run_ns"] for shape in shapes)
    assert contestant.block(**QUICK)["latencies_ns"]


def test_a_new_shape_that_does_not_fit_is_an_error_and_the_contestant_goes_on(tmp_path: Path) -> None:
    model = tiny_models.fixed_batch(tmp_path / "m.onnx")
    contestant, _ = load(model)
    other = contestant_plan(model)["feeds"]
    other["inputs"][0]["shape"] = [3, 16]
    with pytest.raises(SpecError):
        contestant.new_shapes(feeds=[other])
    assert contestant.block(**QUICK)["latencies_ns"]


# -- outputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        tiny_models.mlp,
        tiny_models.conv,
        tiny_models.tokens,
        tiny_models.scalar,
        tiny_models.every_dtype,
        tiny_models.if_model,
        tiny_models.scan_model,
        tiny_models.sum_free,
    ],
)
def test_io_binding_and_plain_run_compute_the_same(tmp_path: Path, build: Callable[[Path], Path]) -> None:
    model = build(tmp_path / "m.onnx")
    plain, described = load(model)
    bound, also = load(model, use_io_binding=True)
    plain.save_outputs(path=str(tmp_path / "o"))
    error = bound.compare_outputs(path=str(tmp_path / "o"))
    assert described["outputs"] == also["outputs"]
    assert error["difference"] == ""
    assert error["max_abs"] == 0.0


def test_another_models_outputs_differ_by_what_they_do(tmp_path: Path) -> None:
    one, _ = load(tiny_models.mlp(tmp_path / "a.onnx", hidden=32))
    other, _ = load(tiny_models.mlp(tmp_path / "b.onnx", hidden=8))
    wider, _ = load(tiny_models.mlp(tmp_path / "c.onnx", classes=5))
    path = str(tmp_path / "o")
    one.save_outputs(path=path)
    error = other.compare_outputs(path=path)
    assert error["max_abs"] > 0
    assert 0 < error["max_rel"] < 1
    assert error["top1_agreement"] in (0.0, 0.5, 1.0)
    assert "[2, 5]" in wider.compare_outputs(path=path)["difference"]


def test_bfloat16_outputs_are_compared_as_numbers(tmp_path: Path) -> None:
    low, _ = load(tiny_models.identity(tmp_path / "low.onnx", "bfloat16"), use_io_binding=True)
    full, _ = load(tiny_models.identity(tmp_path / "full.onnx", "float32"))
    full.save_outputs(path=str(tmp_path / "o"))
    error = low.compare_outputs(path=str(tmp_path / "o"))
    assert error["difference"] == ""
    assert 0 < error["max_abs"] <= 2**-8  # values are below 1, of which bfloat16 keeps 8 bits


def sequence_and_text(path: Path) -> Path:
    """Outputs that are no tensors of numbers: a sequence of two tensors, and text."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"]),
        helper.make_node("Constant", [], ["word"], value_strings=["cat", "dog"]),
    ]
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 4]))
    outputs = [helper.make_value_info("pair", kind), tiny_models.value("word", [2], "string")]
    return tiny_models.save(path, nodes, [tiny_models.value("x", [2, 4])], outputs)


def test_sequences_and_text_are_compared_member_by_member(tmp_path: Path) -> None:
    contestant, loaded = load(sequence_and_text(tmp_path / "m.onnx"))
    assert [one["dtype"] for one in loaded["outputs"]] == ["sequence", "string"]
    path = str(tmp_path / "o")
    contestant.save_outputs(path=path)
    assert contestant.compare_outputs(path=path)["difference"] == ""
    assert set(module.output_comparison.load(path)) == {"pair[0]", "pair[1]", "word"}


# -- the protocol ------------------------------------------------------------------------------------------


def ask(contestant: Contestant, command: str, arguments: Any = None) -> dict[str, Any]:
    return answer(contestant, json.dumps({"do": command, "with": arguments}).encode())


def answer(contestant: Contestant, line: bytes) -> dict[str, Any]:
    said: list[bytes] = []
    contestant.obey(line, said.append)
    (reply,) = said
    return json.loads(reply)


def test_the_whole_life_of_a_contestant_over_its_protocol(tmp_path: Path) -> None:
    model = tiny_models.mlp(tmp_path / "m.onnx")
    plan, path = contestant_plan(model), str(tmp_path / "o")
    contestant = Contestant()
    for command, arguments in (
        ("load", plan),
        ("footprint", {"runs": 2}),
        ("warm", {}),
        ("block", QUICK),
        ("cost", {"seconds": 0.01, "window_s": 0.01}),
        ("new_shapes", {"feeds": [plan["feeds"]]}),
        ("save_outputs", {"path": path}),
        ("compare_outputs", {"path": path}),
    ):
        reply = ask(contestant, command, arguments)
        assert list(reply) == ["id", "ok"], (command, reply)
        json.dumps(reply, allow_nan=False)


def test_a_reply_has_the_number_of_its_request(tmp_path: Path) -> None:
    contestant = Contestant()
    for line, number in (
        (b'{"id": 7, "do": "block", "with": {"block_ns": 0, "min_runs": 1, "max_runs": 1}}', 7),  # an error
        (b'{"id": 8, "do": "block", "with": {"no": 1}}', 8),  # a surprise
        (b'{"do": "block"}', None),
        (b'{"id": 9, "do": "sing"}', 9),
        (b"nonsense", None),
    ):
        reply = answer(contestant, line)
        assert (reply["id"], list(reply)) == (number, ["id", "error"])
    plan = contestant_plan(tiny_models.mul(tmp_path / "m.onnx"))
    reply = answer(contestant, json.dumps({"id": "x", "do": "load", "with": plan}).encode())
    assert (reply["id"], list(reply)) == ("x", ["id", "ok"])


def test_errors_are_replies_and_the_contestant_goes_on(tmp_path: Path) -> None:
    contestant = Contestant()
    assert ask(contestant, "block", QUICK)["error"]["type"] == "WorkerError"
    missing = contestant_plan(tiny_models.mul(tmp_path / "m.onnx")) | {"model_path": str(tmp_path / "none")}
    assert ask(contestant, "load", missing)["error"]["type"] == "ModelError"
    failing = contestant_plan(tiny_models.failing_run(tmp_path / "f.onnx"))
    assert "Reshape" in ask(contestant, "load", failing)["error"]["message"]
    assert "ok" in ask(contestant, "load", contestant_plan(tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    "line", [b"nonsense", b'{"do": "sing"}', b"[]", b"{}", b'{"do": ["load"]}', b'{"do": "block"', b"\xff"]
)
def test_what_is_no_command_is_refused(line: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(Contestant(), line)["error"]["type"] == "WorkerError"
    assert capsys.readouterr().err == "", "it was a surprise"


def test_a_surprise_is_a_worker_error_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(inference, "build_session", fail)
    error = ask(Contestant(), "load", contestant_plan(tiny_models.mul(tmp_path / "m.onnx")))["error"]
    assert error["type"] == "WorkerError"
    assert "KeyError" in error["message"]
    assert "Traceback" in capsys.readouterr().err
    monkeypatch.setattr(inference, "build_session", out_of_memory)
    error = ask(Contestant(), "load", contestant_plan(tmp_path / "m.onnx"))["error"]
    assert "TiB" in error["message"]


def out_of_memory(*_: object) -> None:
    raise MemoryError("Unable to allocate 1 TiB")


def test_only_a_cpu_contestant_has_its_memory_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capped: list[str] = []
    monkeypatch.setattr(module.limits, "cap_memory", lambda: capped.append("yes"))
    model = tiny_models.mul(tmp_path / "m.onnx")
    with monkeypatch.context() as patch:
        patch.setattr(inference, "build_session", no_session)  # its libraries would stay: 1.2 GB
        with pytest.raises(TunerError):
            load(model, session=session_plan(providers=[{"name": "CUDAExecutionProvider", "options": {}}]))
    assert capped == []
    load(model)
    assert capped == ["yes"]


def no_session(*_: object, **__: object) -> None:
    raise ProviderError("It is not here.")
