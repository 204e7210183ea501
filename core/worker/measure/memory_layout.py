"""The memory layout of a process, drawn at random before its session is made.

Two processes of one configuration differ by where their heap, stack and buffers happen to lie. A process that
is forked inherits the addresses of its parent, so every contestant would have the same accident, and the
ratio of two of them the same bias, race after race. Here each draws its own: blocks on the heap and mapped
pages that stay, C frames on the stack, and the place of every input in its page. What the session allocates
afterwards, outputs and the stacks of its threads among it, moves with them. Standard library and numpy.

Source: Mytkowicz et al. (2009), Producing wrong data without doing anything obviously wrong; Curtsinger and
Berger (2013), Stabilizer.
"""

from __future__ import annotations

import mmap
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from core import wire

PAGE = 4096
ALIGNMENT = 16  # what malloc promises: every array that users feed has at least this
MOST_HEAP_BYTES = 100_000  # below malloc's threshold for mapping, so that it really moves the heap
MOST_PAGES = 255
MOST_FRAMES = 63  # C frames of about half a kilobyte: half a megabyte of stack is never near
MOST_PASSES = 5  # what one pass allocates and frees for its own use may leave another hole
LARGEST_HOLE = 1 << 27  # bytes between two mappings; the ends of the address space are wider

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One layout; it holds what keeps the heap and the mappings where they are."""

    heap_bytes: int = 0
    mapped_pages: int = 0
    stack_frames: int = 0
    buffer_seed: int | None = None  # of the places of buffers in their pages; None: as malloc has it
    _kept: list[object] = field(default_factory=list)

    def facts(self) -> wire.Layout:
        """Return what was drawn, for the record."""
        return {
            "heap_bytes": self.heap_bytes,
            "mapped_pages": self.mapped_pages,
            "stack_frames": self.stack_frames,
            "buffer_offset": self._offset(0),
        }

    def place(self, array: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
        """Return a copy of `array`, the input `number`, at a place of its own within a page.

        Without a draw, or where there is nothing to place, `array` itself.
        """
        if self.buffer_seed is None or array.nbytes == 0 or array.dtype.hasobject:
            return array  # texts lie where Python put them
        raw = np.empty(array.nbytes + 2 * PAGE, np.uint8)
        start = -raw.ctypes.data % PAGE + self._offset(number)
        placed = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        placed[...] = array
        return placed

    def _offset(self, number: int) -> int:
        if self.buffer_seed is None:
            return 0
        return ALIGNMENT * random.Random(self.buffer_seed + number).randrange(PAGE // ALIGNMENT)  # noqa: S311


AS_IT_COMES = Draw()


def draw(seed: int, *, buffers: bool = True) -> Draw:
    """Draw a layout and make it so in this process.

    Args:
        seed: the same seed draws the same, as far as the system lets it.
        buffers: inputs will be placed with `Draw.place`.
    """
    rng = random.Random(seed)  # noqa: S311 - addresses, not secrets
    heap, pages = rng.randrange(MOST_HEAP_BYTES), rng.randrange(MOST_PAGES + 1)
    kept: list[object] = [bytearray(heap)]
    # A mapping goes into the highest hole that holds it, the largest first: then none is left above the draw,
    # in which every child of one parent would find the same place.
    for _ in range(MOST_PASSES):
        if not (holes := _holes()):
            break
        kept += [_reserve(size) for size in sorted(holes, reverse=True)]
    kept.append(_reserve((pages + 1) * PAGE))
    return Draw(
        heap_bytes=heap,
        mapped_pages=pages,
        stack_frames=rng.randrange(MOST_FRAMES + 1),
        buffer_seed=rng.randrange(2**31) if buffers else None,
        _kept=kept,
    )


def _reserve(size: int) -> mmap.mmap:
    """Addresses without memory."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)


def _holes() -> list[int]:
    """Sizes in bytes of the gaps between this process's mappings; none where the system does not tell."""
    gaps: list[int] = []
    end = 0
    try:
        with Path("/proc/self/maps").open() as lines:  # one by one: the whole text would leave a hole itself
            for line in lines:
                start, after = (int(bound, 16) for bound in line.split(maxsplit=1)[0].split("-"))
                if end and 0 < start - end <= LARGEST_HOLE:
                    gaps.append(start - end)
                end = after
    except OSError:
        return []
    return gaps


def at_depth(frames: int, call: Callable[[], Result]) -> Result:
    """Call `call` with `frames` more C frames on the stack than here."""
    if frames <= 0:
        return call()
    return next(map(lambda _: at_depth(frames - 1, call), (None,)))  # `map` is what puts a C frame there
