"""The job `peaks`: measure matrix-multiplication and memory-copy speed with several numbers of threads.

ONNX Runtime's own kernel multiplies two float32 matrices, the second packed like a constant. The copy goes
between two buffers larger than any cache. The reply holds raw times; the parent computes the peaks.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core import wire
from core.wire import Progress, limits
from core.wire.errors import WorkerError
from core.worker.measure import timing
from core.worker.session import build_session

LEAST_SIDE, MOST_SIDE = 1024, 4096  # of the square matrices
OPERATIONS_PER_THREAD = 2 * 1024**3  # takes a thread some tens of milliseconds
COPY_BYTES = 256 << 20  # of each buffer, at least four times the largest cache
CACHES = 4
STEP_S = 1.0  # of one measurement
LEAST_RUNS, MOST_RUNS = 20, 60  # fewer give no interval


def peaks(plan: wire.PeaksPlan, progress: Progress) -> wire.PeaksReply:
    """Time a matrix product and a memory copy with each number of threads.

    Args:
        plan: holds the numbers of threads.
        progress: receives the stage "peaks".

    Raises:
        WorkerError: not enough memory for two buffers larger than the caches.
        TunerError: ONNX Runtime cannot run the product.
    """
    steps = 2 * len(plan["threads"])
    copied, cache = _copied_bytes()
    found: list[wire.PeakTimes] = []
    for number, threads in enumerate(plan["threads"]):
        progress("peaks", 2 * number, steps, f"product of matrices, {threads} threads")
        side = _side(threads)
        product_ns = _product(side, threads)
        gc.collect()  # ends the session's idle threads before the copy
        progress("peaks", 2 * number + 1, steps, f"copy, {threads} threads")
        found.append(
            {
                "threads": threads,
                "operations": 2 * side**3,
                "product_ns": product_ns,
                "moved_bytes": 2 * copied,
                "copy_ns": _copy(copied, threads),
            }
        )
    return {"times": found, "cache_bytes": cache}


def _side(threads: int) -> int:
    """Return a side large enough to give each thread its share, in steps of 256."""
    side: float = (OPERATIONS_PER_THREAD * threads / 2) ** (1 / 3)
    return min(MOST_SIDE, max(LEAST_SIDE, round(side / 256) * 256))


def _product(side: int, threads: int) -> list[int]:
    plan = wire.default_session_plan()
    plan["attributes"]["intra_op_num_threads"] = threads
    random = np.random.default_rng(0)
    session = build_session(_model(side, random), plan).session
    feeds = {"a": random.standard_normal((side, side), dtype=np.float32)}
    return _repeated(lambda: session.run(None, feeds))


def _model(side: int, random: np.random.Generator) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    b = numpy_helper.from_array(random.standard_normal((side, side), dtype=np.float32), "b")
    shape = [side, side]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"], name="product")],
        "peak",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [b],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def _copied_bytes() -> tuple[int, int | None]:
    """Return the size of each buffer, and of the largest cache; None: the system does not tell."""
    cache = _largest_cache()
    wanted = max(COPY_BYTES, CACHES * (cache or 0))
    free = limits.available_memory()
    if wanted * 2 > free // 2:
        raise WorkerError(
            f"A copy larger than the caches needs two buffers of {wanted >> 20} MiB, "
            f"but {free >> 20} MiB are free.",
            hint="Free some memory, or give the container more.",
        )
    return wanted, cache


def _largest_cache() -> int | None:
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = path.read_text().strip()
            sizes.append(int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]])
    return max(sizes, default=None)


def _copy(size: int, threads: int) -> list[int]:
    source, target = np.ones(size // 8), np.zeros(size // 8)  # written, so that their pages exist
    ends = [len(source) * part // threads for part in range(threads + 1)]
    parts = [slice(ends[part], ends[part + 1]) for part in range(threads)]
    with _parallel_runs([partial(np.copyto, target[own], source[own]) for own in parts]) as copy_once:
        return _repeated(copy_once)


@contextlib.contextmanager
def _parallel_runs(tasks: list[Callable[[], Any]]) -> Iterator[Callable[[], None]]:
    """Keep threads that wait between runs; the caller does the first task, numpy releases the lock."""
    gate, end = threading.Barrier(len(tasks)), threading.Barrier(len(tasks))
    over = threading.Event()

    def serve(task: Callable[[], Any]) -> None:
        while True:
            gate.wait()
            if over.is_set():
                return
            task()
            end.wait()

    def once() -> None:
        gate.wait()
        tasks[0]()
        end.wait()

    helpers = [threading.Thread(target=serve, args=(task,), daemon=True) for task in tasks[1:]]
    for one in helpers:
        one.start()
    try:
        yield once
    finally:
        over.set()
        gate.wait()
        for one in helpers:
            one.join()


def _repeated(call: Callable[[], object]) -> list[int]:
    """Time the runs that fit, after two warm-up runs."""
    timing.time_each(call, 2)
    gc.disable()
    try:
        found = timing.time_block(
            call, block_ns=int(STEP_S * 1e9), min_runs=LEAST_RUNS, max_runs=MOST_RUNS, refill=False
        )
    finally:
        gc.enable()
    return found.latencies_ns
