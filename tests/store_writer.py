"""A process that writes to a store without a pause, and reports each row after its commit.

The report is a line of JSON: what was done, to which trial, and the checksums of its row and of its raw
measurements afterwards. What is reported must survive every fault.
"""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from core.evidence.comparison import Comparison
from core.store import Change, Store
from tests import builders

MOST_TRIALS = 4  # of one commit
Versions = dict[
    str, list[str | None]
]  # trial -> its contents in order, as `contents` gives them; None: deleted


def contents(path: Path) -> dict[str, str]:
    """Return the checksums of each trial of a store: of its row, of its raw measurements and of its tags."""
    query = (
        "SELECT trials.id, trials.checksum || ' ' || coalesce(samples.checksum, '') || ' '"
        " || coalesce(marks.checksum, '') FROM trials LEFT JOIN samples ON samples.trial = trials.id"
        " LEFT JOIN marks ON marks.id = trials.id"
    )
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute(query))


@dataclass(frozen=True, slots=True)
class Report:
    """What a writer has reported, at one moment."""

    lines: list[dict[str, dict[str, str | None]]]  # each a commit: trial -> its content; None: deleted

    @classmethod
    def of(cls, text: str) -> Report:
        """Read the output of a writer; a line without its end is no report."""
        return cls([json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")])

    def versions(self) -> Versions:
        """Return all contents that each trial had."""
        found: Versions = {}
        for line in self.lines:
            for trial, content in line.items():
                found.setdefault(trial, []).append(content)
        return found


def check_holds(path: Path, before: Report, after: Report, *, unreported: int = 0) -> None:
    """Check that a store holds what was reported before, and nothing that was never written.

    Args:
        path: of the store.
        before: what was reported when the store was read, or when its writer was killed.
        after: what was reported in all; contents between the two may be there.
        unreported: commits that may be there without a report: those of killed writers.
    """
    found, old, new = contents(path), before.versions(), after.versions()
    strangers = []
    for trial in {*found, *old}:
        since = len(old[trial]) - 1 if trial in old else 0
        allowed = new.get(trial, [])[since:] + ([] if trial in old else [None])
        if found.get(trial) not in allowed:
            strangers.append((trial, found.get(trial), old.get(trial)))
    assert len(strangers) <= unreported * MOST_TRIALS, strangers
    assert Store(path).check().damaged == 0


def start(path: Path, seed: int, output: IO[str]) -> subprocess.Popen[bytes]:
    """Start a writer whose reports go to `output`; another seed gives other trials."""
    command = [sys.executable, "-m", "tests.store_writer", str(path), str(seed)]
    return subprocess.Popen(command, cwd=Path(__file__).resolve().parent.parent, stdout=output)


def _report(store: Store, trials: Iterable[str]) -> None:
    there = contents(store.path)
    told: Mapping[str, str | None] = {one: there.get(one) for one in trials}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _write(store: Store, rng: random.Random, made: list[str], number: int) -> list[str]:
    """Make one change of a kind that measurements and users make; return the trials that it touched."""
    kind = rng.choice(("trial", "trial", "comparison", "finish", "tag", "delete"))
    latencies = [rng.random() for _ in range(rng.choice((10, 1_000, 20_000)))]
    ids = [f"{number:06x}{rng.getrandbits(40):010x}" for _ in range(MOST_TRIALS)]
    if kind == "comparison":
        trials = [builders.trial(one, state="RUNNING", comparison=ids[0]) for one in ids]
        roles = {one: "baseline" if one == ids[0] else "candidate" for one in ids}
        comparison: Comparison = builders.comparison(roles, ids[0])  # type: ignore[arg-type]
        store.create_comparison(comparison, trials, process="writer")
        made += ids
        return ids
    if kind == "trial" or not made:
        store.create_trial(builders.trial(ids[0], result={"latencies_s": latencies}))
        made.append(ids[0])
        return ids[:1]
    one = rng.choice(made)
    if kind == "finish":
        store.update_trial(
            one, state="COMPLETE", result={"latencies_s": latencies}, finished_at=float(number)
        )
    elif kind == "tag":
        store.mark([one], Change(starred=True, note=str(number)))
    else:
        made.remove(one)
        store.delete_trials([one])
    return [one]


def main() -> None:
    """Write until killed."""
    store, rng = Store(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
    made = sorted(contents(store.path))
    _report(store, made)
    for number in range(int(sys.argv[2]) * 10_000, 10**9):
        _report(store, _write(store, rng, made, number))


if __name__ == "__main__":
    main()
