"""Every room of `core` is under a contract, no file needs itself, and ARCHITECTURE.md names every room."""

import importlib
import tomllib
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")
    for folder in ("core", "dashboard")
    for path in (ROOT / folder).rglob("*.py")
    if "\n__all__ = " in path.read_text(encoding="utf-8")
)
ROOMS = {path.stem for path in (ROOT / "core").iterdir() if not path.name.startswith("__")}


def layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [one for one in settings["contracts"] if one["type"] == "layers"]
    return {room for layer in contract["layers"] for room in layer.split(" | ")}


def test_every_room_is_a_layer():
    assert layers() == ROOMS


def test_architecture_names_every_room():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert {room for room in ROOMS if f"| `{room}/` |" not in text} == set()


def test_every_file_beside_the_code_is_installed_with_it():
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [f"{package}/{one}" for package, ones in packages.items() for one in ones]
    beside = {
        path.relative_to(ROOT)
        for room in ("core", "dashboard")
        for path in (ROOT / room).rglob("*.*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert {str(path) for path in beside if not any(path.match(one) for one in patterns)} == set()
    assert [one for one in patterns if not list(ROOT.glob(one))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_all_exists(package):
    module = importlib.import_module(package)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_no_file_needs_itself():
    """A file that another needs, and that needs the other, cannot be understood alone."""
    graph = grimp.build_graph("core", "dashboard", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    done: set[str] = set()
    for module in sorted(needs):
        assert (circle := find_circle(module, needs, [], done)) == [], " -> ".join(circle)


def find_circle(module, needs, way, done):
    """The modules of a circle that begins at `module`, or nothing."""
    if module in way:
        return [*way[way.index(module) :], module]
    if module in done:
        return []
    for needed in sorted(needs[module]):
        if circle := find_circle(needed, needs, [*way, module], done):
            return circle
    done.add(module)
    return []


def test_a_circle_is_found():
    needs = {"a": {"b"}, "b": {"c"}, "c": {"b"}}
    assert find_circle("a", needs, [], set()) == ["b", "c", "b"]
