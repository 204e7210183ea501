"""A record of results that survives a stop: JSON lines, their options, and the progress."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.experiment import Machine
from core import __version__

RECORDS = Path(__file__).resolve().parent / "records"  # records that are kept with the scripts
EXIT_NOT_FULL = 3  # the record has fewer results than requested


class Journal:
    """The results of an experiment as JSON lines; each is on disk before the next begins.

    A head names the script, its options, the machine and the version of the results behind it. Results of
    other options or machines stay in the file, under their own heads, and are not counted.
    """

    def __init__(self, path: Path | None, *, script: str, options: dict[str, Any], machine: Machine) -> None:
        self.path = path
        self.head = {
            "script": script,
            "options": options,
            "machine": machine.text,
            "fingerprint": machine.fingerprint,
            "version": __version__,
        }
        parts = [] if path is None else read_record(path)
        self._headed = bool(parts) and parts[-1][0] == self.head
        self.rows: list[dict[str, Any]] = [row for head, rows in parts if head == self.head for row in rows]
        strangers = sum(len(rows) for head, rows in parts if head != self.head)
        if parts:
            also = f"; {strangers} more are of another machine, version or options" if strangers else ""
            tell(f"continuing {path} after {len(self.rows)} results{also}")

    def add(self, row: dict[str, Any]) -> None:
        """Keep one more result."""
        self.rows.append(row)
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [row] if self._headed else [{"head": self.head}, row]
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines)
        _mend(self.path)
        with self.path.open("a") as file:
            file.write(text)
        self._headed = True

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The results of one kind, in order."""
        return [row for row in self.rows if row["kind"] == kind]


def read_record(path: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The heads of a record and the results behind each, in order; an incomplete last line is left out."""
    parts: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if not path.exists():
        return parts
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break  # killed while it was written
        found = json.loads(line)
        if "head" in found:
            parts.append((found["head"], []))
        elif not parts:
            raise SystemExit(f"{path} is no record of an experiment: it does not begin with a head.")
        else:
            parts[-1][1].append(found)
    return parts


def _mend(path: Path) -> None:
    """Remove an incomplete last line."""
    if path.exists() and (text := path.read_bytes()) and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def merged(path: Path) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The parts of a record, merged by head; ends the script if there is no record."""
    if not path.exists():
        raise SystemExit(f"There is no record at {path}.")
    found: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for head, rows in read_record(path):
        same = next((kept for known, kept in found if known == head), None)
        if same is None:
            found.append((head, list(rows)))
        else:
            same.extend(rows)
    return found


def until(
    journal: Journal, kind: str, count: int, make: Callable[[int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Fill `journal` up to `count` results of `kind` and print the progress; `make` gets their number."""
    began, before = time.monotonic(), len(journal.of(kind))
    for number in range(before, count):
        journal.add({"kind": kind, **make(number)})
        each_s = (time.monotonic() - began) / (number + 1 - before)
        left_s = each_s * (count - number - 1)
        tell(f"{kind}: {number + 1} of {count}, {each_s:.1f} s each, {left_s:.0f} s left")
    return journal.of(kind)[:count]


def tell(text: str) -> None:
    """Print progress to standard error; the numbers go to standard output."""
    print(text, file=sys.stderr, flush=True)


# --- options and heads ----------------------------------------------------------------------


def recorded(description: str | None, name: str) -> argparse.ArgumentParser:
    """The options of an experiment that is filled over hours, and whose record is kept with the scripts."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument(
        "--record",
        type=Path,
        default=RECORDS / f"{name}.jsonl",
        metavar="FILE",
        help="where each result is kept, and a stopped run goes on; default: %(default)s",
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="begin nothing more after M minutes")
    parser.add_argument("--report", action="store_true", help="measure nothing: print the record")
    return parser


class Clock:
    """Says when `--minutes` are over."""

    def __init__(self, minutes: float | None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def is_over(self) -> bool:
        """Whether nothing more may begin."""
        return self._end is not None and time.monotonic() >= self._end


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def say_head(given: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Print the conditions of a part of a record."""
    days = sorted({_day(one["at"]) for one in rows})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    print(f"{when}, ORTune {given['version']}, {given['machine']}")
    print(f"fingerprint {given['fingerprint']}, options {given['options']}\n", flush=True)
