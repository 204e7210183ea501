"""Labelled datasets for accuracy, and the preprocessing of their images.

`DatasetSpec` is part of a `TrialSpec` and of its YAML, but not of its key: the dataset does not change the
configuration. Pure except `dataset_plan`, which checks whether the path is a file or a folder of folders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from core import wire
from core.spec.validation import Spec, validated
from core.wire.errors import SpecError
from core.wire.files import ROOT

MAX_PIXELS = 16_384  # of a side
Kind = Literal["npz", "folders", "csv", "images"]

_SUFFIXES: Mapping[str, Kind] = {".npz": "npz", ".csv": "csv"}


class PreprocessingSpec(Spec):
    """Preprocessing of images, in this order. Arrays of an `.npz` that fit an input are used unchanged."""

    resize: int | None = None  # pixels of the shorter side; absent: both sides to the input's size
    crop: int | None = None  # side of a centred square in pixels, cut out after `resize`
    channels: Literal["auto", "rgb", "bgr", "gray"] = "auto"  # colour order; `auto`: what suits the input
    scale: float = 1.0  # the value of a pixel of 255
    mean: tuple[float, ...] = Field(default=(), strict=False)  # subtracted from each channel, after `scale`
    std: tuple[float, ...] = Field(default=(), strict=False)  # divides each channel, after `mean`

    @model_validator(mode="after")
    def _check(self) -> PreprocessingSpec:
        for name in ("resize", "crop"):
            pixels = getattr(self, name)
            if pixels is not None and not 1 <= pixels <= MAX_PIXELS:
                raise SpecError(
                    f"`preprocessing.{name}` must lie between 1 and {MAX_PIXELS} pixels, but got {pixels}.",
                    hint="Give the side that the model was trained for, for example 224.",
                )
        if self.resize is not None and self.crop is not None and self.crop > self.resize:
            raise SpecError(
                f"`preprocessing.crop` must be at most `resize` ({self.resize}), but got {self.crop}.",
                hint="Lower `crop`, or raise `resize`.",
            )
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise SpecError(
                f"`preprocessing.scale` must be above 0 and finite, but got {self.scale}.",
                hint="Use 1 for values from 0 to 1, or 255 for bytes as they are.",
            )
        _check_statistics(self.mean, self.std)
        return self


def _check_statistics(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    if not all(map(math.isfinite, mean)):
        raise SpecError(
            f"`preprocessing.mean` must be finite, but got {list(mean)}.", hint="Give one number per channel."
        )
    if not all(math.isfinite(value) and value > 0 for value in std):
        raise SpecError(
            f"`preprocessing.std` must be above 0 and finite, but got {list(std)}.",
            hint="Give one positive number per channel.",
        )
    for name, values in (("mean", mean), ("std", std)):
        if len(values) > 4:
            raise SpecError(
                f"`preprocessing.{name}` has {len(values)} numbers, but an image has at most 4 channels.",
                hint="Give one number per channel.",
            )
    if mean and std and len(mean) != len(std):
        raise SpecError(
            f"`preprocessing.mean` has {len(mean)} channels, but `std` has {len(std)}.",
            hint="Give both one number per channel.",
        )


class DatasetSpec(Spec):
    """A labelled dataset, and how outputs of a model are scored on it."""

    path: str
    kind: Literal["auto", "npz", "folders", "csv", "images"] = "auto"  # `auto`: derived from the path
    split: Literal["", "train", "val", "test"] = ""  # of an `.npz`; empty: `test`, else the first one
    preprocessing: PreprocessingSpec = Field(default_factory=PreprocessingSpec)
    limit: int | None = None  # number of samples to use; absent: all
    seed: int = 0  # chooses the samples where `limit` leaves some out
    part: Literal["", "calibration", "rest"] = ""  # disjoint parts of the samples; empty: all
    calibration_share: float = 0.25  # share of the samples in `part: calibration`
    output: str = ""  # output with the class scores; empty: the only candidate
    positive_class: int | str | None = None  # number or name; absent: none, or the second of two
    threshold: float = 0.5  # probability from which a sample counts as positive

    @model_validator(mode="after")
    def _check(self) -> DatasetSpec:
        if not self.path.strip():
            raise SpecError("`dataset.path` is empty.", hint="Write the path of an .npz, a folder or a CSV.")
        if self.limit is not None and self.limit < 1:
            raise SpecError(
                f"`dataset.limit` must be at least 1 sample, but got {self.limit}.",
                hint="Leave it out for all.",
            )
        if not 0 <= self.seed < 2**32:
            raise SpecError(
                f"`dataset.seed` must lie between 0 and {2**32 - 1}, but got {self.seed}.",
                hint="Give a smaller number that is not negative.",
            )
        if not 0.0 < self.calibration_share < 1.0:
            raise SpecError(
                f"`dataset.calibration_share` must lie between 0 and 1, but got {self.calibration_share}.",
                hint="Give for example 0.25; the other samples are for the accuracy.",
            )
        if not 0.0 <= self.threshold <= 1.0:  # False for NaN too
            raise SpecError(
                f"`dataset.threshold` must be a probability from 0 to 1, but got {self.threshold}.",
                hint="Use 0.5 unless you need another one.",
            )
        if isinstance(self.positive_class, int) and self.positive_class < 0:
            raise SpecError(
                f"`dataset.positive_class` must be 0 or more, but got {self.positive_class}.",
                hint="Give the number or the name of a class.",
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: the path, and the fields that differ from the defaults."""
        return {"path": self.path, **self.model_dump(mode="json", exclude_defaults=True)}


def dataset_from_dict(data: Mapping[str, Any]) -> DatasetSpec:
    """Build a `DatasetSpec` from plain data.

    Raises:
        SpecError: an unknown key, a wrong type or a value out of range, named by its path.
    """
    return validated(DatasetSpec, data)


def dataset_plan(spec: DatasetSpec) -> wire.DatasetPlan:
    """Return the plan for a worker, with an absolute path and the kind derived from it.

    A relative path is searched in the current folder, then in ORTune's own. A folder that holds folders has
    one for each class; one without holds images without labels.

    Raises:
        SpecError: the path does not exist.
    """
    path = _existing(spec.path)
    preprocessing = spec.preprocessing
    plan: wire.DatasetPlan = {
        "path": str(path),
        "kind": _kind(path) if spec.kind == "auto" else spec.kind,
        "split": spec.split,
        "preprocessing": {
            "resize": preprocessing.resize,
            "crop": preprocessing.crop,
            "channels": preprocessing.channels,
            "scale": preprocessing.scale,
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
        },
        "limit": spec.limit,
        "seed": spec.seed,
    }
    if spec.part:  # absent otherwise: stored results on all rows stay valid
        plan |= {"part": spec.part, "share": spec.calibration_share}
    return plan


def _existing(text: str) -> Path:
    try:
        for candidate in (Path(text).expanduser(), ROOT / text):
            if candidate.exists():
                return candidate.absolute()
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, a home that does not exist
        pass
    raise SpecError(f"There are no data at `{text[:200]}`.", hint="Check the path of the dataset.")


def _kind(path: Path) -> Kind:
    if path.is_dir():
        try:
            nested = any(one.is_dir() and not one.name.startswith(".") for one in path.iterdir())
        except OSError as error:
            raise SpecError(
                f"The folder `{path}` cannot be read: {error.strerror or error}.",
                hint="Check its permissions.",
            ) from None
        return "folders" if nested else "images"
    return _SUFFIXES.get(path.suffix.lower(), "images")
