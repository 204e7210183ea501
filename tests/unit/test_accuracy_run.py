"""Accuracies in the store, their summary and their comparison; without a worker."""

from __future__ import annotations

import math
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from core import wire
from core.evidence.comparison import same_request
from core.run.accuracy import (
    accuracy_metrics,
    compare,
    curve,
    known_accuracy,
    measure_accuracy,
    roc,
    score_outputs,
    scores_of,
    summary,
)
from core.run.accuracy.accuracy_metrics import calibration_rows
from core.show.format import interval_share
from core.show.sheets import accuracies
from core.spec import TrialSpec, spec_from_dict, spec_from_yaml, yaml_from_spec
from core.store import Accuracy, Store, database
from core.wire.errors import SpecError, StoreError
from tests.reading import numbers

DIGITS = Path(__file__).parents[2] / "sample_models" / "digits_test.npz"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "ortune.db")


def made(
    store: Store,
    scores: Any,
    labels: Any,
    *,
    name: str = "m",
    names: list[str] | None = None,
    kind: str = "logits",
    **dataset: Any,
) -> Accuracy:
    """A stored accuracy with the given scores."""
    scores, labels = np.asarray(scores, np.float32), np.asarray(labels, np.int64)
    one = f"{name:0>16}"
    path = store.scores_path(one)
    np.savez(path, scores=scores, labels=labels)
    classes = max(2, scores.shape[1])
    reply = {
        "rows": len(labels),
        "classes": classes,
        "class_names": names or [str(number) for number in range(classes)],
        "scores": kind,
        "dataset_sha256": "data",
        "not_finite": int((~np.isfinite(scores).all(axis=1)).sum()),
        "notes": [],
    }
    accuracy = Accuracy(
        id=one,
        key="key",
        model_sha256="sha",
        model_name=name,
        spec={"model": {"path": "m.onnx"}},
        dataset={"path": "d.npz", **dataset},
        reply=cast(wire.AccuracyReply, reply),
        scores_path=str(path),
        created_at=100.0,
        fingerprint="f1",
    )
    store.put_accuracy(accuracy)
    return accuracy


def right(*hits: int, classes: int = 3) -> np.ndarray:
    """Logits of samples that are all of class 0: 1 is a right answer, 0 a wrong one."""
    scores = np.zeros((len(hits), classes))
    scores[np.arange(len(hits)), [0 if hit else 1 for hit in hits]] = 5.0
    return scores


# --- the store ----------------------------------------------------------------------------------------------


def test_accuracy_comes_back_as_it_went_in(store: Store) -> None:
    one = made(store, right(1, 0), [0, 0])
    assert store.accuracy(one.id) == store.accuracy(one.id[:15]) == one
    with pytest.raises(StoreError, match="`gone00`"):
        store.accuracy("gone00")


def test_accuracies_are_listed_newest_first_and_found_by_key_and_machine(store: Store) -> None:
    one = made(store, right(1), [0], name="a")
    two = replace(one, id="b" * 16, created_at=200.0, fingerprint="f2", model_sha256="other")
    store.put_accuracy(two)
    assert [each.id for each in store.accuracies()] == [two.id, one.id]
    assert store.accuracies(model_sha256="sha") == [one]
    assert store.accuracies(limit=1) == [two]
    assert store.find_accuracy("key", "f1") == one
    assert store.find_accuracy("key") == two
    assert store.find_accuracy("key", "") is None
    assert store.find_accuracy("another", "f1") is None


def test_store_of_the_second_format_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "ortune.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in (*database.MIGRATIONS[0], *database.MIGRATIONS[1]):
            db.execute(statement)
        db.execute("PRAGMA user_version = 2")
        db.execute(f"PRAGMA application_id = {database.APPLICATION_ID}")
        db.execute(
            "INSERT INTO models VALUES"
            " ('c', 's', 'digits', '/m.onnx', 'upload', '', '{\"nodes\": 3}', 1.0, '{}')"
        )
        db.execute("INSERT INTO self_tests VALUES ('f1', 5.0, '{\"ratio\": 1.0}')")
        db.commit()
    store = Store(path)
    assert [one.name for one in store.models()] == ["digits"]
    assert store.self_tests("f1") == [{"ratio": 1.0, "at": 5.0}]
    assert store.accuracies() == []
    one = made(store, right(1), [0])
    assert Store(path).accuracy(one.id) == one


# --- the spec -----------------------------------------------------------------------------------------------


def spec(**dataset: Any) -> TrialSpec:
    parts: dict[str, Any] = {"dataset": {"path": str(DIGITS), **dataset}} if dataset is not None else {}
    return spec_from_dict({"model": {"path": "m.onnx"}, **parts})


