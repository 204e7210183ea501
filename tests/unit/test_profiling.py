"""The reader of profiles on invented lines, where every number can be worked out, and on recorded traces."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire.errors import WorkerError
from core.wire.profile import (
    NodeTime,
    Profile,
    Tensor,
    by_operator,
    by_provider,
    cast_facts,
    profile_from_dict,
)
from core.worker.measure import profile_parser as profiling
from core.worker.measure.profile_parser import parse_profile
from tests.data import make_profiles

DATA = Path(__file__).parent.parent / "data"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
Event = dict[str, Any]


def event(name: str, ts: int, dur: int, *, cat: str = "Session", tid: int = 7, **args: Any) -> Event:
    return {"cat": cat, "pid": 7, "tid": tid, "dur": dur, "ts": ts, "ph": "X", "name": name, "args": args}


def node(
    name: str, ts: int, dur: int, op: str = "MatMul", index: int = 0, *, tid: int = 7, **args: Any
) -> Event:
    given_args = {"op_name": op, "provider": CPU, "node_index": str(index), **args}
    return event(f"{name}_kernel_time", ts, dur, cat="Node", tid=tid, **given_args)


def execute(ts: int, dur: int) -> Event:
    return event("SequentialExecutor::Execute", ts, dur)


def run(ts: int, dur: int) -> Event:
    return event("model_run", ts, dur)


TRUNCATED = {
    "cat": "Session",
    "name": "profile_truncated",
    "args": {"dropped_event_count": "12022", "max_num_events": "1000000"},
}


def as_ort_writes(events: Sequence[Event]) -> str:
    return "[\n" + ",\n".join(json.dumps(one) for one in events) + "\n]\n"


def parse(tmp_path: Path, events: Sequence[Event], **options: Any) -> Profile:
    path = tmp_path / "profile.json"
    path.write_text(as_ort_writes(events))
    return parse_profile(path, **options)


def recorded(what: str, skip_runs: int = 1) -> Profile:
    return parse_profile(DATA / f"profile_1.31.1_{what}.json", skip_runs=skip_runs)


def found(profile: Profile, name: str, path: tuple[str, ...] = ()) -> NodeTime:
    (one,) = [node for node in profile.nodes if node.name == name and node.path == path]
    return one


def us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


# Two runs of a MatMul and a Relu, 100 and 60 µs.
TWO_RUNS = [
    event("model_loading_uri", 0, 30),
    event("session_initialization", 40, 500),
    node("mm", 1010, 60, index=0),
    node("relu", 1075, 5, "Relu", 1),
    execute(1005, 90),
    run(1000, 100),
    node("mm", 2010, 40, index=0),
    node("relu", 2055, 1, "Relu", 1),
    execute(2004, 54),
    run(2000, 60),
]


def test_a_profile_of_two_runs_gives_means_per_run_and_the_remainder(tmp_path: Path) -> None:
    profile = parse(tmp_path, TWO_RUNS)
    assert profile.runs == 2
    assert profile.run_s == (0.0001, 0.00006)
    assert (us(profile.execute_s), us(profile.self_s), us(profile.remainder_s)) == (72, 53, 27)
    assert (us(profile.model_loading_s), us(profile.session_initialization_s)) == (30, 500)
    assert [(one.name, one.op_type, us(one.self_s), us(one.total_s)) for one in profile.nodes] == [
        ("mm", "MatMul", 50, 100),
        ("relu", "Relu", 3, 6),
    ]
    matmul = profile.nodes[0]
    assert (us(matmul.min_s), us(matmul.median_s), matmul.calls, matmul.calls_per_run) == (40, 50, 2, 1)
    assert matmul.share == pytest.approx(100 / 106)
    assert (profile.truncated, profile.dropped_events, profile.ignored_events) == (False, 0, 0)
    assert (profile.events, profile.parallel) == (10, False)


def test_skipped_runs_leave_no_trace_in_any_number(tmp_path: Path) -> None:
    profile = parse(tmp_path, TWO_RUNS, skip_runs=1)
    assert (profile.runs, profile.skipped_runs, profile.run_s) == (1, 1, (0.00006,))
    assert (us(profile.execute_s), us(profile.self_s), us(profile.remainder_s)) == (54, 41, 19)
    assert [(one.name, us(one.self_s), one.calls) for one in profile.nodes] == [("mm", 40, 1), ("relu", 1, 1)]


def test_the_body_of_a_loop_is_taken_out_of_the_loop_and_added_up_over_its_trips(tmp_path: Path) -> None:
    events = [
        node("mm", 10, 20, index=0),
        node("mm", 45, 10, index=0),  # the body counts from 0 again, and reuses the name
        execute(43, 14),
        node("mm", 65, 12, index=0),
        execute(63, 16),
        node("loop", 40, 50, "Loop", 1),
        execute(5, 90),
        run(0, 100),
    ]
    profile = parse(tmp_path, events)
    inner, outer, loop = found(profile, "mm", ("loop",)), found(profile, "mm"), found(profile, "loop")
    assert (us(inner.self_s), inner.calls_per_run, us(inner.min_s)) == (22, 2, 22)
    assert (us(loop.self_s), us(loop.inclusive_s)) == (28, 50)
    assert us(outer.self_s) == 20
    assert (us(profile.self_s), us(profile.remainder_s), us(profile.execute_s)) == (70, 30, 90)


def test_a_body_that_seems_longer_than_its_node_gives_zero_and_not_less(tmp_path: Path) -> None:
    events = [node("inner", 10, 11), node("if", 10, 10, "If"), run(0, 30)]
    profile = parse(tmp_path, events)
    assert found(profile, "if").self_s == 0
    assert us(found(profile, "inner", ("if",)).self_s) == 11


def test_a_call_of_no_time_is_not_taken_for_the_body_of_the_next_call(tmp_path: Path) -> None:
    profile = parse(tmp_path, [node("flat", 10, 0, "Flatten"), node("mm", 10, 5, index=1), run(0, 20)])
    assert [(one.name, one.path) for one in profile.nodes] == [("mm", ()), ("flat", ())]


def test_a_call_of_no_time_at_the_start_of_an_if_is_its_body(tmp_path: Path) -> None:
    profile = parse(tmp_path, [node("id", 10, 0, "Identity"), node("if", 10, 5, "If"), run(0, 20)])
    assert found(profile, "id", ("if",)).calls == 1


def test_a_body_inside_a_body_keeps_the_whole_path(tmp_path: Path) -> None:
    events = [
        node("deep", 13, 2),
        node("inner", 12, 4, "If"),
        node("after", 17, 1, index=1),
        node("outer", 11, 9, "Scan"),
        run(10, 12),
    ]
    profile = parse(tmp_path, events)
    assert us(found(profile, "deep", ("outer", "inner")).self_s) == 2
    assert us(found(profile, "inner", ("outer",)).self_s) == 2
    assert us(found(profile, "outer").self_s) == 4


def test_nodes_of_one_name_and_nodes_without_name_stay_apart(tmp_path: Path) -> None:
    events = [
        node("same", 10, 3, index=0),
        node("same", 20, 4, index=1),
        node("", 30, 5, index=2),
        node("", 40, 6, index=3),
        run(0, 60),
    ]
    rows = [(one.name, one.node_index, us(one.self_s)) for one in parse(tmp_path, events).nodes]
    assert rows == [("", 3, 6), ("", 2, 5), ("same", 1, 4), ("same", 0, 3)]


def test_a_node_that_ran_in_one_of_two_runs_has_its_mean_over_both_and_its_median_over_one(
    tmp_path: Path,
) -> None:
    events = [node("a", 10, 30), run(0, 50), node("b", 110, 8, index=1), run(100, 20)]
    one = found(parse(tmp_path, events), "b")
    assert (us(one.self_s), us(one.median_s), us(one.min_s), one.calls_per_run) == (4, 8, 8, 0.5)


def test_types_shapes_and_sizes_are_those_of_the_longest_call(tmp_path: Path) -> None:
    def call(ts: int, dur: int, rows: int) -> Event:
        given_args = {
            "input_type_shape": [{"float": [rows, 4]}, {"int64": []}],
            "output_type_shape": [{"double": [rows]}],
        }
        sizes = {"parameter_size": "8", "activation_size": str(16 * rows), "output_size": str(8 * rows)}
        return node("mm", ts, dur, **given_args, **sizes)

    profile = parse(tmp_path, [call(10, 3, 1), call(20, 9, 5), call(30, 4, 2), run(0, 50)])
    (one,) = profile.nodes
    assert one.inputs == (Tensor(dtype="float32", shape=(5, 4)), Tensor(dtype="int64", shape=()))
    assert one.outputs == (Tensor(dtype="float64", shape=(5,)),)
    assert (one.parameter_bytes, one.activation_bytes, one.output_bytes) == (8, 80, 40)


def test_values_that_are_no_tensors_and_numbers_that_are_none_do_not_stop_the_reading(tmp_path: Path) -> None:
    odd = node("odd", 10, 5, input_type_shape=[{"seq": "?"}], parameter_size="many")
    (one,) = parse(tmp_path, [odd, run(0, 50)]).nodes
    assert (one.inputs, one.parameter_bytes) == ((), -1)


def test_nodes_on_two_threads_overlap_and_the_remainder_says_so(tmp_path: Path) -> None:
    events = [node("a", 10, 80, tid=8), node("b", 11, 82, index=1, tid=9), execute(5, 92), run(0, 100)]
    profile = parse(tmp_path, events)
    assert profile.parallel
    assert (us(profile.self_s), us(profile.remainder_s)) == (162, -62)
    assert {(span.tid, span.depth) for span in profile.timeline} == {(8, 0), (9, 0)}


def test_events_outside_every_run_are_counted_and_left_out(tmp_path: Path) -> None:
    events = [node("early", 1, 2), node("mm", 11, 5), run(10, 20), node("unfinished", 40, 3)]
    profile = parse(tmp_path, events)
    assert ([one.name for one in profile.nodes], profile.ignored_events) == (["mm"], 2)


def test_the_fences_that_older_versions_write_beside_a_node_are_no_nodes(tmp_path: Path) -> None:
    call = node("mm", 11, 5)
    fences = [{**call, "name": f"mm_fence_{place}", "dur": 0} for place in ("before", "after")]
    profile = parse(tmp_path, [fences[0], call, fences[1], run(10, 20)])
    assert ([one.name for one in profile.nodes], profile.ignored_events) == (["mm"], 0)


def test_a_node_in_the_last_microsecond_belongs_to_its_run_and_one_in_the_next_run_does_not(
    tmp_path: Path,
) -> None:
    events = [node("a", 110, 0), run(100, 10), node("b", 111, 1), run(111, 5)]
    profile = parse(tmp_path, events)
    assert profile.ignored_events == 0
    assert [span.name for span in profile.timeline] == ["b"]  # the lower of the two medians is the second run


def test_a_node_that_started_after_the_cut_end_of_its_run_belongs_to_it(tmp_path: Path) -> None:
    # started at 111.1 in a run from 100.9 to 111.2, which ORT writes as 100 + 10
    profile = parse(tmp_path, [node("a", 111, 0), run(100, 10)])
    assert ([one.name for one in profile.nodes], profile.ignored_events) == (["a"], 0)


def test_runs_that_overlap_in_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="overlap") as caught:
        parse(tmp_path, [node("a", 10, 5), run(0, 30), node("a", 25, 3), run(20, 30)])
    assert caught.value.hint


def test_events_of_other_categories_are_not_taken_for_nodes(tmp_path: Path) -> None:
    kernel = event("volta_sgemm", 12, 900, cat="Kernel", ep="X", parent_ort_event_name="mm_kernel_time")
    profile = parse(tmp_path, [node("mm", 10, 5), run(0, 20), kernel])
    assert (len(profile.nodes), us(profile.self_s), profile.session_initialization_s) == (1, 5, 0)


# --- the timeline


def test_the_timeline_shows_the_run_of_median_duration(tmp_path: Path) -> None:
    events: list[Event] = []
    for start, length in ((1000, 90), (2000, 50), (3000, 70)):
        inner = node("inner", start + 7, 4, provider=CUDA)
        events += [inner, node("if", start + 5, length - 10, "If"), run(start, length)]
    profile = parse(tmp_path, events)
    assert (profile.timeline_run, profile.timeline_omitted) == (2, 0)
    rows = [
        (s.name, s.op_type, s.provider, s.depth, us(s.start_s), us(s.duration_s)) for s in profile.timeline
    ]
    assert rows == [("if", "If", CPU, 0, 5, 60), ("inner", "MatMul", CUDA, 1, 7, 4)]


def test_a_long_timeline_keeps_the_longest_spans_and_says_how_many_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_SPANS", 2)
    events = [node(f"n{index}", 10 * index, 1 + index, index=index) for index in range(1, 6)]
    profile = parse(tmp_path, [*events, run(0, 100)])
    assert [span.name for span in profile.timeline] == ["n4", "n5"]
    assert profile.timeline_omitted == 3
    assert len(profile.nodes) == 5


# --- what ORT inserted


@pytest.mark.parametrize(
    ("op_type", "name", "inserted"),
    [
        ("Cast", "InsertedPrecisionFreeCast_x", True),
        ("Cast", "to_float", False),
        ("Conv", "InsertedPrecisionFreeCast_r_nchwc", False),  # took over the Cast's output, is none
        ("MemcpyFromHost", "Memcpy", True),
        ("MemcpyToHost", "Memcpy_token_3", True),
        ("ReorderInput", "ReorderInput", True),
        ("ReorderOutput", "ReorderOutput_token_1", True),
        ("Conv", "c1_nchwc", False),
    ],
)
def test_nodes_that_ort_inserted_are_told_from_those_of_the_model(
    tmp_path: Path, op_type: str, name: str, inserted: bool
) -> None:
    (one,) = parse(tmp_path, [node(name, 10, 5, op_type), run(0, 50)]).nodes
    assert one.inserted is inserted


def test_cast_facts_of_float16_that_really_computes_in_float16(tmp_path: Path) -> None:
    half = {"input_type_shape": [{"float16": [2, 2]}]}
    events = [node("c", 10, 5, "Cast", 0, **half), node("mm", 20, 15, index=1, **half), run(0, 50)]
    assert cast_facts(parse(tmp_path, events)) == {
        "casts": 1,
        "inserted_casts": 0,
        "inserted_cast_s": 0,
        "inserted_cast_share": 0,
        "float32_ops": {},
        "float16_ops": {"MatMul": 1},
        "computes_in_float32": False,
    }


# --- groups


def test_groups_add_up_to_the_whole(tmp_path: Path) -> None:
    events = [
        node("a", 10, 20, index=0),
        node("b", 40, 10, index=1, provider=CUDA),
        node("c", 60, 10, "MemcpyToHost", 2, provider=CUDA),
        run(0, 100),
    ]
    profile = parse(tmp_path, events)
    matmul, copy = by_operator(profile)
    assert (matmul.op_type, matmul.nodes, matmul.inserted_nodes, us(matmul.self_s)) == ("MatMul", 2, 0, 30)
    assert (matmul.share, matmul.providers, matmul.calls_per_run) == (0.75, (CPU, CUDA), 2)
    assert (copy.op_type, copy.inserted_nodes, copy.share) == ("MemcpyToHost", 1, 0.25)
    assert [(row.provider, row.nodes, us(row.self_s), row.share) for row in by_provider(profile)] == [
        (CPU, 1, 20, 0.5),
        (CUDA, 2, 20, 0.5),
    ]


# --- layouts and damage


def test_every_layout_of_the_same_json_gives_the_same_profile(tmp_path: Path) -> None:
    wanted = parse(tmp_path, TWO_RUNS)
    path = tmp_path / "other.json"
    lines = as_ort_writes(TWO_RUNS)
    layouts = [json.dumps(TWO_RUNS), json.dumps(TWO_RUNS, indent=4), json.dumps(TWO_RUNS, indent=0)]
    layouts += [lines.replace("\n", "\r\n"), lines.replace(": ", " :"), lines.strip()]
    for text in layouts:
        path.write_bytes(text.encode())
        assert parse_profile(path) == wanted


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_large_file_in_one_line_or_pretty_printed_is_read_too(
    tmp_path: Path, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.worker.measure.trace._LONGEST_LINE_BYTES", 1 << 20)
    events = many_runs(runs=1500)
    wanted = parse(tmp_path, events)
    path = tmp_path / "other.json"
    path.write_text(json.dumps(events, indent=indent))
    assert path.stat().st_size > 2 << 20
    assert parse_profile(path) == wanted


def many_runs(runs: int) -> list[Event]:
    events: list[Event] = []
    for index in range(runs):
        start = 1000 * index
        events += [node(f"n{one}", start + 90 * one, 80 + index % 7, index=one) for one in range(10)]
        events.append(run(start, 930 + index % 7))
    return events


def test_a_file_of_many_blocks_loses_no_event_at_their_borders(tmp_path: Path) -> None:
    profile = parse(tmp_path, many_runs(runs=1400))
    assert (tmp_path / "profile.json").stat().st_size > 2 << 20
    assert (profile.runs, profile.events, profile.ignored_events) == (1400, 15_400, 0)
    assert {one.calls for one in profile.nodes} == {1400}
    assert {us(one.self_s) for one in profile.nodes} == {83}
    assert {us(one.median_s) for one in profile.nodes} == {83}
    assert len(profile.timeline) == 10
    assert {us(span.duration_s) for span in profile.timeline} == {83}


def test_memory_does_not_grow_with_the_number_of_events(tmp_path: Path) -> None:
    def peak(runs: int) -> int:
        path = tmp_path / f"{runs}.json"
        path.write_text(as_ort_writes(many_runs(runs)))
        tracemalloc.start()
        parse_profile(path)
        found_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found_peak

    small, large = peak(1000), peak(4000)
    samples_bytes = 8 * 10 * 3000  # what the medians need
    assert large < 1.3 * small + 2 * samples_bytes


def test_a_profile_that_ort_truncated_keeps_its_complete_runs_and_says_how_much_is_lost(
    tmp_path: Path,
) -> None:
    profile = parse(tmp_path, [*TWO_RUNS, node("mm", 3010, 40), TRUNCATED])
    assert (profile.truncated, profile.dropped_events, profile.runs, profile.ignored_events) == (
        True,
        12_022,
        2,
        1,
    )
    assert us(profile.self_s) == 53


def test_a_file_cut_anywhere_gives_its_complete_runs_or_one_clear_error(tmp_path: Path) -> None:
    whole = as_ort_writes(TWO_RUNS).rstrip()
    first_run_ends = whole.index("\n", whole.index("model_run"))
    last_run_ends = whole.rindex("\n")
    path = tmp_path / "cut.json"
    ends = [at + by for at in (first_run_ends, last_run_ends, len(whole) - 3) for by in (-2, -1, 0, 1, 2)]
    for length in sorted({*range(0, len(whole), 7), *(one for one in ends if one < len(whole))}):
        path.write_text(whole[:length])
        if length < first_run_ends - 1:
            with pytest.raises(WorkerError, match=r"is empty|mid-way|no complete run"):
                parse_profile(path)
            continue
        profile = parse_profile(path)
        assert (profile.truncated, profile.dropped_events) == (True, None)
        assert profile.run_s == ((0.0001,) if length < last_run_ends else (0.0001, 0.00006))


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is empty"),
        (b"\x08\x07\x12\x00ONNX\xff\xfe", "is not a profile"),
        (b"<html></html>", "is not a profile"),
        (b"[1, 2, 3]", "is not a profile"),
        (b'[{"cat": 3}]', "is not a profile"),
        (b'"model_run"', "is not a profile"),
        (b'[{\n"cat": "Node",\n"ts": 4', "ends mid-way"),
        (b"[\n]\n", "holds no complete run"),
        (b'{"traceEvents": []}', "holds no complete run"),
        (as_ort_writes(TWO_RUNS[:3]).encode(), "holds no complete run"),
    ],
)
def test_what_is_no_profile_is_refused_by_one_sentence(tmp_path: Path, content: bytes, rule: str) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(content)
    with pytest.raises(WorkerError, match=rule) as caught:
        parse_profile(path)
    assert "given.json" in caught.value.message
    assert caught.value.hint.endswith(".")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"gone\.json"):
        parse_profile(tmp_path / "gone.json")


def test_more_warm_up_than_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=" 2") as caught:
        parse(tmp_path, TWO_RUNS, skip_runs=2)
    assert "2 runs" in caught.value.hint
    with pytest.raises(ValueError, match=r"skip_runs.* -1"):
        parse(tmp_path, TWO_RUNS, skip_runs=-1)


def test_a_file_sorted_by_start_is_refused_instead_of_being_read_wrongly(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="run"):
        parse(tmp_path, sorted(TWO_RUNS[:6], key=lambda one: one["ts"]))


def test_names_with_quotes_line_breaks_and_bytes_that_are_no_text_survive(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    text = as_ort_writes([node('a "b"\n{é', 10, 5), node("BAD", 20, 5, index=1), run(0, 50)])
    path.write_bytes(text.encode().replace(b"BAD", b"\xff\xfe"))
    assert [one.name for one in parse_profile(path).nodes] == ['a "b"\n{é', "\ufffd\ufffd"]


# --- there and back


def test_a_profile_survives_json(tmp_path: Path) -> None:
    for profile in (parse(tmp_path, TWO_RUNS), recorded("loop"), recorded("fp16_cpu")):
        assert profile_from_dict(json.loads(json.dumps(profile.to_dict()))) == profile


def test_data_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    data = parse(tmp_path, TWO_RUNS).to_dict()
    del data["run_s"]
    with pytest.raises(WorkerError, match="run_s") as caught:
        profile_from_dict(data)
    assert caught.value.hint


# --- a model of what nesting means


@st.composite
def call_trees(draw: st.DrawFn) -> tuple[list[Event], dict[tuple[str, ...], int]]:
    """Random calls in the order in which they end, and the self time of each by its path."""
    events: list[Event] = []
    own: dict[tuple[str, ...], int] = {}

    def grow(path: tuple[str, ...], start: int) -> int:
        now = start
        for index in range(draw(st.integers(0, 3))):
            name = (*path, f"n{index}")
            begin = now + draw(st.integers(0, 2))
            has_body = len(path) < 3 and draw(st.booleans())
            before = draw(st.integers(1, 3))
            body_end = grow(name, begin + before) if has_body else begin
            now = body_end + draw(st.integers(1, 4))
            inside = sum(one["dur"] for one in events if one["path"][:-1] == name)
            own[name] = now - begin - inside
            events.append(
                node(name[-1], begin, now - begin, "Loop" if has_body else "Add", index) | {"path": name}
            )
        return now

    end = grow((), 1)
    return [*events, run(0, end + 1)], own


@given(call_trees())
def test_self_times_of_any_nest_of_calls_are_right(
    tmp_path_factory: pytest.TempPathFactory, trees: tuple[list[Event], dict[tuple[str, ...], int]]
) -> None:
    events, own = trees
    profile = parse(tmp_path_factory.mktemp("nest"), events)
    assert {(*one.path, one.name): us(one.self_s) for one in profile.nodes} == own
    assert us(profile.self_s + profile.remainder_s) == events[-1]["dur"]


# --- what ORT really writes


def test_recorded_chain_with_layout_changes() -> None:
    profile = recorded("chain")
    assert tuple(us(one) for one in profile.run_s) == (109, 90, 87, 87, 86)
    assert (us(profile.self_s), us(profile.remainder_s), us(profile.execute_s)) == (69.6, 22.2, 87.4)
    assert [(one.name, one.op_type, us(one.total_s), one.inserted) for one in profile.nodes] == [
        ("c2_nchwc", "Conv", 127, False),
        ("c1_nchwc", "Conv", 107, False),
        ("head", "Gemm", 36, False),
        ('erf "2"', "Erf", 32, False),
        ("p1_nchwc", "MaxPool", 21, False),
        ("ReorderOutput", "ReorderOutput", 15, True),
        ("flatten", "Flatten", 10, False),
    ]
    conv = found(profile, "c1_nchwc")
    assert conv.inputs == (
        Tensor(dtype="float32", shape=(2, 3, 32, 32)),
        Tensor(dtype="float32", shape=(16, 3, 3, 3)),
    )
    assert (conv.node_index, conv.parameter_bytes, conv.activation_bytes, conv.output_bytes) == (
        6,
        1728,
        24576,
        131072,
    )
    assert [span.name for span in profile.timeline] == [
        "c1_nchwc",
        "p1_nchwc",
        "c2_nchwc",
        "ReorderOutput",
        'erf "2"',
        "flatten",
        "head",
    ]


def test_recorded_chain_on_two_threads_reads_past_the_thread_statistics() -> None:
    profile = recorded("chain_threads", skip_runs=0)
    assert (profile.runs, len(profile.nodes), profile.ignored_events, profile.parallel) == (4, 7, 0, False)


def test_recorded_loop() -> None:
    profile = recorded("loop")
    rows = {
        (*one.path, one.name): (us(one.self_s), us(one.inclusive_s), one.calls_per_run)
        for one in profile.nodes
    }
    assert rows == {
        ("before",): (94.5, 94.5, 1),
        ("loop",): (57, 478.75, 1),
        ("loop", "keep going"): (9.75, 9.75, 5),
        ("loop", "MatMul_0"): (373, 373, 5),
        ("loop", "Tanh_1"): (39, 39, 5),
        ("after",): (74.75, 74.75, 1),
    }
    assert (us(profile.self_s), us(profile.remainder_s), us(profile.execute_s)) == (648, 12.5, 657)
    assert {span.depth for span in profile.timeline} == {0, 1}
    assert len(profile.timeline) == 18


def test_recorded_if_in_an_if() -> None:
    profile = recorded("if")
    rows = {(*one.path, one.name): (us(one.self_s), us(one.inclusive_s)) for one in profile.nodes}
    assert rows == {
        ("outer",): (13.75, 218),
        ("outer", "inner"): (11, 103.75),
        ("outer", "branch/MatMulAddFusion"): (100.5, 100.5),
        ("outer", "inner", "branch"): (85.75, 85.75),
        ("outer", "inner", "finish"): (7, 7),
    }


def test_recorded_float16_on_the_cpu_computes_in_float32() -> None:
    facts = cast_facts(recorded("fp16_cpu"))
    assert us(facts.pop("inserted_cast_s")) == 6
    assert facts.pop("inserted_cast_share") == pytest.approx(6 / 40.75)
    assert facts == {
        "casts": 2,
        "inserted_casts": 2,
        "float32_ops": {"Conv": 1, "MatMul": 1},
        "float16_ops": {},
        "computes_in_float32": True,
    }


def test_recorded_parallel_execution_finds_nodes_on_another_thread_than_the_run() -> None:
    profile = recorded("parallel")
    assert (profile.runs, len(profile.nodes), profile.ignored_events) == (3, 7, 0)
    assert us(profile.self_s) == pytest.approx(273.667)


@pytest.mark.parametrize("what", ["loop", "if"])
def test_self_times_of_recorded_bodies_add_up_to_the_run_within_5_percent(what: str) -> None:
    profile = recorded(what)
    mean_run_s = sum(profile.run_s) / profile.runs
    assert 0.95 * mean_run_s <= profile.self_s <= mean_run_s
    assert profile.self_s + profile.remainder_s == pytest.approx(mean_run_s)


@pytest.mark.parametrize("build", [make_profiles.loop_model, make_profiles.if_model], ids=["loop", "if"])
def test_self_times_of_the_installed_ort_add_up_to_the_run_within_5_percent(
    tmp_path: Path, build: Any
) -> None:
    model, feeds = build(rows=1024)  # long enough that what happens between the nodes is little
    shares = []
    for attempt in range(5):  # another program may take the CPU between two nodes
        trace = make_profiles.record(model, feeds, tmp_path / f"{attempt}.json", runs=6)
        profile = parse_profile(trace, skip_runs=1)
        shares.append(profile.self_s * profile.runs / sum(profile.run_s))
        if shares[-1] >= 0.95:
            break
    assert 0.95 <= shares[-1] <= 1
    assert profile.runs == 5
    assert {one.op_type for one in profile.nodes} >= {"MatMul"}
    assert any(one.path for one in profile.nodes)
    assert (profile.truncated, profile.ignored_events) == (False, 0)


def test_a_profile_is_read_without_a_runtime() -> None:
    """The reader's memory is that of the trace: 30 MB of libraries that it does not use are a third of it."""
    script = "import sys, core.worker.measure.profile_parser; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "onnxruntime"} & set(done.stdout.split())
