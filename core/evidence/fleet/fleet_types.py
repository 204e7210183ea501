"""What a fleet run holds: the hosts as they were asked, the questions, and every answer with its state.

A question is one command line of ORTune; a host answers it with the JSON document that this command prints.
An answer is identified by run, question, host and attempt, so that nothing is measured twice unnoticed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import msgspec

from core.wire.errors import ErrorRecord
from core.wire.plain_data import plain
from core.wire.runtime import RuntimeRecord

Command = Literal["search", "compare", "sweep", "scorecard", "verify", "load"]
COMMANDS: tuple[Command, ...] = ("search", "compare", "sweep", "scorecard", "verify", "load")
# LOST: its host did not come back in time; `fleet resume` still collects an answer that is kept there
AnswerState = Literal["WAITING", "RUNNING", "COMPLETE", "FAIL", "CANCELLED", "LOST"]
RunState = Literal["RUNNING", "COMPLETE", "FAIL", "CANCELLED", "INCOMPLETE"]  # INCOMPLETE: answers are lost
Phase = Literal["ask", "portability"]
HOST_OWNER = "fleet host "  # begin of the owner of rows that another machine measured
ENDED: frozenset[str] = frozenset({"COMPLETE", "FAIL", "CANCELLED", "LOST"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRecord:
    """One host and its facts at the time of the run."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    price_per_hour: float | None = None  # in the user's currency; None: not given
    fingerprint: str = ""  # of the machine and its libraries
    environment: dict[str, Any] = field(default_factory=dict)  # `wire.Environment`
    ortune: str = ""  # version
    code: str = ""  # hash of ORTune's code
    runtimes: list[RuntimeRecord] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)  # jobs in the machine's queue, the running one first
    background_load: float | None = None  # share of all CPUs that other processes use; None: unknown
    refused: str = ""  # why it may not be asked, with the fix; empty: it may

    @property
    def kind(self) -> str:
        """Hosts of equal kind have the same processor, kernel and libraries."""
        return self.fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """The model, or for `verify` the bundle or YAML file, of a question."""

    name: str
    sha256: str  # of its content, external data included
    path: str = ""  # on the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One command line for every selected host."""

    number: int  # in its run, from 1
    command: Command
    model: AskedModel
    arguments: list[str] = field(default_factory=list)  # the command line after the model, without `--json`
    phase: Phase = "ask"
    hosts: list[str] = field(default_factory=list)  # names; empty: all hosts of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerProgress:
    """Newest progress of a running question."""

    stage: str = ""
    done: int = 0
    total: int = 0
    text: str = ""  # one line for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question on one host."""

    key: str  # see `answer_key`
    question: int
    host: str
    attempt: int = 1  # above 1: measured again, because an earlier attempt was lost, failed or was cancelled
    state: AnswerState = "WAITING"
    exit_code: int | None = None
    document: dict[str, Any] | None = None  # what the command prints with `--json`
    error: ErrorRecord | None = None
    rows: dict[str, list[str]] = field(default_factory=dict)  # "trials", "comparisons", "studies" -> ids
    started_at: float | None = None  # seconds since the epoch, by the clock of the host
    finished_at: float | None = None
    progress: AnswerProgress | None = None
    unreachable_since: float | None = None  # by the clock of the client; None: the host replies


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """One run: questions to hosts, and the newest attempt of every answer."""

    id: str
    name: str
    created_at: float  # seconds since the epoch
    owner: str
    state: RunState = "RUNNING"
    hosts: list[HostRecord] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    phase: Phase = "ask"
    finished_at: float | None = None
    scheduler: str = ""  # its address; empty: within the client, with its machine as the only host
    certs: str = ""  # folder of the client's certificate; empty: none
    portability: bool = False  # after the searches, compare all their winners on every host

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON data."""
        found: dict[str, Any] = plain(self)
        for host, record in zip(found["hosts"], self.hosts, strict=True):
            host["kind"] = record.kind
        return found

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read what `to_dict` returned; unknown keys are ignored.

        Raises:
            ValueError: it is no run.
        """
        return msgspec.convert(data, cls)

    def answers_of(self, question: int) -> dict[str, Answer]:
        """Return the answers of one question by host, in the order of the hosts."""
        found = {one.host: one for one in self.answers if one.question == question}
        return {one.name: found[one.name] for one in self.hosts if one.name in found}

    def with_answer(self, answer: Answer) -> Self:
        """Return the run with one answer replaced, or added where there is none."""
        same = (answer.question, answer.host)
        others = [one for one in self.answers if (one.question, one.host) != same]
        answers = sorted([*others, answer], key=lambda one: (one.question, one.host))
        return replace(self, answers=answers)


def answer_key(run: str, question: int, host: str, attempt: int) -> str:
    """Return the key under which a host keeps an answer; a valid file name that no other answer has."""
    name = re.sub(r"[^A-Za-z0-9._-]", lambda one: f"%{ord(one[0]):x}", host)
    return f"{run}-q{question}-a{attempt}-{name}"
