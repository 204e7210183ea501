"""Train the digits classifier that comes with ORTune, and export it.

    python sample_models/train_digits_cnn.py [--output FOLDER]

Writes `digits_cnn.onnx` and its held-out rows, `digits_test.npz` (arrays `test_images` and `test_labels`, as
MedMNIST lays them out), and fails unless ONNX Runtime classifies at least 97 % of those rows correctly.
Beside them go rows of the training, to calibrate a quantization on: `digits_calibration.npz` (`train_images`
and `train_labels`).
Needs scikit-learn for the data; the same seed gives the same weights on the same machine and torch.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import below

import numpy as np
import onnx
import onnxruntime as ort
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

SEED = 0
EPOCHS = 20
HELD_OUT = 360  # of 1,797 rows
CALIBRATION = 240  # of those it is trained on, as many of each class as there are
LEAST_ACCURACY = 0.97
OPSET = 20


class DigitsCNN(nn.Module):
    """Two convolutions and a linear layer; image float32 [batch, 1, 8, 8] in 0..1 to logits [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Flatten(), nn.Linear(64 * 4 * 4, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:  # noqa: D102 - the class says it
        return self.head(self.features(image))


def load_rows() -> tuple[np.ndarray, np.ndarray]:
    """The digits as uint8 images [rows, 8, 8] of 0..255; scikit-learn has them as 0..16."""
    digits = load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target.astype(np.uint8)


def as_input(images: np.ndarray) -> np.ndarray:
    """What the model is fed: float32 [rows, 1, 8, 8] of 0..1."""
    return (images.astype(np.float32) / 255)[:, None]


def train(images: np.ndarray, labels: np.ndarray) -> DigitsCNN:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums in one order, and no waiting for a busy second core
    torch.use_deterministic_algorithms(True)
    model = DigitsCNN().train()
    rows, classes = torch.from_numpy(as_input(images)), torch.from_numpy(labels.astype(np.int64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(rows)).split(64):
            loss = nn.functional.cross_entropy(model(rows[batch]), classes[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {total / len(rows):.4f}")
    return model.eval()


def export(model: DigitsCNN, path: Path) -> None:
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        None,
        input_names=["image"],
        output_names=["logits"],
        opset_version=OPSET,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )
    written = program.model_proto
    for node in written.graph.node:
        del node.metadata_props[:]  # where in whose folder the node was traced
    onnx.helper.set_model_props(
        written,
        {"source": "trained by train_digits_cnn.py on scikit-learn's digits", "input": "pixels / 255"},
    )
    onnx.checker.check_model(written)
    onnx.save_model(written, str(path))


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"image": as_input(images)})
    return float((logits.argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="where to write")
    folder = parser.parse_args().output
    images, labels = load_rows()
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    path = folder / "digits_cnn.onnx"
    export(train(train_images, train_labels), path)
    reached = accuracy(path, test_images, test_labels)
    print(f"{path}: {path.stat().st_size:,} bytes, {reached:.2%} of {HELD_OUT} held-out rows correct")
    if reached < LEAST_ACCURACY:
        raise SystemExit(f"{reached:.2%} is below {LEAST_ACCURACY:.0%}")
    np.savez_compressed(folder / "digits_test.npz", test_images=test_images, test_labels=test_labels[:, None])
    images, _, labels, _ = train_test_split(
        train_images, train_labels, train_size=CALIBRATION, random_state=SEED, stratify=train_labels
    )
    np.savez_compressed(folder / "digits_calibration.npz", train_images=images, train_labels=labels[:, None])


if __name__ == "__main__":
    main()
