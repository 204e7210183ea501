"""Coverage of every printed interval: `python benchmarks/coverage.py [--repetitions N]`.

What: for each kind of number that ORTune prints with an interval, the share of intervals that contain the
true value on simulated machines: idle ones, heavy tails, lasting disturbances, and processes of which one in
nine is 2.3 times slower for life. Models take 40 µs to a second a run. Comparisons, searches and profiles
follow the product's own rules, and every interval comes from the function that computes the printed one
(`scenes`).

With `--real` on this machine, idle and with one background process, `--minutes` in all: launches of one
configuration under several names are recorded once, and comparisons of them replayed many times (`launches`).
Searches are replayed on recorded grids. `--launches FOLDER` keeps the recordings and replays existing ones.

How: the shares are kept in a record (benchmarks/records/coverage.jsonl), one line per scene and kind. A new
measurement of a scene replaces its lines. `--report` prints the record; `benchmarks/tables.py` writes it into
docs/benchmarks.md. `--shrink 3` divides every interval by 3 to show that the check can fail.

Target: at least 93 % of each kind. Exit code 1: missed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks import grids, launches  # noqa: E402
from benchmarks.journal import RECORDS, Clock, merged, read_record, recorded, tell  # noqa: E402
from benchmarks.printed import GOAL, KINDS, share_of, tally  # noqa: E402
from benchmarks.scenes import SCENES, SLOW, played, played_grid, simulated  # noqa: E402
from benchmarks.states import WORDS, States  # noqa: E402
from core import __version__  # noqa: E402

Rows = list[dict[str, Any]]
REAL = "real"
MINUTES = 12.0  # of recording, by default
_TAIL = (
    "With slow modes, a few launches often contain no slow one: of five, all are usual in 55 of 100 "
    "measurements. The cause on the real machine is unknown."
)
UNKNOWN = "The cause is unknown."
REASONS: Mapping[str, str] = {
    "p90": _TAIL,
    "p95": _TAIL,
    "p99": _TAIL,
    "memory": "Not simulated: the interval is a measured constant.",
}


def keep(path: Path, head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Put rows into a record; they replace those of the same scenes."""
    scenes = {row["scene"] for row in rows}
    parts = [
        (known, [row for row in kept if row["scene"] not in scenes]) for known, kept in read_record(path)
    ]
    parts.append((dict(head), [dict(row) for row in rows]))
    lines: list[str] = []
    for known, kept in parts:
        if kept:
            lines += [json.dumps(one, separators=(",", ":")) for one in ({"head": known}, *kept)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of all kinds as Markdown, and the reasons of those that miss the goal."""
    names = {"": "simulated", SLOW: f"simulated, {SLOW}"}
    names |= {f"{REAL}, {state}": f"{REAL}, {WORDS[state]}" for state in launches.STATES}
    groups = {
        text: own
        for prefix, text in names.items()
        if (own := [row for row in rows if group_of(row["scene"]) == prefix]) or not prefix
    }
    lines = [f"| interval | {' | '.join(groups)} |", "|---|" + "---|" * len(groups)]
    missed = []
    for kind, what in KINDS.items():
        shares = [share_of(own, kind) for own in groups.values()]
        lines.append(f"| {what} | {' | '.join(one.text for one in shares)} |")
        if any(one.misses for one in shares) or (kind in REASONS and not any(one.n for one in shares)):
            missed.append(f"- {what}: {REASONS.get(kind, 'Why is not known yet.')}")
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(row["at"])) for row in rows})
    span = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "nothing measured"
    return "\n".join([f"Measured: {span}.", "", *lines, "", *missed, ""])


def group_of(scene: str) -> str:
    """The column of a scene."""
    found = [SLOW, *(f"{REAL}, {state}" for state in launches.STATES)]
    return next((prefix for prefix in found if scene.startswith(prefix)), "")


def reached(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the intervals of each kind contain the true value as often as the goal says."""
    return not any(share_of(rows, kind).misses for kind in KINDS)


# --- measuring --------------------------------------------------------------------------------------------


def recordings(given: Any) -> Iterator[tuple[str, launches.Recording | grids.Truth]]:
    """Record, or read back, the requested scenes: name of the scene, and what to replay."""
    seconds = 60 * (given.minutes or MINUTES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.launches or Path(scratch)
        states = States(Path(scratch))
        for state in given.states:
            kept = {name: launches.load(name, state, folder) for name in given.models}
            wanted = [name for name, one in kept.items() if one is None]
            if wanted:
                with lab.turn("coverage"), states.enter(state) as check:
                    for name in wanted:
                        kept[name] = one = launches.record(name, state, seconds, check=check)
                        launches.save(one, folder)
                        if state != "quiet" and name != launches.SLOW_ONE:
                            grid = launches.grid_beside(name, seconds, check=check)
                            grids.save(grid, folder / state)
            for name, found in kept.items():
                assert found is not None
                yield f"{REAL}, {state}, {name}", found
                if name != launches.SLOW_ONE:
                    own = RECORDS if state == "quiet" else folder / state
                    yield f"{REAL}, {state}, searches of {name}", grids.load(name, own)


def real(given: Any) -> Iterator[tuple[str, Rows]]:
    """Replay the recordings; return the rows of each scene."""
    for scene, one in recordings(given):
        many = (
            played(one, given.repetitions)
            if isinstance(one, launches.Recording)
            else [played_grid(one, given.repetitions)]
        )
        rows = [row for part in many for row in tally(scene, part.found, shrink=given.shrink, used=part.used)]
        yield scene, rows


def invented(given: Any) -> Iterator[tuple[str, Rows]]:
    """Simulate scenes; return the rows of each."""
    clock = Clock(given.minutes)
    for scene in given.scenes:
        if clock.is_over():
            return
        yield scene, tally(scene, simulated(scene, given.repetitions), shrink=given.shrink)


def main() -> int:
    parser = recorded(__doc__, "coverage")
    parser.add_argument("--scenes", nargs="+", choices=list(SCENES), default=list(SCENES), metavar="SCENE")
    parser.add_argument("--repetitions", type=int, default=100, metavar="N", help="comparisons of a scene")
    parser.add_argument("--real", action="store_true", help="launches of real models instead of scenes")
    parser.add_argument("--models", nargs="+", choices=launches.MODELS, default=list(launches.MODELS))
    parser.add_argument("--states", nargs="+", choices=launches.STATES, default=list(launches.STATES))
    parser.add_argument("--launches", type=Path, metavar="FOLDER", help="keep recordings, and replay them")
    parser.add_argument("--shrink", type=float, default=1.0, metavar="F", help="divide every interval")
    given = parser.parse_args()
    began, fresh = time.monotonic(), list[dict[str, Any]]()
    for scene, rows in () if given.report else real(given) if given.real else invented(given):
        tell(f"{scene}: {time.monotonic() - began:.0f} s")
        fresh += [{**row, "at": round(time.time())} for row in rows]
        if given.shrink == 1:
            keep(given.record, _head(given), fresh)
    if given.shrink != 1:
        print(report(fresh))
        return 0
    found = [row for _, rows in merged(given.record) for row in rows]
    print(report(found))
    return 0 if reached(found) else 1


def _head(given: Any) -> dict[str, Any]:
    machine = lab.this_machine()
    return {
        "script": "coverage",
        "options": {"repetitions": given.repetitions, "goal": GOAL},
        "machine": machine.text,
        "fingerprint": machine.fingerprint,
        "version": __version__,
    }


if __name__ == "__main__":
    sys.exit(main())
