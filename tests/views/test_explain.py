"""The Explain page on invented passes, and once on two configurations that are really profiled."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.evidence.measurement import Trial
from core.evidence.profile_difference import OUTSIDE, UNSEEN
from core.evidence.quality import BUSY
from core.evidence.verdict import Verdict
from core.run.explanation import end_to_end_of, pair, passes_path
from core.run.job import Status
from core.show import verdict
from core.store import ModelRecord
from core.wire import units
from core.wire.errors import Cancelled, WorkerError, record_from_error
from dashboard import state
from tests import builders, tiny_models
from tests.builders import fused, node, passes, side, unfused
from tests.reading import numbers, tells
from tests.views import sample_results
from tests.views.page import Add, Jobs, Open, followed, icons, keys, lines, texts
from tests.views.page import status as running

US = builders.US


@pytest.fixture
def compared(mlp: ModelRecord) -> sample_results.Compared:
    """A candidate that raced against the default, 1.7 times as slow."""
    return sample_results.put_compared(
        state.store(), mlp, fingerprint="x", latency_s=545 * US, baseline_s=920 * US
    )


def put_passes(baseline: Trial, candidate: Trial, *sides: dict[str, Any]) -> None:
    of = pair(state.store(), baseline.id, candidate.id)
    data = passes(*(sides or (unfused(), fused())), fingerprint="x")
    passes_path(state.store(), of).write_text(json.dumps(data))


def open_why(
    open_page: Open, record: ModelRecord, compared: sample_results.Compared | None = None
) -> AppTest:
    query = {} if compared is None else {"a": compared.baseline.id, "b": compared.trial.id}
    return open_page("explain", model=record, **query)


def metrics(at: AppTest) -> list[tuple[str, str]]:
    """The whole difference and its parts, in milliseconds, with the text under each."""
    return [(one.value, one.delta) for one in at.metric]


def ms(shown: tuple[str, str]) -> float:
    return float(shown[0].removesuffix(" ms").replace("−", "-"))


def headline(at: AppTest) -> str:
    return str(next(one.value for one in at.markdown if one.value.startswith("####")))


def unfolded(at: AppTest, key: str, value: object = True) -> AppTest:
    """The page with a tab, a popover or an expander opened."""
    at.session_state[key] = value
    at.run()
    assert not at.exception
    return at


def view(at: AppTest, name: str) -> AppTest:
    return unfolded(at, "explain.view", name)


def chosen(at: AppTest) -> AppTest:
    """The page with the choice of the two results opened."""
    return unfolded(at, "explain.results")


def status(compared: sample_results.Compared, **changes: Any) -> Status:
    what = pair(state.store(), compared.baseline.id, compared.trial.id).what
    facts: dict[str, Any] = {"stage": "profile", "done": 3, "total": 10, "elapsed_s": 4.0, "eta_s": 9.0}
    return running(kind="explain", what=what, **(facts | changes))


# --- before there is anything


def test_one_result_is_not_enough(open_page: Open, mlp: ModelRecord) -> None:
    sample_results.put_measured(state.store(), mlp, sample_results.spec_for(mlp), fingerprint="x")
    at = open_why(open_page, mlp)
    assert "troubleshoot" in icons(at)
    assert not [one for one in at.button if one.key == "explain.run"]


def test_two_results_can_be_explained(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    at = open_why(open_page, mlp)
    assert "troubleshoot" in icons(at)
    assert not at.button(key="explain.run").disabled
    assert len(at.get("plotly_chart")) == 0


def test_the_newest_result_is_explained_against_what_it_was_compared_with(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    at = chosen(open_why(open_page, mlp))
    assert at.selectbox(key="explain.candidate").value == compared.trial.id
    assert at.selectbox(key="explain.baseline").value == compared.baseline.id


def test_a_linked_result_of_another_model_stays_the_baseline(
    open_page: Open, mlp: ModelRecord, add_model: Add, compared: sample_results.Compared
) -> None:
    other = add_model(tiny_models.conv)
    mine = [
        sample_results.put_measured(state.store(), other, sample_results.spec_for(other), fingerprint="x")
        for _ in "ab"
    ]
    at = chosen(open_page("explain", model=other, a=compared.trial.id, b=mine[0].id))
    assert at.selectbox(key="explain.baseline").value == compared.trial.id
    assert at.selectbox(key="explain.candidate").value == mine[0].id
    assert any(
        mlp.name in one and compared.trial.id[:8] in one
        for one in at.selectbox(key="explain.baseline").options
    )


def test_results_that_onnx_runtime_did_not_compute_are_not_offered(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    spec = sample_results.spec_for(mlp).model_copy(update={"engine": "torch-eager"})
    other = sample_results.put_measured(state.store(), mlp, spec, fingerprint="x")
    at = chosen(open_why(open_page, mlp))
    assert not [one for one in at.selectbox(key="explain.candidate").options if other.id[:8] in one]


def test_the_pair_is_told_before_the_choice_is_opened(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    at = open_why(open_page, mlp)
    assert "explain.candidate" not in keys(at)
    assert lines(at, compared.trial.id[:8], compared.baseline.id[:8], "threads 1")


# --- the explanation


def test_the_sentence_stands_on_top_and_the_numbers_add_up(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    put_passes(compared.baseline, compared.trial)
    at = open_why(open_page, mlp, compared)
    assert tells(headline(at), Verdict.FASTER.icon, "Conv")
    assert tells(headline(at), "3 ", "Reorder")
    table = at.dataframe[0].value
    assert list(table["Part"])[-2:] == [OUTSIDE, UNSEEN]
    assert any(one.startswith("Reorder ") for one in table["Part"])
    end = end_to_end_of(state.store(), pair(state.store(), compared.baseline.id, compared.trial.id))
    for column, whole_s in (("Baseline (ms)", end.baseline_s), ("Candidate (ms)", end.candidate_s)):
        assert table[column].sum() == pytest.approx(whole_s * 1e3, abs=1e-3)  # each is rounded for the screen
    assert table["Share"].sum() == pytest.approx(1, abs=1e-3)
    whole, *parts = metrics(at)
    assert len(parts) == 3
    assert parts[0][0].startswith("−0.37")
    assert tells(whole[1], "95 % CI [")
    assert sum(map(ms, parts)) == pytest.approx(ms(whole), abs=1.6e-4)  # rounded
    [differs] = [name for name in table if name.startswith("Difference")]
    assert table[differs].sum() == pytest.approx(ms(whole), abs=1e-3)
    assert not lines(at, "- ", units.ms(compared.trial.p50_s))
    assert lines(unfolded(at, "explain.details"), "- ", units.ms(compared.trial.p50_s))


def test_the_table_of_nodes_shows_fusions_and_can_be_searched(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    put_passes(compared.baseline, compared.trial)
    at = view(open_why(open_page, mlp, compared), "Nodes")
    table = at.dataframe[0].value
    row = table[table["Nodes of the baseline"] == "conv1, relu1"].iloc[0]
    assert (row["Nodes of the candidate"], row["Operators"].split(" ")) == (
        "conv1",
        ["Conv", "+", "Relu", "→", "FusedConv"],
    )
    assert row["In the model"] == row["Nodes of the baseline"]
    at.text_input(key="explain.search").set_value("NCHWC conv").run()
    found = at.dataframe[0].value
    assert found["Nodes of the candidate"].tolist() == ["c2_nchwc"]
    assert f"1 of {len(table)} lines" in texts(at)
    at.text_input(key="explain.search").set_value("no such node").run()
    assert not at.exception
    assert len(at.dataframe[0].value) == 0


def test_nodes_that_moved_have_a_view_of_their_own(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    moved = [{**one, "provider": builders.CUDA} for one in unfused()["nodes"]]
    put_passes(compared.baseline, compared.trial, unfused(), side(moved))
    at = view(open_why(open_page, mlp, compared), "Moved (4)")
    assert [one.split(" → ") for one in set(at.dataframe[0].value["Providers"])] == [["CPU", "CUDA"]]
    assert lines(unfolded(at, "explain.details"), "CUDA", "TensorRT")


def test_passes_of_the_other_direction_serve_too(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    put_passes(compared.baseline, compared.trial)
    at = chosen(open_why(open_page, mlp, compared))
    at.button(key="explain.swap").click().run()
    assert not at.exception
    assert at.selectbox(key="explain.candidate").value == compared.baseline.id
    assert tells(headline(at), Verdict.SLOWER.icon, "Conv")


def test_equal_results_have_nothing_to_explain_but_their_parts_are_shown(
    open_page: Open, mlp: ModelRecord
) -> None:
    compared = sample_results.put_compared(
        state.store(), mlp, fingerprint="x", latency_s=900 * US, baseline_s=902 * US, half_width=0.005
    )
    put_passes(compared.baseline, compared.trial, unfused(), unfused())
    at = open_why(open_page, mlp, compared)
    assert tells(headline(at), Verdict.EQUIVALENT.icon, "2 %")
    assert len(at.dataframe[0].value) > 2


def test_a_rejected_comparison_is_not_explained_as_if_it_were_true(open_page: Open, mlp: ModelRecord) -> None:
    reason = "Two copies of the same configuration differed by 2.1 %."
    compared = sample_results.put_compared(
        state.store(), mlp, fingerprint="x", grade="F", grade_reason=reason
    )
    put_passes(compared.baseline, compared.trial)
    at = open_why(open_page, mlp, compared)
    assert Verdict.FASTER.icon not in headline(at)
    _stops_after_the_sentence(at)
    assert tells(at.error[0].value, reason, verdict.MEASURE_BETTER)


def test_a_comparison_of_an_earlier_version_that_was_rejected_says_so(
    open_page: Open, mlp: ModelRecord
) -> None:
    reason = "A neighbour used 0.9 cores."
    compared = sample_results.put_compared(
        state.store(), mlp, fingerprint="x", grade="F", grade_reason=reason, older=True
    )
    put_passes(compared.baseline, compared.trial)
    at = open_why(open_page, mlp, compared)
    assert any(tells(one.value, reason) for one in [*at.error, *at.warning, *at.markdown, *at.caption])


def test_a_busy_machine_is_told_once_with_the_difference(open_page: Open, mlp: ModelRecord) -> None:
    compared = sample_results.put_compared(state.store(), mlp, fingerprint="x", busy=builders.busy_machine())
    put_passes(compared.baseline, compared.trial)
    at = open_why(open_page, mlp, compared)
    assert len(lines(at, builders.BUSY)) == 1
    assert not at.error
    assert BUSY in str(chosen(at).selectbox(key="explain.candidate").options)


def two_alone(mlp: ModelRecord) -> tuple[Any, Any]:
    """Two results of separate comparisons."""
    one = sample_results.put_measured(
        state.store(), mlp, sample_results.spec_for(mlp), fingerprint="x", latency_s=920 * US
    )
    other = sample_results.put_measured(
        state.store(),
        mlp,
        sample_results.spec_for(mlp, intra_op_num_threads=1),
        fingerprint="x",
        latency_s=545 * US,
    )
    return one, other


def test_results_of_two_comparisons_have_no_ratio(open_page: Open, mlp: ModelRecord) -> None:
    one, other = two_alone(mlp)
    put_passes(one, other)
    at = open_page("explain", model=mlp, a=one.id, b=other.id)
    assert not at.exception
    assert headline(at)
    assert "× faster" not in texts(at)
    _stops_after_the_sentence(at)


def _stops_after_the_sentence(at: AppTest) -> None:
    assert not at.metric
    assert not at.dataframe
    assert not at.get("plotly_chart")


def test_an_undecided_comparison_can_be_measured_longer(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The p50 are 28.19 and 28.09 ms, and the ratio of the rounds knows no sign: no part of it is shown."""
    compared = sample_results.put_compared(
        state.store(), mlp, fingerprint="x", latency_s=0.02809, baseline_s=0.02819, half_width=0.5
    )
    put_passes(compared.baseline, compared.trial)
    asked: list[str] = []

    def submit(store: Any, comparison: str, **how: Any) -> str:
        asked.append(comparison)
        return compared.comparison.id

    sample_results.queue(monkeypatch, "more_launches", submit)
    at = open_why(open_page, mlp, compared)
    _stops_after_the_sentence(at)
    assert not [one for one in at.button if one.key == "explain.race"]
    at.button(key="explain.longer").click().run()
    assert not at.exception
    assert asked == [compared.comparison.id]


