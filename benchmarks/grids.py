"""Reference measurements of every configuration of a small space: `python benchmarks/grids.py [MODEL …]`.

What: all configurations of a grid (threads, optimization level, spinning, I/O binding, arena; 36 distinct
ones) run in the same rounds in 36 launches of fresh processes, because one configuration differs by some
percent between its processes. Kept: ln(ratio to ONNX Runtime's default) of every round, and the absolute
medians, compressed. A third of the launches is held out to score what a search chose.

`benchmarks/search.py` replays these records and scores searches against them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.journal import RECORDS, tell  # noqa: E402
from core import wire  # noqa: E402
from core.evidence.record import Entry, RawComparison, Settings  # noqa: E402
from core.process.job_worker import run_job  # noqa: E402
from core.run.launches import run_launches  # noqa: E402
from core.run.plan import contestant_plan, feed_plan, session_plan  # noqa: E402
from core.spec import TrialSpec, spec_from_dict  # noqa: E402
from core.spec.effort import Effort  # noqa: E402
from core.spec.space import Space, axes_from_user, space  # noqa: E402
from core.wire.files import ROOT  # noqa: E402
from tests import tiny_models  # noqa: E402
from tests.builders import export_plan  # noqa: E402

GRID: Mapping[str, list[Any]] = {
    "intra_op_num_threads": [0, 1],
    "graph_optimization_level": ["ORT_ENABLE_ALL", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_BASIC"],
    "session.intra_op.allow_spinning": [True, False],
    "use_io_binding": [False, True],
    "enable_cpu_mem_arena": [True, False],
}
DIMS: Mapping[str, Mapping[str, int]] = {
    "tiny_transformer": {"sequence": 128},
    "control_flow": {"length": 16},
}
LAUNCHES = 36
BUDGET_S = 3600
CLASSIFIERS = ("mobilenet_v3_small", "resnet18", "efficientnet_b0", "squeezenet1_1", "shufflenet_v2_x1_0")
MODELS = ("digits_cnn", "tiny_transformer", "control_flow", *CLASSIFIERS)
TRUTH = "grid-{name}.json.gz"


@dataclass(frozen=True, kw_only=True)
class Truth:
    """One record: results of every configuration in every launch. Indices are those of the space."""

    model: str
    machine: str
    space: Space
    ratios: Sequence[Sequence[Sequence[float]]]  # launch, configuration, round: ln(default / own)
    absolute: Sequence[Sequence[float]]  # launch, configuration: ln(median seconds)
    start_s: float  # of one process
    run_s: float  # of the default
    wall_s: float  # of the whole measurement

    @property
    def lives(self) -> list[list[float]]:
        """ln(speed-up) of every process, launch by configuration, against the mean of its launch."""
        medians = [[statistics.median(one) for one in rounds] for rounds in self.ratios]
        return [[one - statistics.fmean(row) for one in row] for row in medians]

    def centers(self, generations: Sequence[int]) -> list[float]:
        """ln(speed-up) of every configuration over some launches, 20 % trimmed as in a verdict.

        Each launch is centred on its mean first: a deviation of the default's process in that launch must not
        shift every configuration.
        """
        lives = self.lives
        own = [_trimmed_mean([lives[g][i] for g in generations]) for i in range(len(lives[0]))]
        return [one - own[0] for one in own]

    @property
    def best(self) -> int:
        """The best configuration by the open launches; the held-out ones score it without selection bias."""
        gains = self.centers(self.open)
        return gains.index(max(gains))

    @property
    def held_back(self) -> list[int]:
        """Held-out launches, used for scoring only."""
        return [g for g in range(len(self.ratios)) if g % 3 == 0]

    @property
    def open(self) -> list[int]:
        """Launches that a replay may use."""
        return [g for g in range(len(self.ratios)) if g % 3]


def _trimmed_mean(values: Sequence[float]) -> float:
    cut = len(values) // 5
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def start_of(name: str, path: Path) -> TrialSpec:
    """Return the starting point of a search on a model."""
    return spec_from_dict({"model": {"path": str(path)}, "workload": {"dims": DIMS.get(name, {})}})


def grid_of(name: str, path: Path) -> Space:
    """Return the grid on a model."""
    base = start_of(name, path)
    return space(base, axes_from_user(base, GRID))


def model_path(name: str, folder: Path) -> Path:
    """Return the file of a model; classifiers get random weights, which do not change the run time."""
    if name in ("digits_cnn", "tiny_transformer"):
        return ROOT / "sample_models" / f"{name}.onnx"
    path = folder / f"{name}.onnx"
    if path.is_file():
        return path
    if name == "control_flow":  # int64 in and out, a loop with a branch
        return tiny_models.ids_in_a_loop(path)
    plan = export_plan(path, name=name)
    run_job(wire.EXPORT, plan, timeout_s=1800)
    return path


def measure(name: str, folder: Path, generations: int) -> Truth:
    """Measure the whole grid on a model."""
    path = model_path(name, folder)
    info = run_job(wire.INSPECT, {"path": str(path)})
    grid = grid_of(name, path)
    entries = [entry(grid.label(choice), grid.spec(choice), path, info) for choice in grid.choices]
    effort = Effort(name="quick", target=1e-6, budget_s=BUDGET_S, looks=(generations,))
    settings = Settings(
        effort=effort,
        budget_s=BUDGET_S,
        margin=lab.MARGIN,
        seed=int(time.time()),
        timeout_s=lab.TIMEOUT_S,
        baseline=0,
        anchor=0,
        least=generations,
    )
    began = time.monotonic()
    record = compare(name, entries, settings, on_live=lambda live: _tell_live(name, live))
    wall_s = time.monotonic() - began
    return Truth(
        model=name,
        machine=lab.this_machine().text,
        space=grid,
        ratios=_ratios(record, len(entries)),
        absolute=_absolute(record, len(entries)),
        start_s=statistics.median(one.start_s for one in record.generations) / (len(entries) + 1),
        run_s=math.exp(_absolute(record, 1)[0][0]),
        wall_s=wall_s,
    )


def compare(
    name: str,
    entries: Sequence[Entry],
    settings: Settings,
    *,
    on_live: Callable[[Any], None] = lambda live: None,
) -> RawComparison:
    """Measure all `entries` together; end the script if one of them fails."""
    record = run_launches(
        entries, settings, cancel=threading.Event(), on_progress=lambda progress: None, on_live=on_live
    )
    lost = [one.error.message for one in record.ran if one.error is not None]
    if lost:
        raise SystemExit(f"{name}: {lost[0]}")
    return record


def _tell_live(name: str, live: Mapping[str, Any]) -> None:
    if live["generation"] != _TOLD.get(name):
        _TOLD[name] = live["generation"]
        tell(f"{name}: launch {live['generation']}, {live['elapsed_s']:.0f} s")


_TOLD: dict[str, int] = {}


def entry(label: str, spec: TrialSpec, path: Path, info: wire.ModelInfo) -> Entry:
    """Return a configuration to measure."""
    plan = contestant_plan(
        spec,
        path=str(path),
        session=session_plan(spec.session),
        feeds=feed_plan(spec.workload, info),
        torch=None,
    )
    return Entry(label=label, plan=plan)


def _medians(record: RawComparison) -> dict[tuple[int, int, int], list[float]]:
    """(launch, round, configuration) -> ln(median) of each of its processes."""
    found: dict[tuple[int, int, int], list[float]] = {}
    for block in record.blocks:
        key = (block.generation, block.round, block.contestant)
        found.setdefault(key, []).append(math.log(statistics.median(block.latencies_s)))
    return found


def _ratios(record: RawComparison, count: int) -> list[list[list[float]]]:
    medians = _medians(record)
    numbers = sorted({(generation, round_) for generation, round_, _ in medians})
    found: list[list[list[float]]] = []
    for generation in sorted({one for one, _ in numbers}):
        rounds = [round_ for one, round_ in numbers if one == generation]
        found.append(
            [
                [
                    round(
                        statistics.fmean(medians[generation, number, 0])
                        - statistics.fmean(medians[generation, number, index]),
                        5,
                    )
                    for number in rounds
                ]
                for index in range(count)
            ]
        )
    return found


def _absolute(record: RawComparison, count: int) -> list[list[float]]:
    medians = _medians(record)
    generations = sorted({generation for generation, _, _ in medians})
    return [
        [
            round(
                statistics.median(
                    v for (a, _, b), values in medians.items() if (a, b) == (g, i) for v in values
                ),
                5,
            )
            for i in range(count)
        ]
        for g in generations
    ]


# --- records ------------------------------------------------------------------------------------------------


def save(one: Truth, folder: Path = RECORDS) -> Path:
    """Keep a record, compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / TRUTH.format(name=one.model)
    data = {
        "model": one.model,
        "machine": one.machine,
        "grid": dict(GRID),
        "labels": [one.space.label(choice) for choice in one.space.choices],
        "ratios": one.ratios,
        "absolute": one.absolute,
        "start_s": one.start_s,
        "run_s": one.run_s,
        "wall_s": one.wall_s,
    }
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(data, separators=(",", ":")).encode())
    return path


