"""Randomize the memory layout of a process before its session is created.

Two processes of one configuration differ by the addresses of heap, stack and buffers. A forked process
inherits its parent's addresses, so every contestant would have the same layout, and every comparison the same
bias. So each process draws its own layout: heap blocks and mapped pages that stay, C frames on the stack, and
the position of every input in its page. Later allocations of the session, such as outputs and thread stacks,
move with them. Standard library and numpy.

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
ALIGNMENT = 16  # malloc guarantees it: every array that users pass has at least this
MOST_HEAP_BYTES = 100_000  # below malloc's mmap threshold, so that it moves the heap
MOST_PAGES = 255
MOST_FRAMES = 63  # C frames of about 0.5 kB each: far below the stack's limit
MOST_PASSES = 5  # a pass's own allocations may leave another hole
LARGEST_HOLE = 1 << 27  # bytes between two mappings; the gaps at the ends of the address space are wider

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLayout:
    """One layout; it owns the blocks that keep heap and mappings in place."""

    heap_bytes: int = 0
    mapped_pages: int = 0
    stack_frames: int = 0
    buffer_seed: int | None = None  # of the position of buffers in their pages; None: malloc decides
    _kept: list[object] = field(default_factory=list)

    def facts(self) -> wire.Layout:
        """Return the drawn values, for the record."""
        return {
            "heap_bytes": self.heap_bytes,
            "mapped_pages": self.mapped_pages,
            "stack_frames": self.stack_frames,
            "buffer_offset": self._offset(0),
        }

    def place(self, array: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
        """Copy `array`, the input `number`, to its own position within a page.

        Returns `array` itself without a draw, or for arrays that cannot be placed.
        """
        if self.buffer_seed is None or array.nbytes == 0 or array.dtype.hasobject:
            return array  # Python places texts
        raw = np.empty(array.nbytes + 2 * PAGE, np.uint8)
        start = -raw.ctypes.data % PAGE + self._offset(number)
        placed = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        placed[...] = array
        return placed

    def _offset(self, number: int) -> int:
        if self.buffer_seed is None:
            return 0
        return ALIGNMENT * random.Random(self.buffer_seed + number).randrange(PAGE // ALIGNMENT)  # noqa: S311


DEFAULT_LAYOUT = MemoryLayout()


def draw(seed: int, *, buffers: bool = True) -> MemoryLayout:
    """Draw a layout and apply it to this process.

    Args:
        seed: the same seed draws the same layout, as far as the system allows.
        buffers: inputs will be placed with `MemoryLayout.place`.
    """
    rng = random.Random(seed)  # noqa: S311 - addresses, not secrets
    heap, pages = rng.randrange(MOST_HEAP_BYTES), rng.randrange(MOST_PAGES + 1)
    kept: list[object] = [bytearray(heap)]
    # A mapping goes into the highest hole that fits, so the largest are filled first. Otherwise a hole above
    # the draw would remain, and every child of one parent would use the same place.
    for _ in range(MOST_PASSES):
        if not (holes := _holes()):
            break
        kept += [_reserve(size) for size in sorted(holes, reverse=True)]
    kept.append(_reserve((pages + 1) * PAGE))
    return MemoryLayout(
        heap_bytes=heap,
        mapped_pages=pages,
        stack_frames=rng.randrange(MOST_FRAMES + 1),
        buffer_seed=rng.randrange(2**31) if buffers else None,
        _kept=kept,
    )


def _reserve(size: int) -> mmap.mmap:
    """Reserve addresses without memory."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)


def _holes() -> list[int]:
    """Return the bytes of the gaps between this process's mappings; empty if the system does not tell."""
    gaps: list[int] = []
    end = 0
    try:
        with Path("/proc/self/maps").open() as lines:  # by line: the whole text would itself leave a hole
            for line in lines:
                start, after = (int(bound, 16) for bound in line.split(maxsplit=1)[0].split("-"))
                if end and 0 < start - end <= LARGEST_HOLE:
                    gaps.append(start - end)
                end = after
    except OSError:
        return []
    return gaps


def at_depth(frames: int, call: Callable[[], Result]) -> Result:
    """Call `call` with `frames` more C frames on the stack."""
    if frames <= 0:
        return call()
    return next(map(lambda _: at_depth(frames - 1, call), (None,)))  # `map` adds a C frame
