"""The page of environment variables, files and folders."""

from __future__ import annotations

from core.process.job_worker import INHERITED_VARIABLES, NETWORK_VARIABLES
from core.store import STORE_NAME
from core.wire.variables import HOME, TOKEN, VARIABLES
from docs.generator.markdown import code, codes, page, table

_READERS = {"all": "commands, dashboard", "dashboard": "dashboard", "workers": "workers"}
FOLDERS = (  # in ORTune's home
    (STORE_NAME, "The result store, an SQLite file. `ortune backup` copies it safely."),
    ("models/", "Uploaded and converted models, and variants; one folder per content hash."),
    ("artifacts/", "Traces and other files of a result."),
    ("accuracies/", "Scores and labels of accuracy measurements."),
    ("imported/", "Profiles and summaries imported from other tools."),
    ("uploads/, feeds/, datasets/, pt2/", "Files that were uploaded in the dashboard."),
    ("exports/", "Models that the dashboard converts."),
    ("forms/", "What was typed in the dashboard, one file per session."),
    ("cache/", "FP16 copies, graphs, quantization errors and opened bundles."),
    ("last-error.txt", "The traceback of the last unexpected error of a command."),
)
OTHERS = (  # not ours, but obeyed
    ("XDG_DATA_HOME", f"The parent of the default home; used if `{HOME}` is not set."),
    ("TMPDIR", "The folder for temporary files."),
    (
        "FORWARDED_ALLOW_IPS",
        "Addresses of proxies whose `X-Forwarded-For` the dashboard believes; without it, none.",
    ),
    ("COLUMNS", "The width of tables on the terminal."),
    ("NO_COLOR", "Turns colours on the terminal off."),
    ("ORT_DISABLE_TELEMETRY", "ORTune sets it to `1` in every process: ONNX Runtime sends no telemetry."),
)
QUOTAS = (  # as in `people_file.Quotas`
    ("upload_bytes", "Bytes of uploads that are not imported yet."),
    ("disk_bytes", "Bytes of models, raw measurements, bundles, other files of results, and kept uploads."),
    (
        "machine_s_per_day",
        "Seconds of jobs in the last 24 hours. A job that runs is not interrupted; a paused one may end.",
    ),
)
TESTS = (  # of the test suite
    ("ORTUNE_CHROMIUM", "The browser; default: Chromium or Chrome on the path, else Playwright's."),
)


def environment() -> str:
    """Return the page of environment variables, files and folders."""
    return page(
        "# Environment variables, files and folders",
        "## Variables",
        table(
            ["Variable", "Read by", "Sets", "Default"],
            ([code(one.name), _READERS[one.read_by], one.sets, one.default] for one in VARIABLES),
        ),
        "`python -m dashboard --home FOLDER` and `--models FOLDER` override the first two variables. "
        f"The dashboard removes `{TOKEN}` from its environment after reading it.",
        "These variables of other tools also have an effect:",
        table(["Variable", "Effect"], ([code(name), text] for name, text in OTHERS)),
        "The section `[quotas]` of the people file limits each person but admins:",
        table(["Limit", "Of"], ([code(name), text] for name, text in QUOTAS)),
        "The test suite reads:",
        table(["Variable", "Sets"], ([code(name), text] for name, text in TESTS)),
        "## Home folder",
        f"`${HOME}` holds everything that ORTune keeps:",
        table(["Path", "Content"], ([code(name), text] for name, text in FOLDERS)),
        "## Variables that workers receive",
        "A worker process opens models and data of unknown origin. It receives the variables below and no "
        "others. Variables whose name contains `TOKEN`, `SECRET`, `PASSW`, `PASSPHRASE`, `CREDENTIAL` or "
        "`API_KEY`, or ends in `_KEY`, are not passed on unless you name them in `ORTUNE_WORKER_ENV`.",
        codes(INHERITED_VARIABLES),
        "A conversion, which may download weights, also receives:",
        codes(dict.fromkeys(name for names in NETWORK_VARIABLES.values() for name in names)),
    )
