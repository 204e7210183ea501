"""Messages between a comparison and its workers: each reply belongs to its request, and every run ends."""

from __future__ import annotations

import gc
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from core import wire
from core.evidence.record import Entry
from core.process import contestant_workers as module
from core.process.contestant_workers import Worker, Workers, _ForkServer, _WorkerChannel
from core.run.launches import costs
from core.run.launches.blocks import Pace
from core.wire.channel import BrokenChannel
from core.wire.errors import Cancelled, ModelError, SpecError, WorkerError
from core.wire.runtime import OWN
from tests import raw_comparisons


def log_file(text: bytes = b"") -> Any:
    """Return an open log of a worker."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the worker closes it
    file.write(text)
    return file


class Far:
    """The other side of a line: it records requests and sends the given answers."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.requests = end.makefile("rb")

    def asked(self) -> dict[str, Any]:
        return json.loads(self.requests.readline())

    def answer(self, number: Any, **reply: Any) -> None:
        self.socket.sendall(json.dumps({"id": number, **reply}).encode() + b"\n")

    def close(self) -> None:
        self.requests.close()
        self.socket.close()


@pytest.fixture
def ends() -> Iterator[tuple[_WorkerChannel, Far]]:
    ours, theirs = socket.socketpair()
    far = Far(theirs)
    yield _WorkerChannel(ours, threading.Event()), far
    ours.close()
    far.close()


class TestLine:
    def test_a_wait_that_ended_leaves_its_reply_to_nobody(self, ends: tuple[_WorkerChannel, Far]) -> None:
        line, far = ends
        line.send("fork", {})
        with pytest.raises(TimeoutError):
            line.receive(0.0)
        line.cancel.set()
        line.send("load", {})
        with pytest.raises(Cancelled):
            line.receive(5.0)
        line.cancel = threading.Event()
        line.send("reap", {"pid": 17})
        for number in (1, 2, 3):
            assert far.asked()["id"] == number
            far.answer(number, ok={"to": number})
        assert line.receive(5.0) == {"to": 3}

    @pytest.mark.parametrize("noise", [b"", b"Segmentation fault\n"])
    def test_the_other_sides_end_and_noise_end_the_wait(
        self, ends: tuple[_WorkerChannel, Far], noise: bytes
    ) -> None:
        line, far = ends
        line.send("load", {})
        far.socket.sendall(noise)
        far.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(BrokenChannel) as caught:
            line.receive(5.0)
        assert caught.value.noise == (noise.rstrip() or None)

    def test_the_fork_server_hears_of_reaping_and_not_of_the_fork_that_was_given_up(self) -> None:
        """A fork whose answer nobody awaited any more, and a worker that must be reaped after it."""
        ours, theirs = socket.socketpair()
        far = Far(theirs)
        server = _ForkServer.__new__(_ForkServer)
        server._line = _WorkerChannel(ours, threading.Event())
        server._line.send("fork", {})

        def serve() -> None:
            far.answer(far.asked()["id"], ok={"pid": 21})
            while (request := far.asked())["do"] != "end":
                far.answer(request["id"], ok={"status": 9})

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert server.exit_status(17) == -9
        finally:
            server._line.send("end", {})
            thread.join(30)
            ours.close()
            far.close()


class Stub:
    """Something that ends, or fails to; it records the request to end."""

    def __init__(self, ended: list[str], name: str, *, fails: bool) -> None:
        self.ended, self.name, self.fails = ended, name, fails

    def end(self) -> None:
        self.ended.append(self.name)
        if self.fails:
            raise OSError(f"{self.name} failed")

    kill = close = end


