"""The commands `keys`, `sign` and `provenance`, and `--sign`, run for real on a measured variant."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_UNDECIDED
from core.run.signing.checking import check_path
from core.run.signing.files import BEGIN
from core.store import STORE_NAME, Store, audit
from core.wire.variables import KEY_PASSPHRASE
from tests import simulated_clock, tiny_models
from tests.command_line import CommandLine, Done
from tests.simulated_clock import Model

pytest.importorskip("cryptography")
pytestmark = pytest.mark.usefixtures("jobs_at_once")

NAME, SECRET = "ann@example.com", "correct horse"
SHORT = ("--runs", "30", "--warmup-runs", "1", "--quiet", "--json")
STORED = ("model", "variant", "result", "measurements")
IN_BUNDLE = (*STORED, "YAML in the bundle", "bundle")


@dataclass(frozen=True)
class Exported:
    """A measured variant, and the files that were exported and signed."""

    home: Path
    trial: str
    yaml: Path
    bundle: Path


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, acquainted: Path, one_description_of_the_machine: None
) -> Exported:
    folder = tmp_path_factory.mktemp("made")
    line = CommandLine(folder, acquainted)
    model = tiny_models.mlp(folder / "own.onnx")
    public = succeeded(line.run("keys", "create", NAME, "--json"))["public_key"]
    succeeded(line.run("keys", "trust", NAME, public, "--json"))
    fixed = ("--fix-dims", "--dim", "batch=2", "--name", "fixed")
    succeeded(line.run("transform", str(model), *fixed, "--json"))
    with simulated_clock.machine():
        trial = str(line.run("tune", "fixed", *SHORT).document["trial"])
    yaml, bundle = folder / "best.yaml", folder / "best.zip"
    succeeded(line.run("export", trial, "-o", str(yaml), "--sign", NAME, "--json"))
    succeeded(line.run("export", trial, "--format", "bundle", "-o", str(bundle), "--sign", NAME, "--json"))
    return Exported(line.home, trial, yaml, bundle)


@pytest.fixture
def line(made: Exported, tmp_path: Path) -> Iterator[CommandLine]:
    """A command line on a copy of that home; the files of its models are as before afterwards."""
    one = CommandLine(tmp_path, made.home)
    before = {path: path.read_bytes() for path in map(Path, _model_paths(one).values())}
    yield one
    for path, data in before.items():
        path.write_bytes(data)


@pytest.fixture
def copies(made: Exported, line: CommandLine, tmp_path: Path) -> Exported:
    """That home and its files, to change them; the models are in the home."""
    yaml, bundle = (Path(shutil.copy(one, tmp_path)) for one in (made.yaml, made.bundle))
    return Exported(line.home, made.trial, yaml, bundle)


def succeeded(done: Done) -> Any:
    assert done.code == 0, done.err
    return done.document


def refused(done: Done, *words: str) -> None:
    assert done.code == EXIT_BAD_INPUT, done.err
    assert "Traceback" not in done.err
    said = " ".join(done.err.split())
    assert [word for word in words if word not in said] == []


def states(done: Done) -> dict[str, str]:
    return {one["name"]: one["state"] for one in done.document["links"]}


def actions(line: CommandLine) -> list[tuple[str, str]]:
    return [(one.action, one.what) for one in audit.entries(line.home)]


# --- keys ---------------------------------------------------------------------------------------------------


def test_keys_are_created_listed_trusted_and_removed(cli: CommandLine) -> None:
    created = cli.run("keys", "create", NAME)
    assert created.code == 0, created.err
    private = cli.home / "keys" / f"{NAME}.pem"
    assert private.stat().st_mode & 0o777 == 0o600
    assert not [one for one in private.read_text().splitlines() if one in created.out]
    [own] = succeeded(cli.run("keys", "list", "--json"))["own"]
    assert own["public_key"] in created.out
    assert own["fingerprint"] in created.out
    public = str(cli.home / "keys" / f"{NAME}.pub")
    trusted = cli.run("keys", "trust", "Ann", public, "--until", "2099-12-31", "--note", "by telephone")
    assert (trusted.code, own["fingerprint"] in trusted.out) == (0, True)
    listed = cli.run("keys", "list", "--wide").out
    assert all(word in listed for word in (NAME, "Ann", "2099-12-31", "by telephone"))
    assert cli.run("keys", "remove", "Ann").code == 0
    assert succeeded(cli.run("keys", "list", "--json"))["trusted"] == []
    assert actions(cli) == [
        ("create", f"signing key of {NAME}"),
        ("change", "key of Ann trusted until 2099-12-31"),
        ("change", "key of Ann no longer trusted"),
    ]
    assert {one.more["key"] for one in audit.entries(cli.home)} == {own["fingerprint"]}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("create", "../x"), ("name of a signer", "../x")),
        (("create", NAME, "--passphrase"), ("needs a passphrase", KEY_PASSPHRASE)),
        (("trust", "Ann", "ed25519:short"), ("public key", "ed25519:short")),
        (("trust", "Ann", "missing.pub"), ("missing.pub", "cannot be read")),
        (("trust", "Ann", f"ed25519:{'A' * 43}=", "--until", "soon"), ("soon",)),
        (("remove", "Ann"), ("no name `Ann`",)),
        (("list", "--trust", "missing.yaml"), ("missing.yaml", "cannot be read")),
    ],
)
def test_what_keys_refuse_is_told(command: tuple[str, ...], words: tuple[str, ...], cli: CommandLine) -> None:
    refused(cli.run("keys", *command), *words)
    assert actions(cli) == []


def test_a_key_is_never_replaced(cli: CommandLine) -> None:
    assert cli.run("keys", "create", NAME).code == 0
    before = (cli.home / "keys" / f"{NAME}.pem").read_bytes()
    refused(cli.run("keys", "create", NAME), "exists already")
    assert (cli.home / "keys" / f"{NAME}.pem").read_bytes() == before


# --- signatures ---------------------------------------------------------------------------------------------


def test_a_file_is_signed_with_an_encrypted_key(cli: CommandLine, made: Exported, tmp_path: Path) -> None:
    cli.environment[KEY_PASSPHRASE] = SECRET
    created = succeeded(cli.run("keys", "create", NAME, "--passphrase", "--json"))
    signed = tmp_path / "signed.yaml"
    told = succeeded(cli.run("sign", str(made.yaml), "--key", NAME, "-o", str(signed), "--json"))
    assert (told["file"], told["signature"]["signer"]) == (str(signed), NAME)
    assert signed.read_text().count(BEGIN) == 1  # the earlier signature is replaced
    assert check_path(signed).fingerprint == created["fingerprint"]
    for wrong, words in (("wrong", "the passphrase is wrong"), ("", "no passphrase is given")):
        cli.environment[KEY_PASSPHRASE] = wrong
        refused(cli.run("sign", str(signed), "--key", NAME), words)
    [used] = audit.entries(cli.home, action="sign")
    assert (used.what, used.more["key"]) == (f"yaml with the key of {NAME}", created["fingerprint"])
    assert SECRET not in (cli.home / "audit" / "audit.jsonl").read_text()


def test_what_sign_refuses_is_told(line: CommandLine, copies: Exported) -> None:
    before = copies.yaml.read_bytes()
    refused(line.run("sign", str(copies.yaml), "--key", "Bob"), "no key `Bob`", NAME)
    refused(line.run("sign", "missing.yaml", "--key", NAME), "missing.yaml")
    public = str(line.home / "keys" / f"{NAME}.pub")
    refused(line.run("sign", str(copies.yaml), "--key", public), "public key")
    (line.home / "keys" / f"{NAME}.pem").chmod(0o644)
    refused(line.run("sign", str(copies.yaml), "--key", NAME), "mode 0644", "chmod 600")
    python = ("export", copies.trial, "--format", "python", "--sign", NAME)
    (line.home / "keys" / f"{NAME}.pem").chmod(0o600)
    refused(line.run(*python), "Only YAML files and bundles can be signed")
    assert copies.yaml.read_bytes() == before


def test_verify_requires_the_signature(line: CommandLine, copies: Exported) -> None:
    short = ("--no-measure", "--quiet", "--json")
    for path in (copies.yaml, copies.bundle):
        found = line.run("verify", str(path), "--require-signature", "--signed-by", NAME, *short)
        assert found.document["signature"]["state"] == "TRUSTED", found.err
        refused(line.run("verify", str(path), "--signed-by", "Bob", *short), f"signed by `{NAME}`")
    assert line.run("keys", "remove", NAME).code == 0
    refused(line.run("verify", str(copies.yaml), "--require-signature", *short), "unknown key")
    copies.yaml.write_text(copies.yaml.read_text().replace("schema: 1", "schema:  1"))
    refused(line.run("verify", str(copies.yaml), *short), "signature is wrong")


def binding_pays(label: str, plan: Any) -> Model:
    return Model(run_s=1e-5 if plan["use_io_binding"] else 2e-5, load_s=0.1, warm_s=0.05)


def test_a_search_signs_its_best_configuration(line: CommandLine, square: Path, tmp_path: Path) -> None:
    best, vary = tmp_path / "best.yaml", ("--vary", "use_io_binding=on,off", "--budget", "60s")
    refused(line.run("search", str(square), *vary, "--sign", NAME), "--sign", "--output")
    refused(line.run("search", str(square), *vary, "-o", str(best), "--sign", "Bob"), "no key `Bob`")
    with simulated_clock.machine(binding_pays):
        done = line.run("search", str(square), *vary, "-o", str(best), "--sign", NAME, "--json")
    assert done.document["outcome"] == "FOUND", done.err
    assert "found_by_search" in best.read_text()
    assert f"signed by `{NAME}`" in line.run("verify", str(best), "--signed-by", "Bob").err
    assert [one.action for one in audit.entries(line.home)][-2:] == ["sign", "export"]
    chain = line.run("provenance", str(best), "--json").document
    assert (chain["state"], chain["signature"]["state"]) == ("INTACT", "TRUSTED")


# --- provenance ---------------------------------------------------------------------------------------------


def test_an_intact_chain_ends_with_exit_code_0(line: CommandLine, copies: Exported) -> None:
    for ref, names in (
        (copies.trial[:8], STORED),
        (str(copies.yaml), (*STORED, "YAML file")),
        (str(copies.bundle), IN_BUNDLE),
    ):
        done = line.run("provenance", ref, "--json")
        assert done.code == 0, done.document
        assert states(done) == dict.fromkeys(names, "MATCHES")
    assert done.document["signature"]["signer"] == NAME
    shown = line.run("provenance", str(copies.bundle)).out
    assert "✓ model → ✓ variant → ✓ result → ✓ measurements" in shown
    assert f"Signed by `{NAME}`" in shown


def _model_paths(line: CommandLine) -> dict[str, str]:
    return {one.name: one.path for one in Store(line.home / STORE_NAME).models()}


def change_model(line: CommandLine, files: Exported) -> None:
    Path(_model_paths(line)["own"]).write_bytes(b"another model")


def change_variant(line: CommandLine, files: Exported) -> None:
    Path(_model_paths(line)["fixed"]).write_bytes(b"another model")


def change_result(line: CommandLine, files: Exported) -> None:
    _execute(line, "UPDATE trials SET result = replace(result, '\"runs\"', '\"Runs\"') WHERE result NOT NULL")


def change_measurements(line: CommandLine, files: Exported) -> None:
    _execute(line, "UPDATE samples SET data = data || x'00'")


def _execute(line: CommandLine, statement: str) -> None:
    with closing(sqlite3.connect(line.home / STORE_NAME)) as db:
        assert db.execute(statement).rowcount
        db.commit()


@pytest.mark.parametrize(
    ("link", "change"),
    [
        ("model", change_model),
        ("variant", change_variant),
        ("result", change_result),
        ("measurements", change_measurements),
    ],
)
def test_a_changed_link_of_a_bundle_ends_with_exit_code_1(
    link: str,
    change: Callable[[CommandLine, Exported], None],
    line: CommandLine,
    copies: Exported,
) -> None:
    change(line, copies)
    done = line.run("provenance", str(copies.bundle), "--json")
    assert done.code == EXIT_FAILED, json.dumps(done.document)
    assert [name for name, state in states(done).items() if state == "DIFFERS"] == [link]
    assert f"✗ {link}" in line.run("provenance", str(copies.bundle)).out


def test_a_changed_bundle_ends_with_exit_code_1(line: CommandLine, copies: Exported) -> None:
    copies.bundle.write_bytes(copies.bundle.read_bytes().replace(b"schema: 1", b"schema: 2", 1))
    done = line.run("provenance", str(copies.bundle), "--json")
    assert (done.code, states(done)) == (EXIT_FAILED, {"bundle": "DIFFERS"})
    assert done.document["signature"]["state"] == "WRONG"


def rebuilt(bundle: Path, name: str, data: bytes) -> None:
    """Replace a file of a bundle, with a fitting `bundle.json` and without a signature."""
    with zipfile.ZipFile(bundle) as archive:
        held = {one: archive.read(one) for one in archive.namelist()} | {name: data}
    manifest = json.loads(held["bundle.json"])
    for one in manifest["files"]:
        one["sha256"] = hashlib.sha256(held[one["path"]]).hexdigest()
        one["size_bytes"] = len(held[one["path"]])
        if one["path"] == manifest["model"]["path"]:
            manifest["model"]["sha256"] = one["sha256"]
    held["bundle.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(bundle, "w") as archive:
        for one, content in held.items():
            archive.writestr(one, content)


@pytest.mark.parametrize(
    ("name", "link", "state", "code"),
    [
        ("run.py", "bundle", "MISSING", EXIT_UNDECIDED),
        ("samples/outputs.npz", "bundle", "DIFFERS", EXIT_FAILED),
        ("model", "bundle", "DIFFERS", EXIT_FAILED),
        ("model", "YAML in the bundle", "DIFFERS", EXIT_FAILED),
    ],
)
def test_a_rebuilt_bundle_is_not_intact(
    name: str, link: str, state: str, code: int, line: CommandLine, copies: Exported
) -> None:
    with zipfile.ZipFile(copies.bundle) as archive:
        path = next(one for one in archive.namelist() if one.startswith(name))
        data = archive.read(path)
    rebuilt(copies.bundle, path, data)
    assert states(line.run("provenance", str(copies.bundle), "--json"))["YAML in the bundle"] == "MATCHES"
    rebuilt(copies.bundle, path, data + b"\n# changed")
    done = line.run("provenance", str(copies.bundle), "--json")
    assert (done.code, states(done)[link]) == (code, state), done.document


def test_a_wrong_signature_beside_a_manifest_is_refused(
    line: CommandLine, copies: Exported, tmp_path: Path
) -> None:
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(copies.bundle) as archive:
        archive.extractall(folder)
    config = folder / "config.yaml"
    assert line.run("sign", str(config), "--key", NAME).code == 0
    config.write_bytes(config.read_bytes().replace(b"schema: 1", b"schema:  1"))
    refused(line.run("verify", str(config), "--no-measure", "--quiet"), "signature is wrong")
    assert line.run("provenance", str(config), "--json").document["state"] == "BROKEN"


def test_a_changed_yaml_file_ends_with_exit_code_1(line: CommandLine, copies: Exported) -> None:
    text = copies.yaml.read_text().partition(f"# {BEGIN}")[0]
    copies.yaml.write_text(re.sub(r"p50_s: \S+", "p50_s: 0.0001", text))
    done = line.run("provenance", str(copies.yaml), "--json")
    assert (done.code, states(done)["YAML file"]) == (EXIT_FAILED, "DIFFERS")
    assert done.document["signature"]["state"] == "NONE"


def test_a_missing_link_ends_with_exit_code_3(
    line: CommandLine, copies: Exported, acquainted: Path, tmp_path: Path
) -> None:
    elsewhere = CommandLine(tmp_path / "elsewhere", acquainted)
    done = elsewhere.run("provenance", str(copies.yaml), "--json")
    assert (done.code, states(done)["result"]) == (EXIT_UNDECIDED, "MISSING")
    assert done.document["signature"]["state"] == "UNKNOWN_KEY"
    Path(_model_paths(line)["fixed"]).unlink()
    done = line.run("provenance", copies.trial, "--json")
    assert (done.code, states(done)["variant"]) == (EXIT_UNDECIDED, "MISSING")


def test_what_provenance_refuses_is_told(line: CommandLine, tmp_path: Path) -> None:
    refused(line.run("provenance", "bbbbbb000002"), "no trial `bbbbbb000002`")
    refused(line.run("provenance", "missing.yaml"), "missing.yaml")
