"""The tree of errors that users see, and their plain-data form between processes.

TunerError(message, hint)           the base; catch this one at an edge
├── SpecError (ValueError)          a requested setting, option, input or file of settings is invalid
├── ModelError                      a model file cannot be read, run, exported or converted
├── ProviderError                   an execution provider is missing, or was silently replaced
├── WorkerError                     a worker crashed, hung or sent an invalid reply
├── StoreError                      the result store is unreadable or from a newer version
│   ├── MissingError                the store has no record with the given id or link
│   └── PrivateError                a result belongs to another person
├── BudgetError                     the budget is too short for a result
└── Cancelled                       the user stopped the job; not a fault, but it ends it

The message states the rule that broke, with the value; the hint is one imperative sentence.
This module imports nothing but the standard library: both sides of the worker pipe use it.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import TypedDict

_LONG_WORD = re.compile(r"\S{400,}")
_MOST_CHARACTERS = 4000


def _shortened(text: str) -> str:
    """Shorten long words and texts: some names, of files or inside models, have 100,000 characters."""
    cut = _LONG_WORD.sub(lambda word: f"{word[0][:200]}…{word[0][-100:]}", without_controls(text))
    return cut if len(cut) <= _MOST_CHARACTERS else f"{cut[:_MOST_CHARACTERS]}…"


def without_controls(text: str) -> str:
    """Return `text` with the characters that could steer a terminal or a reader as escapes.

    These are controls other than line ends and tabs, marks of direction, and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(one.encode("unicode_escape").decode() if _steers(one) else one for one in text)


def _steers(sign: str) -> bool:
    return sign not in "\n\t" and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def range_rule(what: str, low: float | None, high: float | None) -> str:
    """Return the allowed range of a number in words: "Batch size must be 1 to 1,048,576"."""
    if low is None or high is None:
        least = "" if low is None else f" {low:,} or more"
        return f"{what} must be{least}" if high is None else f"{what} must be {high:,} or less"
    return f"{what} must be {low:,} to {high:,}"


