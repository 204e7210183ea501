"""Who may use the server, and in which role: from the people file, or from the two variables without one.

The file is TOML. It names e-mail addresses and @domains, values of a claim of the OpenID provider, and tokens
by their hashes. Anything in it that is not understood is refused with its line.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

from core.wire.errors import SpecError
from core.wire.files import open_regular

Role = Literal["viewer", "engineer", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each may do what those before it may do

MOST_BYTES = 1 << 20
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
_DOMAIN = re.compile(r"@[^@\s]+")
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_GROUPS = 1000  # values of a claim that are compared

Key = tuple[str, ...]  # of a value in the file, with its tables


@dataclass(frozen=True, slots=True)
class Token:
    """A token that a visitor may enter; the token itself is not kept."""

    name: str  # empty: the one that all visitors share
    sha256: str
    role: Role

    @property
    def person(self) -> str:
        """Return the id of who uses it."""
        return f"token:{self.name}" if self.name else "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Limits of each person but admins; None: no limit."""

    upload_bytes: int | None = None  # uploaded and not imported yet
    disk_bytes: int | None = None  # models, raw measurements, bundles and other files of results
    machine_s_per_day: int | None = None  # of jobs, within 24 hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Who has which role; nobody else has access."""

    addresses: Mapping[str, Role] = field(default_factory=dict)  # in lower case
    domains: Mapping[str, Role] = field(default_factory=dict)  # "@example.org"
    claim: str = ""  # of the provider; its values have roles
    claim_roles: Mapping[str, Role] = field(default_factory=dict)
    everyone: Role | None = None  # whom the provider authenticates
    tokens: tuple[Token, ...] = ()
    quotas: Quotas = field(default_factory=Quotas)

    def token(self, given: str) -> Token | None:
        """Return the token that a visitor entered; None: there is no such token."""
        digest = hash_of(given)
        found = [one for one in self.tokens if hmac.compare_digest(one.sha256, digest)]
        return found[0] if found else None

    def role_of(self, claims: Mapping[str, Any]) -> Role | None:
        """Return the role of a person whom the provider authenticated; None: no access.

        The address decides first, then the claim, then the domain. An address that the provider reports as
        unverified counts for nothing. Of several values of the claim, the one with the highest role counts.
        """
        email = verified_address(claims)
        if email in self.addresses:
            return self.addresses[email]
        found = [self.claim_roles[one] for one in self.groups(claims) if one in self.claim_roles]
        if found:
            return max(found, key=ROLES.index)
        domain = self.domains.get(f"@{email.rpartition('@')[2]}") if email else None
        return domain or self.everyone

    def groups(self, claims: Mapping[str, Any]) -> list[str]:
        """Return the values of the claim that has roles; `a.b` is also the part `b` of the claim `a`."""
        if not self.claim:
            return []
        value: Any = claims.get(self.claim)
        if value is None:
            value = claims
            for part in self.claim.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        values = value if isinstance(value, list) else [value]
        return [one for one in values[:_MOST_GROUPS] if isinstance(one, str)]


def verified_address(claims: Mapping[str, Any]) -> str:
    """Return the e-mail address of a person in lower case; empty: none, or the provider doubts it."""
    email = claims.get("email")
    doubted = str(claims.get("email_verified", "")).lower() == "false"  # some providers write it as text
    if doubted or not isinstance(email, str) or not _ADDRESS.fullmatch(email.strip()):
        return ""
    return email.strip().lower()


def hash_of(token: str) -> str:
    """Return the hash of a token, as the file holds it."""
    return hashlib.sha256(token.encode()).hexdigest()


def without_file(users: str, token: str) -> Rules:
    """Return the rules of a server without a people file: everybody with a login is an admin.

    Args:
        users: `$ORTUNE_USERS`: e-mail addresses or @domains; empty: all users of the provider.
        token: `$ORTUNE_TOKEN`, which visitors share; empty: there is none.
    """
    listed = {one.strip().lower() for one in users.split(",") if one.strip()}
    return Rules(
        addresses={one: "admin" for one in listed if not one.startswith("@")},
        domains={one: "admin" for one in listed if one.startswith("@")},
        everyone=None if listed else "admin",
        tokens=shared(token),
    )


def shared(token: str) -> tuple[Token, ...]:
    """Return the token that all visitors share, if there is one; it gives the role admin."""
    return (Token("", hash_of(token), "admin"),) if token else ()


def read(path: Path, token: str = "") -> Rules:
    """Read the people file.

    Args:
        path: of the file.
        token: `$ORTUNE_TOKEN`, valid besides those of the file; empty: there is none.

    Raises:
        SpecError: it cannot be read, others may change it, or something in it is not understood.
    """
    return _Reader(path).rules(token)


