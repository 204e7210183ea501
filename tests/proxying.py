"""A reverse proxy that ends TLS and forwards one path only, as an operator puts it in front of a server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.waiting import WAIT_S

ELSEWHERE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nX-Proxy: 1\r\nConnection: close\r\n\r\n"


def certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proxy of the tests")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    file = folder / "proxy.pem"
    file.write_bytes(private + made.public_bytes(encoding))
    return file


@contextlib.contextmanager
def proxied(folder: Path, ports: Mapping[str, int]) -> Iterator[str]:
    """Forward HTTPS to ports of this machine; yield the address of the proxy, without a path.

    Args:
        folder: for its certificate.
        ports: by the path that each of them serves; all other paths are unknown.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    started: Future[tuple[int, Callable[[], object]]] = Future()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _forward(reader, writer, ports)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        port = server.sockets[0].getsockname()[1]
        started.set_result((port, lambda: loop.call_soon_threadsafe(ended.set)))
        await ended.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for one in connections:
            one.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0.1)  # until they are closed

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    port, end = started.result(WAIT_S)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        end()
        thread.join(10)


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ports: Mapping[str, int]
) -> None:
    """Answer one request; its connection then closes, so that each request is looked at."""
    first, *headers = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n").split(b"\r\n")
    path = first.split(b" ")[1].decode()
    port = next((port for base, port in ports.items() if path.startswith(f"{base}/")), None)
    if port is None:
        writer.write(ELSEWHERE)
        await writer.drain()
        return
    if not any(one.lower().startswith(b"upgrade:") for one in headers):
        headers = [one for one in headers if not one.lower().startswith(b"connection:")]
        headers.append(b"Connection: close")
    headers += [b"X-Forwarded-Proto: https", b"X-Forwarded-For: 203.0.113.5"]
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    inner_writer.write(b"\r\n".join([first, *headers, b"", b""]))
    ways = [
        asyncio.ensure_future(_copy(reader, inner_writer)),
        asyncio.ensure_future(_copy(inner_reader, writer)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in ways:
            one.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
