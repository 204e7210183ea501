"""Every test process: ONNX Runtime sends nothing, set before anything imports it; no deadlines."""

from hypothesis import settings

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY

settings.register_profile("no absolute times", deadline=None)
settings.load_profile("no absolute times")
