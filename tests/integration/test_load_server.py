"""The reference server and the generators around it, which benchmarks trust: what they record is checked."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import load_peers, load_server
from benchmarks.load_server import ROOT, Server, Service, running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(None) as found:
        yield found


def ask(server: Server, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.address}{path}", data=data) as answer:
        return json.load(answer)


def test_a_client_of_kserve_finds_a_model_and_its_answer(server: Server) -> None:
    assert ask(server, "/v2/health/ready") == {}
    (tensor,) = ask(server, "/v2/models/reference/versions/1")["inputs"]
    server.reset()
    asked = {"id": "7", "inputs": [{**tensor, "data": [1.0]}]}
    found = ask(server, "/v2/models/reference/infer", asked)
    assert (found["id"], found["outputs"][0]["data"]) == ("7", [0.0])
    assert ask(server, "/v1/embeddings", {"input": "a"})["data"][0]["embedding"] == [0.0]
    assert len(server.record()["answered"]) == 2


def test_an_unknown_path_is_no_request(server: Server) -> None:
    server.reset()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(server, "/v2/models/other/infer", {})
    assert server.record()["arrived"] == []


def test_requests_at_the_same_time_are_served_in_order_of_arrival(server: Server) -> None:
    server.reset(stall_s=0.1, every_s=0.2)
    callers = [threading.Thread(target=lambda: [server.infer() for _ in range(30)]) for _ in range(4)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    record = server.record()
    assert {len(values) for values in record.values()} == {120}
    steps = zip(*(record[name] for name in ("arrived", "started", "ended", "answered")), strict=True)
    assert all(list(step) == sorted(step) for step in steps)
    assert all(end <= start for end, start in zip(record["ended"], record["started"][1:], strict=False))


class Clock:
    """Time that passes in sleeps and calls only."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_stall_holds_the_session_at_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(load_server, "time", clock)
    service = Service(lambda: clock.sleep(0.3))
    service.reset(stall_s=2, every_s=10)  # from 105 to 107, and from 115 to 117
    for clock.now in (104.0, 105.5, 107.5, 121.0, 125.0):
        service()
    assert service.started == [104.0, 105.5, 107.5, 121.0, 125.0]
    assert service.ended == pytest.approx([104.3, 107.3, 107.8, 121.3, 127.3])


def test_a_new_record_has_no_stall_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(load_server, "time", clock)
    service = Service(lambda: None)
    service.reset(stall_s=2, every_s=10)
    service.reset()
    clock.now = 105.5
    service()
    assert (service.started, service.ended) == ([105.5], [105.5])


def inside(generator: str, **asked: Any) -> Any:
    whole = {"generator": generator, "plan": None, "rate": 400.0, "seconds": 0.8, "seed": 3, "stall": {}}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_inside", json.dumps({**whole, **asked})],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(done.stdout)


def check_reported(summaries: Iterator[Any]) -> None:
    """What a generator reports is the truth; a busy machine may stop the generator once, not five times."""
    for summary in itertools.islice(summaries, 5):
        truth = pytest.approx(summary["truth"]["p99"], rel=0.2)
        assert summary["reported"]["p99"] > 0.05  # requests that were due in the stall have waited
        if summary["reported"]["p99"] == truth:
            return
    raise AssertionError((summary["reported"], summary["truth"]))


@pytest.mark.parametrize("generator", ["ortune", "loadgen"])
def test_a_generator_in_the_process_of_the_session_reports_what_the_session_recorded(generator: str) -> None:
    found: Any = {}

    def summaries() -> Iterator[Any]:
        while True:
            found.update(inside(generator, stall={"stall_s": 0.2, "every_s": 0.6}))
            service_s = [0.0] * len(found["schedule"])
            yield load_peers.summary({**found, "service_s": service_s}, {"rate": 400.0, "stall": {}})

    check_reported(summaries())
    assert 200 < len(found["schedule"]) < 450
    late = load_peers.lateness(found["schedule"], found["started"], found["ended"])
    assert late["p50"] > 0


def test_the_client_counts_from_the_schedule() -> None:
    asked = {
        "rate": 300.0,
        "seconds": 0.8,
        "seed": 1,
        "stall": {"stall_s": 0.2, "every_s": 0.6},
        "plan": None,
    }

    def summaries() -> Iterator[Any]:
        while True:
            summary = load_peers.summary(load_peers.over_http(load_peers.by_client, asked), asked)
            assert summary["n"] > 150
            yield summary

    check_reported(summaries())
