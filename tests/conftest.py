"""Every test process is small and has no deadlines; ONNX Runtime sends nothing, set before its import."""

import importlib
import os
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import settings

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY

settings.register_profile("no absolute times", deadline=None)
settings.load_profile("no absolute times")

os.environ.pop("COLUMNS", None)  # xdist sets it in its workers; text would be as wide as its own terminal

with pytest.MonkeyPatch.context() as patch:
    # Two processes test at a time: the threads that numpy starts else would wait for each other, busily.
    patch.setenv("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("numpy")

MOST_BYTES = 1500 << 20


def own_bytes() -> int:
    """Memory of this process without the pages of files: those are the cache's, which gives them back."""
    info = psutil.Process().memory_info()
    return int(info.rss - getattr(info, "shared", 0))


@pytest.fixture(autouse=True, scope="module")
def small_process() -> Iterator[None]:
    """What is loaded here stays, and several such processes run at once."""
    before = own_bytes()
    yield
    after = own_bytes()
    assert after < MOST_BYTES, f"{before >> 20} MiB before these tests, {after >> 20} MiB after"
