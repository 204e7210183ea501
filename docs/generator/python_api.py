"""The page of the Python API, from the signatures and docstrings of what `ortune` exports."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import ortune
from core.wire.errors import TunerError
from docs.generator.markdown import bullets, code, fence, page, table

_PART = re.compile(r"^(Args|Returns|Raises):$", re.M)


def python_api() -> str:
    """Return the page of the Python API."""
    offered = {name: getattr(ortune, name) for name in ortune.__all__}
    functions = {name: one for name, one in offered.items() if inspect.isfunction(one)}
    errors = [name for name, one in offered.items() if inspect.isclass(one) and issubclass(one, TunerError)]
    return page(
        "# Python API",
        "Every function waits for its result, stores it where the dashboard and the command line find it, "
        "and returns a `Result`. Settings are keyword arguments with the names of the "
        "[settings table](settings.md); a value is a Python value or a text as on the command line.",
        fence(
            'import ortune\n\nresult = ortune.tune("model.onnx", intra_op_num_threads=2, effort="quick")',
            "python",
        ),
        "A name with a dot is given in a dictionary: "
        '`ortune.tune("model.onnx", **{"session.intra_op.allow_spinning": False})`.',
        "Bad input raises an error before anything runs. A measurement that fails raises its error, too, and "
        "`Session.last` has what the store kept. Ctrl-C and `cancel` end the job and leave no process.",
        *(_function(name, one) for name, one in sorted(functions.items())),
        "## Result",
        _members(ortune.Result, ("record", "to_dict", "to_frame", "table", "sheet", "plot")),
        "`print(result)` shows kind, ID and headline; notebooks show the tables.",
        "## Session",
        _text(ortune.Session.__init__, ortune.Session.__doc__ or ""),
        _members(ortune.Session, ("run", "close")),
        "## Errors",
        f"All are `TunerError`s with `message` and `hint`: {', '.join(map(code, sorted(errors)))}.",
    )


def _function(name: str, function: Callable[..., Any]) -> str:
    plain = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(function).parameters.values()
    ]
    call = fence(f"ortune.{name}{inspect.Signature(plain)}", "python")
    return f"## {name}\n\n{call}\n\n{_text(function)}"


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


def _members(of: type, names: tuple[str, ...]) -> str:
    described = ((name, inspect.getdoc(getattr(of, name)) or "") for name in names)
    return table(["Member", "Meaning"], ([code(name), text.split("\n\n")[0]] for name, text in described))
