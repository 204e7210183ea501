"""What ORTune requires: its licences, the bill of materials, and the audit with a database of the test."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from supply import audit, licences, locked, requirements, sbom


def all_required() -> dict[str, importlib.metadata.Distribution]:
    optional = [one for name in requirements.TOOL_EXTRAS for one in requirements.extras()[name]]
    return licences.required([*requirements.running(), *optional])


def made_up(folder: Path, *lines: str) -> importlib.metadata.Distribution:
    about = folder / "made_up-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.4", "Name: made-up", "Version: 1.0", *lines, ""])
    )
    return importlib.metadata.PathDistribution(about)


# --- licences ---------------------------------------------------------------------------------------


def test_every_required_package_has_a_licence_that_apache_allows() -> None:
    found = all_required()
    assert licences.refused(found.values()) == {}
    assert {"streamlit", "numpy", "torch", "onnxruntime-gpu", "jinja2", "cryptography"} <= set(found)
    assert "igraph" not in found


def test_exceptions_by_name_are_required_and_needed() -> None:
    found = all_required()
    assert set(licences.BY_NAME) <= set(found)
    for name in licences.BY_NAME:
        try:
            statements = licences.stated(found[name].metadata)  # type: ignore[arg-type]
        except licences.UnknownLicence:
            continue
        assert not all(licences.accepted(one) for one in statements), name


@pytest.mark.parametrize(
    "line",
    [
        "License-Expression: GPL-3.0-or-later",
        "License-Expression: MIT AND GPL-2.0-only",
        "License-Expression: (MIT OR Apache-2.0) AND AGPL-3.0-only",
        "License-Expression: GPL-2.0-only WITH Classpath-exception-2.0",
        "License-Expression: LicenseRef-Own",
        "Classifier: License :: OSI Approved :: GNU General Public License v2 or later (GPLv2+)",
        "Classifier: License :: OSI Approved :: MIT License\nClassifier: License :: Other/Proprietary",
        "License: GPL",
        "Classifier: License :: OSI Approved :: MIT License\nLicense: GPL-3.0",
        "License: free for research",
        "Classifier: License :: OSI Approved",
        "Summary: without any licence",
    ],
)
def test_other_licences_are_refused_by_name(tmp_path: Path, line: str) -> None:
    assert list(licences.refused([made_up(tmp_path, line)])) == ["made-up"]


def test_an_exception_by_name_holds_for_what_it_was_made_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(licences.BY_NAME, "made-up", "of the test")
    assert licences.refused([made_up(tmp_path, "Summary: without any licence")]) == {}
    assert list(licences.refused([made_up(tmp_path, "License-Expression: GPL-3.0-only")])) == ["made-up"]


@pytest.mark.parametrize(
    "line",
    [
        "License-Expression: MIT OR GPL-2.0-only",
        "License-Expression: GPL-2.0-only OR (MIT AND BSD-3-Clause)",
        "License-Expression: Apache-2.0 WITH LLVM-exception",
        "License-Expression: mit and 0bsd",
        "Classifier: License :: OSI Approved :: MIT License\nLicense: the text of the licence",
        "License: BSD-3-Clause",
    ],
)
def test_licences_that_apache_allows_are_accepted(tmp_path: Path, line: str) -> None:
    assert licences.refused([made_up(tmp_path, line)]) == {}


# --- bill of materials ------------------------------------------------------------------------------


def test_the_bill_of_materials_is_valid_and_the_same_each_time() -> None:
    made = sbom.document()
    text = json.dumps(made)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert json.dumps(sbom.document()) == text
    assert "http" not in text.replace("http://cyclonedx.org", "")
    numpy = next(one for one in made["components"] if one["name"] == "numpy")
    version = importlib.metadata.version("numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{version}"
    assert numpy["licenses"][0]["expression"].startswith("BSD-3-Clause AND")
    [lock] = [one for one in locked.packages(locked.LOCK.read_text()) if one.name == "numpy"]
    assert [one["content"] for one in numpy["externalReferences"][0]["hashes"]] == list(lock.hashes)
    needs = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert numpy["purl"] in needs[f"pkg:pypi/pandas@{importlib.metadata.version('pandas')}"]
    assert set(needs) == {one["purl"] for one in [made["metadata"]["component"], *made["components"]]}


def test_an_invalid_bill_is_found() -> None:
    made = sbom.document()
    made["components"][0]["type"] = "made up"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is not None


def test_another_version_than_the_locked_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "running", lambda: [Requirement("pytest")])
    with pytest.raises(sbom.NotAsLocked, match=r"(?:pytest|iniconfig|pluggy) .* is not locked\. .*make run"):
        sbom.document()
    monkeypatch.setattr(requirements, "running", lambda: [Requirement("not-installed-at-all")])
    with pytest.raises(sbom.NotAsLocked, match=r"not-installed-at-all is not installed\."):
        sbom.document()


# --- audit ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def database(vulnerable: Mapping[str, str], status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """A server that answers as OSV: packages with the version that mends them; and what it was sent."""
    sent: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = wanted["package"]["name"]
            sent.append(f"{name}=={wanted['version']}")
            fixed = [{"introduced": "0"}, {"fixed": vulnerable.get(name, "")}]
            affected = {
                "package": {"name": name, "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": fixed}],
            }
            found = {"id": "GHSA-0000-0000-0000", "summary": "made up", "aliases": [], "affected": [affected]}
            text = json.dumps({"vulns": [found]} if name in vulnerable else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/query", sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_every_locked_version_is_looked_up(capsys: pytest.CaptureFixture[str]) -> None:
    packages = [one for path in (locked.LOCK, locked.TOOLS_LOCK) for one in locked.packages(path.read_text())]
    with database({}) as (url, sent):
        assert audit.main(["--database", url]) == 0
    assert sorted(sent) == sorted(f"{one.name}=={one.version}" for one in packages)
    assert capsys.readouterr().out == f"No known vulnerability in {len(packages)} packages.\n"


def test_a_vulnerable_version_fails_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with database({"urllib3": "99.1"}) as (url, _):
        assert audit.main(["--database", url]) == 1
    said = capsys.readouterr().out
    assert said.startswith("urllib3 2.")
    assert "GHSA-0000-0000-0000 (fixed in 99.1)" in said


def test_without_the_database_nothing_is_audited_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else gets it meanwhile, and nobody listens
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/query"
        assert audit.main(["--database", url]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Database of vulnerabilities not reachable: ")
    assert said.endswith(" packages not audited.\n")


def test_a_database_that_answers_nonsense_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    with database({}, status=500) as (url, _):
        assert audit.main(["--database", url]) == 2
    assert "nothing is known about vulnerabilities" in capsys.readouterr().err


def test_what_one_list_found_is_told_when_another_got_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[dict[str, list[str]] | None] = [{"jinja2 3.0": ["GHSA-0 (fixed in 3.1)"]}, None]
    monkeypatch.setattr(audit, "_audit_list", lambda text, database: answers.pop(0))
    twice = [locked.Package(name="jinja2", version=one, marker="", hashes=()) for one in ("3.0", "3.1")]
    assert audit.audit(twice) == {"jinja2 3.0": ["GHSA-0 (fixed in 3.1)"]}