class _Reader:
    """Reads one people file; `self.at` knows the lines of its keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = self._text()
        try:
            self.data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:  # names the line
            raise self._wrong((), f"this is no TOML: {error}") from None
        self.at = dict(_lines(text))

    def _text(self) -> str:
        try:
            with open_regular(self.path) as file:
                mode = os.fstat(file.fileno()).st_mode
                body = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise SpecError(
                f"The people file `{self.path}` cannot be read: {error.strerror or error}.",
                hint="Name a file that this user may read in ORTUNE_PEOPLE.",
            ) from None
        if os.name == "posix" and mode & 0o022:
            raise SpecError(
                f"Other users of this machine may change the people file `{self.path}`.",
                hint=f"Run: chmod go-w {self.path}",
            )
        if len(body) > MOST_BYTES:
            raise self._wrong((), f"it is larger than {MOST_BYTES:,} bytes")
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise self._wrong((), "it is not UTF-8") from None

    def _wrong(self, key: Key, what: str) -> SpecError:
        """Return the error for a value, with its line or that of its table."""
        known: Mapping[Key, int] = getattr(self, "at", {})
        line = next((known[key[:size]] for size in range(len(key), 0, -1) if key[:size] in known), 0)
        place = f"line {line} of the people file `{self.path}`" if line else f"the people file `{self.path}`"
        return SpecError(f"In {place}: {what}.", hint="Correct the file.")

    def rules(self, token: str) -> Rules:
        self._known((), self.data, "people", "claim", "tokens", "quotas")
        listed = {
            name.lower(): self._role(("people", name), role) for name, role in self._table("people").items()
        }
        if len(listed) < len(self._table("people")):
            raise self._wrong(("people",), "an address stands there twice, in upper and lower case")
        for name in self._table("people"):
            if not (_ADDRESS.fullmatch(name) or _DOMAIN.fullmatch(name)):
                raise self._wrong(("people", name), f"`{name}` is neither an e-mail address nor an @domain")
        claim, claim_roles = self._claim()
        tokens = tuple(self._token(name, value) for name, value in self._table("tokens").items())
        if len({one.sha256 for one in tokens}) < len(tokens):
            raise self._wrong(("tokens",), "two tokens have the same hash")
        if not (listed or claim or tokens):
            raise self._wrong((), "it lists no person, claim or token")
        return Rules(
            addresses={name: role for name, role in listed.items() if not name.startswith("@")},
            domains={name: role for name, role in listed.items() if name.startswith("@")},
            claim=claim,
            claim_roles=claim_roles,
            tokens=(*tokens, *shared(token)),
            quotas=self._quotas(),
        )

    def _quotas(self) -> Quotas:
        table = self._table("quotas")
        self._known(("quotas",), table, *(one.name for one in fields(Quotas)))
        for name, value in table.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                said = f"`{name}` must be a whole number of 0 or more, but is `{str(value)[:80]}`"
                raise self._wrong(("quotas", name), said)
        return Quotas(**table)

    def _claim(self) -> tuple[str, Mapping[str, Role]]:
        table = self._table("claim")
        if not table:
            return "", {}
        self._known(("claim",), table, "name", "roles")
        name, roles = table.get("name"), table.get("roles")
        if not isinstance(name, str) or not name.strip():
            raise self._wrong(("claim", "name"), '`name` must be the name of a claim, such as "groups"')
        if not isinstance(roles, dict) or not roles:
            raise self._wrong(("claim", "roles"), "`roles` must give values of the claim a role each")
        return name, {one: self._role(("claim", "roles", one), role) for one, role in roles.items()}

    def _token(self, name: str, value: object) -> Token:
        key = ("tokens", name)
        if not TOKEN_NAME.fullmatch(name):
            raise self._wrong(key, f"`{name[:80]}` is no name of a token: letters, digits, dots, - and _")
        if not isinstance(value, dict):
            raise self._wrong(key, f"the token `{name}` must be a table with `role` and `sha256`")
        self._known(key, value, "role", "sha256")
        digest = value.get("sha256")
        if not isinstance(digest, str) or not _SHA256.fullmatch(digest.lower()):
            how = "python -m dashboard.new_token"
            raise self._wrong((*key, "sha256"), f"`sha256` must be 64 hexadecimal digits, as `{how}` prints")
        return Token(name, digest.lower(), self._role((*key, "role"), value.get("role")))

    def _table(self, name: str) -> Mapping[str, Any]:
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            raise self._wrong((name,), f"`{name}` must be a table: [{name}]")
        return cast("Mapping[str, Any]", value)

    def _known(self, key: Key, table: Mapping[str, Any], *names: str) -> None:
        for one in table:
            if one not in names:
                known = ", ".join(f"`{name}`" for name in names)
                raise self._wrong((*key, one), f"`{one[:80]}` is unknown here. Write one of {known}")

    def _role(self, key: Key, value: object) -> Role:
        if value not in ROLES:
            said = "there is no `role`" if value is None else f"`{str(value)[:80]}` is no role"
            raise self._wrong(key, f"{said}. Roles are {', '.join(ROLES)}")
        return value


def _lines(text: str) -> Iterator[tuple[Key, int]]:
    """Yield the keys and tables of a valid file with their lines, as far as each stands on one line."""
    table: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            keys = _keys(tomllib.loads(line))
        except tomllib.TOMLDecodeError:
            continue
        if line.lstrip().startswith("["):
            table = keys[0] if keys else table
            yield table, number
        else:
            yield from (((*table, *key), number) for key in keys)


def _keys(data: Mapping[str, Any]) -> list[Key]:
    found: list[Key] = []
    for name, value in data.items():
        inner = _keys(value) if isinstance(value, dict) else []
        found += [(name, *key) for key in inner] or [(name,)]
    return found