class TestEnds:
    @pytest.mark.parametrize(
        "failing",
        [["one"], ["two"], ["server"], ["stdin"], ["one", "two", "stdin", "server"], []],
    )
    def test_every_end_runs_whatever_another_raises(self, failing: list[str]) -> None:
        ended: list[str] = []

        def stub(name: str) -> Any:
            return Stub(ended, name, fails=name in failing)

        workers = Workers(threading.Event())
        files = workers._files
        files.callback(lambda: ended.append("files"))
        workers._live = {1: stub("one"), 2: stub("two")}
        process: Any = type("Process", (), {"stdin": stub("stdin")})()
        workers._processes = {3: process}
        workers._fork_server._servers[OWN] = stub("server")
        if failing:
            with pytest.raises(OSError, match="failed"), workers:
                pass
        else:
            with workers:
                pass
        assert sorted(ended) == ["files", "one", "server", "stdin", "two"]
        assert ended.index("server") > max(ended.index(name) for name in ("one", "two")), (
            "the server reaps those that are killed"
        )

    def test_they_run_too_when_the_comparison_failed_and_its_error_is_the_one_that_is_told(self) -> None:
        ended: list[str] = []
        workers = Workers(threading.Event())
        workers._live = {1: Stub(ended, "one", fails=False)}  # type: ignore[dict-item]
        workers._fork_server._servers[OWN] = Stub(ended, "server", fails=False)  # type: ignore[assignment]
        with pytest.raises(KeyError, match="the race"), workers:
            raise KeyError("the race")
        assert ended == ["one", "server"]

    def test_a_worker_that_cannot_be_ended_is_closed_all_the_same(self) -> None:
        ours, theirs = socket.socketpair()
        log = log_file()
        owner: Any = type("Owner", (), {"cancel": threading.Event(), "end": lambda self, worker: 1 / 0})()
        worker = Worker(owner, "one", 17, ours, log)
        with theirs:
            with pytest.raises(ZeroDivisionError):
                worker.kill()
            assert not worker.alive
            assert ours.fileno() == -1
            assert log.closed
            worker.kill()  # once is enough

    def test_the_last_words_are_read_before_the_log_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours, theirs = socket.socketpair()
        owner: Any = type(
            "Owner",
            (),
            {"cancel": threading.Event(), "end": lambda *_: None, "exit_status": lambda *_: 3},
        )()
        worker = Worker(owner, "one", 17, ours, log_file(b"out of luck\n"))
        theirs.close()
        with pytest.raises(WorkerError, match=r"`one`.* 3 .*`block`"):
            worker.ask(wire.BLOCK, {}, timeout_s=5.0)
        assert not worker.alive

    @pytest.mark.parametrize(
        ("reply", "words"),
        [
            (b"Segmentation fault", r"`one` answered `Segmentation fault` at `warm`"),
            (
                b'{"id": 1, "ok": {"latencies_ns": [1], "steady": true, "median_ns": "7"}}',
                r"`one` answered `warm` with a reply of the wrong shape: Expected `int`, got `str` - at "
                r"`\$\.median_ns`",
            ),
            (
                b'{"id": 1, "ok": {"latencies_ns": [1, 2.5], "steady": true, "median_ns": 7}}',
                r"Expected `int`, got `float` - at `\$\.latencies_ns\[1\]`",
            ),
            (b'{"id": 1, "ok": {"steady": true, "median_ns": 7}}', r"missing required field `latencies_ns`"),
        ],
    )
    def test_a_worker_that_answers_nonsense_is_gone(self, reply: bytes, words: str) -> None:
        ours, theirs = socket.socketpair()
        ended: list[Worker] = []
        owner: Any = type(
            "Owner",
            (),
            {"cancel": threading.Event(), "paused_s": 0.0, "end": lambda _, one: ended.append(one)},
        )()
        worker = Worker(owner, "one", 17, ours, log_file())
        with theirs:
            theirs.sendall(reply + b"\n")
            with pytest.raises(WorkerError, match=words):
                worker.ask(wire.WARM, {}, timeout_s=5.0)
        assert ended == [worker]
        assert not worker.alive

    def test_an_error_that_it_reports_leaves_it_alive(self) -> None:
        ours, theirs = socket.socketpair()
        owner: Any = type("Owner", (), {"cancel": threading.Event(), "end": lambda *_: None})()
        worker = Worker(owner, "one", 17, ours, log_file())
        with theirs:
            theirs.sendall(b'{"id": 1, "error": {"type": "ModelError", "message": "No.", "hint": ""}}\n')
            with pytest.raises(ModelError, match=r"No\."):
                worker.ask(wire.WARM, {}, timeout_s=5.0)
            assert worker.alive
        worker.kill()


def test_no_worker_is_left_where_the_channel_cannot_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork fails: our end of the channel is closed, and nobody is taken for alive."""
    closed: list[bool] = []

    class Refuses:
        pid = 1

        def fork(self, channel: socket.socket, stderr: Any) -> int:
            raise WorkerError("No process is left.")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(module, "can_fork", lambda: True)
    with Workers(threading.Event()) as workers:
        refuses: Any = Refuses()
        workers._servers[OWN] = workers._fork_server._servers[OWN] = refuses
        with pytest.raises(WorkerError, match="process"):
            workers.start("one")
        assert workers._live == {}
        assert workers.pids == set()
    assert closed == [True]


@pytest.mark.parametrize("fails", ["footprint", "new_shapes"])
def test_what_of_the_memory_is_known_is_not_called_unknown(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass that finds peak memory also runs other batch sizes: either may fail."""

    class Contestant:
        def ask(self, command: str, arguments: object, *, timeout_s: float) -> dict[str, Any]:
            if command == "new_shapes":  # 300 s are for loading: a size that never comes back is no answer
                assert timeout_s < 10
            if command == fails:
                raise ModelError("No run.", hint="None.")
            return {"run_peak_rss_bytes": 900, "gpu_memory_bytes": None, "notes": []}

        def kill(self) -> None:
            pass

    monkeypatch.setattr(costs, "start_loaded", lambda *_: (Contestant(), raw_comparisons.load_reply()))
    ran = raw_comparisons.ran()
    ran.footprint = ran.load_peak_rss_bytes = None
    ran.shapes = []
    plan: Any = {"session": {"attributes": {}}}
    entry = Entry(label="net", plan=plan, shapes=[raw_comparisons.feeds()])
    pace = Pace(block_ns=1, min_runs=1, max_runs=1, refill=False, expected_s=0.1)
    costs.footprint(cast(Any, None), entry, ran, pace, 300.0)
    assert ran.load is not None
    if fails == "new_shapes":
        assert ran.footprint is not None
        assert [one.endswith("run.") for one in ran.notes] == [True]
    else:
        assert ran.load_peak_rss_bytes == ran.load["load_peak_rss_bytes"]
        assert [one.endswith("run.") for one in ran.notes] == [True]


def test_a_runtime_that_does_not_exist_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTUNE_HOME", str(tmp_path))
    with Workers(threading.Event()) as workers, pytest.raises(SpecError, match="gone"):
        workers.start("one", runtime="gone")
    gc.collect()  # a leak is a warning, which fails the test


@pytest.mark.parametrize("refused", ["TemporaryFile", "socketpair"])
def test_a_system_without_descriptors_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    library = module.tempfile if refused == "TemporaryFile" else module.socket
    with Workers(threading.Event()) as workers:
        monkeypatch.setattr(library, refused, refuse)
        with pytest.raises(WorkerError, match=r"could not be started: Too many open files\.") as caught:
            workers.start("one")
    assert "ulimit" in caught.value.hint
