"""`python -m core`: where the command line meets the process."""

from __future__ import annotations

import os
import sys

from core.process import interrupt

# As `core.cli` says it; loading that is what may be interrupted here.
_LINES = "Error: Stopped by {}.\nHint: Start it again.\n"
_DOCUMENT = (
    '{{"error":{{"type":"Cancelled","message":"Stopped by {}.","hint":"Start it again."}},'
    '"trial":null,"state":"CANCELLED"}}\n'
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupt.end_at_once(_stopped)
    from core.cli import run  # takes a moment

    interrupt.end_at_once()  # `run` listens itself, and says itself how it ended
    code = run(sys.argv[1:])
    interrupt.ignore()
    sys.exit(code)


def _stopped(name: str) -> None:
    if "--json" in sys.argv:
        os.write(1, _DOCUMENT.format(name).encode())
    os.write(2, _LINES.format(name).encode())


if __name__ == "__main__":
    main()
