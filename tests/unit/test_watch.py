"""Terminal output of a running job."""

from __future__ import annotations

import io

from core.cli.watch import Progress
from core.run.job import Status


def test_nothing_of_others_can_steer_the_terminal() -> None:
    stream = io.StringIO()
    status = Status(
        id="1",
        kind="comparison",
        state="WAITING",
        what="measure \x1b[2Jm",
        place=1,
        holder="\x1b]0;x\x07A\nb: y",
    )
    Progress(stream, quiet=False).show(status)
    assert stream.getvalue() == (
        "measure \\x1b[2Jm: waiting: 1st in line behind \\x1b]0;x\\x07A\\nb: y; "
        "start unknown: a job ahead of it has no prediction\n"
    )
