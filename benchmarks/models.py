"""The models of the experiments: six sizes, and a net with a fixed piece of extra work.

A size is named by the milliseconds of a run on two cores of the machine that the sizes were chosen on (AMD
EPYC with AVX-512, ONNX Runtime 1.31.1). Other machines differ, so every script prints the measured time
beside the name. Weights are seeded: a size is the same file everywhere, and a record can be filled over days.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import helper

from benchmarks import experiment as lab
from benchmarks.journal import Journal, until
from core.evidence.record import Entry
from core.spec.effort import EFFORTS
from tests import tiny_models

DIGITS = Path(__file__).resolve().parent.parent / "sample_models" / "digits_cnn.onnx"

# name -> pixels and channels of `conv_net`; the smallest is a sample model, of 0.013 to 0.04 ms by the CPU
SIZES: Mapping[str, tuple[int, int] | None] = MappingProxyType(
    {
        "0.03": None,
        "0.3": (104, 32),
        "1": (144, 48),
        "10": (224, 96),
        "100": (304, 240),
        "1000": (448, 480),
    }
)
SMALLEST = next(iter(SIZES))


def sized(name: str, folder: Path) -> Path:
    """Return the file of a size; a net is written into `folder` if it is missing."""
    size = SIZES[name]
    if size is None:
        return DIGITS
    path = folder / f"conv{size[0]}x{size[1]}.onnx"
    return path if path.is_file() else conv_net(path, size=size[0], channels=size[1])


def conv_net(path: Path, *, size: int = 64, channels: int = 24, extra: int = 0) -> Path:
    """Write a small conv net, image [1, 3, size, size] to logits [1, 10], and return `path`.

    `extra` is a fixed piece of work beside it: the mean of asinh over so many numbers of the image, times 0,
    added to the logits, so that the outputs stay the same.
    """
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], "conv3", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c3"], ["r3"], "relu3"),
        helper.make_node("GlobalAveragePool", ["r3"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w4"], ["logits" if not extra else "plain"], "fc"),
    ]
    parameters = [
        tiny_models.weights("w1", [channels, 3, 3, 3], 1),
        tiny_models.weights("w2", [channels, channels, 3, 3], 2),
        tiny_models.weights("w3", [channels, channels, 3, 3], 3),
        tiny_models.weights("w4", [channels, 10], 4),
    ]
    if extra:
        nodes += [
            helper.make_node("Reshape", ["image", "flat"], ["x"], "extra_flatten"),
            helper.make_node("Slice", ["x", "start", "end"], ["s"], "extra_part"),
            helper.make_node("Asinh", ["s"], ["e"], "extra_work"),
            helper.make_node("ReduceMean", ["e"], ["m"], "extra_mean", keepdims=0),
            helper.make_node("Mul", ["m", "zero"], ["z"], "extra_nothing"),
            helper.make_node("Add", ["plain", "z"], ["logits"], "extra_add"),
        ]
        parameters += [
            tiny_models.constant("flat", np.array([-1], np.int64)),
            tiny_models.constant("start", np.array([0], np.int64)),
            tiny_models.constant("end", np.array([extra], np.int64)),
            tiny_models.constant("zero", np.array(0, np.float32)),
        ]
    image = tiny_models.value("image", [1, 3, size, size])
    return tiny_models.save(path, nodes, [image], [tiny_models.value("logits", [1, 10])], parameters)


# --- a truly slower model ---------------------------------------------------------------------------------

SIDE, CHANNELS = (
    128,
    56,
)  # about 1 ms: in a smaller net the extra work costs some percent by its mere presence
FIRST_GUESS = 3000  # numbers that the extra work handles
SIZINGS = 4
FEWEST, MOST = 64, 3 * SIDE * SIDE


class Slower:
    """A conv net and the same with extra work beside it, sized on the spot to cost `slowdown`."""

    def __init__(self, folder: Path, slowdown: float) -> None:
        self.folder, self.slowdown = folder, slowdown
        self.plain = lab.contestant("plain", conv_net(folder / "plain.onnx", size=SIDE, channels=CHANNELS))

    def slower(self, extra: int) -> Entry:
        """The model with this much extra work."""
        path = self.folder / f"extra{extra}.onnx"
        return lab.contestant(f"extra {extra}", conv_net(path, size=SIDE, channels=CHANNELS, extra=extra))

    def fitted(self, journal: Journal, seconds: float) -> Entry:
        """The slower model: comparisons of at most `seconds`, kept in `journal` as "size", give its size."""
        found = until(journal, "size", SIZINGS, lambda i: self._sized(i, journal.of("size"), seconds))
        return self.slower(self._best(found))

    def _sized(self, number: int, rows: Sequence[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """One step of the size search: measure the size that the earlier steps suggest."""
        extra = self._next(rows)
        found = lab.compare(
            self.plain, self.slower(extra), precision=EFFORTS["standard"], budget_s=seconds, seed=number
        )
        return {"extra": extra, **found}

    def _next(self, rows: Sequence[dict[str, Any]]) -> int:
        """The size by a line through the two best: some cost is constant, the rest grows."""
        costs = sorted({row["extra"]: 1 / row["ratio"] - 1 for row in rows if row["ratio"]}.items())
        if len(costs) < 2:
            return FIRST_GUESS if not costs else 2 * FIRST_GUESS
        by_distance = sorted(costs, key=lambda one: abs(one[1] - self.slowdown))
        (size, cost), (other_size, other_cost) = by_distance[:2]
        slope: float = (other_cost - cost) / (other_size - size)
        wanted: int = round(size + (self.slowdown - cost) / slope) if slope > 0 else 2 * max(size, other_size)
        return max(FEWEST, min(MOST, wanted))  # a slope that is not above 0 is noise

    def _best(self, rows: Sequence[dict[str, Any]]) -> int:
        """The size by a line through all of them: each is known only to a percent or so."""
        known = [row for row in rows if row["ratio"]]
        if len({row["extra"] for row in known}) < 2:
            raise SystemExit("The size search has fewer than two ratios: give its comparisons more time.")
        line = statistics.linear_regression(
            [row["extra"] for row in known], [1 / row["ratio"] - 1 for row in known]
        )
        size = (self.slowdown - line.intercept) / line.slope if line.slope > 0 else math.inf
        if not FEWEST <= size <= MOST:  # the comparison would not have the intended slowdown
            raise SystemExit(
                f"No size of the extra work costs about {self.slowdown:.0%}: a line through the steps of the "
                f"size search says {size:,.0f} numbers, of {FEWEST:,} to {MOST:,}."
            )
        return round(size)
