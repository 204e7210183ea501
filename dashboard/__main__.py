"""`python -m dashboard`: serve the dashboard, on this machine only unless told otherwise."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

from core import interrupt

if __name__ == "__main__":
    interrupt.end_at_once()  # while the libraries load

import typer

EXIT_USAGE = 2


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
    address: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 opens it to the network.")
    ] = "127.0.0.1",
    home: Annotated[Path | None, typer.Option(help="Folder of results and uploads (ORTUNE_HOME).")] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of models to offer (ORTUNE_MODELS).")] = None,
) -> None:
    """Open ORTune in the browser."""
    for variable, folder in (("ORTUNE_HOME", home), ("ORTUNE_MODELS", models)):
        if folder is not None:
            os.environ[variable] = str(folder.expanduser().resolve())
    if models is not None and not models.expanduser().is_dir():
        _refuse(f"`--models {models}` is not a folder. Name a folder of .onnx files.")
    if reason := _cannot_listen(address, port):
        _refuse(reason)
    print(f"ORTune: http://{_shown(address)}:{port}", flush=True)  # noqa: T201 - the one line a user waits for
    serve(address, port)


def serve(address: str, port: int) -> None:
    """Run the server until it is stopped; a race that runs then keeps the rounds that it has."""
    import streamlit as st  # after the environment is set: its import reads configuration

    from dashboard import state, upload
    from dashboard.ending import Ending

    upload.keep_clean()
    ending = Ending(state.close)
    os.chdir(Path(__file__).resolve().parents[1])  # Streamlit looks for .streamlit/config.toml here
    app = st.App(
        Path(__file__).with_name("app.py"),
        routes=upload.ROUTES,
        lifespan=ending.lifespan,
        on_script_error=state.report_unexpected,
    )
    app.run(config={"server.port": port, "server.address": address})
    ending.finish()


def _cannot_listen(address: str, port: int) -> str:
    """Return why the server could not listen there, or an empty string."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"Port {port} is in use on {address}. Choose another with `--port`, or stop the other server."
            )
        return (
            f"Cannot listen on {address}:{port}: {error.strerror or error}. Check `--address` and `--port`."
        )
    return ""


def _shown(address: str) -> str:
    return "127.0.0.1" if address in ("0.0.0.0", "::") else address  # noqa: S104 - compared, not bound


def _refuse(message: str) -> None:
    print(f"ortune: {message}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(EXIT_USAGE)


if __name__ == "__main__":
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)
    app.command()(main)
    app()
