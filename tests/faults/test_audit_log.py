"""Writers of the audit log that are killed at any moment leave whole lines, and no false alarm."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from core.store import audit
from core.wire.files import ROOT
from tests.waiting import wait_until

KILLS = 25
WRITE = """
import sys
from pathlib import Path
from core.store import audit
while True:
    audit.record("change", "x" * 300, folder=Path(sys.argv[1]))
"""


def test_killed_writers_leave_whole_linked_lines(tmp_path: Path) -> None:
    log = tmp_path / "audit" / "audit.jsonl"
    moments = random.Random(0)
    for number in range(KILLS):
        before = log.stat().st_size if log.exists() else 0
        writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path)], cwd=ROOT) for _ in range(2)]
        try:
            wait_until(lambda before=before: log.exists() and log.stat().st_size > before)  # type: ignore[misc]
            time.sleep(moments.uniform(0.0, 0.05))
        finally:
            for one in writers:
                one.kill()
                one.wait()
        found = audit.check(tmp_path)
        assert found.problems == (), f"after kill {number}"
    lines = log.read_bytes().splitlines()
    assert [json.loads(one)["n"] for one in lines] == list(range(1, len(lines) + 1))
