"""Signatures: each changed byte is noticed, and each state has its words."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from core.run.bundle.opening import open_configuration
from core.run.signing import SignatureCheck, checking, files, keys, trust
from core.run.signing.checking import SignatureRule, check_path, check_text, require, sign_file, sign_text
from core.run.signing.keys import SigningKey
from core.wire.access import is_inside
from core.wire.errors import SpecError
from core.wire.files import home
from core.wire.variables import KEY_PASSPHRASE, TRUST
from tests.unit.test_bundle import bundle

pytest.importorskip("cryptography")

TEXT = "# ORTune: the header is covered, too\nschema: 1\nmodel: {path: digits_cnn}\n"
REQUIRED = SignatureRule(required=True)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(TRUST, raising=False)
    monkeypatch.delenv(KEY_PASSPHRASE, raising=False)


@pytest.fixture
def ann() -> SigningKey:
    pair = keys.create("Ann")
    trust.add("Ann", pair.public_key)
    return keys.open_key("Ann")


@pytest.fixture
def signed_zip(ann: SigningKey, tmp_path: Path) -> Path:
    path = bundle(tmp_path / "x.zip")
    sign_file(path, ann)
    return path


def changed(data: bytes) -> list[bytes]:
    """`data` with one byte changed, for each byte: the case of a letter, its lowest bit, and its value."""
    return [
        data[:at] + bytes([other]) + data[at + 1 :]
        for at, byte in enumerate(data)
        for other in {byte ^ 0x20, byte ^ 0x01, 0x0A} - {byte}
    ]


def test_a_signed_text_is_the_text_and_a_signature(ann: SigningKey) -> None:
    signed = sign_text(TEXT, ann)
    assert signed.startswith(TEXT)
    assert all(line.startswith("# ") for line in signed[len(TEXT) :].splitlines())
    found = check_text(signed.encode())
    assert (found.state, found.signer) == ("TRUSTED", "Ann")
    assert found.fingerprint == keys.fingerprint(ann.public_key)
    assert "as the signer states" in found.why


def test_each_changed_byte_of_a_yaml_file_makes_its_signature_wrong(ann: SigningKey) -> None:
    states = {check_text(one).state for one in changed(sign_text(TEXT, ann).encode())}
    assert states == {"WRONG"}


def test_each_changed_byte_of_a_bundle_makes_its_signature_wrong(signed_zip: Path) -> None:
    for one in changed(signed_zip.read_bytes()):
        signed_zip.write_bytes(one)
        assert check_path(signed_zip).state == "WRONG"


def test_a_cut_or_longer_file_has_a_wrong_signature(ann: SigningKey, signed_zip: Path) -> None:
    text, data = sign_text(TEXT, ann).encode(), signed_zip.read_bytes()
    block = len(text) - len(TEXT)
    assert {check_text(text[:-cut]).state for cut in range(1, block - 30)} == {"WRONG"}
    assert {check_text(text + more).state for more in (b"\n", b"x: 1\n", text)} == {"WRONG"}
    for one in (data + b"\0", data[:-1], data[:-40], data + data):
        signed_zip.write_bytes(one)
        assert check_path(signed_zip).state == "WRONG"


def test_line_ends_and_order_of_keys_are_covered(ann: SigningKey) -> None:
    signed = sign_text(TEXT, ann)
    assert check_text(signed.replace("\n", "\r\n").encode()).state == "WRONG"
    first, second, third, *rest = signed.splitlines(keepends=True)
    assert check_text("".join([first, third, second, *rest]).encode()).state == "WRONG"


def test_a_signature_of_another_file_is_wrong(ann: SigningKey) -> None:
    block = sign_text(TEXT, ann)[len(TEXT) :]
    found = check_text((TEXT.replace("digits", "digits2") + block).encode())
    assert found.state == "WRONG"
    assert "of another file" in found.why


def test_a_signature_of_another_version_or_algorithm_is_wrong(ann: SigningKey) -> None:
    fields = dict(files.part_text(sign_text(TEXT, ann).encode()).signature or {})
    newer = check_text(files.signed_text(TEXT, {**fields, "version": 2}).encode())
    assert (newer.state, "version 2" in newer.why) == ("WRONG", True)
    other = check_text(files.signed_text(TEXT, {**fields, "algorithm": "none"}).encode())
    assert (other.state, "`none`" in other.why) == ("WRONG", True)
    for name, value in (("name", "Bob"), ("at", "2020-01-01T00:00:00Z"), ("kind", "bundle")):
        assert check_text(files.signed_text(TEXT, {**fields, name: value}).encode()).state == "WRONG"


def test_the_signature_of_one_key_does_not_count_for_another(ann: SigningKey) -> None:
    bob = keys.create("Bob")
    trust.add("Bob", bob.public_key)
    fields = dict(files.part_text(sign_text(TEXT, ann).encode()).signature or {})
    forged = files.signed_text(TEXT, {**fields, "public_key": bob.public_key, "name": "Bob"})
    assert check_text(forged.encode()).state == "WRONG"


def test_a_signed_bundle_opens_and_a_changed_one_does_not(signed_zip: Path) -> None:
    with zipfile.ZipFile(signed_zip) as archive:
        assert archive.testzip() is None
    with open_configuration(signed_zip, rule=REQUIRED) as held:
        assert (held.signature.state, held.signature.signer) == ("TRUSTED", "Ann")
    signed_zip.write_bytes(signed_zip.read_bytes().replace(b"nobody", b"nobodY", 1))
    with pytest.raises(SpecError, match="signature is wrong"), open_configuration(signed_zip):
        pass


def test_a_replaced_member_is_refused_even_with_a_manifest_that_fits(
    signed_zip: Path, tmp_path: Path
) -> None:
    data = signed_zip.read_bytes()
    block = data[data.index(files.BEGIN.encode()) :]
    other = bundle(tmp_path / "other.zip", no_sample="Another reason.").read_bytes()
    signed_zip.write_bytes(other[:-2] + len(block).to_bytes(2, "little") + block)
    with pytest.raises(SpecError, match="of another file"), open_configuration(signed_zip):
        pass


def test_a_zip_with_another_comment_is_no_bundle(tmp_path: Path) -> None:
    path = bundle(tmp_path / "x.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hello"
    with pytest.raises(SpecError, match="its end is missing"), open_configuration(path):
        pass


def test_signing_again_replaces_the_signature(ann: SigningKey, signed_zip: Path, tmp_path: Path) -> None:
    keys.create("Bob")
    bob = keys.open_key("Bob")
    unsigned = bundle(tmp_path / "unsigned.zip").stat().st_size
    sign_file(signed_zip, bob)
    found = check_path(signed_zip)
    assert (found.state, found.signer) == ("UNKNOWN_KEY", "Bob")
    assert signed_zip.stat().st_size - unsigned < files.MOST_BLOCK_BYTES
    assert sign_text(sign_text(TEXT, ann), bob).count(files.BEGIN) == 1


def test_a_copy_is_signed_and_the_file_stays(ann: SigningKey, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(TEXT, encoding="utf-8")
    path.chmod(0o640)
    sign_file(path, ann, tmp_path / "signed.yaml")
    assert path.read_text(encoding="utf-8") == TEXT
    assert check_path(tmp_path / "signed.yaml").state == "TRUSTED"
    assert stat.S_IMODE((tmp_path / "signed.yaml").stat().st_mode) == 0o640


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (1 << 20) + b"y", b"PK\x03\x04 no zip"])
def test_what_is_no_yaml_and_no_bundle_is_not_signed(content: bytes, ann: SigningKey, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        sign_file(path, ann)
    assert caught.value.hint
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")] == []


# --- requirements -------------------------------------------------------------------------------------------


def unsigned(key: SigningKey) -> SignatureCheck:
    return check_text(TEXT.encode())


def unknown(key: SigningKey) -> SignatureCheck:
    trust.remove("Ann")
    return check_text(sign_text(TEXT, key).encode())


def expired(key: SigningKey) -> SignatureCheck:
    trust.add("Ann", key.public_key, until="2020-01-31")
    return check_text(sign_text(TEXT, key).encode())


def wrong(key: SigningKey) -> SignatureCheck:
    return check_text(sign_text(TEXT, key).replace("schema: 1", "schema: 2").encode())


def open_trust_file(key: SigningKey) -> SignatureCheck:
    trust.trust_path().chmod(0o646)
    return check_text(sign_text(TEXT, key).encode())


def without_package(key: SigningKey) -> SignatureCheck:
    signed = sign_text(TEXT, key).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "library", _missing)
        return check_text(signed)


def _missing(name: str) -> object:
    raise SpecError("Signatures need the package `cryptography`, which is not installed.", hint="Install it.")


@pytest.mark.parametrize(
    ("made", "state", "words"),
    [
        (unsigned, "NONE", "not signed"),
        (unknown, "UNKNOWN_KEY", "unknown key"),
        (expired, "EXPIRED", "until 2020-01-31"),
        (wrong, "WRONG", "signature is wrong"),
        (open_trust_file, "UNCHECKED", "mode 0646"),
        (without_package, "UNCHECKED", "not installed"),
    ],
)
def test_a_required_signature_must_be_trusted(
    made: Callable[[SigningKey], SignatureCheck], state: str, words: str, ann: SigningKey
) -> None:
    found = made(ann)
    assert found.state == state
    with pytest.raises(SpecError, match=words) as caught:
        require(found, REQUIRED, "x.yaml")
    assert caught.value.hint
    if state == "WRONG":
        with pytest.raises(SpecError, match=words):
            require(found, SignatureRule(), "x.yaml")
    else:
        assert require(found, SignatureRule(), "x.yaml") is found


def test_a_required_name_must_be_the_signer(ann: SigningKey) -> None:
    found = check_text(sign_text(TEXT, ann).encode())
    assert require(found, SignatureRule(signers=("Bob", "Ann")), "x.yaml") is found
    with pytest.raises(SpecError, match="`Bob` is required"):
        require(found, SignatureRule(signers=("Bob",)), "x.yaml")


def test_the_name_in_a_signature_does_not_decide_who_signed(ann: SigningKey) -> None:
    mallory = keys.create("Mallory")
    key = keys.open_key(mallory.path)
    stated = SigningKey(name="Ann", public_key=key.public_key, private=key.private)
    found = check_text(sign_text(TEXT, stated).encode())
    assert found.state == "UNKNOWN_KEY"
    assert mallory.fingerprint in found.why


# --- keys ---------------------------------------------------------------------------------------------------


def test_only_the_owner_can_read_a_private_key(ann: SigningKey) -> None:
    path = home() / "keys" / "Ann.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not is_inside(path, [home().resolve()])
    path.chmod(0o644)
    with pytest.raises(SpecError, match="mode 0644"):
        keys.open_key("Ann")


def test_a_key_is_never_replaced_or_shown(ann: SigningKey) -> None:
    secret = (home() / "keys" / "Ann.pem").read_text().splitlines()[1]
    with pytest.raises(SpecError, match="exists already"):
        keys.create("Ann")
    assert secret not in repr(ann) + repr(keys.key_pairs())
    assert secret not in sign_text(TEXT, ann)


def test_a_passphrase_protects_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys.create("Eve", passphrase="correct horse")
    assert [one.encrypted for one in keys.key_pairs()] == [True]
    with pytest.raises(SpecError, match="no passphrase"):
        keys.open_key("Eve")
    assert keys.open_key("Eve", ask=lambda: "correct horse").name == "Eve"
    monkeypatch.setenv(KEY_PASSPHRASE, "wrong")
    with pytest.raises(SpecError, match="passphrase is wrong"):
        keys.open_key("Eve")


@pytest.mark.parametrize("name", ["", " ", "../x", "a/b", "x" * 61, "a\nb", "-x"])
def test_names_are_names(name: str) -> None:
    with pytest.raises(SpecError, match="1 to 60 letters"):
        keys.create(name)


def test_a_public_key_and_its_file_read_alike(ann: SigningKey) -> None:
    assert keys.read_public(str(home() / "keys" / "Ann.pub")) == ann.public_key
    for text in ("ed25519:", "ed25519:AAAA", ann.public_key[:-1], ann.public_key.replace("=", "")):
        with pytest.raises(SpecError, match="44 characters"):
            keys.read_public(text)


# --- the trust file -----------------------------------------------------------------------------------------


def test_names_are_added_and_removed(ann: SigningKey) -> None:
    bob = keys.create("Bob")
    trust.add("Bob", bob.public_key, until="2999-12-31", note="CI")
    assert [(one.name, one.until, one.note) for one in trust.trusted_keys()] == [
        ("Ann", "", ""),
        ("Bob", "2999-12-31", "CI"),
    ]
    with pytest.raises(SpecError, match="trusted already, as `Bob`"):
        trust.add("Carl", bob.public_key)
    with pytest.raises(SpecError, match="another key"):
        trust.add("Ann", keys.create("Dora").public_key)
    trust.remove("Bob")
    with pytest.raises(SpecError, match="no name `Bob`"):
        trust.remove("Bob")
    assert stat.S_IMODE(trust.trust_path().stat().st_mode) == 0o600


def test_the_last_day_counts() -> None:
    one = trust.TrustedKey(name="Ann", public_key=f"ed25519:{keys.encoded(bytes(32))}", until="2026-11-28")
    assert not one.has_expired(date(2026, 11, 28))
    assert one.has_expired(date(2026, 11, 29))


def test_a_named_trust_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trust.trusted_keys() == []
    monkeypatch.setenv(TRUST, str(tmp_path / "missing.yaml"))
    with pytest.raises(SpecError, match="cannot be read"):
        trust.trusted_keys()


def test_a_folder_that_others_can_write_makes_a_trust_file_useless(ann: SigningKey) -> None:
    home().chmod(0o777)
    with pytest.raises(SpecError, match="can replace the trust file"):
        trust.trusted_keys()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's file")
def test_the_trust_file_of_another_user_does_not_count(ann: SigningKey) -> None:
    os.chown(trust.trust_path(), 12345, 12345)
    with pytest.raises(SpecError, match="another user"):
        trust.trusted_keys()


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "schema: 2\nkeys: {}\n", "schema: 1\n", "schema: 1\nkeys: {}\nmore: 1\n"),
        *("schema: 1\nkeys: {Ann: 5}\n", "schema: 1\nkeys: {Ann: {public_key: x}}\n"),
        "schema: 1\nkeys: {Ann: {public_key: KEY, until: soon}}\n",
        "schema: 1\nkeys: {Ann: {public_key: KEY}, Bob: {public_key: KEY}}\n",
    ],
)
def test_an_invalid_trust_file_trusts_nobody(text: str, ann: SigningKey) -> None:
    trust.trust_path().write_text(text.replace("KEY", json.dumps(ann.public_key)), encoding="utf-8")
    with pytest.raises(SpecError, match="trust file"):
        trust.trusted_keys()
    assert check_text(sign_text(TEXT, ann).encode()).state == "UNCHECKED"
