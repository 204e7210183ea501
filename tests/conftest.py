"""Every test process is small and has no deadlines; ONNX Runtime sends nothing, set before its import."""

import os
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import settings

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY

settings.register_profile("no absolute times", deadline=None)
settings.load_profile("no absolute times")

os.environ.pop("COLUMNS", None)  # xdist sets it in its workers; text would be as wide as its own terminal

MOST_BYTES = 1500 << 20


@pytest.fixture(autouse=True, scope="module")
def small_process() -> Iterator[None]:
    """Libraries that are loaded here stay, and several such processes run at once."""
    before = psutil.Process().memory_info().rss
    yield
    after = psutil.Process().memory_info().rss
    assert after < MOST_BYTES, f"{before >> 20} MiB before these tests, {after >> 20} MiB after"
