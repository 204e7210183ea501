"""The import contracts cover every module, and a new one cannot slip past them."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = {
    *("__init__", "__main__", "catalog", "doors", "errors", "files", "guard", "limits", "profiling"),
    *("provenance", "units", "wire"),
}
MODULES = {path.stem for path in (ROOT / "core").iterdir() if path.name != "__pycache__"}


def contracts():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {contract["name"]: contract for contract in settings["contracts"]}


def names(modules):
    return {module.removeprefix("core.") for module in modules if module.startswith("core.")}


def test_every_core_module_belongs_to_one_side_or_to_both():
    parent = names(contracts()["The parent side never imports the worker side"]["source_modules"])
    worker = names(contracts()["The worker side never imports the parent side"]["source_modules"])
    assert not parent & worker
    assert parent | worker | SHARED == MODULES


def test_both_contracts_name_the_same_two_sides():
    one = contracts()["The parent side never imports the worker side"]
    other = contracts()["The worker side never imports the parent side"]
    assert one["source_modules"] == other["forbidden_modules"]
    assert one["forbidden_modules"] == other["source_modules"]


def test_architecture_names_every_core_module():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    unnamed = {name for name in MODULES if f"`{name}.py`" not in text and f"`{name}/`" not in text}
    assert unnamed == {"__init__"}
