"""Times over a store of 100,000 trials: `python benchmarks/large_store.py [--trials N] [--store FILE]`.

What: the lists of the page History (first and last page, each order, filters, words), a trial, its export,
the searches of the store, the earlier results that a measurement and a search look for, whole commands, and
the start of the server. The store is filled with real rows under other names; `--store` keeps it.

Target: below 1 s, the median of three. Commands and the server start Python, which takes about a second. So
their time is what they take beyond the same command over a store of 100 trials. Exit code 1: one is above.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

# The scripts' own folder must not be searched: one of them has the name of a module of the standard library.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks import experiment as lab  # noqa: E402 - the script also runs from a checkout that is not installed
from benchmarks.journal import tell  # noqa: E402
from core.cli.output import EXIT_UNDECIDED  # noqa: E402
from core.run.job_log import clean_up  # noqa: E402
from core.run.prediction import COMPARISONS_READ  # noqa: E402
from core.store import Query, Store  # noqa: E402
from core.store.queries import Order  # noqa: E402
from tests import large_stores, serving  # noqa: E402

TARGET_S = 1.0
TIMES = 3
FEW = 100  # trials of the small store
PAGE = 100  # trials per page of History


def lists(store: Store) -> Mapping[str, Callable[[], Any]]:
    """What the page History asks of the store."""
    _, total = store.trial_page(Query())
    last = (total - 1) // PAGE * PAGE

    def page(query: Query, offset: int = 0) -> Callable[[], Any]:
        return lambda: store.trial_page(query, offset=offset, limit=PAGE)

    orders: tuple[Order, ...] = ("newest", "oldest", "p50", "gain", "study")
    model = store.model_names()[0]
    return {
        **{f"first page, {order}": page(Query(order=order)) for order in orders},
        **{f"last page, {order}": page(Query(order=order), last) for order in orders},
        "word in all": page(Query(text="mlp")),
        "word in few": page(Query(text="phone")),
        "word in none": page(Query(text="nowhere")),
        "three words": page(Query(text="mlp edge phone")),
        "model": page(Query(model_name=model, order="study")),
        "state": page(Query(states=("FAIL",), order="study")),
        "profiles": page(Query(kind="profile", order="study")),
        "label": page(Query(labels=("edge",), order="study")),
        "stars": page(Query(starred=True, order="study")),
        "with archived": page(Query(archived=True, order="study")),
        "names of models": store.model_names,
        "labels": store.labels,
    }


def questions(store: Store) -> Mapping[str, Callable[[], Any]]:
    """What measurements, searches, exports and links ask of the store."""
    (trial,), _ = store.trial_page(Query(states=("COMPLETE",), kind="measure"), limit=1)
    (study, *_) = store.studies()
    return {
        "a trial by its id": lambda: store.trial(trial.id),
        "a trial by 8 digits": lambda: store.trial(trial.id[:8]),
        "a missing trial": lambda: _missing(store),
        "its comparison": lambda: store.trials_of(trial.comparison),
        "an earlier result": lambda: store.find_complete(trial.key, trial.fingerprint),
        "trials of a search": lambda: store.trials(study=study.id),
        "searches": store.studies,
        "searches of a model": lambda: store.studies(model_sha256=study.model_sha256),
        "references of a model": lambda: store.trials(model_sha256=trial.model_sha256, kind="reference"),
        "comparisons of a model": lambda: store.comparisons(
            compared_sha256=trial.model_sha256, limit=COMPARISONS_READ
        ),
        "interrupted trials": lambda: clean_up(store),
        "deletion of a trial": lambda: store.deletion([trial.id]),
    }


def _missing(store: Store) -> None:
    try:
        store.trial("ffffffffff")
    except Exception:
        return
    raise SystemExit("The store has a trial of that id.")


def commands(store: Store) -> Mapping[str, Callable[[], Any]]:
    """Commands as a user types them, in a process of their own, and the start of the server."""
    (trial,), _ = store.trial_page(Query(states=("COMPLETE",), kind="measure"), limit=1)
    verified = store.folder / "verified.yaml"
    verified.write_text("schema: 1\nmodel: {path: digits_cnn}\nsession: {intra_op_num_threads: 1}\n")
    asked = {
        "history": ("history",),
        "history --limit 100": ("history", "--json", "--limit", "100"),
        "history --search": ("history", "--search", "phone"),
        "history --label": ("history", "--label", "edge"),
        "show": ("show", trial.id),
        "export": ("export", trial.id, "--format", "yaml"),
        "searches list": ("searches", "list"),
        "verify --no-measure": ("verify", str(verified), "--no-measure"),
    }
    started = {name: partial(_run, store, *args) for name, args in asked.items()}
    return {**started, "start of the server": partial(_serve, store)}


def _run(store: Store, *args: str) -> None:
    environment = {**os.environ, "ORTUNE_HOME": str(store.folder), "PYTHONPATH": sys.path[0]}
    command = [sys.executable, "-m", "core", *args]
    code = subprocess.run(command, env=environment, check=False, capture_output=True).returncode
    if code not in (0, EXIT_UNDECIDED):  # a YAML file has no outputs that `verify` could compare
        raise SystemExit(f"`{' '.join(command)}` ended with exit code {code}.")


def _serve(store: Store) -> None:
    """Start the server and wait for its first answer."""
    with serving.serving(store.folder):
        pass


def timed(call: Callable[[], Any]) -> float:
    """Median seconds of `TIMES` calls."""
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def main() -> int:
    """Fill the store, time everything, print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="file of the store; it is filled up and kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.store or Path(folder) / "large" / "ortune.db"
        store = large_stores.fill(path, options.trials, lambda made: tell(f"{made:,} trials"))
        small = large_stores.fill(Path(folder) / "small" / "ortune.db", FEW)
        lab.head(lab.this_machine())
        seconds = {name: timed(call) for part in (lists, questions) for name, call in part(store).items()}
        for (name, call), other in zip(commands(store).items(), commands(small).values(), strict=True):
            seconds[name] = timed(call) - timed(other)
    for name, median_s in seconds.items():
        lab.row(name, f"{options.trials:,} trials", f"{median_s:.3f} s", f"< {TARGET_S:g} s")
    return 1 if max(seconds.values()) >= TARGET_S else 0


if __name__ == "__main__":
    sys.exit(main())
