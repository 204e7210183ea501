"""The Export page: YAML and Python out, YAML back in, and every file that is refused."""

from __future__ import annotations

import ast
import re
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from core.evidence.measurement import Trial
from core.evidence.quality import BUSY
from core.show import export
from core.spec import spec_from_yaml
from core.store import ModelRecord
from core.store.library import remove_model
from dashboard import fields, messages, state
from dashboard.__main__ import serve
from tests import builders, tiny_models
from tests.reading import tells
from tests.views import sample_results
from tests.views.conftest import TIMEOUT_S
from tests.views.page import Add, Open, lines, texts, widget


def put(record: ModelRecord, **changes: Any) -> Trial:
    spec = sample_results.spec_for(record, **changes)
    inputs = [{"name": one["name"], "dtype": one["dtype"], "shape": [1, 16]} for one in record.info["inputs"]]
    trial = sample_results.put_measured(state.store(), record, spec, fingerprint="f")
    assert trial.result is not None
    state.store().update_trial(trial.id, result=trial.result | {"inputs": inputs, "outputs": []})
    return state.store().trial(trial.id)


def named(trial: Trial) -> dict[str, Any]:
    """The spec of a trial, of a model that is named without its folder."""
    model = trial.spec["model"]
    return {**trial.spec, "model": {**model, "path": Path(model["path"]).name}}


def load(at: AppTest, text: str) -> AppTest:
    at.text_area(key="export.pasted").set_value(text).run()
    return at.button(key="export.load").click().run()


