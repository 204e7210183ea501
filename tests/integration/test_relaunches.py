"""Launches of a comparison: fresh processes, fresh layouts, and the effect of a failure in a later one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import psutil
import pytest

from core import wire
from core.evidence.record import Key, RawComparison
from core.process import contestant_workers as workers_module
from core.process.contestant_workers import Worker
from core.run import launches as launches
from core.run.launches import processes
from core.run.launches.processes import LaunchProcesses
from core.wire.errors import WorkerError
from core.worker.measure.memory_layout import ALIGNMENT, PAGE
from tests import simulated_clock, tiny_models
from tests.real_comparisons import (
    Asked,
    Field,
    Watch,
    check_record,
    evidence_of,
    measured_launches,
    nobody_is_left,
    round_keys,
    run,
    runs_of,
    settings,
)


class Where(TypedDict):
    """Addresses of what a run reads and writes."""

    inputs: list[int]
    outputs: list[int]
    pid: int


PAIR = [(0, 0), (0, 1), (1, 0)]  # the anchor, its twin, the candidate

# One more command, `where`, for the places of what a run reads and writes.
WITH_WHERE = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a worker enters its sandbox with a single thread
import core.worker.__main__ as worker
import core.worker.measure.contestant as contestant

def where(self, arguments):
    call = self._loaded.contender.call
    values = call.args[1]
    results = call()
    return {
        "inputs": [array.ctypes.data for array in values.values()],
        "outputs": [array.ctypes.data for array in results],
        "pid": os.getpid(),
    }

contestant._COMMANDS.update(where=where)
worker.main()
"""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


