"""A fleet of machines: its certificates and processes, its hosts, and questions to many hosts at once.

One machine needs none of this. What runs on a host is the command that one machine runs. All functions here
that start something are for commands and pages; the dashboard calls them in a thread of its own.
"""

from __future__ import annotations

import asyncio
import getpass
import itertools
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from core.api.fleet_requests import Asked as Asked
from core.api.fleet_requests import prepared
from core.api.session import Session
from core.evidence.fleet.fleet_types import ENDED, Answer, FleetRun, HostRecord, answer_key
from core.evidence.fleet.portability import candidates, spec_of
from core.evidence.fleet.selection import ALL, select
from core.run.fleet import host as processes
from core.run.fleet import on_host
from core.run.fleet.addresses import address
from core.run.fleet.asking import PATIENCE_S as PATIENCE_S
from core.run.fleet.asking import Asking, OnChange
from core.run.fleet.asking import Control as Control
from core.run.fleet.certificates import init as init
from core.run.fleet.certificates import machine as machine
from core.run.fleet.client import Fleet, HostGone, connect, host_records
from core.run.fleet.requests import PreparedQuestion
from core.run.fleet.runs import RunFolder, find
from core.run.fleet.runs import load as fleet_run
from core.run.fleet.runs import runs as runs
from core.show.words import counted
from core.store import audit
from core.wire.errors import SpecError, WorkerError

R = TypeVar("R")
_POLL_S = 0.1
_END_S = 90.0  # for hosts to end their questions after Ctrl-C
MAX_PRICE = 1e6
_MOST_NAMES = 8  # of hosts in a line


def serve_scheduler(listen: str, certs: Path | None, say: Callable[[str], None]) -> None:
    """Run a scheduler until a signal ends it.

    Args:
        listen: HOST:PORT of this machine.
        certs: folder of its certificate; None: loopback addresses only.
        say: called with the address once it listens.

    Raises:
        SpecError: the address or the certificate cannot be used.
    """
    where = address(listen, certs, option="--address")
    processes.until_signal(lambda stop: processes.serve_scheduler(where, certs, say, stop))


def serve_host(
    name: str,
    scheduler: str,
    certs: Path | None,
    *,
    labels: Sequence[str] = (),
    price_per_hour: float | None = None,
    say: Callable[[str], None],
) -> None:
    """Run this machine as a host of a fleet until a signal ends it; then its questions are cancelled.

    Args:
        name: unique in the fleet.
        scheduler: its address.
        certs: folder of this machine's certificate; None: loopback addresses only.
        labels: `NAME=VALUE`, for `--on`.
        price_per_hour: of this machine, in any currency; None: unknown.
        say: called with lines of text.

    Raises:
        SpecError: an argument is invalid, or another host has this name.
    """
    where = address(scheduler, certs)
    about: on_host.Description = {"labels": _labels(labels), "price_per_hour": _price(price_per_hour)}
    if machine(name).name == ALL:
        raise SpecError(f"`--name` must not be `{ALL}`, which means all hosts.", hint="Give another name.")
    processes.until_signal(lambda stop: processes.serve_host(name, where, certs, about, say, stop))


