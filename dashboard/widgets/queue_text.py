"""The status of submitted work in words: its place in the machine's queue, or its step. Plain text."""

from __future__ import annotations

from core.api.session import WAITING_IDLE, Status
from dashboard import format


def progress(status: Status, what: str) -> tuple[float, str]:
    """Return share and text of a progress bar, while `what` ("this comparison") waits or runs."""
    if status.state == "WAITING":
        return 0.0, waiting_text(status, what)
    return (min(1.0, status.done / status.total) if status.total else 0.0), step_text(status)


def waiting_text(status: Status, what: str) -> str:
    """Say who uses the machine, how many jobs precede `what` ("this comparison"), or what it waits for."""
    if status.stage == WAITING_IDLE:
        return f"Waiting for an idle machine: {status.text}"
    if not status.holder and status.place <= 0:
        return "Waiting for a turn on this machine"
    who = f"{status.holder} uses the machine" if status.holder else "The machine is in use"
    turn = f"{what} is next" if status.place <= 1 else f"{what} is number {status.place} in the queue"
    return f"{who}; {turn}."


def step_text(status: Status) -> str:
    """Describe the present step: its share done, its time so far and its time left."""
    parts = [status.stage or "starting"]
    if status.total:
        parts.append(f"{status.done:,} of {status.total:,}")
    if status.text:
        parts.append(status.text)
    parts.append(f"{whole(status.elapsed_s)} so far")
    if status.eta_s is not None:
        parts.append(f"about {whole(status.eta_s)} left")
    return " · ".join(parts)


def whole(seconds: float) -> str:
    """Return a duration in whole seconds, "3 s": a finer one would change with every update."""
    return f"{seconds:.0f} s" if seconds < 60 else format.duration(seconds)
