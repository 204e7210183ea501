"""`python -m dashboard`: serve the dashboard, by default to this machine only."""

from __future__ import annotations

import atexit
import errno
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Collection
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from core.process import interrupt

if __name__ == "__main__":
    interrupt.exit_on_signals()  # while the libraries load

import typer

from core.wire import sandbox, variables
from core.wire.errors import TunerError
from core.wire.files import expand_home
from core.wire.files import home as data_home
from dashboard.server.gate import (
    MIN_TOKEN,
    TOKEN_VARIABLE,
    Gate,
    block_address_lookup,
    host_name,
    is_loopback,
    own_hosts,
)
from dashboard.server.login_sessions import DEFAULT_HOURS, MOST_HOURS

if TYPE_CHECKING:
    from dashboard.server.people import Access

EXIT_USAGE = 2
_PROXIES = "FORWARDED_ALLOW_IPS"  # of uvicorn: whose `X-Forwarded-For` says where a request comes from
_BASE = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)*")


def _turn_sandbox_off(asked: bool) -> None:
    if asked:
        os.environ[variables.SANDBOX] = sandbox.OFF


def main(  # noqa: PLR0913 - one parameter per option
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8501,
    address: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 opens it to the network.")
    ] = "127.0.0.1",
    home: Annotated[Path | None, typer.Option(help="Folder of results and uploads (ORTUNE_HOME).")] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of models to offer (ORTUNE_MODELS).")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name that browsers may call this server by; may be repeated."),
    ] = None,
    base_path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Path of this server on its host behind a proxy, such as /ortune."),
    ] = None,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Show recorded comparisons; nothing is measured or kept."),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Open it to the network without any login.")
    ] = False,
    session_hours: Annotated[
        int, typer.Option(min=1, max=MOST_HOURS, help="Hours after which a visitor must log in again.")
    ] = DEFAULT_HOURS,
    no_sandbox: Annotated[
        bool,
        typer.Option(
            sandbox.FLAG,
            callback=_turn_sandbox_off,
            help="Run workers without a sandbox: a model may then read and write what the server may.",
        ),
    ] = False,
) -> None:
    """Open ORTune in the browser.

    An --address other than this machine needs a login: a shared token in the variable ORTUNE_TOKEN, tokens in
    the file that ORTUNE_PEOPLE names, or an OpenID provider in `.streamlit/secrets.toml`. --insecure admits
    everybody who can reach the address.
    """
    _name_paths(home, models)
    if reason := _cannot_listen(address, port):
        refuse(reason)
    for name in host or []:
        if host_name(name) != name.lower().rstrip("."):
            refuse(f"`--host {name[:80]}` is no host name. Give it without scheme, port and path.")
    os.chdir(Path(__file__).resolve().parents[1])  # Streamlit looks for its configuration and secrets here
    base = _base(base_path)
    if demo:
        _open_demo(home)
    try:
        access = _access(session_hours)
    except TunerError as error:
        refuse(f"{error.message} {error.hint}")
    if access is None and not insecure and not is_loopback(address):
        refuse(
            f"`--address {address}` opens ORTune to the network without a login. Set {TOKEN_VARIABLE} to a "
            "token that visitors share, set up `[auth]` in .streamlit/secrets.toml, or say `--insecure`."
        )
    if base and access is not None and access.providers:
        _check_redirect(base)
    place = f"{_shown(address)}:{port}{base}"
    print(f"ORTune: http://{place}", flush=True)  # noqa: T201 - the one line a user waits for
    serve(address, port, hosts=own_hosts(address, host or ()), access=access, base=base)


def serve(
    address: str, port: int, *, hosts: Collection[str], access: Access | None = None, base: str = ""
) -> None:
    """Run the server until it is stopped; a running comparison keeps its completed rounds.

    Args:
        address: to listen on.
        port: to listen on.
        hosts: names that browsers may call it by.
        access: knows who a visitor is; None: no login.
        base: path of the server on its host, without a slash at its end.
    """
    os.environ.setdefault(_PROXIES, "")  # uvicorn believes each process of this machine otherwise
    os.umask(0o077)  # all that it writes is its user's alone; a browser saves what people export
    import streamlit as st  # after the environment is set: Streamlit reads its configuration on import
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route
    from streamlit import config

    from core.api.session import remove_remains
    from core.store import audit
    from dashboard import messages, state
    from dashboard.pages import PAGES
    from dashboard.server import callbacks, live, people, thread_starts, upload
    from dashboard.server.shutdown import SignalHandling

    block_address_lookup()
    people.use(access)
    allowed = (variables.ALLOW_EXPERT, variables.ALLOW_LIBRARIES, variables.ALLOW_RUNTIMES)
    switches = ", ".join(name for name in allowed if os.environ.get(name))
    login = "none" if access is None else "required"
    audit.record("change", "server started", address=f"{address}:{port}", login=login, switches=switches)
    upload.keep_clean()
    threading.Thread(target=remove_remains, args=(data_home(),), name="ortune-remains", daemon=True).start()
    callbacks.keep_whole()
    thread_starts.watch()

    moved = {f"{base}/tune": f"{base}/"}  # Streamlit serves its first page at "/" alone
    moved |= {f"{base}/{one.old_name}": f"{base}/{one.name}" for one in PAGES.values() if one.old_name}

    async def move(request: Request) -> Response:
        """Redirect an old address to its new one."""
        return RedirectResponse(f"{moved[request.url.path]}?{request.url.query}")

    def close() -> None:
        live.STREAMS.close()
        state.close()

    ending = SignalHandling(close)
    app = st.App(
        Path(__file__).with_name("app.py"),
        routes=[*upload.routes(base), *live.routes(base), *(Route(one, move) for one in moved)],
        middleware=[Middleware(Gate, hosts=hosts, access=access, base=base)],
        lifespan=ending.lifespan,
        on_script_error=messages.report_unexpected,
    )
    options = {"server.port": port, "server.address": address, "server.baseUrlPath": base}
    for name, value in options.items():
        config.set_option(name, value)  # else it takes them for a change and asks for a restart
    app.run(config=options)
    ending.finish()


