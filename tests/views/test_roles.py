"""Roles on the pages: what each one may do, whatever its page offers."""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core import wire
from core.process import job_worker
from core.spec import spec_from_dict
from core.store import ModelRecord, audit, library
from core.store.recorded import MARK_FILE
from core.wire.errors import SpecError
from core.wire.variables import ALLOW_LIBRARIES, ALLOW_RUNTIMES
from dashboard import demo, fields, folders, presenting, state
from dashboard.pages import PAGES
from dashboard.server import people
from dashboard.server.login_sessions import LoginSessions
from dashboard.server.people_file import ROLES, Role, Rules, Token, hash_of
from tests.reading import tells
from tests.views.conftest import APP, TIMEOUT_S
from tests.views.page import Open, keys

HARMLESS = ("preset.", "chip.", "reset.", "log_out")  # the form of this browser; the session itself
READING = {wire.INSPECT, wire.GRAPH, wire.LAYOUT}  # jobs that show a model and run nothing of it
LogIn = Callable[[Role], str]


@pytest.fixture
def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[people.Access]:
    """A server with a login, and a token for each role."""
    tokens = tuple(Token(role, hash_of(role), role) for role in ROLES)
    found = people.Access(lambda: Rules(tokens=tokens), LoginSessions(tmp_path / "people"), {})
    people.use(found)
    monkeypatch.setattr(people, "_cookie", str)  # AppTest has no browser; the session's key is in its state
    yield found
    people.use(None)


@pytest.fixture
def log_in(access: people.Access) -> LogIn:
    """Log in by the token of a role; the key of the session."""

    def begin(role: Role) -> str:
        found = access.find(str(access.log_in_by_token(role)))
        assert found is not None
        return found[0].key

    return begin


def visit(page: str, session: str, **more: Any) -> AppTest:
    """Open a page in a browser session with this login."""
    at = AppTest.from_file(str(APP), default_timeout=TIMEOUT_S)
    at.session_state["people.session"] = session
    for name, value in more.items():
        at.session_state[name] = value
    at.run()
    return at if page == "tune" else at.switch_page(PAGES[page].file).run()


