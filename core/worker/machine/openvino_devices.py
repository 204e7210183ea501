"""List the devices of OpenVINO, in a process of its own: drivers of devices are native code and can crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from core.wire.files import ROOT
from core.worker import lifeline

TIMEOUT_S = 60.0


def find(*, timeout_s: float = TIMEOUT_S) -> dict[str, str]:
    """Return the devices by OpenVINO's names, each with its full name; empty if they cannot be listed."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", _START]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            timeout=timeout_s,
            check=False,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return {}
    return {str(name): str(full) for name, full in found.items()}


_START = "import sys; del sys.path[0]; from core.worker.machine.openvino_devices import main; main()"


def main() -> None:
    """Print the devices; exit at once, because a driver may crash while it unloads."""
    lifeline.die_with_parent()
    from core.worker.session.openvino_model import devices

    sys.stdout.write("\n" + json.dumps(devices()) + "\n")
    sys.stdout.flush()
    os._exit(0)
