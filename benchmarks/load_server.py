"""A reference server: one session behind HTTP, first come first served, that records every request itself.

`python -m benchmarks.load_server PLAN.json` starts it; PLAN holds a `ContestantPlan`, or `null` for a model
that takes no time. It prints its port as JSON and ends when its standard input ends. Load generators see a
KServe v2 model named `reference` with one small input, an OpenAI endpoint for embeddings and one for chat,
and `POST /infer`. What they send is ignored: every request runs the inputs of the plan once.

`GET /reference/record` returns the record: for each request, in order of arrival, when its first byte was
read, when its inference started and ended, and when the answer was given to the system. Seconds of
CLOCK_MONOTONIC. `POST /reference/reset?stall_s=0.25&every_s=10` begins a new record, and from then on the
session does nothing for 0.25 s every 10 s. Both are without effect on requests under way.
"""

from __future__ import annotations

import asyncio
import gc
import json
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parent.parent
NAME = "reference"
WARM_UP_S = 1.0


# --- the session ------------------------------------------------------------------------------------------


@dataclass
class Service:
    """Calls one inference at a time and records when; it can be told to stall at fixed times."""

    call: Callable[[], object]
    stall_s: float = 0.0  # length of a stall; 0: none
    every_s: float = 10.0  # from the beginning of a stall to that of the next
    started: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    next_stall: float = 0.0

    def reset(self, *, stall_s: float = 0.0, every_s: float = 10.0) -> None:
        """Begin a new record; the first stall comes after half of `every_s`."""
        self.stall_s, self.every_s = stall_s, every_s
        self.started, self.ended = [], []
        self.next_stall = time.monotonic() + every_s / 2

    def __call__(self) -> object:
        """Run one inference, after a stall that covers this time."""
        started = time.monotonic()
        if self.stall_s:
            self._stall(started)
        found = self.call()
        self.ended.append(time.monotonic())
        self.started.append(started)
        return found

    def _stall(self, now: float) -> None:
        while now >= self.next_stall:
            left_s = self.next_stall + self.stall_s - now
            self.next_stall += self.every_s
            if left_s > 0:
                time.sleep(left_s)
                return


def session(plan: Any) -> Service:
    """Return the service of a plan, warm; None: of a model that takes no time."""
    if plan is None:
        return Service(lambda: None)
    from core.worker.measure.inference import contender

    call = contender(plan).call
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        call()
    return Service(call)


# --- HTTP -------------------------------------------------------------------------------------------------

TENSOR = {"name": "IN", "datatype": "FP32", "shape": [1]}
RESULT = {"name": "OUT", "datatype": "FP32", "shape": [1]}
READS: Mapping[str, Any] = {
    "/v2": {"name": NAME, "version": "2", "extensions": []},
    "/v2/health/live": {},
    "/v2/health/ready": {},
    f"/v2/models/{NAME}/ready": {},
    f"/v2/models/{NAME}": {
        **{"name": NAME, "versions": ["1"], "platform": "onnxruntime_onnx"},
        **{"inputs": [TENSOR], "outputs": [RESULT]},
    },
    f"/v2/models/{NAME}/config": {
        **{"name": NAME, "platform": "onnxruntime_onnx", "backend": "onnxruntime", "max_batch_size": 0},
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
    },
    f"/v2/models/{NAME}/stats": {"model_stats": []},
    "/v1/models": {"object": "list", "data": [{"id": NAME, "object": "model"}]},
}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
ANSWERS: Mapping[str, Any] = {
    "/infer": {},
    f"/v2/models/{NAME}/infer": {
        **{"model_name": NAME, "model_version": "1", "id": "ID"},
        "outputs": [{**RESULT, "data": [0.0]}],
    },
    "/v1/embeddings": {
        **{"object": "list", "model": NAME, "usage": USAGE},
        "data": [{"object": "embedding", "index": 0, "embedding": [0.0]}],
    },
    "/v1/chat/completions": {
        **{"id": "1", "object": "chat.completion", "created": 0, "model": NAME, "usage": USAGE},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
    },
}


