"""The description of one input that needs an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.wire.feeding import BFLOAT16 as BFLOAT16
from core.wire.feeding import STRING as STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """An input that needs an array."""

    name: str
    dtype: str
    shape: list[int]  # -1: taken from the fixed value
    low: float | None
    high: float | None
    batch_axis: int | None
    drawn: bool = False  # random, whatever the source

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The array's numpy type; bfloat16 is computed as float32 first, texts are Python objects."""
        if self.dtype == STRING:
            return np.dtype(object)
        return np.dtype("float32" if self.dtype == BFLOAT16 else self.dtype)
