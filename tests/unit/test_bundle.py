"""Uploaded bundles: path traversal, oversize, false or damaged content is refused with one clear line."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.run.bundle import CONFIG, INPUTS, MANIFEST, OUTPUTS, opening
from core.run.bundle.opening import check, open_configuration
from core.wire.errors import SpecError
from tests.reading import numbers, tells

MODEL = b"no model, but nobody looks"
YAML = "schema: 1\nmodel: {path: model/m.onnx, sha256: " + hashlib.sha256(MODEL).hexdigest() + "}\n"
FILES: Mapping[str, bytes] = {CONFIG: YAML.encode(), "model/m.onnx": MODEL}


def manifest(held: Mapping[str, bytes], **changes: Any) -> dict[str, Any]:
    digest = hashlib.sha256(MODEL).hexdigest()
    listed = [
        {"path": name, "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        for name, data in held.items()
    ]
    return {
        "bundle": 1,
        "tool_version": "0.1.0",
        "trial": "t",
        "model": {"path": "model/m.onnx", "name": "m", "sha256": digest, "content_sha256": digest},
        "sample": None,
        "no_sample": "None was recorded.",
        "baseline": None,
        "files": listed,
    } | changes


def bundle(
    path: Path,
    held: Mapping[str, bytes] = FILES,
    *,
    entries: list[tuple[zipfile.ZipInfo, bytes]] | None = None,
    packed: int = zipfile.ZIP_STORED,
    **changes: Any,
) -> Path:
    """A zip of these files, with their manifest; `entries` are added to it unchanged."""
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
        for entry, data in entries or []:
            archive.writestr(entry, data)
        archive.writestr(MANIFEST, json.dumps(manifest(held, **changes)))
    return path


def refused(path: Path, tmp_path: Path) -> str:
    """What is said of a file that nobody may open; nothing of it stays."""
    within = tmp_path / "within"
    within.mkdir(exist_ok=True)
    with pytest.raises(SpecError) as error, open_configuration(path, within=within):
        pass
    assert list(within.iterdir()) == []
    assert error.value.hint
    return error.value.message


def test_a_sound_bundle_is_opened_and_goes_again(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.zip")
    check(path)
    with open_configuration(path, within=tmp_path / "within") as held:
        model = Path(held.spec.model.path)
        assert model.read_bytes() == MODEL
        assert (bool(held.no_sample), held.name, held.sample) == (True, "m", None)
    assert not model.exists()


def test_a_packed_bundle_of_somebody_else_is_opened_too(tmp_path: Path) -> None:
    with open_configuration(bundle(tmp_path / "b.zip", packed=zipfile.ZIP_DEFLATED)) as held:
        assert held.spec.model.sha256 == hashlib.sha256(MODEL).hexdigest()


def test_a_folder_as_unzip_leaves_it_is_a_bundle_as_well(tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle(tmp_path / "b.zip")) as archive:
        archive.extractall(tmp_path / "b")
    with open_configuration(tmp_path / "b" / CONFIG) as held:
        assert held.spec.model.path == str(tmp_path / "b" / "model" / "m.onnx")
    (tmp_path / "b" / "model" / "m.onnx").write_bytes(MODEL + b"!")
    assert "bundled" in refused(tmp_path / "b" / CONFIG, tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc/outside", "model/../../outside", "a\\..\\outside", "C:outside", "./config.yaml"],
)
def test_a_path_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    told = refused(bundle(tmp_path / "b.zip", {**FILES, name: b"x"}), tmp_path)
    assert "folder" in told or "path" in told
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "within" / "outside").exists()


def _entry(name: str, kind: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16
    return entry


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (_entry("link", stat.S_IFLNK), "is a symbolic link"),
        (_entry("pipe", stat.S_IFIFO), "is not a regular file"),
        (_entry("folder/", stat.S_IFDIR), "is not a regular file"),
        (_entry("extra", stat.S_IFREG), "does not list"),
        (_entry("CONFIG.yaml", stat.S_IFREG), "occurs twice"),
    ],
)
def test_what_is_no_file_of_the_bundle_is_refused(tmp_path: Path, entry: zipfile.ZipInfo, words: str) -> None:
    assert words in refused(bundle(tmp_path / "b.zip", entries=[(entry, b"/etc/passwd")]), tmp_path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    files = {**FILES, "model/zeros": bytes(60_000_000)}
    path = bundle(tmp_path / "b.zip", files, packed=zipfile.ZIP_DEFLATED)
    assert "zip bomb" in refused(path, tmp_path)


def test_a_file_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.zip", {**FILES, "model/zeros": bytes(50_000)}, packed=zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    at = data.index(b"model/zeros", data.index(b"PK\x01\x02"))  # in the central directory
    data[at - 22 : at - 18] = struct.pack("<I", 10)
    path.write_bytes(data)
    assert refused(path, tmp_path)


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    files = {**FILES, **{f"f{number}": b"" for number in range(opening.MOST_FILES)}}
    assert "1,000" in refused(bundle(tmp_path / "b.zip", files), tmp_path)


def test_a_wrong_hash_names_the_file(tmp_path: Path) -> None:
    listed = manifest(FILES)["files"]
    listed[1]["sha256"] = "0" * 64
    told = refused(bundle(tmp_path / "b.zip", files=listed), tmp_path)
    assert "`model/m.onnx`" in told


def test_a_newer_version_is_named(tmp_path: Path) -> None:
    told = refused(bundle(tmp_path / "b.zip", bundle=2, tool_version="9.0"), tmp_path)
    assert numbers(told) == [9.0, 2, 1]


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
def test_a_truncated_bundle_is_damaged(tmp_path: Path, share: float) -> None:
    path = bundle(tmp_path / "b.zip")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    assert "zip" in refused(path, tmp_path)


@pytest.mark.parametrize("where", [0.1, 0.3])
def test_a_changed_byte_is_seen(tmp_path: Path, where: float) -> None:
    path = bundle(tmp_path / "b.zip")
    data = bytearray(path.read_bytes())
    data[data.index(MODEL) + int(len(MODEL) * where)] ^= 1
    path.write_bytes(data)
    assert "b.zip`" in refused(path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bundle": "1"}, "has no format version"),
        ({"bundle": True}, "has no format version"),
        ({"model": None}, "is invalid"),
        ({"files": []}, f"it needs `{CONFIG}`"),
        ({"files": [{"path": "../x", "sha256": "", "size_bytes": 0}]}, "it needs"),
        ({"sample": {"inputs": 3}}, "is invalid"),
        ({"no_sample": "\ud800"}, "is not JSON"),  # half of a character cannot be printed
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    assert words in refused(bundle(tmp_path / "b.zip", **changes), tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tolerance": float("nan")}, "is not JSON"),
        ({"tolerance": float("inf")}, "is not JSON"),  # every answer would be right
        ({"tolerance": 10**400}, "is invalid"),
        ({"tolerance": 1e9}, "inputs or outputs are invalid"),
        ({"tolerance": -1.0}, "inputs or outputs are invalid"),
        ({"rows": 0}, "inputs or outputs are invalid"),
        ({"rows": -3}, "inputs or outputs are invalid"),
        ({"rows": 10**12}, "inputs or outputs are invalid"),
    ],
)
def test_a_sample_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    files = {**FILES, INPUTS: b"x", OUTPUTS: b"y"}
    sample = {"inputs": INPUTS, "outputs": OUTPUTS, "rows": 2, "precision": "fp32", "tolerance": 0.01}
    with open_configuration(bundle(tmp_path / "sound.zip", files, sample=sample)) as held:
        assert held.sample is not None
    assert words in refused(bundle(tmp_path / "b.zip", files, sample=sample | changes), tmp_path)


def test_the_baseline_of_a_bundle_cannot_turn_expert_on_either(tmp_path: Path) -> None:
    session = {"expert": True, "session_config_entries": {"my.key": "1"}}
    spec = {"model": {"path": "model/m.onnx"}, "session": session}
    path = bundle(tmp_path / "b.zip", baseline={"label": "the old one", "spec": spec})
    assert "`session.expert`" in refused(path, tmp_path)
    with open_configuration(path, expert=True) as held:
        assert held.baseline is not None


def test_a_manifest_by_another_name_is_none(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
        archive.writestr(MANIFEST.upper(), json.dumps(manifest(FILES)))
    assert f"`{MANIFEST}`" in refused(path, tmp_path)


def test_a_zip_of_something_else_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert f"`{MANIFEST}`" in refused(path, tmp_path)
    path.write_bytes(b"")
    assert "zip" in refused(path, tmp_path)
    assert "missing.zip" in refused(tmp_path / "missing.zip", tmp_path)


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    path = bundle(tmp_path / "b.zip")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in refused(path, tmp_path)


def test_a_full_disk_is_said_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = opening.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(opening.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert "free" in refused(bundle(tmp_path / "b.zip"), tmp_path)


def test_a_bundle_cannot_reach_files_of_this_machine(tmp_path: Path) -> None:
    for more, words in (
        ("workload: {feeds: /etc/passwd.npz}\n", "which is not in it"),
        ('session: {session_config_entries: {ep.context_file_path: "/etc/x"}}\n', "outside the allowed"),
        (  # in the current folder
            f'session: {{session_config_entries: {{ep.context_file_path: "{Path.cwd() / "x"}"}}}}\n',
            "outside the allowed",
        ),
        ("session: {expert: true}\n", "the operator's to turn on"),
    ):
        files = {**FILES, CONFIG: (YAML + more).encode()}
        assert words in refused(bundle(tmp_path / "b.zip", files), tmp_path)


def test_a_configuration_that_is_no_text_is_refused(tmp_path: Path) -> None:
    files = {**FILES, CONFIG: b"\xff\xfe\x00"}
    assert "UTF-8" in refused(bundle(tmp_path / "b.zip", files), tmp_path)
    assert "`schema`" in refused(bundle(tmp_path / "b.zip", {**FILES, CONFIG: b"schema: 9"}), tmp_path)
    assert "mapping" in refused(bundle(tmp_path / "b.zip", {**FILES, CONFIG: b""}), tmp_path)


def test_its_model_is_the_one_in_it_whatever_the_yaml_says(tmp_path: Path) -> None:
    text = "schema: 1\nmodel: {path: /etc/passwd}\n"
    with open_configuration(bundle(tmp_path / "b.zip", {**FILES, CONFIG: text.encode()})) as held:
        assert Path(held.spec.model.path).read_bytes() == MODEL
        assert held.spec.model.sha256 == hashlib.sha256(MODEL).hexdigest()


def test_a_key_of_an_earlier_version_is_read_and_named(tmp_path: Path) -> None:
    text = YAML + "protocol: {precision: publish}\n"
    with open_configuration(bundle(tmp_path / "b.zip", {**FILES, CONFIG: text.encode()})) as held:
        assert held.spec.protocol.effort == "publish"
        assert tells(held.note, "protocol.precision", "protocol.effort")
    with open_configuration(bundle(tmp_path / "new.zip")) as held:
        assert held.note == ""


def test_what_begins_like_a_zip_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    with open_configuration(bundle(tmp_path / "b.yaml")) as held:
        assert held.folder is not None
    buffer = io.BytesIO()
    zipfile.ZipFile(buffer, "w").close()
    (tmp_path / "empty.zip").write_bytes(buffer.getvalue())
    assert f"`{MANIFEST}`" in refused(tmp_path / "empty.zip", tmp_path)
