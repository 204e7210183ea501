"""Who has which role, by the people file, tokens and claims; and the sessions of those who log in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import filelock
import pytest

from core.store import audit
from core.wire.errors import SpecError, StoreError
from core.wire.files import ROOT
from dashboard.server import login_sessions, people, people_file
from dashboard.server.login_sessions import LoginSessions
from dashboard.server.people_file import Rules, hash_of, without_file
from tests.reading import tells

DIGEST = "a" * 64
WHOLE = f"""
[people]
"Ann@Example.org" = "admin"
"@example.org" = "viewer"

[claim]
name = "groups"
roles = {{ tuners = "engineer", operators = "admin" }}

[tokens.ci]
role = "viewer"
sha256 = "{DIGEST.upper()}"
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(text: str) -> Path:
        path = tmp_path / "people.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return put


# --- rules


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"email": "ann@example.org"}, "admin"),
        ({"email": "ANN@example.org", "email_verified": True}, "admin"),
        ({"email": "bob@example.org"}, "viewer"),
        ({"email": "bob@sub.example.org"}, None),
        ({"email": "bob@example.org.evil.example"}, None),
        ({"email": "ann@example.org", "email_verified": False}, None),
        ({"email": "ann@example.org", "email_verified": "False"}, None),
        ({"email": "ann@example.org", "groups": ["tuners"]}, "admin"),
        ({"email": "bob@example.org", "groups": ["tuners", "other"]}, "engineer"),
        ({"email": "eve@evil.example", "groups": ["tuners", "operators"]}, "admin"),
        ({"groups": "tuners"}, "engineer"),
        ({"groups": {"tuners": True}}, None),
        ({"groups": [["tuners"], 1, None]}, None),
        ({"email": ["ann@example.org"]}, None),
        ({"email": "@example.org"}, None),
        ({"email": "ann@evil.example@example.org"}, None),
        ({}, None),
    ],
)
def test_the_address_decides_then_the_claim_then_the_domain(
    write: Write, claims: dict[str, Any], role: str | None
) -> None:
    assert people_file.read(write(WHOLE)).role_of(claims) == role


def test_a_claim_may_lie_inside_another(write: Write) -> None:
    rules = people_file.read(write('[claim]\nname = "access.roles"\nroles = { tuners = "engineer" }\n'))
    assert rules.role_of({"access": {"roles": ["tuners"]}}) == "engineer"
    assert rules.role_of({"access.roles": "tuners"}) == "engineer"
    assert rules.role_of({"access": "tuners"}) is None


def test_a_token_gives_its_role_and_the_shared_one_gives_admin(write: Write) -> None:
    text = f'[tokens.ci]\nrole = "viewer"\nsha256 = "{hash_of("secret")}"\n'
    rules = people_file.read(write(text), "the shared token")
    ci, shared = rules.token("secret"), rules.token("the shared token")
    assert ci is not None
    assert shared is not None
    assert (ci.person, ci.role) == ("token:ci", "viewer")
    assert (shared.person, shared.role) == ("token", "admin")
    for wrong in ("", "secre", "ci", hash_of("secret"), "\u2603"):
        assert rules.token(wrong) is None


def test_without_a_file_everybody_with_a_login_is_an_admin() -> None:
    rules = without_file("", "")
    assert rules.role_of({"sub": "1"}) == "admin"
    assert rules.token("") is None
    listed = without_file(" Ann@example.org, @company.example ,", "")
    assert listed.role_of({"email": "ann@example.org"}) == "admin"
    assert listed.role_of({"email": "bob@company.example"}) == "admin"
    assert listed.role_of({"email": "bob@example.org"}) is None
    assert listed.role_of({"email": "ann@example.org", "email_verified": False}) is None


# --- files with mistakes


