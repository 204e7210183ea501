"""Every environment variable of ORTune: its name, what it sets, and its default. Data only.

The code takes the names from here, and `docs/reference/environment.md` is generated from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HOME = "ORTUNE_HOME"
MODELS = "ORTUNE_MODELS"
QUEUE = "ORTUNE_QUEUE"
ALLOW_EXPERT = "ORTUNE_ALLOW_EXPERT"
ALLOW_LIBRARIES = "ORTUNE_ALLOW_LIBRARIES"
ALLOW_RUNTIMES = "ORTUNE_ALLOW_RUNTIMES"
WORKER_ENV = "ORTUNE_WORKER_ENV"
TOKEN = "ORTUNE_TOKEN"  # noqa: S105 - the name of a variable
USERS = "ORTUNE_USERS"
PEOPLE = "ORTUNE_PEOPLE"
MAX_UPLOAD_BYTES = "ORTUNE_MAX_UPLOAD_BYTES"
MAX_WAITING_BYTES = "ORTUNE_MAX_WAITING_BYTES"
SANDBOX = "ORTUNE_SANDBOX"
OPEN_FOLDERS = "ORTUNE_OPEN_FOLDERS"
PROGRESS = "ORTUNE_PROGRESS"
FLEET_SCHEDULER = "ORTUNE_FLEET_SCHEDULER"
FLEET_CERTS = "ORTUNE_FLEET_CERTS"
TRUST = "ORTUNE_TRUST"
KEY_PASSPHRASE = "ORTUNE_KEY_PASSPHRASE"  # noqa: S105 - the name of a variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable that ORTune reads."""

    name: str
    read_by: Literal["all", "dashboard", "workers"]
    sets: str  # what it sets
    default: str  # what happens without it, in words


VARIABLES: tuple[Variable, ...] = (
    Variable(
        name=HOME,
        read_by="all",
        sets="The folder in which ORTune keeps results, models, uploads and caches.",
        default="`ortune` in `$XDG_DATA_HOME`, else `~/.local/share/ortune`",
    ),
    Variable(
        name=MODELS,
        read_by="all",
        sets="A folder of `.onnx` files. The dashboard offers these models and may read files in it.",
        default="no folder",
    ),
    Variable(
        name=QUEUE,
        read_by="all",
        sets="The folder of the machine's queue. Every ORTune process of the machine must use the same one, "
        "so that only one measurement runs at a time.",
        default="`ortune-queue` in the folder for temporary files",
    ),
    Variable(
        name=ALLOW_EXPERT,
        read_by="all",
        sets="`1`, `true`, `yes` or `on` allows the setting `expert` in the dashboard and in YAML files. For "
        "one command, use `--expert`.",
        default="not allowed",
    ),
    Variable(
        name=ALLOW_LIBRARIES,
        read_by="all",
        sets="The folder of native libraries (custom operators, execution provider plug-ins) that "
        "configurations may load.",
        default="no library can be loaded",
    ),
    Variable(
        name=ALLOW_RUNTIMES,
        read_by="dashboard",
        sets="`1`, `true`, `yes` or `on` lets visitors add and remove runtimes on the page Machine. This "
        "installs packages, whose code then runs in workers.",
        default="only the command line adds and removes runtimes",
    ),
    Variable(
        name=WORKER_ENV,
        read_by="all",
        sets="Names of further environment variables that worker processes receive, separated by commas.",
        default="the variables listed below only",
    ),
    Variable(
        name=TOKEN,
        read_by="dashboard",
        sets="A token of at least 16 characters that every visitor enters once.",
        default="no token",
    ),
    Variable(
        name=USERS,
        read_by="dashboard",
        sets="Who may log in through an OpenID provider: e-mail addresses or `@domain`, separated by commas.",
        default="everyone whom the provider authenticates",
    ),
    Variable(
        name=PEOPLE,
        read_by="dashboard",
        sets="The people file: who may log in, and in which role. It takes the place of `ORTUNE_USERS`.",
        default="everyone who logs in is an admin",
    ),
    Variable(
        name=MAX_UPLOAD_BYTES,
        read_by="dashboard",
        sets="The largest upload, in bytes.",
        default="8 GiB",
    ),
    Variable(
        name=MAX_WAITING_BYTES,
        read_by="dashboard",
        sets="The total size of uploads that ORTune has not imported yet, in bytes.",
        default=f"four times `{MAX_UPLOAD_BYTES}`",
    ),
    Variable(
        name=SANDBOX,
        read_by="all",
        sets="`off` runs workers without a sandbox: a model and its libraries may then read and write what "
        "you may. Every result says so. For one command, use `--no-sandbox`.",
        default="workers run in a sandbox where the system offers one",
    ),
    Variable(
        name=OPEN_FOLDERS,
        read_by="workers",
        sets="The folders from which workers may read data files. The dashboard sets this variable for its "
        "workers; do not set it yourself.",
        default="no restriction",
    ),
    Variable(
        name=PROGRESS,
        read_by="all",
        sets="`json` makes commands write their progress to stderr as one JSON object per line.",
        default="text",
    ),
    Variable(
        name=FLEET_SCHEDULER,
        read_by="all",
        sets="The address of the fleet's scheduler, as `--scheduler` takes it.",
        default="`fleet` uses this machine as its only host",
    ),
    Variable(
        name=FLEET_CERTS,
        read_by="all",
        sets="The folder with this machine's certificate for a fleet, as `--certs` takes it.",
        default="no certificate, which allows loopback addresses only",
    ),
    Variable(
        name=TRUST,
        read_by="all",
        sets="The trust file: names of signers and their public keys, as `--trust` takes it.",
        default="`trusted-keys.yaml` in the data folder",
    ),
    Variable(
        name=KEY_PASSPHRASE,
        read_by="all",
        sets="The passphrase of the private key that signs. Worker processes do not receive it.",
        default="commands ask for it on a terminal",
    ),
)
