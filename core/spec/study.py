"""A study: a matrix of models × questions for the hosts of a fleet, as a YAML file.

A question is a command of ORTune with its options by their long names. `study_from_yaml` reads the file and
`questions` returns one command line per model and question. The parser of the command checks the options when
the study runs. Only `read_study` and `questions` look at files: they resolve paths and patterns against the
study's folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.spec.strict_yaml import load_strict
from core.spec.validation import Spec, shown, validated
from core.wire.errors import SpecError, nearest

SCHEMA = 1
StudyCommand = Literal["search", "compare", "sweep", "scorecard", "verify", "load"]
STUDY_COMMANDS: tuple[StudyCommand, ...] = ("search", "compare", "sweep", "scorecard", "verify", "load")
MOST_ITEMS = 1000  # models times questions
_WITHOUT_BUDGET = ("load",)  # unless it says so: only some of its questions take a budget
_OPTION = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
# options that the fleet sets itself, or that need this machine
_REFUSED: Mapping[str, str] = {
    "json": "The fleet reads the document of every host anyway.",
    "help": "A study asks questions only.",
    "output": "Write a report with `ortune fleet report`.",
    "format": "Write tables with `ortune fleet show`.",
    "report": "Write a report with `ortune fleet report`.",
    "on": "Name the hosts under `hosts`.",
    "resume": "Continue a run with `ortune fleet resume`.",
    "continue": "Ask again instead.",
    "dry-run": "A study measures.",
}
_FILES = (".yaml", ".yml", ".onnx", ".npz", ".csv", ".jsonl", ".zip", ".txt")

OptionValue = bool | int | float | str | list[Any] | dict[str, Any]


def _texts(value: object) -> object:
    """Accept one text where a list of texts is expected."""
    return (value,) if isinstance(value, str) else value


class StudySpec(Spec):
    """A study as written."""

    schema_: int = Field(default=SCHEMA, alias="schema")  # version of this layout
    name: str = ""  # of the run; empty: that of the file
    models: Annotated[tuple[str, ...], BeforeValidator(_texts)] = Field(strict=False)
    # each has one command with its options: {search: {limit: "p50<=3ms"}}
    questions: tuple[dict[str, Any], ...] = Field(strict=False)
    hosts: str = "all"  # as `--on`: all, LABEL=VALUE, or NAMES
    one_of_each_kind: bool = False  # ask one host of each kind instead of all
    portability: bool = False  # compare the winners of all searches on every host
    budget: str | int | None = None  # of each question that names none, as `--budget`

    @model_validator(mode="after")
    def _check(self) -> StudySpec:
        if self.schema_ != SCHEMA:
            raise SpecError(
                f"`schema` must be {SCHEMA}, but got {self.schema_}.",
                hint="Use a version of ORTune that reads this study.",
            )
        for name in ("models", "questions"):
            if not getattr(self, name):
                raise SpecError(f"`{name}` is empty.", hint=f"List at least one of the {name}.")
        for number, one in enumerate(self.models):
            if not one.strip():
                raise SpecError(f"`models.{number}` is empty.", hint="Write the path or name of a model.")
        for number, question in enumerate(self.questions):
            _check_question(question, f"questions.{number}")
        if not self.hosts.strip():
            raise SpecError("`hosts` is empty.", hint="Write `all`, a label such as `cpu=epyc`, or names.")
        if self.portability and not any("search" in one for one in self.questions):
            raise SpecError(
                "`portability` compares the winners of searches, but no question is a search.",
                hint="Add a `search`, or remove `portability`.",
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyItem:
    """One question about one model."""

    model: str  # a path, or a name in the library
    command: StudyCommand
    arguments: list[str]  # the command line after the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study, ready to be asked."""

    name: str
    hosts: str  # as `--on`
    one_of_each_kind: bool
    portability: bool
    items: list[StudyItem]


def study_from_yaml(text: str) -> StudySpec:
    """Read a study.

    Raises:
        SpecError: not YAML, an unknown key or command, or a value of the wrong type; named by its path.
    """
    data = load_strict(text)
    if not isinstance(data, dict):
        raise SpecError(
            f"A study is a dictionary, but got {shown(data)}.", hint="Write `models` and `questions`."
        )
    return validated(StudySpec, data)


