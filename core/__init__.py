"""ORTune without a browser: specs, workers, store, scheduler and command line.

Importing this package loads no library. It only sets the opt-out of ONNX Runtime's telemetry, which must be
set *before* onnxruntime is imported; every process of ORTune imports this package first.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # "0" would not disable it, so a value set outside is replaced

__version__ = "1.0.0"
FORMAT_VERSION = 1  # of JSON documents; a new one where a key is renamed, removed or means something else
