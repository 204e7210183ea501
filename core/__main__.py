"""`python -m core`: where the command line meets the process."""

from __future__ import annotations

import sys

from core.process import interrupt


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupt.end_at_once(interrupt.last_words)
    from core.cli import run  # takes a moment

    interrupt.end_at_once()  # `run` listens itself, and says itself how it ended
    code = run(sys.argv[1:])
    interrupt.ignore()
    sys.exit(code)


if __name__ == "__main__":
    main()