@pytest.fixture(autouse=True, scope="module")
def three_launches(short_comparisons: None) -> Iterator[None]:
    """One goes before `LATE`, and one comes after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "EXACT_LAUNCHES", 3)
        yield


@pytest.fixture(autouse=True)
def nothing_is_left(watch: Watch) -> Iterator[None]:
    yield
    nobody_is_left(watch.pids)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(tiny_models.conv(tmp_path_factory.mktemp("race") / "conv.onnx"))


@pytest.fixture
def clock() -> Iterator[simulated_clock.Clock]:
    """Comparisons of this test have no processes."""
    with simulated_clock.machine() as found:
        yield found


# --- fresh processes, fresh layouts -------------------------------------------------------------------------


@dataclass(frozen=True)
class Watched:
    """A finished comparison: its record, its processes, and those that an earlier launch left running."""

    record: RawComparison
    watch: Watch
    alive: list[int]


@pytest.fixture(scope="module")
def watched(field: Field) -> Watched:
    """The default and two candidates, in as many launches as an exact number of runs takes."""
    with pytest.MonkeyPatch.context() as patch:
        watch, alive = Watch(patch), list[int]()

        def look(asked: Asked) -> None:
            if asked.command == "block":
                before = {pid for one in watch.processes[:-1] for pid in one.values()}
                alive.extend(pid for pid in before if psutil.pid_exists(pid))

        watch.before = look
        record = run([*field.pair(), field.entry("same")], settings(runs=160))
    check_record(record)
    return Watched(record, watch, alive)


THREE = [*PAIR, (2, 0)]


def test_every_generation_has_processes_of_its_own(watched: Watched) -> None:
    record, processes = watched.record, watched.watch.processes
    assert len(record.generations) == launches.EXACT_LAUNCHES
    assert [sorted(one) for one in processes] == [THREE] * launches.EXACT_LAUNCHES
    pids = [pid for one in processes for pid in one.values()]
    assert len(set(pids)) == 4 * launches.EXACT_LAUNCHES
    assert [sorted(one.order) for one in record.generations] == [THREE] * launches.EXACT_LAUNCHES
    assert all(one.start_s > 0 for one in record.generations)
    assert watched.alive == [], "nobody of a generation lives in the next"


def test_order_and_layout_are_drawn_anew_for_each_generation_and_recorded(watched: Watched) -> None:
    generations = watched.record.generations
    assert len({tuple(one.order) for one in generations}) > 1
    assert len({one.order[0] for one in generations}) > 1, "the same one always loads first"
    layouts = [tuple(layout.values()) for one in generations for layout in one.layouts.values()]
    assert len(set(layouts)) == len(layouts) == 4 * len(generations)
    loads = seeded(watched.watch)
    assert len({one["layout_seed"] for one in loads}) == len(loads) == 4 * len(generations)
    for layout in (layout for one in generations for layout in one.layouts.values()):
        assert 0 <= layout["buffer_offset"] < PAGE
        assert layout["buffer_offset"] % ALIGNMENT == 0


def seeded(watch: Watch) -> list[Any]:
    """The load requests of the processes."""
    loads = [one.arguments for one in watch.asked if one.command == "load"]
    return [one for one in loads if "layout_seed" in one]


def test_what_needs_telling_once_is_asked_of_the_first_process_only(watched: Watched) -> None:
    told = [one for one in seeded(watched.watch) if not one["again"]]
    assert len(told) == 3  # of three configurations; the A/A control repeats the default
    warm = [one.arguments["known_ns"] for one in watched.watch.asked if one.command == "warm"]
    assert warm.count(None) == 3
    medians = {ran.warm["median_ns"] for ran in watched.record.ran if ran.warm is not None}
    assert set(warm) - {None} == medians
    assert all(ran.load is not None and ran.load["clock_ns"] > 0 for ran in watched.record.ran)


def test_the_ort_default_has_two_processes_in_the_same_rounds(watched: Watched, field: Field) -> None:
    record = watched.record
    for keys in round_keys(record).values():
        assert sorted(keys) == THREE
    for one in watched.watch.processes:
        assert one[0, 0] != one[0, 1]
    found = evidence_of(record, settings(), [*field.pair(), field.entry("same")])
    assert found.aa is not None
    assert (found.aa.rounds, found.aa.generations) == (len(record.orders), len(record.generations))
    assert [runs_of(record, index) for index in range(3)] == [160] * 3


def test_inputs_lie_where_the_record_says_and_outputs_move_with_every_process(
    field: Field, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-P", "-c", WITH_WHERE]
    monkeypatch.setattr(workers_module, "worker_command", lambda runtime: command)
    found: dict[tuple[int, Key], Any] = {}
    ask = Worker.ask

    def look(asked: Asked) -> None:
        if asked.command == "block" and asked.key is not None:
            place = (asked.generation, asked.key)
            if place not in found:
                found[place] = ask(asked.worker, wire.Request("where", Where), {}, timeout_s=60)

    watch.before = look
    record = run(field.pair(), settings(runs=80))
    assert set(found) == {(g, key) for g in range(len(record.generations)) for key in PAIR}
    for (generation, key), where in found.items():
        layout = record.generations[generation].layouts[key]
        assert where["pid"] == watch.processes[generation][key]
        assert where["inputs"][0] % PAGE == layout["buffer_offset"]
    assert len({where["inputs"][0] % PAGE for where in found.values()}) > len(found) / 2
    assert len({where["outputs"][0] for where in found.values()}) > 1, "outputs never move"


def test_positions_of_the_copies_are_drawn_like_those_of_everybody(
    field: Field, clock: simulated_clock.Clock
) -> None:
    record = run(field.pair(), settings(runs=300))
    first = [next(b for b in record.blocks if b.round == number) for number in round_keys(record)]
    assert {(block.contestant, block.copy) for block in first} == set(PAIR)


# --- failures in a later launch -----------------------------------------------------------------------------

WHO: dict[str, tuple[Key, int]] = {"candidate": ((1, 0), 1), "anchor": ((2, 0), 2), "baseline": ((0, 0), 0)}
LATE = 1  # the launch in which it fails; there is one after it


def die(asked: Asked) -> None:
    os.kill(asked.worker.pid, signal.SIGKILL)


def hang(asked: Asked) -> None:
    """It stays frozen and never answers; the others have all the time that they need."""
    asked.worker._frozen = False
    asked.timeout_s = 0.3


WHY = "It crashed."


def fail(asked: Asked) -> None:
    """Whether it is gone, in a comparison without processes."""
    asked.worker.kill()
    raise WorkerError(WHY)


def four(field: Field) -> Any:
    """Baseline, candidate, ORT default and another configuration."""
    return [
        field.entry("baseline", intra_op_num_threads=1),
        field.entry("candidate", graph_optimization_level="ORT_ENABLE_BASIC"),
        field.entry("anchor"),
        field.entry("bystander", enable_cpu_mem_arena=False),
    ]


def check_who_is_out(record: RawComparison, entries: Any, who: str, words: str) -> None:
    """The configuration `who` has failed in launch `LATE`, and no other has."""
    _, index = WHO[who]
    check_record(record)
    others = [one for one in range(len(entries)) if one != index]
    error = record.ran[index].error
    assert error is not None
    assert words in error.message
    assert [record.ran[one].error for one in others] == [None] * 3
    assert measured_launches(record, index)[:LATE] == list(range(LATE))
    assert measured_launches(record, index)[-1] <= LATE
    everything = list(range(len(record.generations)))
    assert all(measured_launches(record, one) == everything for one in others)
    assert [runs_of(record, one) for one in others] == [80] * 3
    asked = settings(baseline=0, anchor=2, runs=80)
    found = evidence_of(record, asked, entries)
    kept = found.trial_result(index)
    assert kept is not None
    assert kept["runs"] == len(kept["latencies_s"]) == runs_of(record, index) > 0
    assert str(index) not in {one["candidate"] for one in found.contrasts}
    baselines = {one["baseline"] for one in found.contrasts}
    assert baselines == {"anchor": {"0"}, "baseline": {"2"}, "candidate": {"0", "2"}}[who]
    assert all(one["generations"] == len(everything) for one in found.contrasts)
    assert any(f"`{entries[index].label}`" in note for note in found.notes)


@pytest.mark.parametrize(("how", "words"), [(die, "SIGKILL"), (hang, "`block`")])
def test_who_really_dies_or_hangs_keeps_its_numbers_and_the_others_go_on(
    field: Field, watch: Watch, how: Callable[[Asked], None], words: str
) -> None:
    check_late_failure(field, watch, "candidate", "block", how, words)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("command", ["block", "warm", "load"])
def test_who_fails_in_a_later_generation_keeps_its_numbers_and_the_others_go_on(
    field: Field, watch: Watch, clock: simulated_clock.Clock, who: str, command: str
) -> None:
    check_late_failure(field, watch, who, command, fail, WHY)


def check_late_failure(
    field: Field, watch: Watch, who: str, command: str, how: Callable[[Asked], None], words: str
) -> None:
    """A configuration that fails by `how` at `command` in launch `LATE` is excluded, and no other is."""
    key, index = WHO[who]

    def end(asked: Asked) -> None:
        late = (asked.generation, asked.command) == (LATE, command)
        if late and (asked.key == key or (command == "load" and asked.worker.label == who)):
            how(asked)

    watch.before = end
    entries = four(field)
    record = run(entries, settings(baseline=0, anchor=2, runs=80))
    check_who_is_out(record, entries, who, words)
    assert command != "load" or measured_launches(record, index) == list(range(LATE))
    tried = [one for one in watch.started if one == who]
    assert len(tried) <= (LATE + 1) * (2 if who == "anchor" else 1) + 1, "it is not started again"


@pytest.mark.parametrize("generation", [0, LATE])
def test_the_end_of_the_aa_control_costs_the_aa_test_only(
    field: Field, watch: Watch, clock: simulated_clock.Clock, generation: int
) -> None:
    def end(asked: Asked) -> None:
        if (asked.generation, asked.key, asked.command) == (generation, (0, 1), "block"):
            fail(asked)

    watch.before = end
    entries = field.pair()
    record = run(entries, settings(runs=80))
    check_record(record)
    assert [ran.error for ran in record.ran] == [None, None]
    everything = list(range(len(record.generations)))
    assert measured_launches(record, 0) == measured_launches(record, 1) == everything
    assert measured_launches(record, 0, copy=1) == list(range(generation))
    assert all((0, 1) not in one.order for one in record.generations[generation + 1 :])
    assert runs_of(record, 1) == 80
    (note,) = record.notes
    assert WHY in note
    found = evidence_of(record, settings(), entries)
    assert (found.aa is None) == (generation == 0)
    (contrast,) = found.contrasts
    assert contrast["generations"] == len(everything)
    assert contrast["holds"]
    assert note in found.to_dict()["notes"]


def test_an_aa_control_that_cannot_be_started_costs_the_aa_test_only(
    field: Field, watch: Watch, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[Key] = []
    start, start_loaded = LaunchProcesses._start, processes.start_loaded

    def begin(self: LaunchProcesses, key: Key, *given: Any) -> None:
        keys.append(key)
        start(self, key, *given)

    def refuse(*given: Any, **named: Any) -> Any:
        if keys[-1] == (0, 1) and len(watch.processes) - 1 == LATE:
            raise WorkerError(WHY)
        return start_loaded(*given, **named)

    monkeypatch.setattr(LaunchProcesses, "_start", begin)
    monkeypatch.setattr(processes, "start_loaded", refuse)
    record = run(field.pair(), settings(runs=80))
    check_record(record)
    (note,) = record.notes
    assert WHY in note
    assert [ran.error for ran in record.ran] == [None, None]
    assert measured_launches(record, 0, copy=1) == list(range(LATE))
    assert [runs_of(record, index) for index in (0, 1)] == [80, 80]


def test_a_lost_aa_control_takes_no_runs_with_it(
    field: Field, watch: Watch, clock: simulated_clock.Clock
) -> None:
    """An exact number of runs stays exact for the ORT default, whose copies share it."""

    def kill(asked: Asked) -> None:
        if (asked.generation, asked.key, asked.command) == (LATE, (0, 1), "warm"):
            fail(asked)

    watch.before = kill
    record = run(field.pair(), settings(runs=83))
    assert [runs_of(record, index) for index in (0, 1)] == [83, 83]


def test_where_the_fork_server_dies_everybody_is_out_with_what_they_measured(
    field: Field, watch: Watch
) -> None:
    def kill(asked: Asked) -> None:
        if (asked.generation, asked.command) == (LATE, "block"):
            server = psutil.Process(asked.worker.pid).ppid()
            assert server != os.getpid()
            os.kill(server, signal.SIGKILL)
            watch.before = lambda asked: None

    watch.before = kill
    record = run(field.pair(), settings(runs=80))
    check_record(record)
    assert all(ran.error is not None for ran in record.ran)
    assert measured_launches(record, 0)[:LATE] == measured_launches(record, 1)[:LATE] == list(range(LATE))
