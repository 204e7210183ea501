"""Python scripts that a user takes along, executed: in a fresh Python, or in a fork of one that is ready.

Loading numpy, onnx and ONNX Runtime takes ten times as long as most of the scripts. A process that has them
loaded forks for each script, which has its own globals, folder, output and end, as in a Python of its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

NAME = "script.py"
SECONDS = 120

READY = """
import gc, os, runpy, sys, traceback
import numpy, onnx, onnxruntime

def run():
    try:
        runpy.run_path(NAME, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0

gc.collect()
gc.freeze()
for folder in sys.stdin:
    child = os.fork()
    if not child:
        os.chdir(eval(folder))
        for descriptor, name in enumerate((os.devnull, "stdout", "stderr")):
            os.dup2(os.open(name, os.O_CREAT | os.O_RDWR, 0o600), descriptor)
        sys.argv = [NAME]
        code = run()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # to take down what was loaded takes longer than most scripts
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def execute(script: str, folder: Path, *, fresh: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a script in `folder`, where a warning is an error.

    Args:
        script: its text.
        folder: its working directory, in which it is written.
        fresh: in a Python that has loaded nothing; a system that cannot fork always does so.
    """
    (folder / NAME).write_text(script, encoding="utf-8")
    if fresh or not hasattr(os, "fork"):
        command = [sys.executable, "-W", "error", NAME]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    code = _ready().run(folder)
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
    for name in ("stdout", "stderr"):
        (folder / name).unlink()
    return subprocess.CompletedProcess([NAME], code, *texts)


class _Ready:
    """The process that forks; it ends with its stdin, and so with this process at the latest."""

    def __init__(self) -> None:
        # no fork carries threads over: neither numpy nor the telemetry of ONNX Runtime may start any
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", f"NAME = {NAME!r}\n{READY}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        atexit.register(self.process.communicate)

    def run(self, folder: Path) -> int:
        """Run the script that lies in a folder, and return how it ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(str(folder)) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@functools.cache
def _ready() -> _Ready:
    """One for all tests of this process."""
    return _Ready()