def test_without_a_trial_the_current_settings_can_be_taken_away(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    at.number_input(key="knob.intra_op_num_threads").set_value(2).run()
    at.switch_page("views/export/page.py").run()
    assert any(one.value.startswith(":material/info:") for one in at.caption)
    spec = spec_from_yaml(at.code[0].value)
    assert spec.session.intra_op_num_threads == 2
    assert spec.model.sha256 == mlp.sha256
    choose(at, "python")
    ast.parse(at.code[0].value)


@pytest.mark.parametrize(
    "text",
    [
        "schema: 1\nmodel: {path: m.onnx}\nsession: {intra_op_num_threads: 0x" + "f" * 5000 + "}",
        'schema: 1\nmodel: {path: "\\ud800"}',
        "schema: 1\nmodel: {path: ~nosuchuser/m.onnx}",
        "schema: 1\nmodel: {path: digits_cnn}\nworkload: {feeds: ~nosuchuser/x.npz}",
        "schema: 1\nmodel: {path: digits_cnn}\ndataset: {path: ~nosuchuser/x.npz}",
    ],
)
def test_hostile_yaml_is_told_in_words(open_page: Open, mlp: ModelRecord, text: str) -> None:
    at = load(open_page("export", model=mlp), text)
    assert not at.exception
    at.switch_page("views/tune/page.py").run()
    assert not at.exception


def _broken() -> None:
    from core.wire.errors import SpecError
    from dashboard import messages

    assert messages.report_unexpected(ZeroDivisionError("unforeseen"))
    assert messages.report_unexpected(SpecError("Ruled.", hint="Obey."))


def test_what_nobody_expected_is_shown_without_a_traceback() -> None:
    at = AppTest.from_function(_broken, default_timeout=TIMEOUT_S).run()
    assert not at.exception
    assert tells(at.error[0].value, "ZeroDivisionError", "unforeseen")
    assert tells(at.error[0].value, "**")  # what to do
    assert tells(at.error[1].value, "Ruled.", "Obey.")


def test_server_shows_what_pages_raise_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    class App:
        def __init__(self, script: Path, **options: Any) -> None:
            made.update(options)

        def run(self, **_: Any) -> None:
            pass

    monkeypatch.setattr("streamlit.App", App)
    monkeypatch.setattr("os.chdir", lambda _: None)
    serve("127.0.0.1", 1, hosts=())
    assert made["on_script_error"] is messages.report_unexpected


def test_a_linked_trial_is_shown_with_its_numbers(open_page: Open, mlp: ModelRecord) -> None:
    put(mlp)
    trial = put(mlp, intra_op_num_threads=1)
    at = open_page("tune", model=mlp)
    at.query_params["trial"] = trial.id
    at.switch_page("views/export/page.py").run()
    at.query_params["trial"] = trial.id
    at.run()
    assert at.selectbox(key="export.source").value == trial.id
    text = at.code[0].value
    assert spec_from_yaml(text).to_dict() == named(trial)
    assert "measured:" in text
    assert trial.id in text
    assert tells(at.get("download_button")[0].label, f"mlp-{trial.id[:8]}.yaml")
    choose(at, "python")
    compile(at.code[0].value, "snippet.py", "exec")
    assert tells(at.get("download_button")[0].label, f"mlp-{trial.id[:8]}.py")


def choose(at: AppTest, name: str) -> None:
    at.selectbox(key="export.format").set_value(name).run()


def test_every_format_is_shown_with_what_it_cannot_express(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp, enable_mem_reuse=fields.OFF)
    at = open_page("export", model=mlp, trial=trial.id)
    for one in export.FORMATS:
        choose(at, one.name)
        assert not at.exception
        assert one.cannot in texts(at)
        if one.name == "openvino":
            assert lines(at, "OpenVINO", "CPUExecutionProvider")
            continue
        assert trial.id in at.code[0].value
        assert at.get("download_button")[0].label.endswith(one.ending)
        lost = export.not_carried(at.code[0].value)
        assert bool(lost) is (one.name not in ("yaml", "python", "dockerfile"))
        told = [each for each in at.info if each.proto.title.startswith("Not exported")]
        assert len(told) == bool(lost)
        assert all("enable_mem_reuse" in each.value.replace("\\", "") for each in told)


def test_a_model_that_is_gone_is_told_where_it_goes_along(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp)
    Path(mlp.path).unlink()
    at = open_page("export", model=mlp, trial=trial.id)
    choose(at, "triton")
    assert any(tells(one.value, Path(mlp.path).name) for one in [*at.error, *at.warning, *at.info])
    assert not at.get("download_button")


def test_a_busy_machine_is_told_with_the_numbers_that_are_taken_away(
    open_page: Open, mlp: ModelRecord
) -> None:
    trial = sample_results.put_compared(
        state.store(),
        mlp,
        fingerprint="f",
        busy=builders.busy_machine(),
        changes={"inputs": [], "outputs": []},
    ).trial
    at = open_page("export", model=mlp, trial=trial.id)
    assert lines(at, builders.BUSY)
    assert any(BUSY in label for label in at.selectbox(key="export.source").options)
    assert builders.BUSY in at.code[0].value


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"latency_s": 0.003, "baseline_s": 0.002}, "Slower than its baseline: 1.5"),
        (
            {"grade": "F", "grade_reason": "It was off."},
            "The comparison of this trial was rejected: It was off.",
        ),
    ],
)
def test_a_result_that_is_slower_or_rejected_says_so_before_it_is_taken_away(
    open_page: Open, mlp: ModelRecord, facts: dict[str, Any], words: str
) -> None:
    trial = sample_results.put_compared(
        state.store(), mlp, fingerprint="f", changes={"inputs": [], "outputs": []}, **facts
    ).trial
    at = open_page("export", model=mlp, trial=trial.id)
    assert words in texts(at)
    assert f"# CAUTION: '{words[:20]}" in at.code[0].value
    choose(at, "python")
    assert f"# CAUTION: '{words[:20]}" in at.code[0].value


