"""Make a transformer encoder: seeded random weights, two int64 inputs.

    python sample_models/make_transformer.py [--size tiny_transformer] [--output FOLDER]

Both sizes have the shape of a sentence encoder: tokens and positions embedded, layers of attention and
feed-forward, the mean over the tokens that the mask lets through. Batch and sequence are dynamic. Timings are
real, embeddings mean nothing. `tiny_transformer` fits in a repository and comes with ORTune.
`sentence_encoder` is as deep and wide as those that serve searches, with fewer tokens to know; its weights
repeat, so that the demonstration, which is recorded with it, packs small.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import nn

SEED = 0
OPSET = 20
POSITIONS = 512  # the longest sequence


@dataclass(frozen=True, slots=True)
class Size:
    """How large an encoder is."""

    vocabulary: int
    width: int
    heads: int
    layers: int
    repeats: bool = False  # its weights


SIZES = {
    "tiny_transformer": Size(vocabulary=2000, width=128, heads=4, layers=2),
    "sentence_encoder": Size(vocabulary=8000, width=384, heads=12, layers=6, repeats=True),
}
REPEATED = 12_288  # weights until they repeat: whole rows of every layer
DEVIATION = 0.02  # of repeated weights, as in BERT


class Block(nn.Module):
    """Attention and feed-forward, each normalized after it is added, as in BERT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_out = nn.LayerNorm(width)

    def forward(self, hidden: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:  # noqa: D102
        query, key, value = (self._heads(part(hidden)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[3]) + bias
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)
        hidden = self.norm_attention(hidden + self.out(mixed))
        return self.norm_out(hidden + self.down(nn.functional.gelu(self.up(hidden))))

    def _heads(self, projected: torch.Tensor) -> torch.Tensor:
        return projected.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Encoder(nn.Module):
    """input_ids and attention_mask int64 [batch, sequence] to sentence_embedding float32 [batch, width]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.positions = nn.Embedding(POSITIONS, size.width)
        self.norm = nn.LayerNorm(size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.layers))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:  # noqa: D102
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        hidden = self.norm(self.tokens(input_ids) + self.positions(places))
        mask = attention_mask.to(hidden.dtype)
        bias = (1.0 - mask)[:, None, None, :] * -10_000.0
        for block in self.blocks:
            hidden = block(hidden, bias)
        weights = mask.unsqueeze(-1)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)


def build(size: Size) -> Encoder:
    torch.manual_seed(SEED)
    model = Encoder(size).eval()
    if size.repeats:
        once = DEVIATION * torch.randn(REPEATED)
        for weights in model.parameters():
            if weights.dim() > 1:
                times = math.ceil(weights.numel() / REPEATED)
                weights.data = once.repeat(times)[: weights.numel()].view_as(weights)
    return model


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
    parser.add_argument("--size", choices=list(SIZES), default="tiny_transformer")
    asked = parser.parse_args()
    path = asked.output / f"{asked.size}.onnx"
    export(build(SIZES[asked.size]), path)
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
