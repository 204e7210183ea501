"""Test whether an execution provider loads on this machine, by loading it.

`onnxruntime.get_available_providers()` lists only what was compiled in. Loading a provider runs native
driver code and can crash, so each provider is tried in a process of its own, which runs this module.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import core
from core import wire
from core.wire.errors import TunerError
from core.wire.runtime import IDENTITY_MODEL
from core.worker import lifeline

CPU = "CPUExecutionProvider"
TIMEOUT_S = 120.0  # TensorRT's first load on a cold machine takes tens of seconds

# `-P` does not exist before Python 3.11
_MODULE = "core.worker.machine.provider_probe"
_START = f"import sys, runpy; del sys.path[0]; runpy.run_module('{_MODULE}', run_name='__main__')"


def probe(names: Sequence[str], *, timeout_s: float = TIMEOUT_S) -> list[wire.ProviderFact]:
    """Try all providers of `names` in parallel, each in its own process; the CPU provider always loads."""
    children = {name: _start(name) for name in names if name != CPU}
    try:
        return [_fact(name, children.get(name), timeout_s) for name in names]
    finally:
        for child in children.values():
            child.kill()
            child.communicate()


def _start(name: str) -> subprocess.Popen[bytes]:
    code = Path(core.__file__).parents[1]  # links not followed: beside their target may be other libraries
    path = os.pathsep.join([str(code), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-c", _START, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _fact(name: str, child: subprocess.Popen[bytes] | None, timeout_s: float) -> wire.ProviderFact:
    if child is None:
        return {"name": name, "loadable": True, "reason": "", "remedy": ""}
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        reason = f"{name} did not load within {timeout_s:.0f} s."
        return {"name": name, "loadable": False, "reason": reason, "remedy": "Restart the machine's driver."}
    return fact_from_output(name, output, child.returncode)


def fact_from_output(name: str, output: bytes, code: int) -> wire.ProviderFact:
    """Build the result from a child's last output line, or report a crash from its exit code."""
    lines = output.splitlines()
    try:
        answer = json.loads(lines[-1]) if code == 0 and lines else None
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return {
            "name": name,
            "loadable": not answer["reason"],
            "reason": answer["reason"],
            "remedy": answer["remedy"],
        }
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"
    reason = f"Loading {name} ended the process {how}."
    return {
        "name": name,
        "loadable": False,
        "reason": reason,
        "remedy": "Check the versions of its libraries.",
    }


def main() -> None:
    """Try the provider named on the command line; print one line of JSON."""
    from core.worker.session import build_session

    lifeline.die_with_parent()
    plan: wire.SessionPlan = {
        **wire.default_session_plan(),
        "providers": [{"name": sys.argv[1], "options": {}}],
    }
    answer = {"reason": "", "remedy": ""}
    try:
        build_session(IDENTITY_MODEL, plan)
    except TunerError as error:
        answer = {"reason": error.message, "remedy": error.hint}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # the result is printed: a driver that crashes while unloading does not matter


if __name__ == "__main__":
    main()
