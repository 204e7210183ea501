"""Make the transformer encoder that comes with ORTune: seeded random weights, two int64 inputs.

    python sample_models/make_transformer.py [--output FOLDER]

`tiny_transformer.onnx` has the shape of a sentence encoder (tokens and positions embedded, two layers of
attention and feed-forward, the mean over the tokens that the mask lets through) at a size that fits in a
repository. Its timings are real, its embeddings mean nothing. Batch and sequence are dynamic.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import onnx
import torch
from torch import nn

SEED = 0
OPSET = 20
VOCABULARY = 2000
POSITIONS = 512  # the longest sequence
WIDTH = 128
HEADS = 4
LAYERS = 2


class Block(nn.Module):
    """Attention and feed-forward, each normalized after it is added, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm_out = nn.LayerNorm(WIDTH)

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: D102
        query, key, value = (self._heads(part(hidden)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(WIDTH / HEADS) + bias
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)
        hidden = self.norm_attention(hidden + self.out(mixed))
        return self.norm_out(hidden + self.down(nn.functional.gelu(self.up(hidden))))

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(2, (HEADS, WIDTH // HEADS)).transpose(1, 2)


class Encoder(nn.Module):
    """input_ids and attention_mask int64 [batch, sequence] to sentence_embedding float32 [batch, 128]."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:  # noqa: D102
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.norm(self.tokens(input_ids) + self.positions(places))
        mask = attention_mask.to(hidden.dtype)
        bias = (1.0 - mask)[:, None, None, :] * -10_000.0
        for block in self.blocks:
            hidden = block(hidden, bias)
        weights = mask.unsqueeze(-1)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def build() -> Encoder:
    torch.manual_seed(SEED)
    return Encoder().eval()


def export(model: Encoder, path: Path) -> None:
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=POSITIONS)}
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64)),
        None,
        input_names=["input_ids", "attention_mask"],
        output_names=["sentence_embedding"],
        opset_version=OPSET,
        dynamic_shapes=(axes, axes),
        external_data=False,
        verbose=False,
    )
    written = program.model_proto
    for node in written.graph.node:
        del node.metadata_props[:]  # where in whose folder the node was traced
    onnx.helper.set_model_props(
        written,
        {
            "source": "built by make_transformer.py",
            "ortune.weights": "random",
        },
    )
    onnx.checker.check_model(written)
    onnx.save_model(written, str(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="where to write")
    path = parser.parse_args().output / "tiny_transformer.onnx"
    export(build(), path)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
