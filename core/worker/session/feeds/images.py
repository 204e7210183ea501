"""Read image files into the array of a model's image input. Pillow is imported when files are read.

Each image gets its orientation applied, is converted to the input's number of channels, resized (bilinear,
without cropping) to its height and width, and scaled to [0, 1]; then mean and deviation per channel are
applied. Without given statistics a three-channel input gets ImageNet's, which torchvision's classifiers
expect. A uint8 input gets the bytes 0 to 255 unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.access import check_files
from core.wire.errors import SpecError
from core.wire.feeding import IMAGE_MODES, IMAGE_SUFFIXES, IMAGENET_MEAN, IMAGENET_STD, channel_axis
from core.wire.files import IrregularFile, open_regular, refuse_irregular
from core.worker.session.feeds.wanted import InputSpec

if TYPE_CHECKING:
    from PIL import Image as PIL

Array = npt.NDArray[Any]

BILINEAR = 2  # `Image.Resampling.BILINEAR`, which is not imported here


def load_images(plan: wire.FeedPlan, wanted: Sequence[InputSpec]) -> dict[str, Array]:
    """Return {the image input: the first `batch_size` images of `plan["path"]`}, in order of file name.

    Raises:
        SpecError: no single image input; no readable images, or fewer than the batch.
    """
    one, axis = image_input(wanted)
    rows = one.shape[0]
    files = _files(plan["path"] or "")
    if len(files) < rows:
        raise SpecError(
            f"There are {len(files)} images in `{plan['path']}`, the batch is {rows}.",
            hint=f"Use a batch of at most {len(files)}, or more images.",
        )
    height, width = one.shape[2:] if axis == 1 else one.shape[1:3]
    pixels = np.stack([_pixels(file, one.shape[axis], (width, height)) for file in files[:rows]])
    if axis == 1:
        pixels = np.moveaxis(pixels, 3, 1)
    if one.dtype == "uint8":
        return {one.name: pixels}
    mean, std = statistics(one.shape[axis], plan["image_mean"], plan["image_std"])
    return {one.name: normalised(pixels, axis, mean, std).astype(one.numpy_dtype)}


def image_input(wanted: Sequence[InputSpec]) -> tuple[InputSpec, int]:
    """Return the one input that takes images, and its channel axis: 1 in NCHW, 3 in NHWC.

    Raises:
        SpecError: there is none, or more than one.
    """
    found = [(one, axis) for one in wanted if (axis := _channel_axis(one)) is not None]
    if len(found) != 1:
        count = "no input" if not found else f"{len(found)} inputs"
        raise SpecError(
            f"The model has {count} that images fit: float or uint8, [batch, channels, height, width] or "
            "[batch, height, width, channels] with 1, 3 or 4 channels.",
            hint="Use random values, or an .npz.",
        )
    return found[0]


def _channel_axis(one: InputSpec) -> int | None:
    fits = -1 not in one.shape and (one.dtype == "uint8" or "float" in one.dtype)
    return channel_axis(one.shape) if fits else None


def statistics(
    channels: int, mean: Sequence[float], std: Sequence[float]
) -> tuple[Sequence[float], Sequence[float]]:
    """Return the plan's own statistics, or the defaults for that number of channels."""
    default = channels == 3
    return mean or (IMAGENET_MEAN if default else ()), std or (IMAGENET_STD if default else ())


def normalised(
    pixels: Array, axis: int, mean: Sequence[float], std: Sequence[float], *, most: float = 255.0
) -> Array:
    """Scale bytes so that `most` becomes 1, then subtract `mean` and divide by `std`; empty ones are skipped.

    Raises:
        SpecError: not one number per channel, or a deviation of zero.
    """
    scaled = pixels.astype(np.float32) / np.float32(most)
    channels = pixels.shape[axis]
    shape = [channels if one == axis else 1 for one in range(pixels.ndim)]
    for name, values in (("image_mean", mean), ("image_std", std)):
        if (values and len(values) != channels) or (name == "image_std" and 0 in values):
            raise SpecError(
                f"`{name}` is {list(values)}; the images have {channels} channels.",
                hint="Give one number per channel, deviations above 0.",
            )
    if mean:
        scaled -= np.asarray(mean, np.float32).reshape(shape)
    if std:
        scaled /= np.asarray(std, np.float32).reshape(shape)
    return scaled


def _files(path: str) -> list[Path]:
    place = Path(path)
    try:
        refuse_irregular(place)
    except OSError as error:
        raise SpecError(
            f"`{path[:200]}` cannot be read: {error.strerror or error}.",
            hint="Name a file or a folder on a disk.",
        ) from None
    if place.is_file():
        return [place]
    files = (
        sorted(file for file in place.glob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
        if place.is_dir()
        else []
    )
    if not files:
        what = "no images" if place.is_dir() else "nothing"
        raise SpecError(
            f"There is {what} at `{path}`.", hint="Give an image, or a folder of PNG, JPEG or other images."
        )
    check_files(files)
    return files


def _pixels(file: Path, channels: int, size: tuple[int, int]) -> Array:
    sized = read_image(file, lambda upright: upright.convert(IMAGE_MODES[channels]).resize(size, BILINEAR))
    return np.asarray(sized, np.uint8).reshape(size[1], size[0], channels)


def read_image(file: Path, convert: Callable[[PIL.Image], PIL.Image]) -> PIL.Image:
    """Open an image file, apply its orientation, and return the result of `convert`.

    Raises:
        SpecError: it is not an image, is too large, or `convert` cannot take it.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(file) as stream, Image.open(stream) as image:
                return convert(ImageOps.exif_transpose(image))
    except SpecError:  # from `convert`; it is also a ValueError
        raise
    except (
        OSError,
        ValueError,
        SyntaxError,
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
    ) as error:
        why = f": {error.strerror}" if isinstance(error, IrregularFile | PermissionError) else ""
        raise SpecError(
            f"`{file.name}` cannot be read as an image{why}.", hint="Remove it, or convert it to PNG."
        ) from error
