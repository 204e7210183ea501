"""Who uses the server: the person of a browser session, and what its role allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from core.wire.errors import SpecError

Role = Literal["viewer", "engineer", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may do


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who uses this server."""

    id: str  # an e-mail address, "token:NAME", or "local"
    name: str
    role: Role

    def may_act_as(self, role: Role) -> bool:
        """Whether this person may do what `role` may do."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Person("local", "local", "admin")  # without login, and the server's own threads


def person() -> Person:
    """Return the person of this browser session; `LOCAL` without login and in a thread without a session."""
    return LOCAL


def require(role: Role) -> None:
    """Continue for a person who may act as `role`.

    Raises:
        SpecError: the person may not.
    """
    one = person()
    if not one.may_act_as(role):
        raise SpecError(
            f"This needs the role {role}. {one.name} has the role {one.role}.",
            hint="Ask an admin of this server.",
        )
