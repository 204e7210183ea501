"""Cancelling a comparison at every moment: it keeps whole rounds, and no process stays.

Real ones are cancelled while each kind of answer is awaited; at all other moments, simulated ones.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import pytest

from core.evidence.record import Entry
from core.process.contestant_workers import _WorkerChannel
from core.run import launches as launches
from core.run.launches import costs
from core.run.launches.processes import LaunchProcesses
from core.wire.errors import Cancelled, WorkerError
from tests import simulated_clock, tiny_models
from tests.real_comparisons import (
    ENDLESS,
    Asked,
    Field,
    Watch,
    check_record,
    evidence_of,
    nobody_is_left,
    round_keys,
    run,
    settings,
)

SOON = settings(runs=16)  # eight rounds of two runs: every kind of moment, soon over


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


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


def cancelled(watch: Watch, entries: list[Entry], asked: Any, cancel: threading.Event, **given: Any) -> Any:
    """Measure until `cancel`; the record, or None if there was no whole round. Anything else fails."""
    try:
        record = run(entries, asked, cancel=cancel, **given)
    except Cancelled:
        assert watch.launch_processes is None or watch.launch_processes.record.orders == []
        return None
    check_record(record)
    if record.outcome == "cancelled":
        assert record.orders
        sizes = {len(keys) for keys in round_keys(record).values()}
        assert sizes == {len(entries) + 1}, "a round that was cut short was kept"
    evidence_of(record, asked, entries).to_dict()
    nobody_is_left(watch.pids)
    return record


# --- while something is waited for --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A request that was sent: its kind, its number within the kind, and its launch."""

    command: str
    generation: int
    nth: int


class Moments:
    """Every request of a comparison, to the fork server too; may cancel when one of them was sent."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.seen: list[Moment] = []
        self.at: Moment | None = None
        self.cancel = threading.Event()

    def sent(self, do: str) -> None:
        """A request was sent."""
        generation = len(self.watch.processes) - 1
        same = [one for one in self.seen if (one.command, one.generation) == (do, generation)]
        moment = Moment(command=do, generation=generation, nth=len(same))
        self.seen.append(moment)
        if moment == self.at:
            self.cancel.set()

    def of_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """See the requests of real workers, which are awaited then."""
        send = _WorkerChannel.send

        def tell(line: _WorkerChannel, do: str, arguments: Any, fds: tuple[int, ...] = ()) -> None:
            send(line, do, arguments, fds)
            self.sent(do)

        monkeypatch.setattr(_WorkerChannel, "send", tell)

    def again(self, at: Moment | None) -> None:
        self.watch.processes.clear()
        self.watch.launch_processes = None
        self.seen.clear()
        self.cancel.clear()
        self.at = at


def first_and_last(seen: list[Moment]) -> list[Moment]:
    """Requests of every kind in every launch."""
    found = []
    key = attrgetter("command", "generation")
    for _, group in itertools.groupby(sorted(seen, key=key), key=key):
        same = list(group)
        found += dict.fromkeys([same[0], same[-1]])
    return found


def one_of_each(seen: list[Moment]) -> list[Moment]:
    """The first of every kind; nothing waits while somebody is reaped."""
    first: dict[str, Moment] = {}
    for one in seen:
        first.setdefault(one.command, one)
    return [one for one in first.values() if one.command != "reap"]


ASKED = {
    *("load", "warm", "block", "cost"),
    *("save_outputs", "compare_outputs", "footprint", "new_shapes"),
}


def test_cancelled_while_any_answer_is_awaited(
    field: Field, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork, a load, a warm-up, a block, a pass: its answer comes later, or never, and is nobody's."""
    moments = Moments(watch)
    moments.of_lines(monkeypatch)
    seen = check_cancelled_at(field, moments, one_of_each, fresh=False)
    assert {one.command for one in seen} == ASKED | {"fork", "reap"}


def test_cancelled_while_a_process_of_its_own_loads(
    field: Field, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = Moments(watch)
    moments.of_lines(monkeypatch)
    load = Moment(command="load", generation=0, nth=0)
    check_cancelled_at(field, moments, lambda seen: [load], fresh=True)


def test_cancelled_at_the_first_and_the_last_request_of_every_kind(
    field: Field, watch: Watch, clock: simulated_clock.Clock
) -> None:
    moments = Moments(watch)
    watch.before = lambda asked: moments.sent(asked.command)
    seen = check_cancelled_at(field, moments, first_and_last, fresh=False)
    assert {one.command for one in seen} == ASKED


def check_cancelled_at(
    field: Field, moments: Moments, choose: Callable[[list[Moment]], list[Moment]], *, fresh: bool
) -> list[Moment]:
    """Run a comparison once to the end, and again to each of the chosen moments; return all of the first."""
    watch = moments.watch
    entries = [replace(field.entry("rows", shapes=True), fresh_process=fresh), field.entry()]
    asked = replace(SOON, anchor=1)
    whole = cancelled(watch, entries, asked, moments.cancel)
    assert whole.outcome == "rounds"
    seen = list(moments.seen)
    last = max(i for i, one in enumerate(seen) if one.command != "reap")
    for moment in choose(seen):
        moments.again(at=moment)
        record = cancelled(watch, entries, asked, moments.cancel)
        over = record is not None and record.outcome == "rounds" and seen.index(moment) >= last
        starting = moment.command in ("fork", "load", "warm") and moment.generation == 0
        first_round = moment.command == "block" and moment.generation == 0 and moment.nth < 3
        before_any_round = starting or first_round
        assert over or (record is None) == before_any_round, moment
        assert over or record is None or record.outcome == "cancelled", moment
    return seen


def test_cancelled_while_the_fork_server_starts(field: Field, watch: Watch) -> None:
    cancel = threading.Event()
    record = cancelled(watch, field.pair(), SOON, cancel, on_progress=lambda progress: cancel.set())
    assert record is None


def test_cancelled_before_it_began(field: Field, watch: Watch) -> None:
    cancel = threading.Event()
    cancel.set()
    assert cancelled(watch, field.pair(), SOON, cancel) is None


# --- in between ---------------------------------------------------------------------------------------------


def after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do: Callable[[], None]) -> None:
    """Have `do` done each time after `owner.name` was called."""
    original = getattr(owner, name)

    def and_then(*given: Any, **named: Any) -> Any:
        found = original(*given, **named)
        do()
        return found

    monkeypatch.setattr(owner, name, and_then)


