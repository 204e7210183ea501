"""Services of the server for one person who is logged in: what this person starts, and may cancel."""

from __future__ import annotations

from typing import Any

from core.api.session import Job, Scheduler
from core.store import Actor
from core.wire.errors import SpecError


class PersonalScheduler:
    """The scheduler of the server, as one person may use it; all else is that of the server."""

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        """Wrap the scheduler of the server for who starts jobs."""
        self._scheduler, self._actor = scheduler, actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)

    def submit(self, job: Job) -> str:
        """Queue a job of this person; see `Scheduler.submit`."""
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
