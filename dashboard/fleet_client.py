"""Fleet runs that this server started: each is asked in a thread of its own, and ends with the server."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from core.api import fleet
from core.api.session import Session
from core.evidence.fleet.fleet_types import FleetRun
from core.wire.errors import TunerError, WorkerError
from core.wire.variables import FLEET_CERTS, FLEET_SCHEDULER

START_S = 60.0  # until a run has an ID: hosts are read first
END_S = 20.0  # for the hosts to end their questions when the server ends


def scheduler_address() -> str | None:
    """Return the address of the fleet that the operator of this server named; None: this machine alone."""
    return os.environ.get(FLEET_SCHEDULER) or None


class FleetClient:
    """Asks fleets in the background."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, fleet.Control] = {}

    def start(self, session: Session, asked: fleet.Asked, *, on: str, portability: bool) -> str:
        """Ask hosts a question; return the ID of the run as soon as it is known.

        Args:
            session: of the person who asks, whose results they are.
            asked: the question.
            on: hosts, as `--on`.
            portability: after a search, compare all winners on every host.

        Raises:
            TunerError: nothing was asked.
        """
        told: queue.SimpleQueue[str | TunerError] = queue.SimpleQueue()
        control = fleet.Control()

        def changed(run: FleetRun) -> None:
            if told.empty():
                told.put(run.id)

        def work() -> None:
            certs = os.environ.get(FLEET_CERTS)
            try:
                fleet.ask(
                    [asked],
                    scheduler=scheduler_address(),
                    certs=Path(certs) if certs else None,
                    on=on,
                    portability=portability,
                    on_change=changed,
                    control=control,
                    session=session,
                )
            except TunerError as error:
                told.put(error)
            finally:
                self._running.pop(threading.current_thread(), None)

        thread = threading.Thread(target=work, name="ortune-fleet-page", daemon=True)
        self._running[thread] = control
        thread.start()
        try:
            found = told.get(timeout=START_S)
        except queue.Empty:
            raise WorkerError(
                f"The fleet did not start within {START_S:g} s.", hint="Check its scheduler and hosts."
            ) from None
        if isinstance(found, TunerError):
            raise found
        return found

    def close(self) -> None:
        """Cancel all runs of this server, and wait for their ends."""
        running = dict(self._running)
        for control in running.values():
            control.cancel()
        for thread in running:
            thread.join(END_S)
