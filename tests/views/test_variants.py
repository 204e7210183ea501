"""The Variants page: the chain, the family, a variant's details and errors; and once for real."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import core.api.variants
from core.run import job_types, variants
from core.run import node_errors as node_error_run
from core.run.job import Status
from core.show.sheets import variants as sheets
from core.spec.datasets import DatasetSpec
from core.spec.steps import STEPS, Step, step_type
from core.store import ModelRecord
from core.wire.errors import Cancelled, ModelError, record_from_error
from core.wire.output_check import OUTPUTS_DIFFER
from dashboard import fields, state
from dashboard.views.variants import detail as variant_detail
from dashboard.views.variants import job as variant_job
from dashboard.views.variants import steps as step_controls
from dashboard.views.variants import text as variant_text
from dashboard.views.variants import tree as variant_tree
from dashboard.widgets import dataset
from tests import builders, tiny_models
from tests.builders import node, passes, side
from tests.reading import numbers, tells
from tests.unit.test_node_savings import error, reply
from tests.views import sample_results
from tests.views.page import Add, Jobs, Open, click, followed, icons, lines, texts
from tests.views.page import status as running
from tests.views.test_accuracy import LABELS, binary
from tests.views.test_accuracy import put as put_evaluation

GOOD: dict[str, Any] = {
    "max_abs": 0.01,
    "mean_abs": 0.001,
    "max_rel": 0.012,
    "mean_rel": 0.004,
    "cosine": 0.99991,
    "top1_agreement": 1.0,
    "rows": 7,
    "difference": "",
}


def put_variant(
    root: ModelRecord, *steps: Step, name: str, parent: ModelRecord | None = None, **changes: Any
) -> ModelRecord:
    """Put a variant into the library that nobody made: a copy of the original with a record of its own."""
    above = parent or root
    sha = hashlib.sha256(name.encode()).hexdigest()
    path = state.store().folder / "models" / sha / f"{name}.onnx"
    path.parent.mkdir(parents=True)
    shutil.copyfile(root.path, path)
    facts: dict[str, Any] = {
        "key": name,
        "root": root.content_sha256,
        "root_name": root.name,
        "parent": above.content_sha256,
        "parent_name": above.name,
        "steps": [step.to_dict() for step in (*(variants.steps_of(above)), *steps)],
        "precision": steps[-1].type.precision or "fp32",
        "made_at": 1_000_000.0,
        "calibration": None,
        "tool": "onnxruntime.quantization",
        "tool_version": "1.31",
        "onnxruntime": "1.31",
        "seconds": 1.5,
        "nodes_before": 4,
        "nodes_after": 9,
        "size_before_bytes": 4000,
        "size_bytes": 1000,
        "error": GOOD,
        "error_seeds": 3,
        "checks": [],
        "notes": [],
        "hardware_bound": "",
        "facts": {},
        "files": [],
    }
    record = replace(
        root,
        content_sha256=sha,
        sha256=sha,
        name=name,
        path=str(path),
        source="variant",
        created_at=root.created_at + len(state.store().models()),
        details={"variant": facts | changes},
    )
    state.store().put_model(record)
    return record


def add(at: AppTest, kind: str) -> AppTest:
    at.button(key=f"step.add.{kind}").click().run()
    assert not at.exception
    return at


def chain(at: AppTest) -> list[dict[str, str]]:
    return list(at.session_state[step_controls.CHAIN])


def keys(at: AppTest) -> set[str]:
    """Keys of all widgets that the page draws."""
    kinds = ("button", "toggle", "selectbox", "number_input", "text_input", "multiselect", "slider")
    return {str(one.key) for kind in kinds for one in at.get(kind)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Requested chains, instead of making them."""
    found: list[dict[str, Any]] = []

    def make_chain(store: Any, record: ModelRecord, steps: Any, **how: Any) -> variants.Made:
        found.append({"record": record, "steps": list(steps), **how})
        return variants.Made(records=[record], reused=0)

    monkeypatch.setattr(core.api.variants, "make_chain", make_chain)
    return found


