"""The lock files agree with the ranges, forget nothing, name no server, and are what gets installed."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply import install, licences, locked, requirements
from tests.tiny_wheels import wheel

RUN = locked.packages(locked.LOCK.read_text())
TOOLS = locked.packages(locked.TOOLS_LOCK.read_text())
COVERED = sorted(locked.covered(locked.LOCK.read_text()))


def markers_of(environment: tuple[str, str, str]) -> dict[str, str]:
    """What markers ask for, in an environment that this machine is not."""
    system, processor, version = environment
    return {
        "sys_platform": system,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[system],
        "platform_machine": processor,
        "python_version": version,
        "python_full_version": f"{version}.9",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }


def disagreements(
    wanted: Iterable[Requirement], packages: Sequence[locked.Package], environment: tuple[str, str, str]
) -> list[str]:
    """The requirements that the lock file of an environment lacks, has twice, or has outside the range."""
    values = markers_of(environment)
    found: dict[str, list[str]] = {}
    for one in packages:
        if not one.marker or Marker(one.marker).evaluate(values):
            found.setdefault(one.name, []).append(one.version)
    wrong = []
    for one in wanted:
        if one.marker and not one.marker.evaluate(values):
            continue
        versions = found.get(canonicalize_name(one.name), [])
        if len(versions) != 1 or not one.specifier.contains(versions[0], prereleases=True):
            wrong.append(f"{one} is locked as {versions}")
    return wrong


@pytest.mark.parametrize("environment", COVERED, ids="-".join)
def test_every_requirement_is_locked_within_its_range(environment: tuple[str, str, str]) -> None:
    assert disagreements(requirements.running(), RUN, environment) == []
    assert disagreements(requirements.tools(), [*RUN, *TOOLS], environment) == []


@pytest.mark.parametrize(("wanted", "locked_as"), [("numpy>=99", "['2.4."), ("a-new-package", "[]")])
def test_a_range_that_the_lock_file_does_not_follow_is_found(wanted: str, locked_as: str) -> None:
    [wrong] = disagreements([Requirement(wanted)], RUN, COVERED[0])
    assert wrong.startswith(f"{wanted} is locked as {locked_as}")


def test_the_lock_files_cover_the_systems_that_are_promised() -> None:
    pythons = ("3.11", "3.12", "3.13", "3.14")
    systems = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    assert set(COVERED) == {(*one, version) for one in systems for version in pythons}
    assert ("linux", "x86_64", "3.11") in locked.covered(locked.TOOLS_LOCK.read_text())


def test_what_locked_packages_require_is_locked() -> None:
    """The metadata of what is installed here: pip is told to install nothing else."""
    named = {one.name: one.version for one in [*RUN, *TOOLS]}
    missing, compared = [], 0
    for name, version in named.items():
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another system
        if distribution.version == version:
            compared += 1
            missing += [f"{name} needs {one}" for one in licences.direct(distribution) if one not in named]
    assert missing == []
    assert compared > len(RUN) / 2


def test_every_extra_is_locked_or_has_a_reason() -> None:
    groups = [requirements.RUN_EXTRAS, requirements.TOOL_EXTRAS, tuple(requirements.NOT_LOCKED)]
    assert sorted(name for group in groups for name in group) == sorted(requirements.extras())


def test_the_files_hold_versions_and_hashes_only() -> None:
    for path in (locked.LOCK, locked.TOOLS_LOCK):
        assert "://" not in path.read_text()
        assert path.read_text().isascii()
    names = [{one.name for one in group} for group in (RUN, TOOLS)]
    assert names[0] & names[1] == set()
    of_one = [digest for one in [*RUN, *TOOLS] for digest in set(one.hashes)]
    assert len(of_one) == len(set(of_one))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--index-url https://example.org/simple\n", "Line 1 .*--index-url"),
        ("numpy==2.4.6\n", "no hash for numpy"),
        ("numpy>=2.4 \\\n    --hash=sha256:" + "0" * 64, "Line 1 .*numpy>=2.4"),
        ("numpy==2.4.6 \\\n    --hash=md5:" + "0" * 32, "Line 2 .*md5"),
        ("numpy @ https://example.org/numpy.whl \\\n    --hash=sha256:" + "0" * 64, "Line 1"),
    ],
)
def test_other_lines_are_refused(text: str, message: str) -> None:
    with pytest.raises(locked.LockError, match=message):
        locked.packages(text)


def test_a_lock_file_is_written_as_it_was_read() -> None:
    text = "\n".join(one.text for one in RUN) + "\n"
    assert locked.LOCK.read_text().endswith(text)
    assert locked.packages(text) == RUN


def test_elsewhere_the_ranges_are_installed_and_that_is_said() -> None:
    lock = locked.LOCK.read_text()
    assert install.not_covered(lock, "requirements.lock", ("linux", "x86_64", "3.11")) == ""
    said = install.not_covered(lock, "requirements.lock", ("freebsd14", "amd64", "3.11"))
    assert "Python 3.11 on freebsd14 amd64" in said
    assert "requirements.txt; no hash is checked" in said
    [command] = install.commands(tools=False, from_lock=False)
    assert "--require-hashes" not in command
    assert str(locked.ROOT / "requirements.txt") in command
    [command] = install.commands(tools=True, from_lock=False)
    assert str(locked.ROOT / "requirements-dev.txt") in command


@pytest.mark.parametrize("changed", [False, True], ids=["same", "changed"])
def test_a_changed_file_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    made = wheel(tmp_path / "wheels", "tiny", "1.0", {"tiny.py": "NAME = 'tiny'\n"})
    digest = sha256(made.read_bytes()).hexdigest()
    if changed:
        wheel(tmp_path / "wheels", "tiny", "1.0", {"tiny.py": "NAME = 'another'\n"})
    lock = tmp_path / "requirements.lock"
    lock.write_text(locked.Package("tiny", "1.0", "", (digest,)).text + "\n")
    monkeypatch.setattr(locked, "LOCK", lock)
    command, itself = install.commands(tools=False, from_lock=True)
    assert itself[-2:] == ["-e", str(locked.ROOT)]
    assert "--no-deps" in itself
    alone = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(made.parent), "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [*command, "--target", str(tmp_path / "into")],
        env={**os.environ, **alone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == changed
    assert (tmp_path / "into" / "tiny.py").exists() != changed
    assert ("DO NOT MATCH THE HASHES" in done.stderr) == changed
    assert sys.executable == command[0]