def _open_demo(home: Path | None) -> None:
    """Serve the recorded results from a temporary home that is removed at exit."""
    from dashboard import demo

    if home is not None:
        refuse("`--demo` uses a temporary home. Leave `--home` out.")
    try:
        opened = demo.unpack()
    except TunerError as error:
        refuse(f"{error.message} {error.hint}")
    atexit.register(demo.remove, opened)
    os.environ[variables.HOME] = str(opened)


def _name_paths(home: Path | None, models: Path | None) -> None:
    """Set the variables of paths that options name, and make that of the people file absolute."""
    for variable, folder in ((variables.HOME, home), (variables.MODELS, models)):
        if folder is not None:
            os.environ[variable] = str(folder.expanduser().resolve())
    if models is not None and not models.expanduser().is_dir():
        refuse(f"`--models {models}` is not a folder. Name a folder of .onnx files.")
    if file := os.environ.get(variables.PEOPLE, ""):
        os.environ[variables.PEOPLE] = str(expand_home(file).absolute())


def _base(option: str | None) -> str:
    """Return the path of the server on its host, without a slash at its end; Streamlit may set it, too."""
    from streamlit import config

    text = str(config.get_option("server.baseUrlPath")) if option is None else option
    base = f"/{text.strip('/')}".rstrip("/")
    if not _BASE.fullmatch(base):
        refuse(
            f"The base path `{text[:80]}` is no plain path. Give one like `/ortune`: letters, digits, `_.~-`."
        )
    return base


def _check_redirect(base: str) -> None:
    """Refuse an OpenID provider that would send people back to another path."""
    from dashboard.server import provider

    callback = f"{base}{provider.CALLBACK}"
    if not provider.redirect_address().endswith(callback):
        refuse(
            f"`redirect_uri` of `[auth]` in .streamlit/secrets.toml does not end in `{callback}`. "
            "Add the base path there, and at the provider."
        )


def _access(session_hours: int) -> Access | None:
    """Return who has access, as the operator has set it; None: there is no login.

    Raises:
        TunerError: the people file cannot be used.
    """
    from dashboard.server import people_file, provider
    from dashboard.server.login_sessions import LoginSessions
    from dashboard.server.people import Access, PeopleFile

    token = os.environ.pop(TOKEN_VARIABLE, "").strip()  # child processes do not need it
    if 0 < len(token) < MIN_TOKEN:
        refuse(f"{TOKEN_VARIABLE} has {len(token)} characters, but needs {MIN_TOKEN}. Choose a longer one.")
    users, file = os.environ.get(variables.USERS, ""), os.environ.get(variables.PEOPLE, "")
    providers = provider.providers()
    if providers and (find_spec("authlib") is None or find_spec("httpx") is None):
        refuse("`[auth]` needs the package Authlib. Install it: pip install 'streamlit[auth]'.")
    if file and users.strip():
        refuse(f"{variables.USERS} and {variables.PEOPLE} are both set. Move the addresses into the file.")
    if not (file or token or providers):
        return None
    rules: Callable[[], people_file.Rules]
    rules = PeopleFile(Path(file), token) if file else partial(people_file.without_file, users, token)
    if not (providers or rules().tokens):
        refuse(
            f"The people file `{file}` has no token, and there is no OpenID provider: nobody can log in. Add "
            "a token, or set up `[auth]` in .streamlit/secrets.toml."
        )
    return Access(rules, LoginSessions(data_home(), hours=session_hours), providers)


def _cannot_listen(address: str, port: int) -> str:
    """Return why the server cannot listen there; empty: it can."""
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


def refuse(message: str) -> NoReturn:
    """End the command with a message about a wrong option."""
    print(f"ortune: {message}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(EXIT_USAGE)


def run(command: Callable[..., None]) -> None:
    """Run a function as the command of this process."""
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)
    app.command()(command)
    app()


if __name__ == "__main__":
    run(main)
