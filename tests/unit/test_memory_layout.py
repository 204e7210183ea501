"""The memory layout of a process: the same seed gives the same layout, and the report is true."""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from core import wire
from core.worker.measure import memory_layout
from core.worker.measure.memory_layout import (
    ALIGNMENT,
    DEFAULT_LAYOUT,
    MOST_FRAMES,
    MOST_HEAP_BYTES,
    MOST_PAGES,
    PAGE,
    MemoryLayout,
    at_depth,
    draw,
)
from tests.waiting import wait_until

SEEDS = range(200)
SOME = range(40)


def drawn_alone(seed: int) -> MemoryLayout:
    """The drawn layout, without a search for holes between the mappings of this large process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_layout, "_holes", lambda: [])
        return draw(seed)


# --- what is drawn ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> list[wire.Layout]:
    return [drawn_alone(seed).facts() for seed in SEEDS]


def test_the_same_seed_draws_the_same_and_others_differ(drawn: list[wire.Layout]) -> None:
    assert draw(7).facts() == drawn[7]
    assert len({tuple(one.items()) for one in drawn}) == len(drawn)
    for name, least in (
        ("heap_bytes", 190),
        ("mapped_pages", 120),
        ("stack_frames", 50),
        ("buffer_offset", 120),
    ):
        assert len({one[name] for one in drawn}) >= least  # type: ignore[literal-required]


def test_every_part_is_drawn_from_all_of_its_range(drawn: list[wire.Layout]) -> None:
    for name, most in (
        ("heap_bytes", MOST_HEAP_BYTES - 1),
        ("mapped_pages", MOST_PAGES),
        ("stack_frames", MOST_FRAMES),
        ("buffer_offset", PAGE - ALIGNMENT),
    ):
        found = [one[name] for one in drawn]  # type: ignore[literal-required]
        assert 0 <= min(found) <= 0.05 * most
        assert 0.95 * most <= max(found) <= most
        assert sum(found) / len(found) == pytest.approx(most / 2, rel=0.15)
    assert all(one["buffer_offset"] % ALIGNMENT == 0 for one in drawn)


def test_without_a_draw_everything_is_as_it_comes() -> None:
    assert set(DEFAULT_LAYOUT.facts().values()) == {0}
    array = np.arange(5.0)
    assert DEFAULT_LAYOUT.place(array, 0) is array


def test_what_was_drawn_is_held_for_as_long_as_the_draw() -> None:
    one = next(found for found in map(draw, SEEDS) if found.mapped_pages > 100)
    sizes = [len(kept) for kept in one._kept]  # type: ignore[arg-type]
    assert (sizes[0], sizes[-1]) == (one.heap_bytes, (one.mapped_pages + 1) * PAGE)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mapped_pages_move_what_is_mapped_later() -> None:
    """They stay in the address space of the process, where the next mapping would have gone."""
    before = _mapped_bytes()
    held = [draw(seed) for seed in SEEDS[:20]]
    wanted = sum(one.mapped_pages + 1 for one in held) * PAGE
    assert _mapped_bytes() - before >= wanted
    del held
    gc.collect()
    assert _mapped_bytes() - before < wanted / 2


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("pages", [40, 300])  # from 2 MiB on the kernel aligns to large pages
def test_they_move_it_though_the_parent_has_holes_of_every_size(pages: int) -> None:
    """A parent that has imported much has them, and every child would find the same one."""
    held = [mmap.mmap(-1, (size + 2) * PAGE) for size in (64, 800, 6000) for _ in range(8)]
    for one in held[::2]:
        one.close()
    places = {_place_in_a_child(seed, pages) for seed in range(12)}
    assert len(places) >= 10


def _place_in_a_child(seed: int, pages: int) -> int:
    """Where a child that drew a layout gets its next `pages` from."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        kept = draw(seed)
        os.write(writer, str(np.frombuffer(mmap.mmap(-1, pages * PAGE), np.uint8).ctypes.data).encode())
        os._exit(0 if kept else 1)
    os.close(writer)
    place = int(os.read(reader, 64))
    os.close(reader)
    os.waitpid(child, 0)
    return place


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