def test_a_variant_is_no_default_in_fp32(open_page: Open, mlp: ModelRecord) -> None:
    model = {"name": "lean", "sha256": "", "precision": "int8", "variant_of": "mlp", "steps": "INT8 dynamic"}
    trial = put(mlp)
    state.store().update_trial(trial.id, result={**(trial.result or {}), "model": model})
    at = open_page("export", model=mlp, trial=trial.id)
    told = ("int8", "`mlp`", "INT8")
    plain = [one.replace("`", "") for one in told]  # a list shows code as it is written
    labels = at.selectbox(key="export.source").options
    assert any(tells(label, *plain) for label in labels)
    assert not any("`" in label for label in labels)
    assert "fp32" not in at.code[0].value
    [stated] = [line for line in at.code[0].value.splitlines() if line.startswith("# MODEL")]
    assert tells(stated, *told)
    assert spec_from_yaml(at.code[0].value).to_dict() == named(trial)
    at.switch_page("views/history/page.py").run()
    assert [tells(one, *plain) for one in at.dataframe[0].value["Changed"]] == [True]


def test_a_trial_whose_samples_were_pruned_can_be_taken_away(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp)
    before = open_page("export", model=mlp, trial=trial.id).code[0].value
    state.store().prune(before=time.time())
    at = open_page("export", model=mlp, trial=trial.id)
    assert spec_from_yaml(at.code[0].value).to_dict() == named(trial)
    assert "p50_s" in at.code[0].value
    assert before.split("measured:")[0] == at.code[0].value.split("measured:")[0]


def test_a_fallback_is_marked_before_it_is_taken_away(open_page: Open, mlp: ModelRecord) -> None:
    spec = sample_results.spec_for(mlp)
    trial = sample_results.put_measured(
        state.store(),
        mlp,
        spec,
        fingerprint="f",
        fallback=True,
    )
    assert trial.result is not None
    inputs = [{"name": mlp.info["inputs"][0]["name"], "dtype": "float32", "shape": [1, 16]}]
    state.store().update_trial(trial.id, result=trial.result | {"inputs": inputs, "outputs": []})
    at = open_page("export", model=mlp)
    at.selectbox(key="export.source").set_value(trial.id).run()
    assert ":orange-badge[:material/warning:" in texts(at)
    assert "# FALLBACK" in at.code[0].value
    at.toggle(key="export.whole").set_value(True).run()
    assert re.search(r"fallback:\s+true", at.code[0].value)


