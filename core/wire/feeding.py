"""Rules for inputs: ranges of random values, supported types, statistics of images. Standard library."""

from __future__ import annotations

from collections.abc import Sequence

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
IMAGE_MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # channels -> Pillow's name
IMAGENET_MEAN = (0.485, 0.456, 0.406)  # torchvision's normalisation for its pretrained classifiers
IMAGENET_STD = (0.229, 0.224, 0.225)
INTEGERS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits) for bits in (8, 16, 32, 64)},
}  # minimum, and exclusive maximum

BFLOAT16 = "bfloat16"
STRING = "string"
FED_TYPES = frozenset({*INTEGERS, "float16", BFLOAT16, "float32", "float64", "bool", STRING})
NOT_FED_HINT = "Export the model with inputs of these types."
NO_TEXT_HINT = (
    'Set its text under "Fixed input values", with `--feed {name}="some text"`, or as a '
    "file of lines, `--feed {name}=@lines.txt`."
)


def unsupported_reason(name: str, dtype: str) -> str:
    """Return why ORTune cannot provide an input; empty: it can.

    Args:
        name: of the input.
        dtype: numpy's name, "bfloat16", "string", or ONNX Runtime's text of another type.
    """
    if dtype in FED_TYPES:
        return ""
    return f"Input `{name}` is {dtype}; ORTune supports tensors of numbers, bool and text only."


def missing_text_message(name: str) -> str:
    """Return the error for a text input without values: random text would resemble no real input."""
    return f"Input `{name}` takes text, which ORTune cannot generate."


def channel_axis(shape: Sequence[int]) -> int | None:
    """Return which axis of an input of images holds the channels: 1 in NCHW, 3 in NHWC; None: no images."""
    return next((axis for axis in (1, 3) if len(shape) == 4 and shape[axis] in IMAGE_MODES), None)


def random_range(dtype: str, low: float | None, high: float | None) -> tuple[float, float]:
    """Return the minimum and the maximum of random values; for whole numbers the maximum is exclusive.

    Without a bound floats lie in [0, 1), so that roots and logarithms stay finite; bytes are all bytes; other
    integers are 0 or 1, valid as a mask and as an index into any table. The type's own limits hold.

    Args:
        dtype: numpy's name, or "bfloat16".
        low: requested minimum; None: the default.
        high: requested maximum; None: the default.
    """
    if dtype == "bool":
        return int(low or 0), int(high or 2)  # a mask asks for True only: 1 <= value < 2
    if dtype not in INTEGERS:
        first = low if low is not None else min(0.0, (high if high is not None else 1.0) - 1.0)
        return first, high if high is not None else first + 1.0
    least, end = INTEGERS[dtype]
    if end - least == 2**8 and low is None and high is None:
        return least, end
    start = int(low) if low is not None else min(0, int(high or 2) - 1)
    return max(start, least), min(int(high) if high is not None else start + 2, end)