@pytest.mark.parametrize(
    ("text", "line", "facts"),
    [
        ('[people]\n"ann@example.org" = "enginer"\n', 2, ["`enginer`", "engineer"]),
        ('[people]\n"ann@example.org" = ["admin"]\n', 2, ["admin"]),
        ('[people]\n"ann@example.org" = "Admin"\n', 2, ["`Admin`"]),
        ('[people]\nann = "admin"\n', 2, ["`ann`"]),
        ('[people]\n"@" = "admin"\n', 2, ["`@`"]),
        ('[people]\n"a@b.c" = "viewer"\n"A@B.c" = "admin"\n', 1, ["twice"]),
        ('people = "admin"\n', 1, ["[people]"]),
        ('\n\n[persons]\n"a@b.c" = "viewer"\n', 3, ["`persons`", "`people`"]),
        ('[claim]\nroles = { a = "viewer" }\n', 1, ["`name`"]),
        ('[claim]\nname = "groups"\n', 1, ["`roles`"]),
        ('[claim]\nname = "groups"\n[claim.roles]\na = "viewer"\nb = "root"\n', 5, ["`root`"]),
        ('[claim]\nname = "groups"\nrole = "viewer"\n', 3, ["`role`"]),
        (f'[tokens.ci]\nsha256 = "{DIGEST}"\n', 1, ["`role`"]),
        ('[tokens.ci]\nrole = "viewer"\n', 1, ["`sha256`", "new_token"]),
        ('[tokens.ci]\nrole = "viewer"\nsha256 = "secret"\n', 3, ["`sha256`"]),
        (f'[tokens.ci]\nrole = "viewer"\nsha256 = "{DIGEST}"\nuntil = 3\n', 4, ["`until`"]),
        (f'[tokens."a b"]\nrole = "viewer"\nsha256 = "{DIGEST}"\n', 1, ["`a b`"]),
        ("[people]\n'a@b.c' = \n", 2, ["TOML"]),
        ('[people]\n"a@b.c" = "viewer"\n"a@b.c" = "admin"\n', 3, ["TOML"]),
    ],
)
def test_a_mistake_is_refused_with_its_line(write: Write, text: str, line: int, facts: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        people_file.read(write(text))
    assert tells(caught.value.message, *facts)
    assert re.search(rf"line {line}\b", caught.value.message)
    assert caught.value.hint


def test_a_file_that_lets_nobody_in_or_that_others_may_change_is_refused(
    write: Write, tmp_path: Path
) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(SpecError) as caught:
            people_file.read(path)
        return caught.value.message

    assert "lists no person" in refused(write("# nothing yet\n"))
    assert "cannot be read" in refused(tmp_path / "missing.toml")
    assert "cannot be read" in refused(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xff\n")
    assert "UTF-8" in refused(tmp_path / "latin.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * (people_file.MOST_BYTES + 1))
    assert "larger" in refused(tmp_path / "large.toml")
    path = write(WHOLE)
    path.chmod(0o620)
    assert "may change" in refused(path)


def test_a_change_of_the_file_counts_at_once_and_a_mistake_in_it_does_not(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write('[people]\n"a@b.c" = "admin"\n')
    rules = people.PeopleFile(path)
    write('[people]\n"a@b.c" = "viewer"\n# changed\n')
    assert rules().role_of({"email": "a@b.c"}) == "viewer"
    write('[people]\n"a@b.c" = "adminn"\n# with a mistake\n')
    assert rules().role_of({"email": "a@b.c"}) == "viewer"
    assert "`adminn`" in caplog.text
    path.unlink()
    assert rules().role_of({"email": "a@b.c"}) == "viewer"


def test_the_documented_file_is_one(write: Write) -> None:
    page = (ROOT / "docs" / "how-to" / "share-a-server.md").read_text("utf-8")
    [block] = re.findall(r"```toml\n(\[people\].*?)```", page, re.DOTALL)
    with pytest.raises(SpecError, match="sha256"):  # nobody must take a token from a page
        people_file.read(write(block))
    rules = people_file.read(write(block.replace("…", DIGEST)))
    assert rules.role_of({"email": "ann@example.org"}) == "admin"
    assert rules.role_of({"groups": ["tuners"]}) == "engineer"
    assert [one.name for one in rules.tokens] == ["ci"]


def test_the_command_makes_a_token_for_the_file(write: Write) -> None:
    command = [sys.executable, "-m", "dashboard.new_token"]
    made = subprocess.run([*command, "ci", "engineer"], cwd=ROOT, capture_output=True, text=True, check=True)
    secret = re.search(r"shown only now: (\S+)", made.stderr)
    assert secret is not None
    assert secret[1] not in made.stdout
    token = people_file.read(write(made.stdout)).token(secret[1])
    assert token is not None
    assert (token.name, token.role) == ("ci", "engineer")
    for wrong in (["ci", "root"], ["a b", "viewer"], ["ci"]):
        refused = subprocess.run([*command, *wrong], cwd=ROOT, capture_output=True, text=True)
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr


# --- sessions


def test_a_session_outlasts_a_restart_and_its_file_does_not_hold_its_cookie(tmp_path: Path) -> None:
    cookie = LoginSessions(tmp_path).begin("ann", claims={"email": "ann@example.org"})
    found = LoginSessions(tmp_path).find(cookie)
    assert found is not None
    assert (found.person, found.claims) == ("ann", {"email": "ann@example.org"})
    [file] = (tmp_path / login_sessions.FOLDER).glob("*.json")
    assert cookie not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0
    for wrong in ("", "x", found.key):
        assert LoginSessions(tmp_path).find(wrong) is None


def test_what_was_logged_out_stays_logged_out(tmp_path: Path) -> None:
    sessions, calls = LoginSessions(tmp_path), []
    first, second, other = (sessions.begin(one) for one in ("ann", "ann", "bob"))
    sessions.on_end(lambda: calls.append(1))
    assert sessions.end_all("ann") == 2
    assert calls
    for one in (sessions, LoginSessions(tmp_path)):
        assert one.find(first) is one.find(second) is None
        assert one.find(other) is not None
    sessions.end(hash_of(other))
    assert LoginSessions(tmp_path).find(other) is None


def test_another_server_of_the_same_home_knows_at_once(tmp_path: Path) -> None:
    one, other = LoginSessions(tmp_path), LoginSessions(tmp_path)
    cookie = one.begin("ann")
    assert other.find(cookie) is not None
    other.end_all("ann")
    assert one.find(cookie) is None


def test_a_session_ends_after_its_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(login_sessions.time, "time", lambda: now[0])
    sessions = LoginSessions(tmp_path, hours=2)
    cookie = sessions.begin("ann")
    now[0] += 2 * 3600 - 1
    assert sessions.find(cookie) is not None
    now[0] += 2
    assert sessions.find(cookie) is None
    sessions.begin("bob")
    [file] = (tmp_path / login_sessions.FOLDER).glob("*.json")
    assert [one["person"] for one in json.loads(file.read_text())["sessions"]] == ["bob"]
    now[0] -= 3600  # a clock that is set back does not make a session longer than that
    assert sessions.find(cookie) is None


def test_the_oldest_session_of_a_person_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_sessions, "MOST_PER_PERSON", 2)
    sessions = LoginSessions(tmp_path)
    other, *own = (sessions.begin(one) for one in ("bob", "ann", "ann", "ann"))
    assert [sessions.find(one) is not None for one in (other, *own)] == [True, False, True, True]


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"sessions": [{"key": 1}]}', '{"sessions": 3}', '{"sessions": [{"x": 1}]}', "null"],
)
def test_a_damaged_file_logs_everybody_out(tmp_path: Path, body: str) -> None:
    cookie = LoginSessions(tmp_path).begin("ann")
    [file] = (tmp_path / login_sessions.FOLDER).glob("*.json")
    file.write_text(body)
    sessions = LoginSessions(tmp_path)
    assert sessions.find(cookie) is None
    assert sessions.find(sessions.begin("ann")) is not None


def test_a_log_out_that_cannot_be_stored_is_said_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, other = LoginSessions(tmp_path), LoginSessions(tmp_path)
    first, second = sessions.begin("ann"), other.begin("ann")

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    def in_use(_: LoginSessions) -> None:
        raise filelock.Timeout("lock")

    with monkeypatch.context() as patch:
        patch.setattr(login_sessions, "written_whole", full)
        with pytest.raises(StoreError, match="No space"):
            sessions.end(hash_of(first))
    with monkeypatch.context() as patch:
        patch.setattr(LoginSessions, "_file_lock", in_use)
        with pytest.raises(StoreError, match="cannot be stored"):
            sessions.end_all("ann")
    assert sessions.find(first) is sessions.find(second) is None
    other.begin("bob")  # stores those of `ann` again
    assert sessions.find(first) is sessions.find(second) is None
    sessions.begin("bob")
    assert other.find(first) is other.find(second) is None


# --- access


def access(rules: Rules, home: Path, providers: Sequence[str] = ("default",)) -> people.Access:
    return people.Access(lambda: rules, LoginSessions(home), dict.fromkeys(providers, "Log in"))


def test_a_person_is_found_by_the_present_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    before = Rules(addresses={"ann@example.org": "admin"}, tokens=people_file.shared("old"))
    claims = {"email": "ann@example.org", "sub": "1", "picture": "x"}
    cookie, token = (
        access(before, tmp_path).log_in_by_claims(claims),
        access(before, tmp_path).log_in_by_token("old"),
    )
    assert cookie is not None
    assert token is not None
    after = access(Rules(addresses={"ann@example.org": "viewer"}, tokens=people_file.shared("new")), tmp_path)
    found = after.find(cookie)
    assert found is not None
    assert found[1] == people.Person("ann@example.org", "ann@example.org", "viewer")
    assert "picture" not in found[0].claims
    assert after.find(token) is None
    assert access(Rules(), tmp_path).find(cookie) is None
    assert access(before, tmp_path).find(cookie) is not None
    assert access(before, tmp_path, providers=()).find(cookie) is None


def test_who_logs_in_and_out_stands_in_the_audit_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    one = access(Rules(addresses={"ann@example.org": "engineer"}), tmp_path)
    one.log_in_by_claims({"email": "ann@example.org"})
    assert one.log_in_by_claims({"email": "eve@example.org"}) is None
    assert [(line.who, line.action) for line in audit.entries()] == [
        ("ann@example.org", "log-in"),
        ("eve@example.org", "log-in-refused"),
    ]
