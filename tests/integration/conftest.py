"""Fixtures of the integration tests: comparisons follow the usual steps, shorter and fewer.

The tests check the steps, not the precision. One that needs full length runs in its own process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core import wire
from core.process import contestant_workers
from core.process.job_worker import run_job
from core.run import launches
from core.run.launches import blocks, budget, costs
from core.run.scheduler import Scheduler
from core.store import Store
from core.wire.files import ROOT
from core.wire.runtime import OWN
from core.worker.measure import footprint
from tests import in_process, simulated_clock, tiny_models
from tests.command_line import CommandLine
from tests.waiting import WAIT_S


@pytest.fixture(autouse=True, scope="module")
def short_comparisons() -> Iterator[None]:
    """Blocks of 2 ms, few rounds and generations, and costs that are read for hundredths of a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NS", 2_000_000)
        patch.setattr(budget, "MOST_ROUNDS", 6)
        patch.setattr(launches, "EXACT_LAUNCHES", 2)
        patch.setattr(costs, "IDLE_S", 0.01)
        patch.setattr(costs, "CPU_WINDOW_S", 0.02)
        patch.setattr(contestant_workers, "FREEZE_S", WAIT_S)  # a busy machine stops a process late
        yield


@pytest.fixture(autouse=True, scope="module")
def libraries_stay_on_the_disk() -> Iterator[None]:
    """Leave libraries unread: this process maps PyTorch, 3 GB of code. Real workers load theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "load_libraries", lambda: None)
        yield


@pytest.fixture(scope="session")
def described() -> list[wire.Environment]:
    """A worker's description of this machine; empty before the first request."""
    return []


@pytest.fixture(autouse=True, scope="module")
def one_description_of_the_machine(described: list[wire.Environment]) -> Iterator[None]:
    """Schedulers with real workers share it: checking that every library loads takes a second."""
    describe = Scheduler._describe

    def share(
        self: Scheduler, run: Callable[..., Any], *, refresh: bool = False, runtime: str = OWN
    ) -> wire.Environment:
        if self._run is not run_job or refresh or runtime != OWN:
            return describe(self, run, refresh=refresh, runtime=runtime)
        described[:] = described or [describe(self, run)]
        return described[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_describe", share)
        yield


@pytest.fixture(scope="module")
def jobs_at_once() -> Iterator[None]:
    """Models are inspected, transformed and scored in this process: these tests are about something else."""
    with in_process.jobs():
        yield


# --- a command line -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that nobody writes to."""
    return str(tiny_models.mlp(tmp_path_factory.mktemp("shared") / "mlp.onnx"))


@pytest.fixture(scope="session")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cheapest model, `m`, that nobody writes to."""
    return tiny_models.mul(tmp_path_factory.mktemp("shared") / "m.onnx")


@pytest.fixture(scope="session")
def acquainted(tmp_path_factory: pytest.TempPathFactory, mlp: str, square: Path) -> Path:
    """A home where a worker has inspected the models that most tests measure, and nothing else happened."""
    line = CommandLine(tmp_path_factory.mktemp("acquainted"))
    for model in (mlp, str(square), str(ROOT / "sample_models" / "digits_cnn.onnx")):
        assert line.run("inspect", model).code == 0
    return line.home


@pytest.fixture
def cli(tmp_path: Path, acquainted: Path) -> CommandLine:
    """A command line of its own."""
    return CommandLine(tmp_path, acquainted)


@pytest.fixture
def clock() -> Iterator[simulated_clock.Clock]:
    """Comparisons of this process run on the simulated clock: the test is about what is said of them."""
    with simulated_clock.machine() as one:
        yield one


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    """A queue on its own store, without earlier comparisons."""
    one = Scheduler(Store(tmp_path / "ortune.db"), owner="tester")
    yield one
    one.close()
