"""`python -m core`: where the command line meets the process."""

from __future__ import annotations

import sys

from core.cli import run


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