def message(body: bytes, status: str = "200 OK") -> bytes:
    """Return a whole answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


READY = {path: json.dumps(body).encode() for path, body in ANSWERS.items()}
ID = re.compile(rb'"id":\s*"([^"]*)"')


def answer_to(path: str, body: bytes) -> bytes:
    """Return the answer to a request, with its id."""
    found = ID.search(body)
    return message(READY[path].replace(b'"ID"', b'"%s"' % found[1]) if found else READY[path])


class Requests:
    """The queue before the session, and the record of what came through it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.loop = asyncio.get_running_loop()
        self.waiting: queue.SimpleQueue[tuple[int, Connection, bytes]] = queue.SimpleQueue()
        self.arrived: list[float] = []
        self.answered: list[float | None] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def add(self, connection: Connection, answer: bytes, arrived: float) -> None:
        """Take one request."""
        self.arrived.append(arrived)
        self.answered.append(None)
        self.waiting.put((len(self.arrived) - 1, connection, answer))

    def reset(self, **stall: float) -> None:
        """Begin a new record."""
        self.arrived, self.answered = [], []
        self.service.reset(**stall)

    def record(self) -> dict[str, Any]:
        """Return the record of all requests."""
        return {
            "arrived": self.arrived,
            "started": self.service.started,
            "ended": self.service.ended,
            "answered": self.answered,
        }

    def _serve(self) -> None:
        while True:
            number, connection, answer = self.waiting.get()
            self.service()
            self.loop.call_soon_threadsafe(self._answer, number, connection, answer)

    def _answer(self, number: int, connection: Connection, answer: bytes) -> None:
        connection.write(answer)
        if number < len(self.answered):
            self.answered[number] = time.monotonic()


class Connection(asyncio.Protocol):
    """One client's connection, which stays open; one request at a time."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.transport: Any = None
        self.buffer = b""
        self.arrived = 0.0  # of the first byte of the request in the buffer
        self.told_to_continue = False

    def connection_made(self, transport: Any) -> None:
        """Keep the way back."""
        self.transport = transport

    def write(self, answer: bytes) -> None:
        """Send an answer, unless the client has left."""
        if not self.transport.is_closing():
            self.transport.write(answer)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and every request that is complete."""
        if not self.buffer:
            self.arrived = time.monotonic()
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].decode("latin-1").split("\r\n")
            fields = {
                name.lower(): value.strip() for name, _, value in (one.partition(":") for one in head[1:])
            }
            whole = end + 4 + int(fields.get("content-length", "0"))
            if len(self.buffer) < whole:
                if "100-continue" in fields.get("expect", "") and not self.told_to_continue:
                    self.told_to_continue = True
                    self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                return
            body, self.buffer, self.told_to_continue = (
                self.buffer[end + 4 : whole],
                self.buffer[whole:],
                False,
            )
            self._handle(head[0].split(" ")[1], body)

    def _handle(self, target: str, body: bytes) -> None:
        path = urlsplit(target).path.replace("/versions/1", "").rstrip("/")
        if path in READY:
            self.requests.add(self, answer_to(path, body), self.arrived)
        elif path in READS:
            self.write(message(json.dumps(READS[path]).encode()))
        elif path == "/reference/record":
            self.write(message(json.dumps(self.requests.record()).encode()))
        elif path == "/reference/reset":
            asked = parse_qs(urlsplit(target).query)
            self.requests.reset(**{name: float(values[0]) for name, values in asked.items()})
            self.write(message(b"{}"))
        else:
            self.write(message(b'{"error": "unknown"}', "404 Not Found"))


async def serve(service: Service) -> None:
    """Serve until standard input ends."""
    requests = Requests(service)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(requests), "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    gc.collect()
    gc.freeze()
    gc.disable()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


# --- from another process ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A running reference server."""

    port: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def reset(self, *, stall_s: float = 0.0, every_s: float = 10.0) -> None:
        """Begin a new record, and stall from now on."""
        self._post(f"/reference/reset?stall_s={stall_s}&every_s={every_s}")

    def infer(self) -> None:
        """Send one request, and wait for its answer."""
        self._post("/infer")

    def record(self) -> dict[str, list[float]]:
        """Return the record, by `arrived`, `started`, `ended` and `answered`; answered requests only."""
        with urllib.request.urlopen(f"http://{self.address}/reference/record") as answer:
            found = json.load(answer)
        number = sum(one is not None for one in found["answered"])
        return {name: values[:number] for name, values in found.items()}

    def _post(self, path: str) -> None:
        with urllib.request.urlopen(f"http://{self.address}{path}", data=b"{}") as answer:
            answer.read()


@contextmanager
def running(plan: Any) -> Iterator[Server]:
    """Start a reference server of a plan in a process of its own; None: of a model that takes no time."""
    command = [sys.executable, "-m", "benchmarks.load_server", json.dumps(plan)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit("The reference server did not start.")
        yield Server(json.loads(line)["port"])
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    asyncio.run(serve(session(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
