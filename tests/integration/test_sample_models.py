"""The models that come with ORTune are what the README of their folder says, and do what they claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from core.wire.catalog import SAMPLE_EXPORTS
from core.worker.models import inspect_model

FOLDER = Path(__file__).parents[2] / "sample_models"
DIGITS = FOLDER / "digits_cnn.onnx"
TRANSFORMER = FOLDER / "tiny_transformer.onnx"
CALIBRATION = FOLDER / "digits_calibration.npz"


def held_out() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "digits_test.npz") as stored:
        assert sorted(stored) == ["test_images", "test_labels"]
        return stored["test_images"], stored["test_labels"]


def accuracy(path: Path) -> float:
    images, labels = held_out()
    feed = (images.astype(np.float32) / 255)[:, None]
    (logits,) = ort.InferenceSession(path).run(None, {"image": feed})
    return float((logits.argmax(axis=1) == labels[:, 0]).mean())


def test_the_digits_classifier_is_right_on_97_of_100_held_out_rows() -> None:
    assert accuracy(DIGITS) >= 0.97


def test_the_held_out_rows_have_medmnists_layout() -> None:
    images, labels = held_out()
    assert (images.shape, images.dtype) == ((360, 8, 8), np.uint8)
    assert (labels.shape, labels.dtype) == ((360, 1), np.uint8)
    assert (images.min(), images.max()) == (0, 255)
    assert set(labels[:, 0]) == set(range(10))


def test_the_digits_classifier_is_small_and_takes_any_batch() -> None:
    info = inspect_model(str(DIGITS))
    assert info["size_bytes"] <= 300_000
    assert info["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}]
    assert info["batch_dim"] == "batch"


@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (1, 128), (3, 7), (8, 512)])
def test_the_transformer_runs_at_any_batch_and_sequence(batch: int, sequence: int) -> None:
    ids = np.random.default_rng(0).integers(0, 2000, (batch, sequence))
    mask = np.ones_like(ids)
    (embedding,) = ort.InferenceSession(TRANSFORMER).run(None, {"input_ids": ids, "attention_mask": mask})
    assert embedding.shape == (batch, 128)
    assert np.isfinite(embedding).all()


def test_the_transformer_heeds_its_mask() -> None:
    session = ort.InferenceSession(TRANSFORMER)
    ids = np.random.default_rng(0).integers(0, 2000, (1, 8))
    padded = np.concatenate([ids, np.full((1, 4), 7)], axis=1)
    mask = np.concatenate([np.ones((1, 8), np.int64), np.zeros((1, 4), np.int64)], axis=1)
    (short,) = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
    (long,) = session.run(None, {"input_ids": padded, "attention_mask": mask})
    np.testing.assert_allclose(short, long, atol=1e-5)


def test_the_transformer_is_small_and_its_inputs_are_understood() -> None:
    info = inspect_model(str(TRANSFORMER))
    assert info["size_bytes"] <= 3_000_000
    assert info["free_dims"] == ["batch", "sequence"]
    assert info["batch_axes"] == {"input_ids": 0, "attention_mask": 0}
    ids, mask = info["inputs"]
    assert (ids["dtype"], ids["low"], ids["high"]) == ("int64", 0, 2000)
    assert (mask["dtype"], mask["low"], mask["high"]) == ("int64", 1, 2)


@pytest.mark.parametrize("path", [DIGITS, TRANSFORMER], ids=lambda path: path.stem)
def test_committed_models_load_in_older_runtimes_and_keep_no_paths(path: Path) -> None:
    info = inspect_model(str(path))
    assert info["ir_version"] <= 10
    assert info["opset"] == {"": 20}
    assert b"site-packages" not in path.read_bytes()
    assert b'File "' not in path.read_bytes()


def test_the_readme_states_the_sizes_that_the_files_have() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in (DIGITS, TRANSFORMER, FOLDER / "digits_test.npz", CALIBRATION):
        assert f"{path.stat().st_size:,} bytes" in text, path.name
    for name in SAMPLE_EXPORTS:
        assert re.search(rf"\| `{name}` ", text), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "written"),
    [
        ("make_transformer.py", ["tiny_transformer.onnx"]),
        ("train_digits_cnn.py", ["digits_calibration.npz", "digits_cnn.onnx", "digits_test.npz"]),
    ],
)
def test_the_scripts_make_these_files(tmp_path: Path, script: str, written: list[str]) -> None:
    """Training and export for real, into another folder; the scripts check their own result."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == written
    (model,) = [name for name in written if name.endswith(".onnx")]
    made, kept = inspect_model(str(tmp_path / model)), inspect_model(str(FOLDER / model))
    for name in ("inputs", "outputs", "op_counts", "parameters", "opset", "metadata"):
        assert made[name] == kept[name], name  # type: ignore[literal-required]
    if "digits_test.npz" in written:
        assert accuracy(tmp_path / "digits_cnn.onnx") >= 0.97
        with np.load(tmp_path / "digits_test.npz") as stored:
            np.testing.assert_array_equal(stored["test_images"], held_out()[0])
        with np.load(tmp_path / CALIBRATION.name) as made_rows, np.load(CALIBRATION) as kept_rows:
            np.testing.assert_array_equal(made_rows["train_images"], kept_rows["train_images"])


def test_no_row_to_calibrate_on_is_a_row_to_score_on() -> None:
    with np.load(CALIBRATION) as stored:
        calibrate, labels = stored["train_images"], stored["train_labels"]
    score = {image.tobytes() for image in held_out()[0]}
    assert not score & {image.tobytes() for image in calibrate}
    assert len(calibrate) == len(labels) == 240
    assert np.bincount(labels[:, 0]).min() >= 20
