"""ORTune without a browser: specs, workers, store, scheduler and command line.

Importing this package costs nothing and loads no library. It does one thing: ONNX Runtime's wheels send
telemetry unless told otherwise *before* they are imported, so the opt-out is set here, where every
process of ORTune passes.
"""

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # "0" would not disable it, so a value set outside is replaced

__version__ = "1.0.0"
FORMAT_VERSION = 1  # of JSON documents; a new one where a key is renamed, removed or means something else
