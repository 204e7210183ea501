"""A download of trained weights in the sandbox: it works, lands in its cache, and opens nothing else."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from core import wire
from core.process.confinement import confined
from core.process.job_worker import run_job
from core.wire import sandbox as rules_of
from core.wire.errors import WorkerError
from core.wire.variables import SANDBOX
from core.worker import sandbox
from tests.builders import export_plan

needs_sandbox = pytest.mark.skipif(
    bool(sandbox.offer()["lacks"]), reason="needs Linux with Landlock and seccomp"
)
NAME = "squeezenet1_1"
# The worker that exports, with another address of the weights. It makes its attempts in the same process.
WORKER = """
import json, os, signal, socket, sys
from pathlib import Path
from core.wire.errors import WorkerError
from core.worker import __main__ as worker
address, attempts, goes_on = json.loads(sys.argv[1])
done = worker.JOBS["export"]
def export(payload, progress):
    found = {}
    for name, attempt in attempts.items():
        try:
            exec(attempt)
            found[name] = "done"
        except BaseException as error:
            found[name] = type(error).__name__
    if not goes_on:
        raise WorkerError(json.dumps(found))
    import torchvision
    torchvision.models.get_model_weights("squeezenet1_1").DEFAULT.value.url = address
    reply = done(payload, progress)
    reply["notes"].append(json.dumps(found))
    return reply
worker.JOBS["export"] = export
worker.main()
"""


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    """The address of a file of weights, and the requests for it."""
    torch.manual_seed(1)
    stream = io.BytesIO()
    torch.save(torchvision.models.get_model(NAME, weights=None).state_dict(), stream)
    content, requests = stream.getvalue(), list[str]()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            requests.append(f"{self.command} {self.path}")
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"{NAME}-{hashlib.sha256(content).hexdigest()[:8]}.pth"
        yield f"http://127.0.0.1:{server.server_port}/{name}", requests
        server.shutdown()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a secret, and with the cache of PyTorch in its usual place."""
    (made := tmp_path / "home").mkdir()
    (made / "secret").write_text("of the user")
    monkeypatch.setenv("HOME", str(made))
    for name in ("TORCH_HOME", "XDG_CACHE_HOME", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


def attempts(home: Path, listener: Path) -> dict[str, str]:
    return {
        "read": f"Path('{home}/secret').read_text()",
        "list": f"os.listdir('{home}')",
        "write": f"Path('{home}/secret').write_text('x')",
        "beside the cache": f"Path('{home}/.cache/other').write_text('x')",
        "link": f"os.symlink('{home}/secret', '{home}/.cache/torch/link')",
        "kill": "os.kill(os.getppid(), signal.SIGCONT)",
        "fork": "os.fork() or os._exit(0)",
        "socket of a program": f"socket.socket(socket.AF_UNIX).connect('{listener}')",
        "datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    }


def command(address: str, tries: dict[str, str], *, goes_on: bool) -> list[str]:
    return [sys.executable, "-P", "-c", WORKER, json.dumps([address, tries, goes_on])]


@needs_sandbox
def test_trained_weights_are_downloaded_into_their_cache_and_nothing_else_is_open(
    served: tuple[str, list[str]], home: Path, tmp_path: Path
) -> None:
    address, requests = served
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        tries = attempts(home, tmp_path / "s")
        plan = export_plan(tmp_path / "out" / "m.onnx", name=NAME, pretrained=True)
        reply = run_job(wire.EXPORT, plan, command=command(address, tries, goes_on=True))
    assert reply["weights"] == "pretrained", reply["notes"]
    name = address.rpartition("/")[2]
    assert requests == [f"HEAD /{name}", f"GET /{name}"]
    found = json.loads(reply["notes"][-1])
    assert found == dict.fromkeys(tries, "PermissionError")
    files = {str(one.relative_to(home)) for one in home.rglob("*") if one.is_file()}
    assert files == {"secret", f".cache/torch/hub/checkpoints/{name}"}
    assert (home / "secret").read_text() == "of the user"
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"m.onnx"}


@needs_sandbox
def test_without_the_sandbox_the_attempts_succeed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test can fail."""
    monkeypatch.setenv(SANDBOX, "off")
    (home / ".cache" / "torch").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        tries = attempts(home, tmp_path / "s")
        plan = export_plan(tmp_path / "m.onnx", name=NAME, pretrained=True)
        with pytest.raises(WorkerError) as caught:
            run_job(wire.EXPORT, plan, command=command("", tries, goes_on=False))
    assert json.loads(caught.value.message) == dict.fromkeys(tries, "done")


def test_a_download_reads_the_certificates_that_the_operator_names(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv(SANDBOX, "on")
    plan = export_plan(tmp_path / "m.onnx", name=NAME, pretrained=True)
    with confined(wire.EXPORT, plan, "", lambda _: []) as asked:
        assert str(tmp_path / "ca.pem") in asked.payload[rules_of.KEY]["read"]
    with confined(wire.EXPORT, {**plan, "pretrained": False}, "", lambda _: []) as asked:
        assert asked.payload[rules_of.KEY]["read"] == []