def everything(home: Path) -> dict[str, str]:
    """What is stored: the rows of every table, and the content of every other file."""
    db = sqlite3.connect(home / "ortune.db")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: str(db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()) for name in tables}
    db.close()
    found.pop("inspections", None)  # facts of a shown model
    ours = ("ortune.db", "audit", "forms", "people")
    files = [
        one
        for one in home.rglob("*")
        if one.is_file() and not one.relative_to(home).as_posix().startswith(ours)
    ]
    return found | {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The recorded results as the home of a server on which everything may be done."""
    folder = demo.unpack()
    (folder / MARK_FILE).unlink()
    monkeypatch.setenv("ORTUNE_HOME", str(folder))
    known = state.scheduler()._environments
    st.cache_resource.clear()
    state.scheduler()._environments.update(known)
    yield folder
    state.close()
    demo.remove(folder)


def press_all(at: AppTest, pressed: list[str]) -> None:
    """Press each button that can be pressed and was not, once; add their keys to `pressed`."""
    while left := [one for one in at.button if not one.disabled and str(one.key) not in pressed]:
        pressed.append(str(left[0].key))
        if not pressed[-1].startswith(HARMLESS):
            left[0].click().run()
    for key in [str(one.key) for one in at.toggle if not one.disabled and str(one.key) not in pressed]:
        if key in keys(at):  # what was switched before may have taken it away
            at.toggle(key=key).set_value(not at.toggle(key=key).value).run()
            pressed.append(key)


def enable_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages offer everything, as if somebody had changed them; the checks of the server stay."""
    closed = state.closed

    def open_to_pages(role: Role = "engineer") -> str:
        return closed(role) if sys._getframe(1).f_globals["__name__"] == state.__name__ else ""

    def enabled(help: str | None = None, *, off: bool = False, busy: str = "", role: str = "") -> Any:
        return {"disabled": off or bool(busy), "help": help}

    monkeypatch.setattr(state, "closed", open_to_pages)
    monkeypatch.setattr(state, "unless_closed", enabled)


def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs of all workers that start from now on, within and without the queue."""
    started = list[str]()
    confined = job_worker.confined

    def noted(job: str, *plan: Any) -> Any:
        started.append(job)
        return confined(job, *plan)

    monkeypatch.setattr(job_worker, "confined", noted)
    return started


@pytest.mark.parametrize("page", PAGES)
def test_a_viewer_presses_everything_and_nothing_starts_or_changes(
    recorded: Path, log_in: LogIn, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = workers(monkeypatch)
    session = log_in("viewer")
    at = visit(page, session)
    assert not at.exception
    before, log, pressed = everything(recorded), audit.whole(recorded), list[str]()
    press_all(at, pressed)
    assert not at.exception, pressed
    assert everything(recorded) == before, pressed
    enable_by_force(monkeypatch)
    press_all(visit(page, session), pressed)
    assert everything(recorded) == before, pressed
    assert not state._scheduler().active()
    assert set(started) <= READING, started
    assert audit.whole(recorded) == log


# --- what the roles may do


def test_an_engineer_measures_and_imports_but_does_not_administer(
    log_in: LogIn, mlp: ModelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_RUNTIMES, "1")
    session = log_in("engineer")
    at = visit("tune", session, **{state.MODEL: mlp.content_sha256})
    assert not at.button(key="run").disabled
    at.button(key="run").click().run()
    assert not at.error
    assert state._scheduler().join(240)
    assert len(state.store().trials(kind="measure")) >= 1
    assert visit("machine", session).button(key="machine.runtimes.add").disabled
    assert not visit("machine", log_in("admin")).button(key="machine.runtimes.add").disabled


@pytest.mark.parametrize("role", ROLES)
def test_only_an_admin_runs_native_libraries(access: people.Access, mlp: ModelRecord, role: Role) -> None:
    one = people.Person("x", "x", role)
    named = {"custom_op_libraries": [f"libops.so@sha256:{'a' * 64}"]}
    plain = spec_from_dict({"model": {"path": mlp.path, "sha256": mlp.sha256}})
    spec = spec_from_dict({"model": {"path": mlp.path, "sha256": mlp.sha256}, "session": named})
    folders.check_role(plain, one)
    if role == "admin":
        folders.check_role(spec, one)
        return
    with pytest.raises(SpecError, match="admin"):
        folders.check_role(spec, one)
    with pytest.raises(SpecError, match="admin"):
        state.admit(spec, one)


@pytest.mark.parametrize("role", ROLES)
def test_only_an_admin_checks_that_a_model_loads_with_libraries(
    log_in: LogIn, mlp: ModelRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    loaded = list[tuple[str, ...]]()

    def load(path: Path, *, libraries: tuple[str, ...] = ()) -> str:
        loaded.append(libraries)
        return "it loads"

    monkeypatch.setattr(library, "check_loads", load)
    (tmp_path / "door").mkdir()
    (tmp_path / "door" / "libops.so").write_bytes(b"")
    monkeypatch.setenv(ALLOW_LIBRARIES, str(tmp_path / "door"))
    session, chosen = log_in(role), {state.MODEL: mlp.content_sha256}
    named = {fields.key("custom_op_libraries"): ["libops.so"]}
    for more in ({}, named):
        at = visit("models", session, **chosen, **more)
        assert at.button(key="models.load").disabled == (role == "viewer" or bool(more and role != "admin"))
    enable_by_force(monkeypatch)
    for more in ({}, named):
        visit("models", session, **chosen, **more).button(key="models.load").click().run()
    allowed = {"viewer": [], "engineer": [()], "admin": [(), ("libops.so",)]}[role]
    assert loaded == allowed
    lines = [one for one in audit.entries() if one.action == "measure"]
    assert [one.who for one in lines] == [f"token:{role}"] * len(allowed)


def test_a_job_checks_the_person_who_asked_for_it(
    log_in: LogIn, mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` checks a file in its job, a thread without a browser session."""
    monkeypatch.setattr(people, "person", lambda: people.Person("x", "x", "engineer"))
    check = state.session().admit
    monkeypatch.undo()
    named = {"custom_op_libraries": [f"libops.so@sha256:{'a' * 64}"]}
    with pytest.raises(SpecError, match="admin"):
        check(spec_from_dict({"model": {"path": mlp.path, "sha256": mlp.sha256}, "session": named}))


# --- who is shown


def test_without_login_nothing_is_shown_of_people(open_page: Open) -> None:
    at = open_page()
    assert not {"log_out", "log_out_everywhere", "account"} & keys(at)


def test_the_line_with_the_person_offers_both_ways_out(access: people.Access, log_in: LogIn) -> None:
    first, second = log_in("engineer"), log_in("engineer")
    other = log_in("viewer")
    at = visit("tune", first)
    at.button(key="log_out").click().run()
    assert [access.get(one) is not None for one in (first, second, other)] == [False, True, True]
    assert len(at.error) == 1
    assert not at.title
    assert not at.button
    at = visit("tune", second)
    third = log_in("engineer")
    at.button(key="log_out_everywhere").click().run()
    assert [access.get(one) is not None for one in (second, third, other)] == [False, False, True]


def test_a_page_of_an_ended_session_shows_nothing(access: people.Access, log_in: LogIn) -> None:
    session = log_in("admin")
    at = visit("history", session)
    access.sessions.end_all("token:admin")
    at.run()
    assert len(at.error) == 1
    assert not at.title
    assert not at.button


# --- presenting


def test_a_follower_gets_no_more_than_the_own_role(log_in: LogIn, mlp: ModelRecord) -> None:
    presenter = visit("tune", log_in("admin"), **{state.MODEL: mlp.content_sha256})
    presenter.button(key="follow.present").click().run()
    token = str(presenter.session_state[presenting.PRESENTING])
    for role in ROLES:
        follower = visit("tune", log_in(role), **{state.FOLLOWING: token})
        assert follower.button(key="run").disabled
        follower.button(key="follow.stop").click().run()
        assert follower.button(key="run").disabled == (role == "viewer")


def test_a_presenter_without_login_shows_to_viewers(open_page: Open, mlp: ModelRecord) -> None:
    presenter = open_page(model=mlp)
    presenter.button(key="follow.present").click().run()
    follower = open_page(follow=str(presenter.session_state[presenting.PRESENTING]))
    assert follower.button(key="run").disabled
    at = AppTest.from_function(_tell_role, default_timeout=TIMEOUT_S)
    at.session_state[state.FOLLOWING] = "any"
    assert at.run().text[0].value == "viewer"
    del at.session_state[state.FOLLOWING]
    assert at.run().text[0].value == "admin"


def _tell_role() -> None:
    import streamlit

    from dashboard.server import people

    streamlit.text(people.person().role)


@pytest.mark.parametrize("needs", ROLES)
@pytest.mark.parametrize("role", ROLES)
def test_the_server_says_which_role_is_missing(log_in: LogIn, role: Role, needs: Role) -> None:
    """As a callback of the pages Fleet and Machine asks before it starts something."""
    at = AppTest.from_function(_ask_for, args=(needs,), default_timeout=TIMEOUT_S)
    at.session_state["people.session"] = log_in(role)
    at.run()
    assert not at.exception
    refused = ROLES.index(role) < ROLES.index(needs)
    assert len(at.text) == refused
    assert not refused or tells(at.text[0].value, role, needs)


def _ask_for(needs: str) -> None:
    import streamlit

    from core.wire.errors import SpecError
    from dashboard import state

    try:
        state.refuse_if_closed(needs)  # type: ignore[arg-type]
    except SpecError as error:
        streamlit.text(error.message)
