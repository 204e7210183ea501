"""Services of the server for one person who is logged in: what this person starts, and may cancel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from core.api.session import Entry, Job, Scheduler, Status
from core.store import Actor
from core.wire.errors import SpecError
from dashboard.server.quotas import check_length


class PersonalScheduler:
    """The scheduler of the server, as one person may use it; all else is that of the server."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        """Wrap the scheduler of the server for who starts jobs."""
        self._scheduler, self._actor = scheduler, actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def status(self, job_id: str) -> Status | None:
        """Return the status of a job; None also for one that is private to another person."""
        return self._seen(self._scheduler.status(job_id))

    def active(self) -> list[Status]:
        """Return the jobs that run or wait here, in order, without those that are private to others."""
        return [one for status in self._scheduler.active() if (one := self._seen(status)) is not None]

    def _seen(self, status: Status | None) -> Status | None:
        return None if status is None or self.is_hidden([status.id]) else status

    def is_hidden(self, ids: Iterable[str]) -> bool:
        """Whether this person may not know of one of these jobs, results or models."""
        return self._scheduler.is_hidden(ids, self._actor)

    def line(self) -> list[Entry]:
        """Return the machine's queue as this person may read it; see `Scheduler.line`."""
        return self._scheduler.line(self._actor)

    def submit(self, job: Job) -> str:
        """Queue a job of this person; see `Scheduler.submit` and `check_length`."""
        check_length(job.predicted_s, self._actor)
        return self._scheduler.submit(job, actor=self._actor)

    def cancel(self, job_id: str) -> None:
        """Cancel a job of this person; see `Scheduler.cancel`.

        Raises:
            SpecError: somebody else started it, and this person is no admin.
        """
        person = self._scheduler.person_of(job_id)
        if person is not None and person != self._actor.person and not self._actor.sees_all:
            raise SpecError(
                f"This job was started by `{person or 'the server'}`.",
                hint="Cancel your own jobs, or ask an admin.",
            )
        self._scheduler.cancel(job_id)
