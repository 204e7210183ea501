"""Fused transformers: what was fused is told, and computes what the model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core import wire
from core.wire.errors import ModelError, SpecError
from core.worker.models import inspect_model
from tests import tiny_models as tiny
from tests.transforming import do, run

SAMPLE = Path(__file__).resolve().parents[2] / "sample_models" / "tiny_transformer.onnx"
ATTENTION = {"Attention", "MultiHeadAttention"}


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, which nobody writes to."""
    path = tmp_path_factory.mktemp("fusion") / "transformer.onnx"
    path.write_bytes(SAMPLE.read_bytes())
    return path


@pytest.fixture(scope="module")
def fused(transformer: Path) -> tuple[Path, wire.TransformReply]:
    """It fused, and what was said of that."""
    return do(transformer, "fuse", model_type="auto")


def test_attention_of_the_sample_is_fused_and_agrees(fused: tuple[Path, wire.TransformReply]) -> None:
    output, reply = fused
    found = reply["facts"]["fused"]
    assert sum(found.get(one, 0) for one in ATTENTION) == 2  # one for each layer
    assert reply["nodes_after"] < reply["nodes_before"]
    assert reply["error"]["max_rel"] is not None
    assert reply["error"]["max_rel"] < 1e-4
    counts = inspect_model(str(output))["op_counts"]
    assert {name: counts[f"com.microsoft.{name}"] for name in found if name in ATTENTION} == {
        name: count for name, count in found.items() if name in ATTENTION
    }
    assert any("ONNX Runtime" in note for note in reply["notes"]), "nobody else has these operators"


def test_a_fused_model_still_obeys_the_mask(
    transformer: Path, fused: tuple[Path, wire.TransformReply]
) -> None:
    output, _ = fused
    ids = np.random.default_rng(0).integers(0, 2000, (2, 12))
    masks = np.random.default_rng(1).integers(0, 2, (2, 12))
    masks[:, 0] = 1
    for mask in (np.ones_like(masks), masks):
        feeds = {"input_ids": ids, "attention_mask": mask}
        np.testing.assert_allclose(run(output, **feeds)[0], run(transformer, **feeds)[0], atol=1e-4)


def test_the_fused_model_takes_other_sizes(
    transformer: Path, fused: tuple[Path, wire.TransformReply]
) -> None:
    output, _ = fused
    for rows, length in ((1, 1), (3, 40)):
        feeds = {
            "input_ids": np.random.default_rng(0).integers(0, 2000, (rows, length)),
            "attention_mask": np.ones((rows, length), np.int64),
        }
        np.testing.assert_allclose(run(output, **feeds)[0], run(transformer, **feeds)[0], atol=1e-4)


def test_a_model_without_transformer_patterns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="found nothing to fuse"):
        do(tiny.conv(tmp_path / "conv.onnx"), "fuse", model_type="auto")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model_type": "albert"}, "no model type `albert`"),
        ({"model_type": "bert", "num_heads": 3, "hidden_size": 128}, "multiple of the attention heads"),
        ({"model_type": "bert", "num_heads": 4, "hidden_size": 0}, "multiple of the attention heads"),
    ],
)
def test_options_that_cannot_be_are_refused(
    transformer: Path, options: dict[str, str | int], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        do(transformer, "fuse", **options)


def test_a_fused_model_can_go_on_to_float16(
    transformer: Path, fused: tuple[Path, wire.TransformReply]
) -> None:
    _, reply = do(fused[0], "fp16", reference=transformer, keep_io_types=True)
    assert reply["error"]["max_rel"] is not None
    assert reply["error"]["max_rel"] < 0.02