def load(name: str, folder: Path = RECORDS) -> Truth:
    """Read a record back.

    Raises:
        SystemExit: it was measured on another grid than this version's.
    """
    with gzip.open(folder / TRUTH.format(name=name)) as file:
        data = json.loads(file.read())
    grid = grid_of(name, Path(f"{name}.onnx"))
    if data["grid"] != GRID or len(data["labels"]) != len(grid.choices):
        raise SystemExit(f"The record of {name} was measured on another grid; measure it again.")
    kept = {
        key: data[key] for key in ("model", "machine", "ratios", "absolute", "start_s", "run_s", "wall_s")
    }
    return Truth(space=grid, **kept)


def recorded() -> list[str]:
    """Return the models with a record."""
    return [name for name in MODELS if (RECORDS / TRUTH.format(name=name)).is_file()]


def main() -> None:
    """Measure the requested grids, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], default=list(MODELS), metavar="MODEL")
    parser.add_argument("--generations", type=int, default=LAUNCHES, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, lab.turn("grids of configurations"):
        for name in args.models:
            found = measure(name, Path(folder), args.generations)
            best = found.best
            gain = math.exp(found.centers(found.held_back)[best])
            tell(
                f"{name}: {len(found.space.choices)} configurations, {len(found.ratios)} launches in "
                f"{found.wall_s:.0f} s; the best, {found.space.label(found.space.choices[best])}, {gain:.3f}×"
            )
            tell(f"wrote {save(found)}")


if __name__ == "__main__":
    main()
