"""Export signs files and bundles with a key of this machine, and keeps no passphrase."""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from core.api import signing
from core.evidence.measurement import Trial
from core.run.signing.files import BEGIN
from core.store import ModelRecord, audit
from core.wire.variables import KEY_PASSPHRASE
from dashboard import state
from dashboard.server import people
from tests.reading import tells
from tests.views import sample_results
from tests.views.page import Open, click, keys, lines, texts

pytest.importorskip("cryptography")

NAME, SECRET = "Ann", "correct horse"


@pytest.fixture
def trial(mlp: ModelRecord, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A complete measurement that can be exported."""
    monkeypatch.delenv(KEY_PASSPHRASE, raising=False)
    spec = sample_results.spec_for(mlp, intra_op_num_threads=1)
    found = sample_results.put_measured(state.store(), mlp, spec, fingerprint="f")
    assert found.result is not None
    inputs = [{"name": one["name"], "dtype": one["dtype"], "shape": [1, 16]} for one in mlp.info["inputs"]]
    facts: dict[str, Any] = {"inputs": inputs, "outputs": [], "environment": state.scheduler().environment()}
    state.store().update_trial(found.id, result=found.result | facts)
    return state.store().trial(found.id)


@pytest.fixture
def own() -> signing.KeyPair:
    """A key without a passphrase, which this machine trusts."""
    made = signing.create_key(NAME)
    signing.trust_key(NAME, made.public_key)
    return made


def uses() -> list[audit.Entry]:
    return list(audit.entries(action="sign"))


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the download buttons of the last run hold, by their keys."""
    found: dict[str, bytes] = {}
    button = st.download_button

    def keep(label: str, data: bytes, **more: Any) -> bool:
        found[more["key"]] = data
        return button(label, data, **more)

    monkeypatch.setattr(st, "download_button", keep)
    return found


def remembers(at: AppTest, secret: str) -> bool:
    return secret in repr(at.session_state._state)


def test_without_a_key_one_sentence_says_how_to_create_one(open_page: Open, trial: Trial) -> None:
    at = open_page("export", trial=trial.id)
    assert len(lines(at, "ortune keys create")) == 1
    assert not [key for key in keys(at) if "sign" in key]


def test_a_file_is_signed_and_the_use_of_the_key_recorded(
    open_page: Open, trial: Trial, own: signing.KeyPair, downloads: dict[str, bytes]
) -> None:
    at = open_page("export", trial=trial.id)
    unsigned = downloads["export.download"]
    assert BEGIN.encode() not in unsigned
    assert "export.sign.passphrase" not in keys(at)  # no key has one
    at = click(at, "export.sign.start")
    assert downloads["export.download"].startswith(unsigned)
    found = signing.check_text(downloads["export.download"])
    assert (found.state, found.signer) == ("TRUSTED", NAME)
    assert any(NAME in one.value for one in at.success)
    assert [(one.who, one.more["key"]) for one in uses()] == [("local", own.fingerprint)]
    at.toggle(key="export.whole").set_value(True).run()
    assert BEGIN.encode() not in downloads["export.download"]  # another text has no signature yet


def test_a_passphrase_is_used_once_and_not_kept(
    open_page: Open, trial: Trial, downloads: dict[str, bytes]
) -> None:
    signing.create_key(NAME, passphrase=SECRET)
    at = open_page("export", trial=trial.id)
    at.text_input(key="export.sign.passphrase").set_value("wrong one")
    at = click(at, "export.sign.start")
    assert tells(at.error[0].value, "passphrase is wrong")
    assert not remembers(at, "wrong one")
    assert BEGIN.encode() not in downloads["export.download"]
    at.text_input(key="export.sign.passphrase").set_value(SECRET)
    at = click(at, "export.sign.start")
    assert signing.check_text(downloads["export.download"]).state == "UNKNOWN_KEY"
    assert not at.error
    assert not remembers(at, SECRET)
    assert SECRET not in texts(at)
    assert SECRET not in "".join(one.text for one in audit.entries())


def test_a_bundle_is_signed_where_a_key_is_chosen(
    open_page: Open, trial: Trial, own: signing.KeyPair
) -> None:
    at = open_page("export", trial=trial.id)
    path = state.store().artifact_path(trial.id, "bundle.zip")
    for chosen, expected in (("no signature", "NONE"), (NAME, "TRUSTED")):
        at.selectbox(key="export.bundle.sign.key").set_value(chosen)
        at = click(at, "export.bundle.make")
        assert state.scheduler().join(60)
        at.run()
        assert not at.exception
        assert signing.check_path(path).state == expected
        assert bool(lines(at, "Signed with the key of", NAME)) is (expected == "TRUSTED")
    assert [one.what for one in uses()] == [f"bundle with the key of {NAME}"]


def test_a_key_that_is_gone_is_told(open_page: Open, trial: Trial, own: signing.KeyPair) -> None:
    signing.create_key("Bob")
    at = open_page("export", trial=trial.id)
    own.path.unlink()
    at = click(at, "export.sign.start")
    assert tells(at.error[0].value, NAME)
    assert not uses()


def test_a_viewer_signs_nothing(
    open_page: Open,
    trial: Trial,
    own: signing.KeyPair,
    downloads: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = open_page("export", trial=trial.id)
    monkeypatch.setattr(people, "person", lambda: people.Person("v", "Vic", "viewer"))
    at = click(at, "export.sign.start")  # the page was drawn before the role changed
    assert BEGIN.encode() not in downloads["export.download"]
    assert not uses()
    assert at.button(key="export.sign.start").disabled
    assert at.button(key="export.bundle.make").disabled