def _labels(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for one in texts:
        name, equals, value = one.partition("=")
        if not (name and equals and value) or "," in one or name == ALL:
            raise SpecError(
                f"`--label` must be NAME=VALUE without a comma, but got `{one[:80]}`.",
                hint="Write for example `--label cpu=epyc`.",
            )
        found[name] = value
    return found


def _price(value: float | None) -> float | None:
    if value is not None and not 0 <= value <= MAX_PRICE:
        raise SpecError(
            f"`--price-per-hour` must be 0 to {MAX_PRICE:,.0f}, but got {value:g}.",
            hint="Write for example 0.34.",
        )
    return value


# --- hosts --------------------------------------------------------------------------------------------------


def hosts(scheduler: str | None = None, certs: Path | None = None) -> list[HostRecord]:
    """Return the hosts of a fleet by name, with their facts.

    Args:
        scheduler: its address; None: this machine is the only host.
        certs: folder of the client's certificate.

    Raises:
        SpecError: no scheduler replies there.
    """
    return _in_loop(lambda: _with_fleet(scheduler, certs, host_records))


def _connection(scheduler: str | None, certs: Path | None) -> AbstractAsyncContextManager[Fleet]:
    if scheduler:
        return connect(address(scheduler, certs), certs)
    if certs is not None:
        raise SpecError("`--certs` needs an address.", hint="Give `--scheduler HOST:PORT`, too.")
    return connect(None, None)


async def _with_fleet(
    scheduler: str | None, certs: Path | None, work: Callable[[Fleet], Coroutine[Any, Any, R]]
) -> R:
    try:
        async with _connection(scheduler, certs) as fleet:
            return await work(fleet)
    except HostGone as gone:
        raise WorkerError(
            f"The fleet does not reply: {gone}.", hint="Check the scheduler, and try again."
        ) from gone


def _in_loop(work: Callable[[], Coroutine[Any, Any, R]], on_stop: Callable[[], None] | None = None) -> R:
    """Run a coroutine in a thread with an event loop of its own; a signal calls `on_stop`, then waits."""
    ended = _Ended[R]()
    thread = threading.Thread(target=ended.run, args=(work,), name="ortune-fleet", daemon=True)
    thread.start()
    try:
        while not ended.done.wait(_POLL_S):  # not `join`: a signal in it makes Python forget the thread
            pass
    except BaseException:
        if on_stop is not None:
            on_stop()
            ended.done.wait(_END_S)
        raise
    return ended.result()


class _Ended(Generic[R]):
    """The value or the error of a thread."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._values: list[R] = []
        self._error: BaseException | None = None

    def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> None:
        try:
            self._values.append(asyncio.run(work()))
        except BaseException as error:
            self._error = error
        finally:
            self.done.set()

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        return self._values[0]


# --- questions ----------------------------------------------------------------------------------------------


def ask(
    questions: Sequence[Asked],
    *,
    scheduler: str | None = None,
    certs: Path | None = None,
    on: str = ALL,
    one_of_each_kind: bool = False,
    name: str = "",
    portability: bool = False,
    patience_s: float = PATIENCE_S,
    on_change: OnChange = lambda run: None,
    on_note: Callable[[str], None] = lambda text: None,
    control: Control | None = None,
    session: Session,
) -> FleetRun:
    """Ask hosts of a fleet, and return the run with all answers.

    Ctrl-C and `control` cancel the questions on all hosts and collect what they have.

    Args:
        questions: one or more; a host answers them in this order.
        scheduler: see `hosts`.
        certs: see `hosts`.
        on: see `selection.select`.
        one_of_each_kind: ask one host of those with equal machine and libraries.
        name: of the run, for people; empty: from its first question.
        portability: after the searches, compare all their winners on every host.
        patience_s: how long a host may be gone before its answer counts as lost.
        on_change: called with the run at every change, in another thread.
        on_note: called with lines of text: the ID of the run, hosts that are left out.
        control: cancels single hosts.
        session: whose store receives the answers.

    Raises:
        SpecError: a question or a selection is invalid; nothing was asked.
        TunerError: the run cannot be kept.
    """
    found = [prepared(one, number, session) for number, one in enumerate(questions, start=1)]
    _refuse_private(found, session)
    run = FleetRun(
        id=f"{time.strftime('%Y%m%d')}-{secrets.token_hex(4)}",
        name=name or _name(found),
        created_at=time.time(),
        owner=f"{getpass.getuser()} on {socket.gethostname()}",
        questions=[one.question for one in found],
        portability=portability,
        scheduler=scheduler or "",
        certs=str(certs.absolute()) if certs is not None else "",
    )

    where = session.store.folder
    audit.record("measure", f"fleet run {run.name}", folder=where, kind="fleet", ids=[run.id])

    async def selected(fleet: Fleet) -> FleetRun:
        everyone = await host_records(fleet)
        chosen = select(everyone, on, one_of_each_kind=one_of_each_kind)
        for one in everyone:
            if one.refused and one not in chosen:
                on_note(f"{one.name} is left out: {one.refused}")
        return replace(run, hosts=chosen)

    work = _Work(session, patience_s, on_change, on_note, control or Control())
    return work.run(run, found, selected)


def _refuse_private(questions: Sequence[PreparedQuestion], session: Session) -> None:
    """Refuse to send a private model to hosts, whose own stores would show its results to their users.

    Raises:
        SpecError: a question has one.
    """
    everyone = session.store.for_person("", sees_all=False)
    for one in questions:
        model = one.question.model
        if everyone.hidden([model.sha256, model.path, *one.paths.values()]):
            raise SpecError(
                f"A model of the question on `{model.name}` is private, and the hosts of a fleet show their "
                "results to all who use them.",
                hint="Share the model first, or measure it on this machine alone.",
            )


def resume(
    ref: str,
    *,
    again: bool = False,
    scheduler: str | None = None,
    certs: Path | None = None,
    patience_s: float = PATIENCE_S,
    on_change: OnChange = lambda run: None,
    on_note: Callable[[str], None] = lambda text: None,
    control: Control | None = None,
    session: Session,
) -> FleetRun:
    """Collect the open answers of a run; hosts that have them measure nothing again.

    Args:
        ref: ID of the run, or its first characters.
        again: measure failed, cancelled and lost answers again, as the next attempt.
        scheduler: its address, if it has changed.
        certs: folder of the client's certificate, if it has changed.
        patience_s: see `ask`.
        on_change: see `ask`.
        on_note: see `ask`.
        control: see `ask`.
        session: see `ask`.

    Raises:
        MissingError: there is no such run.
        SpecError: another process collects its answers.
    """
    run = fleet_run(ref)
    if again:
        run = replace(run, answers=[_next_attempt(run, one) for one in run.answers])
    run = replace(run, state="RUNNING", finished_at=None)
    if scheduler:
        run = replace(run, scheduler=scheduler, certs=str(certs.absolute()) if certs is not None else "")

    async def same(fleet: Fleet) -> FleetRun:
        return run

    work = _Work(session, patience_s, on_change, on_note, control or Control())
    return work.run(run, RunFolder(run.id).questions(), same)


def _next_attempt(run: FleetRun, one: Answer) -> Answer:
    if one.state not in ENDED or one.state == "COMPLETE":
        return one
    attempt = one.attempt + 1
    key = answer_key(run.id, one.question, one.host, attempt)
    return Answer(key=key, question=one.question, host=one.host, attempt=attempt)


class _Work:
    """One process that asks and collects."""

    def __init__(
        self,
        session: Session,
        patience_s: float,
        on_change: OnChange,
        on_note: Callable[[str], None],
        control: Control,
    ) -> None:
        self._session = session
        self._patience_s = patience_s
        self._on_change = on_change
        self._on_note = on_note
        self._control = control

    def run(
        self,
        run: FleetRun,
        questions: Sequence[PreparedQuestion],
        selected: Callable[[Fleet], Coroutine[Any, Any, FleetRun]],
    ) -> FleetRun:
        keep = RunFolder(run.id)

        async def work(fleet: Fleet) -> FleetRun:
            chosen = await selected(fleet)
            with keep.held():
                keep.save_questions(questions)
                self._on_note(_begun(chosen))
                asking = Asking(fleet, chosen, keep, self._session.store, on_change=self._on_change)
                asking.control, asking.patience_s = self._control, self._patience_s
                asked = await asking.ask(questions)
                if not (asked.portability and asked.phase == "ask" and asked.state in ("COMPLETE", "FAIL")):
                    return asked
                more = await asyncio.to_thread(self._portability, asked)
                asking.begin_portability(more)
                keep.save_questions([*questions, *more])
                return await asking.ask([*questions, *more])

        certs = Path(run.certs) if run.certs else None
        return _in_loop(lambda: _with_fleet(run.scheduler or None, certs, work), on_stop=self._control.cancel)

    def _portability(self, run: FleetRun) -> list[PreparedQuestion]:
        """Return one comparison of the winners of each search, for the hosts that answered it."""
        found: list[PreparedQuestion] = []
        for one in run.questions:
            if one.command != "search":
                continue
            winners = candidates(run, one.number)
            hosts = [
                host for host, answer in run.answers_of(one.number).items() if answer.state == "COMPLETE"
            ]
            if not winners.configurations:
                self._on_note(f"No search of {one.model.name} found a winner to compare on every host.")
                continue
            asked = Asked(
                command="compare",
                model=one.model.path,
                arguments=_protocol(one.arguments),
                phase="portability",
                hosts=hosts,
                baseline=None if winners.default is None else spec_of(winners.default),
                candidates={
                    f"winner-of-{winners.hosts[of.key][0]}": spec_of(of) for of in winners.configurations
                },
            )
            found.append(prepared(asked, len(run.questions) + len(found) + 1, self._session))
        return found


def _begun(run: FleetRun) -> str:
    """Return what a run asks whom, in one line."""
    names = [one.name for one in run.hosts]
    more = "" if len(names) <= _MOST_NAMES else f" and {len(names) - _MOST_NAMES} more hosts"
    asked = counted(len(run.questions), "question")
    return f"Fleet run {run.id}: {asked}, {', '.join(names[:_MOST_NAMES])}{more}"


def _protocol(arguments: Sequence[str]) -> list[str]:
    """Return the options of a search that also hold for the comparison of the winners."""
    found: list[str] = []
    for name, value in itertools.pairwise([*arguments, ""]):
        option, equals, _ = name.partition("=")
        if option in ("--effort", "--wait-quiet", "--margin"):
            found += [name] if equals else [name, value]
    return found


def _name(questions: Sequence[PreparedQuestion]) -> str:
    first = questions[0].question
    more = f" and {len(questions) - 1} more" if len(questions) > 1 else ""
    return f"{first.command} {first.model.name}{more}"


def cancel(ref: str, host: str | None = None, *, session: Session | None = None) -> FleetRun:
    """End the open questions of a run on their hosts, with all processes, and return the run.

    The process that collects the answers sees their ends. If there is none, `session` collects them.

    Args:
        ref: ID of the run, or its first characters.
        host: only this host; None: all.
        session: receives what the hosts measured until then, if all are cancelled; None: `resume` does it.

    Raises:
        MissingError: there is no such run.
        SpecError: the run has no such host.
        WorkerError: a host does not reply.
    """
    run = fleet_run(ref)
    _check_host(run, host)
    is_open = {one.key: one.state not in ENDED or one.state == "LOST" for one in run.answers}
    keys = [one for one in run.answers if is_open[one.key] and host in (None, one.host)]

    async def work(fleet: Fleet) -> list[str]:
        told = [fleet.request(one.host, on_host.cancel, [one.key]) for one in keys]
        found = await asyncio.gather(*told, return_exceptions=True)
        return [
            f"{one.host}: {why}"
            for one, why in zip(keys, found, strict=True)
            if isinstance(why, BaseException)
        ]

    what = f"cancelled: fleet run {run.name}{f' on {host}' if host else ''}"
    audit.record("change", what, kind="fleet", ids=[run.id])
    failed = _at_fleet_of(run, work)
    if failed:
        raise WorkerError(
            f"Not every host could be told to stop ({'; '.join(failed)}).", hint="Try again when it is back."
        )
    if session is None or host is not None or not keys:
        return fleet_run(ref)
    control = Control()
    control.cancel()
    try:
        return resume(run.id, control=control, session=session)
    except SpecError:  # another process collects them
        return fleet_run(ref)


def logs(ref: str, host: str) -> str:
    """Return the end of the log of a host's newest question in a run; "" if there is none.

    Raises:
        MissingError: there is no such run.
        SpecError: the run has no such host.
        WorkerError: the host does not reply.
    """
    run = fleet_run(ref)
    _check_host(run, host)
    own = [one for one in run.answers if one.host == host and one.state != "WAITING"]

    async def work(fleet: Fleet) -> str:
        found: str = await fleet.request(host, on_host.log, own[-1].key)
        return found

    return _at_fleet_of(run, work) if own else ""


def _at_fleet_of(run: FleetRun, work: Callable[[Fleet], Coroutine[Any, Any, R]]) -> R:
    """Do some work with the fleet that a run has asked."""
    certs = Path(run.certs) if run.certs else None
    return _in_loop(lambda: _with_fleet(run.scheduler or None, certs, work))


def _check_host(run: FleetRun, host: str | None) -> None:
    known = [one.name for one in run.hosts]
    if host is not None and host not in known:
        raise SpecError(
            f"The fleet run `{run.id}` has no host `{host[:80]}`.", hint=f"Its hosts are {', '.join(known)}."
        )


__all__ = ["find", "fleet_run"]
