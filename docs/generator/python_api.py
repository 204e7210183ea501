"""The page of the Python API, from the signatures and docstrings of what `ortune` exports."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ortune
from core.api.history import Filter
from core.show.schema import commented_classes
from core.wire.errors import TunerError
from docs.generator.markdown import bullets, code, fence, link, page, table

TASKS: Mapping[str, Sequence[str]] = {
    "Measure": ("tune", "compare", "measure_longer", "sweep", "load", "loadgen"),
    "Search": ("search", "resume"),
    "Explain": ("profile", "explain", "graph", "node_errors"),
    "Change models": ("inspect", "convert", "transform", "variants"),
    "Judge": ("accuracy", "scorecard", "upgrade"),
    "Ship": ("export", "sign", "verify", "provenance"),
    "Read": ("load_result", "history", "import_result", "plot"),
    "The machine": ("machine", "self_test", "peaks"),
    "Runtimes": ("add_runtime", "runtimes", "check_runtime", "remove_runtime"),
}
_QUICK_START = """import ortune

session = ortune.Session(on_note=print, on_progress=lambda status: print(status.stage, status.done))
result = ortune.tune("model.onnx", intra_op_num_threads=2, effort="quick", session=session)
print(result)  # kind, ID and verdict
frame = result.to_frame()  # latencies, speed-ups and verdicts as numbers
session.close()"""
_MEMBERS = ("verdict", "to_frame", "to_dict", "record", "table", "sheet", "plot")
_ID = (
    "`load_result` finds trials, load tests, comparisons, searches, sweeps, scorecards, upgrades and "
    "accuracies by their ID."
)
_KEYS = (
    ("speed-up", "`ratio`, `ratio_low`, `ratio_high` of an entry of `contrasts`", "ContrastRecord"),
    ("verdict", "`verdict` of the same entry", "ContrastRecord"),
    ("percentiles", "`latency`: `p50_s`, `p95_s`, …, with `_low` and `_high`", "Latency"),
    ("load test", "`latency` of an entry of `points` of `load`", "LoadResult"),
    ("accuracy", "`summary` of an entry of `accuracies`", "AccuracySummary"),
    ("answer of a search", "`answer`", "SearchDocument"),
)

_PART = re.compile(r"^(Args|Returns|Raises):$", re.M)


def python_api() -> str:
    """Return the page of the Python API."""
    offered = {name: getattr(ortune, name) for name in ortune.__all__}
    functions = {name: one for name, one in offered.items() if inspect.isfunction(one) and name != "session"}
    assert set(functions) == {name for names in TASKS.values() for name in names}, "each function has a task"
    errors = [name for name, one in offered.items() if inspect.isclass(one) and issubclass(one, TunerError)]
    return page(
        "# Python API",
        "Every function waits for its result, stores it where the dashboard and the command line find it, "
        "and returns a `Result`. Settings are keyword arguments with the names of the "
        "[settings table](settings.md); a value is a Python value or a text as on the command line.",
        "## Quick start",
        fence(_QUICK_START, "python"),
        "`on_note` receives lines of text, such as the expected duration, and `on_progress` a "
        "[Status](#status).",
        "Without `session`, all calls share one session, which `ortune.session()` returns. "
        "It reports no progress.",
        "A name with a dot is given in a dictionary: "
        '`ortune.tune("model.onnx", **{"session.intra_op.allow_spinning": False})`.',
        "Bad input raises an error before anything runs. A measurement that fails raises its error, too, and "
        "`Session.last` has what the store kept. Ctrl-C and `cancel` end the job and leave no process.",
        "Inputs of a model (`feeds`) are files, an `.npz` or images, not arrays in memory. "
        "`runs` fixes the number of runs, so `measure_longer` cannot continue such a comparison.",
        *(
            part
            for task, names in TASKS.items()
            for part in (f"## {task}", *(_function(name, functions[name]) for name in names))
        ),
        "### Conditions of history",
        _fields(Filter),
        "## Result",
        inspect.getdoc(ortune.Result) or "",
        _members(
            ortune.Result,
            _MEMBERS,
            kind="What it is, for example `trial`.",
            id=_ID,
        ),
        "`print(result)` shows kind, ID and verdict; notebooks show the tables. "
        "`to_dict()` is the document of the command, see [JSON documents](json.md):",
        table(
            ["Value", "Keys", "Described in"],
            ((name, keys, link(part, part, "json.md")) for name, keys, part in _KEYS),
        ),
        'An export has its text in `to_dict()["text"]`. A scorecard that measured nothing has no ID. '
        "An explanation is found again by `load_result(candidate, baseline)`.",
        "## Session",
        _text(ortune.Session.__init__, inspect.getdoc(ortune.Session) or ""),
        _members(
            ortune.Session, ("run", "close"), last="The result that was started last, even if it failed."
        ),
        "`ortune.session()` returns the session of calls that name none, for its `last` or to close it. "
        "The next such call opens another.",
        "## Status",
        _fields(ortune.Status),
        "## Errors",
        "All are `TunerError`s with `message` and `hint`:",
        table(["Error", "Meaning"], ((code(name), _first_line(offered[name])) for name in sorted(errors))),
        "`ortune.__version__` is the version.",
    )


def _function(name: str, function: Callable[..., Any]) -> str:
    plain = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(function).parameters.values()
    ]
    call = fence(f"ortune.{name}{inspect.Signature(plain)}", "python")
    return f"### {name}\n\n{call}\n\n{_text(function)}"


def _text(function: Callable[..., Any], summary: str = "") -> str:
    """Return a docstring as Markdown: sentences, a table of arguments, lists of results and errors."""
    parts = _PART.split(inspect.getdoc(function) or "")
    written = [summary or parts[0].strip()]
    for kind, text in zip(parts[1::2], parts[2::2], strict=True):
        entries = _entries(text)
        if kind == "Args":
            written.append(table(["Argument", "Meaning"], ([code(name), told] for name, told in entries)))
        elif kind == "Raises":
            written.append("Raises:\n\n" + bullets(f"{code(name)}: {told}" for name, told in entries))
        else:
            written.append(f"Returns: {' '.join(text.split())}")
    return "\n\n".join(written)


def _entries(text: str) -> list[tuple[str, str]]:
    """Return names and meanings of a section of a docstring; a continued line is indented further."""
    lines = [line[4:] for line in text.strip("\n").split("\n")]
    joined = re.sub(r"\n\s+", " ", "\n".join(line for line in lines if line.strip()))
    pairs = (line.partition(": ") for line in joined.split("\n"))
    return [(name, told) for name, _, told in pairs]


def _fields(of: type) -> str:
    """Return the fields of a dataclass with the comments of its source."""
    comments = commented_classes(sys.modules[of.__module__])[of.__name__][1]
    return table(
        ["Field", "Meaning"], ((code(one.name), comments.get(one.name, "")) for one in dataclasses.fields(of))
    )


def _first_line(of: type) -> str:
    return (inspect.getdoc(of) or "").split("\n")[0]


def _members(of: type, names: Sequence[str], **attributes: str) -> str:
    """Return a table of attributes with their meanings, and of members with theirs from the docstring."""
    described = {name: (inspect.getdoc(getattr(of, name)) or "").split("\n\n")[0] for name in names}
    rows = {**attributes, **described}
    return table(["Member", "Meaning"], ((code(name), text) for name, text in rows.items()))
