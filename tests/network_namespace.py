"""A network of the tests' own, which they take away: for servers that run while it goes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import selectors
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_NAMED = Path("/run/netns")


class Network:
    """A network namespace with a default route to nowhere: names and addresses are waited for in vain."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prefix = ("ip", "netns", "exec", name)  # of commands that run in it

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", "-n", self.name, *arguments], check=True, capture_output=True)

    def cut(self) -> None:
        """Take away every interface but loopback: from now on each address is unreachable at once."""
        self.ip("link", "del", "outside")

    def connect(self, port: int) -> socket.socket:
        """Connect to a port of its loopback; the calling thread belongs to it from now on."""
        file = os.open(_NAMED / self.name, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(file, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(file)
        return socket.create_connection(("127.0.0.1", port))


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Make a network; skips the test where that takes rights one has not."""
    one = Network(f"ortune-{secrets.token_hex(4)}")
    made = (
        shutil.which("ip")
        and not subprocess.run(["ip", "netns", "add", one.name], capture_output=True, check=False).returncode
    )
    if not made:
        pytest.skip("network namespaces cannot be made here")
    try:
        one.ip("link", "set", "lo", "up")
        one.ip("link", "add", "outside", "type", "veth", "peer", "name", "nowhere")
        one.ip("address", "add", "192.0.2.2/24", "dev", "outside")
        one.ip("link", "set", "outside", "up")
        one.ip("link", "set", "nowhere", "up")
        one.ip("route", "add", "default", "via", "192.0.2.1")
        yield one
    finally:
        subprocess.run(["ip", "netns", "del", one.name], check=True, capture_output=True)


@contextlib.contextmanager
def forwarded(to: Network, port: int) -> Iterator[None]:
    """Forward connections to a port of this machine to the same port of the loopback of a network."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        ends = threading.Event()

        def listen() -> None:
            while not ends.is_set():
                try:
                    accepted = listening.accept()[0]
                except OSError:
                    return
                threading.Thread(target=_forward, args=(accepted, to, port, ends), daemon=True).start()

        threading.Thread(target=listen, daemon=True).start()
        try:
            yield
        finally:
            ends.set()
            listening.shutdown(socket.SHUT_RDWR)


def _forward(accepted: socket.socket, to: Network, port: int, ends: threading.Event) -> None:
    """Copy bytes both ways until one side closes."""
    with (
        accepted,
        contextlib.suppress(OSError),
        to.connect(port) as there,
        selectors.DefaultSelector() as both,
    ):
        both.register(accepted, selectors.EVENT_READ, there)
        both.register(there, selectors.EVENT_READ, accepted)
        while not ends.is_set():
            for key, _ in both.select(0.5):
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)
