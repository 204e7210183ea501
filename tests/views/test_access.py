"""Limits of a dashboard visitor: `expert`, and files of the server by settings, inputs and data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.evidence.comparison import Configuration
from core.run import job_types
from core.spec import TrialSpec, spec_from_dict
from core.store import ModelRecord
from core.wire.access import folders_of_this_process, is_inside
from core.wire.errors import TunerError
from core.wire.variables import ALLOW_LIBRARIES
from dashboard import fields, folders, state
from dashboard.server import people
from tests import libraries, tiny_models
from tests.reading import tells
from tests.views.page import Open, facts, keys, lines, texts, unfolded, widget

WEIGHTS = "{session.model_external_initializers_file_folder_path: /etc}"
HOSTILE = {
    "expert": f"session: {{expert: true, session_config_entries: {WEIGHTS}}}",
    "partition": "session: {session_config_entries: {session.node_partition_config_file: /etc/hostname}}",
    "feeds": "workload: {feeds: /etc/rows.npz}",
    "images": "workload: {feeds: ../../etc}",
    "dataset": "dataset: {path: /etc/passwd}",
}


def spec_of(record: ModelRecord, **parts: object) -> TrialSpec:
    return spec_from_dict({"model": {"path": record.path, "sha256": record.sha256}, **parts})


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    ("page", "text", "button"),
    [
        ("export", "export.pasted", "export.load"),
        ("compare", "compare.pasted", "compare.add.yaml"),
        ("scorecard", "scorecard.pasted", "scorecard.load"),
    ],
)
def test_a_yaml_that_reaches_out_is_refused_on_every_page(
    open_page: Open, mlp: ModelRecord, page: str, text: str, button: str, body: str
) -> None:
    at = open_page(page, model=mlp)
    targets = "targets: [{metric: model_size, at_most: 1 MB}]\n" if page == "scorecard" else ""
    document = f"schema: 1\nmodel: {{path: {mlp.path}, sha256: {mlp.sha256}}}\n{targets}{body}"
    at.text_area(key=text).set_value(document).run()
    at.button(key=button).click().run()
    assert not at.exception
    assert len(at.error) == 1
    assert not at.session_state["knob.expert"] if "knob.expert" in at.session_state else True


@pytest.mark.parametrize("typed", ["/etc/rows.npz", "~/rows.npz", "sample_models/../../x.npz"])
def test_feeds_typed_into_the_form_are_held_to_the_open_folders(
    open_page: Open, mlp: ModelRecord, typed: str
) -> None:
    at = open_page(model=mlp)
    at.get_by_key(fields.FEEDS_SOURCE).set_value(fields.NPZ).run()
    at.text_input(key=fields.FEEDS_PATH).set_value(typed).run()
    at.button(key="run").click().run()
    assert tells(at.error[0].value, Path(typed).name)
    assert state.store().trials() == []


def test_the_switch_is_off_and_cannot_be_pressed_until_the_operator_allows_it(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = open_page(model=mlp)
    assert widget(at, "expert").disabled
    assert "ORTUNE_ALLOW_EXPERT=1" in widget(at, "expert").help
    monkeypatch.setenv("ORTUNE_ALLOW_EXPERT", "1")
    assert not widget(open_page(model=mlp), "expert").disabled


def test_a_forged_switch_is_refused_when_it_is_submitted(open_page: Open, mlp: ModelRecord) -> None:
    at = open_page(model=mlp)
    at.session_state["knob.expert"] = True  # as after a link to a trial that was measured with it
    widget(at, "session_config_entries").set_value(WEIGHTS[1:-1].replace(": ", "=")).run()
    at.button(key="run").click().run()
    assert tells(at.error[0].value, "`expert`")
    assert state.store().trials() == []


def test_no_way_of_submitting_passes_by_the_check(
    mlp: ModelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "rows.npz", x=np.ones((3, 16), np.float32))
    reaching = [
        spec_of(mlp, workload={"feeds": str(tmp_path / "rows.npz")}),
        spec_of(mlp, session={"expert": True}),
        spec_of(mlp, session={"session_config_entries": {"ep.context_file_path": "/tmp/x.onnx"}}),
        spec_from_dict({"model": {"path": str(tiny_models.mlp(tmp_path / "theirs.onnx"))}}),
    ]
    service = state.scheduler()
    for one in reaching:
        for submit in (
            lambda one=one: service.submit(job_types.tune(one)),
            lambda one=one: service.submit(job_types.profile(one)),
            lambda one=one: service.submit(
                job_types.comparison(
                    [Configuration(spec=spec_of(mlp), label="a"), Configuration(spec=one, label="b")]
                )
            ),
            lambda one=one: service.submit(
                job_types.task(lambda run: {}, kind="accuracy", what="x", specs=[one])
            ),
        ):
            with pytest.raises(TunerError, match=r"folders|`expert`"):
                submit()
    assert state.store().trials() == []
    assert not service.active()


def test_with_expert_allowed_files_are_still_held_to_the_open_folders(
    mlp: ModelRecord, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_ALLOW_EXPERT", "1")
    key = "session.model_external_initializers_file_folder_path"

    def asked(value: str) -> TrialSpec:
        return spec_of(mlp, session={"expert": True, "session_config_entries": {key: value}})

    folders.check_spec(asked(str(home / "models")), state.store())
    with pytest.raises(TunerError, match="/etc"):
        folders.check_spec(asked("/etc"), state.store())


def test_who_logs_in_names_kept_uploads_and_models_of_the_home_alone(
    mlp: ModelRecord, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "login/a",
        "audit/a",
        "artifacts/a",
        "forms/a",
        "cache/verify/a",
        "a",
        "datasets/a",
        "feeds/a",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    open_to_all = [home / "datasets" / "a", home / "feeds" / "a", Path(mlp.path)]
    others = [home / name for name in ("login/a", "audit/a", "artifacts/a", "forms/a", "cache/verify/a", "a")]
    others.append(state.store().path)
    key = "session.node_partition_config_file"

    def named(path: Path) -> TrialSpec:
        return spec_of(mlp, session={"session_config_entries": {key: str(path)}})

    for one in (*open_to_all, *others):  # without a login
        assert folders.allowed_path(str(one), state.store()) == one.resolve()
    monkeypatch.setattr(people, "has_login", lambda: True)
    for models in (home, home.parent):
        monkeypatch.setenv("ORTUNE_MODELS", str(models))
        for one in open_to_all:
            assert folders.allowed_path(str(one), state.store()) == one.resolve()
            folders.check_spec(named(one), state.store())
        for one in others:
            with pytest.raises(TunerError, match="outside"):
                folders.allowed_path(str(one), state.store())
            with pytest.raises(TunerError, match="outside"):
                folders.check_spec(named(one), state.store())
    folders.restrict_workers()
    assert not is_inside(others[0], folders_of_this_process() or [])


# --- libraries of native code, and text


def test_libraries_are_offered_only_where_the_operator_opens_a_folder(
    open_page: Open, mlp: ModelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = fields.key("custom_op_libraries")
    monkeypatch.delenv(ALLOW_LIBRARIES, raising=False)
    assert key not in keys(unfolded(open_page(model=mlp)))
    (tmp_path / "libops.so").write_bytes(b"\x7fELF")
    (tmp_path / "notes.txt").write_text("no library")
    (tmp_path / "out.so").symlink_to("/etc/hostname")
    monkeypatch.setenv(ALLOW_LIBRARIES, str(tmp_path))
    at = open_page(model=mlp)
    assert widget(at, "custom_op_libraries").options == ["libops.so"]
    widget(at, "custom_op_libraries").set_value(["libops.so"]).run()
    assert not at.exception
    values = {key: at.session_state[key]}
    asked = fields.spec_from_values(values, path="m.onnx", sha256=None, info=None)
    assert asked.session.custom_op_libraries == ("libops.so",)


def test_a_library_that_a_trial_brings_stays_to_be_seen_where_the_door_is_closed(
    open_page: Open, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOW_LIBRARIES, raising=False)
    at = open_page("export", model=mlp)
    named = f"{{custom_op_libraries: [libops.so@sha256:{'a' * 64}]}}"
    document = f"schema: 1\nmodel: {{path: {mlp.path}, sha256: {mlp.sha256}}}\nsession: {named}"
    at.text_area(key="export.pasted").set_value(document).run()
    at.button(key="export.load").click().run()
    assert not at.exception
    at = at.switch_page("views/tune/page.py").run()
    [offered] = widget(at, "custom_op_libraries").options
    assert tells(offered, "libops.so", "aaaaaaaaaaaa")
    at.button(key="run").click().run()
    assert ALLOW_LIBRARIES in texts(at)


@libraries.needs_compiler
def test_a_library_serves_loading_variants_and_their_errors(
    open_page: Open,
    add_model: Callable[..., ModelRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, folder = fields.key("custom_op_libraries"), tmp_path / "door"
    folder.mkdir()
    libraries.compiled(folder, "libtwice.so", "custom_op.cpp")
    monkeypatch.setenv(ALLOW_LIBRARIES, str(folder))
    at = open_page("models", model=add_model(libraries.between_products))
    at.button(key="models.load").click().run()
    assert lines(at, "`Twice`")
    at.multiselect(key=key).set_value(["libtwice.so"]).run()
    at.button(key="models.load").click().run()
    assert lines(at, "`libtwice.so`", "sha256:")

    at = at.switch_page("views/variants/page.py").run()
    assert at.multiselect(key=key).value == ["libtwice.so"], "chosen once, it holds on every page"
    at.button(key="step.add.int8_static").click().run()
    assert ":material/block:" in [one.icon for one in at.warning]
    assert at.button(key="variants.make").disabled
    next(one for one in at.button if str(one.key).startswith("step.remove.")).click().run()
    at.button(key="step.add.int8_dynamic").click().run()
    at.button(key="variants.make").click().run()
    assert state.scheduler().join(240)
    at.run()
    assert not at.exception
    assert not at.error
    assert any(one.startswith("libtwice.so") and "sha256:" in one for one in facts(at).values())
    at.get_by_key("variants.view").set_value("Where the error comes from").run()
    at.button(key="variants.errors.run").click().run()
    assert state.scheduler().join(240)
    at.run()
    assert not at.exception
    assert any(tells(one.value, "libtwice.so") for one in [*at.info, *at.caption])


def test_an_input_of_text_has_a_field_for_lines(
    open_page: Open, add_model: Callable[..., ModelRecord]
) -> None:
    record = add_model(lambda path: libraries.identity_text(path, ["batch"]))
    at = open_page(model=record)
    field = at.text_area(key=fields.value_key("x"))
    assert field.help
    assert at.button(key="run").disabled
    assert tells(at.button(key="run").help, "`x`")
    field.set_value("first\nsecond").run()
    assert not at.exception
    asked = fields.spec_from_values(
        {fields.value_key("x"): at.session_state[fields.value_key("x")]},
        path="m",
        sha256=None,
        info=record.info,
    )
    assert asked.workload.feed_values == {"x": ["first", "second"]}
    assert json.loads(fields.values_from_spec(asked)[fields.value_key("x")]) == ["first", "second"]
