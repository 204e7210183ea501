"""`python -m dashboard.new_token NAME ROLE`: make a token, and its lines for the people file."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from dashboard.server.people_file import ROLES, TOKEN_NAME, hash_of

EXIT_USAGE = 2


def main(
    name: Annotated[str, typer.Argument(help="Name of the token, such as that of its user.")],
    role: Annotated[str, typer.Argument(help=f"One of {', '.join(ROLES)}.")],
) -> None:
    """Make a token. It is shown once; the people file keeps its hash only."""
    if not TOKEN_NAME.fullmatch(name):
        _refuse(f"`{name[:80]}` is no name of a token. Use letters, digits, dots, - and _.")
    if role not in ROLES:
        _refuse(f"`{role[:80]}` is no role. Use one of {', '.join(ROLES)}.")
    token = secrets.token_urlsafe(32)
    print(  # noqa: T201
        f"# Give this token to its user. It is shown only now: {token}\n"
        f'# Add these lines to the people file:\n[tokens."{name}"]\nrole = "{role}"\n'
        f'sha256 = "{hash_of(token)}"'
    )


def _refuse(message: str) -> None:
    print(f"ortune: {message}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(EXIT_USAGE)


if __name__ == "__main__":
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)
    app.command()(main)
    app()
