"""The recording: small, of nobody's machine in particular, whole, and nothing is measured in it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli import run
from core.evidence.profile_sentence import NAMED_SHARE
from core.run import job_types
from core.run.best_point import rank_points
from core.run.explanation import explained, explanations, pair
from core.run.scheduler import Scheduler
from core.run.sweep import of_trial
from core.spec import spec_from_dict
from core.spec.axes import axes_of_study
from core.store import STORE_NAME, Store
from core.store.permissions import close_home
from core.store.recorded import MARK_FILE, recording
from core.wire.errors import SpecError, StoreError
from dashboard import demo
from dashboard.pages import PAGES
from tests.builders import model
from tests.recorded import recorded_store


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with recorded_store() as found:
        yield found


def test_the_recording_is_small_and_holds_files_only() -> None:
    assert demo.RECORDED.stat().st_size <= 2_500_000
    with tarfile.open(demo.RECORDED) as archive:
        members = archive.getmembers()
    parts = {one.name.split("/")[0] for one in members}
    assert parts - {demo.MODELS, demo.PLAYBACK} == {"ortune.db", MARK_FILE, "artifacts", "accuracies"}
    assert all(one.isfile() and (one.uid, one.uname) == (0, "") for one in members)


def test_the_example_of_the_first_visit_is_a_result_of_the_recording(store: Store) -> None:
    assert demo.example() == demo.example_from(store, demo.example()["model"])
    assert demo.EXAMPLE.stat().st_size < 4096


def test_every_row_is_sound_and_every_kind_of_result_is_there(store: Store) -> None:
    assert store.check().damaged == 0
    assert {one.owner for one in store.trials()} == {"the recording"}
    assert "FOUND" in {one.answer["outcome"] for one in store.studies() if one.answer}
    assert store.trials(kind="profile")
    assert {one.study.split()[0] for one in store.comparisons() if one.study} >= {"curve", "scorecard"}
    variants = {one.sha256 for one in store.models()}
    samples = {str(one.spec["model"]["path"]) for one in store.trials() if one.model_sha256 not in variants}
    assert samples == {"sample_models/digits_cnn.onnx"}


def test_no_page_of_it_opens_on_nothing(store: Store) -> None:
    samples = ("digits_cnn", "sentence_encoder")
    found = {one.model_name: one for one in reversed(store.trials(kind="measure"))}
    newest = [found[name] for name in samples]
    for one in newest:
        assert [candidate for _, candidate in explanations(store, [one.id])] == [one.id]
    machine = next(iter(newest)).fingerprint
    assert [one["grade"] for one in store.self_tests(machine) if one["when"] == "alone"] != []
    assert store.peaks(machine) is not None


def test_it_opens_on_a_sure_gain_for_the_same_work(store: Store) -> None:
    trial = store.trial(demo.opening(store) or "")
    [one] = [c for c in trial.facts["contrasts"] if c["candidate"] == trial.id][:1]
    assert (one["verdict"], one["per_row"], one["outputs_differ"]) == ("FASTER", False, False)
    assert one["ratio_low"] > 1.1


def test_its_sweep_has_a_best_point_and_its_explanation_names_the_operators(store: Store) -> None:
    curve = next(one for one in store.comparisons() if one.study.startswith("curve"))
    axes = axes_of_study(curve.study)
    points = [of_trial(one, axes, {}, curve) for one in store.trials_of(curve.id)]
    ranking = rank_points([one for one in points if one is not None], line_s=None, margin=0.02)
    assert ranking.best is not None
    assert ranking.best.values["batch_size"] > 1
    [found] = explanations(store, [demo.opening(store) or ""])
    difference = explained(store, pair(store, *found))
    assert difference is not None
    operators = {node.op_type for one in difference.groups for node in (*one.baseline, *one.candidate)}
    named = {row.label for row in difference.rows if row.clear and (difference.share(row) or 0) > NAMED_SHARE}
    assert named
    assert named <= operators


@pytest.mark.parametrize(
    "page", [name for name in PAGES if name not in ("fleet", "history", "machine", "models")]
)
def test_each_page_of_it_has_a_model_to_open_with(store: Store, page: str) -> None:
    known = {one.content_sha256 for one in store.models()} | {one.model_sha256 for one in store.trials()}
    found = set(PAGES[page].recorded(store))
    assert found
    assert found <= known


def test_the_search_that_found_something_comes_first(store: Store) -> None:
    first = demo.searched(store)[0]
    answers = [one.answer for one in store.studies(model_sha256=first)]
    assert "FOUND" in {one["outcome"] for one in answers if one}


def test_a_variant_that_was_recorded_is_found_where_it_was_unpacked(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(demo.MODELS) / "m.onnx"
    monkeypatch.setattr(demo, "RECORDED", tmp_path / "small.tar.xz")
    (tmp_path / "home").mkdir()
    own = Store(tmp_path / "home" / STORE_NAME)
    own.put_model(model("m", "c" * 64, path=str(file)))
    own.backup(tmp_path / STORE_NAME)
    with tarfile.open(demo.RECORDED, "w:xz") as archive:
        archive.add(tmp_path / STORE_NAME, STORE_NAME)
    home = demo.unpack()
    try:
        [record] = Store(home / STORE_NAME).models()
        assert record.path == record.info["path"] == str(home / file)
    finally:
        demo.remove(home)


def test_it_is_closed_to_other_users(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(store.folder))
    assert close_home() == ""
    assert not [one for one in store.folder.rglob("*") if one.stat().st_mode & 0o077]


def test_it_says_when_and_where_it_was_recorded(store: Store) -> None:
    found = recording(store.folder)
    assert found is not None
    machine = store.trials()[0].facts["environment"]
    assert found.words == (
        f"Recorded on {found.on} on {machine['cpu']['model']} with {machine['cpu']['usable']} CPUs, "
        "not measured here."
    )
    assert recording(store.folder / "elsewhere") is None


def test_nothing_is_measured_in_it(store: Store) -> None:
    before = len(store.trials(limit=1000))
    spec = spec_from_dict(store.trials(kind="measure")[0].spec)
    service = Scheduler(store, owner="a test")
    try:
        with pytest.raises(SpecError, match=r"Nothing is measured in this demonstration\. Recorded on"):
            service.submit(job_types.tune(spec))
    finally:
        service.close()
    assert len(store.trials(limit=1000)) == before


def test_a_report_of_it_by_the_command_line_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(store.folder))
    assert run(["report", store.comparisons()[0].id, "--format", "md"]) == 0
    assert "not measured here" in capsys.readouterr().out


def test_what_cannot_be_unpacked_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "recorded.tar.xz"
    broken.write_bytes(demo.RECORDED.read_bytes()[:100_000])
    monkeypatch.setattr(demo, "RECORDED", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StoreError, match="cannot be unpacked"):
        demo.unpack()
    assert list(tmp_path.iterdir()) == [broken]
