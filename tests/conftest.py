"""Every test process: ONNX Runtime's telemetry is off before anything imports it."""

import core  # noqa: F401 - sets ORT_DISABLE_TELEMETRY