def test_dataset_travels_in_the_yaml() -> None:
    one = spec(split="test", limit=100, positive_class=8, preprocessing={"resize": 9, "mean": [0.5]})
    assert spec_from_yaml(yaml_from_spec(one)) == one
    assert "positive_class: 8" in yaml_from_spec(one)


def test_dataset_is_no_part_of_what_is_measured() -> None:
    plain = spec_from_dict({"model": {"path": "m.onnx"}})
    assert spec(limit=5).key() == plain.key()
    assert same_request(spec(limit=5), plain)


def test_wrong_key_inside_the_dataset_is_named_by_its_path() -> None:
    with pytest.raises(SpecError, match=r"`dataset.splt`.*`split`"):
        spec(splt="test")


# --- what is known without a worker -------------------------------------------------------------------------


def test_known_result_follows_the_question_but_not_other_data(store: Store, tmp_path: Path) -> None:
    from core.run.accuracy import key_of

    data = tmp_path / "d.npz"
    data.write_bytes(DIGITS.read_bytes())
    asked = spec_from_dict({"model": {"path": "m.onnx"}, "dataset": {"path": str(data)}})
    kept = replace(made(store, right(1), [0]), key=key_of(asked, "sha"))
    store.put_accuracy(kept)

    def known(one: TrialSpec, model: str = "sha", fingerprint: str | None = "f1") -> Accuracy | None:
        return known_accuracy(store, one, model_sha256=model, fingerprint=fingerprint)

    assert known(asked) is not None
    other = asked.model_copy(update={"dataset": asked.dataset.model_copy(update={"threshold": 0.9})})  # type: ignore[union-attr]
    found = known(other)
    assert found is not None
    assert found.dataset["threshold"] == 0.9
    limited = asked.model_copy(update={"dataset": asked.dataset.model_copy(update={"limit": 5})})  # type: ignore[union-attr]
    assert known(limited) is None
    assert known(asked, "other model") is None
    assert known(asked, fingerprint="f2") is None
    level = asked.model_copy(update={"session": asked.session.model_copy(update={"intra_op_num_threads": 1})})
    assert known(level) is None
    data.write_bytes(DIGITS.read_bytes() + b" ")
    assert known(asked) is None


def test_result_whose_scores_are_gone_is_not_known(store: Store) -> None:
    from core.run.accuracy import key_of

    asked = spec()
    kept = replace(made(store, right(1), [0]), key=key_of(asked, "sha"))
    store.put_accuracy(kept)
    Path(kept.scores_path).unlink()
    assert known_accuracy(store, asked, model_sha256="sha") is None
    with pytest.raises(StoreError, match="read") as caught:
        summary(kept)
    assert "again" in caught.value.hint


def test_csv_with_a_changed_image_is_other_data(store: Store, tmp_path: Path) -> None:
    from core.run.accuracy import key_of

    (tmp_path / "a.png").write_bytes(b"1")
    (tmp_path / "rows.csv").write_text("a.png;1\n")
    asked = spec_from_dict({"model": {"path": "m.onnx"}, "dataset": {"path": str(tmp_path / "rows.csv")}})
    before = key_of(asked, "sha")
    assert key_of(asked, "sha") == before
    (tmp_path / "a.png").write_bytes(b"22")
    assert key_of(asked, "sha") != before


def test_configuration_without_data_or_of_another_engine_is_refused(store: Store) -> None:
    def no_worker(*_: object, **__: object) -> dict[str, Any]:
        raise AssertionError("no worker is needed to refuse this")

    plain = spec_from_dict({"model": {"path": "m.onnx"}})
    with pytest.raises(SpecError, match="labelled"):
        measure_accuracy(store, plain, run=no_worker)
    torch = spec().model_copy(update={"engine": "torch-eager"})
    with pytest.raises(SpecError, match="`torch-eager`"):
        measure_accuracy(store, torch, run=no_worker)


# --- summary ------------------------------------------------------------------------------------------------


def test_summary_has_every_metric(store: Store) -> None:
    one = made(store, np.eye(7)[[0, 1, 2, 3, 4, 5, 0]] * 9, [0, 1, 2, 3, 4, 5, 5])
    found = summary(one)
    assert (found["rows"], found["classes"]) == (7, 7)
    assert (found["accuracy"]["count"], found["accuracy"]["total"]) == (6, 7)
    assert found["top5"]["total"] == 7
    assert found["confusion"][5] == [1, 0, 0, 0, 0, 1, 0]
    assert [each["name"] for each in found["per_class"]] == [str(number) for number in range(7)]
    assert found["per_class"][5]["sensitivity"]["value"] == 0.5
    assert found["missing_classes"] == ["6"]
    assert found["positive"] is None


