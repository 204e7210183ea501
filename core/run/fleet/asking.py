"""A whole run: every host answers its questions one after another, all hosts at the same time.

The state on the host is the truth. A lost connection, a lost Dask task and a killed client change nothing
there: the same key is asked again, and the host returns what it has. An answer is complete once its document
and its rows are stored with the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.evidence.fleet.fleet_types import (
    ENDED,
    HOST_OWNER,
    Answer,
    AnswerProgress,
    FleetRun,
    Question,
    RunState,
    answer_key,
)
from core.run.fleet import on_host
from core.run.fleet.client import Fleet, HostGone
from core.run.fleet.folders import DOCUMENT, ROWS
from core.run.fleet.requests import PreparedQuestion
from core.run.fleet.runs import RunFolder
from core.run.fleet.sending import send
from core.store import Store
from core.store.transfer import Origin, StoredRows
from core.wire.errors import Cancelled, StoreError, TunerError, WorkerError, record_from_error
from core.wire.units import visible

PATIENCE_S = 180.0  # how long a host may be gone before its answer counts as lost
_POLLS_S = (0.4, 2.0)  # between two requests for the state: at least, and at most for a few hosts
_POLL_SHARE = 0.03  # of the time so far: the end of a short question is noticed soon
_POLL_PER_HOST_S = 0.02  # many hosts are asked less often, so that the scheduler stays idle
_RETRY_S = 2.0
_SAVE_S = 3.0  # between two writes of mere progress
_SAVE_PER_HOST_S = 0.1
_TOLD_S = 15.0  # how long a cancel waits for a host that does not reply

OnChange = Callable[[FleetRun], None]


class Control:
    """Cancels hosts of a run from any thread."""

    def __init__(self) -> None:
        self._all = threading.Event()
        self._hosts: set[str] = set()

    def cancel(self, host: str | None = None) -> None:
        """Cancel one host's questions; None: all."""
        if host is None:
            self._all.set()
        else:
            self._hosts.add(host)

    def is_cancelled(self, host: str) -> bool:
        """Whether a host's questions are cancelled."""
        return self._all.is_set() or host in self._hosts


