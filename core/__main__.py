"""Entry point of `python -m core`: signal handlers and exit code of the command line."""

from __future__ import annotations

import sys

from core.process import interrupt


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupt.exit_on_signals(interrupt.signal_message)
    from core.cli import run  # a slow import

    interrupt.exit_on_signals()  # `run` sets its own handlers and reports the signal itself
    code = run(sys.argv[1:])
    interrupt.ignore_signals()
    sys.exit(code)


if __name__ == "__main__":
    main()
