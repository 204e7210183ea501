"""Run models on the same inputs, and measure the distance of their outputs as vectors. Worker side.

For models of a chain only: CPU provider, and only the settings that a step's own check needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from core.wire import FeedPlan
from core.wire.errors import ModelError
from core.worker.session import ORT_ERRORS
from core.worker.session.feeds import make_feeds
from core.worker.session.job_session import job_session
from core.worker.session.ort_errors import first_line

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

PLAIN = "ORT_DISABLE_ALL"
AS_RUN = "ORT_ENABLE_ALL"  # ORT's default level


@dataclass(slots=True)
class Distance:
    """The relative L2 distance of outputs from a reference's: |outputs - reference| / |reference|.

    Accumulates over any number of inputs. Only floating-point outputs count. A value that is finite
    only in the reference counts as zero, so completely lost outputs have distance 1.
    """

    _gap: float = 0.0
    _size: float = 0.0

    def add(self, reference: Arrays, outputs: Arrays) -> None:
        """Add one run of both.

        Raises:
            ModelError: the two have outputs of different shapes.
        """
        for name, expected in reference.items():
            if expected.dtype.kind != "f":
                continue
            got = outputs[name]
            if got.shape != expected.shape:
                raise ModelError(
                    f"The value `{name}` has shape {list(got.shape)} in one of the two models and "
                    f"{list(expected.shape)} in the other.",
                    hint="Compare a variant with the model it was made from.",
                )
            finite = np.isfinite(expected)
            left = expected[finite].astype(np.float64)
            right = got[finite].astype(np.float64)
            self._gap += float(np.sum((np.where(np.isfinite(right), right, 0.0) - left) ** 2))
            self._size += float(np.sum(left**2))

    @property
    def value(self) -> float:
        """Return the distance; 1 if the reference is zero everywhere and the outputs are not."""
        if self._size == 0:
            return 1.0 if self._gap else 0.0
        return math.sqrt(self._gap / self._size)


def open_session(
    model: Path, level: str, entries: Mapping[str, str] | None = None, *, save_to: Path | None = None
) -> ort.InferenceSession:
    """Load `model` on the CPU.

    Args:
        model: the `.onnx` file; external data lies next to it.
        level: optimization level, by ONNX Runtime's name.
        entries: session config entries.
        save_to: path for the optimized graph, if any.

    Raises:
        ModelError: ONNX Runtime refuses it.
    """
    return job_session(
        model,
        level,
        complaint=f"ONNX Runtime cannot load `{model.name}`",
        hint="Exclude the node that it names, or choose other operator types.",
        entries=entries,
        save_to=save_to,
    )


def arrays_of(feeds: Sequence[FeedPlan], session: ort.InferenceSession) -> list[dict[str, Array]]:
    """Create the arrays of every plan, for the inputs of `session`."""
    return [make_feeds(plan, session.get_inputs()).arrays for plan in feeds]


def run(
    session: ort.InferenceSession, arrays: Arrays, names: Sequence[str] | None = None
) -> dict[str, Array]:
    """Return the tensor outputs by name; `names` selects some of them.

    Raises:
        ModelError: the run fails.
    """
    wanted = list(names) if names is not None else [one.name for one in session.get_outputs()]
    try:
        outputs = session.run(wanted, dict(arrays))
    except ORT_ERRORS as error:
        raise ModelError(
            f"ONNX Runtime cannot run the model: {first_line(error)}", hint="Give other inputs or dimensions."
        ) from None
    pairs = zip(wanted, outputs, strict=True)
    return {name: value for name, value in pairs if isinstance(value, np.ndarray)}


def runs(session: ort.InferenceSession, feeds: Sequence[Arrays]) -> Iterator[dict[str, Array]]:
    """Yield the outputs for each of `feeds`."""
    for arrays in feeds:
        yield run(session, arrays)


def distance(session: ort.InferenceSession, feeds: Sequence[Arrays], reference: Sequence[Arrays]) -> float:
    """Return the distance of `session`'s outputs from those in `reference`, over all inputs."""
    found = Distance()
    for expected, got in zip(reference, runs(session, feeds), strict=True):
        found.add(expected, got)
    return found.value