# --- buffers ----------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    arrays.arrays(
        dtype=st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]),
        shape=arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    ),
    st.integers(0, 50),
    st.integers(0, 6),
)
def test_a_buffer_keeps_its_values_and_is_aligned_and_contiguous(array: Any, seed: int, number: int) -> None:
    placed = drawn_alone(seed).place(array, number)
    assert placed.dtype == array.dtype
    assert placed.shape == array.shape
    np.testing.assert_array_equal(placed, array)
    if array.nbytes:
        assert placed.flags["C_CONTIGUOUS"]
        assert placed.flags["ALIGNED"]
        assert placed.flags["WRITEABLE"]
        assert placed.ctypes.data % ALIGNMENT == 0
        assert not np.shares_memory(placed, array)


def test_a_buffer_lies_where_the_draw_says_in_its_page() -> None:
    for seed in SOME:
        one = drawn_alone(seed)
        placed = one.place(np.ones((3, 5), np.float32), 0)
        assert placed.ctypes.data % PAGE == one.facts()["buffer_offset"]
        assert one.place(np.ones((1000, 7)), 0).ctypes.data % PAGE == one.facts()["buffer_offset"]


def test_every_input_has_a_place_of_its_own() -> None:
    one = draw(3)
    places = [one.place(np.ones(8, np.float32), number).ctypes.data % PAGE for number in range(40)]
    assert len(set(places)) > 30
    same = draw(3)
    again = [same.place(np.ones(8, np.float32), number).ctypes.data % PAGE for number in range(40)]
    assert places == again


def test_a_buffer_outlives_what_it_was_copied_from() -> None:
    array = np.arange(100_000, dtype=np.float32)
    placed = draw(1).place(array, 0)
    expected = array.sum()
    del array
    gc.collect()
    noise = [np.full(100_000, 7.0, np.float32) for _ in range(5)]
    assert placed.sum() == expected
    assert len(noise) == 5


@pytest.mark.parametrize(
    "array",
    [np.ones((4, 6), np.float32).T, np.arange(24).reshape(2, 3, 4)[:, ::2], np.asfortranarray(np.eye(4))],
)
def test_what_was_not_contiguous_is(array: Any) -> None:
    placed = draw(2).place(array, 1)
    assert placed.flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(placed, array)


def test_where_there_is_nothing_to_place_nothing_is_copied() -> None:
    empty = np.empty((0, 16), np.float32)
    assert draw(1).place(empty, 0) is empty


# --- the stack --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [-1, 0, 1, 2, MOST_FRAMES])
def test_a_call_at_any_depth_returns_its_value_and_passes_its_exceptions(frames: int) -> None:
    value = object()
    assert at_depth(frames, lambda: value) is value
    assert at_depth(frames, lambda: None) is None

    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        at_depth(frames, fail)


def test_it_is_called_once() -> None:
    calls: list[int] = []
    at_depth(MOST_FRAMES, lambda: calls.append(1))
    assert calls == [1]


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the kernel does not show stack pointers")
def test_more_frames_move_the_stack_down_each_by_as_much() -> None:
    """Read where a thread's stack ends while it waits in the kernel, at several depths one after another."""
    depths = [0, 1, 2, 8, 16, 32, MOST_FRAMES]
    pointers = _stack_pointers(depths)
    distances = [pointers[0] - one for one in pointers]
    assert distances[0] == 0
    steps = [
        (far - near) / (deep - shallow)
        for (near, far), (shallow, deep) in zip(
            itertools.pairwise(distances), itertools.pairwise(depths), strict=True
        )
    ]
    assert all(200 <= step <= 2000 for step in steps), steps  # "about half a kilobyte"
    assert distances[-1] < 1 << 18  # a thread's stack has 8 MiB, a frozen limit of some systems 512 KiB


def _stack_pointers(depths: list[int]) -> list[int]:
    """A pipe for each depth says at which of them the thread waits."""
    pipes = [os.pipe() for _ in depths]
    waits = [(frames, own) for frames, (own, _) in zip(depths, pipes, strict=True)]

    def wait_at_each() -> None:
        for frames, own in waits:
            at_depth(frames, lambda own=own: os.read(own, 1))  # type: ignore[misc]

    thread = threading.Thread(target=wait_at_each, daemon=True)
    thread.start()
    found = []
    for own, other in pipes:
        found.append(_waiting(thread, own))
        os.write(other, b"x")
    thread.join(5)
    for end in itertools.chain(*pipes):
        os.close(end)
    return found


def _waiting(thread: threading.Thread, pipe: int) -> int:
    """The stack pointer of a thread, once it waits for a byte of that pipe."""
    fields: list[str] = []

    def waits() -> bool:
        fields[:] = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()
        return len(fields) == 9 and int(fields[1], 16) == pipe

    wait_until(waits, "The thread never waited.")
    return int(fields[-2], 16)
