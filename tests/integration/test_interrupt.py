"""A signal in the first second, when the libraries are still loading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serving import free_port
from tests.waiting import WAIT_S

ROOT = Path(__file__).parents[2]
MODULES = ("core", "dashboard")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to know when somebody listens")


def start(tmp_path: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "ORTUNE_HOME": str(tmp_path), "ORTUNE_QUEUE": str(tmp_path / "queue")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def arguments(module: str) -> list[str]:
    return ["history", "--json"] if module == "core" else ["--port", str(free_port())]


def await_listener(process: subprocess.Popen[str]) -> None:
    """Wait until SIGTERM has a handler: Python itself sets none."""
    bit, deadline = 1 << (signal.SIGTERM - 1), time.monotonic() + WAIT_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if any(int(line.split()[1], 16) & bit for line in lines if line.startswith("SigCgt")):
            return
        time.sleep(0.001)
    raise AssertionError("nobody ever listened")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", MODULES)
def test_it_ends_the_program_without_a_traceback(tmp_path: Path, module: str, number: signal.Signals) -> None:
    ended = 0
    for turn, delay_s in enumerate((0.0, 0.2, *[0.0] * 8)):
        if turn > 1 and ended:
            break  # the others are for a machine so busy that both commands were quicker than their signals
        process = start(tmp_path, module, *arguments(module))
        await_listener(process)
        time.sleep(delay_s)
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)
        assert "Traceback" not in err
        if process.returncode == 0 and module == "core":
            continue  # it was quicker
        assert process.returncode == 128 + number, (delay_s, err)
        ended += 1
        if module == "core":
            document = json.loads(out)
            assert (document["state"], document["trial"]) == ("CANCELLED", None)
            assert number.name in document["error"]["message"]
            assert [text.split(": ")[0] for text in err.splitlines()] == ["Error", "Hint"]
    assert ended


def test_nothing_heavy_is_loaded_before_somebody_listens() -> None:
    heavy = ("typer", "pydantic", "json", "core.cli")
    code = f"import sys, core.__main__\nprint([one for one in {heavy} if one in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