def test_what_was_exported_loads_back_into_the_widgets(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("tune", model=mlp)
    at.multiselect(key="knob.providers").set_value(["CUDAExecutionProvider", "CPUExecutionProvider"]).run()
    at.selectbox(key="option.CUDAExecutionProvider.use_tf32").set_value(fields.OFF)
    widget(at, "enable_mem_pattern").set_value(fields.OFF)
    widget(at, "session_config_entries").set_value("session.disable_prepacking=1")
    at.number_input(key="knob.batch_size").set_value(3).run()
    at.switch_page("views/export/page.py").run()
    text = at.code[0].value
    at.switch_page("views/tune/page.py").run()
    at.button(key="reset.all").click().run()
    at.switch_page("views/export/page.py").run()
    assert spec_from_yaml(at.code[0].value) != spec_from_yaml(text)
    load(at, text)
    assert len(at.success) == 1
    assert spec_from_yaml(at.code[0].value) == spec_from_yaml(text)
    at.switch_page("views/tune/page.py").run()
    assert at.selectbox(key="option.CUDAExecutionProvider.use_tf32").value == fields.OFF
    assert at.number_input(key="knob.batch_size").value == 3


def test_a_file_can_be_loaded_as_well(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("export", model=mlp)
    model = f"model: {{path: elsewhere.onnx, sha256: {mlp.sha256}}}"
    text = f"schema: 1\n{model}\nsession: {{intra_op_num_threads: 7}}\n"
    at.file_uploader(key="export.file").upload("x.yaml", text.encode()).run()
    at.button(key="export.load").click().run()
    assert at.session_state["knob.intra_op_num_threads"] == 7
    assert "threads 7" in texts(at)


def test_the_short_file_has_no_path_of_the_server_and_loads_back(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp, intra_op_num_threads=1)
    at = open_page("export", model=mlp, trial=trial.id)
    text = at.code[0].value
    assert str(Path(mlp.path).parent) not in text
    assert len(text.splitlines()) <= 25
    at.toggle(key="export.whole").set_value(True).run()
    assert spec_from_yaml(at.code[0].value).to_dict() == trial.spec
    load(at, text)
    assert not at.error
    assert at.session_state[state.MODEL] == mlp.content_sha256
    assert at.session_state["knob.intra_op_num_threads"] == 1


@pytest.mark.parametrize("page", ["export.load", "scorecard.load", "compare.add.yaml"])
def test_a_key_of_an_earlier_version_is_read_and_named(open_page: Open, mlp: ModelRecord, page: str) -> None:
    name = page.partition(".")[0]
    text = (
        f"schema: 1\nmodel: {{path: x.onnx, sha256: {mlp.sha256}}}\n"
        "session: {intra_op_num_threads: 1}\ntargets: [{metric: cpu_s, at_most: 5 ms}]\n"
        "protocol: {precision: publish}\n"
    )
    at = open_page(name, model=mlp)
    at.text_area(key=f"{name}.pasted").set_value(text)
    at.button(key=page).click().run()
    assert not at.error
    assert [tells(one.value, "protocol.precision", "protocol.effort") for one in at.toast] == [True]


def test_a_refused_paste_does_not_come_back_after_a_file(open_page: Open, mlp: ModelRecord) -> None:
    at = load(open_page("export", model=mlp), "a: [")
    assert len(at.error) == 1
    good = f"schema: 1\nmodel: {{path: elsewhere.onnx, sha256: {mlp.sha256}}}\n"
    at.file_uploader(key="export.file").upload("x.yaml", good.encode()).run()
    assert at.text_area(key="export.pasted").value == ""
    at.button(key="export.load").click().run()
    assert not at.error
    assert len(at.success) == 1


def test_the_model_of_a_file_is_found_by_its_hash(open_page: Open, mlp: ModelRecord, add_model: Add) -> None:
    conv = add_model(tiny_models.conv)
    at = open_page("export", model=mlp)
    load(at, f"schema: 1\nmodel: {{path: /not/here.onnx, sha256: {conv.sha256}}}\n")
    assert not at.error
    assert at.session_state[state.MODEL] == conv.content_sha256


def test_another_models_hash_is_refused_by_name(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("export", model=mlp)
    load(
        at,
        f"schema: 1\nmodel: {{path: {mlp.path}, sha256: {'f' * 64}}}\nsession: {{intra_op_num_threads: 7}}\n",
    )
    assert tells(at.error[0].value, "f" * 12)
    assert "knob.intra_op_num_threads" not in at.session_state


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "There is no YAML to load"),
        ("schema: 2\nmodel: {path: a}\n", "`schema` must be 1"),
        ("schema: 1\nmodel: {path: a}\nsesion: {}\n", "Unknown key `sesion`"),
        ("schema: 1\nmodel: {path: a}\nsession: {intra_op_num_threads: two}\n", "intra_op_num_threads"),
        ("schema: 1\nschema: 1\nmodel: {path: a}\n", "is given twice"),
        ("schema: 1\nmodel: {path: !!python/object/apply:os.system [ls]}\n", "ls"),
        ("a: [", "YAML"),
        ("- 1\n", "mapping"),
        ("schema: 1\nmodel: {path: /nowhere/x.onnx}\n", "x.onnx"),
        ("x" * 2_000_000, "at most"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_red_box_and_changes_nothing(
    open_page: Open, mlp: ModelRecord, text: str, words: str
) -> None:
    at = open_page(model=mlp)
    at.number_input(key="knob.intra_op_num_threads").set_value(2).run()
    at.switch_page("views/export/page.py").run()
    load(at, text)
    assert not at.exception
    assert len(at.error) == 1
    if words != "ls":
        assert words in texts(at)
    assert tells(at.error[0].value, "**")  # what to do
    assert at.session_state["knob.intra_op_num_threads"] == 2
    assert at.session_state[state.MODEL] == mlp.content_sha256


def test_a_file_cannot_name_just_any_file_of_the_server(
    open_page: Open, mlp: ModelRecord, tmp_path: Path
) -> None:
    outside = tiny_models.conv(tmp_path / "secret.onnx")
    at = open_page("export", model=mlp)
    load(at, f"schema: 1\nmodel: {{path: {outside}}}\n")
    assert tells(at.error[0].value, outside.name)


def test_bytes_that_are_no_text_are_refused(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page("export", model=mlp)
    at.file_uploader(key="export.file").upload("x.yaml", b"\xff\xfe\x00").run()
    at.button(key="export.load").click().run()
    assert tells(at.error[0].value, "UTF-8")


def test_settings_that_cannot_be_used_are_said_instead_of_a_file(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    widget(at, "session_config_entries").set_value("what?").run()
    at.switch_page("views/export/page.py").run()
    assert lines(at, "key=value")
    assert not at.get("download_button")


def test_a_trial_of_a_deleted_model_still_exports(open_page: Open, mlp: ModelRecord, add_model: Add) -> None:
    conv = add_model(tiny_models.conv)
    trial = put(conv)
    remove_model(state.store(), conv.content_sha256)
    at = open_page("export", model=mlp)
    at.selectbox(key="export.source").set_value(trial.id).run()
    assert spec_from_yaml(at.code[0].value).model.sha256 == conv.sha256


# --- outputs that differ ----------------------------------------------------------------------------------


@pytest.fixture
def wrong(mlp: ModelRecord) -> Trial:
    trial = put(mlp)
    assert trial.result is not None
    result = trial.result | builders.guarded(max_rel=0.25)
    state.store().update_trial(trial.id, result=result)
    return state.store().trial(trial.id)


def opened_on(at: AppTest, trial: Trial) -> AppTest:
    return at.selectbox(key="export.source").set_value(trial.id).run()


def test_outputs_that_differ_are_exported_only_with_a_reason_that_goes_along(
    open_page: Open, mlp: ModelRecord, wrong: Trial
) -> None:
    at = opened_on(open_page("export", model=mlp), wrong)
    assert len(at.warning) == 1
    assert lines(at, "0.25")
    assert not at.get("download_button")
    assert not at.code
    field = at.text_input(key=f"export.accepted.{wrong.id}")
    reason = "our validation set does not mind"
    field.set_value(reason).run()
    assert spec_from_yaml(at.code[0].value).to_dict() == named(wrong)
    for name in ("yaml", "python", "triton"):
        choose(at, name)
        assert f"# accepted_breach: '{reason}'" in at.code[0].value
        assert len(at.get("download_button")) == 1


def test_a_reason_that_says_nothing_is_refused_in_words(
    open_page: Open, mlp: ModelRecord, wrong: Trial
) -> None:
    at = opened_on(open_page("export", model=mlp), wrong)
    at.text_input(key=f"export.accepted.{wrong.id}").set_value("42").run()
    assert tells(at.error[0].value, wrong.id[:12])
    assert not at.get("download_button")


def test_a_reason_for_one_trial_accepts_no_other(open_page: Open, mlp: ModelRecord, wrong: Trial) -> None:
    other = put(mlp, intra_op_num_threads=1)
    assert other.result is not None
    state.store().update_trial(other.id, result=other.result | builders.guarded(max_rel=0.5))
    at = opened_on(open_page("export", model=mlp), wrong)
    at.text_input(key=f"export.accepted.{wrong.id}").set_value("it is a test").run()
    assert at.get("download_button")
    opened_on(at, other)
    assert not at.get("download_button")


def test_outputs_that_agree_ask_for_nothing(open_page: Open, mlp: ModelRecord) -> None:
    trial = put(mlp)
    assert trial.result is not None
    state.store().update_trial(trial.id, result=trial.result | builders.guarded())
    at = opened_on(open_page("export", model=mlp), trial)
    assert not at.warning
    assert len(at.get("download_button")) == 1
    assert "accepted_breach" not in at.code[0].value