def test_two_that_were_never_compared_are_compared_by_a_button(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two_alone(mlp)
    jobs: list[Any] = []

    def submit(asked: Any, **how: Any) -> str:
        jobs.append((asked, how))
        return sample_results.put_compared(state.store(), mlp, fingerprint="x").comparison.id

    sample_results.queue(monkeypatch, "comparison", submit)
    at = open_page("explain", model=mlp, a=one.id, b=other.id)
    at.button(key="explain.race").click().run()
    assert not at.exception
    (((candidate, baseline), how),) = jobs
    assert (candidate.role, candidate.spec.session.intra_op_num_threads) == ("candidate", 1)
    assert (baseline.role, baseline.spec.session.intra_op_num_threads) == ("baseline", None)
    assert how["different_models"] is False


def test_two_that_were_compared_need_no_other_comparison(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    at = open_why(open_page, mlp, compared)
    assert not [one for one in at.button if one.key == "explain.race"]


def test_names_of_a_hostile_model_stay_text(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    odd = "**:red[x]** <script>"
    put_passes(
        compared.baseline,
        compared.trial,
        side([node("n`$", odd, 900)], outside_us=20),
        side([node("n`$", odd, 530)], outside_us=15),
    )
    at = open_why(open_page, mlp, compared)
    said = headline(at)
    assert "\\*\\*\\:red\\[x\\]\\*\\*" in said
    assert "\\<script\\>" in said
    for chart in at.get("plotly_chart"):
        assert "<script>" not in chart.proto.spec


# --- links


def test_a_link_names_both_sides_and_brings_their_model(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared, add_model: Add
) -> None:
    put_passes(compared.baseline, compared.trial)
    at = open_why(open_page, add_model(tiny_models.conv), compared)
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert chosen(at).selectbox(key="explain.baseline").value == compared.baseline.id
    assert at.query_params["b"] == compared.trial.id


def test_a_link_to_a_trial_that_failed_says_so(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    failed = sample_results.put_failed(
        state.store(), mlp, sample_results.spec_for(mlp), message="Killed by SIGSEGV."
    )
    at = open_page("explain", model=mlp)
    at.query_params["a"], at.query_params["b"] = compared.trial.id, failed.id
    at.run()
    assert not at.exception
    assert tells(at.error[0].value, failed.id[:12])


def test_a_result_is_not_explained_by_itself(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    at = chosen(open_why(open_page, mlp, compared))
    at.selectbox(key="explain.baseline").set_value(compared.trial.id).run()
    assert not at.exception
    assert tells(at.error[0].value, compared.trial.id[:12])


# --- explaining


def test_explain_asks_for_both_sides_in_order(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def submit(work: Any, **how: Any) -> str:
        work(lambda job, payload, **_: asked.append((job, payload, how)) or {})
        return "job"

    sample_results.queue(monkeypatch, "task", submit)
    at = open_why(open_page, mlp, compared)
    at.button(key="explain.run").click().run()
    assert not at.exception
    ((job, payload, how),) = asked
    threads = [one["session"]["attributes"].get("intra_op_num_threads") for one in payload["sides"]]
    assert (job, threads) == ("explain", [None, 1])
    assert compared.baseline.id in payload["output"]
    assert how["what"].endswith(f"{compared.baseline.id[:8]} → {compared.trial.id[:8]}")


def test_a_running_explanation_is_found_again_shows_progress_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared, jobs: Jobs
) -> None:
    cancelled = jobs(status(compared))
    at = open_why(open_page, mlp, compared)
    assert at.button(key="explain.run").disabled
    assert numbers(followed(at, "explain.watch")["text"])[:2] == [3, 10]
    at.button(key="explain.cancel").click().run()
    assert cancelled == ["job"]


@pytest.mark.parametrize(
    ("state_", "error", "said"),
    [
        ("FAIL", WorkerError("Killed by SIGSEGV.", hint="Use fewer settings."), "Killed by SIGSEGV."),
        ("CANCELLED", Cancelled("Stopped.", hint=""), ":material/cancel:"),
    ],
)
def test_an_explanation_that_came_to_nothing_says_why(
    open_page: Open,
    mlp: ModelRecord,
    compared: sample_results.Compared,
    jobs: Jobs,
    state_: str,
    error: WorkerError,
    said: str,
) -> None:
    ended = status(compared, state=state_, error=record_from_error(error))
    jobs(ended)
    at = open_why(open_page, mlp, compared)
    at.session_state[f"explain.job.{compared.baseline.id}.{compared.trial.id}"] = ended.id
    at.run()
    assert not at.exception
    assert any(said in f"{one.value} {one.icon}" for one in [*at.error, *at.info])
    assert not at.button(key="explain.run").disabled


def test_passes_that_cannot_be_read_can_be_made_again(
    open_page: Open, mlp: ModelRecord, compared: sample_results.Compared
) -> None:
    of = pair(state.store(), compared.baseline.id, compared.trial.id)
    passes_path(state.store(), of).write_text("{")
    at = open_why(open_page, mlp, compared)
    assert at.error
    assert not at.button(key="explain.run").disabled


def test_two_levels_of_optimization_are_really_explained(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.conv)
    slow, fast = (
        sample_results.spec_for(record, graph_optimization_level=level, intra_op_num_threads=1)
        for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_EXTENDED")
    )
    compared = sample_results.put_compared(
        state.store(),
        record,
        spec=fast,
        baseline=slow,
        fingerprint="x",
        latency_s=0.00008,
        baseline_s=0.0001,
    )
    at = open_why(open_page, record, compared)
    at.button(key="explain.run").click().run()
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert [one.value for one in at.error] == []
    at = view(at, "Nodes")
    table = at.dataframe[0].value
    fusions = table[table["Nodes of the baseline"] == "conv1, relu1"]
    assert list(fusions["Nodes of the candidate"]) == ["conv1"]
    assert [one.split(" ") for one in fusions["Operators"]] == [["Conv", "+", "Relu", "→", "FusedConv"]]
