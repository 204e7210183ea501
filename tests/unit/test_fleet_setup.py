"""Certificates, addresses and the selection of hosts."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from core.evidence.fleet.fleet_types import HostRecord, answer_key
from core.evidence.fleet.selection import select
from core.run.fleet import certificates
from core.run.fleet.addresses import address, security
from core.wire.errors import SpecError

x509 = pytest.importorskip("cryptography.x509")

# --- certificates -------------------------------------------------------------------------------------------


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())


def test_every_machine_has_a_certificate_of_the_authority(tmp_path: Path) -> None:
    hosts = [certificates.machine("bench-07/10.0.0.7/fd00::7"), certificates.machine("bench-09")]
    made = certificates.init(tmp_path, hosts, ["10.0.0.1"])
    names = ["scheduler", "client", "hosts/bench-07", "hosts/bench-09"]
    assert [str(one.relative_to(tmp_path)) for one in made] == names
    authority = certificate(tmp_path / "authority")
    for one in made:
        own = certificate(one)
        own.verify_directly_issued_by(authority)
        assert (one / "ca.pem").read_bytes() == (tmp_path / "authority" / "cert.pem").read_bytes()
        assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert own.not_valid_before_utc < own.not_valid_after_utc
    alternative = certificate(made[2]).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(one.value) for one in alternative} >= {"bench-07", "10.0.0.7", "fd00::7", "localhost"}


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    certificates.init(tmp_path, [certificates.machine("a")])
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert len(files) == 11
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}


def test_a_later_host_has_the_same_authority_and_nothing_is_replaced(tmp_path: Path) -> None:
    certificates.init(tmp_path, [certificates.machine("a")])
    before = {one: one.read_bytes() for one in tmp_path.rglob("*.pem")}
    made = certificates.init(tmp_path, [certificates.machine("b")])
    assert made == [tmp_path / "hosts" / "b"]
    certificate(made[0]).verify_directly_issued_by(certificate(tmp_path / "authority"))
    assert {one: one.read_bytes() for one in before} == before
    with pytest.raises(SpecError, match="has a certificate already"):
        certificates.init(tmp_path, [certificates.machine("a")])


@pytest.mark.parametrize("text", ["", "a b", "a/", "10.0.0.7", "../x", "a/b c", "-a", "x" * 64])
def test_what_is_no_machine_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="`--host` must be NAME or NAME/IP"):
        certificates.machine(text)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    certificates.init(tmp_path, [certificates.machine("a")])
    (tmp_path / "client" / "key.pem").write_bytes((tmp_path / "scheduler" / "key.pem").read_bytes())
    with pytest.raises(SpecError, match="cannot be used"):
        security(tmp_path / "client")
    (tmp_path / "client" / "key.pem").unlink()
    with pytest.raises(SpecError, match=r"has no `key\.pem`"):
        security(tmp_path / "client")


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "certs", "means"),
    [
        ("127.0.0.1", False, "tcp://127.0.0.1:8786"),
        ("localhost:99", False, "tcp://localhost:99"),
        ("tcp://[::1]:99", False, "tcp://[::1]:99"),
        ("10.0.0.5", True, "tls://10.0.0.5:8786"),
        ("tls://bench:1234", True, "tls://bench:1234"),
        ("0.0.0.0:8786", True, "tls://0.0.0.0:8786"),
    ],
)
def test_addresses(text: str, certs: bool, means: str) -> None:
    assert str(address(text, Path("certs") if certs else None)) == means


@pytest.mark.parametrize(
    ("text", "certs", "says"),
    [
        ("10.0.0.5:8786", False, "plain TCP is used on loopback addresses only"),
        ("tcp://10.0.0.5:8786", True, "plain TCP is used on loopback addresses only"),
        ("0.0.0.0", False, "plain TCP is used on loopback addresses only"),
        ("bench-07", False, "plain TCP is used on loopback addresses only"),
        ("127.0.0.1.example.org", False, "plain TCP is used on loopback addresses only"),
        ("tls://127.0.0.1", False, "needs a certificate"),
        ("ucx://10.0.0.5:1", True, "must be HOST:PORT"),
        ("10.0.0.5:99999", True, "must be HOST:PORT"),
        ("user@10.0.0.5", True, "must be HOST:PORT"),
        ("", True, "must be HOST:PORT"),
    ],
)
def test_addresses_that_are_refused(text: str, certs: bool, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        address(text, Path("certs") if certs else None)


# --- hosts --------------------------------------------------------------------------------------------------

HOSTS = [
    HostRecord(name="c", labels={"cpu": "arm"}, fingerprint="2", refused="It runs other code."),
    HostRecord(name="b", labels={"cpu": "epyc", "rack": "2"}, fingerprint="1"),
    HostRecord(name="a", labels={"cpu": "epyc", "rack": "1"}, fingerprint="1", busy=["user: tune"]),
]


@pytest.mark.parametrize(
    ("on", "of_each_kind", "names"),
    [
        ("all", False, ["a", "b"]),
        ("", False, ["a", "b"]),
        ("b,a,b", False, ["a", "b"]),
        ("cpu=epyc", False, ["a", "b"]),
        ("cpu=epyc, rack=2", False, ["b"]),
        ("all", True, ["b"]),
    ],
)
def test_selected_hosts(on: str, of_each_kind: bool, names: list[str]) -> None:
    assert [one.name for one in select(HOSTS, on, one_of_each_kind=of_each_kind)] == names


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("d", "There is no host `d`"),
        ("a,c", "`c` may not be asked: It runs other code"),
        ("cpu=arm", "No host may be asked"),
        ("cpu=epic", r"No host has the label `cpu=epic`\. Did you mean `cpu=epyc`"),
        ("a,cpu=epyc", "names or labels, not both"),
    ],
)
def test_selections_that_are_refused(on: str, says: str) -> None:
    with pytest.raises(SpecError, match=says):
        select(HOSTS, on)


def test_keys_of_answers_are_distinct_file_names() -> None:
    names = ["a", "a/b", "a%2fb", "..", "A b", "ä"]
    keys = {answer_key("run", 1, one, 1) for one in names}
    assert len(keys) == len(names)
    assert all(Path(one).name == one for one in keys)