class Asking:
    """Asks the questions of a run that have no answer yet, and collects the answers."""

    def __init__(
        self, fleet: Fleet, run: FleetRun, keep: RunFolder, store: Store, *, on_change: OnChange
    ) -> None:
        """Use the connection `fleet`; `keep` and `store` receive every answer."""
        self.run = run
        self.control = Control()
        self.patience_s = PATIENCE_S
        self._fleet = fleet
        self._keep = keep
        self._store = store
        self._on_change = on_change
        self._saved_at = float("-inf")  # monotonic
        self._gone: dict[str, float] = {}  # host -> when it stopped to reply, monotonic

    async def ask(self, questions: Sequence[PreparedQuestion]) -> FleetRun:
        """Ask, and return the run when every answer has ended.

        Raises:
            StoreError: the run cannot be written.
        """
        names = [one.name for one in self.run.hosts]
        for one in questions:
            for host in one.question.hosts or names:
                if host not in self.run.answers_of(one.question.number):
                    self._add(one.question, host)
        self._save()
        await _together([self._ask_host(host, questions) for host in names])
        self.run = replace(self.run, state=_state_of(self.run), finished_at=time.time())
        self._save()
        return self.run

    def begin_portability(self, questions: Sequence[PreparedQuestion]) -> None:
        """Add the questions of the second phase to the run."""
        every = [*self.run.questions, *(one.question for one in questions)]
        self.run = replace(self.run, questions=every, phase="portability", state="RUNNING", finished_at=None)

    def _add(self, question: Question, host: str) -> None:
        key = answer_key(self.run.id, question.number, host, 1)
        self.run = self.run.with_answer(Answer(key=key, question=question.number, host=host))

    async def _ask_host(self, host: str, questions: Sequence[PreparedQuestion]) -> None:
        for one in questions:
            answer = self.run.answers_of(one.question.number).get(host)
            if answer is not None and (answer.state not in ENDED or answer.state == "LOST"):
                await self._with_patience(replace(answer, state="WAITING", error=None), one)

    async def _with_patience(self, answer: Answer, prepared: PreparedQuestion) -> None:
        """Ask until there is an answer, or the host has been gone for too long."""
        while True:
            try:
                await _Exchange(self, self._fleet, self._store, answer, prepared).run()
            except HostGone as gone:
                answer = self.run.answers_of(answer.question)[answer.host]
                if self._is_over(answer, gone):
                    return
                await asyncio.sleep(_RETRY_S)
            except TunerError as error:
                self.set(replace(answer, state="FAIL", error=record_from_error(error), progress=None))
                return
            else:
                return

    def _is_over(self, answer: Answer, gone: HostGone) -> bool:
        now = time.monotonic()
        since = self._gone.setdefault(answer.host, now)
        wait_s = _TOLD_S if self.control.is_cancelled(answer.host) else self.patience_s
        if now - since < wait_s:
            text = f"no connection: {gone}"
            waiting = answer.unreachable_since or time.time()
            self.set(replace(answer, unreachable_since=waiting, progress=AnswerProgress(text=text)))
            return False
        error = WorkerError(
            f"The host `{answer.host}` has not replied for {now - since:.0f} s: {gone}.",
            hint=f"When it is back, collect its answer with `ortune fleet resume {self.run.id}`.",
        )
        self.set(replace(answer, state="LOST", error=record_from_error(error), progress=None))
        return True

    def reached(self, host: str) -> None:
        """Note that a host replied."""
        self._gone.pop(host, None)

    def set(self, answer: Answer) -> None:
        """Replace an answer, and write the run if its state changed or the last write is old."""
        before = self.run.answers_of(answer.question).get(answer.host)
        self.run = self.run.with_answer(answer)
        changed = before is None or (before.state, before.attempt) != (answer.state, answer.attempt)
        late_s = max(_SAVE_S, _SAVE_PER_HOST_S * len(self.run.hosts))
        if changed or time.monotonic() - self._saved_at > late_s:
            self._save()
        self._on_change(self.run)

    def keep_document(self, answer: Answer) -> None:
        """Write the document of an answer."""
        self._keep.save_document(answer)

    def _save(self) -> None:
        self._keep.save(self.run)
        self._saved_at = time.monotonic()