class TunerError(Exception):
    """Base of every expected failure; `str(error)` is the message alone."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = _shortened(message)
        self.hint = _shortened(hint)
        super().__init__(self.message)


class SpecError(TunerError, ValueError):
    """A requested setting, option, input or file of settings is invalid."""


class ModelError(TunerError):
    """A model file cannot be read, run, exported or converted."""


class ProviderError(TunerError):
    """An execution provider is missing, or ONNX Runtime silently replaced it."""


class WorkerError(TunerError):
    """A worker crashed, hung or sent an invalid reply."""

    signal = ""  # name of the signal that ended the worker; an `ErrorRecord` does not keep it


class StoreError(TunerError):
    """The result store is unreadable or was written by a newer version."""


class MissingError(StoreError):
    """The result store has no record with the given id or link."""


class PrivateError(StoreError):
    """A result is private to another person, or only that person and admins may change it."""


class BudgetError(TunerError):
    """A measurement would not give a number within its budget, so it was not made."""


class Cancelled(TunerError):
    """The user stopped the job."""


HOME_HINT = "Free disk space, or set ORTUNE_HOME to a writable folder."
TMPDIR_HINT = "Free disk space, or set TMPDIR to a writable folder."
WRITABLE_HINT = "Free disk space, or choose a file in a writable folder."
INTERRUPTED = "was interrupted: the process that ran it ended."  # end of the message of such an error


def unwritable(path: object, error: OSError) -> SpecError:
    """Return the error for an output file that cannot be written."""
    missing = isinstance(error, FileNotFoundError)
    hint = "Create its folder first, or choose another." if missing else WRITABLE_HINT
    return SpecError(f"`{path}` cannot be written: {error.strerror or error}.", hint=hint)


def unexpected_words(error: Exception) -> str:
    """Return the message for a bug."""
    said = " ".join(str(error).split())[:300]
    return f"ORTune failed unexpectedly: {type(error).__name__}" + (f": {said}." if said else ".")


class ErrorRecord(TypedDict):
    """An error as it is stored, and as it crosses the worker pipe."""

    type: str
    message: str
    hint: str


_BY_NAME: dict[str, type[TunerError]] = {
    cls.__name__: cls
    for cls in (
        *(SpecError, ModelError, ProviderError, WorkerError),
        *(StoreError, MissingError, PrivateError, BudgetError, Cancelled),
    )
}


def record_from_error(error: TunerError) -> ErrorRecord:
    """Return `error` as plain data."""
    return {"type": type(error).__name__, "message": error.message, "hint": error.hint}


# Optional package -> the extra that installs it.
EXTRAS = {
    **dict.fromkeys(("torch", "torchvision", "onnxscript"), "pytorch"),
    **dict.fromkeys(("tensorflow", "tf2onnx"), "tensorflow"),
    "mlperf_loadgen": "loadgen",
    "openvino": "openvino",
    **dict.fromkeys(("distributed", "dask"), "fleet"),
    "cryptography": "signing",
}


def record_from_exception(error: Exception) -> ErrorRecord:
    """Return any exception as plain data; an unexpected one becomes a `WorkerError` with its message."""
    if isinstance(error, TunerError):
        return record_from_error(error)
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").split(".")[0])):
        return record_from_error(
            SpecError(
                f"This needs the package `{error.name}`, which is not installed.",
                hint=f"Install it with `pip install '.[{extra}]'` in ORTune's folder.",
            )
        )
    if isinstance(error, ModuleNotFoundError) and error.name == "PIL":  # ORTune's own runtime always has it
        return record_from_error(
            SpecError(
                "Images need the package `pillow`, which the runtime does not have.",
                hint="Add `pillow` to the packages of the runtime, or give the data as arrays in an `.npz`.",
            )
        )
    if isinstance(error, MemoryError):
        detail = str(error).strip().rstrip(".")
        return record_from_error(
            WorkerError(
                "The worker ran out of memory" + (f": {detail}." if detail else "."),
                hint="Use a smaller batch, smaller dimensions or a smaller model.",
            )
        )
    return record_from_error(
        WorkerError(
            f"The worker failed unexpectedly: {type(error).__name__}: {error}",
            hint="Report this with the log of the dashboard.",
        )
    )


def error_from_record(record: ErrorRecord) -> TunerError:
    """Rebuild the error that `record` describes; an unknown type becomes a `WorkerError`."""
    cls = _BY_NAME.get(record["type"], WorkerError)
    return cls(record["message"], hint=record["hint"])


_OF_WORKERS = ("SpecError", "ModelError", "ProviderError", "WorkerError")


def error_from_worker(record: ErrorRecord, *, stores: bool = False) -> TunerError:
    """Rebuild the error that a worker reports; one of a type that it must not report is a `WorkerError`.

    A worker is untrusted: by a `Cancelled` or a `BudgetError` it would end the work on other models too.

    Args:
        record: from the worker.
        stores: its job writes into the store's folder, so it may report a `StoreError`.
    """
    is_allowed = record["type"] in _OF_WORKERS or (stores and record["type"] == "StoreError")
    return error_from_record(record if is_allowed else {**record, "type": "WorkerError"})


def refuse_surrogates(text: str) -> None:
    """Refuse text with half of a character, as of a file name that is not UTF-8: no store takes it.

    Raises:
        SpecError: there is one.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("utf-8", "backslashreplace").decode()[:80]
        raise SpecError(f"`{shown}` is not UTF-8 text.", hint="Rename the file, or write it in UTF-8.")


_LONGEST_NAME = 300


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean `x`?" for the known name closest to `name`, or an empty string."""
    if len(name) > _LONGEST_NAME:  # the time grows with the square of the length
        return ""
    match = difflib.get_close_matches(name, [one for one in known if len(one) <= _LONGEST_NAME], n=1)
    return f" Did you mean `{match[0]}`?" if match else ""