@pytest.mark.parametrize(
    ("owner", "name", "nth"),
    [
        (LaunchProcesses, "start", 1),  # everybody is there, and nobody has run
        (LaunchProcesses, "start", 2),
        (LaunchProcesses, "park", 1),
        (LaunchProcesses, "park", 5),
        (LaunchProcesses, "end_all", 1),  # between two launches
        (LaunchProcesses, "end_all", 2),
        (simulated_clock.Worker, "freeze", 2),
        (simulated_clock.Worker, "kill", 1),
        (simulated_clock.Worker, "kill", 5),
        (launches, "void_reason", 1),
        (launches, "void_reason", 5),
        (launches, "read_cost", 1),
        (launches, "read_cost", 2),
        (launches, "read_energy", 1),
        (launches, "compare_outputs", 1),
        (costs, "start_loaded", 1),
        (costs, "start_loaded", 2),
    ],
)
def test_cancelled_between_two_requests(
    field: Field,
    watch: Watch,
    clock: simulated_clock.Clock,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    nth: int,
) -> None:
    cancel, calls = threading.Event(), itertools.count(1)
    after(monkeypatch, owner, name, lambda: cancel.set() if next(calls) == nth else None)
    precision = replace(SOON.effort, name="standard" if name == "read_energy" else "quick")
    record = cancelled(watch, field.pair(), replace(SOON, effort=precision), cancel)
    assert cancel.is_set(), "it never came to that"
    if record is None:
        return  # not to a whole round: `cancelled` has checked the rest
    assert record.outcome in ("cancelled", "rounds")
    assert len(record.orders) == 8 or record.outcome == "cancelled"


def test_cancelled_between_two_generations_keeps_all_rounds_before(
    field: Field, watch: Watch, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel = threading.Event()
    after(monkeypatch, LaunchProcesses, "end_all", cancel.set)
    record = cancelled(watch, field.pair(), settings(runs=160), cancel)
    assert record.outcome == "cancelled"
    assert len(record.generations[0].order) == 3
    assert len(record.orders) == record.generations[0].rounds == 8


@pytest.mark.parametrize("stage", ["cost", "outputs", "memory"])
def test_cancelled_in_a_pass_after_the_rounds_keeps_all_of_them(
    field: Field, watch: Watch, clock: simulated_clock.Clock, stage: str
) -> None:
    cancel = threading.Event()

    def stop(progress: Any) -> None:
        if progress.stage == stage:
            cancel.set()

    entries = field.pair()
    record = cancelled(watch, entries, settings(runs=80), cancel, on_progress=stop)
    assert len(record.orders) == 8
    assert record.outcome == "cancelled"
    results = [evidence_of(record, SOON, entries).trial_result(index) for index in (0, 1)]
    assert [one is not None and one["runs"] for one in results] == [80, 80]


# --- by whoever watches -------------------------------------------------------------------------------------


def test_cancelled_in_the_rounds_by_who_reads_the_live_numbers(
    field: Field, watch: Watch, clock: simulated_clock.Clock
) -> None:
    cancel = threading.Event()

    def stop(live: dict[str, Any]) -> None:
        if live["rounds"] >= 2:
            cancel.set()

    asked = settings(effort=ENDLESS, budget_s=600.0)
    record = cancelled(watch, field.pair(), asked, cancel, on_live=stop)
    assert record.outcome == "cancelled"
    assert len(record.orders) >= 2


def test_cancelled_in_a_block_of_a_model_that_takes_minutes(
    field: Field, watch: Watch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    slow = Field(tiny_models.slow(tmp_path_factory.mktemp("slow") / "slow.onnx"))
    cancel = threading.Event()

    def stop(asked: Any) -> None:
        if asked.command == "load":
            threading.Timer(0.2, cancel.set).start()

    watch.before = stop
    assert cancelled(watch, slow.pair(), settings(), cancel) is None


def test_what_was_lost_before_a_cancel_stays_lost(
    field: Field, watch: Watch, clock: simulated_clock.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that fails while the comparison is cancelled keeps its own error."""
    cancel = threading.Event()
    entries = [*field.pair(), field.entry("broken")]

    def lose(asked: Asked) -> None:
        if asked.command == "load" and asked.worker.label == "broken":
            raise WorkerError("It crashed.")

    watch.before = lose
    after(monkeypatch, LaunchProcesses, "end_all", cancel.set)
    record = run(entries, settings(runs=40), cancel=cancel)
    check_record(record)
    assert record.outcome == "cancelled"
    assert {len(keys) for keys in round_keys(record).values()} == {3}
    assert record.ran[2].error is not None
    assert not isinstance(record.ran[2].error, Cancelled)
    assert [ran.error for ran in record.ran[:2]] == [None, None]
