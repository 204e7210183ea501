"""The commands `keys` and `sign`: key pairs, trusted names, and signatures of files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from core.api import signing
from core.cli import COMMANDS
from core.cli.help_groups import Group
from core.cli.output import Json, Wide, check_output_path, print_json, print_lines
from core.cli.sheets import print_sheet
from core.wire.errors import SpecError
from core.wire.units import visible
from core.wire.variables import KEY_PASSPHRASE

app = typer.Typer(
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    help=COMMANDS["keys"].help,
)

OptionalPath = Path | None
Trust = Annotated[
    OptionalPath,
    typer.Option(
        "--trust",
        help="Trust file. Default: $ORTUNE_TRUST, else the one in the data folder.",
        metavar="FILE",
        show_default=False,
    ),
]
SignKey = Annotated[
    str | None,
    typer.Option(
        "--sign",
        help="Sign the file with this key: a name of `keys list`, or the path of a private key.",
        metavar="KEY",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Argument(help="Name of the signer.", metavar="NAME")]


@app.command()
def create(
    name: Name,
    *,
    output: Annotated[
        OptionalPath,
        typer.Option(
            "-o",
            "--output",
            help="File of the private key. Default: in the folder `keys` of the data folder.",
            metavar="KEY.pem",
            show_default=False,
        ),
    ] = None,
    passphrase: Annotated[
        bool,
        typer.Option(
            "--passphrase",
            help=f"Encrypt the private key; the passphrase is in {KEY_PASSPHRASE} or typed.",
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Create a key pair, and print its public key and fingerprint.

    The private key is a file that only its owner can read; ORTune never prints or exports it. Give others the
    public key, and tell them the fingerprint in another way, so that they can compare it.
    """
    if output is not None:
        check_output_path(output)
    secret = _new_passphrase() if passphrase else ""
    made = signing.create_key(name, output, passphrase=secret)
    if json_:
        print_json(signing.own_key_document(made))
        return
    lines = (
        f"Private key  {made.path}",
        f"Public key   {made.public_key}",
        f"Fingerprint  {made.fingerprint}",
    )
    print_lines([visible(one) for one in lines])


def _new_passphrase() -> str:
    given = os.environ.get(KEY_PASSPHRASE) or _asked(confirm=True)
    if not given:
        raise SpecError(
            "`--passphrase` needs a passphrase, and none is given.",
            hint=f"Set {KEY_PASSPHRASE}, or run the command on a terminal.",
        )
    return given


def _asked(*, confirm: bool = False) -> str:
    """Ask for a passphrase on a terminal; empty: there is none."""
    if not sys.stdin.isatty():
        return ""
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True))


def opened_key(ref: str | None) -> signing.SigningKey | None:
    """Return the key of `--sign`; an encrypted one may ask for its passphrase."""
    return None if ref is None else signing.open_key(ref, ask=_asked)


@app.command(name="list")
def list_keys(*, trust: Trust = None, wide: Wide = False, json_: Json = False) -> None:
    """List the keys that sign on this machine, and the trusted ones."""
    result = signing.keys_known(trust)
    if json_:
        print_json(result.to_dict())
    else:
        print_sheet(result.sheet())


@app.command(name="trust")
def trust_key(
    name: Name,
    public_key: Annotated[
        str, typer.Argument(help="Public key, or its `.pub` file.", metavar="ed25519:…|X.pub")
    ],
    *,
    until: Annotated[
        str,
        typer.Option(
            help="Last day on which it is trusted, in UTC.", metavar="YYYY-MM-DD", show_default=False
        ),
    ] = "",
    note: Annotated[
        str, typer.Option(help="Note in the trust file.", metavar="TEXT", show_default=False)
    ] = "",
    trust: Trust = None,
    json_: Json = False,
) -> None:
    """Trust a public key under a name; compare its fingerprint with the signer's first."""
    made = signing.trust_key(name, signing.read_public(public_key), until=until, note=note, path=trust)
    if json_:
        print_json(signing.trusted_key_document(made))
    else:
        end = f" until {made.until}" if made.until else ""
        print_lines([visible(f"`{made.name}` is trusted{end}: {made.fingerprint}.")])


@app.command()
def remove(name: Name, *, trust: Trust = None, json_: Json = False) -> None:
    """Remove a name from the trust file; the files that it signed count as signed by an unknown key."""
    removed = signing.remove_trust(name, path=trust)
    if json_:
        print_json(signing.trusted_key_document(removed))
    else:
        print_lines([visible(f"`{removed.name}` is no longer trusted: {removed.fingerprint}.")])


def sign(
    file: Annotated[
        Path, typer.Argument(help="Bundle or YAML file.", metavar="X.zip|X.yaml", show_default=False)
    ],
    *,
    key: Annotated[
        str,
        typer.Option(help="Name of `keys list`, or the path of a private key.", metavar="KEY"),
    ],
    output: Annotated[
        OptionalPath,
        typer.Option("-o", "--output", help="File to write. Default: the file itself.", show_default=False),
    ] = None,
    json_: Json = False,
) -> None:
    """Sign a YAML file or a bundle; `verify` checks the signature.

    The signature covers every byte of the file, so any change to the file makes it wrong. An earlier
    signature is replaced. The date in it is what this machine's clock shows, and proves nothing.
    """
    if output is not None:
        check_output_path(output)
    opened = signing.open_key(key, ask=_asked)
    result = signing.sign_with(opened, file, output)
    if json_:
        print_json(result.to_dict())
    else:
        print_lines([visible(result.verdict)])
