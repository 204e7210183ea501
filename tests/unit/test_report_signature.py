"""A report states who signed its result, whether the signature is valid, and whether the key is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.cli import run
from core.evidence.measurement import Trial
from core.run.bundle import STORED
from core.run.signing import keys, trust
from core.run.signing.checking import sign_file, sign_text
from core.show.export.yaml_file import export_yaml
from core.show.report import Section
from core.show.report.compose import compose
from core.show.report.markdown import markdown
from core.show.report.signed import TITLE, SignatureSection, section
from core.show.report.subjects import find
from core.show.sheets import Fact
from core.show.table import Table, column_of
from core.store import Store
from core.wire.errors import SpecError
from core.wire.variables import KEY_PASSPHRASE, TRUST
from dashboard.report.page import html_of
from tests.documents import errors_of
from tests.recorded import recorded_store, reported
from tests.unit.test_bundle import bundle

pytest.importorskip("cryptography")

ANN = "Ann"
SIGNED, WITHOUT = "valid: the file is as it was signed", "not signed"


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with recorded_store() as found:
        yield found


@pytest.fixture(autouse=True)
def _recorded(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(store.folder))
    monkeypatch.setenv(TRUST, str(tmp_path / "trust.yaml"))
    monkeypatch.delenv(KEY_PASSPHRASE, raising=False)


@pytest.fixture(scope="module")
def trial(store: Store) -> Trial:
    return store.trial(reported(store)["trial"][0])


@pytest.fixture
def key(tmp_path: Path) -> keys.SigningKey:
    keys.create(ANN, tmp_path / "ann.key")
    return keys.open_key(tmp_path / "ann.key")


@pytest.fixture
def file(trial: Trial, key: keys.SigningKey, tmp_path: Path) -> Path:
    path = tmp_path / "best.yaml"
    path.write_text(sign_text(export_yaml(trial), key), encoding="utf-8")
    return path


def facts(found: Section) -> dict[str, str]:
    return {one.name: one.text for one in found.parts if isinstance(one, Fact)}


def colors(found: Section) -> dict[str, str | None]:
    return {one.name: one.color for one in found.parts if isinstance(one, Fact)}


def links(found: Section) -> list[str]:
    return [str(cell) for part in found.parts if isinstance(part, Table) for cell in column_of(part, "link")]


def test_a_trusted_signature_names_its_signer(
    store: Store, trial: Trial, key: keys.SigningKey, file: Path
) -> None:
    trust.add(ANN, key.public_key)
    about = find(store, [trial.id])
    found = section(about, store, file=file)
    told = facts(found)
    assert (told["file"], told["signature"], told["signer"]) == (file.name, SIGNED, ANN)
    assert told["key"].startswith(keys.fingerprint(key.public_key))
    assert colors(found)["key"] == colors(found)["signature"] == "green"
    assert data(found)[:3] == ("VALID", True, keys.fingerprint(key.public_key))
    assert found.signatures[0]["signer"] == ANN
    assert any(one.endswith("YAML file") for one in links(found))
    text = markdown(compose(about, store, signature=found))
    page = html_of(about, store, signature=found)
    for one in (text, page):
        assert SIGNED in one
        assert ANN in one
        assert keys.fingerprint(key.public_key)[:20] in one
    assert WITHOUT not in text


def test_a_key_that_is_not_trusted_any_more_or_never_was(
    store: Store, trial: Trial, key: keys.SigningKey, file: Path, tmp_path: Path
) -> None:
    about = find(store, [trial.id])
    unread = section(about, store, file=file)  # the trust file that the environment names is missing
    assert facts(unread)["signature"] == SIGNED
    assert "cannot be read" in facts(unread)["key"]
    trust.add("Bob", keys.create("Bob", tmp_path / "bob.key").public_key)
    assert data(unread)[:2] == ("VALID", None)
    unknown = section(about, store, file=file)
    assert data(unknown)[:2] == ("VALID", False)
    assert facts(unknown)["signature"] == SIGNED
    assert facts(unknown)["signer"] == f"states the name {ANN}"
    assert "not trusted" in facts(unknown)["key"]
    trust.add(ANN, key.public_key, until="2020-01-31")
    expired = section(about, store, file=file)
    assert "no longer trusted" in facts(expired)["key"]
    assert colors(unknown)["key"] == colors(expired)["key"] == "orange"


def data(found: SignatureSection) -> tuple[Any, ...]:
    """What the JSON says of the one signature and of the digests."""
    [signed] = found.signatures
    return signed["state"], signed["trusted"], signed["fingerprint"], found.digests["state"]


def test_a_changed_file_has_a_wrong_signature(store: Store, trial: Trial, file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"batch_size: ", b"batch_size:  ", 1))
    found = section(find(store, [trial.id]), store, file=file)
    assert "wrong" in facts(found)["signature"]
    assert colors(found)["signature"] == colors(found)["digests"] == "red"
    assert "signer" not in facts(found)
    assert data(found) == ("INVALID", None, None, "BROKEN")


@pytest.mark.parametrize("kind", ["trial", "race", "search", "curve", "card", "why", "profile", "load"])
def test_a_report_says_that_nothing_is_signed(kind: str, store: Store) -> None:
    said = compose(find(store, reported(store)[kind]), store)
    found = said.signature
    assert found is not None
    assert found.title == TITLE
    assert facts(found)["signature"].startswith(WITHOUT)
    assert "differs" not in facts(found)["digests"].replace("no digest differs", "")
    assert f"**signature**: {WITHOUT}" in markdown(said)
    assert data(section(find(store, reported(store)[kind]), store))[:3] == ("NONE", None, None)


def test_the_bundle_of_the_store_counts_where_no_file_is_given(
    store: Store, trial: Trial, key: keys.SigningKey, tmp_path: Path
) -> None:
    trust.add("Bob", keys.create("Bob", tmp_path / "bob.key").public_key)
    path = bundle(store.artifact_path(trial.id, STORED))
    try:
        sign_file(path, key)
        assert facts(section(find(store, [trial.id]), store))["signature"] == SIGNED
        beside = facts(section(find(store, [trial.comparison]), store))
        assert "unknown key" in beside[f"{STORED} of trial {trial.id[:12]}"]
        assert "signature" not in beside
        comparison = section(find(store, [trial.comparison]), store)
        assert data(comparison)[:2] == ("VALID", False)
        assert comparison.digests["state"] in ("INTACT", "INCOMPLETE")
    finally:
        path.unlink()


def test_a_file_of_another_result_is_refused(store: Store, trial: Trial, file: Path) -> None:
    other = next(one for one in store.trials(kind="measure") if one.id != trial.id)
    with pytest.raises(SpecError, match="does not show"):
        section(find(store, [other.id]), store, file=file)


def test_the_command_states_it_in_both_formats(
    trial: Trial, key: keys.SigningKey, file: Path, tmp_path: Path
) -> None:
    pinned = tmp_path / "other-trust.yaml"
    trust.add(ANN, key.public_key, path=pinned)
    for output in (tmp_path / "r.html", tmp_path / "r.md"):
        how = ["--format", "md"] * (output.suffix == ".md")
        given = ["--file", str(file), "--trust", str(pinned)]
        assert run(["report", trial.id, "-o", str(output), *how, *given]) == 0
        text = output.read_text(encoding="utf-8")
        assert SIGNED in text
        assert "trusted by the trust file" in text


def test_the_json_states_signature_key_trust_and_digests(
    trial: Trial, key: keys.SigningKey, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trust.add(ANN, key.public_key)
    changed, unsigned = tmp_path / "changed.yaml", tmp_path / "unsigned.yaml"
    changed.write_bytes(file.read_bytes().replace(b"batch_size: ", b"batch_size:  ", 1))
    unsigned.write_text(export_yaml(trial), encoding="utf-8")
    expected = {
        file: ("VALID", True, keys.fingerprint(key.public_key)),
        changed: ("INVALID", None, None),
        unsigned: ("NONE", None, None),
    }
    for path, told in expected.items():
        capsys.readouterr()
        assert run(["report", trial.id, "--format", "md", "--file", str(path), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert errors_of("report", document) == []
        [signed] = document["signatures"]
        assert signed["file"] == path.name
        assert (signed["state"], signed["trusted"], signed["fingerprint"]) == told
        states = {one["state"] for one in document["digests"]["links"]}
        assert (document["digests"]["state"] == "BROKEN") == ("DIFFERS" in states) == (path == changed)
