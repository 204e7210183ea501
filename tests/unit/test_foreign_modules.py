"""What runs in another runtime needs Python 3.10, numpy and onnxruntime, and no more.

The modules that the jobs of `wire.IN_ANY_RUNTIME` import are read, not run: this interpreter is newer.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import wire
from core.wire import engines
from core.worker import __main__ as worker

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 10)
ENTRY = "core.worker.__main__"
PARTS = {
    # imported by name at run time
    wire.CONTESTANT: [one.module for one in engines.ENGINES.values() if not one.program],
    wire.ENVIRONMENT: ["core.worker.machine.provider_probe"],
}
OWN_ONLY = {
    # imported inside a function, which another runtime does not call
    "core.worker.measure.profile_reading": "the plan of another runtime has a `graph_path`",
}
OPTIONAL = {"PIL", "pynvml", "mlperf_loadgen", "openvino"}  # a job says which one it lacks
NEWER_NAMES = {
    # of the standard library, after Python 3.10
    "asyncio": {"TaskGroup", "Runner", "timeout"},
    "calendar": {"Month", "Day", "JANUARY", "FEBRUARY"},
    "contextlib": {"chdir"},
    "copy": {"replace"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "ReprEnum", "member", "nonmember", "verify", "EnumType", "EnumCheck", "FlagBoundary"},
    "hashlib": {"file_digest"},
    "inspect": {"getmembers_static", "markcoroutinefunction"},
    "itertools": {"batched"},
    "locale": {"getencoding"},
    "logging": {"getLevelNamesMapping", "getHandlerByName", "getHandlerNames"},
    "math": {"cbrt", "exp2", "sumprod", "fma"},
    "operator": {"call", "is_none", "is_not_none"},
    "os": {"process_cpu_count", "listdrives", "unshare", "setns", "timerfd_create", "grantpt"},
    "random": {"binomialvariate"},
    "re": {"NOFLAG"},
    "socket": {"SO_RTABLE"},
    "statistics": {"kde", "kde_random"},
    "sys": {"exception", "activate_stack_trampoline", "monitoring", "_is_gil_enabled"},
    "threading": {"setprofile_all_threads", "settrace_all_threads"},
    "types": {"get_original_bases", "CapsuleType"},
    "typing": {
        *("Self", "Never", "LiteralString", "NotRequired", "Required", "Unpack", "TypeVarTuple"),
        *("assert_never", "assert_type", "reveal_type", "dataclass_transform", "get_overloads", "override"),
        *("TypeAliasType", "ReadOnly", "TypeIs", "NoDefault", "get_protocol_members", "is_protocol"),
    },
}
NEWER_MODULES = {
    "tomllib",
    "wsgiref.types",
    "_colorize",
    "annotationlib",
    "compression",
    "string.templatelib",
}
NEWER_BUILTINS = {"ExceptionGroup", "BaseExceptionGroup", "PythonFinalizationError"}


def path_of(module: str) -> Path | None:
    base = ROOT / Path(*module.split("."))
    for one in (base.with_suffix(".py"), base / "__init__.py"):
        if one.is_file():
            return one
    return None


def tree_of(module: str) -> ast.Module:
    path = path_of(module)
    assert path is not None, module
    return ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=OLDEST)


def parsed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs under Python 3.10: not what stands under a check of the version or of types."""
    if isinstance(node, ast.If) and any(
        word in ast.unparse(node.test) for word in ("TYPE_CHECK", "version_")
    ):
        for other in node.orelse:
            yield from parsed(other)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from parsed(child)


def imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name of every import in `node`; the name is empty for a whole module."""
    for one in parsed(node):
        if isinstance(one, ast.Import):
            yield from ((name.name, "") for name in one.names)
        elif isinstance(one, ast.ImportFrom):
            assert one.level == 0
            yield from ((one.module or "", name.name) for name in one.names)


def modules_in(node: ast.AST) -> Iterator[str]:
    """The modules of `core` that `node` imports, with the packages around them."""
    for module, name in imported(node):
        if module.split(".")[0] == "core":
            whole = f"{module}.{name}" if name and path_of(f"{module}.{name}") else module
            parts = whole.split(".")
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def reachable() -> dict[str, str]:
    """Every module that a job in another runtime may import -> the module that imports it."""
    entry = tree_of(ENTRY)
    jobs = {worker.JOBS[name].__name__ for name in wire.IN_ANY_RUNTIME}
    others = {one.__name__ for one in worker.JOBS.values()} - jobs
    outer = ast.Module([one for one in entry.body if getattr(one, "name", "") not in others], [])
    found = {ENTRY: ""}
    waiting = [(one, ENTRY) for one in modules_in(outer)]
    waiting += [(one, name) for name, several in PARTS.items() for one in several]
    while waiting:
        module, by = waiting.pop()
        if module in found or module in OWN_ONLY:
            continue
        found[module] = by
        waiting += [(one, module) for one in modules_in(tree_of(module))]
    return found


REACHABLE = reachable()


def test_what_other_runtimes_import_is_found() -> None:
    assert {"core.wire", "core.wire.channel", "core.worker.measure.contestant"} <= set(REACHABLE)
    assert {"core.worker.measure.samples", "core.worker.data.accuracy"} <= set(REACHABLE)
    assert not any(one.startswith(("core.worker.make", "core.spec", "core.run")) for one in REACHABLE)
    assert {one for one in OWN_ONLY if path_of(one) is None} == set()


@pytest.mark.parametrize("job", sorted(wire.IN_ANY_RUNTIME))
def test_every_job_for_any_runtime_is_a_job_of_the_worker(job: str) -> None:
    assert job in worker.JOBS


@pytest.mark.parametrize("module", sorted(REACHABLE))
def test_a_module_is_written_in_the_grammar_and_with_the_library_of_python_3_10(module: str) -> None:
    tree = tree_of(module)  # a newer grammar is a SyntaxError
    aliases = {}
    for one in parsed(tree):
        if isinstance(one, ast.Import):
            aliases |= {name.asname or name.name: name.name for name in one.names}
    used = {(name, part) for name, part in imported(tree)}
    for one in parsed(tree):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id in aliases:
            used.add((aliases[one.value.id], one.attr))
        if isinstance(one, ast.Name):
            assert one.id not in NEWER_BUILTINS
    newer = {f"{name}.{part}" for name, part in used if part in NEWER_NAMES.get(name, ())}
    newer |= {name for name, _ in used if name in NEWER_MODULES}
    assert newer == set()


@pytest.mark.parametrize("module", sorted(REACHABLE))
def test_no_finally_ends_what_was_raised(module: str) -> None:
    """Python 3.14 warns of it, and a warning may be an error."""
    ends = [
        inner
        for one in ast.walk(tree_of(module))
        if isinstance(one, ast.Try)
        for statement in one.finalbody
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Return | ast.Break | ast.Continue)
    ]
    assert ends == []


@pytest.mark.parametrize("module", sorted(REACHABLE))
def test_a_module_imports_numpy_and_onnxruntime_and_no_other_package(module: str) -> None:
    tree = tree_of(module)
    packages = {name.split(".")[0] for name, _ in imported(tree)} - {"core", "numpy", "onnxruntime"}
    unknown = {one for one in packages if one not in sys.stdlib_module_names}
    assert unknown <= OPTIONAL, f"imported by {REACHABLE[module]}"


def test_newer_grammar_and_names_would_be_found() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try:\n    pass\nexcept* ValueError:\n    pass\n", feature_version=OLDEST)
    tree = ast.parse(
        "import sys\nif sys.version_info >= (3, 11):\n    import tomllib\nelse:\n    import json\n"
    )
    assert list(imported(tree)) == [("sys", ""), ("json", "")]
