"""Who uses the server: the person of a browser session, and what its role allows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from core.store import audit
from core.wire.errors import SpecError, TunerError
from dashboard.server import people_file
from dashboard.server.login_sessions import PERSON, LoginSession, LoginSessions, cookie_in
from dashboard.server.people_file import ROLES, Quotas, Role, Rules, Token

FOLLOWING = "following"  # session key: token of the presentation that this session follows
_SESSION = "people.session"  # session key: key of the login session, for a moment without connection
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who uses this server."""

    id: str  # an e-mail address, "token:NAME", "token" for the shared token, or "local"
    name: str
    role: Role

    def may_act_as(self, role: Role) -> bool:
        """Whether this person may do what `role` may do."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Person("local", "local", "admin")  # without login, and the server's own threads
NOBODY = Person("", "no person", "viewer")  # whose session has ended while its page was still open


class PeopleFile:
    """The people file, read anew when it changes; a change with a mistake is logged and has no effect."""

    def __init__(self, path: Path, token: str = "") -> None:
        """Read the file; raises as `people_file.read` does."""
        self._path, self._token = path, token
        self._lock = threading.Lock()
        self._stamp = self._now()
        self._rules = people_file.read(path, token)

    def _now(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def __call__(self) -> Rules:
        """Return the present rules."""
        with self._lock:
            stamp = self._now()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._rules = people_file.read(self._path, self._token)
                    audit.record("change", "people file read again", who="")
                except TunerError as error:
                    _log.error("%s The rules before it stay in force.", error.message)
            return self._rules


class Access:
    """What decides who a request comes from: the rules, and the sessions of those who logged in."""

    def __init__(
        self, rules: Callable[[], Rules], sessions: LoginSessions, providers: Mapping[str, str]
    ) -> None:
        """Decide for a server with a login.

        Args:
            rules: the present ones.
            sessions: of this home.
            providers: labels of the OpenID providers by their names.
        """
        self.rules, self.sessions, self.providers = rules, sessions, providers

    def log_in_by_token(self, given: str) -> str | None:
        """Begin a session of the person with this token; return its cookie; None: there is no such token."""
        token = self.rules().token(given)
        if token is None:
            return None
        return self._begin(_of_token(token), token=token.sha256)

    def log_in_by_claims(self, claims: Mapping[str, Any]) -> str | None:
        """Begin a session of whom a provider authenticated; return its cookie; None: no access."""
        rules = self.rules()
        one = _of_claims(claims, rules)
        if one is None:
            audit.record("log-in-refused", "provider", who=_id(claims))
            return None
        names = ("iss", "sub", "email", "email_verified", "name")
        kept = {name: claims[name] for name in names if isinstance(claims.get(name), (str, bool))}
        if rules.claim:
            kept[rules.claim] = rules.groups(claims)
        return self._begin(one, claims=kept)

    def _begin(self, one: Person, **proof: Any) -> str:
        cookie = self.sessions.begin(one.id, **proof)
        audit.record("log-in", "dashboard", who=one.id, role=one.role)
        return cookie

    def person(self, session: LoginSession) -> Person | None:
        """Return the person of a session by the present rules; None: no longer one with access."""
        rules = self.rules()
        if not session.token:  # of a provider, which the operator may have removed since
            return _of_claims(session.claims, rules) if self.providers else None
        return next((_of_token(one) for one in rules.tokens if one.sha256 == session.token), None)

    def find(self, cookie: str) -> tuple[LoginSession, Person] | None:
        """Return the session and the person of a cookie; None: nobody is logged in by it."""
        return self._with_person(self.sessions.find(cookie))

    def get(self, key: str) -> tuple[LoginSession, Person] | None:
        """Return a session by its key, as `find` does."""
        return self._with_person(self.sessions.get(key))

    def _with_person(self, session: LoginSession | None) -> tuple[LoginSession, Person] | None:
        one = self.person(session) if session is not None else None
        return (session, one) if session is not None and one is not None else None


def _id(claims: Mapping[str, Any]) -> str:
    return people_file.verified_address(claims) or f"oidc:{claims.get('iss', '')}:{claims.get('sub', '')}"


def _of_claims(claims: Mapping[str, Any], rules: Rules) -> Person | None:
    role = rules.role_of(claims)
    name = _id(claims)
    return Person(name, str(claims.get("email") or claims.get("name") or name), role) if role else None


def _of_token(token: Token) -> Person:
    return Person(token.person, token.name or "Shared token", token.role)


# --- the browser session ----------------------------------------------------------------------------------


class _Served:
    access: Access | None = None  # None: a server without login


def use(access: Access | None) -> None:
    """Set who has access to this process; call once, before it serves."""
    _Served.access = access
    audit.name_people(lambda: person().id)


def quotas() -> Quotas:
    """Return the present limits of each person; none without login."""
    return Quotas() if _Served.access is None else _Served.access.rules().quotas


def has_login() -> bool:
    """Whether visitors of this server log in."""
    return _Served.access is not None


def remember_session() -> None:
    """Keep the login of this browser session for a moment without connection; call in every run."""
    if _Served.access is not None and (found := _Served.access.find(_cookie())):
        st.session_state[_SESSION] = found[0].key


def _cookie() -> str:
    return cookie_in(st.context.headers.get_all("cookie"))


def _present() -> tuple[LoginSession, Person] | None:
    """Return login and person of this browser session; None: nobody is logged in (any more)."""
    if _Served.access is None:
        return None
    if cookie := _cookie():
        return _Served.access.find(cookie)
    return _Served.access.get(st.session_state.get(_SESSION, ""))


def person() -> Person:
    """Return the person of this browser session; `LOCAL` without login and in a thread without a session.

    A session that follows a presenter has the role viewer meanwhile, whatever the presenter's role is.
    """
    if get_script_run_ctx(suppress_warning=True) is None:
        return LOCAL
    found = _present()
    one = LOCAL if _Served.access is None else found[1] if found else NOBODY
    return replace(one, role="viewer") if st.session_state.get(FOLLOWING) else one


def of_request(scope: Mapping[str, Any]) -> Person:
    """Return the person of a request by its ASGI scope, which the gate completes."""
    found = scope.get(PERSON)
    return found if isinstance(found, Person) else LOCAL if _Served.access is None else NOBODY


def require(role: Role) -> None:
    """Continue for a person who may act as `role`.

    Raises:
        SpecError: the person may not.
    """
    if reason := refusal(role):
        raise SpecError(reason, hint=HINT)


HINT = "Ask an admin of this server, or log in as another person."


def refusal(role: Role) -> str:
    """Return why the person of this browser session may not act as `role`; empty: it may."""
    one = person()
    if one.may_act_as(role):
        return ""
    if one == NOBODY:
        return "Your session has ended. Reload the page to log in."
    return f"Your role is {one.role}. This needs the role {role}."


def log_out() -> None:
    """End the login of this browser; a callback."""
    if _Served.access is not None and (found := _present()):
        _Served.access.sessions.end(found[0].key)
        audit.record("log-out", "this browser", who=found[1].id)


def log_out_everywhere() -> None:
    """End all logins of this person in all browsers; a callback."""
    if _Served.access is not None and (found := _present()):
        many = _Served.access.sessions.end_all(found[1].id)
        audit.record("log-out", "all browsers", who=found[1].id, sessions=many)
