"""Record the comparisons of the demonstration by running the commands, and pack them. Wants a quiet machine.

    python docs/demo.py [HOME]
    python docs/demo.py --again COMMAND

With HOME, a folder in which the commands ran already, it only packs. With `--again` it runs the commands of
that name, such as `load`, once more, and keeps the rest of the recording. What some commands told while they
ran is kept, too: the demonstration plays it back. What the machine did meanwhile stays in the recording: busy
remarks, undecided verdicts and A/A pairs that came apart are part of what is shown.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from core import cli
from core.api import session as sessions
from core.run.job import Status
from core.run.scheduler import Scheduler
from core.store import PRUNED, RAW_FIELDS, STORE_NAME, Store, library
from core.store.recorded import MARK_FILE
from dashboard.demo import EXAMPLE, MODELS, PLAYBACK, RECORDED, example_from, moved, remove, unpack

ROOT = Path(__file__).resolve().parents[1]
DIGITS = "sample_models/digits_cnn.onnx"
ENCODER = "sentence_encoder"  # made here, a model of the recording
QUANTIZED = f"{ENCODER}_int8"
SHAPE = ["--dim", "sequence=128", "--batch-size", "1"]
PRESETS = [part for name in ("latency", "throughput") for part in ("--candidate", f"preset:cpu-{name}")]
# What these tell while they run is recorded.
COMPARED = ["compare", ENCODER, *SHAPE, "--candidate", f"variant:{QUANTIZED}", *PRESETS]
SEARCHED = ["search", ENCODER, *SHAPE, "--budget", "90s"]
FIRST = ["tune", QUANTIZED, *SHAPE, "--baseline", f"model:{ENCODER}", "--effort", "standard"]
# Calls of some milliseconds, so that what the harness adds is little beside them.
LOADED = ["load", DIGITS, "--batch-size", "256", "--find-max", "--limit", "p99<=100ms", "--budget", "60s"]
COMMANDS: Sequence[Sequence[str]] = (
    ["machine", "--self-test"],
    ["machine", "--peaks"],
    ["compare", DIGITS, *PRESETS, "--candidate", "preset:edge"],
    ["sweep", DIGITS, "--batch-size", "1,2,4,8,16,32"],
    ["scorecard", "sample_models/digits_scorecard.yaml"],
    LOADED,
    ["profile", DIGITS],
    ["tune", DIGITS, "--intra-op-num-threads", "1"],
    ["search", DIGITS, "--budget", "60s", "--batch-size", "8"],
    ["tune", ENCODER, *SHAPE, "--intra-op-num-threads", "2"],
    ["sweep", ENCODER, "--dim", "sequence=128", "--batch-size", "1,2,4,8,16,32"],
    ["transform", ENCODER, "--int8-dynamic", "--dim", "sequence=128", "--name", QUANTIZED],
    ["profile", ENCODER, *SHAPE],
    ["profile", QUANTIZED, *SHAPE],
    SEARCHED,
    FIRST,
    COMPARED,  # the last one, because Compare opens on it
)
PLAYED = (COMPARED, SEARCHED, FIRST, LOADED)
MOST_BYTES = 2_500_000
TRACE_BYTES = 1 << 20  # a longer trace is left out; the page offers only those that are there
FRAME_S = 0.5  # between two that are kept
OWNER = "the recording"


def main() -> None:
    """Record, or take what was recorded, and pack it."""
    match sys.argv[1:]:
        case ["--again", name]:
            again(name)
            return
        case [folder]:
            pack(Path(folder))
            return
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
        pack(Path(folder))


def record(home: Path) -> None:
    """Run the commands, and explain what a visitor sees first, and the newest result of each model."""
    _make_encoder(home)
    for command in COMMANDS:
        print("$ ortune", *command, flush=True)
        quiet = [] if command[0] == "transform" else ["--quiet"]
        run = _played if command in PLAYED else _core
        run(home, *command, *quiet)
        if command is FIRST:
            _explain(home, QUANTIZED)
    for model in (Path(DIGITS).stem, ENCODER):
        _explain(home, model)


def again(name: str) -> None:
    """Run the commands of that name in the recording, in place of what they recorded before."""
    home = unpack()
    try:
        (home / MARK_FILE).unlink()  # it refuses to measure
        store = Store(home / STORE_NAME)
        if name == "load":
            before = [one.id for one in store.trials(kind="load")]
            store.delete_trials(before)
            for one in before:
                (home / PLAYBACK / f"{one}.json").unlink(missing_ok=True)
        for command in COMMANDS:
            if command[0] == name:
                print("$ ortune", *command, flush=True)
                (_played if command in PLAYED else _core)(home, *command, "--quiet")
        pack(home)
    finally:
        remove(home)


def _make_encoder(home: Path) -> None:
    """Put the encoder among the models of the recording."""
    with tempfile.TemporaryDirectory() as folder:
        maker = [sys.executable, "sample_models/make_transformer.py", "--size", ENCODER, "--output", folder]
        subprocess.run(maker, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        made = Path(folder) / f"{ENCODER}.onnx"
        library.import_files(Store(home / STORE_NAME), [made], name=ENCODER, source="file", move=True)


def _explain(home: Path, model: str) -> None:
    """Explain the newest result of a model by what it was compared with."""
    newest = json.loads(_core(home, "history", "--model", model, "--limit", "1", "--json"))["trials"][0]
    _core(home, "explain", newest["contrasts"][0]["baseline"], newest["trial"], "--quiet")


def _core(home: Path, *command: str) -> str:
    """Run a command; an open question (3) is an answer."""
    environment = {**os.environ, "ORTUNE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-m", "core", *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode not in (0, 3):
        sys.exit(f"{command[0]} ended with {done.returncode}.")
    return done.stdout


class _Told(Scheduler):
    """A scheduler that keeps what it tells of the job that a command follows."""

    told: ClassVar[list[tuple[float, Status]]] = []

    def status(self, job_id: str) -> Status | None:
        found = super().status(job_id)
        if found is not None and found.state == "RUNNING":
            self.told.append((time.time(), found))
        return found


def _played(home: Path, *command: str) -> None:
    """Run a command in this process, and keep what was told of its job, to be played back."""
    os.environ["ORTUNE_HOME"] = str(home)
    _Told.told.clear()
    sessions.Scheduler = _Told  # type: ignore[misc]
    if (code := cli.run(command)) not in (0, 3):
        sys.exit(f"{command[0]} ended with {code}.")
    rows: list[dict[str, Any]] = []
    began = _Told.told[0][0]
    for now, status in _Told.told:
        if not rows or now - began - rows[-1]["at_s"] >= FRAME_S:
            told = {
                one.name: getattr(status, one.name) for one in fields(status)
            }  # some values cannot be copied
            rows.append({"at_s": round(now - began, 2), "now": now, "status": told})
    folder = home / PLAYBACK
    folder.mkdir(exist_ok=True)
    name = f"{_Told.told[0][1].id}.json"
    (folder / name).write_text(json.dumps(rows, separators=(",", ":")), encoding="utf-8")


def pack(home: Path) -> None:
    """Write the recording: a copy of the store without the samples of a search's looks, and the mark."""
    store = Store(home / STORE_NAME)
    with tempfile.TemporaryDirectory() as folder:
        copy = Store(Path(folder) / "copy" / STORE_NAME)
        copy.path.unlink()
        store.backup(copy.path)
        _take_library(copy, home)
        mark = Path(folder) / MARK_FILE
        mark.write_text(json.dumps(_stripped(copy)), encoding="utf-8")
        small = Path(folder) / STORE_NAME
        copy.backup(small)
        with tarfile.open(RECORDED, "w:xz", preset=9) as archive:
            for path in (small, mark):
                archive.add(path, path.name, filter=_nobody)
            for part in ("artifacts", "accuracies", MODELS, PLAYBACK):
                for path in sorted((home / part).rglob("*")):
                    if path.is_file() and (path.name != "trace.json" or path.stat().st_size <= TRACE_BYTES):
                        archive.add(path, str(path.relative_to(home)), filter=_nobody)
    taken = RECORDED.stat().st_size
    print(f"{RECORDED.relative_to(ROOT)}: {taken:,} bytes")
    if taken > MOST_BYTES:
        sys.exit(f"That is more than {MOST_BYTES:,} bytes.")
    write_example()