def read_study(path: Path) -> Study:
    """Read a study file and find its models.

    Raises:
        SpecError: the file cannot be read, it is no study, or a pattern finds no model.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise SpecError(f"`{path}` cannot be read: {reason}.", hint="Give the path of a study.") from None
    spec = study_from_yaml(text)
    return Study(
        name=spec.name or path.stem,
        hosts=spec.hosts,
        one_of_each_kind=spec.one_of_each_kind,
        portability=spec.portability,
        items=questions(spec, path.resolve().parent),
    )


def questions(spec: StudySpec, base: Path) -> list[StudyItem]:
    """Return the questions of a study, model by model.

    Args:
        spec: as written.
        base: folder that relative paths and patterns start from.

    Raises:
        SpecError: a path or pattern finds no model, or there are too many questions.
    """
    models = list(
        dict.fromkeys(one for number, text in enumerate(spec.models) for one in _found(text, number, base))
    )
    count = len(models) * len(spec.questions)
    if count > MOST_ITEMS:
        raise SpecError(
            f"A study has at most {MOST_ITEMS:,} questions, but {len(models):,} models × "
            f"{len(spec.questions):,} questions are {count:,}.",
            hint="Split the study.",
        )
    asked = [_asked(one, spec.budget, base) for one in spec.questions]
    return [
        StudyItem(model=model, command=command, arguments=arguments)
        for model in models
        for command, arguments in asked
    ]


def _found(text: str, number: int, base: Path) -> list[str]:
    """Return the models that a path, a pattern or a name means."""
    where = f"models.{number}"
    if any(sign in text for sign in "*?["):
        pattern = Path(text)
        try:
            found = sorted(
                Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
                if pattern.is_absolute()
                else base.glob(text)
            )
        except (ValueError, OSError) as error:
            raise SpecError(
                f"`{where}` is no pattern of files: `{text[:80]}` ({error}).",
                hint="Write for example `models/*.onnx`.",
            ) from None
        files = [str(one) for one in found if one.is_file()]
        if not files:
            raise SpecError(
                f"`{where}` finds no file: `{text[:80]}` in `{base}`.", hint="Correct the pattern."
            )
        return files
    path = base / Path(text).expanduser()
    if path.is_file():
        return [str(path)]
    if "/" in text or Path(text).suffix.lower() in _FILES:
        raise SpecError(f"`{where}` is no file: `{path}`.", hint="Correct the path of the model.")
    return [text]


# --- one question -------------------------------------------------------------------------------------------


def _check_question(question: Mapping[str, Any], where: str) -> None:
    if len(question) != 1:
        names = ", ".join(f"`{one[:40]}`" for one in question) or "none"
        raise SpecError(
            f"`{where}` must name one command, but got {names}.",
            hint="Write each question as its own entry, for example `- search: {budget: 5m}`.",
        )
    [(command, options)] = question.items()
    if command not in STUDY_COMMANDS:
        raise SpecError(
            f"`{where}` names the command `{command[:40]}`.{nearest(command, STUDY_COMMANDS)}",
            hint=f"Choose one of {', '.join(STUDY_COMMANDS)}.",
        )
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise SpecError(
            f"`{where}.{command}` must be a dictionary, but got {shown(options)}.",
            hint="Write options by their long names, for example `{budget: 5m}`.",
        )
    for name, value in options.items():
        _check_option(str(name), value, f"{where}.{command}.{name}")


def _check_option(name: str, value: object, where: str) -> None:
    if not _OPTION.fullmatch(name):
        raise SpecError(
            f"`{where[:120]}` is no name of an option.",
            hint="Write the long name without `--`, as `batch-size`.",
        )
    if (why := _REFUSED.get(name.replace("_", "-"))) is not None:
        raise SpecError(f"`{where}` is no option of a study.", hint=why)
    parts = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
    for one in parts:
        if not isinstance(one, bool | int | float | str):
            raise SpecError(
                f"`{where}` must be a value, a list of values, or names with values, but got {shown(one)}.",
                hint="Write plain values.",
            )
        if isinstance(one, str) and "\0" in one:
            raise SpecError(f"`{where}` holds a null character.", hint="Remove it.")


def _asked(
    question: Mapping[str, Any], budget: str | int | None, base: Path
) -> tuple[StudyCommand, list[str]]:
    """Return the command and its arguments. `=` joins a value to its option, so that none is an option."""
    [(name, options)] = question.items()
    command = next(one for one in STUDY_COMMANDS if one == name)
    given = {str(name).replace("_", "-"): value for name, value in (options or {}).items()}
    if budget is not None and command not in _WITHOUT_BUDGET:
        given.setdefault("budget", budget)
    return command, [text for name, value in given.items() for text in _option(name, value, base)]


def _option(name: str, value: Any, base: Path) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, list):
        return [text for one in value for text in _option(name, one, base)]
    if isinstance(value, dict):
        return [f"--{name}={key}={_value(one, base)}" for key, one in value.items()]
    return [f"--{name}={_value(value, base)}"]


def _value(value: object, base: Path) -> str:
    """Return a value as text; a file of the study's folder by its whole path."""
    if isinstance(value, bool):
        return "1" if value else "0"
    text = str(value)
    if Path(text).suffix.lower() in _FILES and not Path(text).is_absolute() and (base / text).is_file():
        return str(base / text)
    return text


def parts_of(items: Sequence[StudyItem]) -> tuple[int, int]:
    """Return the number of models and the number of questions about each."""
    models = len({one.model for one in items})
    return models, len(items) // models if models else 0