# --- the chain --------------------------------------------------------------------------------------------


def test_without_variants_the_page_says_what_to_do(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("variants", model=mlp)
    assert "account_tree" in icons(at)
    assert not [one for one in at.button if str(one.key).startswith("step.remove.")]
    assert at.button(key="variants.make").disabled


def test_every_option_of_every_step_has_a_widget_with_help(open_page: Open, add_model: Add) -> None:
    record = add_model(tiny_models.mlp)
    at = open_page("variants", model=record)
    for kind in STEPS:
        add(at, kind.kind)
    drawn = keys(at)
    for one in chain(at):
        for option in step_type(one["kind"]).options:
            key = step_controls.option_key(one["id"], option.name)
            assert key in drawn or f"{key}.batch" in drawn, key
    widgets = [*at.toggle, *at.selectbox, *at.number_input, *at.text_input, *at.multiselect]
    assert all(one.proto.help for one in widgets if str(one.key).startswith("step."))


def test_an_untouched_step_asks_for_the_defaults_of_the_table(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = add(open_page("variants", model=mlp), "int8_dynamic")
    at.button(key="variants.make").click().run()
    assert not at.exception
    assert state.scheduler().join(60)
    (made,) = asked
    assert made["steps"] == [Step("int8_dynamic")]
    assert made["record"].content_sha256 == mlp.content_sha256
    assert (made["calibration"], made["name"]) == (None, "")


def test_what_the_widgets_hold_is_made_in_their_order(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = add(add(open_page("variants", model=mlp), "int8_dynamic"), "simplify")
    first, second = chain(at)
    at.toggle(key=f"step.{first['id']}.per_channel").set_value(True)
    at.multiselect(key=f"step.{first['id']}.op_types").set_value(["MatMul"])
    at.text_input(key="variants.name").set_value("small one")
    at.button(key=f"step.earlier.{second['id']}").click().run()
    assert [one["kind"] for one in chain(at)] == ["simplify", "int8_dynamic"]
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(60)
    (made,) = asked
    assert made["steps"] == [
        Step("simplify"),
        Step("int8_dynamic", {"per_channel": True, "op_types": ["MatMul"]}),
    ]
    assert made["name"].split() == ["small", "one"]


def test_a_step_can_be_taken_out(open_page: Open, mlp: ModelRecord) -> None:
    at = add(add(open_page("variants", model=mlp), "simplify"), "fp16")
    at.button(key=f"step.remove.{chain(at)[0]['id']}").click().run()
    assert [one["kind"] for one in chain(at)] == ["fp16"]
    assert not at.exception


def test_a_chain_that_cannot_be_says_why_and_is_not_made(open_page: Open, mlp: ModelRecord) -> None:
    at = add(add(open_page("variants", model=mlp), "int8_dynamic"), "fp16")
    assert lines(at, *(step_type(kind).title for kind in ("fp16", "int8_dynamic")))
    assert at.button(key="variants.make").disabled


def test_free_dimensions_are_fixed_by_fields(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = add(open_page("variants", model=mlp), "fix_dims")
    assert at.button(key="variants.make").disabled
    at.number_input(key=f"step.{chain(at)[0]['id']}.dims.batch").set_value(4).run()
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(60)
    assert asked[0]["steps"] == [Step("fix_dims", {"dims": {"batch": 4}})]


def test_random_calibration_says_what_that_means(open_page: Open, mlp: ModelRecord) -> None:
    at = add(open_page("variants", model=mlp), "int8_static")
    assert ":material/casino:" in [one.icon for one in at.warning]


def test_data_that_are_not_chosen_are_asked_for(open_page: Open, mlp: ModelRecord) -> None:
    at = add(open_page("variants", model=mlp), "int8_static")
    assert not at.button(key="variants.make").disabled
    at.get_by_key("variants.calibration").set_value("My data").run()
    assert at.button(key="variants.make").disabled
    assert tells(at.button(key="variants.make").help, "data")


def test_a_press_before_the_server_knows_the_data_creates_nothing(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = add(open_page("variants", model=mlp), "int8_static")
    at.get_by_key("variants.calibration").set_value("My data")
    at.button(key="variants.make").click().run()
    assert len(at.error) == 1
    assert asked == []


def test_chosen_data_calibrate(open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]) -> None:
    at = add(open_page("variants", model=mlp), "int8_static")
    at.get_by_key("variants.calibration").set_value("My data").run()
    at.button(key="calibration.sample").click().run()
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(60)
    assert asked[0]["calibration"].path.endswith("digits_calibration.npz")


# --- the job ----------------------------------------------------------------------------------------------


def status(**changes: Any) -> Status:
    facts: dict[str, Any] = {"stage": "calibrate", "done": 3, "total": 10, "elapsed_s": 4.0, "eta_s": 9.0}
    return running(kind=variant_job.MAKE, what="INT8 dynamic of mlp", **(facts | changes))


def test_a_running_job_is_found_again_shows_progress_and_can_be_cancelled(
    open_page: Open, mlp: ModelRecord, jobs: Jobs
) -> None:
    cancelled = jobs(status())
    at = open_page("variants", model=mlp)
    assert at.button(key="variants.make").disabled
    assert numbers(followed(at, "variants.watch.make")["text"])[:2] == [3, 10]
    assert tells(followed(at, "variants.watch.make")["text"], "calibrate")
    click(at, "variants.cancel.make")
    assert cancelled == ["job"]


@pytest.mark.parametrize(
    ("state_", "failure", "said"),
    [
        ("FAIL", ModelError("The checker says no.", hint="Try less."), "The checker says no."),
        ("CANCELLED", Cancelled("Stopped.", hint=""), ":material/cancel:"),
    ],
)
def test_a_job_that_came_to_nothing_says_why(
    open_page: Open,
    mlp: ModelRecord,
    jobs: Jobs,
    state_: str,
    failure: ModelError,
    said: str,
) -> None:
    jobs(status(state=state_, error=record_from_error(failure)))
    at = open_page("variants", model=mlp)
    at.session_state[variant_job.job_key(variant_job.MAKE)] = "job"
    at.run()
    assert not at.exception
    place = at.get_by_key("variants.running")  # above the form, which may be closed
    assert any(said in f"{one.value} {one.icon}" for one in [*place.error, *place.info])
    at.run()
    assert not [one for one in [*at.error, *at.info] if said in f"{one.value} {one.icon}"]  # once


def test_a_finished_job_shows_its_variant(open_page: Open, mlp: ModelRecord, jobs: Jobs) -> None:
    put_variant(mlp, Step("fp16"), name="half")
    made = put_variant(mlp, Step("int8_dynamic"), name="small")
    put_variant(mlp, Step("simplify"), name="zzz-newest")
    jobs(status(state="COMPLETE", result={"records": [made.content_sha256], "reused": 0}))
    at = open_page("variants", model=mlp)
    at.session_state[variant_job.job_key(variant_job.MAKE)] = "job"
    at.run()
    assert at.session_state["variants.shown"] == made.content_sha256[: variant_tree.SHORT]
    assert [tells(one.value, "small") for one in at.toast] == [True]


# --- the family -------------------------------------------------------------------------------------------


def test_the_tree_shows_who_was_made_from_whom_with_size_error_and_verdict(
    open_page: Open, mlp: ModelRecord
) -> None:
    slim = put_variant(mlp, Step("simplify"), name="slim")
    small = put_variant(mlp, Step("int8_dynamic"), name="slim-int8", parent=slim)
    put_variant(mlp, Step("fp16"), name="half")
    compare(mlp, small, faster=1.5)
    at = open_page("variants", model=mlp)
    said = texts(at)
    assert "├─\u00a0slim" in said
    assert "└─\u00a0slim-int8" in said
    assert lines(at, "100 %", " 7 ")
    assert any(one.value == "1.2 %" for one in at.markdown)
    assert "(−75 %)" in said
    badges = [one.value for one in at.markdown if "badge" in str(one.value)]
    assert any("1.50× faster" in one.replace("\\", "") for one in badges)
    assert lines(at, "[1.47, 1.53]", " B", "±2 %")
    assert any(variant_text.NOT_COMPARED in one for one in badges)
    assert any("baseline" in one for one in badges)


def compare(root: ModelRecord, variant: ModelRecord, *, faster: float, **facts: Any) -> None:
    """Store a race of a variant against its original, both on default settings."""
    specs = [sample_results.spec_for(one) for one in (root, variant)]
    configurations = [
        sample_results.SampleConfiguration(spec=specs[0], latency_s=0.002 * faster),
        sample_results.SampleConfiguration(spec=specs[1], latency_s=0.002, label=variant.name),
    ]
    comparison, trials = sample_results.put_comparison(
        state.store(), root, configurations, fingerprint="x", study="family", **facts
    )
    assert comparison.baseline == trials[0].id
    state.store().update_trial(trials[1].id, model_sha256=variant.content_sha256)


def test_a_rejected_comparison_is_no_verdict(open_page: Open, mlp: ModelRecord) -> None:
    compare(mlp, put_variant(mlp, Step("int8_dynamic"), name="small"), faster=1.5, grade="F")
    at = open_page("variants", model=mlp)
    assert any("rejected" in str(one.value) for one in at.markdown)
    assert lines(at, "1.47×", "1.53×", " F")


def test_a_slower_variant_has_its_interval_in_the_direction_of_its_verdict(
    open_page: Open, mlp: ModelRecord
) -> None:
    compare(mlp, put_variant(mlp, Step("int8_dynamic"), name="small"), faster=0.5)
    said = texts(open_page("variants", model=mlp))
    assert "2.00× slower" in said
    assert tells(said, "[1.96, 2.04]")


def test_a_busy_machine_and_an_earlier_version_are_told_with_the_speed(
    open_page: Open, mlp: ModelRecord
) -> None:
    busy, old = (put_variant(mlp, Step(kind), name=kind) for kind in ("int8_dynamic", "fp16"))
    compare(mlp, busy, faster=1.5, busy=builders.busy_machine())
    compare(mlp, old, faster=1.2, older=True)
    said = texts(open_page("variants", model=mlp))
    assert tells(said, builders.BUSY)
    assert said.count(":material/info:") > 1
    assert "1.50× faster" in said
    assert "1.20× faster" in said


def test_outputs_that_are_too_far_are_marked(open_page: Open, mlp: ModelRecord) -> None:
    bad = {**GOOD, "max_rel": 0.9, "top1_agreement": 0.1}
    put_variant(mlp, Step("int8_dynamic"), name="broken", error=bad)
    at = open_page("variants", model=mlp)
    assert any(OUTPUTS_DIFFER in str(one.value) for one in at.markdown)
    assert any(tells(one.value, "0.1") for one in at.warning)


def test_a_line_shows_its_variant(open_page: Open, mlp: ModelRecord) -> None:
    first = put_variant(mlp, Step("fp16"), name="half")
    put_variant(mlp, Step("int8_dynamic"), name="small")
    at = open_page("variants", model=mlp)
    at.button(key=f"variants.show.{first.content_sha256[:12]}").click().run()
    assert any(one.value == "half" for one in at.subheader)


def test_the_family_is_compared_on_compare(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_variant(mlp, Step("int8_dynamic"), name="small")
    submitted: list[Any] = []

    def submit(asked: Any, **how: Any) -> str:
        submitted.append((asked, how))
        return sample_results.put_comparison(
            state.store(),
            mlp,
            [sample_results.SampleConfiguration(spec=one.spec) for one in asked],
            fingerprint="x",
        )[0].id

    sample_results.queue(monkeypatch, "comparison", submit)
    at = open_page("variants", model=mlp)
    at.button(key="variants.race.start").click().run()
    assert not at.exception
    ((configurations, how),) = submitted
    assert [one.label.split()[0] for one in configurations] == ["mlp", "small"]
    assert how["study"].startswith("family")
    assert "Compare" in [one.value for one in at.title]


def test_one_press_measures_speed_and_accuracy_of_the_family(
    open_page: Open, mlp: ModelRecord, submitted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")
    monkeypatch.setattr(job_types, "task", lambda task, **how: submitted.append(how) or "accuracy job")
    at = open_page("variants", model=mlp)
    assert at.button(key="variants.measure").disabled  # no labelled data are chosen
    click(add(at, "int8_static"), "variants.calibration.sample")
    assert at.session_state[dataset.key(dataset.CALIBRATION, "path")].endswith("digits_calibration.npz")
    click(at, "variants.measure")
    speed, accuracy = submitted
    assert [one.spec.model.sha256 for one in speed["contestants"]] == [mlp.sha256, small.sha256]
    assert [one.model.sha256 for one in accuracy["specs"]] == [mlp.sha256, small.sha256]
    assert {one.dataset.path for one in accuracy["specs"]} == {dataset.SAMPLE}


def test_the_accuracy_on_the_labelled_data_is_in_the_tree(open_page: Open, mlp: ModelRecord) -> None:
    put_variant(mlp, Step("int8_dynamic"), name="small")
    put_evaluation(mlp, DatasetSpec(path=dataset.SAMPLE), binary([0.1] * 60 + [0.9] * 39 + [0.1]), LABELS)
    at = open_page("variants", model=mlp)
    assert not lines(at, "99.00")
    at.session_state[dataset.key(dataset.LABELLED, "path")] = dataset.SAMPLE
    assert len(lines(at.run(), "99.00")) == 1


# --- one variant ------------------------------------------------------------------------------------------

SATURATION: dict[str, Any] = {
    "name": "saturation",
    "level": "warning",
    "text": "Sums of 8-bit products overflow.",
    "remedy": {"reduce_range": True},
}


def test_what_was_done_and_found_is_shown(open_page: Open, mlp: ModelRecord) -> None:
    note, bound = "Seen on three seeds.", "Weights are arranged for AVX-512."
    put_variant(
        mlp,
        Step("int8_dynamic", {"per_channel": True}),
        name="small",
        checks=[SATURATION],
        notes=[note],
        facts={
            "integer_ops": {"Gemm": {"nodes": 2, "integer": 2, "float": 0}},
            "fused": {"Attention": 12},
            "blocked": ["fc1"],
            "conversions": 3,
        },
        hardware_bound=bound,
    )
    at = open_page("variants", model=mlp)
    said = texts(at)
    assert lines(at, step_type("int8_dynamic").title, "per_channel")
    assert tells(said, SATURATION["text"])
    assert tells(said, note)
    assert tells(said, bound)
    tables = [one.value for one in at.dataframe]
    assert any("Integer" in table and list(table["Integer"]) == [2] for table in tables)
    assert any(list(table["Operator"]) == ["Attention"] for table in tables)
    facts = str(at.table[0].value)
    assert "onnxruntime.quantization 1.31" in facts
    shown = [one.value for one in at.metric]
    assert "1.2 %" in shown
    assert "0.999910" in shown
    assert any(numbers(one) == [100, 7] for one in shown)


def test_a_remedy_makes_the_chain_again_with_that_option(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    put_variant(mlp, Step("simplify"), Step("int8_dynamic"), name="small", checks=[SATURATION])
    at = open_page("variants", model=mlp)
    at.button(key="variants.remedy.saturation").click().run()
    assert not at.exception
    assert state.scheduler().join(60)
    (made,) = asked
    assert made["steps"] == [Step("simplify"), Step("int8_dynamic", {"reduce_range": True})]
    assert made["record"].content_sha256 == mlp.content_sha256


def test_a_remedy_that_is_on_already_is_not_offered() -> None:
    assert (
        variant_text.corrected([Step("int8_dynamic", {"reduce_range": True})], {"reduce_range": True}) is None
    )
    assert variant_text.corrected([Step("simplify")], {"reduce_range": True}) is None
    assert variant_text.corrected([Step("int8_dynamic")], {}) is None


def test_to_go_on_from_a_variant_makes_it_the_model_to_change(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    small = put_variant(mlp, Step("simplify"), name="slim")
    at = open_page("variants", model=mlp)
    at.button(key="variants.continue").click().run()
    assert at.session_state[state.MODEL] == small.content_sha256
    assert any(tells(one.value, "mlp") for one in at.caption)
    add(at, "int8_dynamic").button(key="variants.make").click().run()
    assert state.scheduler().join(60)
    assert asked[0]["record"].content_sha256 == small.content_sha256


def test_a_variant_is_deleted_and_the_original_is_current_again(open_page: Open, mlp: ModelRecord) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")
    at = open_page("variants", model=small)
    at.button(key="variants.delete").click().run()
    assert not at.button(key="variants.confirm").disabled
    assert state.store().model(small.content_sha256) is not None

    def script(sha: str) -> None:
        import streamlit as st

        from dashboard import state
        from dashboard.views.models import removal

        record = state.store().model(sha)
        assert record is not None
        st.session_state[state.MODEL] = sha
        removal.remove(record)

    at = AppTest.from_function(script, args=(small.content_sha256,), default_timeout=60).run()
    assert not at.exception
    assert state.store().model(small.content_sha256) is None
    assert not Path(small.path).exists()
    assert at.session_state[state.MODEL] == mlp.content_sha256


def test_a_variant_in_use_is_not_deleted(open_page: Open, mlp: ModelRecord) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")
    sample_results.put_measured(
        state.store(),
        small,
        sample_results.spec_for(small),
        fingerprint="x",
        state="RUNNING",
        finished_at=None,
    )
    at = open_page("variants", model=mlp)
    at.button(key="variants.delete").click().run()
    assert not at.exception
    assert any(tells(one.value, "measure", "small") for one in at.warning)
    assert at.button(key="variants.confirm").disabled


def test_several_files_come_as_one_archive(mlp: ModelRecord, tmp_path: Path) -> None:
    (tmp_path / "m.ort").write_bytes(b"model")
    (tmp_path / "m.config").write_bytes(b"operators")
    record = replace(mlp, path=str(tmp_path / "m.ort"))
    files = variant_detail.files_of(record, {"files": ["m.config"]})
    with zipfile.ZipFile(io.BytesIO(variant_detail.reader(files)())) as archive:
        assert sorted(archive.namelist()) == ["m.config", "m.ort"]
    assert variant_detail.reader(files[:1])() == b"model"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (1.0, "100 %"),
        (0.99999, "99.9 %"),
        (0.0123, "1.23 %"),
        (0.0, "0 %"),
        (1e-8, "< 0.001 %"),
        (41.96, "4,196 %"),
    ],
)
def test_a_share_is_never_all_where_something_is_missing(share: float | None, text: str) -> None:
    assert sheets.percent(share) == text


# --- where the error comes from ---------------------------------------------------------------------------


def put_errors(record: ModelRecord, *, timed: bool = True) -> None:
    """Store results of the search: fc1 loses much and saves little, fc2 the other way round."""
    folder = node_error_run._answer_folder(state.store(), record)
    folder.mkdir(parents=True)
    errors = reply(error("fc1", 0.08, "Gemm"), error("fc2", 0.02, "Gemm"), whole=0.09)
    before = side([node("fc1", "Gemm", 100), node("fc2", "Gemm", 400)])
    after = side([node("fc1", "QGemm", 90), node("fc2", "QGemm", 100)])
    note = "" if timed else "What each operator saves is not known: it crashed."
    data = {"version": node_error_run.VERSION, "errors": errors, "note": note, "made_at": 1_000_000.0}
    (folder / "errors.json").write_text(json.dumps(data))
    if timed:
        (folder / "passes.json").write_text(json.dumps(passes(before, after)))


def open_errors(open_page: Open, model: ModelRecord) -> AppTest:
    at = open_page("variants", model=model)
    at.get_by_key("variants.view").set_value("Where the error comes from").run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def test_only_a_quantization_can_be_asked_for_its_errors(open_page: Open, mlp: ModelRecord) -> None:
    put_variant(mlp, Step("simplify"), name="slim")
    at = open_errors(open_page, mlp)
    assert at.info
    assert "variants.errors.run" not in keys(at)


def test_before_anybody_looked_there_is_one_button(open_page: Open, mlp: ModelRecord) -> None:
    put_variant(mlp, Step("int8_dynamic"), name="small")
    at = open_errors(open_page, mlp)
    assert "manage_search" in icons(at)
    assert not at.button(key="variants.errors.run").disabled


def test_the_choice_begins_where_the_error_is_halved(open_page: Open, mlp: ModelRecord) -> None:
    put_errors(put_variant(mlp, Step("int8_dynamic"), name="small"))
    at = open_errors(open_page, mlp)
    assert at.multiselect(key="variants.errors.blocked").value == ["fc1"]
    assert len(at.get("plotly_chart")) == 2
    table = next(one.value for one in at.dataframe if "In float" in one.value)
    assert list(table["Operator"]) == ["fc1", "fc2"]
    assert [True, False] in [list(table[name]) for name in table]
    [saves] = [name for name in table if name.startswith("Saves")]
    assert list(table[saves]) == [pytest.approx(0.01), pytest.approx(0.3)]


def test_the_slider_moves_along_the_curve(open_page: Open, mlp: ModelRecord) -> None:
    put_errors(put_variant(mlp, Step("int8_dynamic"), name="small"))
    at = open_errors(open_page, mlp)
    at.slider(key="variants.errors.count").set_value(0).run()
    assert at.multiselect(key="variants.errors.blocked").value == []
    assert at.button(key="variants.errors.next").disabled
    at.slider(key="variants.errors.count").set_value(2).run()
    assert sorted(at.multiselect(key="variants.errors.blocked").value) == ["fc1", "fc2"]
    assert at.button(key="variants.errors.next").disabled  # nothing would be quantized


def test_one_click_makes_the_next_variant(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    put_errors(put_variant(mlp, Step("int8_dynamic", {"per_channel": True}), name="small"))
    at = open_errors(open_page, mlp)
    at.button(key="variants.errors.next").click().run()
    assert not at.exception
    assert state.scheduler().join(60)
    (made,) = asked
    assert made["steps"] == [Step("int8_dynamic", {"per_channel": True, "exclude_nodes": ["fc1"]})]


def test_without_times_the_errors_are_shown_and_why(open_page: Open, mlp: ModelRecord) -> None:
    put_errors(put_variant(mlp, Step("int8_dynamic"), name="small"), timed=False)
    at = open_errors(open_page, mlp)
    assert len(at.get("plotly_chart")) == 1
    assert lines(at, "crashed")


def test_what_cannot_be_read_can_be_found_again(open_page: Open, mlp: ModelRecord) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")
    put_errors(small)
    (node_error_run._answer_folder(state.store(), small) / "errors.json").write_text("{")
    at = open_errors(open_page, mlp)
    assert at.error
    assert not at.button(key="variants.errors.run").disabled


def test_the_search_asks_for_errors_then_times_and_keeps_both(
    mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")
    jobs: list[tuple[str, Mapping[str, Any]]] = []

    def run(job: str, payload: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        jobs.append((job, payload))
        if job == "explain":
            before, after = (side([node("fc1", "Gemm", us)]) for us in (200, 50))
            Path(payload["output"]).write_text(json.dumps(passes(before, after)))
            return {}
        return dict(reply(error("fc1", 0.08, "Gemm")))

    workload = sample_results.spec_for(mlp).workload
    found = node_error_run.locate_errors(state.store(), small, run=run, fingerprint="x", workload=workload)
    assert found == {"operators": 1}
    assert [job for job, _ in jobs] == ["node_errors", "explain"]
    assert (jobs[0][1]["float_path"], jobs[0][1]["quantized_path"]) == (mlp.path, small.path)
    assert [one["model_path"] for one in jobs[1][1]["sides"]] == [mlp.path, small.path]
    located = node_error_run.located(state.store(), small)
    assert located is not None
    assert located.savings.units[0].saved_s == pytest.approx(150e-6)


def test_a_cancelled_search_leaves_nothing_half_done(mlp: ModelRecord) -> None:
    small = put_variant(mlp, Step("int8_dynamic"), name="small")

    def run(job: str, payload: Mapping[str, Any], **how: Any) -> dict[str, Any]:
        if job == "explain":
            raise Cancelled("Stopped.", hint="")
        return dict(reply(error("fc1", 0.08, "Gemm")))

    workload = sample_results.spec_for(mlp).workload
    with pytest.raises(Cancelled):
        node_error_run.locate_errors(state.store(), small, run=run, fingerprint="x", workload=workload)
    assert node_error_run.located(state.store(), small) is None


# --- once for real ----------------------------------------------------------------------------------------


def test_int8_is_really_made_its_errors_found_and_the_next_variant_made(
    open_page: Open, add_model: Add
) -> None:
    record = add_model(tiny_models.mlp)
    at = add(open_page("variants", model=record), "int8_dynamic")
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    assert [one.value for one in at.error] == []
    (small,) = [one for one in state.store().models() if variants.variant_of(one)]
    assert at.session_state["variants.shown"] == small.content_sha256[: variant_tree.SHORT]
    assert variants.precision_of_model(small) == "int8"
    at = at.get_by_key("variants.view").set_value("Where the error comes from").run()
    at.button(key="variants.errors.run").click().run()
    assert state.scheduler().join(240)
    at.run()
    assert not at.exception
    assert [one.value for one in at.error] == []
    table = next(one.value for one in at.dataframe if "In float" in one.value)
    assert set(table["Operator"]) == {"fc1", "fc2"}
    assert table["Error alone"].gt(0).all()
    assert table["Saves (ms)"].notna().all()
    at.multiselect(key="variants.errors.blocked").set_value(["fc1"]).run()
    at.button(key="variants.errors.next").click().run()
    assert state.scheduler().join(120)
    at.run()
    assert not at.exception
    shown = state.store().model(at.session_state["variants.shown"])
    assert shown is not None
    assert variants.steps_of(shown)[-1].options["exclude_nodes"] == ["fc1"]
    assert (variants.variant_of(shown) or {})["facts"]["integer_ops"]["Gemm"]["integer"] == 1


# --- inputs, and names ------------------------------------------------------------------------------------


def test_outputs_are_compared_on_what_the_form_feeds(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]]
) -> None:
    at = add(open_page("variants", model=mlp), "fp16")
    assert not at.exception
    (name,) = (one["name"] for one in mlp.info["inputs"])
    at.text_input(key=fields.value_key(name)).set_value("random:2..3").run()
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(60)
    assert asked[0]["workload"].feed_values == {name: "random:2..3"}
    at.text_input(key=fields.value_key(name)).set_value("random:3..2").run()
    at.button(key="variants.make").click().run()
    assert tells(at.error[0].value, "random:3..2")
    assert len(asked) == 1


@pytest.mark.parametrize(("name", "words"), [("../../etc/x", "is no name"), ("mlp", "of another model")])
def test_a_name_that_cannot_be_is_told_at_once(
    open_page: Open, mlp: ModelRecord, asked: list[dict[str, Any]], name: str, words: str
) -> None:
    at = add(open_page("variants", model=mlp), "fp16")
    at.text_input(key="variants.name").set_value(name).run()
    at.button(key="variants.make").click().run()
    assert words in texts(at)
    assert asked == []