class _Exchange:
    """One question with one host: files, start, progress, cancel, and the answer with its rows."""

    def __init__(
        self, asking: Asking, fleet: Fleet, store: Store, answer: Answer, prepared: PreparedQuestion
    ) -> None:
        self.asking = asking
        self.fleet = fleet
        self.store = store
        self.answer = answer
        self.prepared = prepared

    async def run(self) -> None:
        """Return when the answer has ended; raises `HostGone`, and a `TunerError` that the host reported."""
        key = self.answer.key
        state = (await self._request(on_host.states, [key])).get(key)
        if state is None:
            state = await self._start()
        if state is None:
            return
        task = self.fleet.attend((await self.fleet.identities()).get(self.answer.host, {}), key)
        try:
            state = await self._followed(state)
        finally:
            if task is not None:
                with contextlib.suppress(Exception):
                    task.release()
        await self._collect(state)

    async def _start(self) -> dict[str, Any] | None:
        """Send the files and start the question; None: it was cancelled before."""
        request = self.prepared.request(self.answer.key)
        for sha256, parcel in request["parcels"].items():
            path = self.prepared.paths[sha256]
            if self._is_cancelled():
                break
            near = request["near"].get(sha256, "")
            await send(self.fleet, self.answer.host, parcel, path, self._show_bytes, near=near)
        if self._is_cancelled():
            stopped = Cancelled("The question was cancelled before it started.", hint="Ask it again.")
            self._set(state="CANCELLED", error=record_from_error(stopped), progress=None)
            return None
        found: dict[str, Any] = await self._request(on_host.start, request)
        return found

    async def _followed(self, state: dict[str, Any]) -> dict[str, Any]:
        """Show the progress until the question has ended, and return its last state."""
        key, began = self.answer.key, time.monotonic()
        most_s = max(_POLLS_S[1], _POLL_PER_HOST_S * len(self.asking.run.hosts))
        while state["state"] in ("WAITING", "RUNNING"):
            self._show(state)
            if self._is_cancelled():  # each time: the question may have begun just after the last request
                await self._request(on_host.cancel, [key])
            share_s = _POLL_SHARE * (time.monotonic() - began)
            await asyncio.sleep(min(max(share_s, _POLLS_S[0], most_s - _POLLS_S[1]), most_s))
            found = (await self._request(on_host.states, [key])).get(key)
            if found is None:
                raise WorkerError(
                    f"The host `{self.answer.host}` no longer has this question: its ORTune folder is gone.",
                    hint="Ask again with `ortune fleet resume RUN --again`.",
                )
            state = found
        return state

    def _is_cancelled(self) -> bool:
        return self.asking.control.is_cancelled(self.answer.host)

    async def _request(self, function: Callable[..., Any], *arguments: Any) -> Any:
        found = await self.fleet.request(self.answer.host, function, *arguments)
        self.asking.reached(self.answer.host)
        return found

    def _show(self, state: Mapping[str, Any]) -> None:
        found = state.get("progress") or {}
        progress = AnswerProgress(
            stage=str(found.get("stage", "")),
            done=int(found.get("done", 0)),
            total=int(found.get("total", 0)),
            text=visible(str(found.get("text", "")))[:300],
        )
        self._set(state=state["state"], started_at=state.get("started_at"), progress=progress)

    def _show_bytes(self, done: int, total: int) -> None:
        self.asking.reached(self.answer.host)
        text = f"sending the model: {done / (1 << 20):.0f} of {total / (1 << 20):.0f} MiB"
        self._set(progress=AnswerProgress(stage="sending", done=done, total=total, text=text))

    def _set(self, **changes: Any) -> None:
        self.answer = replace(self.answer, unreachable_since=None, **changes)
        self.asking.set(self.answer)

    async def _collect(self, state: Mapping[str, Any]) -> None:
        """Fetch and store the document and the rows; only then the answer has ended."""
        document, files = None, state.get("files", {})
        if files.get(DOCUMENT, {}).get("bytes"):
            with contextlib.suppress(ValueError):  # a command that was killed leaves half a document
                document = json.loads(await self._file(DOCUMENT, files[DOCUMENT]))
        rows = await self._file(ROWS, files[ROWS]) if files.get(ROWS, {}).get("bytes") else b""
        ended = replace(
            self.answer,
            state=state["state"],
            exit_code=state.get("exit_code"),
            error=state.get("error"),
            document=document,
            rows=state.get("rows", {}),
            progress=None,
            started_at=state.get("started_at"),
            finished_at=state.get("finished_at"),
            unreachable_since=None,
        )
        try:
            if rows:
                await asyncio.to_thread(self._adopt, rows, state)
            self.asking.keep_document(ended)
        except TunerError as error:
            hint = f"Collect it again with `ortune fleet resume {self.asking.run.id}`. {error.hint}"
            kept = StoreError(f"The answer is kept on the host, but not here: {error.message}", hint=hint)
            ended = replace(ended, state="LOST", document=None, rows={}, error=record_from_error(kept))
        self.asking.set(ended)

    def _adopt(self, data: bytes, state: Mapping[str, Any]) -> None:
        there: Mapping[str, str] = state.get("paths", {})
        paths = {there[sha256]: here for sha256, here in self.prepared.paths.items() if sha256 in there}
        origin = Origin(owner=f"{HOST_OWNER}{self.answer.host}", paths=paths)
        self.store.adopt(StoredRows.unpacked(data), origin)

    async def _file(self, name: str, sealed: Mapping[str, Any]) -> bytes:
        """Return a file of the answer, after a check of its hash."""
        data = bytearray()
        while len(data) < sealed["bytes"]:
            found: bytes = await self._request(on_host.piece, self.answer.key, name, len(data))
            if not found:
                break
            data += found
        if hashlib.sha256(data).hexdigest() != sealed["sha256"]:
            raise HostGone(f"`{name}` arrived with another content")
        return bytes(data)


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all works; if one fails, cancel the others and raise its error alone."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in works:
                group.create_task(one)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _state_of(run: FleetRun) -> RunState:
    states = {one.state for one in run.answers}
    if "LOST" in states:
        return "INCOMPLETE"
    if "CANCELLED" in states:
        return "CANCELLED"
    return "FAIL" if "FAIL" in states else "COMPLETE"