def write_example() -> None:
    """Write what the first visit shows, from the recording."""
    home = unpack()
    try:
        found = example_from(Store(home / STORE_NAME), Path(DIGITS).stem)
    finally:
        remove(home)
    EXAMPLE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _take_library(store: Store, home: Path) -> None:
    """Name the variants by their place in the home; samples come with ORTune, wherever it lies."""
    for one in store.models():
        path = Path(one.path)
        if path.is_relative_to(home / MODELS):
            store.put_model(moved(one, str(path.relative_to(home))))
        else:
            store.remove_model(one.content_sha256)


def _stripped(store: Store) -> dict[str, Any]:
    """Drop the samples of looks and requests, and whose all is; return the mark: the day and the machine."""
    last: float = 0.0
    environment: Any = {}
    # Load tests first: one recorded again may be of another machine than the rest, which the mark names.
    for kind in ("load", "measure", "reference", "profile", "screen"):
        for one in store.trials(kind=kind, limit=10_000):
            if kind in ("screen", "load") and one.result is not None:
                kept: Any = {name: part for name, part in one.facts.items() if name not in RAW_FIELDS}
                store.update_trial(one.id, result={**kept, PRUNED: time.time()})
            store.update_trial(one.id, owner=OWNER)
            last = max(last, one.finished_at or 0.0)
            environment = one.facts.get("environment") or environment
    for comparison in store.comparisons(limit=10_000):
        store.update_comparison(comparison.id, owner=OWNER)
    for study in store.studies(limit=1000):
        store.update_study(study.id, owner=OWNER)
    return {"on": time.strftime("%Y-%m-%d", time.gmtime(last)), "environment": environment}


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the user who recorded."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o644
    return info


if __name__ == "__main__":
    main()
