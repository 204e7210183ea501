"""Sizes that nobody gave: what a file says of them, and what names tell."""

from __future__ import annotations

from typing import Any

import pytest

from core.spec import sizes
from tests.unit.test_fields import images


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"imgsz": "[320, 640]"}, {"x:2": 320, "x:3": 640}),
        ({"imgsz": "320"}, {"x:2": 320, "x:3": 320}),
        ({"imgsz": "[1e9]"}, {}),
        ({"imgsz": "[-320, 320]"}, {}),
        ({"imgsz": "[" * 10_000}, {}),
        ({}, {}),
    ],
)
def test_a_file_names_the_sides_of_its_images(metadata: dict[str, str], found: dict[str, int]) -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": metadata}
    assert sizes.sides_of_file(info) == found


def test_a_stride_rounds_a_guessed_side_up() -> None:
    info: Any = {**images("x:0", 3, "x:2", "x:3"), "metadata": {"stride": "64"}}
    assert sizes.suggested(["x:2"], info) == {"x:2": 256}


@pytest.mark.parametrize(
    ("dim", "size"),
    [("sequence", 128), ("past_length", 0), ("past_length + 1", 1), ("past + seq", 128), ("anything", 16)],
)
def test_a_name_tells_a_size_to_start_from(dim: str, size: int) -> None:
    assert sizes.guess(dim, images("x:0", dim)) == size


def test_options_can_be_pasted() -> None:
    assert sizes.options({"seq": 128, "past + 1": 1}) == "--dim seq=128 --dim 'past + 1=1'"
