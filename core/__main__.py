"""Entry point of `python -m core`: signal handlers and exit code of the command line."""

from __future__ import annotations

import sys

from core.process import interrupt


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupt.end_at_once(interrupt.last_words)
    from core.cli import run  # a slow import

    interrupt.end_at_once()  # `run` sets its own handlers and reports the signal itself
    code = run(sys.argv[1:])
    interrupt.ignore()
    sys.exit(code)


if __name__ == "__main__":
    main()
