"""Convert pixels to the array of an image input by the declared preprocessing; imports Pillow only on demand.

An image here is uint8 [height, width, channels]. The steps follow the order of `Preprocessing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from core import wire
from core.wire.errors import SpecError
from core.wire.feeding import IMAGE_MODES, channel_axis
from core.worker.session.feeds.images import BILINEAR, normalised, read_image

if TYPE_CHECKING:
    from PIL import Image as PIL

Array = npt.NDArray[Any]
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInput:
    """An input that takes images: [rows, channels, height, width] or [rows, height, width, channels]."""

    name: str
    dtype: str
    channel_axis: int  # 1 or 3
    channels: int  # 1, 3 or 4
    height: int  # -1: the height of the image
    width: int


def image_input(one: wire.InputPlan, batch_axis: int | None) -> ImageInput | None:
    """Return the image layout of `one`; None if it does not take images."""
    shape = one["shape"]
    axis = channel_axis(shape)
    if axis is None or batch_axis != 0 or one["dtype"] not in ("uint8", "float16", "float32", "float64"):
        return None
    height, width = shape[2:] if axis == 1 else shape[1:3]
    return ImageInput(
        name=one["name"],
        dtype=one["dtype"],
        channel_axis=axis,
        channels=shape[axis],
        height=height,
        width=width,
    )


def preprocess(images: Sequence[Pixels], target: ImageInput, preprocessing: wire.Preprocessing) -> Array:
    """Return images preprocessed for the input.

    Raises:
        SpecError: the preprocessing gives another size or number of channels than the input has.
    """
    _check_channels(target, preprocessing)
    sized = [_sized(one, target, preprocessing) for one in images]
    sizes = {one.shape for one in sized}
    if len(sizes) > 1:
        some = " and ".join(f"{shape[1]}×{shape[0]}" for shape in sorted(sizes)[:2])
        raise SpecError(
            f"The images come to different sizes, {some}, and `{target.name}` has none of its own.",
            hint="Set `resize` and `crop`, or give the input's dimensions.",
        )
    pixels = np.stack(sized)
    if preprocessing["channels"] == "bgr":
        pixels[..., :3] = pixels[..., 2::-1]
    array = _normalised(pixels, target, preprocessing)
    return np.ascontiguousarray(np.moveaxis(array, 3, 1) if target.channel_axis == 1 else array)


def _check_channels(target: ImageInput, preprocessing: wire.Preprocessing) -> None:
    if preprocessing["channels"] in ("rgb", "bgr") and target.channels == 1:
        raise SpecError(
            f"`{target.name}` has one channel, but the preprocessing asks for {preprocessing['channels']}.",
            hint="Use `gray` or `auto`.",
        )


def _sized(image: Pixels, target: ImageInput, preprocessing: wire.Preprocessing) -> Pixels:
    height = image.shape[0] if target.height == -1 else target.height
    width = image.shape[1] if target.width == -1 else target.width
    resize, crop = preprocessing["resize"], preprocessing["crop"]
    gray = preprocessing["channels"] == "gray" and target.channels != 1
    if resize is None and crop is None and not gray and image.shape == (height, width, target.channels):
        return image.copy()
    from PIL import Image

    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    picture = picture.convert("L" if gray else IMAGE_MODES[target.channels])
    if resize is None and crop is None:
        picture = picture.resize((width, height), BILINEAR)
    else:
        picture = _cropped(_shorter_side(picture, resize), crop)
        _check_size(picture, target)
    pixels = np.array(picture, np.uint8).reshape(picture.height, picture.width, -1)
    return np.repeat(pixels, target.channels, axis=2) if gray else pixels


def _shorter_side(picture: PIL.Image, pixels: int | None) -> PIL.Image:
    if pixels is None:
        return picture
    short = min(picture.size)
    width, height = (int(pixels * side / short) for side in picture.size)  # rounds like torchvision
    return picture.resize((width, height), BILINEAR)


def _cropped(picture: PIL.Image, pixels: int | None) -> PIL.Image:
    if pixels is None:
        return picture
    if pixels > min(picture.size):
        raise SpecError(
            f"A square of {pixels} pixels cannot be cut out of an image of {picture.width}×{picture.height}.",
            hint="Set `resize` to at least the size of the crop.",
        )
    left, top = (round((side - pixels) / 2) for side in picture.size)
    return picture.crop((left, top, left + pixels, top + pixels))


def _check_size(picture: PIL.Image, target: ImageInput) -> None:
    wanted = (target.width, target.height)
    if any(want not in (-1, have) for want, have in zip(wanted, picture.size, strict=True)):
        raise SpecError(
            f"After `resize` and `crop` an image is {picture.width}×{picture.height}, but `{target.name}` "
            f"takes {target.width}×{target.height}.",
            hint=f"Set `crop` to {target.width}, or leave both out to resize straight to the input's size.",
        )


def _normalised(pixels: Pixels, target: ImageInput, preprocessing: wire.Preprocessing) -> Array:
    """Scale, subtract the mean, divide by the standard deviation; a uint8 input gets the bytes unchanged."""
    mean, std = preprocessing["mean"], preprocessing["std"]
    if target.dtype == "uint8":
        if mean or std:
            raise SpecError(
                f"`{target.name}` takes bytes, but the preprocessing normalizes them.",
                hint="Leave `mean` and `std` out; such a model normalizes by itself.",
            )
        return pixels
    for name, values in (("mean", mean), ("std", std)):
        if values and len(values) not in (1, target.channels):
            raise SpecError(
                f"`preprocessing.{name}` has {len(values)} numbers, but `{target.name}` has "
                f"{target.channels} channels.",
                hint="Give one number per channel.",
            )
    mean, std = (list(one) * (target.channels if len(one) == 1 else 1) for one in (mean, std))
    return normalised(pixels, 3, mean, std, most=255.0 / preprocessing["scale"]).astype(
        target.dtype, copy=False
    )


def decode_image(file: Path) -> Pixels:
    """Read an image file, with its orientation applied, as [height, width, 1, 3 or 4].

    Raises:
        SpecError: the file is not an image, is too large, or has more than 8 bits per channel.
    """
    plain = read_image(file, lambda upright: _plain(file, upright))
    return np.array(plain, np.uint8).reshape(plain.height, plain.width, -1)


def _plain(file: Path, picture: PIL.Image) -> PIL.Image:
    if picture.mode.startswith(("I", "F")):
        raise SpecError(
            f"`{file.name}` has more than 8 bits in a channel, which would be cut off.",
            hint="Convert it to 8 bits, or save the values as an .npz.",
        )
    return picture if picture.mode in IMAGE_MODES.values() else picture.convert(_plain_mode(picture))


def _plain_mode(picture: PIL.Image) -> str:
    """Return the Pillow mode to convert to: gray for black and white, else color; alpha is kept."""
    if picture.mode == "1":
        return "L"
    if picture.mode in ("LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        return "RGBA"
    return "RGB"
