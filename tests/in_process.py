"""Jobs of workers, done in this process: a start of Python takes longer than most of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from core.wire import limits
from core.worker.__main__ import JOBS


def run(job: str, payload: Mapping[str, Any], **how: Any) -> Any:
    """Do what `core.process.runner.run_job` has a worker do; what crosses the pipe is JSON here, too.

    Args:
        job: its name.
        payload: what it is given.
        how: limits of a worker, which there is none of.

    Raises:
        TunerError: as the job raises it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "cap_memory", lambda: None)  # this process is another's
        reply = JOBS[job](json.loads(json.dumps(payload)), lambda *progress: None)
    return json.loads(json.dumps(reply))
