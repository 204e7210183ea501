"""Every test process: ONNX Runtime sends nothing, set before anything imports it; no deadlines."""

import os

from hypothesis import settings

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY

settings.register_profile("no absolute times", deadline=None)
settings.load_profile("no absolute times")

os.environ.pop("COLUMNS", None)  # xdist sets it in its workers; text would be as wide as its own terminal
