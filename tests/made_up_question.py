"""Stands in for the command of a question: it takes `--budget` seconds, and notes in the home that it ran.

A test that does not know how long a busy machine takes asks for many seconds, and makes the file `END` in the
home when it has seen enough.

Like a real command it writes progress as JSON lines, starts a process of its own, and ends at SIGTERM with a
document that says so.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

DOCUMENT = {"format_version": 1, "state": "COMPLETE", "error": None, "answer": 42}
NOTES = "measured.txt"  # in the home: the key of every question that ran, a line each
END = "end"  # in the home: a question that finds it ends without a further pause


def cancelled(number: int, frame: FrameType | None) -> None:
    """Write the document of a cancelled command, and end."""
    error = {"type": "Cancelled", "message": "Stopped by SIGTERM.", "hint": "Start it again."}
    sys.stdout.write(json.dumps({**DOCUMENT, "state": "CANCELLED", "error": error}))
    sys.stdout.flush()
    os._exit(143)


def seconds() -> float:
    """The value of `--budget`."""
    match = re.search(r"--budget[= ]([\d.]+)", " ".join(sys.argv))
    assert match is not None, sys.argv
    return float(match[1])


def pause(until: float) -> None:
    """Sleep until a moment of the monotonic clock, or until there is the file `END`."""
    end = Path(os.environ["ORTUNE_HOME"], END)
    while (left_s := until - time.monotonic()) > 0 and not end.exists():
        time.sleep(min(left_s, 0.1))


def main() -> None:
    """Answer like a command with `--json`."""
    signal.signal(signal.SIGTERM, cancelled)
    subprocess.Popen(["sleep", "1000"])
    with Path(os.environ["ORTUNE_HOME"], NOTES).open("a") as notes:
        notes.write(f"{Path.cwd().name}\n")
    began, total = time.monotonic(), 20
    for done in range(total):
        line = {"state": "RUNNING", "stage": "rounds", "done": done, "total": total, "text": f"round {done}"}
        sys.stderr.write(f"{json.dumps(line)}\n")
        sys.stderr.flush()
        pause(began + seconds() * (done + 1) / total)
    if "--fail-if-slower" in sys.argv:
        error = {"type": "WorkerError", "message": "The worker crashed.", "hint": "Try again."}
        DOCUMENT.update(state="FAIL", error=error)
    sys.stdout.write(json.dumps({**DOCUMENT, "arguments": sys.argv[1:]}))
    sys.exit(1 if DOCUMENT["error"] else 0)


if __name__ == "__main__":
    main()
