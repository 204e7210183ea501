"""The job `accuracy` on real models, good and bad, once in a worker; and what the parent makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from core.process.job_worker import run_job
from core.run import accuracy as accuracy_run
from core.run.accuracy import compare, known_accuracy, measure_accuracy, summary
from core.spec import TrialSpec, spec_from_dict
from core.store import Store
from core.wire.errors import ModelError, SpecError
from tests import in_process, tiny_models

SAMPLES = Path(__file__).parents[2] / "sample_models"
DIGITS, ROWS = SAMPLES / "digits_cnn.onnx", SAMPLES / "digits_test.npz"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "ortune.db")


def spec(path: Path, data: Path = ROWS, *, dataset: dict[str, Any] | None = None, **parts: Any) -> TrialSpec:
    return spec_from_dict(
        {"model": {"path": str(path)}, "dataset": {"path": str(data), **(dataset or {})}, **parts}
    )


def machine() -> Any:
    return {"fingerprint": "this machine"}


def measured(store: Store, one: TrialSpec, **options: Any) -> accuracy_run.Accuracy:
    return measure_accuracy(store, one, **{"run": in_process.run, "environment": machine, **options})


def refused(store: Store, one: TrialSpec, kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        measured(store, one)
    assert store.accuracies() == []
    folder = store.folder / "accuracies"
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def rows(path: Path, x: Any, labels: Any) -> Path:
    np.savez(path, x=np.asarray(x, np.float32), labels=np.asarray(labels))
    return path


def test_digits_are_as_right_as_a_plain_session_says(store: Store) -> None:
    with np.load(ROWS) as stored:
        images, labels = stored["test_images"], stored["test_labels"][:, 0]
    (logits,) = ort.InferenceSession(DIGITS).run(None, {"image": (images.astype(np.float32) / 255)[:, None]})
    one = measured(store, spec(DIGITS, dataset={"positive_class": 8, "threshold": 0.6}), run=run_job)
    probabilities, kept = accuracy_run.scores_of(one)
    assert (kept == labels).all()
    exact = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert probabilities == pytest.approx(exact / exact.sum(axis=1, keepdims=True), abs=1e-5)
    found = summary(one)
    assert found["accuracy"]["count"] == int((logits.argmax(axis=1) == labels).sum())
    assert found["accuracy"]["low"] < found["accuracy"]["value"] < found["accuracy"]["high"]
    assert (found["positive"]["name"], found["positive"]["threshold"]) == ("8", 0.6)
    assert (one.reply["scores"], one.reply["output"], one.reply["classes"]) == ("logits", "logits", 10)
    assert one.reply["batch_size"] == accuracy_run.BATCH_ROWS
    assert any("`test`" in note for note in found["notes"])


def test_same_question_is_not_run_twice(store: Store) -> None:
    jobs: list[str] = []

    def run(job: Any, payload: Any, **options: Any) -> dict[str, Any]:
        jobs.append(job)
        return in_process.run(job, payload, **options)

    one = measure_accuracy(store, spec(DIGITS), run=run, environment=machine)
    again = spec(DIGITS, dataset={"positive_class": 3})
    two = measure_accuracy(store, again, run=run, environment=machine)
    assert (two.id, two.dataset["positive_class"]) == (one.id, 3)
    assert jobs.count("accuracy") == 1
    known = known_accuracy(store, again, model_sha256=one.model_sha256)
    assert known is not None
    assert (known.id, known.dataset) == (two.id, two.dataset)
    assert measure_accuracy(store, again, run=run, environment=machine, reuse=False).id != one.id
    assert jobs.count("accuracy") == 2


def test_settings_and_the_fp16_copy_are_really_used(store: Store) -> None:
    plain = measured(store, spec(DIGITS))
    half = measured(
        store,
        spec(
            DIGITS,
            session={"graph_optimization_level": "ORT_ENABLE_EXTENDED"},
            model={"path": str(DIGITS), "precision": "fp16"},
        ),
    )
    assert half.id != plain.id
    one, _ = accuracy_run.scores_of(plain)
    other, _ = accuracy_run.scores_of(half)
    assert 0 < np.abs(one - other).max() < 0.05
    found = compare(plain, half, 0.02)
    assert found["accuracy"]["rows"] == 360
    assert found["agreement"]["value"] > 0.99


def test_limit_feeds_fewer_rows(store: Store) -> None:
    one = measured(store, spec(DIGITS, dataset={"limit": 50, "seed": 1}, workload={"batch_size": 7}))
    assert (one.reply["rows"], one.reply["batch_size"]) == (50, 7)


def test_model_with_a_fixed_batch_takes_any_number_of_rows(store: Store, tmp_path: Path) -> None:
    model = tiny_models.fixed_batch(tmp_path / "fixed.onnx", batch=4)
    x = np.random.default_rng(0).normal(size=(10, 16)).astype(np.float32)
    one = measured(store, spec(model, rows(tmp_path / "d.npz", x, np.arange(10) % 8)))
    assert (one.reply["rows"], one.reply["batch_size"]) == (10, 4)
    session = ort.InferenceSession(model)
    expected = [session.run(None, {"x": np.repeat(row[None], 4, axis=0)})[0][0] for row in x]
    with np.load(one.scores_path) as kept:
        assert kept["scores"] == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.parametrize(("operator", "kind"), [("Sigmoid", "probabilities"), ("Identity", "logits")])
@pytest.mark.parametrize("width", [1, None])
def test_one_number_a_row_is_a_binary_classifier(
    store: Store, tmp_path: Path, operator: str, kind: str, width: int | None
) -> None:
    shape = ["batch"] if width is None else ["batch", 1]
    model = tiny_models.save(
        tmp_path / "binary.onnx",
        [helper.make_node(operator, ["x"], ["y"])],
        [tiny_models.value("x", shape)],
        [tiny_models.value("y", shape)],
    )
    x = np.array([3.0, -2.0, 1.5, -4.0], np.float32).reshape([4] if width is None else [4, 1])
    one = measured(store, spec(model, rows(tmp_path / "d.npz", x, [1, 0, 0, 0])))
    assert (one.reply["scores"], one.reply["classes"]) == (kind, 2)
    assert summary(one)["confusion"] == [[2, 1], [0, 1]]
    assert summary(one)["positive"]["class"] == 1


def test_rows_that_are_not_finite_count_as_wrong_and_are_told(store: Store, tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "same.onnx", "float32")
    x = np.eye(4, dtype=np.float32) * 5
    x[2] = np.nan
    x[3] = np.inf
    one = measured(store, spec(model, rows(tmp_path / "d.npz", x, np.arange(4))))
    assert one.reply["not_finite"] == 2
    assert any("NaN" in note and "2 samples" in note for note in one.reply["notes"])
    assert summary(one)["accuracy"]["count"] == 2


def test_missing_classes_are_told(store: Store, tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "same.onnx", "float32")
    one = measured(store, spec(model, rows(tmp_path / "d.npz", np.eye(4)[:2] * 5, [0, 1])))
    assert summary(one)["missing_classes"] == ["2", "3"]
    assert any("`2`, `3`" in note for note in one.reply["notes"])


def test_labels_out_of_range_are_refused(store: Store, tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "same.onnx", "float32")
    data = rows(tmp_path / "d.npz", np.eye(4), [0, 1, 2, 4])
    assert " 4" in refused(store, spec(model, data), SpecError)


def test_data_without_labels_are_refused(store: Store, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.eye(4, dtype=np.float32))
    model = tiny_models.identity(tmp_path / "same.onnx", "float32")
    assert "labels" in refused(store, spec(model, tmp_path / "d.npz"), SpecError)


def test_rows_of_another_shape_are_refused(store: Store, tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "same.onnx", "float32")
    data = rows(tmp_path / "d.npz", np.zeros((3, 5)), [0, 1, 2])
    said = refused(store, spec(model, data), SpecError)
    assert said.index(", 5]") < said.index(", 4]")


def test_model_that_is_no_classifier_is_refused_in_words(store: Store, tmp_path: Path) -> None:
    model = tiny_models.save(
        tmp_path / "image.onnx",
        [helper.make_node("Relu", ["image"], ["out"])],
        [tiny_models.value("image", ["batch", 3, 8, 8])],
        [tiny_models.value("out", ["batch", 3, 8, 8])],
    )
    data = tmp_path / "d.npz"
    np.savez(data, images=np.zeros((2, 8, 8, 3), np.uint8), labels=[0, 1])
    said = refused(store, spec(model, data), ModelError)
    assert "classifier" in said
    assert "`out` [2, 3, 8, 8]" in said or "`out` [32, 3, 8, 8]" in said


def test_whole_numbers_are_no_scores(store: Store, tmp_path: Path) -> None:
    model = tiny_models.identity(tmp_path / "ints.onnx", "int64")
    np.savez(tmp_path / "d.npz", x=np.zeros((2, 4), np.int64), labels=[0, 1])
    assert "tensor(int64)" in refused(store, spec(model, tmp_path / "d.npz"), ModelError)


def test_output_is_chosen_where_there_are_two(store: Store, tmp_path: Path) -> None:
    model = tiny_models.save(
        tmp_path / "two.onnx",
        [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])],
        [tiny_models.value("x", ["batch", 4])],
        [tiny_models.value("a", ["batch", 4]), tiny_models.value("b", ["batch", 4])],
    )
    data = rows(tmp_path / "d.npz", np.eye(4) * 5, np.arange(4))
    assert "output" in refused(store, spec(model, data), SpecError)
    assert "`a`?" in refused(store, spec(model, data, dataset={"output": "aa"}), SpecError)
    one = measured(store, spec(model, data, dataset={"output": "a"}))
    assert summary(one)["accuracy"]["value"] == 1.0


def test_free_dimensions_come_with_the_data(store: Store, tmp_path: Path) -> None:
    model = tiny_models.tokens(tmp_path / "tokens.onnx")
    np.savez(
        tmp_path / "d.npz",
        input_ids=np.ones((5, 6), np.int64),
        attention_mask=np.ones((5, 6), np.int64),
        labels=np.arange(5),
    )
    assert measured(store, spec(model, tmp_path / "d.npz")).reply["classes"] == 8


def test_images_in_folders_go_through_the_declared_preprocessing(store: Store, tmp_path: Path) -> None:
    from PIL import Image

    with np.load(ROWS) as stored:
        images, labels = stored["test_images"][:40], stored["test_labels"][:40, 0]
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "data" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{row:03}.png")
    one = measured(store, spec(DIGITS, tmp_path / "data"))
    assert one.reply["rows"] == 40
    assert summary(one)["accuracy"]["value"] > 0.9
    bytes_ = measured(store, spec(DIGITS, tmp_path / "data", dataset={"preprocessing": {"scale": 255.0}}))
    assert bytes_.reply["dataset_sha256"] == one.reply["dataset_sha256"]
    assert bytes_.id != one.id


def with_a_number(path: Path) -> Path:
    """Two scores per sample, x float32 [batch, 2] divided by the scalar sr (int64): right if sr exceeds 0."""
    nodes = [
        helper.make_node("Cast", ["sr"], ["f"], "cast", to=1),
        helper.make_node("Mul", ["x", "f"], ["y"], "scaled"),
    ]
    inputs = [tiny_models.value("x", ["batch", 2]), tiny_models.value("sr", [], "int64")]
    return tiny_models.save(path, nodes, inputs, [tiny_models.value("y", ["batch", 2])])


def test_an_input_that_the_data_lack_takes_a_value(store: Store, tmp_path: Path) -> None:
    path = with_a_number(tmp_path / "m.onnx")
    data = rows(tmp_path / "rows.npz", [[1, 2], [3, 1], [0, 5]], [1, 0, 1])
    right = measured(store, spec(path, data, workload={"feed_values": {"sr": 16000}}))
    wrong = measured(store, spec(path, data, workload={"feed_values": {"sr": "random:-3..-2"}}))
    assert [summary(one)["accuracy"]["value"] for one in (right, wrong)] == [1.0, 0.0]
    both = {"sr": 16000, "x": 1}  # values in the data take precedence
    held = measured(store, spec(path, data, workload={"feed_values": both}))
    assert summary(held)["accuracy"]["value"] == 1.0
    with pytest.raises(SpecError, match="`rate`"):
        accuracy_run.check_accuracy_before(
            store, spec(path, data, workload={"feed_values": {"rate": 1}}), run=in_process.run
        )
    with pytest.raises(SpecError, match=r"gone\.npz"):
        accuracy_run.check_accuracy_before(store, spec(path, tmp_path / "gone.npz"), run=in_process.run)
