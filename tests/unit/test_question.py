"""The question of a search: what is read, what is refused, and common questions."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.spec.metrics import OBJECTIVES
from core.spec.question import (
    OBJECTIVE_NAMES,
    OLD_STRATEGIES,
    PRESETS,
    STRATEGIES,
    Question,
    find_setting,
    parse_limits,
    parse_objective,
    parse_settings,
    parse_value,
    question_from_dict,
    settings_texts,
)
from core.spec.settings import trial_setting
from core.wire.errors import SpecError

# --- the objective --------------------------------------------------------------------------------------


def test_an_error_names_objectives_and_settings_as_the_help_does() -> None:
    with pytest.raises(SpecError) as refused:
        parse_objective("speed")
    assert OBJECTIVE_NAMES in refused.value.hint
    assert all(parse_objective(one.split()[0]) for one in OBJECTIVE_NAMES.split(", "))
    with pytest.raises(SpecError, match="`intra-op-num-threads`") as refused:
        parse_settings(["intra-op-num-thread=1"], "--vary")
    assert "settings.md" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("latency", {"latency_p50": 1.0}),
        ("P99", {"latency_p99": 1.0}),
        ("throughput", {"throughput": 1.0}),
        ("cpu", {"cpu_s": 1.0}),
        ("latency_p95", {"latency_p95": 1.0}),
        ("latency:0.7,memory:0.3", {"latency_p50": 0.7, "peak_rss": 0.3}),
        (" latency , size ", {"latency_p50": 0.5, "model_size": 0.5}),
    ],
)
def test_an_objective_is_read(text: str, found: dict[str, float]) -> None:
    assert parse_objective(text) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("latncy", "Did you mean `latency`"),
        ("latency:0", "above 0 and at most 1"),
        ("latency:nan", "above 0 and at most 1"),
        ("latency:much", "`much` is no weight"),
        ("latency:0.7,memory:0.4", "add up to 1, but got 1.1"),
        ("latency,p99,memory", "at most two objectives, but got 3"),
        ("latency,p50", "`latency_p50` is given twice"),
        ("", "add up to 1"),
    ],
)
def test_an_objective_that_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        parse_objective(text)
    assert caught.value.hint


@given(st.text(max_size=40))
def test_any_text_is_an_objective_or_refused_politely(text: str) -> None:
    try:
        found = parse_objective(text)
    except SpecError:
        return
    assert set(found) <= set(OBJECTIVES)
    assert math.isclose(sum(found.values()), 1.0, abs_tol=1e-6)


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("p99<=3ms", "p99 latency ≤ 3 ms"),
        ("p99 < 3 ms", "p99 latency ≤ 3 ms"),
        ("latency≤3ms", "p50 latency ≤ 3 ms"),
        ("memory<=100MiB", "peak memory added by the session ≤ 100 MiB"),
        ("size<=20MiB", "model size ≤ 20 MiB"),
        ("output_error<=1%", "output error ≤ 0.01"),
        ("sensitivity@0.6>=98%", "sensitivity at threshold 0.6 ≥ 98 %"),
        ("accuracy>=-0.5%", "accuracy ≥ the original's − 0.5 pp"),
        ("accuracy >= −0.005", "accuracy ≥ the original's − 0.5 pp"),
    ],
)
def test_a_limit_is_read(text: str, words: str) -> None:
    assert question_from_dict(parse_limits([text])).limit_words == [words]


def test_limits_are_read_together() -> None:
    found = parse_limits(["p99<=3ms", "memory<=100MB", "accuracy>=-1%"])
    assert [one.metric for one in found["limits"]] == ["latency_p99", "peak_rss"]
    assert found["accuracy_drop"] == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p99", "is no limit"),
        ("p99<=3", "needs a unit"),
        ("p99>=3ms", "better when it is smaller"),
        ("throughput<=100/s", "better when it is larger"),
        ("latncy<=3ms", "Did you mean `latency`"),
        ("accuracy<=-1%", "cannot be read"),
        ("accuracy>=-x", "cannot be read"),
        ("sensitivity@1.2.3>=98%", "is no limit"),
        ("p99@0.5<=3ms", "`threshold` does not apply"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        parse_limits([text])
    assert caught.value.hint


@given(st.from_regex(r"[a-z0-9_@.]{0,12}(<=|>=|<|>|=)[-0-9a-z.% ]{0,12}", fullmatch=True))
def test_any_text_is_a_limit_or_refused_politely(text: str) -> None:
    try:
        parse_limits([text])
    except SpecError as refused:
        assert refused.message  # noqa: PT017 - what is not refused is a limit


# --- settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("intra_op_num_threads=1, 2,4", {"intra_op_num_threads": [1, 2, 4]}),
        ("intra-op-num-threads=1", {"intra_op_num_threads": [1]}),
        ("--intra-op-num-threads=default", {"intra_op_num_threads": [0]}),
        ("enable_mem_pattern=on,off", {"enable_mem_pattern": [True, False]}),
        ("graph_optimization_level=ort_enable_basic", {"graph_optimization_level": ["ORT_ENABLE_BASIC"]}),
        ("providers=CPUExecutionProvider", {"providers": [("CPUExecutionProvider",)]}),
        ("providers=A+B", {"providers": [("A", "B")]}),
        ("model=int8,fused", {"model": ["int8", "fused"]}),
    ],
)
def test_values_of_a_setting_are_read(text: str, found: dict[str, Any]) -> None:
    assert parse_settings([text], "--vary") == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("intra_op_num_threads", "has no values"),
        ("intra_op_num_threads=", "has no values"),
        ("intra_op_num_threads=1,,2", "has an empty value"),
        ("model=int8,", "has an empty value"),
        ("intra_op_num_thread=1", "Did you mean `intra_op_num_threads`"),
        ("intra_op_num_threads=1.5", "takes whole numbers, but got `1.5`"),
        ("intra_op_num_threads=" + "9" * 30, "takes whole numbers"),
        ("enable_mem_pattern=maybe", "must be on or off, but got `maybe`"),
        ("graph_optimization_level=ORT_ENABLE_BASC", "Did you mean `ORT_ENABLE_BASIC`"),
        ("feeds=random", "`feeds` cannot vary"),
    ],
)
def test_values_that_cannot_be_are_refused(text: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        parse_settings([text], "--vary")
    assert caught.value.hint


def test_what_varies_is_written_as_it_is_read() -> None:
    lines = [
        "intra_op_num_threads=1,2,4",
        "enable_cpu_mem_arena=on,off",
        "graph_optimization_level=ORT_ENABLE_ALL,ORT_ENABLE_BASIC",
        "session.intra_op.spin_duration_us=default,100",
        "providers=CUDAExecutionProvider+CPUExecutionProvider,CPUExecutionProvider",
        "model=digits int8",
    ]
    read = parse_settings(lines, "--vary")
    assert settings_texts(read) == lines
    kept = question_from_dict({"vary": json.loads(json.dumps(read))})  # as a study keeps it
    assert settings_texts(kept.vary) == lines


def test_a_setting_has_the_name_of_the_table_or_of_its_option() -> None:
    assert find_setting("execution_mode") is find_setting("--execution-mode")
    assert parse_value(trial_setting("execution_mode"), "AUTO") == trial_setting("execution_mode").default


# --- the whole ------------------------------------------------------------------------------------------


def test_a_question_is_what_its_plain_data_says() -> None:
    asked = Question(
        **parse_limits(["p99<=3ms"]), objective={"throughput": 1.0}, budget_s=30, vary={"a": [1]}
    )
    assert question_from_dict(asked.model_dump(mode="json", exclude_defaults=True)) == asked


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"budget_s": 4}, "5 to 86,400"),
        ({"budget_s": 90_000}, "5 to 86,400"),
        ({"accuracy_drop": 1.0}, "0 to 100 %"),
        ({"accuracy_drop": 0.1, **parse_limits(["accuracy>=98%"])}, "two limits on the accuracy"),
        ({"objective": {}}, "add up to 1"),
        ({"objective": {"speed": 1.0}}, "no objective `speed`"),
        ({"strategy": "magic"}, "strategy"),
        ({"colour": "red"}, "colour"),
        (parse_limits(["p99<=3ms", "p99<=4ms"]), "two targets on the p99 latency"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        question_from_dict(data)


def test_a_question_in_words() -> None:
    both = Question(objective=parse_objective("latency:0.7,memory:0.3"), same_latency=True)
    assert both.words == f"{OBJECTIVES['latency_p50']} (70 %) and {OBJECTIVES['peak_rss']} (30 %)"
    assert both.limit_words == ["p50 latency no higher than the default"]
    assert Question().words == "lowest p50 latency"


def test_only_questions_about_rows_vary_the_batch() -> None:
    assert Question(objective={"throughput": 1.0}).per_row
    assert Question(objective={"cpu_s": 1.0}).per_row
    assert not Question().per_row


def test_what_a_question_is_about() -> None:
    asked = Question(**parse_limits(["memory<=100MB", "accuracy>=98%"]))
    assert asked.metrics == {"latency_p50", "peak_rss", "accuracy"}
    assert asked.accuracy
    assert Question(accuracy_drop=0.01).accuracy
    assert not Question().accuracy


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_questions(name: str) -> None:
    words, data = PRESETS[name]
    assert words.endswith(".")
    assert question_from_dict(dict(data)).words


def test_every_strategy_is_told_in_words() -> None:
    assert all(STRATEGIES.values())
    assert all(question_from_dict({"strategy": name}).strategy == name for name in STRATEGIES)


def test_an_old_strategy_is_read_as_the_default_one() -> None:
    assert {question_from_dict({"strategy": name}).strategy for name in OLD_STRATEGIES} == {"race"}


def test_a_limit_of_five_is_not_taken_for_500_percent() -> None:
    with pytest.raises(SpecError, match="percentage") as refused:
        parse_limits(["output_error<=5"])
    assert "5%" in refused.value.hint


# --- under load ---------------------------------------------------------------------------------------------


def test_traffic_is_kept_as_its_text() -> None:
    asked = question_from_dict({"load": "200/s with p99<=20ms"})
    kept = asked.model_dump(mode="json", exclude_defaults=True)
    assert kept == {"load": "200/s with p99<=20ms"}
    assert question_from_dict(kept) == asked
    assert asked.load is not None
    assert asked.load.words == "200 requests/s with p99 ≤ 20 ms"
    assert asked.limit_words == []  # the search itself cannot keep it
    assert question_from_dict({}).load is None


@pytest.mark.parametrize("wrong", ["200/s", "p99<=20ms", "200/s with throughput>=3", 200])
def test_what_is_no_traffic_is_refused(wrong: object) -> None:
    with pytest.raises(SpecError) as refused:
        question_from_dict({"load": wrong})
    assert refused.value.hint


def test_traffic_among_the_constraints_is_refused_with_its_place() -> None:
    with pytest.raises(SpecError, match="load test") as refused:
        question_from_dict({"limits": [{"load": "200/s with p99<=20ms"}]})
    assert "`load`" in refused.value.hint
