"""Which file a name means, and how models come into the library; inspected here, and once in a worker."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.evidence.measurement import Trial
from core.store import Store, library
from core.wire.errors import ModelError, PrivateError, StoreError
from core.worker.models import inspect_model
from tests import tiny_models


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    return Store()


class Counting:
    """The worker's `inspect` in this process; it records its requests."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def __call__(self, job, payload, **options):
        self.jobs.append(job)
        return dict(inspect_model(payload["path"]))


resolve_model, import_file, import_files, inspect_cached = (
    functools.partial(one, run=Counting())
    for one in (library.resolve_model, library.import_file, library.import_files, library.inspect_cached)
)


def test_unchanged_file_is_inspected_once(store, tmp_path):
    run, path = Counting(), tiny_models.mul(tmp_path / "mul.onnx")
    first = inspect_cached(store, path, run=run)
    assert inspect_cached(store, path, run=run) == first
    assert inspect_cached(Store(), path, run=run) == first
    assert run.jobs == ["inspect"]
    assert first["op_counts"] == {"Mul": 1}


def test_changed_file_is_inspected_again_even_with_the_old_size_and_time(store, tmp_path):
    run, path = Counting(), tiny_models.mul(tmp_path / "mul.onnx")
    first = inspect_cached(store, path, run=run)
    before = path.stat()
    other = tmp_path / "other.onnx"
    other.write_bytes(path.read_bytes().replace(b"square", b"SQUARE"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert inspect_cached(store, path, run=run)["sha256"] != first["sha256"]
    assert run.jobs == ["inspect", "inspect"]


def test_changed_external_data_is_noticed(store, tmp_path):
    run, path = Counting(), tiny_models.external_data(tmp_path / "m.onnx")
    first = inspect_cached(store, path, run=run)
    inspect_cached(store, path, run=run)
    data = tmp_path / first["external_data"][0]["location"]
    content = bytearray(data.read_bytes())
    content[0] ^= 1
    data.write_bytes(content)
    second = inspect_cached(store, path, run=run)
    assert second["sha256"] == first["sha256"]
    assert second["content_sha256"] != first["content_sha256"]
    assert run.jobs == ["inspect", "inspect"]
    data.unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        inspect_cached(store, path, run=run)


def test_cache_that_cannot_be_written_does_not_cost_the_answer(store, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(store, "put_info", full)
    assert inspect_cached(store, tiny_models.mul(tmp_path / "mul.onnx"))["nodes"] == 1


def test_path_is_resolved_without_being_kept(store, tmp_path, monkeypatch):
    path = tiny_models.mul(tmp_path / "mul.onnx")
    record = library.resolve_model(store, str(path))
    assert (record.name, record.path, record.source) == ("mul", str(path), "file")
    assert record.sha256 == record.info["sha256"]
    assert store.models() == []
    monkeypatch.chdir(tmp_path)
    assert resolve_model(store, "mul.onnx").path == str(path)


def test_model_of_the_library_is_found_by_name_and_by_hash(store, tmp_path):
    path = tiny_models.mul(tmp_path / "file.onnx")
    record = import_file(store, path, name="square", source="folder", note="n")
    for ref in ("square", record.content_sha256, record.content_sha256[:8], record.sha256[:6]):
        assert resolve_model(store, ref) == record
    assert resolve_model(store, str(path)).name == "square"


def test_unknown_name_offers_the_nearest(store, tmp_path):
    import_file(store, tiny_models.mul(tmp_path / "f.onnx"), name="squeezer", source="file")
    with pytest.raises(ModelError, match=r"`squeezr`.*`squeezer`"):
        resolve_model(store, "squeezr")
    with pytest.raises(ModelError, match=r"`no/such/model\.onnx`"):
        resolve_model(store, "no/such/model.onnx")


@pytest.mark.parametrize("ref", ["", "\0", "x" * 5000, "../../etc", ".", "/"])
def test_texts_that_are_no_reference_are_model_errors(store, ref):
    with pytest.raises(ModelError):
        resolve_model(store, ref)


def test_sample_that_was_not_made_says_how_to_make_it(store):
    with pytest.raises(ModelError, match="made") as caught:
        resolve_model(store, "resnet18")
    assert "`ortune convert resnet18`" in caught.value.hint


def test_file_that_vanished_and_file_that_changed_are_told_apart(store, tmp_path):
    path = tiny_models.mul(tmp_path / "f.onnx")
    old = import_file(store, path, name="f", source="file")
    tiny_models.mlp(path)
    with pytest.raises(ModelError, match="another"):
        resolve_model(store, old.content_sha256[:10])
    assert [one.content_sha256 for one in store.models()] == [old.content_sha256]
    new = resolve_model(store, "f")
    assert new.content_sha256 != old.content_sha256
    assert [one.content_sha256 for one in store.models()] == [new.content_sha256]
    path.unlink()
    with pytest.raises(ModelError, match="gone"):
        resolve_model(store, "f")


def test_samples_are_files_first_then_what_can_be_made(store, tmp_path):
    tiny_models.mul(tmp_path / "samples" / "b.onnx")
    tiny_models.mul(tmp_path / "samples" / "a.onnx")
    samples = library.sample_models(tmp_path / "samples")
    assert [(one.name, one.exists) for one in samples] == [
        ("a", True),
        ("b", True),
        ("mobilenet_v3_small", False),
        ("resnet18", False),
        ("efficientnet_b0", False),
        ("vit_b_16", False),
    ]
    plan = samples[3].plan
    assert plan is not None
    assert (
        plan["output"] == samples[3].path == str(tmp_path / "home" / "models" / "samples" / "resnet18.onnx")
    )
    tiny_models.mul(Path(samples[3].path))
    assert library.sample_models(tmp_path / "samples")[3].exists
    assert resolve_model(store, "resnet18").path == samples[3].path


# --- taking files in ------------------------------------------------------------------------------------


def test_uploaded_model_moves_into_a_folder_named_after_its_content(store, tmp_path):
    upload = tiny_models.mul(tmp_path / "upload.onnx")
    record, new = import_files(store, [upload], name="square", move=True)
    assert new
    assert not upload.exists()
    path = Path(record.path)
    assert path == store.folder / "models" / record.content_sha256 / "upload.onnx"
    assert (record.name, record.source, record.info["path"]) == ("square", "upload", str(path))
    run = Counting()
    assert resolve_model(store, "square", run=run) == record
    assert run.jobs == []  # the inspection of the upload counts
    assert [one.name for one in (store.folder / "models").iterdir()] == [record.content_sha256]


def test_duplicate_is_recognised_by_content_and_leaves_nothing(store, tmp_path):
    first, _ = import_files(store, [tiny_models.mul(tmp_path / "a.onnx")], name="a")
    copy = tmp_path / "renamed.onnx"
    copy.write_bytes((tmp_path / "a.onnx").read_bytes())
    again, new = import_files(store, [copy], name="b")
    assert (again, new) == (first, False)
    assert copy.exists()
    assert len(list((store.folder / "models").iterdir())) == 1


def test_model_whose_file_was_deleted_can_be_taken_in_again(store, tmp_path):
    upload = tiny_models.mul(tmp_path / "a.onnx")
    first, _ = import_files(store, [upload], name="a")
    Path(first.path).unlink()
    again, new = import_files(store, [upload], name="b")
    assert new
    assert (again.name, again.path) == ("a", first.path)
    assert Path(again.path).exists()


def test_external_data_comes_along(store, tmp_path):
    model = tiny_models.external_data(tmp_path / "m.onnx")
    record, _ = import_files(store, [model, tmp_path / "weights.bin"], name="m")
    folder = Path(record.path).parent
    assert sorted(one.name for one in folder.iterdir()) == ["m.onnx", "weights.bin"]
    assert record.info["external_data"][0]["location"] == "weights.bin"
    (tmp_path / "weights.bin").unlink()
    assert resolve_model(store, "m") == record


def test_external_data_in_a_subfolder_keeps_its_place(store, tmp_path):
    (tmp_path / "data").mkdir()
    model = tiny_models.external_data(tmp_path / "m.onnx", location="data/w.bin")
    record, _ = import_files(store, {"m.onnx": model, "data/w.bin": tmp_path / "data" / "w.bin"}, name="m")
    assert (Path(record.path).parent / "data" / "w.bin").is_file()


def test_the_files_of_a_model_are_on_the_disk_before_its_row(store, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    model = tiny_models.external_data(tmp_path / "m.onnx", location="data/w.bin")
    synced, put_model = set(), store.put_model

    def put(record):
        folder = Path(record.path).parent
        needed = [folder.parent, folder, *folder.rglob("*")]
        assert {path.stat().st_ino for path in needed} <= synced
        assert len(needed) == 5
        put_model(record)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(store, "put_model", put)
    import_files(store, {"m.onnx": model, "data/w.bin": tmp_path / "data" / "w.bin"}, name="m")
    assert len(store.models()) == 1


def test_missing_external_data_is_refused_and_leaves_nothing(store, tmp_path):
    model = tiny_models.external_data(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"weights\.bin"):
        import_files(store, [model], name="m")
    assert list((store.folder / "models").iterdir()) == []
    assert store.models() == []
    assert model.exists()


def test_file_that_the_model_does_not_refer_to_is_refused(store, tmp_path):
    (tmp_path / "virus.exe").write_text("")
    with pytest.raises(ModelError, match=r"`virus\.exe`"):
        import_files(store, [tiny_models.mul(tmp_path / "m.onnx"), tmp_path / "virus.exe"], name="m")
    assert list((store.folder / "models").iterdir()) == []


@pytest.mark.parametrize("name", ["../m.onnx", "/etc/m.onnx", "a/../../m.onnx", "a\\m.onnx", "m\0.onnx"])
def test_name_that_leads_out_of_the_folder_is_refused(store, tmp_path, name):
    with pytest.raises(ModelError, match="no file name inside"):
        import_files(store, {name: tiny_models.mul(tmp_path / "m.onnx")}, name="m")
    assert not (store.folder / "models").exists()


def test_two_models_at_once_and_none_at_all_are_refused(store, tmp_path):
    a, b = tiny_models.mul(tmp_path / "a.onnx"), tiny_models.mlp(tmp_path / "b.onnx")
    with pytest.raises(ModelError, match=r"2 model"):
        import_files(store, [a, b], name="m")
    with pytest.raises(ModelError, match=r"0 model"):
        import_files(store, [], name="m")


def test_file_that_is_no_model_is_refused_and_leaves_nothing(store, tmp_path):
    with pytest.raises(ModelError):
        import_files(store, [tiny_models.not_onnx(tmp_path / "x.onnx")], name="x")
    assert list((store.folder / "models").iterdir()) == []


def test_upload_that_vanished_is_an_error_in_words(store, tmp_path):
    with pytest.raises(StoreError, match="file"):
        import_files(store, [tmp_path / "gone.onnx"], name="x")


def test_taken_name_gets_a_number(store, tmp_path):
    import_files(store, [tiny_models.mul(tmp_path / "a.onnx")], name="m")
    record, _ = import_files(store, [tiny_models.mlp(tmp_path / "b.onnx")], name="m")
    assert record.name == "m-2"


def test_import_where_it_stands_keeps_note_and_details(store, tmp_path):
    path = tiny_models.mul(tmp_path / "m.onnx")
    import_file(store, path, name="m", source="export", note="random weights", details={"opset": 20})
    (record,) = store.models()
    assert (record.path, record.note, record.details) == (str(path), "random weights", {"opset": 20})
    assert import_file(store, path, name="other", source="file") == record


def test_removing_deletes_what_was_taken_in_and_nothing_else(store, tmp_path):
    upload, _ = import_files(store, [tiny_models.mul(tmp_path / "a.onnx")], name="a")
    local = import_file(store, tiny_models.mlp(tmp_path / "b.onnx"), name="b", source="file")
    for record in (upload, local):
        library.remove_model(store, record.content_sha256)
    library.remove_model(store, "0" * 64)
    assert not Path(upload.path).parent.exists()
    assert (tmp_path / "b.onnx").exists()
    assert store.models() == []


def test_a_model_of_another_person_keeps_its_record_and_files(store, tmp_path):
    anna, ben, admin = (store.for_person(one, sees_all=one == "admin") for one in ("anna", "ben", "admin"))
    path = tiny_models.mul(tmp_path / "a.onnx")
    hers, _ = import_files(anna, [path], name="hers")
    kept = Path(hers.path)
    assert import_files(ben, [path], name="his") == (hers, False)
    assert import_file(ben, path, name="his", source="export", note="n", details={"opset": 20}) == hers
    kept.unlink()
    with pytest.raises(PrivateError, match="replaced"):
        import_files(ben, [path], name="his")
    assert kept.parent.is_dir()
    assert import_files(admin, [path], name="theirs")[0] == hers
    anna.share([hers.content_sha256], private=True)
    inode = kept.stat().st_ino
    for adds in (
        lambda: import_files(ben, [path], name="his"),
        lambda: import_file(ben, path, name="his", source="file"),
        lambda: resolve_model(ben, str(path)),
    ):
        with pytest.raises(PrivateError, match="private to another person"):
            adds()
    assert kept.stat().st_ino == inode
    assert import_file(admin, path, name="theirs", source="export", note="n") == hers
    assert (anna.models(), ben.models()) == ([hers], [])


def test_a_model_is_not_removed_while_others_use_it_in_private(store, tmp_path):
    anna, ben = (store.for_person(one, sees_all=False) for one in ("anna", "ben"))
    his, _ = import_files(ben, [tiny_models.mul(tmp_path / "a.onnx")], name="his")
    hers, _ = import_files(anna, [tiny_models.mlp(tmp_path / "b.onnx")], name="secret")
    anna.put_model(replace(hers, details={"variant": {"root": his.content_sha256}}))
    trial = Trial(
        id="t1".ljust(12, "0"),
        kind="measure",
        state="RUNNING",
        spec={"model": {"path": his.path}},
        model_name="zzjob",
        model_sha256=his.content_sha256,
        key="k",
        created_at=1.0,
    )
    anna.create_trial(trial)
    anna.share([trial.id, hers.content_sha256], private=True)
    for words, end in (
        ("private job", lambda: anna.update_trial(trial.id, state="COMPLETE")),
        ("private variants", lambda: anna.remove_model(hers.content_sha256)),
    ):
        with pytest.raises(ModelError, match=words) as caught:
            library.remove_model(ben, his.content_sha256)
        assert not any(one in caught.value.message for one in ("anna", "secret", "zzjob", trial.id[:8]))
        assert Path(his.path).is_file()
        end()
    library.remove_model(ben, his.content_sha256)
    assert not Path(his.path).exists()


def test_folder_of_the_server_lists_what_stays_inside_it(store, tmp_path, monkeypatch):
    assert library.folder_models() == []
    root = tmp_path / "models"
    tiny_models.mul(root / "deep" / "b.onnx")
    tiny_models.mul(root / "a.onnx")
    (root / "notes.txt").write_text("")
    (root / "folder.onnx").mkdir()
    (root / "out.onnx").symlink_to(tiny_models.mul(tmp_path / "secret.onnx"))
    (root / "dangling.onnx").symlink_to(root / "gone.onnx")
    monkeypatch.setenv("ORTUNE_MODELS", str(root))
    assert library.folder_models() == [root / "a.onnx", root / "deep" / "b.onnx"]
    monkeypatch.setenv("ORTUNE_MODELS", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="folder"):
        library.folder_models()
