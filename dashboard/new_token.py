"""`python -m dashboard.new_token NAME ROLE`: make a token, and its lines for the people file."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from dashboard.__main__ import refuse, run
from dashboard.server.people_file import ROLES, TOKEN_NAME, hash_of


def main(
    name: Annotated[str, typer.Argument(help="Name of the token, such as that of its user.")],
    role: Annotated[str, typer.Argument(help=f"One of {', '.join(ROLES)}.")],
) -> None:
    """Make a token: it goes to stderr, once; its lines for the people file go to stdout."""
    if not TOKEN_NAME.fullmatch(name):
        refuse(f"`{name[:80]}` is no name of a token. Use letters, digits, dots, - and _.")
    if role not in ROLES:
        refuse(f"`{role[:80]}` is no role. Use one of {', '.join(ROLES)}.")
    token = secrets.token_urlsafe(32)
    print(f"The token of {name}, shown only now: {token}", file=sys.stderr)  # noqa: T201
    print(f'\n[tokens."{name}"]\nrole = "{role}"\nsha256 = "{hash_of(token)}"')  # noqa: T201


if __name__ == "__main__":
    run(main)