@pytest.mark.parametrize(
    ("calibration", "words"),
    [
        (None, ""),
        ({"rows": 64, "shared": 0}, ""),
        ({"rows": 64, "shared": 3}, "3 of the 4 scored samples were also used to calibrate this model"),
        ({"rows": None, "shared": None}, "It is unknown"),
    ],
)
def test_the_summary_says_what_of_the_rows_calibrated_the_model(
    store: Store, calibration: Any, words: str
) -> None:
    accuracy = made(store, right(1, 1, 0, 1), [0] * 4)
    if calibration is not None:
        accuracy.reply["calibration"] = calibration
    note = summary(accuracy)["calibration_note"]
    assert words in note
    assert bool(note) is bool(words)


def test_scored_rows_are_counted_by_their_hashes(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    np.savez(path, rows=np.array([1, 2, 2**64 - 1], np.uint64))
    hashes = f"{2:016x}{2**64 - 1:016x}{7:016x}"
    assert calibration_rows(str(path), hashes) == {"rows": 3, "shared": 2}
    assert calibration_rows(str(path), "") == {"rows": None, "shared": None}
    np.savez(path, rows=np.zeros(0, np.uint64))
    assert calibration_rows(str(path), hashes) == {"rows": 3, "shared": None}


@pytest.mark.parametrize(
    "kept",
    [
        {"scores": np.zeros((2, 3)), "labels": np.zeros(3, np.int64)},  # of other samples
        {"scores": np.zeros((2, 4)), "labels": np.zeros(2, np.int64)},
        {"scores": np.zeros((2, 3)), "labels": np.array([0, 3])},
        {"scores": np.zeros((2, 3)), "labels": np.array([0, -1])},
        {"scores": np.array([["a", "b", "c"]] * 2), "labels": np.zeros(2, np.int64)},
        {"scores": np.zeros((2, 3)), "labels": np.array(["0", "1"])},
        {"scores": np.zeros((2, 3))},
    ],
)
def test_scores_that_a_worker_forged_are_refused_in_words(store: Store, kept: dict[str, Any]) -> None:
    accuracy = made(store, right(1, 0), [0, 0])
    np.savez(accuracy.scores_path, **kept)
    with pytest.raises(StoreError, match="The scores cannot be read from"):
        summary(accuracy)


def test_scores_that_unpack_to_many_gigabytes_are_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracy = made(store, right(1, 0), [0, 0])
    path = Path(accuracy.scores_path)
    whole = path.read_bytes()
    for damaged in (b"", whole[:300], whole[:100] + b"\xff" * 100 + whole[200:]):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="The scores cannot be read from"):
            summary(accuracy)
    for header in ("{'descr': '<f8', 'fortran_order': False, 'shape': (1125899906842624, 3)}", "(" * 5000):
        text = header.encode().ljust(5001) + b"\n"
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("scores.npy", "labels.npy"):
                archive.writestr(name, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
        with pytest.raises(StoreError, match="The scores cannot be read from"):
            summary(accuracy)
    np.savez_compressed(path, scores=np.zeros((100_000, 3)), labels=np.zeros(100_000, np.int64))
    assert path.stat().st_size < 100_000
    assert scores_of(accuracy)[0].shape == (100_000, 3)
    monkeypatch.setattr(accuracy_metrics, "MOST_SCORE_BYTES", 1_000_000)
    for read in (lambda: summary(accuracy), lambda: calibration_rows(str(path), "")):
        with pytest.raises(StoreError, match=r"they take 3,200,\d+ bytes, more than 1,000,000"):
            read()


def test_few_classes_have_no_top_five(store: Store) -> None:
    assert summary(made(store, right(1, 0), [0, 0]))["top5"] is None


def test_positive_class_is_named_or_numbered_and_moves_with_the_threshold(store: Store) -> None:
    scores = [[math.log(0.6), math.log(0.4)], [math.log(0.2), math.log(0.8)], [math.log(0.9), math.log(0.1)]]
    one = made(store, scores, [1, 1, 0], names=["well", "ill"])
    assert summary(one)["positive"]["name"] == "ill"  # the second of two
    assert summary(one)["positive"]["sensitivity"]["value"] == 0.5
    assert summary(one, "ill", 0.3)["positive"]["sensitivity"]["value"] == 1.0
    assert summary(one, 0)["positive"]["name"] == "well"
    with pytest.raises(SpecError, match=r"`il`.*`ill`"):
        summary(one, "il")
    with pytest.raises(SpecError, match="`2`"):
        summary(one, 2)
    with pytest.raises(SpecError, match="0 to 1"):
        summary(one, "ill", 60.0)


def test_dataset_says_which_class_and_threshold(store: Store) -> None:
    one = made(store, right(1, 1, 0), [0, 0, 0], positive_class=0, threshold=0.6)
    positive = summary(one)["positive"]
    assert (positive["class"], positive["threshold"], positive["true_positives"]) == (0, 0.6, 2)
    assert positive["roc_auc"]["value"] is None  # no sample of another class


def test_one_column_of_logits_is_a_binary_classifier(store: Store) -> None:
    one = made(store, [[2.0], [-2.0], [2.0]], [1, 0, 0])
    found = summary(one)
    assert found["accuracy"]["count"] == 2
    assert found["confusion"] == [[1, 1], [0, 1]]
    assert found["positive"]["class"] == 1


def test_curves_of_one_class(store: Store) -> None:
    one = made(store, right(1, 0, 1), [0, 1, 0])
    assert roc(one, 0).true_positive_rate[-1] == 1.0  # type: ignore[union-attr]
    assert roc(one, 2) is None
    assert curve(one, 0).sensitivity[0] == 1.0


# --- comparison ---------------------------------------------------------------------------------------------


def test_comparison_pairs_the_rows(store: Store) -> None:
    a = made(store, right(1, 1, 1, 0), [0] * 4, name="fp32")
    b = made(store, right(1, 1, 0, 1), [0] * 4, name="int8")
    found = compare(a, b, 0.01)
    judged = found["accuracy"]
    assert (judged["both"], judged["only_reference"], judged["only_candidate"], judged["neither"]) == (
        2,
        1,
        1,
        0,
    )
    assert (judged["difference"], judged["verdict"], judged["p"]) == (0.0, "UNDECIDED", 1.0)
    assert judged["rows_needed"] > 4
    assert numbers(judged["text"])[-1] == judged["rows_needed"]
    assert found["agreement"]["count"] == 2
    said = accuracies.compared(found).headline
    same = found["agreement"]
    span = interval_share(same["low"], same["high"])
    assert all(part in said for part in ("50.00 %", "of 4 samples", span))
    assert (found["reference"]["model"], found["candidate"]["model"]) == ("fp32", "int8")
    assert found["sensitivity"] is None


def test_equal_answers_on_many_rows_are_not_worse(store: Store) -> None:
    scores = right(*[1] * 1500, *[0] * 20)
    a, b = (made(store, scores, [0] * 1520, name=name) for name in "ab")
    judged = compare(a, b, 0.01)["accuracy"]
    assert judged["verdict"] == "NOT_WORSE"
    assert judged["rows_needed"] <= 1520
    assert numbers(judged["text"])[:2] == [1, 0.0]


def test_clear_loss_is_worse(store: Store) -> None:
    a = made(store, right(*[1] * 400), [0] * 400, name="a")
    b = made(store, right(*[1] * 300, *[0] * 100), [0] * 400, name="b")
    judged = compare(a, b, 0.05)["accuracy"]
    assert (judged["verdict"], judged["difference"]) == ("WORSE", -0.25)
    assert judged["p"] < 1e-20
    assert numbers(judged["text"])[0] == 5


def test_positive_class_is_compared_at_its_threshold(store: Store) -> None:
    labels = [0] * 50 + [1] * 50
    good = np.where(np.array(labels)[:, None] == [0, 1], 2.0, 0.0)
    a, b = made(store, good, labels, name="a"), made(store, good[:, ::-1], labels, name="b")
    found = compare(a, b, 0.1, threshold=0.6)
    assert found["positive"] == {"class": 1, "name": "1", "threshold": 0.6}
    assert found["sensitivity"]["difference"] == found["specificity"]["difference"] == -1.0
    assert found["sensitivity"]["rows"] == 50
    assert found["roc_auc"]["difference"] == -1.0


def test_results_on_other_rows_are_not_compared(store: Store) -> None:
    a = made(store, right(1, 1), [0, 0], name="a")
    fewer = made(store, right(1), [0], name="b")
    with pytest.raises(SpecError, match="rows"):
        compare(a, fewer)
    reply = {**a.reply, "dataset_sha256": "other"}
    with pytest.raises(SpecError, match="data"):
        compare(a, replace(a, reply=cast(wire.AccuracyReply, reply)))
    with pytest.raises(SpecError, match="`delta`"):
        compare(a, a, 1.0)


# --- who can be judged --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        ([("y", "float32", ["n", 10])], ["y"]),
        ([("y", "float16", ["n"])], ["y"]),
        ([("y", "float32", None)], ["y"]),
        ([("y", "float32", ["n", 10, 1, 1])], ["y"]),
        ([("mask", "float32", ["n", 21, 64, 64])], []),
        ([("label", "int64", ["n"]), ("p", "float32", ["n", 3])], ["p"]),
        ([("loss", "float32", [])], []),
    ],
)
def test_outputs_that_can_hold_scores(outputs: list[tuple[str, str, Any]], found: list[str]) -> None:
    info: Any = {
        "batch_axes": {"x": 0},
        "fixed_batch": None,
        "outputs": [{"name": name, "dtype": dtype, "shape": shape} for name, dtype, shape in outputs],
    }
    names, why = score_outputs(info)
    assert names == found
    assert bool(why) == (not found)
