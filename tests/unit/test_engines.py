"""The table of engines: no other code compares names, and unsupported features are refused."""

import ast
from pathlib import Path
from typing import Any

import pytest

from core.api.references import config_from
from core.spec import spec_from_dict
from core.wire import engines
from core.wire.engines import ABILITIES, DEFAULT, ENGINES, Engine
from core.wire.errors import SpecError
from dashboard.configurations import labels

ROOT = Path(__file__).resolve().parents[2]
OWN = (ROOT / "core/wire/engines.py", ROOT / "core/worker/session/torch_engine.py")
ALSO_OTHER_NAMES = {"openvino"}  # a section of settings, a package and an export format have this name too
MODEL = {"path": "m.onnx"}
NO_STORE: Any = None  # an engine needs none


def is_engine(node: ast.expr) -> bool:
    """Whether an expression reads what is called an engine: `engine`, `spec.engine`, `plan["engine"]`."""
    return "engine" in (getattr(node, "id", ""), getattr(node, "attr", "")) or (
        isinstance(node, ast.Subscript) and getattr(node.slice, "value", "") == "engine"
    )


@pytest.mark.parametrize("folder", ["core", "dashboard"])
def test_nobody_but_the_table_names_an_engine(folder: str) -> None:
    found: list[str] = []
    others = set(ENGINES) - {DEFAULT}
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text()
        if path in OWN or not any(word in text for word in ("engine", *others)):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and node.value in others - ALSO_OTHER_NAMES:
                found.append(f"{path}:{node.lineno}")
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if any(map(is_engine, sides)) and any(isinstance(one, ast.Constant) for one in sides):
                found.append(f"{path}:{node.lineno}")
    assert found == []


def test_openvino_is_imported_in_one_place_because_that_turns_its_telemetry_off_first() -> None:
    found = []
    for path in sorted((ROOT / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.partition(".")[0] == "openvino" for name in names):
                found.append(path.name)
    assert set(found) == {"openvino_model.py"}


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_the_file_of_a_row_prepares_a_plan(engine: Engine) -> None:
    source = (ROOT / engine.module.replace(".", "/")).with_suffix(".py").read_text()
    made = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert "contender" in made


@pytest.mark.parametrize("ability", ABILITIES)
def test_what_an_engine_cannot_is_refused_with_its_name_and_the_ability(ability: engines.Ability) -> None:
    able = next(name for name in (DEFAULT, "openvino") if engines.can(name, ability))
    engines.require(able, ability)
    with pytest.raises(SpecError) as caught:
        engines.require("torch-eager", ability, of=" here", instead=", or leave it")
    assert caught.value.message == f"The engine `torch-eager` cannot {ABILITIES[ability]} here."
    assert f"`{able}`" in caught.value.hint


def test_a_row_is_all_that_a_new_runtime_needs_outside_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    new = Engine("Other", "it", "other", frozenset({"bind", "emit"}), ref="other:one")
    monkeypatch.setitem(ENGINES, "other", new)  # type: ignore[arg-type]
    spec = spec_from_dict({"model": MODEL, "engine": "other", "workload": {"use_io_binding": True}})
    assert labels([spec_from_dict({"model": MODEL}), spec], 0)[1].startswith("Other")
    with pytest.raises(SpecError, match=r"`other`.*`allow_fallback`"):
        spec_from_dict({"model": MODEL, "engine": "other", "session": {"allow_fallback": True}})
    with pytest.raises(SpecError, match="accuracy"):
        engines.require(spec.engine, "accuracy")


def test_an_engine_is_named_as_a_configuration_by_its_row() -> None:
    found = [config_from(one.ref, NO_STORE)["engine"] for one in ENGINES.values() if one.ref]
    assert found == [name for name in ENGINES if name != DEFAULT]


def test_an_unknown_engine_can_nothing_and_is_refused() -> None:
    assert not any(engines.can("tensorflow", one) for one in ABILITIES)
    with pytest.raises(SpecError, match=r"`torch-eagre`.*`torch-eager`"):
        spec_from_dict({"model": MODEL, "engine": "torch-eagre"})
